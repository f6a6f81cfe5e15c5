//! Where system calls go that are not for this kernel.

use super::{PAGE, READ, grant, map};
use crate::kernel::fake::{Program, World};
use crate::machine::{Frame, PhysAddr, Reflection};
use crate::testing::{app, user};
use nom_abi::board::ApplicationState;
use nom_abi::error::Error;
use nom_abi::image::flag;
use nom_abi::layout::{IMAGE_WINDOW, USER_END, USER_START};
use nom_abi::syscall::Syscall;

const ENTRY: u64 = IMAGE_WINDOW + 0x10;

fn maker(name: &'static str) -> Program {
    Program { flags: flag::AUTOSTART | flag::MAKES_CODE, ..Program::named(name) }
}

fn reflect(world: &mut World, entry: u64, word: u64) -> Result<u64, Error> {
    world.call(0, Syscall::SyscallReflect, &[entry, word]).expect("it is answered")
}

fn told(world: &World) -> Option<Reflection> {
    world.kernel.machine.processors[0].reflection
}

#[test]
fn only_who_makes_code_has_system_calls_reflected() {
    let mut world = World::boot(1, &[Program::named("a")], &[]);
    map(&mut world, 0, PAGE);
    assert_eq!(reflect(&mut world, ENTRY, PAGE), Err(Error::NotPermitted));
    assert_eq!(told(&world), None);
}

#[test]
fn neither_entry_nor_word_is_anywhere_but_in_memory_of_the_applications() {
    let mut world = World::boot(1, &[maker("a")], &[]);
    map(&mut world, 0, PAGE);
    let frame = grant(&mut world, 0);
    world.call(0, Syscall::MemoryMap, &[PAGE + 4096, frame, 0, 1, READ]).unwrap().unwrap();
    let image = world.kernel.applications[0].image() + 0x1000;
    for (entry, word, error) in [
        (USER_END, PAGE, Error::OutsideUserSpace),
        (u64::MAX << 47, PAGE, Error::OutsideUserSpace),
        (1 << 47, PAGE, Error::OutsideUserSpace),
        (USER_START - 1, PAGE, Error::OutsideUserSpace),
        (ENTRY, PAGE + 4, Error::Misaligned),
        (ENTRY, PAGE + 4096, Error::BadPointer),
        (ENTRY, PAGE + 2 * 4096, Error::BadPointer),
        (ENTRY, 0, Error::BadPointer),
        (ENTRY, u64::MAX << 47, Error::BadPointer),
        (ENTRY, image, Error::NotGranted),
    ] {
        assert_eq!(reflect(&mut world, entry, word), Err(error), "entry {entry:#x}, word {word:#x}");
        assert_eq!(told(&world), None);
    }
}

#[test]
fn the_word_is_its_owners_until_another_takes_its_place() {
    let mut world = World::boot(1, &[maker("a")], &[]);
    let frame = map(&mut world, 0, PAGE);
    let other = map(&mut world, 0, PAGE + 4096);
    assert_eq!(reflect(&mut world, ENTRY, PAGE + 8), Ok(0));
    assert_eq!(
        told(&world),
        Some(Reflection { entry: user(ENTRY), word: PhysAddr::of_frame(Frame::new(frame)) + 8 })
    );
    world.call(0, Syscall::MemoryUnmap, &[PAGE, 4096]).unwrap().unwrap();
    let release = |world: &mut World, frame| world.call(0, Syscall::MemoryRelease, &[frame, 0, 1]).unwrap();
    assert_eq!(release(&mut world, frame), Err(Error::StillMapped));
    assert_eq!(reflect(&mut world, USER_END, PAGE + 4096), Err(Error::OutsideUserSpace));
    assert_eq!(release(&mut world, frame), Err(Error::StillMapped), "what failed has changed nothing");
    assert_eq!(reflect(&mut world, ENTRY, PAGE + 4096), Ok(0));
    assert_eq!(release(&mut world, frame), Ok(0));
    assert_eq!(reflect(&mut world, 0, 0), Ok(0));
    assert_eq!(told(&world), None);
    world.call(0, Syscall::MemoryUnmap, &[PAGE + 4096, 4096]).unwrap().unwrap();
    assert_eq!(release(&mut world, other), Ok(0));
}

#[test]
fn a_reflection_stays_with_its_context() {
    let mut world = World::boot(1, &[maker("a"), maker("b")], &[]);
    map(&mut world, 0, PAGE);
    assert_eq!(reflect(&mut world, ENTRY, PAGE), Ok(0));
    let own = told(&world);
    assert!(own.is_some());
    world.call(0, Syscall::CoreYield, &[]).unwrap().unwrap();
    assert_eq!((world.kernel.cores[crate::testing::on(0)].current(), told(&world)), (Some(app(1)), None));
    world.call(0, Syscall::CoreYield, &[]).unwrap().unwrap();
    assert_eq!((world.kernel.cores[crate::testing::on(0)].current(), told(&world)), (Some(app(0)), own));
}

#[test]
fn a_reflection_ends_with_its_application() {
    let mut world = World::boot(1, &[maker("a"), Program::named("b")], &[]);
    map(&mut world, 0, PAGE);
    assert_eq!(reflect(&mut world, ENTRY, PAGE), Ok(0));
    world.end(0, ApplicationState::Exited);
    assert_eq!(world.held(0), [0; 4]);
    world.kernel.start(app(0)).expect("it starts again");
    world.settle(0, false);
    while world.kernel.cores[crate::testing::on(0)].current() != Some(app(0)) {
        world.call(0, Syscall::CoreYield, &[]).unwrap().unwrap();
    }
    assert_eq!(told(&world), None);
}
