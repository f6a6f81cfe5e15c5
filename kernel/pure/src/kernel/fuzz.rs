//! Any system calls with any arguments: an error has changed nothing, and nothing is left when it is over.
//!
//! A run is a string of bytes, 49 for each call: its number, then six little-endian arguments. Runs that once
//! found something, and one for each call, are kept in `corpus/syscalls` and replayed.

use super::fake::{FakeMachine, Program, World};
use super::{Kernel, Next};
use crate::testing::{app, on};
use nom_abi::error::Error;
use nom_abi::syscall::Syscall;
use proptest::prelude::*;
use std::path::Path;
use std::vec::Vec;

/// Bytes of one call.
const CALL_BYTES: usize = 49;
/// Where the application has a page of its own.
const PAGE: u64 = 0x10_0000;

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
fn observe(kernel: &Kernel<'_, FakeMachine>) -> (u64, [u64; 4], Vec<u64>, u64) {
    use crate::frames::Owner;
    let owners = [Owner::grants(app(0)), Owner::program(app(0)), Owner::tables(app(0)), Owner::KERNEL];
    let space = kernel.applications[0].space.expect("it still runs");
    let leaves = (0..512u64).filter_map(|page| {
        let leaf = space.translate(&kernel.machine, page * 4096)?;
        Some(leaf.frame << 8 | leaf.protection as u64)
    });
    let owned = owners.map(|owner| kernel.frames.held(owner));
    (kernel.frames.free(), owned, leaves.collect(), kernel.applications[0].cores)
}

/// Makes every call in `run`.
fn drive(run: &[u8]) {
    let fuzz = Program { cores_max: 2, manages: 0b10, ..Program::named("fuzz") };
    let other = Program { flags: 0, ..Program::named("other") };
    let mut world = World::boot(2, &[fuzz, other], &[[0, 1]]);
    let any = nom_abi::memory::ANY_COLOUR;
    let frame = world.call(0, Syscall::MemoryGrant, &[0, 1, any]).unwrap().unwrap();
    world.call(0, Syscall::MemoryMap, &[PAGE, frame, 0, 1, 3]).unwrap().unwrap();
    for call in run.as_chunks::<CALL_BYTES>().0 {
        make(&mut world, call);
        if world.kernel.applications[0].space.is_none() {
            return; // It ended itself.
        }
    }
    world.kernel.end_application(app(0), nom_abi::board::ApplicationState::Exited, 0);
    assert_eq!(world.held(0), [0; 3]);
}

fn make(world: &mut World, call: &[u8]) {
    let words = call[1..].as_chunks::<8>().0;
    let [rdi, rsi, rdx, r10, r8, r9] = core::array::from_fn(|index| u64::from_le_bytes(words[index]));
    let before = observe(&world.kernel);
    let registers = &mut world.borders[0];
    registers.rax = call[0].into();
    (registers.rdi, registers.rsi, registers.rdx) = (rdi, rsi, rdx);
    (registers.r10, registers.r8, registers.r9) = (r10, r8, r9);
    let answered = world.kernel.syscall(on(0), registers);
    if answered && registers.rax != 0 {
        assert!(Error::from_code(registers.rax).is_some());
        assert_eq!(observe(&world.kernel), before, "call {call:x?}");
    }
    world.settle(0, answered);
    world.settle(1, false);
    if world.kernel.applications[0].cores & 1 == 0 {
        // It gave core 0 up and lives on elsewhere: the run is over.
        world.kernel.end_application(app(0), nom_abi::board::ApplicationState::Exited, 0);
    } else if !matches!(world.next[0], Next::Run { .. }) {
        // It sleeps: wake it.
        world.kernel.wake(on(0), app(0));
        world.settle(0, false);
    }
}

fn call() -> impl Strategy<Value = Vec<u8>> {
    (0..Syscall::ALL.len() as u8 + 1, prop::array::uniform6(argument())).prop_map(|(number, arguments)| {
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
