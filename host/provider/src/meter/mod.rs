//! The meter: counts the bytes that pass a machine's network device, and enters in the provider's ledger what
//! they cost.
//!
//! ```text
//! device ──counter──▶ account ──records──▶ poster ──▶ provider's ledger
//!                        ▲ prices, as they change ──────┘
//! ```
//!
//! A record ends each second, and whenever a price changes. While the provider does not answer, records grow
//! longer rather than more, and wait; nothing that was counted is forgotten.

mod account;
mod counter;
mod follow;
mod poster;
mod tap;
mod user;

pub use counter::{Bytes, Counter};
pub use user::Tapped;

use crate::clock::Moment;
use account::Account;
use anyhow::{Context, Result};
use nom_proto::ledger::NewRecord;
use nom_proto::path;
use nom_proto::prices::Prices;
use nom_vmm::Namespace;
use poster::Poster;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Length of a record at one price.
const PERIOD: Duration = Duration::from_secs(1);

/// Whom a meter charges, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    /// URL of the provider, `http://HOST:PORT`.
    pub provider: String,
    /// Its operator's token.
    pub token: String,
    /// The machine, as the provider knows it.
    pub machine: String,
    /// The activity.
    pub activity: String,
}

/// What a meter did in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metered {
    /// All bytes that it saw.
    pub bytes: Bytes,
    /// Records that the provider has acknowledged.
    pub entered: u64,
    /// Records that it has not, and never will.
    pub lost: u64,
}

/// What happens to a meter.
enum Happening {
    /// Prices have changed.
    Prices(Prices),
    /// The provider has acknowledged so many records.
    Entered(u64),
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

    /// Meters whatever can be counted.
    ///
    /// # Errors
    /// If the provider does not answer, or the system refuses a thread.
    pub fn start(mut counter: Box<dyn Counter>, charge: Charge) -> Result<Meter> {
        // Nothing is counted before there is a price for it.
        let prices = follow::ask(&format!("{}{}", charge.provider, path::PRICES))?;
        let (happenings, received) = channel();
        follow::spawn(&charge.provider, happenings.clone()).context("cannot follow the prices")?;
        let poster = Poster::spawn(&charge, happenings.clone())
            .with_context(|| format!("cannot enter records at {}", charge.provider))?;
        let (now, bytes) = (Moment::now(), counter.read());
        let account = Account::new(&charge, bytes, &prices, now);
        let running = Running { counter, account, poster, received, begin: bytes, waiting: 0, entered: 0 };
        let thread = std::thread::Builder::new().name("meter".to_owned()).spawn(|| running.run())?;
        Ok(Meter { happenings, thread: Some(thread) })
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
    counter: Box<dyn Counter>,
    account: Account,
    poster: Poster,
    received: Receiver<Happening>,
    begin: Bytes,
    /// Records that the poster has and the provider has not acknowledged.
    waiting: u64,
    entered: u64,
}

impl Running {
    fn run(mut self) -> Metered {
        let mut next = Instant::now() + PERIOD;
        loop {
            match self.received.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(Happening::Prices(prices)) => {
                    let bytes = self.counter.read();
                    self.account.change(bytes, &prices, Moment::now());
                }
                Ok(Happening::Entered(count)) => self.acknowledged(count),
                Ok(Happening::Count(answer)) => {
                    // Who asked may have gone.
                    let _ = answer.send(self.counter.read().since(self.begin));
                }
                Ok(Happening::Finish(patience)) => return self.finish(patience),
                Err(RecvTimeoutError::Timeout) => {
                    next = Instant::now() + PERIOD;
                    // While the poster is busy the record goes on: there are no more of them than prices.
                    if self.waiting == 0 {
                        let bytes = self.counter.read();
                        self.account.close(bytes, Moment::now());
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return self.finish(Duration::ZERO),
            }
            self.post();
        }
    }

    fn acknowledged(&mut self, count: u64) {
        self.waiting -= count;
        self.entered += count;
    }

    /// Hands closed records over, unless some are on their way.
    fn post(&mut self) {
        if self.waiting > 0 {
            return;
        }
        let records: Vec<NewRecord> = self.account.take();
        self.waiting = records.len() as u64;
        if !records.is_empty() {
            self.poster.post(records);
        }
    }

    fn finish(mut self, patience: Duration) -> Metered {
        let deadline = Instant::now() + patience;
        let bytes = self.counter.read();
        self.account.close(bytes, Moment::now());
        self.post();
        while self.waiting > 0 {
            let rest = deadline.saturating_duration_since(Instant::now());
            match self.received.recv_timeout(rest) {
                Ok(Happening::Entered(count)) => {
                    self.acknowledged(count);
                    self.post();
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
        let lost = self.waiting + self.account.take().len() as u64;
        Metered { bytes: bytes.since(self.begin), entered: self.entered, lost }
    }
}
