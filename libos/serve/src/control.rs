//! The control port: what a server counts and how long its requests take, to read while it runs, and the
//! batching delay, to read and to set. HTTP/1.1, spoken on the server's own stack.
//!
//! ```text
//! GET /metrics          everything, as text for Prometheus
//! GET /batching-delay   W in microseconds
//! PUT /batching-delay   sets it: 0 to 10000
//! ```

mod http;
mod metrics;
mod snapshot;

pub(crate) use snapshot::Snapshot;

use crate::governor::Window;
use crate::reply::Reply;
use crate::service::{Flow, Service};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use crossbeam_queue::ArrayQueue;
use http::{Method, Request, Response};
use nom_net::batch::DELAY_MAX;
use nom_port::buffer::{Buffer, Slice};
use nom_rt::handle::Handle;

/// What the servers of one application, each on its core, share of their control port: whichever of them a
/// connection reaches speaks for all.
pub struct Control {
    port: u16,
    /// The last batching delay ordered, in microseconds, above the number of the order.
    order: AtomicU64,
    /// What each server said last.
    reports: Box<[ArrayQueue<Arc<Snapshot>>]>,
}

/// Bits of [`Control::order`] that are microseconds.
const MICROS_BITS: u32 = 32;

impl Control {
    /// The control port of as many servers as there are `cores`.
    pub fn new(port: u16, cores: usize) -> Arc<Control> {
        let reports = (0..cores.max(1)).map(|_| ArrayQueue::new(1)).collect();
        Arc::new(Control { port, order: AtomicU64::new(0), reports })
    }

    /// The TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Lets all servers set their batching delay.
    fn order(&self, micros: u32) {
        let next = |order: u64| ((order >> MICROS_BITS) + 1) << MICROS_BITS | u64::from(micros);
        // Nothing else is published by it.
        let _ = self.order.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |order| Some(next(order)));
    }

    /// What all servers have said, this one among them.
    fn gather(&self) -> Snapshot {
        let latest = |report: &ArrayQueue<Arc<Snapshot>>| {
            let latest = report.pop()?;
            // A newer one may be there already; then it stays.
            let _ = report.push(latest.clone());
            Some(latest)
        };
        let mut all = Snapshot::default();
        self.reports.iter().filter_map(latest).for_each(|report| all.merge(&report));
        all
    }
}

/// One server's end of the control port.
pub(crate) struct Desk {
    control: Arc<Control>,
    index: usize,
    handle: Handle,
    /// The last order that was carried out.
    order: u64,
    window: Window,
    /// When the others were told last.
    told_ns: u64,
}

/// How old what one server says of another may be.
const TELL_NS: u64 = 100_000_000;

/// Most bytes of a request.
const REQUEST_MAX: usize = 8 << 10;

impl Desk {
    /// That of server number `index` of those that share `control`.
    pub fn new(control: Arc<Control>, index: usize, handle: Handle) -> Desk {
        let order = control.order.load(Ordering::Relaxed);
        Desk { control, index, handle, order, window: Window::default(), told_ns: 0 }
    }

    pub fn port(&self) -> u16 {
        self.control.port
    }

    /// The batching delay that was ordered since the last call.
    #[inline]
    pub fn ordered_delay(&mut self) -> Option<Duration> {
        let order = self.control.order.load(Ordering::Relaxed);
        let is_new = core::mem::replace(&mut self.order, order) != order;
        is_new.then(|| Duration::from_micros(order & ((1 << MICROS_BITS) - 1)))
    }

    /// A window has ended: the others hear of it now and then.
    pub fn report(&mut self, window: Window, snapshot: impl FnOnce() -> Snapshot) {
        self.window = window;
        if self.control.reports.len() > 1 && window.to_ns.saturating_sub(self.told_ns) >= TELL_NS {
            self.told_ns = window.to_ns;
            self.refresh(snapshot());
        }
    }

    /// Whoever asks hears this from now on.
    pub fn refresh(&mut self, mut snapshot: Snapshot) {
        snapshot.add_loop(&self.handle);
        snapshot.add_window(&self.window);
        if let Some(report) = self.control.reports.get(self.index) {
            report.force_push(Arc::new(snapshot));
        }
    }

    fn answer(&self, request: &Request<'_>) -> Response {
        match (request.path, &request.method) {
            ("/metrics", Method::Get) => Response::ok(metrics::TYPE, metrics::text(&self.control.gather())),
            ("/batching-delay", Method::Get) => self.delay(),
            ("/batching-delay", Method::Put) => self.set_delay(request.body),
            ("/metrics", _) => Response::not_allowed("GET"),
            ("/batching-delay", _) => Response::not_allowed("GET, PUT"),
            (path, _) => Response::not_found(path, "/metrics and /batching-delay"),
        }
    }

    fn delay(&self) -> Response {
        Response::text(itoa::Buffer::new().format(self.control.gather().delay_micros()))
    }

    fn set_delay(&self, body: &[u8]) -> Response {
        let digits = core::str::from_utf8(body).unwrap_or_default().trim_ascii();
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let micros =
            digits.parse().ok().filter(|micros| is_number && *micros <= DELAY_MAX.as_micros() as u32);
        let Some(micros) = micros else {
            let most = DELAY_MAX.as_micros();
            return Response::bad_request(alloc::format!(
                "batching delay `{}`: expected microseconds from 0 to {most}",
                body.escape_ascii()
            ));
        };
        self.control.order(micros);
        Response::text(itoa::Buffer::new().format(micros))
    }
}

impl<B: Buffer> Service<B> for Desk {
    /// Bytes of a request that has not come whole.
    type Connection = Vec<u8>;

    const IS_TIMED: bool = false;

    fn connected(&mut self, _: SocketAddr, _: &mut Reply<B>) -> Option<Vec<u8>> {
        Some(Vec::new())
    }

    fn received(&mut self, input: &mut Vec<u8>, bytes: Slice<B>, reply: &mut Reply<B>) -> Flow {
        input.extend_from_slice(&bytes);
        loop {
            let (used, response) = match http::parse(input) {
                Ok(None) if input.len() <= REQUEST_MAX => return Flow::Open,
                Ok(None) => (input.len(), Response::too_large().closing()),
                Ok(Some(request)) if request.is_last => (request.len, self.answer(&request).closing()),
                Ok(Some(request)) => (request.len, self.answer(&request)),
                Err(why) => (input.len(), Response::bad_request(String::from(why)).closing()),
            };
            input.drain(..used);
            response.write(reply);
            if response.closes() {
                return Flow::Close;
            }
        }
    }
}

#[cfg(test)]
mod tests;
