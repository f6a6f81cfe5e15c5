//! The meter: counts the bytes that pass a machine's network device and what the machine holds, and enters in
//! the provider's ledger what that costs.
//!
//! ```text
//! device ──counter──▶ account ──records──▶ poster ──▶ provider's ledger
//! monitor ──probe──▶ holdings ─▲ ▲ prices, as they change ──────┤
//!                        ▲ what the machine says ──────────────┘
//! ```
//!
//! A record of bytes ends each second, one of what is held every ten, and all whenever a price changes. While
//! the provider does not answer, records grow longer rather than more, and wait; nothing that was counted is
//! forgotten. What it refuses for good is lost, told of, and holds up nothing else.

mod account;
mod counter;
mod energy;
mod follow;
mod holdings;
mod poster;
mod process;
mod shares;
mod tap;
mod totals;
mod user;
mod words;

pub use counter::{Bytes, Counter};
pub use holdings::{Basis, Probe, Sample, Terms};
pub use process::Process;
pub use user::Tapped;

pub(crate) use shares::activity_name;

use crate::clock::Moment;
use crate::name;
use account::Account;
use anyhow::{Context, Result, ensure};
use holdings::{Holdings, Word};
use nom_proto::ledger::NewRecord;
use nom_proto::meter::MeterReport;
use nom_proto::path;
use nom_proto::prices::{Prices, Resource};
use nom_vmm::Namespace;
use poster::Poster;
use serde::{Deserialize, Serialize};
use shares::{Claim, Shares};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use totals::Totals;
use words::Words;

/// Length of a record of bytes at one price.
const PERIOD: Duration = Duration::from_secs(1);
/// So many of them make one of what is held, which changes less.
const HOLDINGS_PERIODS: u32 = 10;
/// Most refused records that are told one by one.
const REFUSED_KEPT: usize = 16;

/// Whom a meter charges, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge {
    /// URL of the provider, `http://HOST:PORT`.
    pub provider: String,
    /// The key of the machine's meter there.
    pub key: String,
    /// The machine, as the provider knows it.
    pub machine: String,
    /// The activity.
    pub activity: String,
}

/// What a meter did in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metered {
    /// All bytes that it saw.
    pub bytes: Bytes,
    /// Records that the provider has acknowledged.
    pub entered: u64,
    /// Records that it has not, and never will.
    pub lost: u64,
    /// Of those, the first that it refused, each with the reason.
    pub refused: Vec<String>,
    /// What the machine said that cannot be true, the last time that it did.
    pub disagreement: Option<String>,
    /// Why energy was not metered, if it has a price.
    pub energy_refused: Option<String>,
}

/// What happens to a meter.
enum Happening {
    /// Prices have changed.
    Prices(Prices),
    /// The provider has acknowledged so many records.
    Entered(u64),
    /// It refuses a record for good: which, and why.
    Refused(String),
    /// The machine runs: what it holds is charged from now on.
    Begin(Terms, Box<dyn Probe>),
    /// The machine says what it holds.
    Word(Word),
    /// The machine says what its activities have consumed.
    Claims(Vec<Claim>),
    /// Somebody wants to know what has passed so far.
    Count(Sender<Bytes>),
    /// The machine has ended; records that wait may take so long to be entered.
    Finish(Duration),
}

/// A running meter; it ends when this is dropped, but [`Meter::finish`] is how to see that all is entered.
#[derive(Debug)]
pub struct Meter {
    happenings: Sender<Happening>,
    thread: Option<JoinHandle<Metered>>,
}

impl Meter {
    /// Meters the TAP device `device` of a namespace: what it receives is what the machine sends.
    ///
    /// # Errors
    /// If there is no such device, or the provider does not answer.
    pub fn tap(namespace: &Namespace, device: &str, charge: Charge) -> Result<Meter> {
        Meter::start(Box::new(tap::Tap::open(namespace, device)?), charge)
    }

    /// Meters the TAP device `device` of this computer.
    ///
    /// # Errors
    /// See [`Meter::tap`].
    pub fn device(device: &str, charge: Charge) -> Result<Meter> {
        Meter::start(Box::new(tap::Tap::here(device)?), charge)
    }

    /// Meters a network device of a machine whose QEMU is yet to be started, with the arguments that
    /// [`Tapped::arguments`] gives; no rights are needed. `netdev` is the id of its network back-end, and
    /// `directory` is for two pipes.
    ///
    /// # Errors
    /// If the pipes cannot be made, or the provider does not answer.
    pub fn user(directory: &Path, netdev: &str, charge: Charge) -> Result<(Meter, Tapped)> {
        let (counter, tapped) = user::User::open(directory, netdev)?;
        Ok((Meter::start(Box::new(counter), charge)?, tapped))
    }

    /// Meters a machine that has no network device to count at.
    ///
    /// # Errors
    /// If the provider does not answer.
    pub fn without_network(charge: Charge) -> Result<Meter> {
        Meter::start(Box::new(counter::Nothing), charge)
    }

    /// Meters whatever can be counted.
    ///
    /// # Errors
    /// If the provider does not answer, the activity has a name that no record may have, or the system
    /// refuses a thread.
    pub fn start(mut counter: Box<dyn Counter>, charge: Charge) -> Result<Meter> {
        ensure!(
            name::is_name(&charge.activity),
            "{:?} is no activity's name: expected {}",
            charge.activity,
            name::expected()
        );
        // Nothing is counted before there is a price for it.
        let prices = follow::ask(&format!("{}{}", charge.provider, path::PRICES))?;
        let (happenings, received) = channel();
        follow::spawn(&charge.provider, happenings.clone()).context("cannot follow the prices")?;
        let poster = Poster::spawn(&charge, happenings.clone())
            .with_context(|| format!("cannot enter records at {}", charge.provider))?;
        let words = Words::spawn(&charge.provider, &charge.key, happenings.clone())?;
        let (now, begin) = (Moment::now(), counter.read());
        let traffic = Account::new(&charge, "n", Totals::default(), &prices, now);
        let held = Account::new(&charge, "h", Totals::default(), &prices, now);
        let machine = charge.machine;
        let running = Running {
            machine,
            counter,
            begin,
            holdings: None,
            before: Totals::default(),
            traffic,
            held,
            shares: Shares::default(),
            periods: 0,
            poster,
            words,
            received,
            waiting: 0,
            entered: 0,
            refused: Vec::new(),
            refusals: 0,
        };
        let thread = std::thread::Builder::new().name("meter".to_owned()).spawn(|| running.run())?;
        Ok(Meter { happenings, thread: Some(thread) })
    }

    /// Charges what the machine holds, too, from now on: by what it says, and by what `probe` measures. Is
    /// said anew when it has been started again.
    pub fn hold(&self, terms: Terms, probe: Box<dyn Probe>) {
        // It ends only when it is told to.
        let _ = self.happenings.send(Happening::Begin(terms, probe));
    }

    /// What has passed since the meter began.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        let (answer, answered) = channel();
        let asked = self.happenings.send(Happening::Count(answer));
        asked.ok().and_then(|()| answered.recv().ok()).unwrap_or_default()
    }

    /// Ends after a last record; waits at most `patience` until the provider has acknowledged all.
    ///
    /// # Panics
    /// If the meter's thread did.
    #[must_use]
    pub fn finish(mut self, patience: Duration) -> Metered {
        // It ends only when it is told to.
        let _ = self.happenings.send(Happening::Finish(patience));
        let thread = self.thread.take().expect("taken only here and when dropped");
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        // Its thread may have ended; if not, it goes on by itself until all is entered or given up.
        let _ = self.happenings.send(Happening::Finish(Duration::from_secs(10)));
    }
}

struct Running {
    machine: String,
    counter: Box<dyn Counter>,
    begin: Bytes,
    /// Nothing until the machine runs.
    holdings: Option<Holdings>,
    /// What it held before it was started again.
    before: Totals,
    traffic: Account,
    held: Account,
    /// For whom that was.
    shares: Shares,
    /// Periods since a record of what is held ended.
    periods: u32,
    poster: Poster,
    words: Words,
    received: Receiver<Happening>,
    /// Records that the poster has and the provider has not acknowledged.
    waiting: u64,
    entered: u64,
    /// The first records that it refused, and how many that were in all.
    refused: Vec<String>,
    refusals: u64,
}

impl Running {
    fn run(mut self) -> Metered {
        let mut next = Instant::now() + PERIOD;
        loop {
            match self.received.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(Happening::Prices(prices)) => {
                    let now = Moment::now();
                    let (traffic, held) = (self.passed(), self.consumed(now));
                    self.traffic.change(traffic, &mut self.shares, &prices, now);
                    self.held.change(held, &mut self.shares, &prices, now);
                }
                Ok(Happening::Entered(count)) => self.acknowledged(count),
                Ok(Happening::Refused(which)) => self.refused(which),
                Ok(Happening::Begin(terms, probe)) => {
                    let now = Moment::now();
                    self.before = self.consumed(now);
                    self.holdings = Some(Holdings::new(&self.machine, terms, probe, now));
                }
                Ok(Happening::Word(word)) => {
                    // What was held until now was so by the word before.
                    self.consumed(Moment::now());
                    self.holdings.iter_mut().for_each(|holdings| holdings.hear(word));
                }
                Ok(Happening::Claims(claims)) => self.shares.hear(claims),
                Ok(Happening::Count(answer)) => {
                    // Who asked may have gone.
                    let _ = answer.send(self.counter.read().since(self.begin));
                }
                Ok(Happening::Finish(patience)) => return self.finish(patience),
                Err(RecvTimeoutError::Timeout) => {
                    next = Instant::now() + PERIOD;
                    self.period();
                }
                Err(RecvTimeoutError::Disconnected) => return self.finish(Duration::ZERO),
            }
            self.post();
        }
    }

    /// A period has passed.
    fn period(&mut self) {
        let now = Moment::now();
        let held = self.consumed(now);
        self.periods += 1;
        if self.periods % HOLDINGS_PERIODS == 1
            && let Some(report) = self.report(now)
        {
            self.words.tell(report);
        }
        // While the poster is busy the records go on: there are no more of them than prices.
        if self.waiting > 0 {
            return;
        }
        let traffic = self.passed();
        self.traffic.close(traffic, &mut self.shares, now);
        if self.periods >= HOLDINGS_PERIODS {
            self.periods = 0;
            self.held.close(held, &mut self.shares, now);
        }
    }

    /// How it stands, for the provider, once the machine runs.
    fn report(&self, now: Moment) -> Option<MeterReport> {
        let report = self.holdings.as_ref()?.report(now);
        let record_refused = self.refused.first().cloned();
        Some(MeterReport { records_refused: self.refusals, record_refused, ..report })
    }

    /// Bytes that passed.
    fn passed(&mut self) -> Totals {
        let bytes = self.counter.read().since(self.begin);
        Totals::default().with(Resource::NetworkOut, bytes.sent).with(Resource::NetworkIn, bytes.received)
    }

    /// What was held.
    fn consumed(&mut self, now: Moment) -> Totals {
        let held = self.holdings.as_mut().map(|holdings| holdings.advance(now)).unwrap_or_default();
        let held = Totals::default()
            .with(Resource::Core, held.core_ns)
            .with(Resource::Memory, held.byte_seconds())
            .with(Resource::Energy, held.energy_uj);
        self.before.and(held)
    }

    fn acknowledged(&mut self, count: u64) {
        self.waiting -= count;
        self.entered += count;
    }

    fn refused(&mut self, which: String) {
        self.waiting -= 1;
        self.refusals += 1;
        if self.refused.len() < REFUSED_KEPT {
            self.refused.push(which);
        }
    }

    /// Hands closed records over, unless some are on their way.
    fn post(&mut self) {
        if self.waiting > 0 {
            return;
        }
        let records: Vec<NewRecord> = [self.traffic.take(), self.held.take()].concat();
        self.waiting = records.len() as u64;
        if !records.is_empty() {
            self.poster.post(records);
        }
    }

    fn finish(mut self, patience: Duration) -> Metered {
        let deadline = Instant::now() + patience;
        let now = Moment::now();
        let (traffic, held) = (self.passed(), self.consumed(now));
        self.traffic.close(traffic, &mut self.shares, now);
        self.held.close(held, &mut self.shares, now);
        self.post();
        while self.waiting > 0 {
            let rest = deadline.saturating_duration_since(Instant::now());
            match self.received.recv_timeout(rest) {
                Ok(Happening::Entered(count)) => {
                    self.acknowledged(count);
                    self.post();
                }
                Ok(Happening::Refused(which)) => {
                    self.refused(which);
                    self.post();
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
        let lost = self.refusals + self.waiting + (self.traffic.take().len() + self.held.take().len()) as u64;
        let report = self.report(now);
        Metered {
            bytes: self.counter.read().since(self.begin),
            entered: self.entered,
            lost,
            refused: self.refused,
            disagreement: report.as_ref().and_then(|report| report.disagreement.clone()),
            energy_refused: report
                .and_then(|report| report.energy_refused)
                .filter(|_| self.held.has_price(Resource::Energy)),
        }
    }
}
