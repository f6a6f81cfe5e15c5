//! Any system calls with any arguments: an error has changed nothing, and nothing is left when it is over.
//!
//! A run is a string of bytes, 49 for each call: its number, then six little-endian arguments. Runs that once
//! found something, and one for each call, are kept in `corpus/syscalls` and replayed.

use super::fake::{FakeMachine, Program, World};
use super::{Kernel, Next};
use crate::frames::{Owner, Pages};
use crate::testing::{app, on, user};
use nom_abi::error::Error;
use nom_abi::image::flag;
use nom_abi::syscall::Syscall;
use proptest::prelude::*;
use std::path::Path;
use std::string::String;
use std::vec::Vec;

/// Bytes of one call.
const CALL_BYTES: usize = 49;
/// Where the application has a page of its own.
const PAGE: u64 = 0x10_0000;
/// GiB that are the same in all spaces of an application.
const SHARED: u64 = 8 << 10;
/// Arguments from here on stand for the frames that the application was granted first, so many of them.
const GRANTED: u64 = 0x6e6f_6d00_0000;
const GRANTED_COUNT: u64 = 9;

/// Arguments that are likely to reach an edge: small, page-like, frame-like, boundary, or anything.
fn argument() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..8u64,
        (0..64u64).prop_map(|page| page * 4096),
        100..4200u64,
        prop::sample::select(std::vec![
            nom_abi::layout::USER_START,
            nom_abi::layout::APPLICATION_END,
            nom_abi::layout::USER_END,
            0x10_0000,
            0x10_1000,
            u64::MAX,
            u64::MAX - 4095,
            1 << 63,
            0xffff_8000_0000_0000,
        ]),
        any::<u64>(),
    ]
}

/// What an application can observe of its own state, and what the machine has left.
#[derive(Debug, PartialEq)]
struct Observed {
    free: u64,
    held: [u64; 4],
    /// Frame, protection and place of each page that is mapped.
    leaves: Vec<u64>,
    /// How often what it was granted is mapped.
    maps: u64,
    cores: u64,
    /// What each core knows of each application.
    contexts: String,
}

fn observe(kernel: &Kernel<'_, FakeMachine>) -> Observed {
    let grants = Owner::grants(app(0));
    let owners = [grants, Owner::program(app(0)), Owner::tables(app(0)), Owner::KERNEL];
    let space = kernel.space_of(on(0), app(0)).expect("it still runs there");
    let leaves = (0..512u64).filter_map(|page| {
        let leaf = space.translate(&kernel.machine, user(page * 4096))?;
        Some(leaf.frame.number() << 8 | leaf.protection as u64)
    });
    let (mut maps, mut next) = (0, 0);
    while let Some(Pages { frame, size, count }) = kernel.frames.next_units(grants, next, 512) {
        next = (frame + count * size.frames()).number();
        maps += (frame.number()..next).map(|frame| kernel.frames.unit(frame).maps).sum::<u64>();
    }
    Observed {
        free: kernel.frames.free(),
        held: owners.map(|owner| kernel.frames.held(owner)),
        leaves: leaves.collect(),
        maps,
        cores: kernel.applications[0].cores(),
        contexts: std::format!("{:?}", kernel.contexts),
    }
}

/// Makes every call in `run`.
fn drive(run: &[u8]) {
    let flags = flag::AUTOSTART | flag::MAKES_CODE;
    let fuzz = Program { cores_max: 2, manages: 0b10, flags, ..Program::named("fuzz") };
    let other = Program { flags: 0, ..Program::named("other") };
    let mut world = World::boot(2, &[fuzz, other], &[[0, 1]]);
    let any = nom_abi::memory::ANY_COLOUR;
    let frame = world.call(0, Syscall::MemoryGrant, &[0, GRANTED_COUNT, any]).unwrap().unwrap();
    world.call(0, Syscall::MemoryMap, &[PAGE, frame, 0, 1, 3]).unwrap().unwrap();
    for call in run.as_chunks::<CALL_BYTES>().0 {
        make(&mut world, call, frame);
        if world.kernel.applications[0].space().is_err() {
            return; // It ended itself.
        }
    }
    world.end(0, nom_abi::board::ApplicationState::Exited);
    assert_eq!(world.held(0), [0; 4]);
}

/// Makes a call; `granted` is the first frame that the application was granted.
fn make(world: &mut World, call: &[u8], granted: u64) {
    let words = call[1..].as_chunks::<8>().0;
    let [rdi, rsi, rdx, r10, r8, r9] = core::array::from_fn(|index| match u64::from_le_bytes(words[index]) {
        frame if (GRANTED..GRANTED + 2 * GRANTED_COUNT).contains(&frame) => frame - GRANTED + granted,
        word => word,
    });
    let before = observe(&world.kernel);
    let registers = &mut world.borders[0];
    registers.rax = call[0].into();
    (registers.rdi, registers.rsi, registers.rdx) = (rdi, rsi, rdx);
    (registers.r10, registers.r8, registers.r9) = (r10, r8, r9);
    let begin = registers.rip;
    let mut answered = world.kernel.syscall(on(0), registers);
    while answered && world.borders[0].rip.wrapping_add(2) == begin {
        // It is unfinished: others come in, and it is made again.
        world.settle(0, answered);
        world.borders[0].rip = begin;
        answered = world.kernel.syscall(on(0), &mut world.borders[0]);
    }
    let code = world.borders[0].rax;
    if answered && code != 0 {
        assert!(Error::from_code(code).is_some());
        assert_eq!(observe(&world.kernel), before, "call {call:x?}");
    }
    world.settle(0, answered);
    world.settle(1, false);
    if world.kernel.applications[0].cores() & 1 == 0 {
        // It gave core 0 up and lives on elsewhere: the run is over.
        world.end(0, nom_abi::board::ApplicationState::Exited);
    } else if !matches!(world.next[0], Next::Run { .. }) {
        // It sleeps: wake it.
        world.kernel.wake(on(0), app(0));
        world.settle(0, false);
    }
}

fn any_call() -> impl Strategy<Value = (u8, [u64; 6])> {
    (0..Syscall::ALL.len() as u8 + 1, prop::array::uniform6(argument()))
}

/// Calls that come far, and fail late if at all: with pages and frames of which some are the application's,
/// some mapped, and some neither.
fn likely_call() -> impl Strategy<Value = (u8, [u64; 6])> {
    let page = || {
        (0..6u64, prop::sample::select(std::vec![0, 0, 0, 1, 2, SHARED]))
            .prop_map(|(page, far)| PAGE + page * 4096 + (far << 30))
    };
    let frame = || (0..GRANTED_COUNT + 1).prop_map(|frame| GRANTED + frame);
    let count = || 1..5u64;
    let protection = || prop::sample::select(std::vec![0u64, 1, 3]);
    let many = prop_oneof![count(), 200..300u64];
    let any = nom_abi::memory::ANY_COLOUR;
    prop_oneof![
        3 => (page(), frame(), count(), protection())
            .prop_map(|(page, frame, count, code)| (Syscall::MemoryMap, [page, frame, 0, count, code, 0])),
        2 => (page(), count(), protection())
            .prop_map(|(page, count, code)| (Syscall::MemoryProtect, [page, count * 4096, code, 0, 0, 0])),
        2 => (page(), count())
            .prop_map(|(page, count)| (Syscall::MemoryUnmap, [page, count * 4096, 0, 0, 0, 0])),
        2 => (frame(), count())
            .prop_map(|(frame, count)| (Syscall::MemoryRelease, [frame, 0, count, 0, 0, 0])),
        1 => many.prop_map(move |count| (Syscall::MemoryGrant, [0, count, any, 0, 0, 0])),
        1 => (page(), page()).prop_map(|(entry, top)| (Syscall::CoreAcquire, [entry, top, 0, 1, 0, 0])),
        1 => (page(), page()).prop_map(|(entry, top)| (Syscall::UpcallRegister, [entry, top, 0, 0, 0, 0])),
        1 => Just((Syscall::SpaceCreate, [0; 6])),
        1 => (0..4u64).prop_map(|space| (Syscall::SpaceSwitch, [space, 0, 0, 0, 0, 0])),
        1 => (0..4u64).prop_map(|space| (Syscall::SpaceEnd, [space, 0, 0, 0, 0, 0])),
        1 => page().prop_map(|events| (Syscall::CoreWait, [u64::MAX, events, 0, 0, 0, 0])),
    ]
    .prop_map(|(call, arguments)| (call as u8, arguments))
}

fn call() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![any_call(), likely_call()].prop_map(|(number, arguments)| {
        core::iter::once(number).chain(arguments.into_iter().flat_map(u64::to_le_bytes)).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

    #[test]
    fn a_call_that_returns_an_error_has_changed_nothing(calls in prop::collection::vec(call(), 1..60)) {
        drive(&calls.concat());
    }
}

#[test]
#[cfg_attr(miri, ignore = "reads files")]
fn the_corpus_still_holds() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/syscalls");
    let runs: Vec<_> = std::fs::read_dir(directory).expect("the corpus").collect();
    assert!(runs.len() >= Syscall::ALL.len(), "one for each call at least");
    for run in runs {
        let path = run.expect("an entry").path();
        drive(&std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
    }
}
