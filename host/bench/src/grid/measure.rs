//! The measurements, each on a machine of its own.

use super::hostile::{Habit, flood};
use super::tenants::{CONTROL_PORT, TENANTS, Told, WARM_UP, ask, gets, many_gets, sets};
use super::{APPLICATION, Options};
use crate::machine::Setting;
use crate::record::{Key, Samples, Unit};
use crate::serve::counts::Counters;
use crate::serve::guests::Provider;
use crate::serve::load::{self, Served};
use crate::serve::running::Running;
use crate::serve::{runs, service};
use anyhow::{Result, anyhow};
use nom_vmm::Accelerator;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Connections of each tenant, where all have the same number; and where the one with the least weight has
/// the most. So many that some always wait at the server while a busy computer's clients have yet to ask
/// again: whose queue runs empty gets less than its weight, and has no claim to more.
const EQUAL: [usize; 3] = [48, 48, 48];
const UNEQUAL: [usize; 3] = [32, 48, 192];
/// Connections of a tenant who crowds: with those of the others no more than memcached lets in (`-c`).
const CROWD: usize = 800;
/// Connections of a tenant who wants little, beside others who want all.
const FEW: usize = 2;

/// How long instructions are counted.
const COUNTED: Duration = Duration::from_secs(1);

/// What is measured so far.
pub struct Bench<'a> {
    pub options: &'a Options,
    pub accelerator: Accelerator,
    pub samples: Samples,
}

impl Bench<'_> {
    fn push(&mut self, system: &str, scenario: &str, metric: &str, unit: Unit, value: f64) {
        self.push_of(APPLICATION, system, scenario, metric, unit, value);
    }

    /// A value of another application than most.
    pub(super) fn push_of(
        &mut self,
        application: &'static str,
        system: &str,
        scenario: &str,
        metric: &str,
        unit: Unit,
        value: f64,
    ) {
        let (system, scenario, metric) = (system.to_owned(), scenario.to_owned(), metric.to_owned());
        self.samples.push(Key { system, application, scenario, metric, unit }, value);
    }

    fn start(
        &self,
        provider: &Provider,
        what: &str,
        setting: &Setting,
        arguments: &[String],
    ) -> Result<Running> {
        eprintln!("{}: {what}", provider.system);
        let running = Running::start(&provider.guest, &service::MEMCACHED, setting, arguments)?;
        let target = running.target();
        running.inside(|| TENANTS.iter().try_for_each(|(tenant, _)| load::once(target, &sets(tenant))))?;
        Ok(running)
    }

    /// Whose the core's time was, with all asking for more than there is.
    pub fn shares(&mut self, provider: &Provider) -> Result<()> {
        let running = self.start(provider, "shares", &runs::serving(self.accelerator), &[])?;
        let (target, duration) = (running.target(), self.options.duration);
        for (scenario, connections) in [("equal", EQUAL), ("unequal", UNEQUAL)] {
            let loads: Vec<_> =
                TENANTS.iter().zip(connections).map(|((tenant, _), count)| (*tenant, count)).collect();
            for _ in 0..self.options.turns {
                let looks = || Told::look(target, CONTROL_PORT, duration);
                // Everybody asks a little longer than is looked at.
                let longer = duration + WARM_UP;
                let (served, (before, now)) =
                    running.inside(|| ask(target, &loads, many_gets, longer, looks))?;
                self.push_shares(provider.system, scenario, &served, &before, &now);
            }
        }
        Ok(())
    }

    fn push_shares(&mut self, system: &str, scenario: &str, served: &[Served], before: &Told, now: &Told) {
        let times = TENANTS.map(|(tenant, _)| now.of(before, "core_nanoseconds_total", tenant));
        self.push_shares_of((APPLICATION, system, scenario), times, before, now);
        for ((tenant, _), served) in TENANTS.iter().zip(served) {
            let throughput = served.throughput();
            self.push(system, scenario, &format!("throughput_{tenant}"), Unit::PerSecond, throughput);
        }
        self.push(system, scenario, "unaccounted", Unit::Ratio, now.unaccounted(before));
    }

    /// What part of all that tenants had each had, the worst of these against its weight, and how many of
    /// each waited.
    pub(super) fn push_shares_of(
        &mut self,
        (application, system, scenario): (&'static str, &str, &str),
        had: [f64; 3],
        before: &Told,
        now: &Told,
    ) {
        let mut push =
            |metric: &str, unit, value| self.push_of(application, system, scenario, metric, unit, value);
        let sum: f64 = had.iter().sum();
        let mut worst = 0.0f64;
        for ((tenant, weight), had) in TENANTS.iter().zip(had) {
            let share = had / sum;
            worst = worst.max((share / weight - 1.0).abs());
            push(&format!("share_{tenant}"), Unit::Ratio, share);
            let waiting = now.of(before, "queued_nanoseconds_total", tenant) / now.elapsed_ns(before);
            push(&format!("waiting_{tenant}"), Unit::Count, waiting);
        }
        push("worst_share_error", Unit::Ratio, worst);
        push("idle", Unit::Ratio, now.idle(before));
    }

    /// What gold and silver keep beside a hostile bronze, in turns with a peaceful one.
    pub fn hostile(&mut self, provider: &Provider) -> Result<()> {
        for habit in Habit::HOSTILE {
            // Each time another machine, and nobody comes before the last have gone: connections that end
            // while frames are lost take their time to, and their places are not the next tenant's fault.
            let what = format!("beside a hostile tenant: {}", habit.name());
            let running = self.start(provider, &what, &runs::serving(self.accelerator), &[])?;
            let target = running.target();
            for _ in 0..self.options.turns {
                let beside = |habit| {
                    running.inside(|| Told::wait_until_left(target, CONTROL_PORT))?;
                    self.beside(&running, habit)
                };
                let calm = beside(Habit::Peaceful)?;
                let beset = beside(habit)?;
                for (((tenant, _), calm), beset) in TENANTS.iter().zip(&calm).zip(&beset) {
                    let kept = beset.throughput() / calm.throughput().max(1.0);
                    let p99 = |served: &Served| served.latency.value_at_quantile(0.99) as f64;
                    let longer = p99(beset) / p99(calm).max(1.0);
                    let system = provider.system;
                    self.push(system, habit.name(), &format!("kept_{tenant}"), Unit::Ratio, kept);
                    self.push(system, habit.name(), &format!("p99_{tenant}"), Unit::Ratio, longer);
                }
            }
        }
        Ok(())
    }

    /// What gold and silver are served beside a bronze of this habit.
    fn beside(&self, running: &Running, habit: Habit) -> Result<Vec<Served>> {
        let (target, duration, is_over) = (running.target(), self.options.duration, AtomicBool::new(false));
        let bronze = TENANTS[2].0;
        let mut loads: Vec<_> = TENANTS[..2].iter().map(|(tenant, _)| (*tenant, EQUAL[0])).collect();
        match habit {
            Habit::Peaceful => loads.push((bronze, EQUAL[2])),
            Habit::Crowds => loads.push((bronze, CROWD)),
            Habit::Floods | Habit::NeverReads => {}
        }
        let is_flood = loads.len() < TENANTS.len();
        running.inside(|| {
            std::thread::scope(|scope| {
                let is_over = &is_over;
                let hostile = is_flood.then(|| scope.spawn(move || flood(target, bronze, habit, is_over)));
                let served = ask(target, &loads, many_gets, duration, || Ok(()));
                is_over.store(true, Relaxed);
                if let Some(hostile) = hostile {
                    hostile.join().map_err(|_| anyhow!("the hostile tenant panicked"))??;
                }
                Ok(served?.0)
            })
        })
    }

    /// How late gold is answered, who asks little, beside others who want more than there is.
    pub fn overload(&mut self, provider: &Provider) -> Result<()> {
        let running = self.start(provider, "overload", &runs::serving(self.accelerator), &[])?;
        let (target, duration) = (running.target(), self.options.duration);
        let loads = [("gold", FEW), ("silver", EQUAL[1]), ("bronze", UNEQUAL[2])];
        for _ in 0..self.options.turns {
            let (served, ()) = running.inside(|| ask(target, &loads, many_gets, duration, || Ok(())))?;
            for ((tenant, _), served) in loads.iter().zip(served) {
                let p99 = served.latency.value_at_quantile(0.99) as f64 * 1e-9;
                self.push(provider.system, "overload", &format!("p99_{tenant}"), Unit::Seconds, p99);
            }
        }
        Ok(())
    }

    /// What a request costs in instructions, where one asks alone and where three do.
    pub fn count(&mut self, provider: &Provider, plugin: &Path) -> Result<()> {
        let directory = tempfile::tempdir()?;
        let mut counters = Counters::new(directory.path());
        // Only QEMU's translator can count.
        let setting = runs::serving(Accelerator::Tcg);
        let running = self.start(provider, "counted", &setting, &counters.arguments(plugin))?;
        let target = running.target();
        let alone = [("gold", EQUAL.iter().sum())];
        let three: Vec<_> = TENANTS.iter().zip(EQUAL).map(|((tenant, _), count)| (*tenant, count)).collect();
        for (scenario, loads) in [("alone", &alone[..]), ("contended", &three[..])] {
            // Code is translated before anything counts. From rest to rest, so that all requests count that
            // were answered, and all that was done for them: connections that are opened, too.
            let load = |duration| running.inside(|| ask(target, loads, gets, duration, || Ok(())));
            load(Duration::ZERO)?;
            let before = running.inside(|| Told::ask(target, CONTROL_PORT))?;
            let (listed, begun) = (counters.executed()?, counters.now()?);
            load(COUNTED)?;
            let (counts, executed) = (counters.now()?.since(begun), counters.executed()?.since(&listed));
            let now = running.inside(|| Told::ask(target, CONTROL_PORT))?;
            let requests = now.since(&before, "nom_requests_total").max(1.0);
            let instructions = counts.instructions as f64 / requests;
            let metric = "instructions_per_request";
            self.push(provider.system, scenario, metric, Unit::Instructions, instructions);
            let kicks = counts.kicks as f64 / requests;
            self.push(provider.system, scenario, "kicks_per_request", Unit::Count, kicks);
            if let Some(programs) = &provider.programs {
                let of = format!("{}-{scenario}", provider.system);
                programs.parts(&executed)?.save(&self.options.out, &of, requests as u64)?;
            }
        }
        Ok(())
    }
}
