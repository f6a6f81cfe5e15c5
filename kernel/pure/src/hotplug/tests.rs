use super::*;
use crate::fakes::pci::FakeFunction;
use crate::fakes::{ECAM, FakeMachine};
use crate::testing::cases;
use proptest::prelude::*;

const SETTLED: u64 = SETTLE_NS + 1_000_000;

/// A machine with two empty slots, the first of which is `port`.
fn machine() -> (FakeMachine, Pci, usize) {
    let mut machine = FakeMachine::new();
    let port = machine.pci.add(None, 1, 0, FakeFunction::root_port(true));
    machine.pci.add(None, 2, 0, FakeFunction::root_port(true));
    let pci = start(&mut machine);
    (machine, pci, port)
}

fn start(machine: &mut FakeMachine) -> Pci {
    let mut pci = Pci::none();
    pci.enumerate(machine, ECAM, 0);
    pci.enable_hotplug(machine, |_, _, _| Some(Message::new(0, 0x50)));
    pci
}

fn net() -> FakeFunction {
    FakeFunction::virtio(0x1041, true)
}

fn events(machine: &mut FakeMachine, pci: &mut Pci) -> Vec<Event> {
    let mut all = Vec::new();
    while let Some(event) = pci.next_event(machine) {
        if let Event::Left(devices) = event {
            pci.forget(devices);
        }
        all.push(event);
    }
    all
}

fn settle(machine: &mut FakeMachine) {
    machine.now_ns.set(machine.now_ns.get() + SETTLED);
}

#[test]
fn a_device_that_is_plugged_in_arrives_when_it_has_settled() {
    let (mut machine, mut pci, port) = machine();
    assert_eq!(events(&mut machine, &mut pci), []);
    assert_eq!(pci.deadline_ns(), u64::MAX);
    machine.pci.plug(port, net());
    assert!(machine.pci.is_signalling(port));
    assert_eq!(events(&mut machine, &mut pci), []);
    let deadline = pci.deadline_ns();
    assert!(deadline > machine.now_ns.get() && deadline < u64::MAX);
    settle(&mut machine);
    assert_eq!(events(&mut machine, &mut pci), [Event::Arrived(1)]);
    assert!(!machine.pci.is_signalling(port));
    assert_eq!(pci.deadline_ns(), u64::MAX);
    assert!(pci.device(0).is_some_and(|function| function.is_placed()));
    assert!(pci.switch_on(&mut machine, 0));
}

#[test]
fn a_device_leaves_after_it_was_ejected() {
    let (mut machine, mut pci, port) = machine();
    machine.pci.plug(port, net());
    events(&mut machine, &mut pci);
    settle(&mut machine);
    events(&mut machine, &mut pci);
    machine.pci.press(port);
    assert!(machine.pci.is_signalling(port));
    assert_eq!(events(&mut machine, &mut pci), [Event::RemovalRequested(1)]);
    machine.pci.press(port);
    assert_eq!(events(&mut machine, &mut pci), [], "asking twice changes nothing");
    pci.eject(&mut machine, 0);
    assert_eq!(events(&mut machine, &mut pci), [Event::Left(1)]);
    assert!(pci.device(0).is_none() && !machine.pci.is_signalling(port));
}

#[test]
fn a_release_without_a_request_does_not_eject() {
    let (mut machine, mut pci, port) = machine();
    machine.pci.plug(port, net());
    events(&mut machine, &mut pci);
    settle(&mut machine);
    events(&mut machine, &mut pci);
    pci.eject(&mut machine, 0);
    pci.eject(&mut machine, 64);
    assert_eq!(events(&mut machine, &mut pci), []);
    assert!(pci.switch_on(&mut machine, 0));
}

#[test]
fn power_goes_off_when_the_last_function_is_ejected() {
    let mut machine = FakeMachine::new();
    let port = machine.pci.add(None, 1, 0, FakeFunction::root_port(true));
    machine.pci.add(Some(port), 0, 0, net().multi_function());
    machine.pci.add(Some(port), 0, 1, net());
    let mut pci = start(&mut machine);
    assert_eq!(events(&mut machine, &mut pci), []);
    machine.pci.press(port);
    assert_eq!(events(&mut machine, &mut pci), [Event::RemovalRequested(3)]);
    pci.eject(&mut machine, 1);
    assert_eq!(events(&mut machine, &mut pci), []);
    pci.eject(&mut machine, 0);
    assert_eq!(events(&mut machine, &mut pci), [Event::Left(3)]);
}

#[test]
fn a_device_that_is_torn_out_has_left() {
    let (mut machine, mut pci, port) = machine();
    machine.pci.plug(port, net());
    events(&mut machine, &mut pci);
    settle(&mut machine);
    events(&mut machine, &mut pci);
    machine.pci.pull(port);
    assert!(machine.pci.is_signalling(port));
    assert_eq!(events(&mut machine, &mut pci), [Event::Left(1)]);
}

#[test]
fn a_device_that_is_torn_out_before_it_settled_was_never_there() {
    let (mut machine, mut pci, port) = machine();
    machine.pci.plug(port, net());
    events(&mut machine, &mut pci);
    machine.pci.pull(port);
    settle(&mut machine);
    assert_eq!(events(&mut machine, &mut pci), []);
    assert_eq!(pci.deadline_ns(), u64::MAX);
}

#[test]
fn a_request_that_comes_while_a_device_settles_waits_until_it_has() {
    let (mut machine, mut pci, port) = machine();
    machine.pci.plug(port, net());
    events(&mut machine, &mut pci);
    machine.pci.press(port);
    assert_eq!(events(&mut machine, &mut pci), []);
    settle(&mut machine);
    let expected = [Event::Arrived(1), Event::RemovalRequested(1)];
    assert_eq!(events(&mut machine, &mut pci), expected);
}

#[test]
fn a_device_plugged_in_right_behind_another_arrives() {
    let (mut machine, mut pci, port) = machine();
    machine.pci.plug(port, net());
    events(&mut machine, &mut pci);
    settle(&mut machine);
    events(&mut machine, &mut pci);
    machine.pci.press(port);
    events(&mut machine, &mut pci);
    pci.eject(&mut machine, 0);
    machine.pci.plug(port, net());
    assert_eq!(events(&mut machine, &mut pci), [Event::Left(1)]);
    settle(&mut machine);
    assert_eq!(events(&mut machine, &mut pci), [Event::Arrived(1)]);
}

#[test]
fn a_device_that_finds_no_room_arrives_and_stays_off() {
    let (mut machine, mut pci, port) = machine();
    machine.pci.plug(port, FakeFunction::new(1, 2, 0).bar(0, 4 << 20));
    events(&mut machine, &mut pci);
    settle(&mut machine);
    assert_eq!(events(&mut machine, &mut pci), [Event::Arrived(1)]);
    assert!(!pci.switch_on(&mut machine, 0));
}

#[test]
fn ports_without_slots_say_nothing() {
    let mut machine = FakeMachine::new();
    machine.pci.add(None, 1, 0, FakeFunction::root_port(false));
    let mut pci = start(&mut machine);
    assert!(pci.ports.iter().all(|port| port.slot.is_fixed()));
    assert_eq!(pci.next_event(&mut machine), None);
}

/// What somebody does to a slot, or the kernel.
#[derive(Clone, Copy, Debug)]
enum Action {
    Plug,
    Pull,
    Press,
    Wait,
    Poll,
    Eject,
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn the_board_agrees_with_the_slots_once_everything_has_settled(
        actions in prop::collection::vec((0..2_usize, prop::sample::select(vec![
            Action::Plug, Action::Pull, Action::Press, Action::Wait, Action::Poll, Action::Eject,
        ])), 1..60),
    ) {
        let (mut machine, mut pci, port) = machine();
        let mut plugged = [None; 2];
        let mut known = 0_u64;
        for (slot, action) in actions {
            match action {
                Action::Plug if plugged[slot].is_none() => {
                    plugged[slot] = Some(machine.pci.plug(port + slot, net()));
                }
                Action::Pull if plugged[slot].is_some() => machine.pci.pull(port + slot),
                Action::Press if plugged[slot].is_some() => machine.pci.press(port + slot),
                Action::Wait => settle(&mut machine),
                Action::Eject => (0..2).for_each(|index| pci.eject(&mut machine, index)),
                _ => known = follow(known, &events(&mut machine, &mut pci))?,
            }
            for (slot, place) in plugged.iter_mut().enumerate() {
                *place = place.filter(|_| machine.pci.is_present(port + slot));
            }
        }
        for _ in 0..3 {
            known = follow(known, &events(&mut machine, &mut pci))?;
            settle(&mut machine);
        }
        prop_assert_eq!(pci.deadline_ns(), u64::MAX);
        let listed = pci.devices().fold(0, |mask, (index, _)| mask | 1 << index);
        prop_assert_eq!(listed, known, "entries are what events said");
        prop_assert_eq!(known.count_ones() as usize, plugged.iter().flatten().count());
        for number in plugged.into_iter().flatten() {
            let address = machine.pci.address(number).expect("it has power and is routed");
            let index = pci.index_of(address);
            prop_assert!(index.is_some_and(|index| pci.switch_on(&mut machine, index)));
        }
    }
}

/// What an observer of the events knows to be there.
fn follow(mut known: u64, events: &[Event]) -> Result<u64, TestCaseError> {
    for event in events {
        match *event {
            Event::Arrived(devices) => {
                prop_assert_eq!(known & devices, 0, "it was there already");
                known |= devices;
            }
            Event::RemovalRequested(devices) => prop_assert_eq!(known & devices, devices),
            Event::Left(devices) => {
                prop_assert_eq!(known & devices, devices, "it was not there");
                known &= !devices;
            }
        }
    }
    Ok(known)
}
