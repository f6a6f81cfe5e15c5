//! Messages of applications, and what the provider is told of them.

use alloc::string::String;
use alloc::vec::Vec;
use nom_abi::priced::{ActivityReport, Announcement, Report, Solvency};
use nom_proto::status::{self, State, Status};
use zerocopy::FromBytes;

/// An announcement as a message to an application.
pub fn message(announcement: &Announcement) -> [u8; size_of::<Announcement>()] {
    zerocopy::transmute!(*announcement)
}

/// A message that is no report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadReport {
    /// Another length, or another kind of message.
    #[error("a message of {0} bytes that is no report")]
    Unknown(usize),
    /// A sum of money that is no number, and cannot even be written.
    #[error("its `{0}` is not a finite number")]
    NotFinite(&'static str),
    /// An activity of a number that there is none of, or one of more than there may be.
    #[error("it reports activity {0} of {1}, of at most {max} from 0 on", max = ActivityReport::COUNT_MAX)]
    Activity(u32, u32),
}

/// What an application and its machine hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Cores that the application holds.
    pub cores: u32,
    /// Bytes of memory that it holds.
    pub memory_bytes: u64,
    /// Cores that anybody in the machine holds.
    pub machine_cores: u32,
    /// Bytes that anybody in the machine holds, its kernel included.
    pub machine_memory_bytes: u64,
}

/// What the provider is told about `application` in `machine`, which hold so much now, and reports `message`.
///
/// # Errors
/// [`BadReport`].
pub fn status(message: &[u8], machine: &str, application: &str, held: Held) -> Result<Status, BadReport> {
    let (report, rest) = Report::read_from_prefix(message)
        .ok()
        .filter(|(report, _)| report.kind == Report::KIND)
        .ok_or(BadReport::Unknown(message.len()))?;
    Ok(Status {
        machine: String::from(machine),
        application: String::from(application),
        at_ns: report.at_ns,
        window_ns: report.window_ns,
        batching_delay_us: u32::try_from(report.batching_delay_us).unwrap_or(u32::MAX),
        polls: report.polls != 0,
        cores: held.cores,
        memory_bytes: held.memory_bytes,
        machine_cores: held.machine_cores,
        machine_memory_bytes: held.machine_memory_bytes,
        requests: report.requests,
        sent_bytes: report.sent_bytes,
        received_bytes: report.received_bytes,
        latency_mean_ns: report.latency_mean_ns,
        latency_jitter_ns: report.latency_jitter_ns,
        latency_p99_ns: report.latency_p99_ns,
        price_revision: report.price_revision,
        price_network_out: finite("price_network_out", report.price_network_out)?,
        revenue_per_second: finite("revenue_per_second", report.revenue_per_second)?,
        cost_per_second: finite("cost_per_second", report.cost_per_second)?,
        profit: finite("profit", report.profit)?,
        solvency: solvency(rest).ok_or(BadReport::Unknown(message.len()))?,
        activities: Vec::new(),
    })
}

/// What an application says of its activities, of which each has a message of its own.
#[derive(Clone, Debug, Default)]
pub struct Gathering {
    /// Of those that are being said, the first ones.
    coming: Vec<status::Activity>,
    whole: Vec<status::Activity>,
}

impl Gathering {
    /// What was last said of all of them.
    pub fn whole(&self) -> Vec<status::Activity> {
        self.whole.clone()
    }

    /// Takes a message if it is of an activity; whether it is. If one was lost, nothing changes until all are
    /// said again.
    ///
    /// # Errors
    /// [`BadReport`].
    pub fn take(&mut self, message: &[u8]) -> Result<bool, BadReport> {
        let Ok(own) = ActivityReport::read_from_bytes(message) else { return Ok(false) };
        if own.kind != ActivityReport::KIND {
            return Ok(false);
        }
        if own.number >= own.count || own.count > ActivityReport::COUNT_MAX {
            return Err(BadReport::Activity(own.number, own.count));
        }
        let (cost, profit) = (finite("cost", own.cost)?, finite("profit", own.profit)?);
        let end = own.name.iter().position(|byte| *byte == 0).unwrap_or(own.name.len());
        if own.number == 0 {
            self.coming.clear();
        }
        let is_next = own.number as usize == self.coming.len();
        if !is_next || self.coming.first().is_some_and(|first| first.at_ns != own.at_ns) {
            self.coming.clear();
            return Ok(true);
        }
        self.coming.push(status::Activity {
            name: String::from_utf8_lossy(&own.name[..end]).into_owned(),
            at_ns: own.at_ns,
            core_ns: own.core_ns,
            requests: own.requests,
            latency_ns: own.latency_ns,
            received_bytes: own.received_bytes,
            sent_bytes: own.sent_bytes,
            connections: own.connections,
            memory_bytes: own.memory_bytes,
            cost,
            profit,
        });
        if self.coming.len() == own.count as usize {
            self.whole = core::mem::take(&mut self.coming);
        }
        Ok(true)
    }
}

/// The number of those bits.
fn finite(name: &'static str, bits: u64) -> Result<f64, BadReport> {
    let value = f64::from_bits(bits);
    if value.is_finite() { Ok(value) } else { Err(BadReport::NotFinite(name)) }
}

/// What follows a report, if anything does.
fn solvency(message: &[u8]) -> Option<status::Solvency> {
    if message.is_empty() {
        return Some(status::Solvency::default());
    }
    let told = Solvency::read_from_bytes(message).ok()?;
    Some(status::Solvency {
        state: match told.state {
            Solvency::NO_CONTRACT => State::NoContract,
            Solvency::PAYS => State::Pays,
            Solvency::COSTS_MORE => State::CostsMore,
            Solvency::LATE => State::Late,
            Solvency::HELD_COSTS_MORE => State::HeldCostsMore,
            _ => return None,
        },
        objective_ns: told.objective_ns,
        soonest_p99_ns: told.soonest_p99_ns,
        soonest_delay_us: told.soonest_delay_us,
        clients_max: u32::try_from(told.clients_max).ok(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::{FromZeros, IntoBytes};

    fn of(number: u32, count: u32, at_ns: u64) -> ActivityReport {
        let mut name = [0; 64];
        name[..4].copy_from_slice(b"gold");
        let profit = (-1.5_f64).to_bits();
        ActivityReport {
            kind: ActivityReport::KIND,
            at_ns,
            number,
            count,
            name,
            profit,
            ..FromZeros::new_zeroed()
        }
    }

    #[test]
    fn activities_are_told_when_all_of_them_were_said() {
        let mut gathering = Gathering::default();
        let mut say = |number, at_ns| {
            assert_eq!(gathering.take(of(number, 3, at_ns).as_bytes()), Ok(true));
            gathering.whole().iter().map(|own| own.at_ns).collect::<Vec<_>>()
        };
        assert!(say(0, 1).is_empty() && say(1, 1).is_empty());
        assert_eq!(say(2, 1), [1, 1, 1]);
        say(0, 2);
        assert_eq!(say(2, 2), [1, 1, 1], "one was lost");
        say(0, 3);
        say(1, 3);
        assert_eq!(say(2, 4), [1, 1, 1], "of another time");
        say(0, 5);
        say(1, 5);
        assert_eq!(say(2, 5), [5, 5, 5]);
        let whole = gathering.whole();
        assert_eq!((whole[0].name.as_str(), whole[0].profit), ("gold", -1.5));
        let report = Report { kind: Report::KIND, ..Report::new_zeroed() };
        assert_eq!(gathering.take(report.as_bytes()), Ok(false), "somebody else's");
        let mut wrong = of(0, 1, 9);
        wrong.cost = f64::INFINITY.to_bits();
        assert_eq!(gathering.take(wrong.as_bytes()), Err(BadReport::NotFinite("cost")));
    }

    #[test]
    fn nobody_is_listened_to_without_end() {
        let mut gathering = Gathering::default();
        let most = ActivityReport::COUNT_MAX;
        for (number, count) in [(0, 0), (3, 3), (0, most + 1), (u32::MAX, u32::MAX)] {
            let error = Err(BadReport::Activity(number, count));
            assert_eq!(gathering.take(of(number, count, 1).as_bytes()), error);
        }
        for number in 0..most {
            assert_eq!(gathering.take(of(number, most, 1).as_bytes()), Ok(true));
        }
        assert_eq!(gathering.whole().len(), most as usize);
    }

    #[test]
    fn a_report_becomes_a_status_and_nonsense_does_not() {
        let mut report =
            Report { kind: Report::KIND, batching_delay_us: 20, polls: 1, ..Report::new_zeroed() };
        report.profit = (-1.5_f64).to_bits();
        let held = Held { cores: 2, memory_bytes: 8192, machine_cores: 3, machine_memory_bytes: 1 << 20 };
        let told = status(report.as_bytes(), "m", "a", held).expect("a report");
        assert_eq!((told.machine_cores, told.machine_memory_bytes), (3, 1 << 20));
        assert_eq!(
            (told.machine.as_str(), told.application.as_str(), told.cores, told.memory_bytes),
            ("m", "a", 2, 8192)
        );
        assert_eq!((told.batching_delay_us, told.polls, told.profit), (20, true, -1.5));
        assert_eq!(told.solvency, status::Solvency::default());
        let told = |state: u64| {
            let (objective_ns, soonest_p99_ns) = (750_000, 2_100_000);
            let solvency =
                Solvency { state, objective_ns, soonest_p99_ns, soonest_delay_us: 0, clients_max: 7 };
            let message = [report.as_bytes(), solvency.as_bytes()].concat();
            super::status(&message, "m", "a", held).map(|status| status.solvency)
        };
        let solvency = told(Solvency::LATE).expect("a report with a solvency");
        assert_eq!((solvency.state, solvency.clients_max), (State::Late, Some(7)));
        assert_eq!(told(99), Err(BadReport::Unknown(168)), "a state that nobody knows");
        report.cost_per_second = f64::NAN.to_bits();
        assert_eq!(status(report.as_bytes(), "m", "a", held), Err(BadReport::NotFinite("cost_per_second")));
        report.kind = Announcement::KIND;
        assert_eq!(status(report.as_bytes(), "m", "a", held), Err(BadReport::Unknown(128)));
        assert_eq!(status(b"", "m", "a", held), Err(BadReport::Unknown(0)));
    }
}
