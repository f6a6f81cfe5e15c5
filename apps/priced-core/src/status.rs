//! From an application's report to what the provider is told.

use alloc::string::String;
use nom_abi::priced::Report;
use nom_proto::status::Status;

/// A sum of money that is no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its `{0}` is not a finite number")]
pub struct NotFinite(pub &'static str);

/// What the provider is told about `application` in `machine`, which holds so many `cores` and so much memory
/// now, and reports `report`.
///
/// # Errors
/// [`NotFinite`]: such a number cannot even be written.
pub fn status(
    report: &Report,
    machine: &str,
    application: &str,
    cores: u32,
    memory_bytes: u64,
) -> Result<Status, NotFinite> {
    let number = |name, bits| {
        let value = f64::from_bits(bits);
        if value.is_finite() { Ok(value) } else { Err(NotFinite(name)) }
    };
    Ok(Status {
        machine: String::from(machine),
        application: String::from(application),
        at_ns: report.at_ns,
        window_ns: report.window_ns,
        batching_delay_us: u32::try_from(report.batching_delay_us).unwrap_or(u32::MAX),
        polls: report.polls != 0,
        cores,
        memory_bytes,
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
    })
}
