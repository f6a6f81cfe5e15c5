//! What an application has to say, with the time and a level: the console as the sink of the crate `log`.
//!
//! ```text
//! 2026-11-22T11:02:03.123456Z INFO  kv: keeps up to 4000000 bytes
//! ```
//! Libraries that use the crate `log` are heard, too. Before [`start`], and in the simulator, nothing is.

use crate::serve::{BadSetting, settings};
use crate::{println, time};
use core::fmt;
use log::{Log, Metadata, Record};

pub use log::{Level, LevelFilter, debug, error, info, log_enabled, trace, warn};

/// Lets everything be heard from the level on that the environment's `log` says: `error`, `warn`, `info`,
/// `debug` or `trace`; `off` for nothing, `info` if it says nothing.
///
/// # Errors
/// If it is none of these.
pub fn start() -> Result<(), BadSetting> {
    let level = settings::log_level()?;
    // Refused if the program has a sink of its own already, which then stays.
    let _ = log::set_logger(&Console);
    log::set_max_level(level);
    Ok(())
}

struct Console;

impl Log for Console {
    /// The macros have looked at the level.
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let time = Utc(time::unix_ns());
        println!("{time} {:5} {}: {}", record.level(), record.target(), record.args());
    }

    fn flush(&self) {}
}

/// Nanoseconds since 1970, shown as RFC 3339 has it, to the microsecond.
struct Utc(u64);

impl fmt::Display for Utc {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000 / 1000);
        let (year, month, day) = date(seconds / 86_400);
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        write!(out, "{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
    }
}

/// Year, month and day of a number of days after 1970-01-01. Years begin with March, so that the day that not
/// every year has is its last (Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days).
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // from 0000-03-01 to 1970-01-01
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000007Z"),
            (951_782_400, "2000-02-29T00:00:00.000007Z"),
            (1_741_000_000, "2025-03-03T11:06:40.000007Z"),
            (4_107_542_399, "2100-02-28T23:59:59.000007Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000007Z"),
        ] {
            assert_eq!(Utc(seconds * 1_000_000_000 + 7_999).to_string(), expected);
        }
    }
}
