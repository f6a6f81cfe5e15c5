//! The runs in which nothing is timed: what one request costs in counts.

use super::counts::{Counters, Counts};
use super::guests::Provider;
use super::load::{self, Load};
use super::parts::{self, Executed};
use super::running::Running;
use super::runs::{self, MESSAGE_BYTES_MAX, Runs, Scenario, WARM_UP, patiently, scenarios, store};
use super::service;
use super::tools;
use super::visits::{self, Visits};
use crate::machine::Setting;
use crate::record::Unit;
use anyhow::{Result, ensure};
use nom_vmm::Accelerator;
use std::path::Path;
use std::time::Duration;

/// The scenario in which a connection carries one request.
const VISITS: &str = "visits";
/// Visitors that are counted: no more than memcached lets in at a time (`-c`), for they come faster than they
/// are served, so that the machine does not sleep between them.
const VISITORS: usize = 900;
const VISITS_PER_SECOND: u32 = 5_000;

/// What counts, and where details are written.
#[derive(Clone, Copy, Debug)]
pub struct Counting<'a> {
    /// QEMU's plugin.
    pub plugin: &'a Path,
    /// Directory of what is told of each scenario's instructions.
    pub out: &'a Path,
}

/// A guest that is counted, and its counters.
struct Counted<'a> {
    provider: &'a Provider,
    counting: Counting<'a>,
    running: Running,
    counters: Counters,
}

impl Runs {
    /// Counts what one request by many connections costs on a machine of several processors; nothing if the
    /// service has no such load.
    pub fn count_wide(&mut self, provider: &Provider, counting: Counting<'_>) -> Result<()> {
        let Some(scenario) = runs::widest(provider.service) else { return Ok(()) };
        let directory = tempfile::tempdir()?;
        let mut counted = self.start_counted(provider, counting, directory.path())?;
        self.count_scenario(&mut counted, scenario)
    }

    /// Starts a guest that counts in `directory`, and stores what it is asked for.
    fn start_counted<'a>(
        &mut self,
        provider: &'a Provider,
        counting: Counting<'a>,
        directory: &Path,
    ) -> Result<Counted<'a>> {
        let counters = Counters::new(directory);
        // Only QEMU's translator can count.
        let setting = Setting { accelerator: Accelerator::Tcg, ..self.serving() };
        let running = self.start(provider, setting, &counters.arguments(counting.plugin))?;
        if provider.service.application == service::MEMCACHED.application {
            store(&running)?;
        }
        Ok(Counted { provider, counting, running, counters })
    }

    /// Counts what one request costs.
    pub fn count(&mut self, provider: &Provider, counting: Counting<'_>) -> Result<()> {
        let directory = tempfile::tempdir()?;
        let mut counted = self.start_counted(provider, counting, directory.path())?;
        if provider.service.application == service::NETPIPE.application {
            return self.count_messages(&mut counted);
        }
        scenarios(provider.service)
            .iter()
            .try_for_each(|scenario| self.count_scenario(&mut counted, scenario))?;
        if provider.service.name == service::MEMCACHED.name {
            self.count_visits(&mut counted)
        } else {
            Ok(())
        }
    }

    /// Counts what a visitor costs: to open a connection, to answer one question, to close.
    fn count_visits(&mut self, counted: &mut Counted) -> Result<()> {
        self.say(counted.provider, &format!("{VISITS}, counted"));
        let gets = service::gets();
        let (target, rate) = (counted.running.target(), VISITS_PER_SECOND);
        let visits = |count| Visits { target, exchange: &gets[0], rate, count };
        // Code is translated, and caches are warm, before anything counts.
        counted.running.inside(|| visits::run(&visits(VISITORS / 10)))?;
        let listed = counted.counters.executed()?;
        let before = counted.counters.now()?;
        let visited = counted.running.inside(|| visits::run(&visits(VISITORS)))?;
        ensure!(visited.answered == VISITORS, "not all visitors were answered: {visited:?}");
        let counts = counted.counters.now()?.since(before);
        self.push_counts(counted.provider, VISITS, counts, VISITORS as u64);
        let executed = counted.counters.executed()?.since(&listed);
        self.push_parts(counted, VISITS, &executed, VISITORS as u64)
    }

    fn count_scenario(&mut self, counted: &mut Counted, scenario: &Scenario) -> Result<()> {
        self.say(counted.provider, &format!("{}, counted", scenario.name));
        let gets = service::gets();
        let load = scenario.load(&counted.running, &gets, self.duration);
        let load = |duration| Load { warm_up: Duration::ZERO, duration, ..load };
        let is_http = counted.provider.service.name == service::HTTP.name;
        if !is_http {
            // Code is translated, and caches are warm, before anything counts.
            counted.running.inside(|| load::run(&load(WARM_UP)))?;
        }
        let listed = counted.counters.executed()?;
        let (before, paused) = (counted.counters.now()?, counted.counters.pauses()?);
        let requests = if is_http {
            self.wrk(&counted.running, scenario.connections)?.requests
        } else {
            counted.running.inside(|| load::run(&load(self.duration)))?.replies()
        };
        let counts = counted.counters.now()?.since(before);
        self.push_counts(counted.provider, scenario.name, counts, requests);
        let polling = counted.counters.pauses()?.since(&paused).polling();
        self.push_polling(counted.provider, scenario.name, (counts.instructions, polling), requests);
        let executed = counted.counters.executed()?.since(&listed);
        self.push_parts(counted, scenario.name, &executed, requests)
    }

    /// Adds in which parts the instructions of a request were spent, and how many locked memory.
    fn push_parts(
        &mut self,
        counted: &Counted<'_>,
        scenario: &str,
        executed: &Executed,
        requests: u64,
    ) -> Result<()> {
        let provider = counted.provider;
        let each = |count: u64| count as f64 / requests.max(1) as f64;
        self.push(provider, scenario, "locked_per_request", Unit::Instructions, each(executed.locked()));
        let Some(programs) = &provider.programs else { return Ok(()) };
        let parts = programs.parts(executed)?;
        for (part, count) in parts.sums() {
            self.push(provider, scenario, &parts::metric(part), Unit::Instructions, each(count));
        }
        let scenario = runs::on(provider.guest.cores, scenario);
        parts.save(counted.counting.out, &format!("{}-{scenario}", provider.service.name), requests)
    }

    /// Counts what each of NetPIPE's messages costs, there and back.
    fn count_messages(&mut self, counted: &mut Counted) -> Result<()> {
        let Counted { provider, running, counters, .. } = counted;
        self.say(provider, "messages, counted");
        let mut of_sizes: Vec<(u32, Counts)> = Vec::new();
        patiently(|| {
            let mut before = Counts::default();
            of_sizes.clear();
            let watch = |bytes: u32, is_over: bool| {
                let now = counters.now()?;
                if is_over {
                    of_sizes.push((bytes, now.since(before)));
                }
                before = now;
                Ok(())
            };
            let both = provider.service.arguments;
            let (namespace, target) = (running.namespace(), running.target());
            tools::netpipe(namespace, running.scratch(), target, both, MESSAGE_BYTES_MAX, watch)
        })?;
        for (bytes, counts) in of_sizes {
            self.push_counts(provider, &format!("bytes-{bytes}"), counts, tools::NETPIPE_ROUND_TRIPS);
        }
        Ok(())
    }

    /// Adds what of the instructions is turns of the loop that found nothing, and what is not: that does not
    /// depend on how long the computer lets a client be late. Linux does not poll.
    fn push_polling(&mut self, provider: &Provider, scenario: &str, counts: (u64, u64), requests: u64) {
        if provider.programs.is_none() {
            return;
        }
        let each = |count: u64| count as f64 / requests.max(1) as f64;
        let (all, polling) = counts;
        let metrics =
            [("polling_per_request", polling), ("instructions_without_polling", all.saturating_sub(polling))];
        for (metric, count) in metrics {
            self.push(provider, scenario, metric, Unit::Instructions, each(count));
        }
    }

    fn push_counts(&mut self, provider: &Provider, scenario: &str, counts: Counts, requests: u64) {
        let Counts { instructions, kicks, interrupts, exits } = counts;
        let each = |count: u64| count as f64 / requests.max(1) as f64;
        let metric = "instructions_per_request";
        self.push(provider, scenario, metric, Unit::Instructions, each(instructions));
        for (metric, count) in [
            ("kicks_per_request", kicks),
            ("interrupts_per_request", interrupts),
            ("exits_per_request", exits),
        ] {
            self.push(provider, scenario, metric, Unit::Count, each(count));
        }
    }
}
