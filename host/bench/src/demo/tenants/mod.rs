//! `nom demo --tenants`: three tenants of one server, each with a contract of its own, and more to do than
//! the core can: what they pay under the scheduler `profit`, and under fair shares, by turns in one machine.
//!
//! Money only counts what a real client was served. What a promise of latency is worth depends on how fast
//! the machine is, so it is measured first: gold is promised twice of what it sees where it is alone.

mod contracts;
mod results;

use super::governing::PORT;
use super::market::{Market, feed};
use super::place::{self, Machine, Place};
use super::progress::Progress;
use super::schedule::NOM_START;
use super::{FIRST_BUILD, Options, guests, runner, steer};
use crate::Outcome;
use crate::environment::Environment;
use crate::grid::tenants::{AT_ONCE, Told, WARM_UP, ask, many_gets, sets};
use crate::linux::save;
use crate::machine::Guest;
use crate::others::Watch;
use crate::report::{Notes, Report};
use crate::serve::load::{self, Served};
use anyhow::{Context, Result, ensure};
use contracts::Contracts;
use nom_build::PriceFeed;
use nom_vmm::Accelerator;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::time::{Duration, Instant};

/// Name of the experiment in records.
pub const EXPERIMENT: &str = "demo-tenants";

/// Their names, each with its connections: who pays best asks least, so that he cannot take all by himself.
pub const TENANTS: [(&str, usize); 3] = [("gold", 3), ("silver", 12), ("bronze", 48)];

/// Dollars for a Gbit that leaves.
pub const PRICE: f64 = 0.1;

/// How long a turn counts, if not said.
const TURN: Duration = Duration::from_secs(2);
/// How long all turns take, if not said; and with `--full`.
const TURNS: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(300)];
/// The fewest rounds: a standard error needs two.
const ROUNDS_MIN: u32 = 2;

/// Who is served before whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// Everybody gets the same of the core.
    Fair,
    /// Whoever earns most is served first.
    Profit,
}

impl Scheduler {
    /// Both, in the order of figures.
    pub const ALL: [Scheduler; 2] = [Scheduler::Fair, Scheduler::Profit];

    /// Its name, which is the grid's for it.
    pub const fn name(self) -> &'static str {
        match self {
            Scheduler::Fair => "fair",
            Scheduler::Profit => "profit",
        }
    }
}

/// What a tenant was served in a turn, and what that brought and cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Taken {
    /// Requests that its client was answered.
    pub requests: f64,
    /// Latency of its client, in seconds: mean, standard deviation, 99th percentile.
    pub latency_s: [f64; 3],
    /// Bytes of the answers, and of the frames that left for it, which the machine tells.
    pub answered_bytes: f64,
    /// See there.
    pub sent_bytes: f64,
    /// Its part of the core's time that somebody had.
    pub core_share: f64,
    /// Dollars: what its contract brings, and what its frames cost.
    pub revenue: f64,
    /// See there.
    pub cost: f64,
    /// What the machine itself says that it brought, less that cost, in dollars.
    pub told_profit: f64,
}

/// A scheduler's turn.
#[derive(Clone, Debug)]
pub struct Turn {
    /// In which round, from 0.
    pub round: u32,
    /// Who was served before whom.
    pub scheduler: Scheduler,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// By tenant.
    pub taken: [Taken; TENANTS.len()],
}

/// Measures, and writes everything to `options.out`.
///
/// # Errors
/// If this is not root, nothing can be started, a client is answered wrongly or not at all, or somebody
/// interrupts ([`super::Interrupted`]).
pub fn run(options: &Options) -> Result<Outcome> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "--tenants needs root: the machine has a network of its own"
    );
    let cache = crate::cache(&options.project)?;
    crate::make_directory(&options.out)?;
    let choice = nom_vmm::accelerator::choose(&cache);
    let environment = Environment::capture(&choice.to_string())?;
    let turn = options.phase.unwrap_or(TURN);
    let turning = options.turns.unwrap_or(TURNS[usize::from(options.full)]);
    let each = turn + WARM_UP;
    let rounds = ((turning.as_secs_f64() / (2.0 * each.as_secs_f64())) as u32).max(ROUNDS_MIN);
    let planned = FIRST_BUILD + NOM_START * 2 + each * (2 * rounds + 1);
    let mut progress = Progress::new(planned, options.signal.clone());
    let images =
        tempfile::tempdir_in(&cache).with_context(|| format!("cannot write to {}", cache.display()))?;
    let mut demo = Demo {
        options,
        accelerator: choice.accelerator,
        images: images.path(),
        turn,
        progress: &mut progress,
    };
    let watch = Watch::begin();
    let contracts = demo.calibrate()?;
    let turns = demo.turns(&contracts, rounds)?;
    progress.finish();
    let mut records = results::records(&turns);
    records.extend(watch.and_then(|watch| watch.record(EXPERIMENT)));
    results::save_turns(&turns, &options.out)?;
    let mut notes = Notes::default();
    notes.add(format!(
        "{rounds} rounds, in each of which both schedulers have {turn:?}, in turns that follow \
                       from the seed {}.",
        options.seed
    ));
    let report = Report {
        title: "nom demo --tenants: what tenants of one server pay".into(),
        environment,
        targets: results::targets(),
        tables: vec![contracts.table(), results::table(&turns)],
        figures: vec![results::figure(&turns)],
        records,
        notes: notes.into_vec(),
    };
    report.conclude(&options.out)
}

struct Demo<'a> {
    options: &'a Options,
    accelerator: Accelerator,
    images: &'a Path,
    turn: Duration,
    progress: &'a mut Progress,
}

impl Demo<'_> {
    /// The contracts for a machine that is as fast as this one.
    fn calibrate(&mut self) -> Result<Contracts> {
        self.progress.step("building nom's memcached", FIRST_BUILD)?;
        let nobody = feed(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), None);
        let guest = self.guest("", &nobody)?;
        self.progress.step("how long gold waits where it is alone", NOM_START + WARM_UP + self.turn)?;
        let machine = self.machine(&guest, Place::with_queues(1)?)?;
        let alone = &TENANTS[..1];
        let (served, _) = self.look(&machine, alone)?;
        Contracts::of(served[0].latency.mean() * 1e-9)
    }

    fn turns(&mut self, contracts: &Contracts, rounds: u32) -> Result<Vec<Turn>> {
        self.progress.step("memcached with contracts boots", NOM_START)?;
        let place = Place::with_queues(1)?;
        let mut market = Market::open(&place, Instant::now())?;
        market.set_price(PRICE)?;
        let feed = market.feed()?;
        let guest = self.guest(&contracts.manifest(), &feed)?;
        let mut machine = self.machine(&guest, place)?;
        market.wait_until_known(self.progress)?;
        let mut dice = fastrand::Rng::with_seed(self.options.seed);
        let mut turns = Vec::new();
        for round in 0..rounds {
            let mut order = Scheduler::ALL;
            dice.shuffle(&mut order);
            for scheduler in order {
                let what = format!("round {} of {rounds}: {}", round + 1, scheduler.name());
                self.progress.step(&what, WARM_UP + self.turn)?;
                let grid = Contracts::grid(scheduler);
                machine.place().inside(|| steer::put("/grid", &grid))?;
                let (served, (before, now)) = self.look(&machine, &TENANTS)?;
                machine.check()?;
                turns.push(taken(contracts, round, scheduler, &served, &before, &now)?);
            }
        }
        Ok(turns)
    }

    /// memcached with more in its manifest.
    fn guest(&self, more: &str, feed: &PriceFeed) -> Result<Guest> {
        let (project, service) = (&self.options.project, runner::MEMCACHED.service);
        let inherited = std::path::absolute(project.manifest_path(service.application)?.join("app.toml"))?;
        let manifest = self.images.join("app.toml");
        // A string of JSON is one of TOML too.
        let text = format!(
            "inherit = [{}]\nenvironment = {{ control = \"{PORT}\", batching_delay = \"0\" }}\n{more}",
            serde_json::to_string(&inherited)?
        );
        save(&manifest, text.as_bytes())?;
        let project = project.with_listener(self.progress.teller("building nom's memcached"));
        let kernel = guests::packed(&project, project.bundle(&manifest, None)?, feed, self.images)?;
        Ok(Guest { kernel, initramfs: None, arguments: String::new(), cores: 1 })
    }

    /// Starts it, with everybody's values.
    fn machine(&self, guest: &Guest, place: Place) -> Result<Machine> {
        let (service, setting) = (runner::MEMCACHED.service, place::setting(self.accelerator));
        let machine = Machine::start(guest, service, &setting, place, true, self.progress)?;
        let target = machine.target();
        let store = || TENANTS.iter().try_for_each(|(tenant, _)| load::once(target, &sets(tenant)));
        machine.place().inside(store)?;
        Ok(machine)
    }

    /// What these tenants are served in a turn, and what the machine tells at its begin and end.
    fn look(
        &self,
        machine: &Machine,
        tenants: &[(&'static str, usize)],
    ) -> Result<(Vec<Served>, (Told, Told))> {
        let (target, turn) = (machine.target(), self.turn);
        let looks = || Told::look(target, PORT, turn);
        machine.place().inside(|| ask(target, tenants, many_gets, turn, looks))
    }
}

/// What a turn brought: clients say how they were served, and the machine what it sent them.
fn taken(
    contracts: &Contracts,
    round: u32,
    scheduler: Scheduler,
    served: &[Served],
    before: &Told,
    now: &Told,
) -> Result<Turn> {
    let seconds = now.elapsed_ns(before) * 1e-9;
    let times = TENANTS.map(|(tenant, _)| now.of(before, "core_nanoseconds_total", tenant));
    let all: f64 = times.iter().sum();
    let mut taken = [Taken::default(); TENANTS.len()];
    for (index, (served, taken)) in served.iter().zip(&mut taken).enumerate() {
        let tenant = TENANTS[index].0;
        let reply = many_gets(tenant).first().map_or(0, |exchange| exchange.reply.len());
        let of = |metric| now.of(before, metric, tenant);
        // Rates of the client, for the time that the machine tells of.
        let exchanges = served.throughput() * seconds;
        let latency = &served.latency;
        let latency_s = [latency.mean(), latency.stdev(), latency.value_at_quantile(0.99) as f64];
        *taken = Taken {
            requests: exchanges * AT_ONCE as f64,
            latency_s: latency_s.map(|ns| ns * 1e-9),
            answered_bytes: exchanges * reply as f64,
            sent_bytes: of("sent_bytes_total"),
            core_share: times[index] / all.max(1.0),
            told_profit: of("profit_dollars"),
            ..Taken::default()
        };
        taken.revenue = contracts.revenue(index, taken, seconds)?;
        taken.cost = taken.sent_bytes * 8e-9 * PRICE;
    }
    Ok(Turn { round, scheduler, seconds, taken })
}
