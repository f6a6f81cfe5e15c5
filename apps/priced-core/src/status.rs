//! Messages of applications, and what the provider is told of them.

use alloc::string::String;
use nom_abi::priced::{Announcement, Report, Solvency};
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
    let number = |name, bits| {
        let value = f64::from_bits(bits);
        if value.is_finite() { Ok(value) } else { Err(BadReport::NotFinite(name)) }
    };
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
        price_network_out: number("price_network_out", report.price_network_out)?,
        revenue_per_second: number("revenue_per_second", report.revenue_per_second)?,
        cost_per_second: number("cost_per_second", report.cost_per_second)?,
        profit: number("profit", report.profit)?,
        solvency: solvency(rest).ok_or(BadReport::Unknown(message.len()))?,
    })
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
