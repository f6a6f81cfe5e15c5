//! A server in a closed loop that the real governor governs: clients wait for an answer each, the server
//! responds as `nom_economy_sim` says, and a board posts prices. Not every test uses everything.
#![allow(dead_code)]

pub mod estate;

use nom_abi::priced::{Report, Solvency};
use nom_abi::prices::{PriceEntry, PriceList, PriceSource, PricedResource};
use nom_earn::{Audience, Earner, Held, PriceBoard, Settings};
use nom_economy::prices::Refusal;
use nom_economy::response::Response;
use nom_economy_sim::{Noise, Random, Server};
use nom_service::Latency;
use nom_service::{Governor, Setting, Window};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A board that a test posts on, lies too.
#[derive(Clone, Default)]
pub struct Board(Rc<(Cell<u32>, Cell<PriceList>)>);

impl Board {
    pub fn post(&self, resource: PricedResource, dollars: f64, since_ns: u64) {
        let (sequence, posted) = &*self.0;
        let mut all = posted.get();
        all.revision += 1;
        let source = PriceSource::Provider;
        all.set(PriceEntry { resource, source, dollars, since_ns, confirmed_ns: since_ns });
        posted.set(all);
        sequence.set(sequence.get() + 1);
    }
}

impl PriceBoard for Board {
    fn sequence(&self) -> u32 {
        self.0.0.get()
    }

    fn read(&self) -> Option<PriceList> {
        Some(self.0.1.get())
    }
}

/// Whatever was said.
#[derive(Clone, Default)]
pub struct Heard(Rc<RefCell<Said>>);

#[derive(Default)]
struct Said {
    reports: Vec<Report>,
    refusals: Vec<Refusal>,
    solvency: Option<Solvency>,
}

impl Heard {
    pub fn reports(&self) -> Vec<Report> {
        self.0.borrow().reports.clone()
    }

    /// What was said last of whether it pays.
    pub fn solvency(&self) -> Solvency {
        self.0.borrow().solvency.expect("it has reported")
    }

    pub fn refusals(&self) -> usize {
        self.0.borrow().refusals.len()
    }
}

impl Audience for Heard {
    fn report(&mut self, report: &Report, solvency: &Solvency) {
        let mut heard = self.0.borrow_mut();
        heard.reports.push(*report);
        heard.solvency = Some(*solvency);
    }

    fn refused(&mut self, refusal: &Refusal) {
        self.0.borrow_mut().refusals.push(*refusal);
    }
}

pub fn settings(variables: &[(&str, &'static str)]) -> Settings {
    let var = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    Settings::from_environment(var).expect("good").expect("there is a contract")
}

pub fn earner(variables: &[(&str, &'static str)]) -> (Earner<Board, Heard>, Board, Heard) {
    let (board, heard) = (Board::default(), Heard::default());
    let held = || Held { cores: 1, memory_bytes: 64 << 20 };
    (Earner::new(settings(variables), board.clone(), heard.clone(), held), board, heard)
}

/// A server of the paper's speed (nom, VEE'16, Table 1) that gains much by batching under many clients.
pub fn server() -> Server {
    Server {
        request: 10e-6,
        batch: 15e-6,
        crowding: 0.2e-6,
        wire: 40e-6,
        waiting: 1.0,
        idle_jitter: 0.1,
        queue_jitter: 0.2,
        tail: 1.2,
        ripple: (0.0, 0.0),
        bytes: 1000.0,
        unheld: 1.0,
    }
}

/// The loop.
pub struct World {
    pub earner: Earner<Board, Heard>,
    pub board: Board,
    pub heard: Heard,
    pub now_ns: u64,
    noise: Noise,
    random: Random,
}

impl World {
    pub fn new(variables: &[(&str, &'static str)], seed: u64) -> World {
        let (earner, board, heard) = earner(variables);
        let noise = Noise::new(0.02, 0.3, 0.002);
        World { earner, board, heard, now_ns: 0, noise, random: Random::new(seed) }
    }

    pub fn truth(clients: f64, setting: Setting) -> Response {
        server().response(clients, setting.batching_delay.as_micros() as u32, 1.0)
    }

    /// So many windows.
    pub fn windows(&mut self, count: u32, clients: f64) {
        for _ in 0..count {
            self.window(clients);
        }
    }

    /// One window with so many clients, as far as they are admitted; returns how the server truly responded.
    pub fn window(&mut self, clients: f64) -> Response {
        let (setting, length_ns) = (self.earner.setting(), self.earner.window_ns());
        let clients = clients.min(setting.clients_max.map_or(f64::INFINITY, f64::from));
        if clients == 0.0 {
            return self.idle(setting);
        }
        let truth = World::truth(clients, setting);
        let seconds = length_ns as f64 / 1e9;
        let measured = self.noise.observe(&truth, seconds, &mut self.random);
        let (response, nanoseconds) = (measured.response, |seconds: f64| (seconds * 1e9) as u64);
        let bytes = |gbit: f64| (gbit * seconds * 1e9 / 8.0) as u64;
        let window = Window {
            from_ns: self.now_ns,
            to_ns: self.now_ns + length_ns,
            requests: (response.throughput.get() * seconds) as u64,
            answered_bytes: bytes(response.answered.get()),
            sent_bytes: bytes(response.sent.get()),
            received_bytes: bytes(response.received.get()),
            clients: clients as u32,
            latency: Latency {
                mean_ns: nanoseconds(response.latency.mean().get()),
                jitter_ns: nanoseconds(response.latency.jitter().get()),
                p99_ns: nanoseconds(response.latency.p99().get()),
            },
            waited_ns: 0,
            service: Latency::default(),
            setting,
            is_overridden: false,
        };
        self.now_ns += length_ns;
        self.earner.observe(&window);
        truth
    }

    /// A second in which nobody was admitted.
    fn idle(&mut self, setting: Setting) -> Response {
        let (from_ns, to_ns) = (self.now_ns, self.now_ns + 1_000_000_000);
        self.now_ns = to_ns;
        self.earner.observe(&Window { from_ns, to_ns, setting, ..Window::default() });
        World::truth(1.0, setting)
    }
}
