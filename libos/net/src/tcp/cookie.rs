//! SYN cookies: what a connection needs, in its initial sequence number and its first timestamp (RFC 4987
//! section 3.6, with the timestamp as Linux uses it).
//!
//! ```text
//! sequence number:  24 bits keyed hash | 5 bits period | 3 bits largest segment
//! timestamp:        26 bits clock | 1 bit selective acknowledgements | 1 bit spare | 4 bits window scale
//! ```

use super::segment::{Options, Timestamps};
use super::sequence::Seq;
use crate::table::{FourTuple, keyed};
use crate::time::Instant;
use core::time::Duration;

/// A cookie is good in the period in which it was made and in the next.
pub const PERIOD: Duration = Duration::from_secs(64);
const PERIODS: u64 = 32;
/// Segment sizes that a cookie can remember.
const SIZES: [u16; 8] = [216, 536, 1000, 1220, 1360, 1440, 1460, 8960];
/// The scale that stands for none.
const NO_SCALE: u32 = 15;

/// What is remembered of a SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookie {
    /// Index of the largest segment.
    size: u8,
    /// Window scale.
    pub scale: Option<u8>,
    /// Whether selective acknowledgements were offered.
    pub sack: bool,
}

impl Cookie {
    /// What of a SYN's options fits, on a link that takes `mss` bytes.
    pub fn of(options: &Options, mss: u16) -> Cookie {
        let mss = options.mss.unwrap_or(536).min(mss);
        let size = SIZES.iter().rposition(|&size| size <= mss).unwrap_or(0) as u8;
        Cookie { size, scale: options.scale.map(|scale| scale.min(14)), sack: options.sack_permitted }
    }

    /// The initial sequence number that stands for it.
    pub fn seal(&self, key: [u64; 2], tuple: &FourTuple, irs: Seq, now: Instant) -> Seq {
        Seq(self.sealed_in(key, tuple, irs, period(now)))
    }

    fn sealed_in(&self, key: [u64; 2], tuple: &FourTuple, irs: Seq, period: u64) -> u32 {
        let hash = keyed(key, &(tuple, irs.0, period, self.size)) as u32;
        hash << 8 | ((period % PERIODS) as u32) << 3 | u32::from(self.size)
    }

    /// The cookie in a sequence number; `None` if we did not make it, or too long ago.
    pub fn open(key: [u64; 2], tuple: &FourTuple, irs: Seq, iss: Seq, now: Instant) -> Option<Cookie> {
        let age = (period(now) % PERIODS + PERIODS - u64::from(iss.0 >> 3 & 31)) % PERIODS;
        let cookie = Cookie { size: (iss.0 & 7) as u8, scale: None, sack: false };
        let made = period(now).checked_sub(age)?;
        (age <= 1 && cookie.sealed_in(key, tuple, irs, made) == iss.0).then_some(cookie)
    }

    /// The timestamp to send at `millis` in the SYN-ACK: never later than the clock, or the next would seem
    /// older.
    pub fn stamp(&self, millis: u32) -> u32 {
        let bits = self.scale.map_or(NO_SCALE, u32::from) | u32::from(self.sack) << 5;
        let stamp = millis & !63 | bits;
        if Seq(millis).before(Seq(stamp)) { stamp.wrapping_sub(64) } else { stamp }
    }

    /// Adds what came back in the timestamp, if one did.
    pub fn with_stamp(self, echo: Option<u32>) -> Cookie {
        let scale = echo.map(|echo| echo & 15).filter(|&scale| scale != NO_SCALE).map(|scale| scale as u8);
        Cookie { scale, sack: echo.is_some_and(|echo| echo & 32 != 0), ..self }
    }

    /// The options that the SYN must have had.
    pub fn options(&self, timestamps: Option<Timestamps>) -> Options {
        let mss = Some(SIZES[usize::from(self.size)]);
        Options { mss, scale: self.scale, sack_permitted: self.sack, timestamps, ..Options::default() }
    }
}

fn period(now: Instant) -> u64 {
    now.micros() / PERIOD.as_micros() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, SocketAddr};
    use proptest::prelude::*;

    fn tuple(port: u16) -> FourTuple {
        let address = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        FourTuple { local: address(80), remote: address(port) }
    }

    proptest! {
        #[test]
        fn a_cookie_comes_back_only_from_whom_it_was_given_to(
            mss in 100u16..10_000, scale in proptest::option::of(0u8..=14), sack: bool,
            irs: u32, secs in 0u64..1_000_000, later in 0u64..64, port in 2u16..,
        ) {
            let now = Instant::from_micros(secs * 1_000_000);
            let soon = now + Duration::from_secs(later);
            let options = Options { mss: Some(mss), scale, sack_permitted: sack, ..Options::default() };
            let cookie = Cookie::of(&options, 1460);
            let iss = cookie.seal([1, 2], &tuple(port), Seq(irs), now);
            let opened = Cookie::open([1, 2], &tuple(port), Seq(irs), iss, soon).unwrap();
            let stamp = cookie.stamp(now.millis_wrapping());
            prop_assert!(Seq(stamp).at_most(Seq(now.millis_wrapping())));
            prop_assert_eq!(opened.with_stamp(Some(stamp)), cookie);
            prop_assert!(opened.options(None).mss.unwrap() <= mss.max(216));
            let foreign = Cookie::open([1, 2], &tuple(port - 1), Seq(irs), iss, soon);
            let late = Cookie::open([1, 2], &tuple(port), Seq(irs), iss, now + PERIOD * 3);
            prop_assert_eq!((foreign, late), (None, None));
        }
    }
}
