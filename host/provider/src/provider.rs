//! A running provider, and the hands of the program around it.

use crate::clock::Moment;
use crate::http::{self, Shared};
use crate::ledger::Ledger;
use crate::price_book::{PriceBook, Refused, Standing, Taking};
use crate::source::{self, Journal, Source};
use crate::status_book::StatusBook;
use crate::token::Token;
use anyhow::{Context, Result, anyhow};
use nom_proto::prices::{Prices, Resource};
use nom_proto::status::Status;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// What a provider is to be.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it listens; port 0 is any free one.
    pub listen: SocketAddr,
    /// The operator's token; none makes a fresh one.
    pub token: Option<Token>,
    /// File of the ledger; without one it is lost with the provider.
    pub ledger: Option<PathBuf>,
    /// Where prices come from, besides the operator; no two of the same resource.
    pub sources: Vec<Source>,
    /// What has not reported for longer is forgotten: it is gone from the list, the metrics and the page.
    pub forget_after: Duration,
    /// Where messages for people go: what is wrong with a source.
    pub log: fn(&str),
}

impl Config {
    /// After how long a silent application is forgotten if nobody says: as long as Prometheus at its default
    /// looks back for a value, twice.
    pub const FORGET_AFTER: Duration = Duration::from_secs(600);
}

impl Default for Config {
    /// On a free port of the loopback interface, with a fresh token.
    fn default() -> Config {
        Config {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            token: None,
            ledger: None,
            sources: Vec::new(),
            forget_after: Config::FORGET_AFTER,
            log: |_| {},
        }
    }
}

/// A provider that runs on a thread of its own until this is dropped.
#[derive(Debug)]
pub struct Provider {
    address: SocketAddr,
    shared: Arc<Shared>,
    _sources: source::Running,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Provider {
    /// Starts one; it answers from now on.
    ///
    /// # Errors
    /// If its address is taken, or the system refuses a thread.
    pub fn start(config: Config) -> Result<Provider> {
        source::check(&config.sources).map_err(|conflict| anyhow!(conflict))?;
        let listen = config.listen;
        let listener = TcpListener::bind(listen).with_context(|| format!("cannot listen at {listen}"))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let token = config.token.map_or_else(Token::random, Ok)?;
        let shared = Arc::new(Shared {
            prices: PriceBook::new(name(&config.sources)),
            statuses: StatusBook::new(config.forget_after),
            ledger: Ledger::open(config.ledger.as_deref())?,
            tally: Arc::default(),
            journal: Journal::new(&config.sources),
            token,
        });
        let sources =
            source::start(config.sources, &shared, config.log).context("cannot start a price source")?;
        let (stop, stopped) = oneshot::channel();
        let thread = http::spawn(listener, shared.clone(), stopped).context("cannot start the provider")?;
        Ok(Provider { address, shared, _sources: sources, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same as a URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The operator's token.
    #[must_use]
    pub fn token(&self) -> &str {
        self.shared.token.reveal()
    }

    /// Sets prices, as their operator: all, or none if one is absurd. Returns the revision in force.
    ///
    /// # Errors
    /// The first price that is absurd.
    pub fn set_prices(&self, prices: &[(Resource, f64)]) -> Result<u64, Refused> {
        let now = Moment::now();
        let (revision, refused) = self.shared.prices.offer(prices, Standing::Lasting, Taking::AllOrNone, now);
        refused.into_iter().next().map_or(Ok(revision), Err)
    }

    /// The present prices.
    #[must_use]
    pub fn prices(&self) -> Prices {
        self.shared.prices.prices(Moment::now())
    }

    /// The last status of each application.
    #[must_use]
    pub fn statuses(&self) -> Vec<Status> {
        let reported = self.shared.statuses.reported(Moment::now());
        reported.into_iter().map(|reported| reported.status).collect()
    }

    /// Ends it; every connection is closed. Dropping it does the same.
    pub fn shutdown(self) {}
}

/// What people are told where prices come from.
fn name(sources: &[Source]) -> String {
    let names: Vec<&str> = sources.iter().map(Source::name).collect();
    if names.is_empty() { "operator".to_owned() } else { names.join("; ") }
}

impl Drop for Provider {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // Its thread may have ended already.
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
