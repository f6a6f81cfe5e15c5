//! When a machine that has ended is started again. Names and delays are Docker's.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// What is done when a machine has ended by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Policy {
    /// Nothing.
    #[default]
    No,
    /// It is started again if its status is not 0; so many times at most, if a number is given.
    OnFailure(Option<u32>),
    /// It is started again.
    Always,
    /// As `Always`; after a start of the computer, too, unless `nom stop` had ended it.
    UnlessStopped,
}

/// What people can type.
pub const NAMES: &str = "no|on-failure[:N]|always|unless-stopped";

const EXPECTED: &str = "expected no, on-failure, on-failure:TIMES, always or unless-stopped";

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Policy, String> {
        match text.split_once(':') {
            None => match text {
                "no" => Ok(Policy::No),
                "on-failure" => Ok(Policy::OnFailure(None)),
                "always" => Ok(Policy::Always),
                "unless-stopped" => Ok(Policy::UnlessStopped),
                _ => Err(format!("`{text}`: {EXPECTED}")),
            },
            Some(("on-failure", times)) => {
                let times = times.parse().ok().filter(|times| *times > 0);
                times
                    .map(|times| Policy::OnFailure(Some(times)))
                    .ok_or_else(|| format!("`{text}`: {EXPECTED}"))
            }
            Some(_) => Err(format!("`{text}`: {EXPECTED}")),
        }
    }
}

impl TryFrom<String> for Policy {
    type Error = String;

    fn try_from(text: String) -> Result<Policy, String> {
        text.parse()
    }
}

impl From<Policy> for String {
    fn from(policy: Policy) -> String {
        policy.to_string()
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Policy::No => out.write_str("no"),
            Policy::OnFailure(None) => out.write_str("on-failure"),
            Policy::OnFailure(Some(times)) => write!(out, "on-failure:{times}"),
            Policy::Always => out.write_str("always"),
            Policy::UnlessStopped => out.write_str("unless-stopped"),
        }
    }
}

impl Policy {
    /// Whether a machine that ended with `status`, after it was started again `restarts` times, is started
    /// once more. Nobody asked it to end.
    pub fn starts_again(self, status: u8, restarts: u32) -> bool {
        match self {
            Policy::No => false,
            Policy::OnFailure(times) => status != 0 && times.is_none_or(|times| restarts < times),
            Policy::Always | Policy::UnlessStopped => true,
        }
    }
}

/// How long one waits before the next start, so that a machine which cannot live does not take the computer.
#[derive(Clone, Copy, Debug)]
pub struct Backoff(Duration);

impl Backoff {
    const FIRST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(60);
    /// A machine that ran for so long is well, and the next wait is the first.
    const WELL: Duration = Duration::from_secs(10);

    /// Before anything has ended.
    pub fn new() -> Backoff {
        Backoff(Backoff::FIRST)
    }

    /// The wait after a machine that has run for `ran`: twice the one before, up to a minute.
    pub fn next(&mut self, ran: Duration) -> Duration {
        let wait = if ran >= Backoff::WELL { Backoff::FIRST } else { self.0 };
        self.0 = (2 * wait).min(Backoff::LONGEST);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_reads_as_it_prints() {
        for text in ["no", "on-failure", "on-failure:3", "always", "unless-stopped"] {
            assert_eq!(text.parse::<Policy>().expect(text).to_string(), text);
        }
        for text in ["", "yes", "on-failure:", "on-failure:0", "on-failure:-1", "always:3", "no:1"] {
            assert!(text.parse::<Policy>().expect_err(text).contains("unless-stopped"), "{text}");
        }
    }

    #[test]
    fn each_policy_starts_what_it_says() {
        let started = |policy: &str, status, restarts| {
            policy.parse::<Policy>().expect("legal").starts_again(status, restarts)
        };
        assert!(!started("no", 1, 0));
        assert!(started("on-failure", 1, 1000) && !started("on-failure", 0, 0));
        assert!(started("on-failure:2", 1, 1) && !started("on-failure:2", 1, 2));
        assert!(started("always", 0, 1000) && started("unless-stopped", 0, 1000));
    }

    #[test]
    fn waits_double_up_to_a_minute_until_it_is_well_again() {
        let mut backoff = Backoff::new();
        let short = Duration::from_secs(1);
        let waits: Vec<u128> = (0..12).map(|_| backoff.next(short).as_millis()).collect();
        assert_eq!(waits[..4], [100, 200, 400, 800]);
        assert_eq!(waits[10..], [60_000, 60_000]);
        assert_eq!(backoff.next(Duration::from_secs(10)).as_millis(), 100);
        assert_eq!(backoff.next(short).as_millis(), 200);
    }
}
