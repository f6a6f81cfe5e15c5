//! Working points: the settings that a controller chooses among.

use crate::units::Seconds;
use alloc::vec::Vec;

/// Settings of a machine's knobs, numbered from 0, with what is known of them before anything is measured.
/// What a neighbour does says something about a point; how much, depends on their distance.
pub trait WorkingPoints {
    /// How many there are; at least 1.
    fn count(&self) -> usize;

    /// How far apart two points are, in units in which responses change gradually: at distance 1 they are
    /// alike, at 10 they say little about each other.
    fn distance(&self, a: usize, b: usize) -> f64;

    /// Latency that the point is expected to add to the least possible; zero where nothing is known.
    fn added_latency(&self, point: usize) -> Seconds;
}

/// How different not to hold a packet at all is from holding it for the shortest time: it takes another path
/// through the stack, and what one of them does says little about the other.
const UNHELD_DISTANCE: f64 = 9.0;

/// Values of the batching delay, dense near 0 and half an octave apart further up.
#[derive(Clone, Debug)]
pub struct BatchingDelays {
    micros: Vec<u32>,
}

impl BatchingDelays {
    /// The longest batching delay.
    pub const MAX_MICROS: u32 = 10_000;

    /// From 0 to `longest` microseconds, at most [`Self::MAX_MICROS`].
    #[must_use]
    pub fn up_to(longest: u32) -> Self {
        let longest = longest.min(Self::MAX_MICROS);
        let mut micros: Vec<u32> = alloc::vec![0];
        let mut exact = 2.0;
        while exact < f64::from(longest) {
            micros.push(libm::round(exact) as u32);
            exact *= core::f64::consts::SQRT_2;
        }
        if longest > 0 {
            micros.push(longest);
        }
        Self { micros }
    }

    /// The batching delay at a point, in microseconds.
    #[must_use]
    pub fn micros(&self, point: usize) -> u32 {
        self.micros[point]
    }

    /// The point whose batching delay is nearest.
    #[must_use]
    pub fn nearest(&self, micros: u32) -> usize {
        let ratio = |other: u32| f64::from(micros.max(other) + 1) / f64::from(micros.min(other) + 1);
        let points = self.micros.iter().copied().map(ratio).enumerate();
        points.fold((0, f64::INFINITY), |best, other| if other.1 < best.1 { other } else { best }).0
    }

    /// Position on a line that is linear up to about 4 us and logarithmic beyond, in half octaves.
    fn position(&self, point: usize) -> f64 {
        2.0 * libm::log2(1.0 + f64::from(self.micros[point]) / 4.0)
    }
}

impl WorkingPoints for BatchingDelays {
    fn count(&self) -> usize {
        self.micros.len()
    }

    fn distance(&self, a: usize, b: usize) -> f64 {
        let unlike = if (self.micros[a] == 0) == (self.micros[b] == 0) { 0.0 } else { UNHELD_DISTANCE };
        unlike + (self.position(a) - self.position(b)).abs()
    }

    /// "Each microsecond of batching delay adds approximately another microsecond of latency" (nom, VEE'16,
    /// section 6.6).
    fn added_latency(&self, point: usize) -> Seconds {
        Seconds::from_micros(self.micros[point])
    }
}

/// How an application learns of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The device interrupts.
    Interrupt,
    /// The application polls the device.
    Poll,
}

/// One setting of every knob.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KnobValues {
    /// Batching delay in microseconds.
    pub batching_micros: u32,
    /// Interrupts or polling.
    pub notice: Notice,
    /// Cores held.
    pub cores: u16,
    /// How many activities' packets are not held, those first that their contracts hurry most.
    pub urgent: u8,
}

/// Every combination of the values of each knob.
#[derive(Clone, Debug)]
pub struct KnobGrid {
    delays: BatchingDelays,
    notices: Vec<Notice>,
    cores: Vec<u16>,
    /// Most activities whose packets are not held.
    urgent_max: u8,
}

/// A knob without a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("knob `{knob}`: expected at least one value, each above 0")]
pub struct NoValue {
    /// Which.
    pub knob: &'static str,
}

/// How different twice as many cores are: what one number does says little of another, since under one load
/// it serves twice as much, and under another nothing more.
const CORES_DISTANCE: f64 = 8.0;
/// How different polling is from interrupts.
const NOTICE_DISTANCE: f64 = 2.0;
/// How different it is not to hold one more activity's packets, where any are held: its requests may be most
/// of them, or hardly any.
const URGENT_DISTANCE: f64 = 4.0;

impl KnobGrid {
    /// All combinations of the values; point 0 has the first of each, so list first what is safe to start
    /// with.
    ///
    /// # Errors
    /// If a knob has no value, or a number of cores is 0.
    pub fn new(delays: BatchingDelays, notices: &[Notice], cores: &[u16]) -> Result<Self, NoValue> {
        let knobs = [("notice", !notices.is_empty()), ("cores", !cores.is_empty() && !cores.contains(&0))];
        if let Some((knob, _)) = knobs.into_iter().find(|(_, is_good)| !is_good) {
            return Err(NoValue { knob });
        }
        Ok(Self { delays, notices: notices.into(), cores: cores.into(), urgent_max: 0 })
    }

    /// The same, each with packets of no activity to packets of so many not held.
    #[must_use]
    pub fn with_urgent(self, urgent_max: u8) -> Self {
        Self { urgent_max, ..self }
    }

    /// The setting at a point.
    #[must_use]
    pub fn setting(&self, point: usize) -> KnobValues {
        let [delay, notice, cores, urgent] = self.digits(point);
        KnobValues {
            batching_micros: self.delays.micros(delay),
            notice: self.notices[notice],
            cores: self.cores[cores],
            urgent: urgent as u8,
        }
    }

    /// Index of each knob's value, the batching delay changing fastest.
    fn digits(&self, point: usize) -> [usize; 4] {
        let bases = [self.delays.count(), self.notices.len(), self.cores.len(), self.urgencies()];
        let mut rest = point;
        bases.map(|base| {
            let digit = rest % base;
            rest /= base;
            digit
        })
    }

    /// How many numbers of activities there are whose packets may not be held.
    fn urgencies(&self) -> usize {
        usize::from(self.urgent_max) + 1
    }
}

impl WorkingPoints for KnobGrid {
    fn count(&self) -> usize {
        self.delays.count() * self.notices.len() * self.cores.len() * self.urgencies()
    }

    /// Euclidean over the knobs.
    fn distance(&self, a: usize, b: usize) -> f64 {
        let ([delay, ..], [other, ..]) = (self.digits(a), self.digits(b));
        let (x, y) = (self.setting(a), self.setting(b));
        let notice = if x.notice == y.notice { 0.0 } else { NOTICE_DISTANCE };
        let cores = CORES_DISTANCE * libm::log2(f64::from(x.cores) / f64::from(y.cores));
        let urgent = URGENT_DISTANCE * f64::from(x.urgent.abs_diff(y.urgent));
        let delay = self.delays.distance(delay, other);
        libm::sqrt(delay * delay + notice * notice + cores * cores + urgent * urgent)
    }

    /// Of what is held: the more activities' packets are not, the less, as if each had as many.
    fn added_latency(&self, point: usize) -> Seconds {
        let values = self.setting(point);
        let held = 1.0 - f64::from(values.urgent) / self.urgencies() as f64;
        Seconds::new(Seconds::from_micros(values.batching_micros).get() * held).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_cover_the_range_once_each_and_in_order() {
        let delays = BatchingDelays::up_to(u32::MAX);
        assert_eq!(delays.micros(0), 0);
        assert_eq!(delays.micros(delays.count() - 1), BatchingDelays::MAX_MICROS);
        assert!(delays.micros.is_sorted_by(|a, b| a < b), "{:?}", delays.micros);
        assert!(delays.count() <= 32);
        assert!((2..delays.count()).all(|point| delays.distance(point - 1, point) < 2.0));
        assert!(delays.distance(0, 1) > UNHELD_DISTANCE, "not to hold packets is unlike any delay");
        for longest in [0, 1, 2, 3] {
            let few = BatchingDelays::up_to(longest);
            assert_eq!(few.micros(few.count() - 1), longest);
        }
    }

    #[test]
    fn knobs_are_every_combination_once() {
        let delays = BatchingDelays::up_to(40);
        let both = [Notice::Interrupt, Notice::Poll];
        let knobs = KnobGrid::new(delays.clone(), &both, &[1, 2, 4]).expect("values").with_urgent(2);
        assert_eq!(knobs.count(), delays.count() * 18);
        let first = knobs.setting(0);
        assert_eq!((first.batching_micros, first.notice, first.cores), (0, Notice::Interrupt, 1));
        assert_eq!((first.urgent, knobs.setting(knobs.count() - 1).urgent), (0, 2));
        for a in 0..knobs.count() {
            assert_eq!(knobs.distance(a, a), 0.0);
            assert!((0..a).all(|b| knobs.setting(a) != knobs.setting(b) && knobs.distance(a, b) > 0.0));
        }
    }

    #[test]
    fn a_knob_without_a_value_is_named() {
        let knobs = |notices: &[Notice], cores: &[u16]| {
            KnobGrid::new(BatchingDelays::up_to(8), notices, cores).err().map(|error| error.knob)
        };
        assert_eq!(knobs(&[Notice::Poll], &[]), Some("cores"));
        assert_eq!(knobs(&[Notice::Poll], &[1, 0]), Some("cores"));
        assert_eq!(knobs(&[], &[1]), Some("notice"));
        assert_eq!(knobs(&[Notice::Poll], &[1]), None);
    }
}
