//! Interrupts and those that they are bound to, on a machine without devices that could send any.

use super::*;
use crate::kernel::fake::{Program, World};
use crate::testing::{app, on};
use nom_abi::syscall::Syscall;

const BEGIN_ON_1: [u64; 4] = [0x40_0000, 0x50_0000, 9, 1];

/// Two applications, the second on core 1, where the first one has just begun, too.
fn two_on_two_cores() -> World {
    let a = Program { cores_max: 2, ..Program::named("a") };
    let mut world = World::boot(2, &[a, Program::named("b")], &[]);
    assert_eq!(world.call(0, Syscall::CoreAcquire, &BEGIN_ON_1), Some(Ok(1)));
    while world.kernel.cores[1].current() != Some(app(0)) {
        world.pass(1, 1_000_000);
    }
    world
}

#[test]
fn interrupts_of_its_devices_leave_a_core_with_its_application() {
    let mut world = two_on_two_cores();
    let binding = |device| Binding { device, bit: 5, entry: 1, ..Binding::default() };
    for (device, owner) in [(0, 0), (1, 1)] {
        world.kernel.devices.holdings[device].owner = Some(app(owner));
        world.kernel.cores[1].vectors.bound[device] = Some(binding(device as u8));
    }
    world.kernel.cores[0].vectors.bound[0] = Some(binding(0));
    assert_eq!(world.call(1, Syscall::CoreRelease, &[]), None);
    assert_eq!(world.kernel.cores[1].vectors.bound[..2], [None, Some(binding(1))]);
    assert_eq!(world.kernel.cores[0].vectors.bound[0], Some(binding(0)));
    // One that was on its way harms nobody, and the next context there does not hear of it.
    world.kernel.interrupt(on(1), FIRST_DEVICE_VECTOR);
    world.settle(1, false);
    world.call(0, Syscall::CoreAcquire, &BEGIN_ON_1).unwrap().unwrap();
    assert!(!world.kernel.contexts.iter().any(|context| context.events().has(Upcall::Interrupt)));
}
