//! Arithmetic of board time: from the time-stamp counter's frequency to nanoseconds and back.

const NANOSECONDS: u128 = 1_000_000_000;
/// How often a reference is looked at before it counts as broken.
const LOOKS_MAX: u32 = 1 << 16;

/// How fast the time-stamp counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    hz: u64,
    multiplier: u64,
}

impl Rate {
    /// Slowest and fastest frequency that is taken for true: anything else is a broken calibration.
    pub const PLAUSIBLE_HZ: core::ops::RangeInclusive<u64> = 1_000_000..=1_000_000_000_000;

    /// A known frequency, if it is plausible.
    pub fn from_hz(hz: u64) -> Option<Rate> {
        Rate::from_ratio(hz.into(), 1)
    }

    /// `cycles` passed while a reference counter of `reference_hz` counted `ticks`.
    pub fn from_ticks(cycles: u64, ticks: u64, reference_hz: u64) -> Option<Rate> {
        Rate::from_ratio(u128::from(cycles) * u128::from(reference_hz), ticks.into())
    }

    /// From a reference of 16 bits that counts down at `reference_hz`, again and again: `look` tells the
    /// time-stamp counter and the count. It is watched for `ticks`; and once more if over a third of that
    /// time went by between two looks. The host did not run the processor then, for longer maybe than the
    /// reference takes to come round, which nobody saw: by the rest, the clock would be slow for good.
    pub fn watched(reference_hz: u64, ticks: u64, mut look: impl FnMut() -> (u64, u64)) -> Option<Rate> {
        let (mut begin, mut unseen) = (look(), 0);
        let mut last = begin.0;
        for _ in 0..LOOKS_MAX {
            let (now, count) = look();
            let (cycles, counted) = (now - begin.0, begin.1.wrapping_sub(count) & 0xffff);
            (unseen, last) = (unseen.max(now - last), now);
            if counted >= ticks && unseen <= cycles / 3 {
                return Rate::from_ticks(cycles, counted, reference_hz);
            }
            if counted >= ticks {
                (begin, unseen) = ((now, count), 0);
            }
        }
        None
    }

    /// KVM's paravirtual clock: `tsc_to_system_mul` and `tsc_shift` of `struct pvclock_vcpu_time_info`
    /// (Linux, Documentation/virt/kvm/x86/msr.rst: nanoseconds = (cycles << shift) * mul >> 32).
    pub fn from_pvclock(multiplier: u32, shift: i8) -> Option<Rate> {
        // cycles per second = 10^9 * 2^32 / (mul * 2^shift)
        let numerator = NANOSECONDS << 32;
        match u32::from(shift.unsigned_abs()) {
            bits @ 0..32 if shift < 0 => Rate::from_ratio(numerator << bits, multiplier.into()),
            bits @ 0..32 => Rate::from_ratio(numerator, u128::from(multiplier) << bits),
            _ => None,
        }
    }

    /// CPUID leaf 0x15: `eax` and `ebx` are the ratio of counter to crystal, `ecx` is the crystal in Hz
    /// (Intel SDM volume 3B, section 18.7.3).
    pub fn from_cpuid_crystal(eax: u32, ebx: u32, ecx: u32) -> Option<Rate> {
        Rate::from_ratio(u128::from(ecx) * u128::from(ebx), eax.into())
    }

    /// CPUID leaf 0x40000010 of hypervisors: `eax` is the counter's frequency in kHz.
    pub fn from_cpuid_hypervisor(eax: u32) -> Option<Rate> {
        Rate::from_hz(u64::from(eax) * 1000)
    }

    /// The frequency, in Hz.
    pub fn hz(self) -> u64 {
        self.hz
    }

    /// The board's multiplier: nanoseconds = cycles * multiplier >> 32.
    pub fn multiplier(self) -> u64 {
        self.multiplier
    }

    /// `numerator / denominator` cycles a second, rounded, if that is plausible.
    fn from_ratio(numerator: u128, denominator: u128) -> Option<Rate> {
        let quotient = numerator.checked_add(denominator / 2)?.checked_div(denominator)?;
        let hz = u64::try_from(quotient).ok().filter(|hz| Self::PLAUSIBLE_HZ.contains(hz))?;
        let multiplier = ((NANOSECONDS << 32) + u128::from(hz / 2)) / u128::from(hz);
        Some(Rate { hz, multiplier: multiplier as u64 })
    }
}

/// Nanoseconds that `cycles` take by a rate's multiplier, rounded down, as the board's readers compute them;
/// `u64::MAX` if they are more.
pub fn nanoseconds(multiplier: u64, cycles: u64) -> u64 {
    u64::try_from((u128::from(cycles) * u128::from(multiplier)) >> 32).unwrap_or(u64::MAX)
}

/// Fewest cycles after which [`nanoseconds`] is at least that; `u64::MAX` if there are none. So a timer set
/// for them never fires early. A multiplier of 0, that of no rate, counts as 1.
pub fn cycles(multiplier: u64, nanoseconds: u64) -> u64 {
    let cycles = (u128::from(nanoseconds) << 32).div_ceil(multiplier.max(1).into());
    u64::try_from(cycles).unwrap_or(u64::MAX)
}

/// How fast a one-shot timer counts, against the time-stamp counter: ticks in 2^32 cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TickRate(pub u64);

impl TickRate {
    /// `ticks` passed in `cycles`.
    pub fn measured(ticks: u64, cycles: u64) -> TickRate {
        let rate = (u128::from(ticks) << 32) / u128::from(cycles.max(1));
        TickRate(u64::try_from(rate).unwrap_or(u64::MAX))
    }

    /// Ticks after which at least `cycles` have passed; as many as the counter can hold if that is not
    /// enough. So, but for a wait beyond its range, a timer set for them never fires early.
    pub fn ticks(self, cycles: u64) -> u32 {
        let ticks = (u128::from(cycles) * u128::from(self.0)).div_ceil(1 << 32);
        ticks.clamp(1, u32::MAX.into()) as u32
    }

    /// What is known after a timer set for `ticks` has fired, `cycles` later: interrupts are late, but never
    /// early, so it counts at least as fast as that. One that was measured too slow (the host may have
    /// stopped the processor between two readings) would otherwise fire early again and again. But it is
    /// taken for twice as fast at most: a host that moves the processor may set its time-stamp counter back,
    /// and if all were believed that such a reading says, every later timer would be late.
    pub fn corrected(self, ticks: u32, cycles: u64) -> TickRate {
        TickRate(TickRate::measured(ticks.into(), cycles).0.clamp(self.0, self.0.max(1).saturating_mul(2)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::cases;
    use proptest::collection::hash_map;
    use proptest::prelude::*;

    fn span(rate: Rate, cycles: u64) -> u64 {
        nanoseconds(rate.multiplier(), cycles)
    }

    fn wait(rate: Rate, nanoseconds: u64) -> u64 {
        cycles(rate.multiplier(), nanoseconds)
    }

    /// A processor whose host does not run it for so many microseconds before some looks, and its 8254.
    struct Host {
        tsc_hz: u64,
        now_ns: u64,
        looks: u64,
        stalls_us: std::collections::HashMap<u64, u64>,
    }

    impl Host {
        const REFERENCE_HZ: u64 = 1_193_182;

        fn look(&mut self) -> (u64, u64) {
            self.now_ns += 10_000 + 1_000 * self.stalls_us.get(&self.looks).copied().unwrap_or(0);
            self.looks += 1;
            let passed = |hz: u64| (u128::from(self.now_ns) * u128::from(hz) / NANOSECONDS) as u64;
            (passed(self.tsc_hz), 0_u64.wrapping_sub(passed(Host::REFERENCE_HZ)) & 0xffff)
        }
    }

    #[test]
    fn every_source_tells_the_frequency() {
        let hz = |rate: Option<Rate>| rate.map(Rate::hz);
        assert_eq!(hz(Rate::from_hz(3_000_000_000)), Some(3_000_000_000));
        // 50 ms of an 8254 at 1,193,182 Hz.
        assert_eq!(hz(Rate::from_ticks(150_000_000, 59_659, 1_193_182)), Some(3_000_005_029));
        assert_eq!(hz(Rate::from_pvclock(3_435_973_837, -1)), Some(2_500_000_000));
        assert_eq!(hz(Rate::from_pvclock(2_147_483_648, 1)), Some(1_000_000_000));
        // A crystal of 24 MHz with a ratio of 250 to 2.
        assert_eq!(hz(Rate::from_cpuid_crystal(2, 250, 24_000_000)), Some(3_000_000_000));
        assert_eq!(hz(Rate::from_cpuid_hypervisor(2_893_000)), Some(2_893_000_000));
    }

    #[test]
    fn an_absent_or_absurd_answer_is_no_frequency() {
        let absurd = [
            Rate::from_hz(0),
            Rate::from_hz(999_999),
            Rate::from_hz(u64::MAX),
            Rate::from_ticks(1 << 40, 0, 1_193_182),
            Rate::from_ticks(u64::MAX, 1, u64::MAX),
            Rate::from_pvclock(0, 0),
            Rate::from_pvclock(1 << 31, -128),
            Rate::from_pvclock(1 << 31, 127),
            Rate::from_cpuid_crystal(0, 250, 24_000_000),
            Rate::from_cpuid_crystal(2, 250, 0),
            Rate::from_cpuid_hypervisor(0),
        ];
        assert_eq!(absurd, [None; 11]);
    }

    #[test]
    fn a_reference_that_stands_still_is_none() {
        let mut tsc = 0;
        let look = || {
            tsc += 10_000;
            (tsc, 5)
        };
        assert_eq!(Rate::watched(1_193_182, 2_386, look), None);
    }

    #[test]
    fn a_second_is_a_second() {
        let rate = Rate::from_hz(3_000_000_000).unwrap();
        assert_eq!(rate.multiplier(), 1_431_655_765);
        assert_eq!(span(rate, 3_000_000_000), 999_999_999);
        assert_eq!(wait(rate, 1_000_000_000), 3_000_000_001);
        assert_eq!(span(Rate::from_hz(1_000_000_000).unwrap(), u64::MAX), u64::MAX);
    }

    #[test]
    fn one_wrong_reading_of_the_clock_makes_no_timer_much_too_late() {
        let rate = TickRate::measured(1_000, 2_500);
        assert_eq!(rate.corrected(u32::MAX, 1), TickRate(2 * rate.0));
        assert_eq!(rate.corrected(1_000, u64::MAX), rate, "as when the counter was set back in between");
        assert_eq!(TickRate(0).corrected(1_000, 2_500), TickRate(2));
    }

    proptest! {
        #![proptest_config(cases(2000))]

        #[test]
        fn a_deadline_is_the_first_moment_that_is_not_early(
            hz in Rate::PLAUSIBLE_HZ, nanoseconds in 1..1_u64 << 53,
        ) {
            let rate = Rate::from_hz(hz).unwrap();
            let cycles = wait(rate, nanoseconds);
            prop_assert!(span(rate, cycles) >= nanoseconds);
            prop_assert!(span(rate, cycles - 1) < nanoseconds);
        }

        #[test]
        fn no_deadline_is_taken_for_one_in_the_past(hz in Rate::PLAUSIBLE_HZ, nanoseconds: u64) {
            let rate = Rate::from_hz(hz).unwrap();
            let cycles = wait(rate, nanoseconds);
            prop_assert!(cycles == u64::MAX || span(rate, cycles) >= nanoseconds);
            prop_assert!(wait(rate, nanoseconds.saturating_add(1)) >= cycles);
            prop_assert_eq!(wait(rate, u64::MAX) == u64::MAX, rate.multiplier() <= 1 << 32);
        }

        /// Its host may stop it for so long that the reference comes round, once or often; twice in a watch.
        #[test]
        fn a_processor_that_is_stopped_meanwhile_measures_its_clock_all_the_same(
            tsc_hz in 1_000_000_000..5_000_000_000_u64, now_ns in 0..1_000_000_000_u64,
            stalls_us in hash_map(0..400_u64, 0..600_000_u64, 0..3),
        ) {
            let mut host = Host { tsc_hz, now_ns, looks: 0, stalls_us };
            let rate = Rate::watched(Host::REFERENCE_HZ, 2_386, || host.look()).unwrap();
            prop_assert!(rate.hz().abs_diff(tsc_hz) < tsc_hz / 500, "{} is not {tsc_hz}", rate.hz());
        }

        /// However badly the timer was measured, one deadline takes a handful of interrupts.
        #[test]
        fn a_timer_that_was_measured_wrong_is_right_after_it_fired_a_few_times(
            real in 1..1_u64 << 36, error in 1..1_000_u64,
            cycles in 1_000..1_u64 << 40, late in 0..10_000_u64,
        ) {
            let mut rate = TickRate((real / error).max(1));
            let (mut left, mut interrupts) = (cycles, 0);
            while left > 0 {
                let ticks = rate.ticks(left);
                // The timer fires when it has counted, and that is noticed some time later.
                let passed = ((u128::from(ticks) << 32).div_ceil(real.into()) as u64).saturating_add(late);
                rate = rate.corrected(ticks, passed);
                prop_assert!(rate.0 <= real, "never taken for faster than it is");
                left = left.saturating_sub(passed);
                interrupts += 1;
                let beyond_range = (cycles as u128 * u128::from(real)) >> 64;
                prop_assert!(interrupts <= 16 + 2 * beyond_range as u64, "{left} of {cycles} cycles left");
            }
        }

        #[test]
        fn time_drifts_less_than_a_microsecond_in_a_second(hz in Rate::PLAUSIBLE_HZ) {
            let second = span(Rate::from_hz(hz).unwrap(), hz);
            prop_assert!(second.abs_diff(1_000_000_000) < 1000, "{second} ns");
        }

        #[test]
        fn no_calibration_overflows(a: u64, b: u64, c: u64, shift: i8) {
            let (x, y, z) = (a as u32, b as u32, c as u32);
            let rates = [
                Rate::from_ticks(a, b, c),
                Rate::from_pvclock(x, shift),
                Rate::from_cpuid_crystal(x, y, z),
                Rate::from_cpuid_hypervisor(x),
            ];
            for rate in rates.into_iter().flatten() {
                prop_assert!(Rate::PLAUSIBLE_HZ.contains(&rate.hz()) && rate.multiplier() > 0);
                let _ = (span(rate, a), wait(rate, b));
            }
        }
    }
}
