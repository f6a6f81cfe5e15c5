//! The control port: what a server counts and how long its requests take, to read while it runs, and the
//! batching delay and the number of cores that serve, to read and to set. HTTP/1.1, spoken on the server's
//! own stack.
//!
//! ```text
//! GET /metrics          everything, as text for Prometheus
//! GET /batching-delay   W in microseconds
//! PUT /batching-delay   sets it: 0 to 10000
//! GET /cores            how many cores serve
//! PUT /cores            how many are to: 0 for all
//! GET /governor         on, or off: whether what a governor chooses is set
//! PUT /governor         holds the working point, or lets the governor have it again
//! GET /grid             which scheduler stands where, and on what terms activities are served
//! PUT /grid             changes what it names of that
//! ```

mod http;
mod metrics;
mod snapshot;

pub(crate) use snapshot::Snapshot;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use crossbeam_queue::ArrayQueue;
use http::{Method, Request, Response};
use nom_grid::{BadGrid, GridPlan};
use nom_net::batch::DELAY_MAX;
use nom_port::buffer::{Buffer, Sink as _, Slice};
use nom_rt::handle::Handle;
use nom_service::Window;
use nom_service::{Reply, Rules};
use nom_service::{Service, Stream};

/// What the servers of one application, each on its core, share of their control port: whichever of them a
/// connection reaches speaks for all.
pub struct Control {
    port: u16,
    /// Orders so far, of either kind.
    orders: AtomicU32,
    /// The last batching delay ordered, in microseconds.
    delay: Ordered,
    /// The last number of cores ordered.
    cores: Ordered,
    /// Whether the governor was to be held: 1, or let go: 0.
    hold: Ordered,
    /// What each server has yet to hear of the grid: the last that was ordered.
    grids: Box<[ArrayQueue<Arc<GridPlan>>]>,
    /// Cores that serve, and whether others can be ordered.
    serving: AtomicU32,
    is_lent: AtomicBool,
    /// What each server said last.
    reports: Box<[ArrayQueue<Arc<Snapshot>>]>,
}

/// A number that was ordered, above the number of the order.
#[derive(Debug, Default)]
struct Ordered(AtomicU64);

/// Bits of [`Ordered`] that are the number itself.
const VALUE_BITS: u32 = 32;

impl Ordered {
    fn set(&self, value: u32) {
        let next = |order: u64| ((order >> VALUE_BITS) + 1) << VALUE_BITS | u64::from(value);
        // Nothing else is published by it.
        self.0.update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    /// The number that was ordered last; 0 if none was.
    fn last(&self) -> u32 {
        self.0.load(Ordering::Relaxed) as u32
    }

    /// The number, if it was ordered after the order `seen`, which it becomes.
    fn after(&self, seen: &mut u64) -> Option<u32> {
        let order = self.0.load(Ordering::Relaxed);
        (core::mem::replace(seen, order) != order).then_some(order as u32)
    }
}

/// What somebody has ordered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Order {
    pub delay: Option<Duration>,
    /// 0 for all.
    pub cores: Option<u16>,
    /// Whether the governor is held.
    pub hold: Option<bool>,
    pub grid: Option<Arc<GridPlan>>,
}

impl Control {
    /// The control port of as many servers as there are `cores`.
    pub fn new(port: u16, cores: usize) -> Arc<Control> {
        let cores = cores.max(1);
        Arc::new(Control {
            port,
            orders: AtomicU32::new(0),
            delay: Ordered::default(),
            cores: Ordered::default(),
            hold: Ordered::default(),
            grids: (0..cores).map(|_| ArrayQueue::new(1)).collect(),
            serving: AtomicU32::new(cores as u32),
            is_lent: AtomicBool::new(false),
            reports: (0..cores).map(|_| ArrayQueue::new(1)).collect(),
        })
    }

    /// The TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Lets all servers carry out an order.
    fn order(&self, ordered: &Ordered, value: u32) {
        ordered.set(value);
        // Who sees this sees the order.
        self.orders.fetch_add(1, Ordering::Release);
    }

    /// Cores can be given back and taken again from now on.
    pub(crate) fn lend(&self) {
        self.is_lent.store(true, Ordering::Relaxed);
    }

    /// So many cores serve from now on.
    pub(crate) fn set_serving(&self, cores: u16) {
        self.serving.store(cores.into(), Ordering::Relaxed);
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
        all.serving = self.serving.load(Ordering::Relaxed).into();
        all
    }
}

/// One server's end of the control port.
pub(crate) struct Desk {
    control: Arc<Control>,
    index: usize,
    handle: Handle,
    /// Orders that were carried out, and the last of each kind.
    orders: u32,
    delay: u64,
    cores: u64,
    hold: u64,
    /// What is asked of the grid at present, and the activities that there are, if they are told apart.
    plan: GridPlan,
    rules: Option<Arc<Rules>>,
    /// Whose users pay by a contract, by the activities' numbers.
    paid: Vec<bool>,
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
        let orders = control.orders.load(Ordering::Acquire);
        let mut desk = Desk {
            control,
            index,
            handle,
            orders,
            delay: 0,
            cores: 0,
            hold: 0,
            plan: GridPlan::default(),
            rules: None,
            paid: Vec::new(),
            window: Window::default(),
            told_ns: 0,
        };
        // What was ordered before is nothing new.
        desk.take_orders();
        desk
    }

    /// What the servers share.
    pub fn control(&self) -> &Control {
        &self.control
    }

    pub fn port(&self) -> u16 {
        self.control.port
    }

    /// What was ordered since the last call.
    #[inline]
    pub fn order(&mut self) -> Option<Order> {
        let orders = self.control.orders.load(Ordering::Acquire);
        (core::mem::replace(&mut self.orders, orders) != orders).then(|| self.take_orders())
    }

    fn take_orders(&mut self) -> Order {
        let delay = self.control.delay.after(&mut self.delay);
        let cores = self.control.cores.after(&mut self.cores);
        let hold = self.control.hold.after(&mut self.hold);
        Order {
            delay: delay.map(|micros| Duration::from_micros(micros.into())),
            cores: cores.map(|cores| cores as u16),
            hold: hold.map(|hold| hold == 1),
            grid: self.control.grids.get(self.index).and_then(ArrayQueue::pop),
        }
    }

    /// Whose users pay by a contract, by the activities' numbers.
    pub fn set_paid(&mut self, paid: Vec<bool>) {
        self.paid = paid;
    }

    /// The grid is as `plan` says from now on, for the activities of `rules`.
    pub fn set_plan(&mut self, plan: GridPlan, rules: Arc<Rules>) {
        (self.plan, self.rules) = (plan, Some(rules));
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
        self.publish(snapshot);
    }

    /// Its core leaves; what it counted stays.
    pub fn leave(&mut self, mut snapshot: Snapshot) {
        snapshot.add_loop(&self.handle);
        snapshot.set_away();
        self.publish(snapshot);
    }

    fn publish(&self, snapshot: Snapshot) {
        if let Some(report) = self.control.reports.get(self.index) {
            report.force_push(Arc::new(snapshot));
        }
    }

    /// Answers the requests of `input` that have come whole, behind what `out` has, and takes them out.
    pub fn respond(&mut self, input: &mut Vec<u8>, out: &mut Vec<u8>) -> Stream {
        loop {
            let (used, response) = match http::parse(input) {
                Ok(None) if input.len() <= REQUEST_MAX => return Stream::Open,
                Ok(None) => (input.len(), Response::too_large().closing()),
                Ok(Some(request)) if request.is_last => (request.len, self.answer(&request).closing()),
                Ok(Some(request)) => (request.len, self.answer(&request)),
                Err(why) => (input.len(), Response::bad_request(String::from(why)).closing()),
            };
            input.drain(..used);
            response.write(out);
            if response.closes() {
                return Stream::Close;
            }
        }
    }

    fn answer(&self, request: &Request<'_>) -> Response {
        match (request.path, &request.method) {
            ("/metrics", Method::Get) => Response::ok(metrics::TYPE, metrics::text(&self.control.gather())),
            ("/batching-delay", Method::Get) => self.delay(),
            ("/batching-delay", Method::Put) => self.set_delay(request.body),
            ("/cores", Method::Get) => Response::number(self.control.serving.load(Ordering::Relaxed)),
            ("/cores", Method::Put) => self.set_cores(request.body),
            ("/governor", Method::Get) => self.governor(),
            ("/governor", Method::Put) => self.hold(request.body),
            ("/grid", Method::Get) => Response::text(&alloc::format!("{}", self.plan)),
            ("/grid", Method::Put) => self.set_grid(request.body),
            ("/metrics", _) => Response::not_allowed("GET"),
            ("/batching-delay" | "/cores" | "/governor" | "/grid", _) => Response::not_allowed("GET, PUT"),
            (path, _) => Response::not_found(path, "/metrics, /batching-delay, /cores, /governor and /grid"),
        }
    }

    fn delay(&self) -> Response {
        Response::number(self.control.gather().delay_micros() as u32)
    }

    fn set_delay(&self, body: &[u8]) -> Response {
        let most = DELAY_MAX.as_micros() as u32;
        let Some(micros) = number(body, most) else {
            let body = body.escape_ascii();
            let why = alloc::format!("batching delay `{body}`: expected microseconds from 0 to {most}");
            return Response::bad_request(why);
        };
        self.control.order(&self.control.delay, micros);
        Response::number(micros)
    }

    fn governor(&self) -> Response {
        Response::text(WORDS[(self.control.hold.last() == 1) as usize])
    }

    fn hold(&self, body: &[u8]) -> Response {
        let word = WORDS.iter().position(|word| body.trim_ascii() == word.as_bytes());
        let Some(hold) = word else {
            let body = body.escape_ascii();
            return Response::bad_request(alloc::format!("governor `{body}`: expected on or off"));
        };
        self.control.order(&self.control.hold, hold as u32);
        self.governor()
    }

    fn set_grid(&self, body: &[u8]) -> Response {
        let Some(rules) = &self.rules else {
            return Response::conflict("grid: expected a server that tells activities apart");
        };
        let text = core::str::from_utf8(body).unwrap_or_default().trim_ascii();
        match self.changed(text, rules) {
            Ok(plan) => {
                let (said, plan) = (alloc::format!("{plan}"), Arc::new(plan));
                self.control.grids.iter().for_each(|grid| _ = grid.force_push(plan.clone()));
                self.control.orders.fetch_add(1, Ordering::Release);
                Response::text(&said)
            }
            Err(why) => Response::bad_request(alloc::format!("grid: {why}")),
        }
    }

    /// The plan with a change that can be followed here.
    fn changed(&self, text: &str, rules: &Rules) -> Result<GridPlan, BadGrid> {
        let plan = self.plan.changed(text)?;
        plan.check_names(rules.names())?;
        let is_paid = |name: &str| rules.names().zip(&self.paid).any(|(own, paid)| own == name && *paid);
        plan.check_contracts(is_paid)?;
        Ok(plan)
    }

    fn set_cores(&self, body: &[u8]) -> Response {
        let control = &self.control;
        let most = control.reports.len().min(u16::MAX.into()) as u32;
        let Some(cores) = number(body, most) else {
            let body = body.escape_ascii();
            return Response::bad_request(alloc::format!(
                "cores `{body}`: expected a number from 0 to {most}"
            ));
        };
        if !control.is_lent.load(Ordering::Relaxed) {
            return Response::conflict("cores: expected a server whose cores can be given back");
        }
        control.order(&control.cores, cores);
        Response::number(cores)
    }
}

/// Words for a governor that is let go, and for one that is held.
const WORDS: [&str; 2] = ["on", "off"];

/// The number up to `most` that a body is.
fn number(body: &[u8], most: u32) -> Option<u32> {
    let digits = core::str::from_utf8(body).unwrap_or_default().trim_ascii();
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|number| is_number && *number <= most)
}

impl<B: Buffer> Service<B> for Desk {
    /// Bytes of a request that has not come whole.
    type Connection = Vec<u8>;

    const IS_TIMED: bool = false;

    fn connected(&mut self, _: SocketAddr, _: &mut Reply<B>) -> Option<Vec<u8>> {
        Some(Vec::new())
    }

    fn received(&mut self, input: &mut Vec<u8>, bytes: Slice<B>, reply: &mut Reply<B>) -> Stream {
        input.extend_from_slice(&bytes);
        let mut answers = Vec::new();
        let stream = self.respond(input, &mut answers);
        reply.copy(&answers);
        stream
    }
}

#[cfg(test)]
mod tests;
