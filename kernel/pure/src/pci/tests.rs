use super::*;
use crate::fakes::pci::{FakeFunction, MSIX};
use crate::fakes::{ECAM, FakeMachine};
use crate::msix::Message;
use crate::testing::cases;
use proptest::prelude::*;

const LOW_MEMORY_END: u64 = 0x8000_0000;

fn enumerate(machine: &mut FakeMachine) -> Pci {
    let mut pci = Pci::none();
    pci.enumerate(machine, ECAM, LOW_MEMORY_END);
    pci
}

/// The only device of a machine that has nothing else but `function`.
fn alone(function: FakeFunction) -> (FakeMachine, Pci, usize) {
    let mut machine = FakeMachine::new();
    let number = machine.pci.add(None, 2, 0, function);
    let pci = enumerate(&mut machine);
    (machine, pci, number)
}

/// Pages of every region of every function, ports and the remapping unit included.
fn pages(pci: &Pci) -> Vec<(u64, u64)> {
    let ports = pci.ports.iter().map(|port| &port.function);
    let functions = pci.devices().map(|(_, function)| function).chain(ports).chain(pci.remapper());
    let bars = functions.flat_map(|function| function.bars).filter(|bar| bar.base != 0);
    bars.map(|bar| (bar.base, bar.base + bar.bytes.next_multiple_of(4096))).collect()
}

fn assert_separate(pci: &Pci) {
    let mut pages = pages(pci);
    pages.sort_unstable();
    for (start, end) in &pages {
        assert!(start % 4096 == 0 && *start >= 0xc000_0000 && *end <= 0xfec0_0000, "{start:#x}");
    }
    assert!(pages.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{pages:x?}");
}

#[test]
fn a_machine_without_functions_has_no_devices() {
    let pci = enumerate(&mut FakeMachine::new());
    assert_eq!(pci.devices().count(), 0);
    assert!(pci.remapper().is_none() && pci.ports.is_empty());
}

#[test]
fn functions_are_described_and_switched_off() {
    let (machine, pci, number) = alone(FakeFunction::virtio(0x1041, true));
    let function = pci.device(0).expect("it is listed");
    assert_eq!((function.vendor, function.device, function.class), (0x1af4, 0x1041, 0x020000));
    assert_eq!(function.address, Address::new(0, 2, 0));
    assert_eq!(function.bars[1].bytes, 4096);
    assert_eq!((function.bars[4].bytes, function.bars[4].wide, function.bars[5].bytes), (16384, true, 0));
    assert_eq!((function.msix.count, function.msix.table_bar, function.msix.pending_offset), (4, 1, 2048));
    assert_eq!(pci.index_of(Address::new(0, 2, 0)), Some(0));
    assert_eq!(machine.pci.get(number).half(4) & 7, 0);
    assert_separate(&pci);
}

#[test]
fn functions_of_one_device_are_all_found() {
    let mut machine = FakeMachine::new();
    let function = || FakeFunction::new(1, 2, 0x010000).bar(0, 256);
    machine.pci.add(None, 3, 0, function().multi_function());
    machine.pci.add(None, 3, 5, function());
    machine.pci.add(None, 4, 0, function());
    machine.pci.add(None, 4, 1, function()); // not announced by function 0
    machine.pci.add(None, 31, 7, function()); // there is no function 0
    let pci = enumerate(&mut machine);
    let found: Vec<Address> = pci.devices().map(|(_, function)| function.address).collect();
    assert_eq!(found, [Address::new(0, 3, 0), Address::new(0, 3, 5), Address::new(0, 4, 0)]);
    assert_separate(&pci);
}

#[test]
fn host_and_isa_bridges_and_the_virtio_iommu_are_nobodys() {
    let mut machine = FakeMachine::new();
    machine.pci.add(None, 0, 0, FakeFunction::new(0x8086, 0x29c0, 0x060000));
    machine.pci.add(None, 1, 0, FakeFunction::virtio(0x1057, false));
    machine.pci.add(None, 2, 0, FakeFunction::new(0x1022, 1, 0x080600));
    let pci = enumerate(&mut machine);
    assert_eq!(pci.devices().count(), 0);
    assert_eq!(pci.remapper().map(|function| function.address), Some(Address::new(0, 1, 0)));
}

#[test]
fn devices_behind_bridges_are_numbered_placed_and_reached() {
    let mut machine = FakeMachine::new();
    let outer = machine.pci.add(None, 1, 0, FakeFunction::root_port(false));
    let inner = machine.pci.add(Some(outer), 0, 0, FakeFunction::bridge());
    let deep = machine.pci.add(Some(inner), 7, 0, FakeFunction::virtio(0x1042, true));
    let other = machine.pci.add(None, 2, 0, FakeFunction::root_port(true));
    let plugged = machine.pci.add(Some(other), 0, 0, FakeFunction::virtio(0x1041, true));
    let pci = enumerate(&mut machine);
    assert_eq!(machine.pci.address(deep), Some(Address::new(2, 7, 0)));
    assert_eq!(machine.pci.address(plugged), Some(Address::new(3, 0, 0)));
    assert_separate(&pci);
    for number in [deep, plugged] {
        let address = machine.pci.address(number).expect("it is routed");
        let index = pci.index_of(address).expect("it is listed");
        assert!(pci.switch_on(&mut machine, index));
        // The fake panics unless exactly this function decodes its own table through all bridges.
        assert!(pci.devices[index].bind(&mut machine, 3, Message::new(1, 0x40)));
    }
    let confinable = |machine: &mut FakeMachine, number| {
        let address = machine.pci.address(number).expect("it is routed");
        pci.is_confinable(machine, pci.index_of(address).expect("it is listed"))
    };
    assert!(confinable(&mut machine, plugged));
    assert!(!confinable(&mut machine, deep), "a conventional bridge hides who it is");
}

#[test]
fn what_firmware_numbered_and_placed_before_does_not_matter() {
    let mut machine = FakeMachine::new();
    for device in 1..4 {
        let port = machine.pci.add(None, device, 0, FakeFunction::root_port(true));
        machine.pci.add(Some(port), 0, 0, FakeFunction::virtio(0x1041, true));
    }
    let first = enumerate(&mut machine);
    for (index, _) in first.devices() {
        assert!(first.switch_on(&mut machine, index));
    }
    let second = enumerate(&mut machine);
    assert_eq!(pages(&first), pages(&second));
    assert_eq!(second.devices().count(), 3);
}

#[test]
fn a_region_that_finds_no_room_keeps_its_function_off() {
    let (mut machine, pci, number) = alone(FakeFunction::new(1, 2, 0).bar(0, 4096).wide_bar(2, 1 << 40));
    assert_eq!(pci.device(0).map(|function| function.bars[2].base), Some(0));
    assert!(!pci.switch_on(&mut machine, 0));
    assert!(!pci.is_confinable(&mut machine, 0));
    assert_eq!(machine.pci.get(number).half(4) & 6, 0);
}

#[test]
fn an_io_region_is_no_region() {
    let (_, pci, _) = alone(FakeFunction::new(1, 2, 0).io_bar(0).bar(1, 256));
    let function = pci.device(0).expect("it is listed");
    assert_eq!((function.bars[0].bytes, function.bars[1].bytes), (0, 256));
    assert_eq!(function.bars[1].pages(0, 4096), Some(function.bars[1].base), "the page is its own");
    assert_eq!(function.bars[1].pages(0, 4097), None);
    assert_eq!(function.bars[1].pages(u64::MAX, 2), None);
    assert_eq!(function.bars[0].pages(0, 1), None);
}

#[test]
fn no_more_devices_are_listed_than_the_board_holds() {
    let mut machine = FakeMachine::new();
    for device in 0..12 {
        for function in 0..8 {
            machine.pci.add(None, device, function, FakeFunction::new(1, 2, 0).multi_function());
        }
    }
    assert_eq!(enumerate(&mut machine).devices().count(), DEVICES_MAX);
}

#[test]
fn a_device_is_reset_before_it_can_reach_memory() {
    let resettable = FakeFunction::new(1, 2, 0).bar(0, 4096).msix(2, 0, 0, 2048).express(0, true);
    for function in [resettable, FakeFunction::virtio(0x1041, true)] {
        let (mut machine, pci, number) = alone(function);
        assert!(pci.switch_on(&mut machine, 0));
        let it = machine.pci.get(number);
        assert!(it.can_dma() && it.resets == 1);
        assert_eq!(it.half(MSIX + 2) & 0xc000, 0x8000, "MSI-X is on and not masked as a whole");
        let base = pci.device(0).expect("it is listed").bars.iter().find(|bar| bar.base != 0);
        assert!(machine.pci.decoder(base.expect("it has a region").base).is_some(), "the reset was undone");
        pci.switch_off(&mut machine, 0);
        let it = machine.pci.get(number);
        assert!(it.resets == 2 && it.half(4) & 6 == 0 && it.half(MSIX + 2) & 0x8000 == 0);
    }
}

/// Nobody else comes into the kernel while it is looked whether a reset is done: 500 looks of two words, and
/// a few to turn it off.
#[test]
fn a_reset_that_takes_long_is_not_waited_for() {
    let mut function = FakeFunction::new(1, 2, 0).bar(0, 4096).msix(2, 0, 0, 2048).express(0, true);
    function.hangs = true;
    let (mut machine, pci, number) = alone(function);
    assert!(!pci.switch_on(&mut machine, 0), "it is not back");
    let it = machine.pci.get(number);
    assert!(!it.can_dma() && (500..=1_010).contains(&it.looks), "{} looks", it.looks);
    machine.pci.get_mut(number).hangs = false;
    assert!(pci.switch_on(&mut machine, 0), "it is tried again");
}

#[test]
fn a_device_that_has_left_cannot_be_switched_on() {
    let mut machine = FakeMachine::new();
    let port = machine.pci.add(None, 1, 0, FakeFunction::root_port(true));
    machine.pci.add(Some(port), 0, 0, FakeFunction::virtio(0x1041, true));
    let pci = enumerate(&mut machine);
    machine.pci.pull(port);
    assert!(!pci.switch_on(&mut machine, 0));
    pci.switch_off(&mut machine, 0);
    assert_eq!(pci.config_read(&mut machine, 0, 0), u32::MAX);
    assert_eq!(pci.config_read(&mut machine, 63, 0), u32::MAX);
}

#[test]
fn vectors_start_masked_and_are_bound_and_masked_one_by_one() {
    let (mut machine, pci, _) = alone(FakeFunction::virtio(0x1041, true));
    let table = pci.device(0).expect("it is listed").bars[1].base;
    assert!(pci.switch_on(&mut machine, 0));
    let mut read = |offset| machine.read32(table + offset);
    assert!((0..4).all(|vector| read(16 * vector + 12) == 1));
    assert!(pci.devices[0].bind(&mut machine, 2, Message::new(3, 0x51)));
    let mut read = |offset| machine.read32(table + offset);
    assert_eq!([read(32), read(36), read(40), read(44)], [0xfee0_3000, 0, 0x51, 0]);
    pci.mask_vector(&mut machine, 0, 2, true);
    assert_eq!(machine.read32(table + 44), 1);
    assert!(!pci.devices[0].bind(&mut machine, 4, Message::new(3, 0x51)));
    pci.mask_vector(&mut machine, 1, 0, true);
}

#[test]
fn an_msix_table_outside_its_region_is_none() {
    for (count, bar, table) in [(4, 1, 4096 - 48), (1, 2, 0), (1, 7, 0), (2048, 1, 0)] {
        let (_, pci, _) = alone(FakeFunction::new(1, 2, 0).bar(1, 4096).msix(count, bar, table, 2048));
        assert_eq!(pci.device(0).map(|function| function.msix), Some(MsixTable::default()), "{count} {bar}");
    }
}

#[test]
fn a_capability_list_that_goes_in_circles_ends() {
    let mut function = FakeFunction::new(1, 2, 0).express(0, false);
    function.config[0x41] = 0x40;
    let (_, pci, _) = alone(function);
    assert_eq!(pci.device(0).map(|function| function.msix.count), Some(0));
}

#[test]
fn virtio_devices_without_the_platform_feature_escape_confinement() {
    for (function, confinable) in [
        (FakeFunction::virtio(0x1041, true), true),
        (FakeFunction::virtio(0x1041, false), false),
        (FakeFunction::new(0x1af4, 0x1000, 0x020000), false),
        (FakeFunction::new(0x1af4, 0x1110, 0x050000).bar(0, 256), true),
        (FakeFunction::new(0x8086, 0x10d3, 0x020000).bar(0, 4096), true),
    ] {
        let (mut machine, pci, number) = alone(function);
        assert_eq!(pci.is_confinable(&mut machine, 0), confinable);
        assert_eq!(machine.pci.get(number).half(4) & 6, 0, "it stays off");
    }
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn a_page_is_reserved_exactly_if_it_holds_part_of_the_table_or_of_the_pending_bits(
        count in 1_u16..=300,
        table in 0_u32..2000,
        pending in 2000_u32..4000,
        offset in 0_u64..70_000,
        length in 0_u64..9_000,
    ) {
        let (table, pending) = (table * 8, pending * 8);
        let bytes = 1 << 16;
        let function = FakeFunction::new(1, 2, 0).bar(0, bytes).bar(1, bytes);
        let (_, pci, _) = alone(function.msix(count, 0, table, pending));
        let function = pci.device(0).expect("it is listed");
        let held: Vec<u64> = (u64::from(table)..u64::from(table) + 16 * u64::from(count))
            .chain(u64::from(pending)..u64::from(pending) + 8 * u64::from(count.div_ceil(64)))
            .map(|byte| byte / 4096)
            .collect();
        let expected = (offset..offset + length).any(|byte| held.contains(&(byte / 4096)));
        prop_assert_eq!(function.is_reserved(0, offset, length), expected);
        prop_assert!(!function.is_reserved(1, offset, length));
    }

    #[test]
    fn regions_never_share_a_page(
        functions in prop::collection::vec(
            (0_usize..4, prop::collection::vec(4_u32..22, 1..6), any::<bool>()), 1..20),
    ) {
        let mut machine = FakeMachine::new();
        let ports: Vec<usize> = (0..3)
            .map(|device| machine.pci.add(None, device, 0, FakeFunction::root_port(device == 1)))
            .collect();
        let mut behind = [0_u8; 3];
        for (index, (bus, sizes, wide)) in functions.iter().enumerate() {
            let mut function = FakeFunction::new(1, 2, 0).multi_function();
            let step = if *wide { 2 } else { 1 };
            for (bar, size) in sizes.iter().take(6 / step).enumerate() {
                let bytes = 1 << size;
                function = if *wide { function.wide_bar(2 * bar, bytes) } else { function.bar(bar, bytes) };
            }
            match ports.get(*bus) {
                Some(port) if behind[*bus] < 8 => {
                    machine.pci.add(Some(*port), 0, behind[*bus], function);
                    behind[*bus] += 1;
                }
                _ => {
                    machine.pci.add(None, 4 + index as u8, 0, function);
                }
            }
        }
        let pci = enumerate(&mut machine);
        assert_separate(&pci);
        prop_assert_eq!(pci.devices().count(), functions.len());
        for (index, function) in pci.devices() {
            prop_assert!(function.is_placed());
            prop_assert!(pci.switch_on(&mut machine, index));
            for bar in function.bars.iter().filter(|bar| bar.bytes != 0) {
                // The fake panics if anything else decodes the address, or a bridge does not forward it.
                prop_assert!(machine.pci.decoder(bar.base + bar.bytes - 1).is_some());
            }
        }
    }
}
