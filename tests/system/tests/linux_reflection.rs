//! System calls of programs that were made for another kernel, as far as the kernel has to do with them.

use nom_system_tests::Guest;

/// Instructions from a program's `syscall` to the library that called it, and back behind it.
const MOST: u64 = 220;
/// Instructions from one address space of an application to another.
const SWITCH_MOST: u64 = 300;

#[test]
fn programs_calls_come_to_their_library_with_every_register() {
    let guest = Guest::bundle("tests/guest/bundles/reflected.toml");
    let life = guest.clone().run();
    let life = life.expect_status(0).expect_no("FAILED").expect("ok registers-are-as-they-were");
    let life = life.expect("ok who-may-not-make-code-reflects-nothing");
    let life = life.expect("ok who-may-not-make-code-has-one-space");
    life.expect("ok spaces-are-apart-but-for-the-library").expect("ok spaces-of-nobodys-are-refused");
    let counted = guest.emulated().qemu("-icount shift=0").run().expect_status(0);
    let instructions = counted.number("figure name=program_call cycles=");
    println!("program_call: {instructions} instructions");
    assert!((1..=MOST).contains(&instructions), "a program's call takes {instructions} instructions");
    let instructions = counted.number("figure name=space_switch cycles=");
    println!("space_switch: {instructions} instructions");
    assert!((1..=SWITCH_MOST).contains(&instructions), "a switch takes {instructions} instructions");
}

#[test]
fn a_program_that_goes_astray_ends_alone() {
    let life = Guest::bundle("tests/guest/bundles/astray.toml").run();
    life.expect_status(0).expect_no("FAILED").expect("ok own-calls-go-to-the-kernel");
}
