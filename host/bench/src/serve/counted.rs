//! The runs in which nothing is timed: what one request costs in counts.

use super::counts::{Counters, Counts};
use super::guests::Provider;
use super::load::{self, Load};
use super::running::Running;
use super::runs::{MESSAGE_BYTES_MAX, Runs, Scenario, WARM_UP, patiently, scenarios, store};
use super::service;
use super::tools;
use crate::machine::Setting;
use crate::record::Unit;
use anyhow::Result;
use nom_vmm::Accelerator;
use std::path::Path;
use std::time::Duration;

/// A guest that is counted, and its counters.
struct Counted<'a> {
    provider: &'a Provider,
    running: Running,
    counters: Counters,
}

impl Runs {
    /// Counts what one request costs, by QEMU's plugin in the file `plugin`.
    pub fn count(&mut self, provider: &Provider, plugin: &Path) -> Result<()> {
        let directory = tempfile::tempdir()?;
        let counters = Counters::new(directory.path());
        // Only QEMU's translator can count.
        let setting = Setting { accelerator: Accelerator::Tcg, ..self.serving() };
        let running = self.start(provider, setting, &counters.arguments(plugin))?;
        if provider.service.application == service::MEMCACHED.application {
            store(&running)?;
        }
        let mut counted = Counted { provider, running, counters };
        if provider.service.name == service::NETPIPE.name {
            return self.count_messages(&mut counted);
        }
        scenarios(provider.service)
            .iter()
            .try_for_each(|scenario| self.count_scenario(&mut counted, scenario))
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
        let before = counted.counters.now()?;
        let requests = if is_http {
            self.wrk(&counted.running, scenario.connections)?.requests
        } else {
            counted.running.inside(|| load::run(&load(self.duration)))?.replies()
        };
        let counts = counted.counters.now()?.since(before);
        self.push_counts(counted.provider, scenario.name, counts, requests);
        Ok(())
    }

    /// Counts what each of NetPIPE's messages costs, there and back.
    fn count_messages(&mut self, counted: &mut Counted) -> Result<()> {
        let Counted { provider, running, counters } = counted;
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
            tools::netpipe(running.namespace(), running.scratch(), running.target(), MESSAGE_BYTES_MAX, watch)
        })?;
        for (bytes, counts) in of_sizes {
            self.push_counts(provider, &format!("bytes-{bytes}"), counts, tools::NETPIPE_ROUND_TRIPS);
        }
        Ok(())
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
