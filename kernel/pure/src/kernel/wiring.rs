//! What the kernel's parts must tell the machine, on one that remembers everything it is not told to forget:
//! processors with their translations and vector registers, devices, and both kinds of remapping units.

mod family;
mod hostile;
mod reflection;
mod start;

use super::fake::{FRAMES, INITIAL_VECTOR, Program, World};
use super::{FIRST_DEVICE_VECTOR, Next};
use crate::acpi::{EndpointRange, Tables, Viot};
use crate::fakes::pci::{FakeFunction, MSIX};
use crate::fakes::virtio_iommu::FakeVirtioIommu;
use crate::fakes::vtd::{self, FakeVtd};
use crate::fakes::{FakeMachine, IO_APIC};
use crate::frames::Owner;
use crate::list::List;
use crate::machine::{Frame, PhysAddr, PhysicalMemory};
use crate::pci::Address;
use crate::testing::{app, on, user};
use nom_abi::PageSize;
use nom_abi::board::ApplicationState;
use nom_abi::error::Error;
use nom_abi::start::Start;
use nom_abi::syscall::Syscall;
use nom_abi::upcall::Upcall;
use zerocopy::{FromZeros, IntoBytes};

const ANY: u64 = nom_abi::memory::ANY_COLOUR;
/// Where tests map a page, and what is mapped behind it.
const PAGE: u64 = 0x10_0000;
const REGISTERS: u64 = 0x20_0000;
/// Protections, as calls take them.
const READ: u64 = 1;
const READ_WRITE: u64 = 3;

/// Grants a frame to the application on `core`.
fn grant(world: &mut World, core: usize) -> u64 {
    world.call(core, Syscall::MemoryGrant, &[0, 1, ANY]).unwrap().unwrap()
}

/// Grants a frame and maps it.
fn map(world: &mut World, core: usize, address: u64) -> u64 {
    let frame = grant(world, core);
    world.call(core, Syscall::MemoryMap, &[address, frame, 0, 1, READ_WRITE]).unwrap().unwrap();
    frame
}

/// One application on two cores.
fn on_two_cores() -> World {
    let mut world = World::boot(2, &[Program { cores_max: 2, ..Program::named("a") }], &[]);
    assert_eq!(world.call(0, Syscall::CoreAcquire, &[0x40_0000, 0x50_0000, 9, 1]), Some(Ok(1)));
    world.settle(1, false);
    world
}

#[test]
fn a_mapping_that_fails_does_not_hold_its_frames() {
    let mut world = World::boot(1, &[Program::named("a")], &[]);
    map(&mut world, 0, PAGE);
    let frame = grant(&mut world, 0);
    let again = world.call(0, Syscall::MemoryMap, &[PAGE, frame, 0, 1, READ_WRITE]);
    assert_eq!(again, Some(Err(Error::AlreadyMapped)));
    assert_eq!(world.call(0, Syscall::MemoryRelease, &[frame, 0, 1]), Some(Ok(0)));
}

#[test]
fn a_sleep_that_fails_keeps_what_there_was_to_tell() {
    let mut world = World::boot(1, &[Program::named("a")], &[]);
    map(&mut world, 0, PAGE);
    map(&mut world, 0, PAGE + 0x3000);
    world.call(0, Syscall::MemoryProtect, &[PAGE + 0x3000, 4096, READ]).unwrap().unwrap();
    world.kernel.tell_on(on(0), app(0), Upcall::CoreNotified, |_| {});
    for place in [PAGE + 0x3000, PAGE + 0x5000] {
        let nowhere = world.call(0, Syscall::CoreWait, &[u64::MAX, place]);
        assert_eq!(nowhere, Some(Err(Error::BadPointer)), "nothing can be written to {place:#x}");
    }
    let told = world.call(0, Syscall::CoreWait, &[u64::MAX, PAGE]);
    assert_eq!(told, Some(Ok(Upcall::CoreNotified.mask())));
}

/// An upcall comes behind the application's last look and before its call: it notes that where it waits.
#[test]
fn what_an_upcall_told_ends_a_wait_that_is_about_to_begin() {
    let mut world = World::boot(1, &[Program::named("a")], &[]);
    let frame = map(&mut world, 0, PAGE);
    world.call(0, Syscall::UpcallRegister, &[PAGE, PAGE + 4096]).unwrap().unwrap();
    world.kernel.tell_on(on(0), app(0), Upcall::Message, |events| events.messages |= 1);
    world.settle(0, false);
    assert_eq!(world.borders[0].rip, PAGE, "it is in its handler");
    let (told, message) = (world.borders[0].rdi - PAGE, Upcall::Message.mask());
    assert_eq!(world.kernel.machine.memory_word(frame * 4096 + told), message);
    world.call(0, Syscall::UpcallReturn, &[PAGE + told]);
    world.kernel.machine.write(PhysAddr::of_frame(Frame::new(frame)), message);
    assert_eq!(world.call(0, Syscall::CoreWait, &[u64::MAX, PAGE]), Some(Ok(0)), "it sleeps");
    assert_eq!(world.kernel.machine.memory_word(frame * 4096), message, "and finds what it noted");
    world.kernel.machine.write(PhysAddr::of_frame(Frame::new(frame)), 0);
    assert_eq!(world.call(0, Syscall::CoreWait, &[u64::MAX, PAGE]), None);
}

#[test]
fn every_core_forgets_what_is_unmapped_or_protected() {
    let mut world = on_two_cores();
    let frame = map(&mut world, 0, PAGE);
    for core in 0..2 {
        assert_eq!(world.touch(core, PAGE + 8, true), Some(frame * 4096 + 8), "core {core}");
    }
    world.call(1, Syscall::MemoryProtect, &[PAGE, 4096, READ]).unwrap().unwrap();
    for core in 0..2 {
        assert_eq!(world.touch(core, PAGE, true), None, "core {core}");
        assert_eq!(world.touch(core, PAGE, false), Some(frame * 4096), "core {core}");
    }
    world.call(1, Syscall::MemoryUnmap, &[PAGE, 4096]).unwrap().unwrap();
    for core in 0..2 {
        assert_eq!(world.touch(core, PAGE, false), None, "core {core}");
    }
}

#[test]
fn every_core_forgets_all_pages_that_are_unmapped_at_once() {
    let mut world = on_two_cores();
    let pages = [PAGE, PAGE + 4096, PAGE + 8192];
    for page in pages {
        map(&mut world, 0, page);
    }
    let touched =
        |world: &mut World| [0, 1].map(|core| pages.map(|page| world.touch(core, page, false).is_some()));
    assert_eq!(touched(&mut world), [[true; 3]; 2]);
    world.call(1, Syscall::MemoryUnmap, &[PAGE, 8192]).unwrap().unwrap();
    assert_eq!(touched(&mut world), [[false, false, true]; 2]);
}

#[test]
fn every_core_leaves_an_application_that_ends() {
    let mut world = on_two_cores();
    assert!(world.kernel.machine.processors.iter().all(|processor| processor.root.is_some()));
    assert_eq!(world.call(0, Syscall::Exit, &[0]), None);
    // Core 1 has not been in the kernel since, and the tables it would walk are somebody else's frames now.
    assert!(world.kernel.machine.processors.iter().all(|processor| processor.root.is_none()));
}

#[test]
fn a_core_that_halts_keeps_the_address_space() {
    let mut world = World::boot(1, &[Program::named("a")], &[]);
    map(&mut world, 0, PAGE);
    let root = world.kernel.machine.processors[0].root;
    assert_eq!(world.call(0, Syscall::CoreWait, &[u64::MAX, PAGE]), None);
    assert_eq!((world.next[0], world.kernel.machine.processors[0].root), (Next::Halt, root));
    assert!(root.is_some());
}

#[test]
fn a_core_that_halts_forgets_what_is_unmapped() {
    let mut world = on_two_cores();
    let frame = map(&mut world, 0, PAGE);
    assert_eq!(world.touch(1, PAGE, false), Some(frame * 4096));
    assert_eq!(world.call(1, Syscall::CoreWait, &[u64::MAX, PAGE]), None);
    world.call(0, Syscall::MemoryUnmap, &[PAGE, 4096]).unwrap().unwrap();
    assert_eq!(world.touch(1, PAGE, false), None);
}

#[test]
fn a_core_that_is_given_back_leaves_the_address_space() {
    let mut world = on_two_cores();
    assert_eq!(world.call(1, Syscall::CoreRelease, &[]), None);
    assert_eq!((world.next[1], world.kernel.machine.processors[1].root), (Next::Halt, None));
}

#[test]
fn a_core_that_has_something_to_do_is_asked_into_the_kernel() {
    let mut world = on_two_cores();
    world.kernel.machine.kicked.clear();
    world.call(0, Syscall::CoreNotify, &[0]).unwrap().unwrap();
    assert!(!world.kernel.machine.kicked.contains(&1));
    world.call(1, Syscall::CoreNotify, &[0]).unwrap().unwrap();
    assert!(!world.kernel.machine.kicked.contains(&0), "without a handler it cannot be told before it asks");
    map(&mut world, 1, PAGE);
    assert_eq!(world.call(1, Syscall::CoreWait, &[u64::MAX, PAGE]), None);
    world.kernel.machine.kicked.clear();
    world.call(0, Syscall::CoreNotify, &[1]).unwrap().unwrap();
    assert!(world.kernel.machine.kicked.contains(&1));
}

#[test]
fn vector_registers_stay_with_their_context_and_begin_as_nobodys() {
    let mut world = World::boot(1, &[Program::named("a"), Program::named("b")], &[]);
    let set = |world: &mut World, vector: u64| {
        world.kernel.machine.processors[0].vector = vector;
        for (segment, address) in [(0, vector << 12), (1, vector << 13)] {
            assert_eq!(world.call(0, Syscall::SegmentBase, &[segment, address]), Some(Ok(0)));
        }
        let (none, kernels) = ([2, 0], [1, nom_abi::layout::USER_END]);
        assert_eq!(world.call(0, Syscall::SegmentBase, &none), Some(Err(Error::InvalidArgument)));
        assert_eq!(world.call(0, Syscall::SegmentBase, &kernels), Some(Err(Error::OutsideUserSpace)));
    };
    let now = |world: &World| {
        let processor = &world.kernel.machine.processors[0];
        (processor.vector, processor.bases)
    };
    assert_eq!((world.kernel.cores[0].current(), now(&world)), (Some(app(0)), (INITIAL_VECTOR, [0, 0])));
    set(&mut world, 5);
    for round in 0..2 {
        world.call(0, Syscall::CoreYield, &[]).unwrap().unwrap();
        let expected = if round == 0 { (INITIAL_VECTOR, [0, 0]) } else { (6, [6 << 12, 6 << 13]) };
        assert_eq!((world.kernel.cores[0].current(), now(&world)), (Some(app(1)), expected), "round {round}");
        set(&mut world, 6);
        world.call(0, Syscall::CoreYield, &[]).unwrap().unwrap();
        assert_eq!(
            (world.kernel.cores[0].current(), now(&world)),
            (Some(app(0)), (5, [5 << 12, 5 << 13])),
            "round {round}"
        );
    }
}

/// The state of whoever ended is not what the next one on its core begins with.
#[test]
fn vector_registers_of_the_ended_are_nobodys() {
    let manager = Program { manages: 0b10, ..Program::named("manager") };
    let mut world = World::boot(2, &[manager, Program { flags: 0, ..Program::named("victim") }], &[]);
    for _ in 0..2 {
        world.call(0, Syscall::ApplicationStart, &[1]).unwrap().unwrap();
        world.settle(1, false);
        assert_eq!(
            (world.kernel.cores[1].current(), world.kernel.machine.processors[1].vector),
            (Some(app(1)), INITIAL_VECTOR)
        );
        world.kernel.machine.processors[1].vector = 7;
        world.call(0, Syscall::ApplicationKill, &[1]).unwrap().unwrap();
        world.settle(1, false);
        assert_eq!(world.kernel.cores[1].current(), None);
    }
}

/// Whether a page that ring 3 reaches is full of `byte` from `offset` on.
fn is_full_of(world: &mut World, address: u64, offset: u64, byte: u8) -> bool {
    let physical = world.touch(0, address, false).expect("it is mapped");
    let (physical, mut page) = (PhysAddr::new(physical), [0; 4096]);
    crate::machine::PhysicalMemory::read_bytes(&world.kernel.machine, physical, &mut page);
    page[offset as usize..].iter().all(|it| *it == byte)
}

/// Memory is full of rubbish before: what an application sees is its own, or zero.
#[test]
fn nobody_sees_what_was_in_memory_before() {
    let mut world = World::boot(1, &[Program::named("a"), Program::named("b")], &[[0, 1]]);
    let (image, border) = (world.kernel.applications[0].image(), world.borders[0]);
    assert!(is_full_of(&mut world, image + 0x1000, 0, 0xcc), "data has its contents");
    assert!(is_full_of(&mut world, image + 0x2000, 0, 0xdd), "each page its own");
    assert!(is_full_of(&mut world, image + 0x3000, 0, 0), "what follows it is zero");
    assert!(
        is_full_of(&mut world, border.rsp - 4096, 0, 0) && is_full_of(&mut world, border.rsp - 8192, 0, 0)
    );
    assert!(is_full_of(&mut world, border.rdi, size_of::<Start>() as u64, 0), "behind the start page");
    assert_eq!(world.touch(0, border.rdi, true), None, "which is read-only");
    let mut start = Start::new_zeroed();
    let space = world.kernel.applications[0].space().unwrap();
    space.read_user(&world.kernel.machine, user(border.rdi), start.as_mut_bytes()).unwrap();
    assert_eq!((start.channels, start.channel[0].bytes), (1, 8192));
    for page in [0, 4096] {
        assert!(is_full_of(&mut world, start.channel[0].address + page, 0, 0), "a channel");
    }
    map(&mut world, 0, PAGE);
    assert!(is_full_of(&mut world, PAGE, 0, 0), "a grant");
    // Every table on the way: whatever else it leads to is not mapped.
    let others = [PAGE - 4096, PAGE + 4096, PAGE + (2 << 20), PAGE + (1 << 30), PAGE + (1 << 39)];
    for other in others.into_iter().chain([image - 4096, border.rsp, start.channel[0].address + 8192]) {
        assert_eq!(world.touch(0, other, false), None, "{other:#x}");
    }
}

/// A large grant is zeroed in pieces, and the application's other core is there in between.
#[test]
fn a_grant_is_nobodys_to_map_before_all_of_it_is_zero() {
    const COUNT: u64 = 100;
    let mut world = on_two_cores();
    let next = grant(&mut world, 0) + 1;
    let (mut pieces, begin) = (0, world.borders[0].rip);
    loop {
        let answer = world.call_once(0, Syscall::MemoryGrant, &[0, COUNT, ANY]);
        if world.borders[0].rip == begin {
            assert_eq!(answer, Some(Ok(next)));
            break;
        }
        world.borders[0].rip = begin;
        pieces += 1;
        let early = world.call(1, Syscall::MemoryMap, &[PAGE, next, 0, 1, READ]);
        assert_eq!(early, Some(Err(Error::NotGranted)), "after {pieces} pieces");
    }
    assert!(pieces > 1, "nobody is kept from the kernel for so long");
    assert_eq!(world.call(0, Syscall::MemoryMap, &[PAGE, next, 0, COUNT, READ]), Some(Ok(0)));
    assert!((0..COUNT).all(|page| is_full_of(&mut world, PAGE + page * 4096, 0, 0)));
}

/// Leaves no two free frames in a row.
fn fragment(world: &mut World) {
    for frame in (0..FRAMES).step_by(2) {
        let _ = world.kernel.frames.claim(Owner::KERNEL, Frame::new(frame), 1); // Or it is taken already.
    }
}

/// The application's other core uses up what it may have while this one's search is under way.
#[test]
fn what_a_search_finds_is_charged_as_the_application_stands_then() {
    let mut world = on_two_cores();
    fragment(&mut world);
    world.kernel.frames.release(Owner::KERNEL, Frame::new(FRAMES - 2), PageSize::Small, 1).unwrap();
    let begin = world.borders[0].rip;
    world.call_once(0, Syscall::MemoryGrant, &[0, 2, ANY]);
    assert_eq!(world.borders[0].rip.wrapping_add(2), begin, "it has not looked at the end of memory yet");
    while world.call(1, Syscall::MemoryGrant, &[0, 1, ANY]).unwrap().is_ok() {}
    world.borders[0].rip = begin;
    assert_eq!(world.call(0, Syscall::MemoryGrant, &[0, 2, ANY]), Some(Err(Error::OverMemoryCap)));
}

/// Memory in small pieces is searched in pieces of time, too. What comes meanwhile is told when it is over.
#[test]
fn a_search_for_a_grant_lets_others_in_and_hears_of_them_afterwards() {
    let mut world = on_two_cores();
    map(&mut world, 0, PAGE);
    map(&mut world, 0, 0x10_1000);
    world.call(0, Syscall::UpcallRegister, &[PAGE, PAGE + 4096]).unwrap().unwrap();
    fragment(&mut world);
    let (free, begin, mut pieces) = (world.kernel.frames.free(), world.borders[0].rip, 0);
    let answer = loop {
        let answer = world.call_once(0, Syscall::MemoryGrant, &[0, 2, ANY]);
        if world.borders[0].rip.wrapping_add(2) != begin {
            break answer;
        }
        pieces += 1;
        world.kernel.tell(app(0), Upcall::DeviceArrived, |_| {});
        world.settle(0, false);
        assert_eq!(world.borders[0].rip.wrapping_add(2), begin, "it is not disturbed");
        assert_eq!(world.call(1, Syscall::CoreYield, &[]), Some(Ok(0)), "others come in");
        world.borders[0].rip = begin;
    };
    assert_eq!((answer, world.kernel.frames.free()), (Some(Err(Error::OutOfMemory)), free));
    assert!(pieces > 0, "it looked at all of memory at one go");
    assert_eq!(world.borders[0].rip, PAGE, "it is told what came");
}

const NET: u16 = 0x1041;
/// The registers that a driver maps, behind the base address register that has them.
const BAR: u64 = 4;
/// The base address register with the MSI-X table.
const MSIX_BAR: u64 = 1;

/// The remapping units that a machine may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    None,
    Virtio,
    Vtd,
}

const UNITS: [Unit; 3] = [Unit::None, Unit::Virtio, Unit::Vtd];

/// A machine with one network device, whose number is returned, which the first application drives on both
/// cores and the second may have, too.
fn with_device(unit: Unit) -> (World, usize) {
    let mut hardware = FakeMachine::new();
    let number = hardware.pci.add(None, 2, 0, FakeFunction::virtio(NET, true));
    (with_hardware(unit, hardware), number)
}

/// A machine with network devices for the first two applications, the first of which is on core 0.
fn with_hardware(unit: Unit, hardware: FakeMachine) -> World {
    with_driver(unit, hardware, Program { drives: NET, cores_max: 2, ..Program::named("driver") })
}

/// The same, if the first of them is this one.
fn with_driver(unit: Unit, mut hardware: FakeMachine, driver: Program) -> World {
    let mut tables = Tables::default();
    match unit {
        Unit::None => {}
        Unit::Vtd => {
            hardware.vtd = Some(FakeVtd::new(true, true, 3));
            tables.remapping_units.push(vtd::BASE);
        }
        Unit::Virtio => {
            let remapper = hardware.pci.add(None, 4, 0, FakeFunction::virtio(0x1057, false));
            hardware.virtio_iommu = Some(FakeVirtioIommu::new((remapper, 4), 0));
            tables.io_apic = Some(IO_APIC);
            let mut ranges = List::default();
            ranges.push(EndpointRange { first: 0, last: 0xfff, endpoint: 0 });
            tables.viot = Some(Viot { iommu: Address::new(0, 4, 0).0, ranges });
        }
    }
    let second = Program { drives: NET, ..Program::named("second") };
    let idle = Program { drives: 0, ..Program::named("bystander") };
    let mut world = World::boot_on(hardware, &tables, 2, &[driver, second, idle], &[]);
    while world.kernel.cores[0].current() != Some(app(0)) {
        world.pass(0, 1_000_000);
    }
    world
}

/// Acquires the device, maps its registers, and binds two of its vectors to core 0.
fn drive(world: &mut World) {
    assert_eq!(world.call(0, Syscall::DeviceAcquire, &[0]), Some(Ok(0)));
    assert_eq!(world.call(0, Syscall::DeviceMap, &[0, BAR, 0x2000, REGISTERS, 0x1000]), Some(Ok(0)));
    for entry in 0..2 {
        assert_eq!(world.call(0, Syscall::InterruptBind, &[0, entry, 5 + entry]), Some(Ok(0)));
    }
}

/// Whether the device can read or write a frame.
fn dma(world: &mut World, number: usize, frame: u64) -> bool {
    let hardware = &mut world.kernel.machine.hardware;
    let function = hardware.pci.address(number).expect("it is there");
    hardware.pci.get(number).can_dma() && hardware.reaches(function, frame * 4096)
}

/// Whether the device would send the interrupt of an entry.
fn signals(world: &mut World, number: usize, entry: u64) -> bool {
    use crate::machine::Registers;
    let function = world.kernel.devices.pci.device(0).copied().expect("it is there");
    let hardware = &mut world.kernel.machine.hardware;
    let control = hardware.pci.get(number).half(MSIX + 2);
    control & 0xc000 == 0x8000 && hardware.read32(function.bars[1].base + 16 * entry + 12) & 1 == 0
}

/// Frames that are the kernel's own, the remapping tables among them, and those that are free.
fn frames(world: &World) -> (u64, u64) {
    (world.kernel.frames.held(Owner::KERNEL), world.kernel.frames.free())
}

#[test]
fn a_device_reaches_what_its_owner_is_granted_and_no_longer() {
    for unit in UNITS {
        let (mut world, number) = with_device(unit);
        let before = grant(&mut world, 0);
        assert!(!dma(&mut world, number, before), "{unit:?}: nobody drives it");
        drive(&mut world);
        let after = grant(&mut world, 0);
        assert!(dma(&mut world, number, before) && dma(&mut world, number, after), "{unit:?}");
        let foreign = grant(&mut world, 1);
        assert_eq!(dma(&mut world, number, foreign), unit == Unit::None, "{unit:?}");
        assert_eq!(world.call(0, Syscall::MemoryRelease, &[after, 0, 1]), Some(Ok(0)));
        assert_eq!(dma(&mut world, number, after), unit == Unit::None, "{unit:?}");
        assert!(dma(&mut world, number, before), "{unit:?}");
    }
}

/// What a device is to reach is as much as its owner wants: it is told in pieces, with others in between.
#[test]
fn a_device_is_acquired_and_released_in_pieces() {
    for unit in [Unit::Virtio, Unit::Vtd] {
        let (mut world, number) = with_device(unit);
        let single: Vec<u64> = (0..100).map(|_| grant(&mut world, 0)).collect();
        for frame in single.iter().skip(1).step_by(2) {
            world.call(0, Syscall::MemoryRelease, &[*frame, 0, 1]).unwrap().unwrap();
        }
        let (begin, mut pieces) = (world.borders[0].rip, 0);
        loop {
            let answer = world.call_once(0, Syscall::DeviceAcquire, &[0]);
            if world.borders[0].rip == begin {
                assert_eq!(answer, Some(Ok(0)));
                break;
            }
            world.borders[0].rip = begin;
            pieces += 1;
            assert!(!dma(&mut world, number, single[0]), "{unit:?}: it is not turned on before");
            let other = world.call(1, Syscall::DeviceAcquire, &[0]);
            assert_eq!(other, Some(Err(Error::NotPermitted)), "it is somebody's already");
        }
        assert!((12..=14).contains(&pieces), "{unit:?}: {pieces} pieces for 50 runs");
        let again = world.call(0, Syscall::DeviceAcquire, &[0]);
        assert_eq!(again, Some(Err(Error::NotPermitted)), "{unit:?}");
        assert!(single.iter().step_by(2).all(|frame| dma(&mut world, number, *frame)), "{unit:?}");
        assert!(!single.iter().skip(1).step_by(2).any(|frame| dma(&mut world, number, *frame)), "{unit:?}");
        let maps = |world: &mut World, place: u64, pages: u64| {
            let arguments = [0, BAR, 0, REGISTERS + place * 0x1000, pages * 0x1000];
            world.call(0, Syscall::DeviceMap, &arguments).expect("it is answered")
        };
        assert_eq!(maps(&mut world, 0, 513), Err(Error::InvalidArgument), "more than a call maps");
        assert_eq!(maps(&mut world, 0, 1), Ok(0));
        assert_eq!(maps(&mut world, 1, 1), Ok(0));
        world.call_once(0, Syscall::DeviceRelease, &[0]);
        assert_eq!(world.borders[0].rip + 2, begin, "a range at a time");
        world.borders[0].rip = begin;
        assert!(dma(&mut world, number, single[0]), "{unit:?}: it is released last");
        assert_eq!(world.call(0, Syscall::DeviceRelease, &[0]), Some(Ok(0)));
        assert!(!dma(&mut world, number, single[0]), "{unit:?}");
        for place in 0..2 {
            assert_eq!(world.touch(0, REGISTERS + place * 0x1000, false), None, "{unit:?}");
        }
    }
}

/// The tables of a domain are as large as its owner wants them, so that they are its own.
#[test]
fn tables_of_a_domain_are_charged_to_its_application() {
    let (mut world, _) = with_device(Unit::Vtd);
    let tables = |world: &World| world.kernel.frames.held(Owner::dma(app(0)));
    let (own, (kernels, free)) = (tables(&world), frames(&world));
    assert_eq!(world.call(0, Syscall::DeviceAcquire, &[0]), Some(Ok(0)));
    grant(&mut world, 0);
    assert_eq!(tables(&world), own + 3, "one of each level");
    assert_eq!(frames(&world), (kernels, free - 4), "these, and the grant");
    assert_eq!(world.call(0, Syscall::DeviceRelease, &[0]), Some(Ok(0)));
    assert_eq!((tables(&world), frames(&world)), (own, (kernels, free - 1)));
    let most = world.kernel.record(app(0)).frames_max;
    while world.kernel.charged(app(0)) < most {
        grant(&mut world, 0);
    }
    assert_eq!(world.call(0, Syscall::DeviceAcquire, &[0]), Some(Err(Error::OutOfMemory)));
    assert_eq!(world.kernel.charged(app(0)), most);
}

#[test]
fn registers_are_mapped_without_the_interrupt_table_and_forgotten_with_the_device() {
    for unit in UNITS {
        let (mut world, _) = with_device(unit);
        drive(&mut world);
        let bars = world.kernel.devices.pci.device(0).unwrap().bars;
        assert_eq!(world.touch(0, REGISTERS + 20, true), Some(bars[4].base + 0x2014));
        let table = world.call(0, Syscall::DeviceMap, &[0, MSIX_BAR, 0, REGISTERS + 0x1000, 0x1000]);
        assert_eq!(table, Some(Err(Error::NoSuchRegion)), "{unit:?}");
        assert_eq!(world.touch(0, REGISTERS + 0x1000, false), None);
        let foreign = world.call(1, Syscall::DeviceMap, &[0, BAR, 0x2000, REGISTERS, 0x1000]);
        assert_eq!(foreign, Some(Err(Error::NotPermitted)), "{unit:?}");
        assert_eq!(world.call(0, Syscall::DeviceRelease, &[0]), Some(Ok(0)));
        assert_eq!(world.touch(0, REGISTERS, false), None, "{unit:?}");
    }
}

#[test]
fn vectors_are_masked_with_the_core_that_they_are_bound_to() {
    let (mut world, number) = with_device(Unit::None);
    drive(&mut world);
    assert_eq!(world.call(0, Syscall::CoreAcquire, &[0x40_0000, 0x50_0000, 9, 1]), Some(Ok(1)));
    while world.kernel.cores[1].current() != Some(app(0)) {
        world.pass(1, 1_000_000);
    }
    assert_eq!(world.call(1, Syscall::InterruptBind, &[0, 1, 6]), Some(Ok(0)));
    assert_eq!([0, 1, 2].map(|entry| signals(&mut world, number, entry)), [true, true, false]);
    assert_eq!(world.call(1, Syscall::CoreRelease, &[]), None);
    assert_eq!([0, 1, 2].map(|entry| signals(&mut world, number, entry)), [true, false, false]);
    for masked in [1, 0] {
        assert_eq!(world.call(0, Syscall::InterruptMask, &[0, 0, masked]), Some(Ok(0)));
        assert_eq!(signals(&mut world, number, 0), masked == 0);
    }
}

#[test]
fn no_vector_stays_bound_to_a_device_that_is_torn_out() {
    let bound = |world: &World| world.kernel.cores.iter().map(|core| core.vectors.count()).sum::<usize>();
    for unit in UNITS {
        let (mut world, _) = with_device(unit);
        drive(&mut world);
        assert!(bound(&world) > 0, "{unit:?}");
        world.kernel.left(0);
        assert_eq!(bound(&world), 0, "{unit:?}");
    }
}

/// How an application loses its device.
type Loss = fn(&mut World);

#[test]
fn a_device_that_is_lost_is_silent_and_reaches_nothing() {
    let losses: [(&str, Loss); 3] = [
        ("release", |world| assert_eq!(world.call(0, Syscall::DeviceRelease, &[0]), Some(Ok(0)))),
        ("exit", |world| assert_eq!(world.call(0, Syscall::Exit, &[0]), None)),
        ("kill", |world| world.end(0, ApplicationState::Faulted)),
    ];
    for (unit, (name, lose)) in UNITS.into_iter().flat_map(|unit| losses.map(|loss| (unit, loss))) {
        let (mut world, number) = with_device(unit);
        drive(&mut world); // The first owner's VT-d context table stays for the others on that bus.
        assert_eq!(world.call(0, Syscall::DeviceRelease, &[0]), Some(Ok(0)));
        let free = frames(&world);
        let frame = map(&mut world, 0, PAGE);
        drive(&mut world);
        assert!(dma(&mut world, number, frame) && signals(&mut world, number, 0), "{unit:?} {name}");
        let resets = world.kernel.machine.hardware.pci.get(number).resets;
        lose(&mut world);
        let function = world.kernel.machine.hardware.pci.get(number).clone();
        assert_eq!(function.half(4) & 7, 0, "{unit:?} {name}: it decodes nothing and does no DMA");
        assert_eq!(function.half(MSIX + 2) & 0x8000, 0, "{unit:?} {name}: it sends no interrupt");
        assert!(function.resets > resets, "{unit:?} {name}: it was reset");
        let address = world.kernel.machine.hardware.pci.address(number).unwrap();
        let reaches = world.kernel.machine.hardware.reaches(address, frame * 4096);
        assert_eq!(reaches, unit == Unit::None, "{unit:?} {name}: the unit has it in no domain");
        let domains = world.kernel.machine.hardware.virtio_iommu.as_ref().map_or(0, |unit| unit.domains());
        assert_eq!(domains, 0, "{unit:?} {name}");
        if name != "release" {
            assert_eq!((frames(&world).0, world.held(0)), (free.0, [0; 4]), "{unit:?} {name}");
            assert!(frames(&world).1 > free.1, "{unit:?} {name}");
        }
        the_next_owner_hears_of_its_own_alone(&mut world, number, frame, unit);
    }
}

/// An interrupt that was on its way to the first owner, and its frames, are not the second's.
fn the_next_owner_hears_of_its_own_alone(world: &mut World, number: usize, frame: u64, unit: Unit) {
    assert_eq!(world.kernel.cores[1].current(), Some(app(1)));
    assert_eq!(world.call(1, Syscall::DeviceAcquire, &[0]), Some(Ok(0)), "{unit:?}");
    world.kernel.interrupt(on(0), FIRST_DEVICE_VECTOR);
    assert!(!world.kernel.contexts.iter().any(|context| context.events().has(Upcall::Interrupt)));
    assert_eq!([0, 1, 2].map(|entry| signals(world, number, entry)), [false; 3], "{unit:?}");
    assert_eq!(dma(world, number, frame), unit == Unit::None, "{unit:?}");
    assert_eq!(world.call(1, Syscall::InterruptBind, &[0, 0, 9]), Some(Ok(0)));
    world.kernel.interrupt(on(1), FIRST_DEVICE_VECTOR);
    world.settle(1, false);
    let heard: Vec<u64> = world.kernel.contexts.iter().map(|context| context.events().interrupts).collect();
    assert_eq!(heard.iter().sum::<u64>(), 1 << 9, "{unit:?}: {heard:?}");
}

#[test]
fn a_device_goes_to_one_that_may_have_it_and_to_one_at_a_time() {
    for unit in UNITS {
        let (mut world, _) = with_device(unit);
        drive(&mut world);
        assert_eq!(world.call(1, Syscall::DeviceAcquire, &[0]), Some(Err(Error::NotPermitted)));
        assert_eq!(world.call(1, Syscall::DeviceRelease, &[0]), Some(Err(Error::NotPermitted)));
        assert_eq!(world.call(0, Syscall::DeviceRelease, &[0]), Some(Ok(0)));
        while world.kernel.cores[0].current() != Some(app(2)) {
            world.pass(0, 1_000_000);
        }
        assert_eq!(world.call(0, Syscall::DeviceAcquire, &[0]), Some(Err(Error::NotPermitted)), "{unit:?}");
        assert_eq!(world.call(0, Syscall::DeviceAcquire, &[1]), Some(Err(Error::NoDevice)), "{unit:?}");
    }
}

/// A device that has gone when its owner-to-be asks for it is in nobody's domain afterwards.
#[test]
fn a_device_that_cannot_be_switched_on_is_nobodys() {
    let (mut world, number) = with_device(Unit::Virtio);
    let before = frames(&world);
    world.kernel.machine.hardware.pci.get_mut(number).config[0] = 0;
    assert_eq!(world.call(0, Syscall::DeviceAcquire, &[0]), Some(Err(Error::NoDevice)));
    let unit = world.kernel.machine.hardware.virtio_iommu.as_ref().unwrap();
    assert_eq!((unit.domains(), world.kernel.devices.owner(0), frames(&world)), (0, None, before));
}
