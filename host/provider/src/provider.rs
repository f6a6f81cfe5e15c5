//! A running provider, and the hands of the program around it.

use crate::accounts::{Accounts, Key};
use crate::clock::Moment;
use crate::http::{self, Hosts, Meters, Rates, Shared};
use crate::ledger::Ledger;
use crate::pace::Pace;
use crate::price_book::{PriceBook, Refused, Standing, Taking};
use crate::source::{self, Journal, Source};
use crate::status_book::StatusBook;
use crate::tls::{Fingerprint, Identity};
use crate::token::{OperatorToken, Token};
use anyhow::{Context, Result, anyhow};
use nom_proto::account::{MachineKeys, NewMachine, Role};
use nom_proto::prices::{Prices, Resource};
use nom_proto::status::Status;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// Far more than a machine, a meter and a page need.
const REQUESTS_PER_SECOND: NonZeroU32 = NonZeroU32::new(200).expect("not 0");

/// What a provider is to be.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it listens; port 0 is any free one.
    pub listen: SocketAddr,
    /// The operator's token; none takes the one of the file, or makes a fresh one.
    pub token: Option<Token>,
    /// File of the operator's token, which is made if it is absent; a new token in it holds at once.
    pub token_file: Option<PathBuf>,
    /// Names by which it may be asked, beside addresses and `localhost`.
    pub hosts: Vec<String>,
    /// Requests a second that each account, and each address without a key, may make.
    pub requests_per_second: NonZeroU32,
    /// The certificate with which it speaks TLS; without one it speaks plain HTTP.
    pub tls: Option<Identity>,
    /// File of the ledger; without one it is lost with the provider.
    pub ledger: Option<PathBuf>,
    /// Where prices come from, besides the operator; no two of the same resource.
    pub sources: Vec<Source>,
    /// What has not reported for longer is forgotten: it is gone from the list, the metrics and the page.
    pub forget_after: Duration,
    /// How fast prices may move.
    pub pace: Pace,
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
            token_file: None,
            tls: None,
            hosts: Vec::new(),
            requests_per_second: REQUESTS_PER_SECOND,
            ledger: None,
            sources: Vec::new(),
            forget_after: Config::FORGET_AFTER,
            pace: Pace::default(),
            log: |_| {},
        }
    }
}

/// A provider that runs on a thread of its own until this is dropped.
#[derive(Debug)]
pub struct Provider {
    address: SocketAddr,
    fingerprint: Option<Fingerprint>,
    token: Token,
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
        let (token, token_file) = match (config.token, config.token_file) {
            (Some(token), _) => (token, None),
            (None, Some(file)) => (Token::from_file(&file)?, Some(file)),
            (None, None) => (Token::random()?, None),
        };
        let ledger = config.ledger.as_deref();
        let shared = Arc::new(Shared {
            prices: PriceBook::new(name(&config.sources), config.pace),
            statuses: StatusBook::new(config.forget_after),
            ledger: Ledger::open(ledger)?,
            tally: Arc::default(),
            journal: Journal::new(&config.sources),
            meters: Meters::default(),
            accounts: Accounts::open(ledger)?,
            token: OperatorToken::new(token.clone(), token_file),
            hosts: Hosts::new(&config.hosts),
            rates: Rates::new(config.requests_per_second),
        });
        let sources =
            source::start(config.sources, &shared, config.log).context("cannot start a price source")?;
        let fingerprint = config.tls.as_ref().map(Identity::fingerprint);
        let tls = config.tls.map(Identity::server).transpose()?;
        let (stop, stopped) = oneshot::channel();
        let thread =
            http::spawn(listener, tls, shared.clone(), stopped).context("cannot start the provider")?;
        Ok(Provider {
            address,
            fingerprint,
            token,
            shared,
            _sources: sources,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same as a URL.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.fingerprint.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// By which clients know its certificate, if it speaks TLS.
    #[must_use]
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.fingerprint
    }

    /// The operator's token with which it was started.
    #[must_use]
    pub fn token(&self) -> &str {
        self.token.reveal()
    }

    /// Registers a machine, as an operator does.
    ///
    /// # Errors
    /// If its name is none, or taken.
    pub fn register(&self, machine: &str, tenant: Option<&str>) -> Result<MachineKeys> {
        let tenant = tenant.map(str::to_owned);
        let new = NewMachine { name: machine.to_owned(), tenant, holder: String::new() };
        self.shared.accounts.register(&new, Moment::now().unix_ns)
    }

    /// Makes a key for an account, as an operator does; a machine has to be registered before.
    ///
    /// # Errors
    /// If the name is none.
    pub fn add_account(&self, role: Role, name: &str) -> Result<Key> {
        self.shared.accounts.add(role, name, Moment::now().unix_ns)
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
