//! Owners of devices who mean no good, units that fail, and devices that keep what they were told.

use super::*;
use crate::applications::FAULTS_MAX;
use crate::machine::Registers;
use crate::testing::{app, on};
use core::sync::atomic::Ordering::Relaxed;

/// Has the device try to reach memory that is not its owner's, if it can try, and the kernel hear of it.
fn fault(world: &mut World, number: usize) -> bool {
    let foreign = crate::kernel::fake::FRAMES - 1;
    let tries = world.kernel.machine.hardware.pci.get(number).can_dma();
    assert!(!tries || !dma(world, number, foreign));
    world.kernel.poll_platform(on(0));
    tries
}

#[test]
fn a_flood_of_blocked_accesses_ends_and_fills_no_log() {
    let (mut world, number) = with_device(Unit::Vtd);
    drive(&mut world);
    world.kernel.contexts[0].events_mut().pending = 0;
    let mut blocked = 0;
    while fault(&mut world, number) {
        blocked += 1;
        assert!(blocked <= FAULTS_MAX, "the device goes on");
    }
    assert_eq!((blocked, world.kernel.board.devices[0].dma_blocked.load(Relaxed)), (FAULTS_MAX, FAULTS_MAX));
    let lines = world.kernel.machine.said.matches("DMA blocked").count();
    assert!((1..=7).contains(&lines), "{lines} lines");
    let told = *world.kernel.contexts[0].events();
    assert!(told.has(Upcall::DmaBlocked) && told.has(Upcall::DeviceLeft));
    assert_eq!(world.call(0, Syscall::DeviceRelease, &[0]), Some(Ok(0)));
    assert_eq!(world.call(0, Syscall::DeviceAcquire, &[0]), Some(Err(Error::NotPermitted)));
    // It is a matter between the kernel and that application.
    assert_eq!(world.call(1, Syscall::DeviceAcquire, &[0]), Some(Ok(0)));
    assert!(fault(&mut world, number) && fault(&mut world, number));
}

/// An owner may bind more interrupts than the kernel takes back in as long as one may have it: those of one
/// core are a piece, when the device is released, and when its owner ends.
#[test]
fn interrupts_are_taken_back_core_by_core() {
    for ends in [false, true] {
        let (mut world, number) = with_device(Unit::Vtd);
        drive(&mut world);
        assert_eq!(world.call(0, Syscall::CoreAcquire, &[0x40_0000, 0x50_0000, 9, 1]), Some(Ok(1)));
        while world.kernel.cores[1].current() != Some(app(0)) {
            world.pass(1, 1_000_000);
        }
        assert_eq!(world.call(1, Syscall::InterruptBind, &[0, 1, 6]), Some(Ok(0)));
        if ends {
            world.kernel.end_application(app(0), ApplicationState::Faulted, 137);
        }
        let mut piece = || {
            let begin = world.borders[0].rip;
            if ends {
                world.kernel.take_back();
            } else {
                world.call_once(0, Syscall::DeviceRelease, &[0]);
                world.borders[0].rip = begin;
            }
            [on(0), on(1)].map(|core| world.kernel.cores[core].vectors.count())
        };
        assert_eq!([piece(), piece()], [[0, 1], [0, 0]], "ends: {ends}");
        assert!(world.kernel.devices.owner(0).is_some(), "the device itself is the next piece");
        let address = world.kernel.machine.hardware.pci.get(number).half(4);
        assert_ne!(address, 0, "and is on until then");
        while ends && world.kernel.take_back() {}
        if !ends {
            assert_eq!(world.call(0, Syscall::DeviceRelease, &[0]), Some(Ok(0)));
        }
        assert_eq!(world.kernel.devices.owner(0), None);
    }
}

/// Whom the interrupts of blocked accesses hit pays nothing for them, in cycles and in its turn.
#[test]
fn what_a_flood_costs_is_its_owners() {
    let (mut world, number) = with_device(Unit::Vtd);
    drive(&mut world);
    world.kernel.contexts[0].events_mut().pending = 0;
    world.call(0, Syscall::CoreYield, &[]).unwrap().unwrap();
    assert_eq!(world.kernel.cores[0].current(), Some(app(2)), "the bystander");
    let used = |world: &World| [0, 2].map(|app: usize| world.kernel.usage[app].cycles.load(Relaxed));
    let turn = |world: &World, app| world.kernel.cores[0].queue.cycles_left(app, crate::cores::SLICE_NS);
    world.kernel.account(on(0));
    let (before, begin, turns) =
        (used(&world), world.kernel.machine.now_ns, [0, 2].map(|it| turn(&world, app(it))));
    world.kernel.machine.register_ns = 1_000;
    for _ in 0..FAULTS_MAX {
        assert!(fault(&mut world, number));
    }
    world.kernel.account(on(0));
    let [owner, bystander] = used(&world);
    let passed = (world.kernel.machine.now_ns - begin) * 2;
    assert!(owner - before[0] > passed * 9 / 10, "{} of {passed} cycles", owner - before[0]);
    assert!(bystander - before[1] < passed / 10, "{} of {passed} cycles", bystander - before[1]);
    assert!(
        turn(&world, app(0)) < turns[0] && turn(&world, app(2)) > turns[1],
        "who has been given more is not next"
    );
}

#[test]
fn registers_can_be_mapped_again_and_again() {
    let (mut world, _) = with_device(Unit::None);
    assert_eq!(world.call(0, Syscall::DeviceAcquire, &[0]), Some(Ok(0)));
    let map = |world: &mut World, at: u64| {
        let arguments = [0, BAR, 0x2000, REGISTERS + at * 0x1000, 0x1000];
        world.call(0, Syscall::DeviceMap, &arguments).expect("it is answered")
    };
    for round in 0..20 {
        assert_eq!(map(&mut world, round), Ok(0), "round {round}");
        let unmapped = world.call(0, Syscall::MemoryUnmap, &[REGISTERS + round * 0x1000, 0x1000]);
        assert_eq!(unmapped, Some(Ok(0)));
    }
    for at in 0..8 {
        assert_eq!(map(&mut world, at), Ok(0));
    }
    assert_eq!(map(&mut world, 8), Err(Error::TableFull));
    assert_eq!(world.call(0, Syscall::DeviceRelease, &[0]), Some(Ok(0)));
    for at in 0..8 {
        assert_eq!(world.touch(0, REGISTERS + at * 0x1000, false), None);
    }
}

#[test]
fn a_device_that_cannot_be_reset_has_one_owner() {
    let mut hardware = FakeMachine::new();
    hardware.pci.add(None, 2, 0, FakeFunction::new(0x8086, NET, 0x02_0000).bar(4, 0x4000));
    hardware.pci.add(None, 3, 0, FakeFunction::new(0x8086, NET, 0x02_0000).bar(4, 0x4000).express(0, true));
    let mut world = with_hardware(Unit::Vtd, hardware);
    for (device, second) in [(0, Err(Error::NotPermitted)), (1, Ok(0))] {
        assert_eq!(world.call(0, Syscall::DeviceAcquire, &[device]), Some(Ok(0)));
        assert_eq!(world.call(0, Syscall::DeviceRelease, &[device]), Some(Ok(0)));
        assert_eq!(world.call(1, Syscall::DeviceAcquire, &[device]), Some(second), "device {device}");
    }
}

/// Nor by asking again and again for what it is not given, whoever is to blame.
#[test]
fn who_asks_for_what_it_cannot_have_fills_no_log() {
    let mut hardware = FakeMachine::new();
    hardware.pci.add(None, 2, 0, FakeFunction::new(0x8086, NET, 0x02_0000).bar(4, 0x4000));
    let mut world = with_hardware(Unit::Vtd, hardware);
    assert_eq!(world.call(0, Syscall::DeviceAcquire, &[0]), Some(Ok(0)));
    assert_eq!(world.call(0, Syscall::DeviceRelease, &[0]), Some(Ok(0)));
    for _ in 0..5_000 {
        assert_eq!(world.call(0, Syscall::DeviceAcquire, &[0]), Some(Err(Error::NotPermitted)));
    }
    let lines = world.kernel.machine.said.matches("it has no reset").count();
    assert!((1..=2_048).contains(&lines), "{lines} lines");
    // Its own memory cap keeps it from another device's tables.
    let (mut world, _) = with_device(Unit::Vtd);
    while world.kernel.allowance(app(0)) > 0 {
        grant(&mut world, 0);
    }
    for _ in 0..5_000 {
        assert_eq!(world.call(0, Syscall::DeviceAcquire, &[0]), Some(Err(Error::OutOfMemory)));
    }
    let lines = world.kernel.machine.said.matches("cannot be confined").count();
    assert!((1..=2_048).contains(&lines), "{lines} lines");
}

/// It is killed while the device is told what it is to reach: what cannot be reset is as it was.
#[test]
fn a_device_that_its_owner_never_got_to_see_is_the_next_ones() {
    let mut hardware = FakeMachine::new();
    hardware.pci.add(None, 2, 0, FakeFunction::new(0x8086, NET, 0x02_0000).bar(4, 0x4000));
    let mut world = with_hardware(Unit::Vtd, hardware);
    let single: Vec<u64> = (0..100).map(|_| grant(&mut world, 0)).collect();
    for frame in single.iter().step_by(2) {
        world.call(0, Syscall::MemoryRelease, &[*frame, 0, 1]).unwrap().unwrap();
    }
    let begin = world.borders[0].rip;
    world.call_once(0, Syscall::DeviceAcquire, &[0]);
    assert_eq!(world.borders[0].rip.wrapping_add(2), begin, "it does not reach all yet");
    world.borders[0].rip = begin;
    for (call, arguments) in [
        (Syscall::DeviceMap, &[0, BAR, 0x2000, REGISTERS, 0x1000][..]),
        (Syscall::DeviceConfigRead, &[0, 0]),
        (Syscall::DeviceRelease, &[0]),
    ] {
        assert_eq!(world.call(0, call, arguments), Some(Err(Error::NotPermitted)), "{call:?}");
    }
    world.end(0, ApplicationState::Faulted);
    assert_eq!(world.held(0), [0; 4]);
    assert_eq!(world.call(1, Syscall::DeviceAcquire, &[0]), Some(Ok(0)));
}

#[test]
fn what_a_device_may_still_reach_is_nobodys() {
    let (mut world, number) = with_device(Unit::Virtio);
    let frame = map(&mut world, 0, PAGE);
    drive(&mut world);
    let unit = world.kernel.machine.hardware.virtio_iommu.as_mut().expect("it is there");
    unit.keeps = true;
    let held = world.held(0);
    assert_eq!(world.call(0, Syscall::Exit, &[0]), None);
    let address = world.kernel.machine.hardware.pci.address(number).expect("it is there");
    assert!(world.kernel.machine.hardware.reaches(address, frame * 4096), "the unit has not let it go");
    assert_eq!((world.held(0)[0], world.held(0)[1]), (held[0], 0), "so nobody is given its grants");
    assert!(world.kernel.machine.said.contains("its owner's memory is lost"));
    assert_eq!(world.call(1, Syscall::DeviceAcquire, &[0]), Some(Err(Error::NotPermitted)));
    assert_eq!(world.kernel.start(app(0)), Err(Error::WrongState));
}

/// Nor are the tables by which it may.
#[test]
fn tables_of_a_unit_that_has_not_let_go_are_nobodys() {
    let (mut world, _) = with_device(Unit::Vtd);
    map(&mut world, 0, PAGE);
    drive(&mut world);
    let held = world.held(0);
    assert!(held[3] > 0, "VT-d walks tables in memory");
    world.kernel.machine.hardware.vtd.as_mut().expect("it is there").is_dead = true;
    world.kernel.machine.register_ns = 1_000_000;
    assert_eq!(world.call(0, Syscall::Exit, &[0]), None);
    while world.kernel.take_back() {}
    assert_eq!([world.held(0)[0], world.held(0)[3]], [held[0], held[3]]);
}

/// Pages of all sizes have the frames that they have.
#[test]
fn a_large_page_that_a_device_may_still_reach_is_nobodys() {
    for (size, count, frames) in [(0, 3, 3), (1, 1, 512), (1, 2, 1024)] {
        let mut hardware = FakeMachine::new();
        hardware.pci.add(None, 2, 0, FakeFunction::virtio(NET, true));
        let driver = Program { drives: NET, frames_max: 2000, ..Program::named("driver") };
        let mut world = with_driver(Unit::Virtio, hardware, driver);
        assert_eq!(world.call(0, Syscall::DeviceAcquire, &[0]), Some(Ok(0)));
        let free = world.kernel.frames.free();
        let frame = world.call(0, Syscall::MemoryGrant, &[size, count, u64::MAX]).unwrap().unwrap();
        let taken = free - world.kernel.frames.free();
        assert!(taken >= frames, "{frames} and tables");
        world.kernel.machine.hardware.virtio_iommu.as_mut().expect("it is there").is_dead = true;
        world.kernel.machine.register_ns = 1_000_000;
        assert_eq!(world.call(0, Syscall::MemoryRelease, &[frame, size, count]), Some(Ok(0)));
        assert!(world.kernel.machine.said.contains("frames lost"), "{size} {count}");
        assert_eq!(free - world.kernel.frames.free(), taken, "nobody is given any of them: {size} {count}");
    }
}

/// Who has others wait for a moment is not held up, nor is who has no device; and nobody for longer.
#[test]
fn only_who_had_others_wait_for_long_waits() {
    let (mut world, _) = with_device(Unit::Virtio);
    let grant = |world: &mut World| world.call_once(0, Syscall::MemoryGrant, &[0, 1, u64::MAX]);
    world.kernel.machine.register_ns = 2_000_000;
    grant(&mut world);
    assert_eq!(*world.kernel.applications[0].rests_until_ns(), 0, "it has no device");
    world.kernel.machine.register_ns = 0;
    assert_eq!(world.call(0, Syscall::DeviceAcquire, &[0]), Some(Ok(0)));
    world.kernel.machine.register_ns = 10;
    world.call(0, Syscall::MemoryGrant, &[0, 1, u64::MAX]);
    assert_eq!(*world.kernel.applications[0].rests_until_ns(), 0, "it was quick");
    world.kernel.machine.register_ns = 0;
    let now = Registers::now_ns(&world.kernel.machine);
    let at = world.borders[0].rip;
    for (until, goes_on) in [(now + 1, false), (now, true)] {
        *world.kernel.applications[0].rests_until_ns() = until;
        world.call_once(0, Syscall::InterruptBind, &[0, 9, 0]);
        assert_eq!(world.borders[0].rip == at, goes_on, "{until} at {now}");
        world.borders[0].rip = at;
    }
}

/// Whether the attachment came about nobody knows, so the device may use the domain's tables for good.
#[test]
fn what_a_unit_that_did_not_answer_may_have_attached_is_nobodys() {
    let (mut world, _) = with_device(Unit::Virtio);
    map(&mut world, 0, PAGE);
    world.kernel.machine.register_ns = 1_000_000;
    let unit = world.kernel.machine.hardware.virtio_iommu.as_mut();
    unit.expect("it is there").is_dead = true;
    assert_eq!(world.call(0, Syscall::DeviceAcquire, &[0]), Some(Err(Error::OutOfMemory)));
    let [grants, _, _, tables] = world.held(0);
    assert!(grants > 0);
    assert_eq!(world.call(0, Syscall::DeviceAcquire, &[0]), Some(Err(Error::NotPermitted)));
    assert_eq!(world.call(0, Syscall::Exit, &[0]), None);
    assert_eq!((world.held(0)[0], world.held(0)[3]), (grants, tables), "nobody is given them");
    assert_eq!(world.kernel.start(app(0)), Err(Error::WrongState));
}

#[test]
fn what_stands_in_one_slot_of_the_root_is_one_owners() {
    for unit in [Unit::Vtd, Unit::None] {
        let refused = if unit == Unit::None { Ok(0) } else { Err(Error::NotPermitted) };
        let mut hardware = FakeMachine::new();
        for function in 0..2 {
            hardware.pci.add(None, 2, function, FakeFunction::virtio(NET, true).multi_function());
        }
        let upstream = hardware.pci.add(None, 3, 0, FakeFunction::root_port(false));
        let upstream = hardware.pci.add(Some(upstream), 0, 0, FakeFunction::bridge().express(5, false));
        for device in 0..2 {
            let port = FakeFunction::bridge().express(6, false);
            let port = hardware.pci.add(Some(upstream), device, 0, port);
            hardware.pci.add(Some(port), 0, 0, FakeFunction::virtio(NET, true));
        }
        hardware.pci.add(None, 4, 0, FakeFunction::virtio(NET, true));
        let mut world = with_hardware(unit, hardware);
        for (first, second) in [(0, 1), (2, 3)] {
            assert_eq!(world.call(0, Syscall::DeviceAcquire, &[first]), Some(Ok(0)));
            assert_eq!(world.call(1, Syscall::DeviceAcquire, &[second]), Some(refused), "{unit:?} {second}");
            assert_eq!(
                world.call(0, Syscall::DeviceAcquire, &[second]).is_some_and(|it| it.is_ok()),
                refused.is_err()
            );
        }
        assert_eq!(world.call(1, Syscall::DeviceAcquire, &[4]), Some(Ok(0)), "it stands alone");
    }
}

/// Each interrupt costs whom it hits: of a device whose owner has its turn later, one is heard until then.
#[test]
fn a_device_is_heard_once_until_its_owner_has_its_turn() {
    let (mut world, number) = with_device(Unit::None);
    assert_eq!(world.call(0, Syscall::CoreAcquire, &[0x40_0000, 0x50_0000, 9, 1]), Some(Ok(1)));
    while world.kernel.cores[1].current() != Some(app(0)) {
        world.pass(1, 1_000_000);
    }
    drive(&mut world);
    let interrupt = |world: &mut World, entry: u8| {
        world.kernel.machine.core = 0;
        world.kernel.interrupt(on(0), FIRST_DEVICE_VECTOR + entry);
        world.settle(0, false);
    };
    let has_turn = |world: &mut World, app| {
        while world.kernel.cores[0].current() != Some(app) {
            world.call(0, Syscall::CoreYield, &[]).unwrap().unwrap();
        }
    };
    interrupt(&mut world, 0);
    assert!(signals(&mut world, number, 0), "its owner runs");
    for (says, then) in [(None, [true, true]), (Some([0, 1]), [false, true]), (Some([0, 0]), [true, true])] {
        has_turn(&mut world, app(2));
        world.kernel.contexts[0].events_mut().pending = 0;
        for entry in [0, 1] {
            interrupt(&mut world, entry);
            assert!(!signals(&mut world, number, entry.into()), "{says:?}");
            assert_eq!(world.kernel.cores[0].current(), Some(app(2)), "{says:?}");
        }
        let told = *world.kernel.contexts[0].events();
        assert!(told.has(Upcall::Interrupt) && told.interrupts == 0b11 << 5, "{says:?}");
        // What the owner says meanwhile, on its other core, holds from its turn on: nobody is interrupted for
        // it again and again.
        if let Some([entry, masked]) = says {
            assert_eq!(world.call(1, Syscall::InterruptMask, &[0, entry, masked]), Some(Ok(0)));
            assert!(!signals(&mut world, number, entry), "{says:?}");
        }
        has_turn(&mut world, app(0));
        assert_eq!([0, 1].map(|entry| signals(&mut world, number, entry)), then, "{says:?}");
        assert!(!world.kernel.cores[0].vectors.defers(), "{says:?}");
    }
    // Who waits is woken, as often as it waits.
    map(&mut world, 0, PAGE);
    *world.kernel.contexts[0].events_mut() = Default::default();
    assert_eq!(world.call(0, Syscall::CoreWait, &[u64::MAX, PAGE]), None);
    interrupt(&mut world, 0);
    assert!(signals(&mut world, number, 0));
}

/// Nor does whom it hits pay for that one.
#[test]
fn what_an_interrupt_costs_is_its_owners() {
    let (mut world, _) = with_device(Unit::None);
    drive(&mut world);
    world.kernel.contexts[0].events_mut().pending = 0;
    world.call(0, Syscall::CoreYield, &[]).unwrap().unwrap();
    assert_eq!(world.kernel.cores[0].current(), Some(app(2)), "the bystander");
    world.kernel.account(on(0));
    let used = |world: &World| [0, 2].map(|app: usize| world.kernel.usage[app].cycles.load(Relaxed));
    let (before, begin) = (used(&world), world.kernel.machine.now_ns);
    world.kernel.machine.register_ns = 1_000;
    for entry in [0, 1] {
        world.kernel.interrupt(on(0), FIRST_DEVICE_VECTOR + entry);
    }
    world.kernel.account(on(0));
    let ([owner, bystander], passed) = (used(&world), world.kernel.machine.now_ns - begin);
    assert!(passed >= 2_000 && owner - before[0] >= 2 * passed, "{owner} of {passed} ns");
    assert_eq!(bystander, before[1]);
}

/// A device that asks for something and sees its vector masked: by MSI-X it remembers, by a line it holds it
/// until it is acknowledged, and an edge that nobody sees is gone.
struct Asking {
    remembers: bool,
    asked: [u32; 2],
    pending: [bool; 2],
    line: [bool; 2],
}

impl Asking {
    fn raise(&mut self, world: &mut World, number: usize, entry: usize) {
        self.asked[entry] += 1;
        let is_edge = !core::mem::replace(&mut self.line[entry], true);
        self.pending[entry] = if self.remembers { true } else { is_edge };
        self.settle(world, number);
        self.pending[entry] &= self.remembers;
    }

    /// Has what can come through do so, and the owner, if it has its turn, look at what it was told.
    fn settle(&mut self, world: &mut World, number: usize) {
        for entry in 0..2 {
            if self.pending[entry] && signals(world, number, entry as u64) {
                self.pending[entry] = false;
                world.kernel.machine.core = 0;
                world.kernel.interrupt(on(0), FIRST_DEVICE_VECTOR + entry as u8);
                world.settle(0, false);
            }
        }
        if world.kernel.cores[0].current() == Some(app(0)) {
            let told = core::mem::take(world.kernel.contexts[0].events_mut()).interrupts;
            for entry in (0..2).filter(|entry| told & 1 << (5 + entry) != 0) {
                (self.asked[entry], self.line[entry]) = (0, false);
            }
        }
    }
}

#[test]
fn no_interrupt_is_lost_while_its_owner_waits_for_its_turn() {
    for (seed, remembers) in (0..60_u64).flat_map(|seed| [(seed, true), (seed, false)]) {
        let (mut world, number) = with_device(Unit::None);
        assert_eq!(world.call(0, Syscall::CoreAcquire, &[0x40_0000, 0x50_0000, 9, 1]), Some(Ok(1)));
        while world.kernel.cores[1].current() != Some(app(0)) {
            world.pass(1, 1_000_000);
        }
        drive(&mut world);
        let mut device = Asking { remembers, asked: [0; 2], pending: [false; 2], line: [false; 2] };
        let mut word = seed;
        for _ in 0..40 {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (what, entry) = (word >> 33 & 7, word >> 40 & 1);
            match what {
                0..4 => device.raise(&mut world, number, entry as usize),
                // The owner's other core; an edge under such a mask is lost, as `interrupt_bind` says.
                4 if remembers => {
                    let masked = word >> 41 & 1;
                    assert_eq!(world.call(1, Syscall::InterruptMask, &[0, entry, masked]), Some(Ok(0)));
                }
                _ => _ = world.call(0, Syscall::CoreYield, &[]).unwrap().unwrap(),
            }
            device.settle(&mut world, number);
        }
        for entry in [0, 1] {
            let unmasked =
                if remembers { world.call(1, Syscall::InterruptMask, &[0, entry, 0]) } else { None };
            assert!(unmasked.is_none_or(|answer| answer.is_ok()));
        }
        while world.kernel.cores[0].current() != Some(app(0)) {
            world.call(0, Syscall::CoreYield, &[]).unwrap().unwrap();
        }
        device.settle(&mut world, number);
        assert_eq!(device.asked, [0; 2], "seed {seed}, by MSI-X: {remembers}");
    }
}

/// Others wait for the lock meanwhile, so they have it for as long before the next of those calls.
#[test]
fn who_has_others_wait_for_a_unit_waits_as_long() {
    for unit in [Unit::Vtd, Unit::Virtio] {
        let (mut world, _) = with_device(unit);
        assert_eq!(world.call(0, Syscall::DeviceAcquire, &[0]), Some(Ok(0)));
        let frame = world.call(0, Syscall::MemoryGrant, &[0, 1, u64::MAX]).unwrap().unwrap();
        world.kernel.machine.register_ns = 4_000_000;
        let begin = Registers::now_ns(&world.kernel.machine);
        assert_eq!(world.call_once(0, Syscall::MemoryRelease, &[frame, 0, 1]), Some(Ok(0)), "{unit:?}");
        let took = Registers::now_ns(&world.kernel.machine) - begin;
        world.kernel.machine.register_ns = 0;
        let begin = Registers::now_ns(&world.kernel.machine);
        let at = world.borders[0].rip;
        for call in [Syscall::MemoryGrant, Syscall::InterruptBind, Syscall::DeviceRelease] {
            world.call_once(0, call, &[0, 1, u64::MAX]);
            assert_eq!(world.borders[0].rip, at - 2, "{unit:?}: {call:?} is to be made again");
            world.borders[0].rip = at;
        }
        assert_eq!(world.call_once(0, Syscall::MemoryUnmap, &[0, 0]), Some(Err(Error::InvalidArgument)));
        world.kernel.machine.now_ns += took;
        assert!(Registers::now_ns(&world.kernel.machine) - begin <= took, "no longer than that");
        assert!(world.call(0, Syscall::MemoryGrant, &[0, 1, u64::MAX]).unwrap().is_ok(), "{unit:?}");
    }
}
