//! The runs of the serve bench, and what is read from them.

use super::guests::Provider;
use super::load::{self, Exchange, Load, Served, Transport};
use super::processors::Processors;
use super::running::Running;
use super::service::{self, Service};
use super::summary;
use super::tools;
use crate::machine::Setting;
use crate::record::{Key, Record, Samples, Unit};
use crate::report::Notes;
use crate::search::smallest;
use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use nom_vmm::{Accelerator, Allocation};
use std::time::{Duration, Instant};

/// Memory of every run but those that search for the smallest.
const ENOUGH_BYTES: u64 = 256 << 20;
/// No guest takes longer to its first reply, even on a slow machine without KVM, and counted.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// A guest that cannot start for want of memory hangs; one that can takes about as long as with more.
const SLOWER_IN_LITTLE_MEMORY: u32 = 3;
/// For how long a load is not counted at first.
pub(super) const WARM_UP: Duration = Duration::from_millis(500);
/// How many connections are many.
const MANY: usize = 16;
/// How many requests each of many sockets of datagrams has on its way: with twice as many, Debian's memcached
/// loses some.
const DEPTH: usize = 4;
/// How long a server takes at most to start anew, and how long to wait before it is tried again.
const RESTART: Duration = Duration::from_secs(5);
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(200);
/// NetPIPE's largest message.
pub(super) const MESSAGE_BYTES_MAX: u32 = 64 << 10;

/// Of a machine whose service is measured.
pub(crate) fn serving(accelerator: Accelerator) -> Setting {
    Setting {
        accelerator,
        counts_instructions: false,
        memory_bytes: ENOUGH_BYTES,
        allocation: Allocation::Immediate,
        timeout: START_TIMEOUT,
    }
}

/// How a service is loaded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scenario {
    pub name: &'static str,
    transport: Transport,
    pub connections: usize,
    /// See [`Load::window`].
    window: usize,
}

impl Scenario {
    const fn new(name: &'static str, transport: Transport, connections: usize, window: usize) -> Scenario {
        Scenario { name, transport, connections, window }
    }

    /// What a client of memcached is to do in it.
    pub fn load<'a>(&self, running: &Running, exchanges: &'a [Exchange], duration: Duration) -> Load<'a> {
        let Scenario { transport, connections, window, .. } = *self;
        let (target, qemu) = (running.target(), Some(running.process_id()));
        Load { target, transport, connections, window, exchanges, qemu, warm_up: WARM_UP, duration }
    }
}

const SCENARIOS: [Scenario; 5] = [
    Scenario::new("tcp-many", Transport::Tcp, MANY, 1),
    Scenario::new("tcp-single", Transport::Tcp, 1, 1),
    Scenario::new("udp-many", Transport::Udp, MANY, DEPTH),
    Scenario::new("udp-16", Transport::Udp, MANY, 1),
    Scenario::new("udp-single", Transport::Udp, 1, 1),
];

/// Those of streams, and those of datagrams.
const TCP: &[Scenario] = SCENARIOS.split_at(2).0;
const UDP: &[Scenario] = SCENARIOS.split_at(2).1;

/// The loads under which batching delays are tried.
pub(super) const SWEPT: [Scenario; 4] = [
    SCENARIOS[1],
    Scenario::new("tcp-4", Transport::Tcp, 4, 1),
    SCENARIOS[0],
    Scenario::new("tcp-64", Transport::Tcp, 64, 1),
];

/// The ways in which clients other than NetPIPE load a service.
pub(super) fn scenarios(service: &Service) -> &'static [Scenario] {
    match service.name {
        "memcached" => &SCENARIOS,
        "packet-api" => UDP,
        "http" => TCP,
        _ => &[],
    }
}

/// Of those the one that shows whether a service gains by a second processor.
pub(super) fn widest(service: &Service) -> Option<&'static Scenario> {
    scenarios(service).first()
}

/// Metrics of latency, in the order of wrk's figures.
const LATENCIES: [&str; 5] = ["latency_mean", "jitter", "latency_p50", "latency_p99", "latency_p99_9"];

/// All runs so far.
#[derive(Debug)]
pub struct Runs {
    accelerator: Accelerator,
    pub(super) duration: Duration,
    samples: Samples,
    notes: Notes,
    progress: ProgressBar,
}

impl Runs {
    /// No runs yet; each load is to take `duration`.
    pub fn new(accelerator: Accelerator, duration: Duration) -> Runs {
        let style =
            ProgressStyle::with_template("{spinner} {elapsed} {msg}").expect("a well-formed template");
        let progress = ProgressBar::new_spinner().with_style(style);
        Runs {
            accelerator,
            duration,
            samples: Samples::new(summary::EXPERIMENT),
            notes: Notes::default(),
            progress,
        }
    }

    /// What was measured, and what a reader must know of it.
    pub fn records(self) -> (Vec<Record>, Notes) {
        self.progress.finish_and_clear();
        (self.samples.records(), self.notes)
    }

    /// Starts a provider once and notes when it answers.
    pub fn start_up(&mut self, provider: &Provider) -> Result<()> {
        let first_reply = self.start(provider, self.starting(), &[])?.first_reply;
        self.push(provider, "start", "time_to_first_reply", Unit::Seconds, first_reply.as_secs_f64());
        Ok(())
    }

    /// Starts a provider once and has clients load it in every way.
    pub fn serve(&mut self, provider: &Provider) -> Result<()> {
        let running = self.start(provider, self.serving(), &[])?;
        let scenarios = scenarios(provider.service);
        match provider.service.name {
            "memcached" => {
                self.memcached(provider, &running, scenarios, "")?;
                self.memcaslap(provider, &running, Transport::Tcp)
            }
            "packet-api" => {
                self.memcached(provider, &running, scenarios, "")?;
                self.memcaslap(provider, &running, Transport::Udp)
            }
            "http" => self.http(provider, &running, scenarios),
            "netpipe" | "netpipe-both-ways" => self.netpipe(provider, &running),
            other => bail!("no client for the service {other}"),
        }
    }

    /// Loads a provider on several processors by many connections; nothing if its service has no such load.
    pub fn serve_wide(&mut self, provider: &Provider) -> Result<()> {
        let Some(scenario) = widest(provider.service) else { return Ok(()) };
        let running = self.start(provider, self.serving(), &[])?;
        let scenarios = std::slice::from_ref(scenario);
        match provider.service.name {
            "http" => self.http(provider, &running, scenarios),
            _ => self.memcached(provider, &running, scenarios, ""),
        }
    }

    /// Loads nom's memcached with the batching delay `delay_us` by few and by many connections.
    pub fn serve_delayed(&mut self, provider: &Provider, delay_us: u32) -> Result<()> {
        let running = self.start(provider, self.serving(), &[])?;
        self.memcached(provider, &running, &SWEPT, &delayed(delay_us))
    }

    fn memcached(
        &mut self,
        provider: &Provider,
        running: &Running,
        scenarios: &[Scenario],
        suffix: &str,
    ) -> Result<()> {
        let gets = service::gets();
        store(running)?;
        for scenario in scenarios {
            let name = format!("{}{suffix}", scenario.name);
            self.say(provider, &name);
            let load = scenario.load(running, &gets, self.duration);
            let served = running.inside(|| load::run(&load)).context(name.clone())?;
            self.push_served(provider, &name, &served);
        }
        Ok(())
    }

    /// Adds replies a second. If there were none, that is noted, and `false`: no latency is known, and
    /// nothing can be compared with it.
    fn push_throughput(&mut self, provider: &Provider, scenario: &str, value: f64) -> bool {
        self.push(provider, scenario, "throughput", Unit::PerSecond, value);
        let is_served = value > 0.0;
        if !is_served {
            let Provider { system, service, guest, .. } = provider;
            let (name, scenario) = (service.name, on(guest.cores, scenario));
            self.notes
                .add(format!("{system} gave no reply at all to {name}, {scenario}: no latency, no ratio."));
        }
        is_served
    }

    fn push_served(&mut self, provider: &Provider, scenario: &str, served: &Served) {
        let nanoseconds = &served.latency;
        let at = |quantile| nanoseconds.value_at_quantile(quantile) as f64;
        let latencies = [nanoseconds.mean(), nanoseconds.stdev(), at(0.5), at(0.99), at(0.999)];
        if !self.push_throughput(provider, scenario, served.throughput()) {
            return;
        }
        for (metric, value) in LATENCIES.iter().zip(latencies) {
            self.push(provider, scenario, metric, Unit::Seconds, value / 1e9);
        }
        let Processors { guest, monitor, client } = served.processors;
        let of = [("guest_time_per_request", guest), ("monitor_time_per_request", monitor)];
        for (metric, time) in of.into_iter().chain([("client_time_per_request", client)]) {
            let each = time.as_secs_f64() / served.replies() as f64;
            self.push(provider, scenario, metric, Unit::Seconds, each);
        }
        if scenario.starts_with("udp") {
            self.push(provider, scenario, "lost", Unit::Count, served.lost as f64);
        }
    }

    fn memcaslap(&mut self, provider: &Provider, running: &Running, transport: Transport) -> Result<()> {
        for (scenario, connections) in [("memcaslap-many", MANY), ("memcaslap-single", 1)] {
            self.say(provider, scenario);
            let (namespace, target) = (running.namespace(), running.target());
            let throughput = tools::memcaslap(namespace, target, transport, connections, self.duration)?;
            self.push_throughput(provider, scenario, throughput);
        }
        Ok(())
    }

    fn http(&mut self, provider: &Provider, running: &Running, scenarios: &[Scenario]) -> Result<()> {
        for Scenario { name, connections, .. } in scenarios {
            self.say(provider, name);
            let figures = self.wrk(running, *connections)?;
            if !self.push_throughput(provider, name, figures.throughput) {
                continue;
            }
            for (metric, value) in LATENCIES.iter().zip(figures.latency) {
                self.push(provider, name, metric, Unit::Seconds, value);
            }
        }
        Ok(())
    }

    pub(super) fn wrk(&self, running: &Running, connections: usize) -> Result<tools::WrkFigures> {
        tools::wrk(running.namespace(), running.scratch(), running.target(), connections, self.duration)
    }

    fn netpipe(&mut self, provider: &Provider, running: &Running) -> Result<()> {
        self.say(provider, "messages");
        let messages = patiently(|| {
            let (watch, both) = (|_: u32, _: bool| Ok(()), provider.service.arguments);
            let (namespace, target) = (running.namespace(), running.target());
            tools::netpipe(namespace, running.scratch(), target, both, MESSAGE_BYTES_MAX, watch)
        })?;
        for message in messages {
            let scenario = format!("bytes-{}", message.bytes);
            self.push(provider, &scenario, "throughput", Unit::BitsPerSecond, message.bits_per_second);
            self.push(provider, &scenario, "latency_mean", Unit::Seconds, message.seconds);
        }
        Ok(())
    }

    /// Notes the size of memcached's files, and searches for the smallest memory in which it answers.
    pub fn sizes(&mut self, provider: &Provider) -> Result<()> {
        self.push(provider, "start", "image_size", Unit::Bytes, provider.image_bytes as f64);
        let usual = self.start(provider, self.starting(), &[])?.first_reply;
        let timeout = usual * SLOWER_IN_LITTLE_MEMORY + Duration::from_secs(1);
        let step = provider.memory_step_bytes;
        let too_few = nom_vmm::config::MEMORY_BYTES.start() / step - 1;
        let steps = smallest(too_few, ENOUGH_BYTES / step, |steps| {
            let setting = Setting { memory_bytes: steps * step, timeout, ..self.starting() };
            Ok(self.start(provider, setting, &[]).is_ok())
        })?;
        self.push(provider, "start", "smallest_memory", Unit::Bytes, (steps * step) as f64);
        Ok(())
    }

    pub(super) fn start(
        &self,
        provider: &Provider,
        setting: Setting,
        arguments: &[String],
    ) -> Result<Running> {
        self.say(provider, &format!("start in {} KiB", setting.memory_bytes >> 10));
        Running::start(&provider.guest, provider.service, &setting, arguments)
    }

    /// Of a machine whose service is measured.
    pub(super) fn serving(&self) -> Setting {
        serving(self.accelerator)
    }

    /// Of a machine whose start is measured: the time to take memory that nobody needs would count in it.
    fn starting(&self) -> Setting {
        Setting { allocation: Allocation::OnDemand, ..self.serving() }
    }

    pub(super) fn say(&self, provider: &Provider, what: &str) {
        self.progress.set_message(format!("{} {}: {what}", provider.system, provider.service.name));
        self.progress.tick();
    }

    /// Adds a value; on several processors the scenario says on how many.
    pub(super) fn push(&mut self, provider: &Provider, scenario: &str, metric: &str, unit: Unit, value: f64) {
        let Service { name: application, .. } = *provider.service;
        let scenario = on(provider.guest.cores, scenario);
        let (system, metric) = (provider.system.into(), metric.into());
        self.samples.push(Key { system, application, scenario, metric, unit }, value);
    }
}

/// The name of a scenario on so many processors.
pub(super) fn on(cores: u32, scenario: &str) -> String {
    match cores {
        1 => scenario.into(),
        cores => format!("{scenario}-on-{cores}"),
    }
}

/// Stores every value that is asked for later.
pub(super) fn store(running: &Running) -> Result<()> {
    let target = running.target();
    running.inside(|| load::once(target, &service::sets())).context("storing the values")
}

/// NetPIPE's server serves one client and is started anew, so the next one may come too early.
pub(crate) fn patiently<T>(mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let started = Instant::now();
    loop {
        match attempt() {
            Err(_) if started.elapsed() < RESTART => std::thread::sleep(BETWEEN_ATTEMPTS),
            result => return result,
        }
    }
}

/// What follows the scenario's name when the batching delay was set.
pub fn delayed(delay_us: u32) -> String {
    format!("-w-{delay_us}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Guest;
    use hdrhistogram::Histogram;

    #[test]
    fn a_load_without_replies_is_noted_and_has_no_latency() {
        let served = |replies: u64| {
            let mut latency = Histogram::new(3).unwrap();
            (0..replies).for_each(|_| latency.record(1000).unwrap());
            let (elapsed, processors) = (Duration::from_secs(1), Processors::default());
            Served { elapsed, latency, lost: 0, processors }
        };
        let arguments = String::new();
        let guest = Guest { kernel: "image".into(), initramfs: None, arguments, cores: 2 };
        let provider = Provider {
            system: "nom",
            service: &service::MEMCACHED,
            guest,
            image_bytes: 0,
            memory_step_bytes: 1,
            programs: None,
        };
        let mut runs = Runs::new(Accelerator::Tcg, Duration::from_secs(1));
        runs.push_served(&provider, "tcp-many", &served(0));
        runs.push_served(&provider, "tcp-single", &served(7));
        let (records, notes) = runs.records();
        let of = |scenario: &str| records.iter().filter(|record| record.scenario == scenario).count();
        assert_eq!((of("tcp-many-on-2"), of("tcp-single-on-2")), (1, 1 + LATENCIES.len() + 3));
        let expected = "nom gave no reply at all to memcached, tcp-many-on-2: no latency, no ratio.";
        assert_eq!(notes.into_vec(), [expected]);
    }

    #[test]
    fn failure_at_first_is_forgiven() {
        let mut calls = 0;
        let second = patiently(|| {
            calls += 1;
            if calls == 1 { bail!("too early") } else { Ok(calls) }
        });
        assert_eq!(second.unwrap(), 2);
    }
}
