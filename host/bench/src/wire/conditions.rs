//! What a cable does to the frames that pass.

use super::cable::RATE;
use anyhow::{Result, ensure};
use std::fmt;
use std::time::Duration;

/// What a cable does, each way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Conditions {
    /// Round-trip time that the cable adds: half of it each way.
    pub delay: Duration,
    /// Of a million frames, how many are lost.
    pub loss: u32,
    /// Of a million frames, how many come 2 ms late, behind others that were sent after them.
    pub reorder: u32,
    /// Of a million frames, how many come twice.
    pub duplicate: u32,
    /// Of a million frames, how many come with a bit turned.
    pub corrupt: u32,
}

/// Round-trip times of the grid, in milliseconds.
const DELAYS_MS: [u64; 4] = [0, 10, 50, 200];
/// Losses of the grid, of a million.
const LOSSES: [u32; 4] = [0, 1_000, 10_000, 50_000];

/// Of what one cable carries, what all may carry that are measured at the same time.
const TOGETHER: f64 = 1.5;
/// Most pairs at the same time.
const AT_ONCE_MAX: usize = 6;
/// Bits of payload in a full segment with timestamps.
const SEGMENT_BITS: f64 = 1448.0 * 8.0;

impl Conditions {
    const fn of(delay_ms: u64, loss: u32) -> Conditions {
        Conditions { delay: Duration::from_millis(delay_ms), loss, reorder: 0, duplicate: 0, corrupt: 0 }
    }

    /// Every point of the table: each delay with each loss, and the other faults at 10 ms.
    pub fn all() -> Vec<Conditions> {
        let grid =
            DELAYS_MS.iter().flat_map(|&delay| LOSSES.iter().map(move |&loss| Conditions::of(delay, loss)));
        grid.chain(Conditions::others()).collect()
    }

    /// The points of these names, or every one if there are none.
    ///
    /// # Errors
    /// If a name is none of theirs.
    pub fn named(names: &[String]) -> Result<Vec<Conditions>> {
        let all = Conditions::all();
        let known = || all.iter().map(Conditions::to_string).collect::<Vec<_>>().join("`, `");
        for name in names {
            let is_known = all.iter().any(|point| point.to_string() == *name);
            ensure!(is_known, "there is no point `{name}`: expected one of `{}`", known());
        }
        let is_wanted = |point: &Conditions| names.is_empty() || names.contains(&point.to_string());
        Ok(all.iter().copied().filter(is_wanted).collect())
    }

    /// A few points that between them have every fault.
    pub fn few() -> Vec<Conditions> {
        [Conditions::of(10, 0), Conditions::of(50, 10_000)].into_iter().chain(Conditions::others()).collect()
    }

    /// Between how many pairs it is measured at the same time: as many as carry together what is no work for
    /// this computer. Where frames are lost at random few bits pass, and many runs are needed.
    pub fn at_once(&self) -> usize {
        let (p, rtt) = (f64::from(self.loss + self.corrupt) / 1e6, self.delay.as_secs_f64());
        if p == 0.0 || rtt == 0.0 {
            return 1;
        }
        // RFC 9438, section 5.1, in segments: the larger of Reno's window and Cubic's.
        let window = (1.5 / p).sqrt().max(1.054 * (rtt / p).powf(0.75));
        let rate = window * SEGMENT_BITS / rtt;
        ((TOGETHER * RATE as f64 / rate) as usize).clamp(1, AT_ONCE_MAX)
    }

    fn others() -> [Conditions; 3] {
        let base = Conditions::of(10, 0);
        [
            Conditions { reorder: 10_000, ..base },
            Conditions { duplicate: 10_000, ..base },
            Conditions { corrupt: 1_000, ..base },
        ]
    }
}

impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.delay.as_millis())?;
        let percent = |count: u32| f64::from(count) / 10_000.0;
        let faults = [
            (self.loss, "lost"),
            (self.reorder, "late"),
            (self.duplicate, "twice"),
            (self.corrupt, "corrupt"),
        ];
        faults
            .iter()
            .filter(|(count, _)| *count > 0)
            .try_for_each(|(count, name)| write!(f, ", {}% {name}", percent(*count)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_where_little_passes_are_measured_many_times_at_once() {
        let at_once = |delay_ms, loss| Conditions::of(delay_ms, loss).at_once();
        assert_eq!([at_once(0, 50_000), at_once(10, 0), at_once(200, 0)], [1; 3]);
        assert_eq!([at_once(10, 1_000), at_once(10, 10_000), at_once(200, 50_000)], [3, 6, 6]);
    }

    #[test]
    fn points_have_names_of_their_own() {
        let mut names: Vec<String> = Conditions::all().iter().map(Conditions::to_string).collect();
        assert!(
            ["0 ms", "200 ms, 5% lost", "50 ms, 0.1% lost", "10 ms, 1% late"]
                .iter()
                .all(|name| names.iter().any(|other| other == name)),
            "{names:?}"
        );
        assert_eq!(names.len(), 19);
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 19);
        let error = Conditions::named(&["9 ms".into()]).expect_err("there is none").to_string();
        assert!(error.contains("`9 ms`") && error.contains("`200 ms, 5% lost`"), "{error}");
        assert_eq!(Conditions::named(&["10 ms, 1% late".into()]).expect("it is one").len(), 1);
        assert!(Conditions::few().iter().all(|point| Conditions::all().contains(point)));
    }
}
