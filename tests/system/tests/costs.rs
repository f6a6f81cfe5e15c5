//! What crossing the border costs, in guest instructions; in time, and beside Linux, is for the bench to say.

use nom_system_tests::Guest;

/// Instructions for which one call may have the kernel to itself.
const LONGEST_HOLD: u64 = 250_000;
/// Most instructions of each way across the border. Of a message there and back: half of those of Linux's
/// pipe (12,764, by `nom bench boot`).
const MOST: [(&str, u64); 4] = [
    ("system_call", 149),
    ("upcall_round_trip", 1_000),
    ("address_space_switch", 1_218),
    ("ipc_round_trip_one_processor", 12_764 / 2),
];

/// How long a piece of an application's start, one of its end with 64 MiB of single pages, and its fault with
/// the report have the kernel to themselves, at most.
const LIVES: [(&str, u64); 3] = [("start", 100_000), ("end", 100_000), ("fault", LONGEST_HOLD)];

#[test]
fn lives_and_deaths_of_others_keep_the_kernel_for_as_long_as_is_said() {
    let guest = Guest::bundle("tests/guest/bundles/measure-lives.toml").memory("128M");
    let counted = guest.emulated().qemu("-icount shift=0").run().expect_status(0);
    for (name, most) in LIVES {
        let instructions = counted.number(&format!("figure name=longest_{name} cycles="));
        println!("{name}: {instructions} instructions");
        assert!(
            (1..=most).contains(&instructions),
            "{name} keeps the kernel for {instructions} instructions"
        );
    }
}

#[test]
fn registers_are_mapped_and_taken_back_in_as_long_as_other_calls_take() {
    let guest = Guest::bundle("tests/guest/bundles/measure-registers.toml")
        .emulated()
        .device("ivshmem-plain,memdev=registers")
        .qemu("-object memory-backend-ram,id=registers,size=2M -icount shift=0");
    let counted = guest.run().expect_status(0);
    for name in ["device_map", "device_release"] {
        let instructions = counted.number(&format!("figure name=longest_{name} cycles="));
        println!("{name}: {instructions} instructions");
        assert!(instructions <= LONGEST_HOLD, "{name} keeps the kernel for {instructions} instructions");
    }
}

/// What all of 512 address spaces show is written in each of them.
#[test]
fn many_address_spaces_keep_the_kernel_no_longer() {
    let guest = Guest::bundle("tests/guest/bundles/measure-spaces.toml");
    let counted = guest.emulated().qemu("-icount shift=0").run().expect_status(0);
    for name in ["map", "unmap"] {
        let instructions = counted.number(&format!("figure name=longest_{name}_in_all_spaces cycles="));
        println!("{name} in all spaces: {instructions} instructions");
        assert!(instructions <= LONGEST_HOLD, "{name} keeps the kernel for {instructions} instructions");
    }
}

#[test]
fn every_cost_is_measured() {
    let life = Guest::bundle("tests/guest/bundles/measure.toml").cpus(2).run().expect_status(0);
    for name in
        ["system_call", "upcall_round_trip", "board_clock", "ipc_round_trip_awake", "ipc_round_trip_asleep"]
    {
        assert!(life.number(&format!("figure name={name} cycles=")) > 0, "{name}");
    }
    let switch = Guest::bundle("tests/guest/bundles/measure-switch.toml");
    let life = switch.clone().run().expect_status(0);
    assert!(life.number("figure name=address_space_switch cycles=") > 0);
    let counted = switch.emulated().qemu("-icount shift=0").run().expect_status(0);
    for (name, most) in MOST {
        let instructions = counted.number(&format!("figure name={name} cycles="));
        println!("{name}: {instructions} instructions");
        assert!((1..=most).contains(&instructions), "{name} takes {instructions} instructions");
    }
    for name in ["map", "protect", "unmap", "release", "grant_and_release_16", "search"] {
        let instructions = counted.number(&format!("figure name=longest_{name} cycles="));
        println!("{name}: {instructions} instructions");
        assert!(instructions <= LONGEST_HOLD, "{name} keeps the kernel for {instructions} instructions");
    }
}

/// A search for two frames in a row goes over 70 MiB of single ones, which takes 600,000 instructions: it
/// stops for a while when the turn of who asked is over.
#[test]
fn a_search_in_fragmented_memory_keeps_nobody_from_the_processor() {
    /// A turn, and more than one piece of a search.
    const GAP: u64 = 2_000_000 + 60_000;
    let guest = Guest::bundle("tests/guest/bundles/measure-search.toml").memory("256M");
    let counted = guest.emulated().qemu("-icount shift=0").run().expect_status(0);
    let gap = counted.number("figure name=gap cycles=");
    println!("gap: {gap} instructions");
    assert!((2_000_000..=GAP).contains(&gap), "the processor is back after {gap} instructions");
}
