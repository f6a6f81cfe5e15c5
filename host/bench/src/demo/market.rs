//! The provider of an adaptive run: it names the prices, and hears what the application says of itself.

use super::place::Place;
use super::progress::Progress;
use anyhow::{Context, Result, bail};
use nom_build::PriceFeed;
use nom_proto::prices::Resource;
use nom_proto::status::Status;
use nom_provider::{Config, Provider};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Name of the machine at its provider.
const MACHINE: &str = "demo";
/// How often it is looked whether the application has said something new.
const LOOK: Duration = Duration::from_millis(2);
/// How long a machine may take until it reckons with the first price.
const PATIENCE: Duration = Duration::from_secs(30);

/// What an application said, and when it was heard.
#[derive(Clone, Debug, PartialEq)]
pub struct Heard {
    /// Since the begin of the run, in seconds.
    pub at_s: f64,
    /// What it said.
    pub status: Status,
}

/// A price that was set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Set {
    /// Since the begin of the run, in seconds.
    pub at_s: f64,
    /// The revision that has it.
    pub revision: u64,
}

/// A provider for one machine, which is gone when this is dropped.
#[derive(Debug)]
pub struct Market {
    provider: Arc<Provider>,
    origin: Instant,
    set: Vec<Set>,
    over: Arc<AtomicBool>,
    listener: Option<JoinHandle<Vec<Heard>>>,
}

impl Market {
    /// Opens one at `place`; times count from `origin`.
    ///
    /// # Errors
    /// If the place cannot be entered, or the provider not be started.
    pub fn open(place: &Place, origin: Instant) -> Result<Market> {
        let provider = Arc::new(place.inside(|| Provider::start(Config::default()))?);
        let over = Arc::new(AtomicBool::new(false));
        let (source, until) = (provider.clone(), over.clone());
        let listener = std::thread::spawn(move || listen(&source, origin, &until));
        Ok(Market { provider, origin, set: Vec::new(), over, listener: Some(listener) })
    }

    /// How a machine finds it by a user-mode network, and reports there.
    ///
    /// # Errors
    /// If it cannot be given a key.
    pub fn feed(&self) -> Result<PriceFeed> {
        let address = SocketAddrV4::new(Ipv4Addr::new(10, 0, 2, 2), self.provider.address().port());
        Ok(feed(address, Some(self.provider.register(MACHINE, None)?.machine_key)))
    }

    /// Sets the price of outgoing data, in dollars for a Gbit; one that is in force already is no news.
    ///
    /// # Errors
    /// If the provider refuses it.
    pub fn set_price(&mut self, price: f64) -> Result<()> {
        let known = self.set.last().map(|last| last.revision);
        self.begin(price)?;
        if self.set.last().map(|last| last.revision) == known {
            self.set.pop();
        }
        Ok(())
    }

    /// Sets the price with which something begins, which is remembered even if it was in force already.
    ///
    /// # Errors
    /// If the provider refuses it.
    pub fn begin(&mut self, price: f64) -> Result<()> {
        self.set(Resource::NetworkOut, price)
    }

    /// The same of any resource.
    ///
    /// # Errors
    /// If the provider refuses it.
    pub fn set(&mut self, resource: Resource, price: f64) -> Result<()> {
        let at_s = self.origin.elapsed().as_secs_f64();
        let revision = self.provider.set_prices(&[(resource, price)])?;
        self.set.push(Set { at_s, revision });
        Ok(())
    }

    /// What the application said last.
    pub fn status(&self) -> Option<Status> {
        self.provider.statuses().into_iter().next()
    }

    /// Waits until the application reckons with the present prices.
    ///
    /// # Errors
    /// If it takes too long, or somebody interrupts.
    pub fn wait_until_known(&self, progress: &Progress) -> Result<()> {
        let revision = self.set.last().context("no price was set")?.revision;
        let deadline = Instant::now() + PATIENCE;
        let knows = |status: &Status| status.price_revision >= revision;
        while !self.provider.statuses().iter().any(knows) {
            progress.tick()?;
            if Instant::now() > deadline {
                bail!("the application does not know the prices after {PATIENCE:?}");
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Closes it: the prices that were set, and all that was heard.
    pub fn close(mut self) -> (Vec<Set>, Vec<Heard>) {
        self.over.store(true, Ordering::Relaxed);
        let heard = self.listener.take().and_then(|listener| listener.join().ok()).unwrap_or_default();
        (std::mem::take(&mut self.set), heard)
    }
}

impl Drop for Market {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Prices of the provider there, for the machine of a run.
pub fn feed(provider: SocketAddrV4, key: Option<String>) -> PriceFeed {
    // Device 0 is the application's.
    PriceFeed { provider, machine: MACHINE.into(), key, network: 1 }
}

/// Collects statuses until `over`.
fn listen(provider: &Provider, origin: Instant, over: &AtomicBool) -> Vec<Heard> {
    let mut heard: Vec<Heard> = Vec::new();
    while !over.load(Ordering::Relaxed) {
        for status in provider.statuses() {
            if heard.last().is_none_or(|last| last.status.at_ns != status.at_ns) {
                heard.push(Heard { at_s: origin.elapsed().as_secs_f64(), status });
            }
        }
        std::thread::sleep(LOOK);
    }
    heard
}

/// How long it took from setting a price to the first working point that was chosen by it, in seconds: the
/// end of the first stretch of which the application reports the new revision, on the guest's clock.
///
/// The two clocks are laid upon each other by the report that came soonest: no report is heard before it is
/// made, so that the result is too great rather than too small.
pub fn reaction_s(set: &Set, heard: &[Heard]) -> Option<f64> {
    let guest_s = |heard: &Heard| heard.status.at_ns as f64 / 1e9;
    let offset = heard.iter().map(|heard| heard.at_s - guest_s(heard)).reduce(f64::min)?;
    let first = heard.iter().find(|heard| heard.status.price_revision >= set.revision)?;
    Some((guest_s(first) + offset - set.at_s).max(0.0))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A report of revision `price_revision`, made at `guest_s` and heard at `at_s`.
    pub(in super::super) fn heard(at_s: f64, guest_s: f64, price_revision: u64) -> Heard {
        let status = Status {
            machine: "m".into(),
            application: "a".into(),
            at_ns: (guest_s * 1e9) as u64,
            window_ns: 10_000_000,
            batching_delay_us: 0,
            polls: true,
            cores: 1,
            memory_bytes: 0,
            machine_cores: 1,
            machine_memory_bytes: 0,
            requests: 1,
            sent_bytes: 1,
            received_bytes: 1,
            latency_mean_ns: 1,
            latency_jitter_ns: 1,
            latency_p99_ns: 1,
            price_revision,
            price_network_out: 1.0,
            revenue_per_second: 1.0,
            cost_per_second: 1.0,
            profit: 1.0,
            solvency: Default::default(),
            activities: Vec::new(),
        };
        Heard { at_s, status }
    }

    #[test]
    fn reaction_is_guest_time_whenever_it_was_heard() {
        let set = Set { at_s: 10.0, revision: 2 };
        // The guest's clock is 3 s behind; reports take 5 ms to 500 ms.
        let all = [heard(9.105, 6.1, 1), heard(10.3, 7.01, 1), heard(10.8, 7.04, 2), heard(11.0, 7.1, 2)];
        let reaction = reaction_s(&set, &all).unwrap();
        assert!((reaction - 0.045).abs() < 1e-9, "{reaction}");
        assert_eq!(reaction_s(&Set { revision: 9, ..set }, &all), None);
        assert_eq!(reaction_s(&set, &[]), None);
    }

    #[test]
    fn prices_are_the_providers() {
        let mut market = Market::open(&Place::new(false).unwrap(), Instant::now()).unwrap();
        market.set_price(1.0).unwrap();
        market.set_price(10.0).unwrap();
        assert!(market.set_price(f64::NAN).is_err());
        let prices = market.provider.prices();
        assert_eq!(prices.prices.iter().map(|price| price.dollars).collect::<Vec<_>>(), [10.0]);
        let (set, heard) = market.close();
        assert_eq!(set.last().map(|set| set.revision), Some(prices.revision));
        assert_eq!((set.len(), heard.len()), (2, 0));
    }
}
