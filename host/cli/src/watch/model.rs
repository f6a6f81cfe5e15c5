//! What is known of a machine that earns: updates come in, and a view of them comes out.
//!
//! Time is an argument, counted from when watching began.

use super::console::Console;
use super::history::{History, SECONDS};
use super::solvency;
use super::text;
use nom_proto::prices::{Prices, Resource};
use nom_proto::status::{Activity, Reported, Status};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

/// Prices that nobody confirmed for longer are marked.
const STALE: Duration = Duration::from_secs(60);
/// A report may be this late before it is said, and then it says nothing of the present: applications report
/// at least every second.
pub const SILENCE: Duration = Duration::from_secs(Reported::SILENCE_SECONDS as u64);

/// Something to take in.
#[derive(Clone, Debug)]
pub enum Update {
    /// The provider's prices, which have changed.
    Prices(Prices),
    /// The provider's prices when it was asked: what it told since may be newer.
    Confirmed(Prices),
    /// An application's report, which the provider has heard that long ago.
    Status(Reported),
    /// The provider cannot be reached, for this reason.
    Lost(String),
    /// The machine wrote to its serial line.
    Console(Vec<u8>),
}

/// All that was heard.
#[derive(Clone, Debug)]
pub struct Model {
    machine: String,
    /// Applications that are to report.
    expected: Vec<String>,
    prices: Option<Heard<Prices>>,
    lost: Option<String>,
    earners: BTreeMap<String, Earner>,
    price_histories: BTreeMap<Resource, History>,
    console: Console,
}

#[derive(Clone, Debug)]
struct Heard<T> {
    what: T,
    at: Duration,
}

#[derive(Clone, Debug)]
struct Earner {
    status: Heard<Status>,
    throughput: History,
    latency: History,
    jitter: History,
    /// Or cost, without a contract.
    profit: History,
    /// What its activities had consumed before they were told of last.
    before: Vec<Activity>,
}

/// What is to be shown now.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// The machine.
    pub machine: String,
    /// What its applications earned so far and earn each second, in dollars, once one with a contract
    /// reported.
    pub profit: Option<[f64; 2]>,
    /// What those without a contract cost, once one reported.
    pub cost: Option<[f64; 2]>,
    /// What is amiss, or still to come.
    pub notices: Vec<String>,
    /// Where the prices come from, and how long ago they were confirmed.
    pub source: String,
    /// Whether that is too long ago.
    pub stale: bool,
    /// Every price, and how it was in the last minute.
    pub prices: Vec<Figure>,
    /// Applications that reported.
    pub applications: Vec<Panel>,
}

/// An application.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// Its name.
    pub name: String,
    /// What it reported.
    pub figures: Vec<Figure>,
}

/// A figure with its last minute.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// What it is.
    pub label: Cow<'static, str>,
    /// Its value, with units.
    pub value: String,
    /// One value for each second, the oldest first; empty if it has no history.
    pub history: Vec<Option<f64>>,
}

impl Model {
    /// Nothing heard yet of `machine`, of whose applications those `expected` are to earn.
    pub fn new(machine: &str, expected: Vec<String>) -> Model {
        Model {
            machine: machine.to_owned(),
            expected,
            prices: None,
            lost: None,
            earners: BTreeMap::new(),
            price_histories: BTreeMap::new(),
            console: Console::default(),
        }
    }

    /// Takes in an update; what is of another machine, or older than what is known, changes nothing.
    pub fn apply(&mut self, update: Update, now: Duration) {
        match update {
            Update::Prices(prices) => self.apply_prices(prices, now),
            Update::Confirmed(prices) if prices.revision < self.revision() => {}
            Update::Confirmed(prices) => self.apply_prices(prices, now),
            Update::Status(reported) if reported.status.machine == self.machine => {
                let age = Duration::try_from_secs_f64(reported.age_seconds).unwrap_or_default();
                self.apply_status(reported.status, now.saturating_sub(age));
            }
            Update::Status(_) => {}
            Update::Lost(reason) => self.lost = Some(reason),
            Update::Console(bytes) => self.console.write(&bytes),
        }
    }

    /// Revision of the prices that are known; 0 if none are.
    fn revision(&self) -> u64 {
        self.prices.as_ref().map_or(0, |heard| heard.what.revision)
    }

    fn apply_prices(&mut self, prices: Prices, now: Duration) {
        self.lost = None;
        for price in &prices.prices {
            self.price_histories.entry(price.resource).or_default().push(now, price.dollars);
        }
        self.prices = Some(Heard { what: prices, at: now });
    }

    fn apply_status(&mut self, status: Status, at: Duration) {
        self.lost = None;
        let heard = Heard { what: status, at };
        let name = heard.what.application.clone();
        let earner = self.earners.entry(name).or_insert_with(|| Earner::new(heard.clone()));
        earner.take(heard);
    }

    /// The last `count` lines of the machine's console.
    pub fn console(&self, count: usize) -> Vec<String> {
        self.console.last(count)
    }

    /// What is to be shown.
    pub fn view(&self, now: Duration) -> View {
        let age = self.prices.as_ref().map(|heard| heard.what.age_seconds + (now - heard.at).as_secs_f64());
        let stale = age.is_some_and(|age| age > STALE.as_secs_f64());
        View {
            machine: self.machine.clone(),
            profit: self.profit(true),
            cost: self.profit(false).map(|sums| sums.map(|profit| -profit)),
            notices: self.notices(now),
            source: self.source(age, stale),
            stale,
            prices: self.price_figures(now),
            applications: self.earners.values().map(|earner| self.panel(earner, now)).collect(),
        }
    }

    /// The sum over the applications with a contract, or over those without.
    fn profit(&self, has_contract: bool) -> Option<[f64; 2]> {
        let statuses = self.earners.values().map(|earner| &earner.status.what);
        let profits = statuses
            .filter(|status| status.has_contract() == has_contract)
            .map(|status| [status.profit, profit_rate(status)]);
        profits.reduce(|[sum, rate], [more, more_rate]| [sum + more, rate + more_rate])
    }

    fn notices(&self, now: Duration) -> Vec<String> {
        let mut notices = Vec::new();
        if let Some(reason) = &self.lost {
            notices.push(format!("no connection to the provider, trying again: {reason}"));
        } else if self.prices.is_none() {
            notices.push("no prices yet".to_owned());
        }
        if self.expected.is_empty() && self.earners.is_empty() {
            notices.push("no application has a [utility], so that nobody earns".to_owned());
        }
        for name in &self.expected {
            match self.earners.get(name).map(|earner| now - earner.status.at) {
                None => notices.push(format!("{name}: no report yet")),
                Some(age) if age > SILENCE => {
                    notices.push(format!(
                        "{name}: no report for {}, it is stuck or gone",
                        text::stretch(age.as_secs_f64())
                    ));
                }
                Some(_) => {}
            }
        }
        let statuses = self.earners.values().map(|earner| &earner.status.what);
        let amiss = statuses.filter_map(|status| Some((status, solvency::sentence(status)?)));
        notices.extend(amiss.map(|(status, why)| format!("{}: {why}", status.application)));
        notices
    }

    fn source(&self, age: Option<f64>, stale: bool) -> String {
        match (&self.prices, age) {
            (Some(heard), Some(age)) => {
                let mark = if stale { "STALE: " } else { "" };
                format!("{mark}{}, confirmed {} ago", heard.what.source, text::stretch(age))
            }
            _ => String::new(),
        }
    }

    fn price_figures(&self, now: Duration) -> Vec<Figure> {
        let prices = self.prices.iter().flat_map(|heard| &heard.what.prices);
        prices
            .map(|price| Figure {
                label: label(price.resource).into(),
                value: format!("{} {}", text::price(price.dollars), price.resource.unit()),
                history: self
                    .price_histories
                    .get(&price.resource)
                    .map_or_else(Vec::new, |history| history.held(now, SECONDS)),
            })
            .collect()
    }

    fn panel(&self, earner: &Earner, now: Duration) -> Panel {
        let status = &earner.status.what;
        let recent = |history: &History| history.last(now, SECONDS);
        let figure = |label: &'static str, value, history| Figure { label: label.into(), value, history };
        let mut figures = vec![
            figure("working point", working_point(status), Vec::new()),
            figure("price used", self.price_used(status), Vec::new()),
            figure("throughput", throughput(status), recent(&earner.throughput)),
            figure("latency", latency(status), recent(&earner.latency)),
            figure("jitter", or_dash(status, status.latency_jitter_ns), recent(&earner.jitter)),
        ];
        if status.has_contract() {
            figures.push(figure("profit", profit(status), recent(&earner.profit)));
            figures.push(figure("so far", dollars(status.profit), Vec::new()));
        } else {
            let cost = format!("{}/s, no contract: nobody pays", dollars(status.cost_per_second));
            figures.push(figure("cost", cost, recent(&earner.profit)));
            figures.push(figure("so far", dollars(-status.profit), Vec::new()));
        }
        figures.extend(earner.activities());
        Panel { name: status.application.clone(), figures }
    }

    fn price_used(&self, status: &Status) -> String {
        let behind = self.revision();
        let price = format!("{} $/Gbit out", text::price(status.price_network_out));
        match status.price_revision {
            0 => "none yet".to_owned(),
            revision if revision < behind => format!("{price} (revision {revision} of {behind})"),
            _ => price,
        }
    }
}

impl Earner {
    fn new(status: Heard<Status>) -> Earner {
        let empty = History::default;
        let before = Vec::new();
        Earner { status, throughput: empty(), latency: empty(), jitter: empty(), profit: empty(), before }
    }

    fn take(&mut self, heard: Heard<Status>) {
        let status = &heard.what;
        self.throughput.push(heard.at, per_second(status, status.requests));
        if status.requests > 0 {
            self.latency.push(heard.at, status.latency_mean_ns as f64);
            self.jitter.push(heard.at, status.latency_jitter_ns as f64);
        }
        let rate = if status.has_contract() { profit_rate(status) } else { status.cost_per_second };
        self.profit.push(heard.at, rate);
        let last = std::mem::replace(&mut self.status, heard).what.activities;
        if last.first().map(|own| own.at_ns) != self.status.what.activities.first().map(|own| own.at_ns) {
            self.before = last;
        }
    }

    /// What each activity took since it was told of before.
    fn activities(&self) -> impl Iterator<Item = Figure> + '_ {
        let figure = |now: &Activity| {
            let before = self.before.iter().find(|before| before.name == now.name)?;
            Some(Figure {
                label: now.name.clone().into(),
                value: activity(now, before)?,
                history: Vec::new(),
            })
        };
        self.status.what.activities.iter().filter_map(figure)
    }
}

fn label(resource: Resource) -> &'static str {
    match resource {
        Resource::Core => "cores",
        Resource::Memory => "memory",
        Resource::NetworkOut => "network out",
        Resource::NetworkIn => "network in",
        Resource::Storage => "storage",
        Resource::Energy => "energy",
    }
}

/// How much that is each second; a report of no time says nothing.
fn per_second(status: &Status, count: u64) -> f64 {
    match status.window_ns {
        0 => 0.0,
        window => count as f64 * 1e9 / window as f64,
    }
}

fn profit_rate(status: &Status) -> f64 {
    status.revenue_per_second - status.cost_per_second
}

fn working_point(status: &Status) -> String {
    let Status { batching_delay_us, cores, memory_bytes, .. } = status;
    let mode = if status.polls { "polls" } else { "sleeps until interrupts" };
    let cores = if *cores == 1 { "1 core".to_owned() } else { format!("{cores} cores") };
    format!("W {batching_delay_us} us, {mode}, {cores}, {}", text::bytes(*memory_bytes))
}

fn throughput(status: &Status) -> String {
    let requests = text::number(per_second(status, status.requests));
    let bits = |bytes: u64| text::bits(8.0 * per_second(status, bytes));
    format!("{requests} requests/s, {} out, {} in", bits(status.sent_bytes), bits(status.received_bytes))
}

fn latency(status: &Status) -> String {
    match status.requests {
        0 => "-".to_owned(),
        _ => format!(
            "{} mean, {} p99",
            text::latency(status.latency_mean_ns),
            text::latency(status.latency_p99_ns)
        ),
    }
}

/// What an activity took since `before`; nothing to say, if it was started again since.
fn activity(now: &Activity, before: &Activity) -> Option<String> {
    let seconds = now.at_ns.checked_sub(before.at_ns).filter(|ns| *ns > 0)? as f64 * 1e-9;
    let since = |of: fn(&Activity) -> u64| Some(of(now).checked_sub(of(before))? as f64);
    let (requests, latency_ns) = (since(|own| own.requests)?, since(|own| own.latency_ns)?);
    let latency = match requests > 0.0 {
        true => text::latency((latency_ns / requests) as u64),
        false => "-".to_owned(),
    };
    let money = |of: fn(&Activity) -> f64| text::number((of(now) - of(before)) / seconds);
    Some(format!(
        "{:.3} cores, {} requests/s, {} mean, {} out, {} in, {} clients, {}, {} $/s owed, {} $/s profit",
        since(|own| own.core_ns)? * 1e-9 / seconds,
        text::number(requests / seconds),
        latency,
        text::bits(8.0 * since(|own| own.sent_bytes)? / seconds),
        text::bits(8.0 * since(|own| own.received_bytes)? / seconds),
        now.connections,
        text::bytes(now.memory_bytes),
        money(|own| own.cost),
        money(|own| own.profit)
    ))
}

fn or_dash(status: &Status, nanoseconds: u64) -> String {
    if status.requests == 0 { "-".to_owned() } else { text::latency(nanoseconds) }
}

fn dollars(amount: f64) -> String {
    format!("{} $", text::number(amount))
}

fn profit(status: &Status) -> String {
    let [profit, revenue, cost] =
        [profit_rate(status), status.revenue_per_second, status.cost_per_second].map(text::number);
    format!("{profit} $/s: {revenue} paid, {cost} owed")
}

impl View {
    /// The view in one line for each application, or one that says why there is none.
    pub fn lines(&self, now: Duration) -> Vec<String> {
        let start = format!("watch: {:4} s", now.as_secs());
        let prices = match self.prices.iter().find(|figure| figure.label == label(Resource::NetworkOut)) {
            Some(price) => vec![format!("price {} ({})", price.value, self.source)],
            None => Vec::new(),
        };
        let words = |more: Vec<String>| {
            let all: Vec<String> = prices.iter().cloned().chain(more).collect();
            format!("{start}  {}", all.join("; "))
        };
        if self.applications.is_empty() {
            return vec![words(self.notices.clone())];
        }
        let line = |panel: &Panel| {
            let figures = panel.figures.iter().map(|figure| format!("{} {}", figure.label, figure.value));
            words([panel.name.clone()].into_iter().chain(figures).chain(self.notices.clone()).collect())
        };
        self.applications.iter().map(line).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests;
