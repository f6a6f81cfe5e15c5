//! A window as the economy sees it.

use nom_economy::response::{Observation, Response};
use nom_economy::units::{GbitPerSecond, OperationsPerSecond, Seconds};
use nom_economy::utility::Latency;
use nom_service::Window;

/// No client has its answer sooner: what a clock that reads two times at once, or a path that nobody knows,
/// makes of a latency must not earn a bonus.
const SOONEST_NS: u64 = 1_000;

fn seconds(nanoseconds: u64) -> Seconds {
    Seconds::new(nanoseconds as f64 / 1e9).expect("an integer is finite and not negative")
}

/// What the window says of the server; nothing if it has no length.
pub(crate) fn response(window: &Window) -> Option<Response> {
    let length_ns = window.to_ns.checked_sub(window.from_ns).filter(|length| *length > 0)?;
    let per_second = |count: u64| count as f64 * 1e9 / length_ns as f64;
    let data = |bytes: u64| GbitPerSecond::new(per_second(bytes) * 8e-9).expect("a ratio of integers");
    let mean = seconds(window.latency.mean_ns.max(SOONEST_NS));
    let latency = Latency::new(mean, seconds(window.latency.jitter_ns), seconds(window.latency.p99_ns));
    Some(Response {
        throughput: OperationsPerSecond::new(per_second(window.requests)).expect("a ratio of integers"),
        answered: data(window.answered_bytes),
        sent: data(window.sent_bytes),
        received: data(window.received_bytes),
        latency: latency.expect("it is above 0"),
    })
}

/// The same for a controller; nothing if nobody was served.
pub(crate) fn observation(window: &Window) -> Option<Observation> {
    let response = response(window)?;
    (window.requests > 0).then_some(Observation { response, samples: window.requests })
}
