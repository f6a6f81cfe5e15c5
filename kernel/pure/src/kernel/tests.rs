//! The whole kernel on a fake machine: lifecycle, shares, warnings, upcalls, and that errors change nothing.

use super::Next;
use super::fake::{Program, World};
use crate::contexts::events::{Fault, PAGE_FAULT};
use crate::cores::{GRACE_NS, SLICE_NS};
use crate::machine::{PhysAddr, PhysicalMemory};
use crate::testing::{app, on, user};
use core::sync::atomic::Ordering::Relaxed;
use nom_abi::board::{ApplicationState, usage_address};
use nom_abi::error::Error;
use nom_abi::image::flag;
use nom_abi::layout::STACK_WINDOW;
use nom_abi::start::Start;
use nom_abi::syscall::{EXIT_BACKTRACE, Syscall};
use nom_abi::upcall::{Events, Upcall, UpcallFrame};
use zerocopy::{FromZeros, IntoBytes};

const ANY: u64 = nom_abi::memory::ANY_COLOUR;
const RUN: Next = Next::Run { after_syscall: true };

fn idle(name: &'static str) -> Program {
    Program { flags: 0, ..Program::named(name) }
}

/// Waits for events at the page that [`map_page`] maps.
fn wait(world: &mut World, core: usize, deadline_ns: u64) -> Option<nom_abi::error::Result<u64>> {
    take_events(world, core);
    world.call(core, Syscall::CoreWait, &[deadline_ns, 0x10_0000])
}

/// Takes note of the events there.
fn take_events(world: &mut World, core: usize) {
    let place = world.touch(core, 0x10_0000, true).expect("it is mapped");
    world.kernel.machine.write(PhysAddr::new(place), 0);
}

/// Grants a page and maps it at `address`; returns the frame.
fn map_page(world: &mut World, address: u64) -> u64 {
    let frame = world.call(0, Syscall::MemoryGrant, &[0, 1, ANY]).unwrap().unwrap();
    world.call(0, Syscall::MemoryMap, &[address, frame, 0, 1, 3]).unwrap().unwrap();
    frame
}

fn with_upcalls(programs: &[Program]) -> World {
    let mut world = World::boot(1, programs, &[]);
    map_page(&mut world, 0x10_0000);
    world.call(0, Syscall::UpcallRegister, &[0x2000_0000, 0x10_1000]).unwrap().unwrap();
    world
}

/// The frame of the upcall that core 0 is in.
fn upcall_frame(world: &World) -> UpcallFrame {
    let mut frame = UpcallFrame::new_zeroed();
    let space = world.kernel.applications[0].space().unwrap();
    let border = &world.borders[0];
    assert_eq!(border.rsp, border.rdi - 24, "below the frame a red zone, and the place of a return address");
    space.read_user(&world.kernel.machine, user(border.rdi), frame.as_mut_bytes()).unwrap();
    frame
}

#[test]
fn nobody_returns_from_an_upcall_that_it_is_not_in() {
    let mut world = World::boot(1, &[Program::named("a")], &[]);
    map_page(&mut world, 0x10_0000);
    let wrong = Some(Err(Error::WrongContext));
    assert_eq!(world.call(0, Syscall::UpcallReturn, &[0x10_0000]), wrong, "it has no handler");
    world.call(0, Syscall::UpcallRegister, &[0x2000_0000, 0x10_1000]).unwrap().unwrap();
    assert_eq!(world.call(0, Syscall::UpcallReturn, &[0x10_0000]), wrong, "it was told nothing");
}

#[test]
fn the_machine_ends_with_the_status_of_its_application() {
    let mut world = World::boot(1, &[Program::named("hello")], &[]);
    assert_eq!(world.call(0, Syscall::Exit, &[7]), None);
    assert_eq!(world.next[0], Next::End { status: 7 });
    assert!(world.kernel.machine.said.contains("exited app=hello status=7"));
}

#[test]
fn an_essential_application_ends_the_machine_while_others_run() {
    let essential = Program { flags: flag::AUTOSTART | flag::ESSENTIAL, ..Program::named("main") };
    let mut world = World::boot(1, &[essential, Program::named("other")], &[]);
    world.call(0, Syscall::Exit, &[3]);
    assert_eq!(world.next[0], Next::End { status: 3 });
}

#[test]
fn ten_thousand_lives_leave_nothing_behind() {
    let manager = Program { manages: 0b10, ..Program::named("manager") };
    let mut world = World::boot(2, &[manager, idle("victim")], &[]);
    let free = world.kernel.frames.free();
    for _ in 0..10_000 {
        world.kernel.machine.now_ns += 2_000_000; // As often as lives may be told of.
        world.call(0, Syscall::ApplicationStart, &[1]).unwrap().unwrap();
        world.settle(1, false);
        world.call(0, Syscall::ApplicationKill, &[1]).unwrap().unwrap();
        world.settle(1, false);
        assert_eq!(world.held(1), [0; 4]);
    }
    assert_eq!(world.kernel.frames.free(), free);
}

/// Whether a call is to be made again; then the instruction pointer goes back.
fn is_unfinished(world: &mut World, core: usize, call: Syscall, arguments: &[u64]) -> bool {
    let begin = world.borders[core].rip;
    world.call_once(core, call, arguments);
    let unfinished = world.borders[core].rip.wrapping_add(2) == begin;
    world.borders[core].rip = begin;
    unfinished
}

#[test]
fn lives_are_begun_as_often_as_the_host_may_be_told_of_them() {
    let manager = Program { manages: 0b10, ..Program::named("manager") };
    let mut world = World::boot(2, &[manager, idle("victim")], &[]);
    // It takes several pieces; who has begun too many lives does not come to the first.
    let begins =
        |world: &mut World| (0..8).any(|_| !is_unfinished(world, 0, Syscall::ApplicationStart, &[1]));
    let mut lives = 0;
    while lives < 4096 && begins(&mut world) {
        lives += 1;
        world.call(0, Syscall::ApplicationKill, &[1]).unwrap().unwrap();
        world.settle(1, false);
    }
    assert_eq!(lives, 2048);
    let said = &world.kernel.machine.said;
    let told = ["started app=victim", "faulted app=victim"].map(|line| said.matches(line).count());
    assert_eq!((told, said.contains("too much")), ([2048; 2], false), "none is dropped");
    world.kernel.machine.now_ns += 2_000_000;
    assert!(begins(&mut world), "one more is begun");
    let again = is_unfinished(&mut world, 0, Syscall::ApplicationStart, &[1]);
    assert!(!again, "a second start of it is refused at once");
}

/// Two managers, and one that is to be started, of more than one piece.
fn managed() -> World {
    let manager = Program { manages: 0b100, ..Program::named("manager") };
    World::boot(2, &[manager, Program { name: "second", ..manager }, idle("managed")], &[])
}

#[test]
fn an_application_is_started_in_pieces() {
    let mut world = managed();
    let held = |world: &World| world.held(2).iter().sum::<u64>();
    let state = |world: &World| world.kernel.board.applications[2].state.load(Relaxed);
    let (mut before, mut pieces) = (0, 1);
    while is_unfinished(&mut world, 0, Syscall::ApplicationStart, &[2]) {
        // The pages, their tables in five windows, the root.
        let taken = held(&world) - before;
        assert!(taken <= crate::applications::build::PAGES_AT_A_TIME + 5 * 3 + 1, "{taken} frames");
        assert_eq!(world.kernel.usage[2].frames.load(Relaxed), held(&world));
        assert_eq!(
            (state(&world), world.kernel.applications[2].cores()),
            (0, 0),
            "nobody takes it for running"
        );
        assert_eq!(world.call(1, Syscall::ApplicationKill, &[2]), Some(Err(Error::WrongState)));
        (before, pieces) = (held(&world), pieces + 1);
    }
    assert!((2..8).contains(&pieces), "{pieces} pieces");
    assert_eq!(state(&world), ApplicationState::Running as u32);
    assert_eq!(world.kernel.machine.said.matches("started app=managed").count(), 1);
    assert_eq!(world.call(1, Syscall::ApplicationStart, &[2]), Some(Err(Error::WrongState)));
    assert_eq!(world.call(1, Syscall::ApplicationKill, &[2]), Some(Ok(0)));
}

/// Who begins a start and ends leaves nothing half done behind.
#[test]
fn a_start_ends_with_who_began_it() {
    for starter in [0, 1] {
        let mut world = managed();
        assert!(is_unfinished(&mut world, starter, Syscall::ApplicationStart, &[2]));
        assert!(world.held(2) != [0; 4]);
        assert_eq!(world.call(starter, Syscall::Exit, &[0]), None);
        let other = 1 - starter;
        assert_eq!(world.kernel.board.applications[2].starts.load(Relaxed), 0);
        assert_eq!(world.call(other, Syscall::ApplicationStart, &[2]), Some(Ok(0)), "from the beginning");
        assert_eq!(world.call(other, Syscall::Exit, &[0]), None);
        assert_eq!(world.kernel.ending, None, "it runs");
    }
    let mut world = managed();
    assert!(is_unfinished(&mut world, 0, Syscall::ApplicationStart, &[2]));
    (0..2).for_each(|core| assert_eq!(world.call(core, Syscall::Exit, &[0]), None));
    assert!(world.kernel.ending.is_some(), "what nobody goes on with keeps no machine alive");
    while world.kernel.take_back() {}
    assert_eq!(world.held(2), [0; 4]);
}

/// Whoever reads the board meanwhile misses no frame: a manager counts what its children leave behind.
#[test]
fn free_and_charged_frames_add_up_between_two_pieces_of_a_grant() {
    let mut world = World::boot(2, &[Program::named("first"), Program::named("second")], &[]);
    let shown = |world: &World| {
        let charged = world.kernel.usage[..2].iter().map(|usage| usage.frames.load(Relaxed)).sum::<u64>();
        world.kernel.board.machine.frames_free.load(Relaxed) + charged
    };
    let before = shown(&world);
    assert!(is_unfinished(&mut world, 0, Syscall::MemoryGrant, &[0, 64, ANY]));
    assert!(world.call(1, Syscall::MemoryGrant, &[0, 1, ANY]).is_some_and(|frame| frame.is_ok()));
    assert_eq!(shown(&world), before);
}

#[test]
fn who_may_have_so_much_is_given_that_and_a_call_asks_for_a_gigabyte_at_most() {
    let mut world = World::boot(1, &[Program::named("large")], &[]);
    let mut grant = |size, count| world.call(0, Syscall::MemoryGrant, &[size, count, ANY]).unwrap();
    assert_eq!(grant(0, 513), Err(Error::InvalidArgument), "more pages than a call is about");
    assert_eq!(grant(2, 2), Err(Error::InvalidArgument), "more than a gigabyte");
    assert_eq!(grant(2, 1), Err(Error::OverMemoryCap));
    assert_eq!(grant(1, 512), Err(Error::OverMemoryCap));
    let left = world.kernel.allowance(app(0));
    let mut grant = |count| world.call(0, Syscall::MemoryGrant, &[0, count, ANY]).unwrap();
    assert_eq!(grant(left + 1), Err(Error::OverMemoryCap));
    assert!(grant(left).is_ok(), "{left} frames");
    assert_eq!(grant(1), Err(Error::OverMemoryCap));
}

#[test]
fn what_an_application_had_is_taken_back_in_pieces() {
    let manager = Program { manages: 0b10, ..Program::named("manager") };
    let large = Program { frames_max: 1 << 14, ..Program::named("large") };
    let mut world = World::boot(2, &[manager, large], &[]);
    let start = world.kernel.frames.free();
    let held = |world: &World| world.held(1).iter().sum::<u64>();
    while world.call(1, Syscall::MemoryGrant, &[0, 1, ANY]) != Some(Err(Error::OutOfMemory)) {
        assert!(held(&world) < 1 << 14, "memory is smaller than what it may have");
    }
    let (most, piece) = (held(&world), 4 * 512);
    assert!(most > piece, "{most} frames are several pieces");
    world.call(0, Syscall::ApplicationKill, &[1]).unwrap().unwrap();
    assert_eq!(held(&world) + 1, most, "its state alone is gone, and nobody was kept from the kernel");
    let mut before = held(&world);
    while world.kernel.takes_back() {
        assert_eq!(world.kernel.next(on(1), &mut world.borders[1], false), Next::Halt);
        assert!(before - held(&world) <= piece);
        before = held(&world);
    }
    assert_eq!((held(&world), world.next[0]), (0, RUN));
    assert!(world.kernel.frames.free() > start);
}

#[test]
fn who_wants_what_a_dead_application_had_takes_it_back_first() {
    let manager = Program { manages: 0b10, frames_max: 1 << 14, ..Program::named("manager") };
    let large = Program { frames_max: 1 << 14, ..Program::named("large") };
    let mut world = World::boot(2, &[manager, large], &[]);
    while world.call(1, Syscall::MemoryGrant, &[0, 1, ANY]) != Some(Err(Error::OutOfMemory)) {}
    assert_eq!(world.call(0, Syscall::MemoryGrant, &[0, 1, ANY]), Some(Err(Error::OutOfMemory)));
    world.call(0, Syscall::ApplicationKill, &[1]).unwrap().unwrap();
    assert!(is_unfinished(&mut world, 0, Syscall::ApplicationStart, &[1]), "not all of it is free");
    assert!(world.call(0, Syscall::MemoryGrant, &[0, 64, ANY]).is_some_and(|frame| frame.is_ok()));
    assert_eq!(world.call(0, Syscall::ApplicationStart, &[1]), Some(Ok(0)));
}

#[test]
fn only_the_manager_starts_and_ends_others() {
    let mut world = World::boot(1, &[Program::named("a"), idle("b")], &[]);
    assert_eq!(world.call(0, Syscall::ApplicationStart, &[1]), Some(Err(Error::NotPermitted)));
    assert_eq!(world.call(0, Syscall::ApplicationKill, &[1]), Some(Err(Error::NotPermitted)));
    assert_eq!(world.call(0, Syscall::ApplicationStart, &[64]), Some(Err(Error::NoApplication)));
}

#[test]
fn a_fault_without_handler_ends_one_application_alone() {
    let mut world = World::boot(1, &[Program::named("bad"), Program::named("good")], &[]);
    assert_eq!(world.kernel.cores[0].current(), Some(app(0)));
    let fault = Fault { vector: PAGE_FAULT, code: 6, address: 0xdead_0000 };
    world.kernel.fault(on(0), &mut world.borders[0], fault);
    world.settle(0, false);
    assert_eq!((world.kernel.cores[0].current(), world.held(0)), (Some(app(1)), [0; 4]));
    let said = &world.kernel.machine.said;
    assert!(said.contains("bad faulted on core 0: write to 0xdead0000, which is not mapped"), "{said}");
    assert!(said.contains("faulted app=bad status=139"), "{said}");
}

#[test]
fn an_overflow_of_the_stack_is_called_so_and_cured() {
    // Far from the stack pointer, at it, one word below it, and in a frame's page; then by what is mapped.
    let stack = STACK_WINDOW + 0x20_0000;
    for (rsp, address, code, said) in [
        (stack + 0x8000, stack - 8, 6, "on core 0: write to"),
        (stack - 0x100, stack - 0x100, 6, "on core 0: stack overflow: raise `stack` (write to"),
        (stack, stack - 8, 6, "on core 0: stack overflow: raise `stack` (write to"),
        (stack - 0xff0, stack - 8, 4, "on core 0: stack overflow: raise `stack` (read of"),
        (0x50_0000, 0x4f_fff8, 6, "stack overflow: raise `stack`, or what this thread was given (write to"),
        (stack, stack - 8, 7, "on core 0: write to"),
    ] {
        let mut world = World::boot(1, &[Program::named("bad")], &[]);
        world.borders[0].rsp = rsp;
        world.kernel.fault(on(0), &mut world.borders[0], Fault { vector: PAGE_FAULT, code, address });
        let heard = &world.kernel.machine.said;
        assert!(heard.contains(said), "expected `{said}` in {heard}");
    }
}

#[test]
fn a_page_fault_upcall_returns_to_exactly_where_it_was() {
    let mut world = with_upcalls(&[Program::named("pager")]);
    let before = world.borders[0];
    world.kernel.fault(on(0), &mut world.borders[0], Fault { vector: PAGE_FAULT, code: 4, address: 0x5000 });
    world.settle(0, false);
    let frame = upcall_frame(&world);
    assert_eq!((frame.registers, world.borders[0].rip), (before, 0x2000_0000));
    assert!(frame.events.has(Upcall::PageFault) && frame.events.fault_address == 0x5000);
    let address = world.borders[0].rdi;
    assert_eq!(world.call(0, Syscall::UpcallReturn, &[address]), None);
    assert_eq!(world.borders[0], before);
}

#[test]
fn a_fault_inside_the_handler_ends_the_application() {
    let mut world = with_upcalls(&[Program::named("pager"), Program::named("other")]);
    for _ in 0..2 {
        world.kernel.fault(
            on(0),
            &mut world.borders[0],
            Fault { vector: PAGE_FAULT, code: 4, address: 0x5000 },
        );
        world.settle(0, false);
    }
    assert_eq!(world.kernel.cores[0].current(), Some(app(1)));
}

#[test]
fn an_unwritable_upcall_stack_ends_the_application() {
    let mut world = World::boot(1, &[Program::named("pager"), Program::named("other")], &[]);
    world.call(0, Syscall::UpcallRegister, &[0x2000_0000, 0x10_1000]).unwrap().unwrap();
    world.kernel.fault(on(0), &mut world.borders[0], Fault { vector: 6, code: 0, address: 0 });
    world.settle(0, false);
    assert_eq!(world.kernel.cores[0].current(), Some(app(1)));
}

#[test]
fn an_upcall_return_cannot_raise_privileges() {
    let mut world = with_upcalls(&[Program::named("pager")]);
    world.kernel.fault(on(0), &mut world.borders[0], Fault { vector: 6, code: 0, address: 0 });
    world.settle(0, false);
    let (address, mut frame) = (world.borders[0].rdi, upcall_frame(&world));
    frame.registers.rflags = u64::MAX;
    frame.registers.rip = 0xffff_ffff_8010_0000;
    let space = world.kernel.applications[0].space().unwrap();
    space.write_user(&mut world.kernel.machine, user(address), frame.as_bytes()).unwrap();
    assert_eq!(world.call(0, Syscall::UpcallReturn, &[address]), Some(Err(Error::OutsideUserSpace)));
    frame.registers.rip = 0x40_0000;
    space.write_user(&mut world.kernel.machine, user(address), frame.as_bytes()).unwrap();
    world.call(0, Syscall::UpcallReturn, &[address]);
    // No I/O privilege, no virtual-8086 mode, no nested task, interrupts on.
    assert_eq!(world.borders[0].rflags & 0x2_7300, 0x200);
}

#[test]
fn waiting_ends_at_the_deadline_and_arms_one_timer() {
    let mut world = World::boot(1, &[Program::named("a")], &[]);
    map_page(&mut world, 0x10_0000);
    assert_eq!(wait(&mut world, 0, 5_000_000), None);
    assert_eq!((world.next[0], world.kernel.machine.timer), (Next::Halt, Some(5_000_000)));
    world.pass(0, 5_000_000);
    assert_eq!((world.borders[0].rax, world.borders[0].rdx), (0, 0));
    assert_eq!(world.kernel.machine.timer, None);
}

#[test]
fn waiting_for_good_arms_no_timer() {
    let mut world = World::boot(1, &[Program::named("a")], &[]);
    map_page(&mut world, 0x10_0000);
    wait(&mut world, 0, u64::MAX);
    assert_eq!((world.next[0], world.kernel.machine.timer), (Next::Halt, None));
}

#[test]
fn a_notification_wakes_the_peer_with_its_own_number_for_the_channel() {
    let programs = [Program::named("a"), Program::named("b"), Program::named("c")];
    let mut world = World::boot(3, &programs, &[[0, 1], [1, 2]]);
    // Core 1 runs b: it has both channels, and the one with c is its number 1.
    let frame = world.call(1, Syscall::MemoryGrant, &[0, 1, ANY]).unwrap().unwrap();
    world.call(1, Syscall::MemoryMap, &[0x10_0000, frame, 0, 1, 3]).unwrap().unwrap();
    wait(&mut world, 1, u64::MAX);
    // It was told that its peers started before it waited.
    wait(&mut world, 1, u64::MAX);
    assert_eq!(world.call(2, Syscall::ChannelNotify, &[0]), Some(Ok(0)));
    world.settle(1, false);
    assert_eq!(world.borders[1].rdx, Upcall::Message.mask());
    assert_eq!(world.kernel.machine.memory_word(frame * 4096 + 32), 0b10);
    assert_eq!(world.call(2, Syscall::ChannelNotify, &[1]), Some(Err(Error::NoChannel)));
}

/// Core 0 comes out of the upcall that it is in.
fn return_from_upcall(world: &mut World) {
    let frame = world.borders[0].rdi;
    world.call_once(0, Syscall::UpcallReturn, &[frame]);
}

#[test]
fn a_peer_interrupts_who_computes_so_often_and_no_more() {
    let mut world = World::boot(2, &[Program::named("a"), Program::named("b")], &[[0, 1]]);
    map_page(&mut world, 0x10_0000);
    world.call(0, Syscall::UpcallRegister, &[0x2000_0000, 0x10_1000]).unwrap().unwrap();
    return_from_upcall(&mut world); // That its peer started.
    let notify = |world: &mut World| is_unfinished(world, 1, Syscall::ChannelNotify, &[0]);
    let mut told = 0;
    while told < 128 && !notify(&mut world) {
        world.settle(0, false);
        assert_eq!(world.borders[0].rip, 0x2000_0000, "interrupted {told} times before");
        // In its handler nothing interrupts it.
        assert!(!notify(&mut world));
        return_from_upcall(&mut world);
        world.settle(0, false);
        return_from_upcall(&mut world); // What it was told there.
        told += 1;
    }
    assert_eq!(told, 64);
    let waiting = Syscall::ChannelNotifyAndWait;
    assert!(is_unfinished(&mut world, 1, waiting, &[0, 0, 0x10_0000]), "nor by who waits then");
    assert_eq!(world.kernel.contexts[0].events().pending, 0);
    world.kernel.machine.now_ns += 50_000;
    assert_eq!([notify(&mut world), world.kernel.contexts[0].events().pending == 0], [false; 2]);
    // Who waits is woken however often that was.
    world.settle(0, false);
    return_from_upcall(&mut world);
    wait(&mut world, 0, u64::MAX);
    assert!(!notify(&mut world));
}

#[test]
fn nobody_is_interrupted_for_who_has_its_turn_later() {
    let mut world =
        World::boot(2, &[Program::named("a"), Program::named("b"), Program::named("c")], &[[1, 2]]);
    let on_core = |world: &World, core: usize| world.kernel.cores[core].current();
    assert_eq!([on_core(&world, 0), on_core(&world, 1)], [Some(app(0)), Some(app(1))]);
    *world.kernel.cores[0].disturbed() = false;
    world.kernel.machine.kicked.clear();
    assert_eq!(world.call(1, Syscall::ChannelNotify, &[0]), Some(Ok(0)));
    assert!(world.kernel.contexts[2].events().has(Upcall::Message), "it is told when it has its turn");
    assert_eq!((*world.kernel.cores[0].disturbed(), world.kernel.machine.kicked.len()), (false, 0));
}

#[test]
fn a_peer_on_the_same_core_runs_at_once_when_its_notifier_sleeps() {
    let mut world = World::boot(1, &[Program::named("a"), Program::named("b")], &[[0, 1]]);
    map_page(&mut world, 0x10_0000);
    wait(&mut world, 0, 0); // That its peer started.
    world.call(0, Syscall::CoreYield, &[]);
    assert_eq!(world.kernel.cores[0].current(), Some(app(1)));
    map_page(&mut world, 0x10_0000);
    wait(&mut world, 0, u64::MAX);
    for (notifier, peer) in [(0, 1), (1, 0), (0, 1)] {
        assert_eq!(world.kernel.cores[0].current(), Some(app(notifier)));
        let refused = world.call(0, Syscall::ChannelNotifyAndWait, &[0, u64::MAX, 0x20_0000]);
        assert_eq!(refused, Some(Err(Error::BadPointer)), "and nobody is told");
        assert_eq!(world.kernel.cores[0].current(), Some(app(notifier)));
        take_events(&mut world, 0);
        assert_eq!(world.call(0, Syscall::ChannelNotifyAndWait, &[0, u64::MAX, 0x10_0000]), None);
        assert_eq!(world.kernel.cores[0].current(), Some(app(peer)));
        assert_eq!((world.borders[0].rax, world.borders[0].rdx), (0, Upcall::Message.mask()));
        let place = 0x10_0000 + std::mem::offset_of!(nom_abi::Events, messages) as u64;
        let place = world.touch(0, place, false).expect("where it waited");
        assert_eq!(world.kernel.machine.memory_word(place), 1, "the first of its channels");
    }
    let refused = world.call(0, Syscall::ChannelNotifyAndWait, &[1, u64::MAX, 0x10_0000]);
    assert_eq!(refused, Some(Err(Error::NoChannel)));
}

#[test]
fn who_says_too_much_is_not_heard_and_the_log_tells() {
    let mut world = World::boot(1, &[Program::named("loud")], &[]);
    map_page(&mut world, 0x10_0000);
    let say = |world: &mut World| world.call(0, Syscall::ConsoleWrite, &[0x10_0000, 256]);
    for _ in 0..1100 {
        assert_eq!(say(&mut world), Some(Ok(256)));
    }
    assert_eq!(world.kernel.machine.said.matches('\0').count(), 1024 * 256);
    world.pass(0, 1_000_000_000);
    assert_eq!(say(&mut world), Some(Ok(256)));
    assert!(world.kernel.machine.said.contains("loud says too much: 19456 bytes are dropped"));
}

#[test]
fn who_says_more_than_a_call_may_says_nothing() {
    let mut world = World::boot(1, &[Program::named("loud")], &[]);
    map_page(&mut world, 0x10_0000);
    for (length, answer) in [(4096, Ok(256)), (4097, Err(Error::InvalidArgument))] {
        let said = world.call(0, Syscall::ConsoleWrite, &[0x10_0000, length]);
        assert_eq!(said, Some(answer), "{length}");
    }
    assert_eq!(world.call(0, Syscall::ConsoleWrite, &[0x10_0000, 5000]), Some(Err(Error::InvalidArgument)));
    assert_eq!(world.kernel.machine.said.matches('\0').count(), 256);
}

/// Where it was is shown if it asks for that, and its status is the same then.
#[test]
fn who_ends_shows_how_it_came_there_only_if_it_asks() {
    for (status, shown) in [(7, false), (7 | EXIT_BACKTRACE, true)] {
        let mut world = World::boot(1, &[Program::named("a")], &[]);
        let before = world.kernel.machine.said.lines().count();
        world.call(0, Syscall::Exit, &[status]);
        let said: Vec<_> = world.kernel.machine.said.lines().skip(before).collect();
        assert_eq!(said.iter().any(|line| line.contains("#0")), shown, "{said:?}");
        assert_eq!(world.next[0], Next::End { status: 7 });
    }
}

/// Other events stay pending through it, and a warning that is taken back leaves nothing behind.
#[test]
fn a_warning_changes_no_other_event() {
    let world = &mut World::boot(1, &[Program::named("a")], &[]);
    let context = &mut world.kernel.contexts[0];
    for others in [0, Upcall::Timer.mask() | Upcall::Message.mask()] {
        *context.events_mut() = Events { pending: others, ..Events::default() };
        for (deadline_ns, pending, told) in [
            (Some(9), others | Upcall::CoreRevoking.mask(), 9),
            (Some(8), others | Upcall::CoreRevoking.mask(), 8),
            (None, others, 0),
            (None, others, 0),
        ] {
            context.warn(deadline_ns);
            let events = context.events();
            assert_eq!((events.pending, events.revoke_deadline_ns), (pending, told), "{deadline_ns:?}");
        }
    }
}

#[test]
fn a_core_wakes_another_of_its_application_and_no_other() {
    let mut world =
        World::boot(3, &[Program { cores_max: 2, ..Program::named("a") }, Program::named("b")], &[]);
    map_page(&mut world, 0x10_0000);
    let other = world.call(0, Syscall::CoreAcquire, &[0x40_0000, 0x50_0000, 9, 2]).unwrap().unwrap();
    world.settle(other as usize, false);
    wait(&mut world, 0, u64::MAX);
    assert_eq!(world.next[0], Next::Halt);
    assert_eq!(world.call(other as usize, Syscall::CoreNotify, &[0]), Some(Ok(0)));
    world.settle(0, false);
    assert_eq!(world.next[0], Next::Run { after_syscall: false });
    assert_eq!(world.borders[0].rdx, Upcall::CoreNotified.mask());
    for none in [1, 3, 64, u64::MAX] {
        assert_eq!(world.call(0, Syscall::CoreNotify, &[none]), Some(Err(Error::NoCore)), "{none}");
    }
}

#[test]
fn three_spinners_get_their_shares() {
    let weighted = |name, weight| Program { weight, ..Program::named(name) };
    let mut world = World::boot(1, &[weighted("a", 50), weighted("b", 33), weighted("c", 17)], &[]);
    world.pass(0, 2_000_000_000);
    let cycles = [0, 1, 2].map(|app: usize| world.kernel.usage[app].cycles.load(Relaxed) as f64);
    let total: f64 = cycles.iter().sum();
    for (share, expected) in cycles.into_iter().map(|cycles| cycles / total).zip([0.50, 0.33, 0.17]) {
        assert!((share - expected).abs() < 0.005, "{share} instead of {expected}");
    }
}

#[test]
fn a_core_is_taken_only_after_a_warning() {
    let mut world = with_upcalls(&[Program::named("a"), Program::named("b")]);
    let longest = world.kernel.machine.now_ns + 10 * SLICE_NS;
    while world.kernel.cores[0].current() != Some(app(0)) || world.kernel.contexts[0].takes_upcalls() {
        assert!(world.kernel.machine.now_ns < longest, "no warning");
        world.pass(0, GRACE_NS / 10);
    }
    let frame = upcall_frame(&world);
    assert!(frame.events.has(Upcall::CoreRevoking), "{frame:?}");
    let left = frame.events.revoke_deadline_ns - world.kernel.machine.now_ns;
    assert!(left <= GRACE_NS);
    world.pass(0, left + 1);
    assert_eq!(world.kernel.cores[0].current(), Some(app(1)));
    assert_eq!(world.kernel.usage[0].preemptions.load(Relaxed), 1);
}

#[test]
fn a_timer_is_told_once_at_its_time_to_who_has_the_core() {
    let mut world = with_upcalls(&[Program::named("a")]);
    let begin = world.kernel.machine.now_ns;
    let is_told = |world: &World| !world.kernel.contexts[0].takes_upcalls();
    for (deadline_ns, armed_ns) in [(700, 700), (500, 500), (900, 500)] {
        assert_eq!(world.call(0, Syscall::CoreTimer, &[begin + deadline_ns]), Some(Ok(0)));
        let armed = Some(begin + armed_ns);
        assert_eq!(world.kernel.machine.timer, armed, "armed again for what is earlier alone");
    }
    assert_eq!(world.call(0, Syscall::CoreTimer, &[u64::MAX]), Some(Ok(0)));
    world.pass(0, 1000);
    assert!(!is_told(&world), "it was stopped");
    assert_eq!(world.kernel.machine.timer, None, "what it was armed for was nothing, once");
    world.call(0, Syscall::CoreTimer, &[begin + 1500]);
    world.pass(0, 499);
    assert!(!is_told(&world), "not before its time");
    world.pass(0, 1);
    let events = upcall_frame(&world).events;
    assert!(is_told(&world) && events.pending == Upcall::Timer.mask(), "{events:?}");
    let frame = world.borders[0].rdi;
    assert_eq!(world.call(0, Syscall::UpcallReturn, &[frame]), None);
    world.pass(0, SLICE_NS);
    assert!(!is_told(&world), "once");
    world.call(0, Syscall::CoreTimer, &[begin]);
    world.pass(0, 0);
    assert!(is_told(&world), "what is over is told at once");
}

/// The timer of who sleeps, or waits for its turn, disturbs nobody, and is told when it has the core.
#[test]
fn a_timer_waits_until_its_owner_has_the_core() {
    let mut world = with_upcalls(&[Program::named("a"), Program::named("b")]);
    let begin = world.kernel.machine.now_ns;
    world.call(0, Syscall::CoreTimer, &[begin + 100]);
    assert_eq!(world.call(0, Syscall::CoreWait, &[begin + 1000, 0x10_0000]), None);
    assert_eq!(world.kernel.cores[0].current(), Some(app(1)));
    world.pass(0, 999);
    assert_eq!(
        (world.kernel.cores[0].current(), world.kernel.machine.timer),
        (Some(app(1)), Some(begin + 1000))
    );
    world.pass(0, 10 * SLICE_NS);
    while world.kernel.cores[0].current() != Some(app(0)) {
        world.pass(0, SLICE_NS);
    }
    assert!(upcall_frame(&world).events.has(Upcall::Timer));
}

#[test]
fn giving_the_core_up_in_time_is_no_preemption() {
    let mut world = with_upcalls(&[Program::named("a"), Program::named("b")]);
    assert_eq!(world.call(0, Syscall::CoreYield, &[]), Some(Ok(0)));
    assert_eq!(world.kernel.cores[0].current(), Some(app(1)));
    assert_eq!(world.kernel.usage[0].preemptions.load(Relaxed), 0);
}

#[test]
fn cores_are_acquired_up_to_the_cap_and_given_back() {
    let mut world = World::boot(4, &[Program { cores_max: 3, ..Program::named("a") }], &[]);
    assert_eq!(world.call(0, Syscall::CoreRelease, &[]), Some(Err(Error::LastCore)));
    let start = [0x40_0000, 0x50_0000, 9, 3];
    assert_eq!(world.call(0, Syscall::CoreAcquire, &start), Some(Ok(3)));
    assert_eq!(world.call(0, Syscall::CoreAcquire, &start), Some(Ok(1)));
    assert_eq!(world.call(0, Syscall::CoreAcquire, &start), Some(Err(Error::NoCore)));
    world.settle(3, false);
    assert_eq!((world.borders[3].rip, world.borders[3].rdi, world.borders[3].rsi), (0x40_0000, 9, 3));
    assert_eq!(world.call(3, Syscall::CoreRelease, &[]), None);
    assert_eq!(world.next[3], Next::Halt);
    assert_eq!(world.kernel.usage[0].cores.load(Relaxed), 2);
}

/// Two applications on both cores; the first one's work on core 1 has just begun.
fn two_on_two_cores() -> World {
    let a = Program { cores_max: 2, ..Program::named("a") };
    let mut world = World::boot(2, &[a, Program { weight: 10, ..Program::named("b") }], &[]);
    map_page(&mut world, 0x10_0000);
    assert_eq!(world.call(0, Syscall::CoreAcquire, &[0x40_0000, 0x50_0000, 9, 1]), Some(Ok(1)));
    while world.kernel.cores[1].current() != Some(app(0)) {
        world.pass(1, SLICE_NS);
    }
    world
}

#[test]
fn what_concerns_no_core_outlives_the_core_that_was_to_hear_of_it() {
    let mut world = two_on_two_cores();
    wait(&mut world, 0, u64::MAX);
    for upcall in [Upcall::Message, Upcall::PeerChanged, Upcall::Interrupt, Upcall::CoreNotified] {
        world.kernel.tell_on(on(1), app(0), upcall, |events| events.messages = 0b100);
    }
    assert_eq!(world.call(1, Syscall::CoreRelease, &[]), None);
    world.settle(0, false);
    // The first of what it hears ends the sleep; the rest is there for the next one.
    let heard = world.borders[0].rdx | world.kernel.contexts[0].events().pending;
    assert_eq!(heard, Upcall::Message.mask() | Upcall::PeerChanged.mask());
}

/// With what it says, and beside what the other core was to hear.
#[test]
fn what_a_core_did_not_hear_is_told_whole() {
    let mut world = two_on_two_cores();
    let tell = |world: &mut World, core, upcall, note: fn(&mut Events)| {
        world.kernel.tell_on(on(core), app(0), upcall, note);
    };
    tell(&mut world, 0, Upcall::Message, |events| events.messages = 0b1);
    tell(&mut world, 1, Upcall::Message, |events| events.messages = 0b100);
    tell(&mut world, 1, Upcall::DmaBlocked, |events| events.fault_address = 0x7000);
    assert_eq!(world.call(1, Syscall::CoreRelease, &[]), None);
    let events = *world.kernel.contexts[0].events();
    assert!(events.has(Upcall::Message) && events.has(Upcall::DmaBlocked));
    assert_eq!((events.messages, events.fault_address), (0b101, 0x7000));
}

#[test]
fn who_handles_a_shutdown_is_told_once_and_others_end_but_not_the_machine() {
    let essential = |name| Program { flags: flag::AUTOSTART | flag::ESSENTIAL, ..Program::named(name) };
    let mut world = World::boot(2, &[essential("server"), essential("other")], &[]);
    map_page(&mut world, 0x10_0000);
    assert_eq!(world.call(0, Syscall::ShutdownHandle, &[]), Some(Ok(0)));
    wait(&mut world, 0, u64::MAX);
    world.kernel.machine.now_ns = 77;
    for now_ns in [77, 99] {
        world.kernel.shut_down();
        world.settle(0, false);
        assert_eq!(world.kernel.board.machine.shutdown_ns.load(Relaxed), 77, "asked again at {now_ns}");
        world.kernel.machine.now_ns = 99;
    }
    assert_eq!((world.borders[0].rdx, world.held(1)), (Upcall::Shutdown.mask(), [0; 4]));
    assert!(world.kernel.machine.said.contains("exited app=other status=143"));
    wait(&mut world, 0, u64::MAX);
    assert_eq!(world.next[0], Next::Halt, "it was told, and goes on until it ends");
    world.pass(0, 1);
    world.kernel.end_application(app(0), nom_abi::board::ApplicationState::Exited, 5);
    world.settle(0, false);
    assert_eq!(world.next[0], Next::End { status: 5 });
}

#[test]
fn granted_memory_is_zero_and_capped() {
    let mut world = World::boot(1, &[Program { frames_max: 64, ..Program::named("a") }], &[]);
    let frame = map_page(&mut world, 0x10_0000);
    assert!((0..512).all(|word| world.kernel.machine.memory_word(frame * 4096 + word * 8) == 0));
    assert_eq!(world.call(0, Syscall::MemoryGrant, &[0, 64, ANY]), Some(Err(Error::OverMemoryCap)));
    assert_eq!(world.call(0, Syscall::MemoryRelease, &[frame, 0, 1]), Some(Err(Error::StillMapped)));
    assert_eq!(world.call(0, Syscall::MemoryUnmap, &[0x10_0000, 4096]), Some(Ok(0)));
    assert_eq!(world.call(0, Syscall::MemoryRelease, &[frame, 0, 1]), Some(Ok(0)));
    assert_eq!(world.call(0, Syscall::MemoryMap, &[0x10_0000, frame, 0, 1, 3]), Some(Err(Error::NotGranted)));
}

#[test]
fn an_unknown_number_is_an_error() {
    let mut world = World::boot(1, &[Program::named("a")], &[]);
    world.borders[0].rax = 1 << 40;
    assert!(world.kernel.syscall(on(0), &mut world.borders[0]));
    assert_eq!(world.borders[0].rax, Error::UnknownSyscall as u64);
    world.settle(0, true);
    assert_eq!(world.next[0], RUN);
}

/// One frame, writable by one address and executable by another, or first the one and then the other: only
/// for those whose manifest says that they make code.
#[test]
fn what_can_be_written_can_be_executed_only_by_those_that_make_code() {
    for makes_code in [false, true] {
        let flags = flag::AUTOSTART | if makes_code { flag::MAKES_CODE } else { 0 };
        let mut world = World::boot(1, &[Program { flags, ..Program::named("compiler") }], &[]);
        let frame = map_page(&mut world, 0x10_0000);
        let expected = if makes_code { Ok(0) } else { Err(Error::NotPermitted) };
        let alias = world.call(0, Syscall::MemoryMap, &[0x20_0000, frame, 0, 1, 5]);
        assert_eq!(alias, Some(expected));
        assert_eq!(world.call(0, Syscall::MemoryProtect, &[0x10_0000, 0x1000, 5]), Some(expected));
        assert_eq!(
            world.call(0, Syscall::MemoryProtect, &[0x10_0000, 0x1000, 7]),
            Some(Err(Error::WriteExecute))
        );
    }
}

#[test]
fn whatever_the_bundle_may_ask_for_has_a_place_between_guards() {
    use nom_abi::layout::{PLACEMENT_ALIGN, WINDOW_BYTES};
    let most = WINDOW_BYTES - 2 * PLACEMENT_ALIGN;
    for bytes in [4096, PLACEMENT_ALIGN, most - PLACEMENT_ALIGN, most - 4096, most] {
        for random in [0, 1, u64::MAX] {
            let at = crate::applications::build::placed(bytes, random);
            assert!(at >= PLACEMENT_ALIGN && at + bytes <= WINDOW_BYTES - PLACEMENT_ALIGN, "{bytes} at {at}");
        }
        // Each place of its window may be its own, up to the last, and the next number is the first again.
        let last = (most - bytes.next_multiple_of(PLACEMENT_ALIGN)) / PLACEMENT_ALIGN;
        let at = crate::applications::build::placed(bytes, last);
        assert_eq!(at + bytes.next_multiple_of(PLACEMENT_ALIGN), WINDOW_BYTES - PLACEMENT_ALIGN);
        assert_eq!(crate::applications::build::placed(bytes, last + 1), PLACEMENT_ALIGN);
        assert_eq!(crate::applications::build::placed(bytes, last / 2), PLACEMENT_ALIGN * (last / 2 + 1));
    }
}

#[test]
fn what_an_application_uses_is_shown_to_itself_and_to_those_who_watch_it() {
    let manager = Program { manages: 0b1, ..Program::named("manager") };
    let monitor = Program { flags: flag::AUTOSTART | flag::MONITORS, ..Program::named("monitor") };
    let world = World::boot(3, &[Program::named("own"), manager, monitor], &[]);
    let kernel = &world.kernel;
    let mut shown = std::vec::Vec::new();
    for core in 0..3 {
        let space = kernel.applications[kernel.cores[core].current().unwrap()].space().unwrap();
        let mut start = Start::new_zeroed();
        space.read_user(&kernel.machine, user(world.borders[core].rdi), start.as_mut_bytes()).unwrap();
        let page = |other| space.translate(&kernel.machine, user(usage_address(start.board, other))).unwrap();
        shown.push([0, 1, 2].map(|other| page(other).frame.number() - kernel.usage_frame.number()));
    }
    assert_eq!(shown, [[0, 3, 3], [0, 1, 3], [0, 1, 2]], "3 is the page of nobody");
}

#[test]
fn a_call_that_the_manifest_does_not_allow_is_refused_and_counted() {
    let calls = Syscall::EVERY & !(1 << Syscall::MemoryGrant as u32);
    let mut world = World::boot(1, &[Program { calls, ..Program::named("a") }], &[]);
    let free = world.kernel.frames.free();
    for _ in 0..5 {
        assert_eq!(world.call(0, Syscall::MemoryGrant, &[0, 1, u64::MAX]), Some(Err(Error::NotPermitted)));
    }
    assert_eq!(world.call(0, Syscall::CoreYield, &[]), Some(Ok(0)));
    assert_eq!(world.kernel.frames.free(), free);
    assert_eq!(world.kernel.usage[0].refused.load(Relaxed), 5);
    let said = world.kernel.machine.said.matches("memory_grant").count();
    assert_eq!(said, 3, "the first, the second and the fourth: {}", world.kernel.machine.said);
}
