//! Several address spaces of one application: what is the same in all of them, and what is not.

use super::{BAR, NET, PAGE, READ, READ_WRITE, grant, map};
use crate::acpi::Tables;
use crate::contexts::events::Fault;
use crate::fakes::FakeMachine;
use crate::fakes::pci::FakeFunction;
use crate::kernel::fake::{Program, World};
use crate::machine::{Frame, PhysAddr, PhysicalMemory};
use crate::testing::{app, on};
use nom_abi::board::ApplicationState;
use nom_abi::error::Error;
use nom_abi::image::flag;
use nom_abi::layout::{IMAGE_WINDOW, OWN_HIGH, OWN_LOW};
use nom_abi::syscall::{EXIT_BACKTRACE, Syscall};

/// Where all spaces are the same, in entries of the root table that nothing else has.
const SHARED: u64 = 8 << 40;
const OTHER: u64 = 9 << 40;

fn maker() -> Program {
    let flags = flag::AUTOSTART | flag::MAKES_CODE;
    Program { flags, cores_max: 2, frames_max: 2048, ..Program::named("a") }
}

fn call(world: &mut World, core: usize, call: Syscall, arguments: &[u64]) -> Result<u64, Error> {
    world.call(core, call, arguments).expect("it is answered")
}

fn create(world: &mut World) -> u64 {
    call(world, 0, Syscall::SpaceCreate, &[]).expect("there is room for one")
}

fn switch(world: &mut World, core: usize, space: u64) {
    assert_eq!(call(world, core, Syscall::SpaceSwitch, &[space]), Ok(0));
}

fn unmap(world: &mut World, core: usize, address: u64) {
    assert_eq!(call(world, core, Syscall::MemoryUnmap, &[address, 4096]), Ok(0));
}

fn on_two_cores() -> World {
    let mut world = World::boot(2, &[maker()], &[]);
    let acquired = call(&mut world, 0, Syscall::CoreAcquire, &[0x40_0000, 0x50_0000, 9, 1]);
    assert_eq!(acquired, Ok(1));
    world.settle(1, false);
    world
}

#[test]
fn each_space_has_its_own_part_and_all_have_the_rest() {
    for place in [OWN_LOW.start, OWN_LOW.end - 4096, OWN_HIGH.start, OWN_HIGH.end - 4096] {
        let mut world = World::boot(1, &[maker()], &[]);
        let first = map(&mut world, 0, place);
        let space = create(&mut world);
        switch(&mut world, 0, space);
        assert_eq!(world.touch(0, place, false), None, "{place:#x} is the first's");
        let second = map(&mut world, 0, place);
        let shared = map(&mut world, 0, SHARED);
        for (space, own) in [(0, first), (space, second), (0, first)] {
            switch(&mut world, 0, space);
            assert_eq!(world.touch(0, place, true), Some(own * 4096));
            assert_eq!(world.touch(0, SHARED, true), Some(shared * 4096));
        }
        unmap(&mut world, 0, place);
        switch(&mut world, 0, space);
        assert_eq!(world.touch(0, place, true), Some(second * 4096), "who unmapped was in the first");
        let image = world.kernel.applications[0].image();
        assert!(image >= IMAGE_WINDOW && world.touch(0, image, false).is_some());
    }
}

#[test]
fn what_is_just_outside_of_the_own_parts_is_the_same_in_all() {
    for place in [OWN_LOW.end, OWN_HIGH.start - 4096] {
        let mut world = World::boot(1, &[maker()], &[]);
        let space = create(&mut world);
        let frame = map(&mut world, 0, place);
        switch(&mut world, 0, space);
        assert_eq!(world.touch(0, place, true), Some(frame * 4096), "{place:#x}");
    }
}

/// The table below a root's entry goes with the last page in it, whoever unmaps that, and is nobody's then.
#[test]
fn tables_come_and_go_in_all_spaces_at_once() {
    let mut world = on_two_cores();
    let spaces = [0, create(&mut world), create(&mut world)];
    for (round, (maps, unmaps)) in [(0, 1), (1, 2), (2, 0)].into_iter().enumerate() {
        let before = world.held(0);
        switch(&mut world, 0, spaces[maps]);
        switch(&mut world, 1, spaces[unmaps]);
        let frames = [SHARED, OTHER].map(|place| map(&mut world, 0, place));
        for space in spaces {
            switch(&mut world, 0, space);
            assert_eq!(world.touch(0, SHARED, true), Some(frames[0] * 4096), "round {round}");
            assert_eq!(world.touch(0, OTHER, true), Some(frames[1] * 4096), "round {round}");
            assert_eq!(world.touch(1, SHARED, true), Some(frames[0] * 4096), "round {round}");
        }
        call(&mut world, 0, Syscall::MemoryProtect, &[OTHER, 4096, READ]).unwrap();
        assert_eq!(world.touch(1, OTHER, true), None, "round {round}");
        unmap(&mut world, 1, SHARED);
        unmap(&mut world, 0, OTHER);
        for space in spaces {
            for core in 0..2 {
                assert_eq!(world.touch(core, SHARED, false), None, "round {round}, core {core}");
                assert_eq!(world.touch(core, OTHER, false), None, "round {round}, core {core}");
            }
            switch(&mut world, 0, space);
        }
        for frame in frames {
            assert_eq!(call(&mut world, 0, Syscall::MemoryRelease, &[frame, 0, 1]), Ok(0));
        }
        assert_eq!(world.held(0), before);
    }
}

#[test]
fn a_core_stays_in_its_space_whatever_other_cores_and_applications_do() {
    let mut world = World::boot(2, &[maker(), Program { weight: 1, ..Program::named("b") }], &[]);
    let acquired = call(&mut world, 0, Syscall::CoreAcquire, &[0x40_0000, 0x50_0000, 9, 1]);
    let core = acquired.unwrap() as usize;
    let other = 1 - core;
    let frame = map(&mut world, 0, PAGE);
    let space = create(&mut world);
    world.settle(1, false);
    let current = |world: &World| world.kernel.cores[on(core)].current();
    while current(&world) != Some(app(0)) {
        world.call(core, Syscall::CoreYield, &[]);
    }
    // The further core began in the first space.
    assert_eq!(world.touch(core, PAGE, false), Some(frame * 4096));
    switch(&mut world, core, space);
    let mut left = 0;
    for _ in 0..8 {
        match current(&world) == Some(app(0)) {
            true => assert_eq!(world.touch(core, PAGE, false), None),
            false => left += 1,
        }
        assert_eq!(world.touch(other, PAGE, false), Some(frame * 4096));
        (0..2).for_each(|core| {
            world.call(core, Syscall::CoreYield, &[]);
        });
    }
    assert!((1..8).contains(&left), "the other application had the core in between: {left}");
}

#[test]
fn who_makes_no_code_has_one_space_and_nobody_has_anothers() {
    let mut world = World::boot(1, &[Program::named("b"), maker()], &[]);
    assert_eq!(call(&mut world, 0, Syscall::SpaceCreate, &[]), Err(Error::NotPermitted));
    for number in [0, 1, 511, 512, u64::MAX] {
        assert_eq!(call(&mut world, 0, Syscall::SpaceSwitch, &[number]), Err(Error::InvalidArgument));
        assert_eq!(call(&mut world, 0, Syscall::SpaceEnd, &[number]), Err(Error::InvalidArgument));
    }
    let mut world = World::boot(1, &[maker()], &[]);
    let space = create(&mut world);
    // What lies behind the family's own frame looks like a space's root.
    let (family, root) = (world.kernel.applications[0].family().unwrap(), world.kernel.kernel_root);
    world.kernel.machine.write(family + 4096, root.word());
    for number in [space + 1, 511, 512, 1 << 32 | space, u64::MAX] {
        assert_eq!(call(&mut world, 0, Syscall::SpaceSwitch, &[number]), Err(Error::InvalidArgument));
        assert_eq!(call(&mut world, 0, Syscall::SpaceEnd, &[number]), Err(Error::InvalidArgument));
    }
}

#[test]
fn a_space_ends_when_nobody_is_in_it_and_nothing_is_its_own() {
    let mut world = on_two_cores();
    let before = world.held(0);
    let space = create(&mut world);
    switch(&mut world, 1, space);
    let end = |world: &mut World, space| call(world, 0, Syscall::SpaceEnd, &[space]);
    assert_eq!(end(&mut world, space), Err(Error::WrongState));
    let frame = map(&mut world, 1, PAGE);
    switch(&mut world, 1, 0);
    assert_eq!(end(&mut world, space), Err(Error::StillMapped));
    assert_eq!(end(&mut world, 0), Err(Error::InvalidArgument));
    assert_eq!(call(&mut world, 0, Syscall::MemoryRelease, &[frame, 0, 1]), Err(Error::StillMapped));
    switch(&mut world, 1, space);
    unmap(&mut world, 1, PAGE);
    switch(&mut world, 1, 0);
    assert_eq!(end(&mut world, space), Ok(0));
    assert_eq!(end(&mut world, space), Err(Error::InvalidArgument), "it has ended");
    assert_eq!(call(&mut world, 0, Syscall::SpaceSwitch, &[space]), Err(Error::InvalidArgument));
    assert_eq!(call(&mut world, 0, Syscall::MemoryRelease, &[frame, 0, 1]), Ok(0));
    assert_eq!(world.held(0), before);
    assert_eq!(create(&mut world), space, "its number is free again");
}

#[test]
fn spaces_are_charged_and_there_are_so_many_at_most() {
    let mut world = World::boot(1, &[maker()], &[]);
    (0..511).for_each(|_| {
        create(&mut world);
    });
    assert_eq!(call(&mut world, 0, Syscall::SpaceCreate, &[]), Err(Error::TableFull));
    let few = Program { frames_max: 32, ..maker() };
    let mut world = World::boot(1, &[few], &[]);
    let made = (0..20).take_while(|_| call(&mut world, 0, Syscall::SpaceCreate, &[]).is_ok()).count();
    assert_eq!(call(&mut world, 0, Syscall::SpaceCreate, &[]), Err(Error::OverMemoryCap));
    assert_eq!((made > 0, world.held(0).iter().sum::<u64>()), (true, 32));
}

#[test]
fn one_page_is_in_several_spaces_and_stays_as_long_as_it_is_in_any() {
    let mut world = World::boot(1, &[maker()], &[]);
    let frame = map(&mut world, 0, PAGE);
    let space = create(&mut world);
    switch(&mut world, 0, space);
    call(&mut world, 0, Syscall::MemoryMap, &[PAGE, frame, 0, 1, READ]).unwrap();
    assert_eq!(world.touch(0, PAGE, true), None);
    assert_eq!(world.touch(0, PAGE, false), Some(frame * 4096));
    let foreign = frame + 1;
    assert_eq!(
        call(&mut world, 0, Syscall::MemoryMap, &[PAGE + 4096, foreign, 0, 1, READ]),
        Err(Error::NotGranted)
    );
    for space in [0, space] {
        let release = call(&mut world, 0, Syscall::MemoryRelease, &[frame, 0, 1]);
        assert_eq!(release, Err(Error::StillMapped), "space {space}");
        switch(&mut world, 0, space);
        unmap(&mut world, 0, PAGE);
    }
    assert_eq!(call(&mut world, 0, Syscall::MemoryRelease, &[frame, 0, 1]), Ok(0));
}

#[test]
fn addresses_that_calls_are_given_are_the_spaces_own() {
    let mut world = World::boot(1, &[maker()], &[]);
    map(&mut world, 0, PAGE);
    let space = create(&mut world);
    let write = |world: &mut World| call(world, 0, Syscall::ConsoleWrite, &[PAGE, 4]);
    assert_eq!(write(&mut world), Ok(4));
    switch(&mut world, 0, space);
    assert_eq!(write(&mut world), Err(Error::BadPointer));
    assert_eq!(call(&mut world, 0, Syscall::CoreWait, &[u64::MAX, PAGE]), Err(Error::BadPointer));
    let own = grant(&mut world, 0);
    call(&mut world, 0, Syscall::MemoryMap, &[PAGE, own, 0, 1, READ_WRITE]).unwrap();
    assert_eq!(write(&mut world), Ok(4));
}

#[test]
fn an_application_ends_with_all_its_spaces() {
    let mut world = on_two_cores();
    let spaces = [create(&mut world), create(&mut world)];
    for (core, space) in spaces.into_iter().enumerate() {
        switch(&mut world, core, space);
        map(&mut world, core, PAGE);
    }
    world.kernel.machine.core = 1;
    world.end(0, ApplicationState::Exited);
    assert!(world.kernel.machine.processors.iter().all(|processor| processor.root.is_none()));
    assert_eq!(world.held(0), [0; 4]);
    world.kernel.start(app(0)).expect("it starts again");
    let family = world.kernel.applications[0].family().expect("it may have several again");
    let roots = (0..512).filter(|number| world.kernel.machine.memory_word(family.word() + 8 * number) != 0);
    assert_eq!(roots.collect::<std::vec::Vec<_>>(), [0], "only the first");
}

/// Registers are in the first space, or where all spaces are the same, whoever asks for them; so nobody keeps
/// them in another space when the device is another's.
#[test]
fn no_space_keeps_the_registers_of_a_device_that_is_released() {
    let mut hardware = FakeMachine::new();
    hardware.pci.add(None, 2, 0, FakeFunction::virtio(NET, true));
    let driver = Program { drives: NET, ..maker() };
    let mut world = World::boot_on(hardware, &Tables::default(), 2, &[driver], &[]);
    assert_eq!(call(&mut world, 0, Syscall::CoreAcquire, &[0x40_0000, 0x50_0000, 9, 1]), Ok(1));
    world.settle(1, false);
    let space = create(&mut world);
    switch(&mut world, 1, space);
    for by in [0, 1] {
        assert_eq!(call(&mut world, by, Syscall::DeviceAcquire, &[0]), Ok(0));
        for place in [PAGE, SHARED] {
            assert_eq!(call(&mut world, by, Syscall::DeviceMap, &[0, BAR, 0x2000, place, 0x1000]), Ok(0));
        }
        let seen = [(0, PAGE), (0, SHARED), (1, PAGE), (1, SHARED)];
        let seen = seen.map(|(core, place)| world.touch(core, place, true).is_some());
        assert_eq!(seen, [true, true, false, true], "core {by} asked");
        assert_eq!(call(&mut world, 1 - by, Syscall::DeviceRelease, &[0]), Ok(0));
        for (core, place) in [(0, PAGE), (0, SHARED), (1, PAGE), (1, SHARED)] {
            assert_eq!(world.touch(core, place, false), None, "core {core}, {place:#x}, core {by} asked");
        }
    }
}

/// A word that is told where a reflected call was is one of the first space, whoever asks and wherever its
/// core goes: it is pinned until that core is given back.
#[test]
fn a_reflections_word_is_the_first_spaces_until_its_core_goes() {
    let mut world = on_two_cores();
    let first = map(&mut world, 0, PAGE);
    let space = create(&mut world);
    switch(&mut world, 1, space);
    let own = map(&mut world, 1, PAGE);
    assert_eq!(call(&mut world, 1, Syscall::SyscallReflect, &[IMAGE_WINDOW, PAGE]), Ok(0));
    let told = world.kernel.machine.processors[1].reflection.expect("it is told");
    assert_eq!(told.word.frame(), Frame::new(first));
    unmap(&mut world, 1, PAGE);
    assert_eq!(call(&mut world, 0, Syscall::MemoryRelease, &[own, 0, 1]), Ok(0));
    unmap(&mut world, 0, PAGE);
    let release = |world: &mut World| call(world, 0, Syscall::MemoryRelease, &[first, 0, 1]);
    assert_eq!(release(&mut world), Err(Error::StillMapped));
    world.call(1, Syscall::CoreRelease, &[]);
    assert_eq!(release(&mut world), Ok(0));
    assert_eq!(call(&mut world, 0, Syscall::SpaceEnd, &[space]), Ok(0));
}

/// The calls that led to a fault, or to an end that asks for them, are read where the application was.
#[test]
fn a_report_reads_the_space_that_the_application_is_in() {
    for exits in [false, true] {
        let mut world = World::boot(1, &[maker()], &[]);
        let first = map(&mut world, 0, PAGE);
        let space = create(&mut world);
        switch(&mut world, 0, space);
        let second = map(&mut world, 0, PAGE);
        for (frame, caller) in [(first, 0x1111_0000), (second, 0x2222_0000)] {
            world.kernel.machine.write(PhysAddr::of_frame(Frame::new(frame)) + 8, caller);
        }
        let base = world.kernel.applications[0].image();
        world.borders[0].rbp = PAGE;
        if exits {
            assert_eq!(world.call(0, Syscall::Exit, &[EXIT_BACKTRACE]), None);
        } else {
            let mut registers = world.borders[0];
            world.kernel.fault(on(0), &mut registers, Fault { vector: 6, code: 0, address: 0 });
        }
        let said = &world.kernel.machine.said;
        let calls =
            [0x1111_0000, 0x2222_0000_u64].map(|it| std::format!("#1 image+{:#x}", it.wrapping_sub(base)));
        assert_eq!(calls.map(|call| said.contains(&call)), [false, true], "{said}");
    }
}
