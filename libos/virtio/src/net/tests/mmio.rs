//! The transport without PCI.

use super::*;

fn fake(mmio: (u32, u32)) -> FakeOptions {
    FakeOptions { mmio: Some(mmio), ..FakeOptions::default() }
}

fn refusal(mmio: (u32, u32)) -> Error {
    bench_with(fake(mmio), Options::default(), 16 << 20).map(|bench| bench.pair.properties()).unwrap_err()
}

/// The line stays up until it is acknowledged, and only its edge is heard.
#[test]
fn an_interrupt_is_acknowledged_before_the_next_is_asked_for() {
    let Bench { function, mut pair, .. } =
        bench_with(fake((2, 1)), Options::default(), 16 << 20).expect("a device");
    for round in 0..5 {
        assert!(pair.arm(), "round {round}");
        assert!(function.deliver(0, [0; 12], &frame(round, 60)));
        assert_eq!(function.interrupts(), 1 << 5, "round {round}");
        pair.disarm();
        assert!(pair.receive().is_some());
    }
    // One that comes between the look and the sleep: it is seen, or heard.
    assert!(function.deliver(0, [0; 12], &frame(9, 60)));
    assert!(!pair.arm());
}

#[test]
fn there_is_one_queue_pair_for_the_one_interrupt() {
    let memory = FakeMemory::new(16 << 20);
    let function = FakeFunction::new(fake((2, 1)), memory.clone());
    let opened = open(function, &memory, &Options { pairs: 4, ..Options::default() }).expect("a device");
    assert_eq!(opened.pairs.len(), 1);
}

#[test]
fn legacy_and_other_devices_are_refused() {
    assert_eq!(refusal((1, 1)), Error::NotModern);
    assert_eq!(refusal((2, 4)), Error::OtherDevice(0x1044_1af4));
}
