//! Cubic congestion control (RFC 9438), in integers: a kernel-grade stack uses no floating point.

use super::hystart::HyStart;
use super::sequence::Seq;
use crate::time::Instant;
use core::num::NonZeroU32;
use core::time::Duration;

/// C = 0.4 and beta = 0.7 of RFC 9438 section 4, as fractions.
const C_TENTHS: u64 = 4;
const BETA_TENTHS: u32 = 7;
/// The threshold while nothing is known of the path.
const UNKNOWN: u32 = u32::MAX / 2;
/// Initial window in segments (RFC 6928).
const INITIAL_SEGMENTS: u32 = 10;
/// While no loss has told what the path takes, the window grows in a round trip by at least this part of
/// it, as Linux's does: the cubic function begins flat, and slow start may have ended far below the
/// path's width.
const UNKNOWN_PART: u32 = 20;

/// What a sender that used its window heard.
#[derive(Clone, Copy, Debug)]
pub struct Heard {
    /// New bytes acknowledged.
    pub count: u32,
    /// Up to where.
    pub ack: Seq,
    /// The end of what was sent.
    pub max: Seq,
    /// Smoothed round-trip time.
    pub smoothed: Duration,
    /// The round trip of what is acknowledged.
    pub rtt: Duration,
}

/// A growth without a loss.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    /// When it began.
    start: Instant,
    /// K: the time from then to the plateau.
    k_ms: u32,
    /// The window of the plateau; it takes no room beside that whether there is an epoch.
    origin: NonZeroU32,
}

/// How much may be in flight.
#[derive(Clone, Copy, Debug)]
pub struct Cubic {
    mss: u32,
    window: u32,
    threshold: u32,
    /// W_max of section 4.1.1, in bytes.
    window_max: u32,
    epoch: Option<Epoch>,
    /// The window of a Reno sender in this epoch (section 4.3), in bytes.
    reno: u32,
    /// Acknowledged bytes not yet turned into growth.
    credit: u64,
    hystart: HyStart,
}

impl Cubic {
    /// The window before any acknowledgement.
    pub fn new(mss: u32) -> Cubic {
        Cubic {
            mss,
            window: INITIAL_SEGMENTS * mss,
            threshold: UNKNOWN,
            window_max: 0,
            epoch: None,
            reno: 0,
            credit: 0,
            hystart: HyStart::default(),
        }
    }

    /// Segments are `mss` bytes long, as the handshake found out.
    pub fn set_mss(&mut self, mss: u32) {
        self.window = self.window / self.mss * mss;
        self.mss = mss;
    }

    /// Nothing was sent for longer than a timeout: what the window says is old (RFC 5681 section 4.1).
    pub fn restart_after_idle(&mut self) {
        self.window = self.window.min(INITIAL_SEGMENTS * self.mss);
        self.restart();
    }

    /// Bytes that may be in flight.
    #[inline]
    pub fn window(&self) -> u32 {
        self.window
    }

    /// Below it the window grows by what is acknowledged, once that is known.
    pub fn threshold(&self) -> Option<u32> {
        Some(self.threshold).filter(|threshold| *threshold != UNKNOWN)
    }

    /// Whether the window still grows by what is acknowledged.
    pub fn in_slow_start(&self) -> bool {
        self.window < self.threshold
    }

    /// Something new was acknowledged outside recovery, to a sender that used its window.
    pub fn acknowledged(&mut self, now: Instant, heard: &Heard) {
        let count = heard.count;
        if self.in_slow_start() {
            let mut growth = count;
            if self.threshold == UNKNOWN {
                growth = self.hystart.growth(heard);
                if self.hystart.is_over() {
                    self.threshold = self.window;
                }
            }
            self.window = self.window.saturating_add(growth).min(self.threshold);
            return;
        }
        let epoch = *self.epoch.get_or_insert_with(|| {
            // Without a loss above it, the window itself is the plateau (section 4.2).
            let origin = self.window_max.max(self.window);
            let k_ms = cube_root(millis_cubed(origin - self.window, self.mss));
            let k_ms = u32::try_from(k_ms).unwrap_or(u32::MAX);
            Epoch { start: now, k_ms, origin: NonZeroU32::new(origin).unwrap_or(NonZeroU32::MIN) }
        });
        if self.reno == 0 {
            self.reno = self.window;
        }
        self.grow_reno(count);
        let least = if self.window_max == 0 { self.window / UNKNOWN_PART } else { 0 };
        let target = self.cubic(now - epoch.start + heard.smoothed, &epoch);
        self.approach(target.max(self.reno).max(self.window.saturating_add(least)), count);
    }

    /// A loss was found: multiplicative decrease (section 4.6) with fast convergence (section 4.7).
    pub fn lost(&mut self) {
        let converging = self.window < self.window_max;
        self.window_max = if converging { self.window / 20 * (10 + BETA_TENTHS) } else { self.window };
        self.threshold = (self.window / 10 * BETA_TENTHS).max(2 * self.mss);
        self.window = self.threshold;
        self.restart();
    }

    /// The retransmission timer expired (section 4.8): begin again from one segment. Where the loss had been
    /// found already, the threshold has been lowered for it.
    pub fn timed_out(&mut self, is_known: bool) {
        if self.window > self.mss && !is_known {
            self.lost();
        }
        self.window = self.mss;
        self.restart();
    }

    /// A handshake was lost more than once: begin with one segment. One timeout alone is no reason, as the
    /// path may just be longer than was supposed, and neither says how much it takes (RFC 6928 section 2).
    pub fn handshake_timed_out(&mut self) {
        self.window = self.mss;
    }

    /// What made it become smaller since it was `before` was no loss (RFC 4015 section 3.2): what was learned
    /// by that is forgotten, and growth goes on.
    pub fn undo(&mut self, before: Cubic) {
        let (window, mss) = (self.window.max(before.window), self.mss);
        *self = Cubic { window, mss, ..before };
        self.restart();
    }

    fn restart(&mut self) {
        self.epoch = None;
        self.reno = 0;
        self.credit = 0;
    }

    /// W_cubic(t) of section 4.2, in bytes, at most half as much again as the window (section 4.4).
    fn cubic(&self, elapsed: Duration, epoch: &Epoch) -> u32 {
        let (t, k) = (elapsed.as_millis() as u64, u64::from(epoch.k_ms));
        let distance = t.abs_diff(k).min(1_000_000);
        // C * t^3 segments, t in milliseconds: 10^9 of them cubed make a second cubed.
        let bytes =
            u128::from(distance).pow(3) * u128::from(C_TENTHS) * u128::from(self.mss) / 10_000_000_000;
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let target = if t < k {
            epoch.origin.get().saturating_sub(bytes)
        } else {
            epoch.origin.get().saturating_add(bytes)
        };
        target.clamp(self.window, self.window.saturating_add(self.window / 2))
    }

    /// alpha = 3 * (1 - beta) / (1 + beta) = 9/17 segments for each window acknowledged, and a whole one
    /// above the window of the last loss (section 4.3).
    fn grow_reno(&mut self, count: u32) {
        let prior = self.threshold / BETA_TENTHS * 10;
        let (part, of) = if self.reno < prior { (9, 17) } else { (1, 1) };
        let growth = u64::from(self.mss) * u64::from(count) * part / (of * u64::from(self.window));
        self.reno = self.reno.saturating_add(growth as u32);
    }

    /// Closes `target - window` over the acknowledgement of one window.
    fn approach(&mut self, target: u32, count: u32) {
        self.credit += u64::from(target.saturating_sub(self.window)) * u64::from(count);
        let growth = self.credit / u64::from(self.window);
        self.credit %= u64::from(self.window);
        self.window = self.window.saturating_add(u32::try_from(growth).unwrap_or(u32::MAX)).min(1 << 30);
    }
}

/// `gap / mss / C` seconds cubed, in milliseconds cubed.
fn millis_cubed(gap: u32, mss: u32) -> u64 {
    u64::from(gap) * 10 / C_TENTHS * 1_000_000_000 / u64::from(mss)
}

/// The largest number whose cube is at most `value`, bit by bit.
fn cube_root(value: u64) -> u64 {
    (0..22).rev().fold(0u64, |root, bit| {
        let trial = root | 1 << bit;
        if trial.checked_pow(3).is_some_and(|cube| cube <= value) { trial } else { root }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1000;
    const RTT: Duration = Duration::from_millis(100);

    fn at(millis: u64) -> Instant {
        Instant::from_micros(millis * 1000)
    }

    /// Acknowledges whole windows, one a round trip, until `millis`; the window after each.
    fn rounds(cubic: &mut Cubic, from: u64, until: u64) -> Vec<u32> {
        (from..until)
            .step_by(100)
            .map(|millis| {
                for _ in 0..cubic.window() / MSS {
                    let (ack, max) = (Seq(millis as u32), Seq(millis as u32 + 100));
                    let heard = Heard { count: MSS, ack, max, smoothed: RTT, rtt: RTT };
                    cubic.acknowledged(at(millis), &heard);
                }
                cubic.window()
            })
            .collect()
    }

    #[test]
    fn slow_start_doubles_every_round() {
        let mut cubic = Cubic::new(MSS);
        assert_eq!(cubic.window(), 10 * MSS);
        rounds(&mut cubic, 0, 100);
        assert_eq!(cubic.window(), 20 * MSS);
    }

    #[test]
    fn a_loss_keeps_seven_tenths_and_then_climbs_back_to_a_plateau() {
        let mut cubic = Cubic { window: 100 * MSS, ..Cubic::new(MSS) };
        cubic.lost();
        assert_eq!(cubic.window(), 70 * MSS);
        // K = cbrt(30 / 0.4) = 4.2 s.
        let windows = rounds(&mut cubic, 0, 8000);
        assert!(windows.is_sorted());
        let at_k = windows[42];
        assert!((97 * MSS..=103 * MSS).contains(&at_k), "{at_k} at K");
        let (before, around, after) =
            (windows[10] - windows[0], windows[46] - windows[36], windows[79] - windows[69]);
        assert!(around < before && around < after, "{before} {around} {after}: concave, then convex");
    }

    #[test]
    fn a_second_loss_below_the_first_gives_way_to_newcomers() {
        let mut cubic = Cubic { window: 100 * MSS, ..Cubic::new(MSS) };
        cubic.lost();
        cubic.lost();
        assert_eq!(cubic.window_max, 70 * MSS / 20 * 17);
    }

    #[test]
    fn a_timeout_leaves_one_segment_and_repeats_do_not_lower_the_threshold() {
        let mut cubic = Cubic { window: 100 * MSS, ..Cubic::new(MSS) };
        cubic.timed_out(false);
        cubic.timed_out(false);
        assert_eq!((cubic.window(), cubic.threshold), (MSS, 70 * MSS));
        assert!(cubic.in_slow_start());
    }

    #[test]
    fn a_timeout_of_what_was_known_to_be_lost_does_not_lower_the_threshold_again() {
        let mut cubic = Cubic { window: 100 * MSS, ..Cubic::new(MSS) };
        cubic.lost();
        cubic.timed_out(true);
        assert_eq!((cubic.window(), cubic.threshold), (MSS, 70 * MSS));
    }

    #[test]
    fn slow_start_that_ended_without_a_loss_is_not_followed_by_a_rest() {
        let mut cubic = Cubic { window: 100 * MSS, threshold: 100 * MSS, ..Cubic::new(MSS) };
        let windows = rounds(&mut cubic, 0, 2000);
        assert!(windows[9] > 150 * MSS, "{windows:?}: a twentieth in each round trip");
        assert!(windows[19] > 240 * MSS, "{windows:?}");
    }

    #[test]
    fn without_a_loss_above_it_the_window_itself_is_the_plateau() {
        let mut cubic = Cubic { window: 100 * MSS, threshold: 99 * MSS, window_max: MSS, ..Cubic::new(MSS) };
        // 100 segments and 0.4 * 5.1^3, long before 0.4 * t^3 alone came to 100.
        let at_5_s = rounds(&mut cubic, 0, 5000)[49];
        assert!((148 * MSS..158 * MSS).contains(&at_5_s), "{at_5_s}");
    }

    #[test]
    fn above_the_window_of_the_last_loss_a_reno_sender_grows_by_a_segment() {
        let mut cubic = Cubic { window: 10 * MSS, ..Cubic::new(MSS) };
        cubic.lost();
        let windows = rounds(&mut cubic, 0, 1600);
        let (below, above) = (windows[4] - windows[1], windows[15] - windows[12]);
        assert!(below <= 2 * MSS && above >= 5 * MSS / 2, "{windows:?}");
    }

    #[test]
    fn what_was_no_loss_is_forgotten() {
        let before = Cubic { window: 100 * MSS, ..Cubic::new(MSS) };
        let mut cubic = before;
        cubic.lost();
        cubic.undo(before);
        assert_eq!((cubic.window(), cubic.threshold, cubic.window_max), (100 * MSS, UNKNOWN, 0));
    }

    #[test]
    fn the_cube_root_is_exact() {
        for root in [0, 1, 2, 9, 4217, 2_000_000] {
            assert_eq!(cube_root(root * root * root), root);
            assert_eq!(cube_root((root + 1).pow(3) - 1), root);
        }
    }
}
