//! `nom provider`: prices, the ledger and what machines report, over REST.

use crate::administer::{Command as Administer, administer, certificate_path, exposes_keys};
use crate::attend::{SIGNAL_POLL, watch_signals};
use crate::store::Store;
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use nom_provider::tls::Identity;
use nom_provider::{Config, Pace, Provider, Source};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Where it listens if nobody says.
const LISTEN: &str = "127.0.0.1:7070";

/// `nom provider`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Sources, with the options of docs/provider.md: schedule:PRICES, trace:FILE.csv,
nom:URL, cloudsigma:LOCATION, azure:REGION, azure-egress:REGION, aws-spot:REGION, aws-spot-list:REGION,
aws-egress:REGION, energy-charts:ZONE.

Examples:
  nom provider --prices 'network_out=1@0s,10@60s; core=0.01'
  nom provider --source trace:prices.csv,speed=60
  nom provider --source azure:westeurope,sku=Standard_D4s_v5,cores=4
  nom provider --config provider.toml --listen 127.0.0.1:8000"
)]
pub struct Options {
    /// What to do with its files, instead of running it.
    #[command(subcommand)]
    command: Option<Administer>,
    /// Take what is not said here from this file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address and port to listen at; port 0 is any free one [default: 127.0.0.1:7070].
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = socket_address)]
    listen: Option<SocketAddr>,
    /// Prices at fixed times, from now on.
    #[arg(long, value_name = "SCHEDULE")]
    prices: Option<String>,
    /// Where prices come from; may be repeated, for different resources.
    #[arg(long = "source", value_name = "SOURCE")]
    sources: Vec<Source>,
    /// The ledger, which is made if it is absent [default: in the directory of nom's state].
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
    /// The operator's token, which is made if it is absent [default: in the directory of nom's state].
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Forget what has not reported for so many seconds [default: 600].
    #[arg(long, value_name = "SECONDS")]
    forget_after: Option<u64>,
    /// Speak TLS, with a certificate that is made at the first start.
    #[arg(long)]
    tls: bool,
    /// The certificate and its key, which are made if the file is absent [default: in the directory of nom's
    /// state].
    #[arg(long, value_name = "FILE", requires = "tls")]
    certificate: Option<PathBuf>,
    /// A name by which it may be asked, beside addresses and localhost; may be repeated.
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    /// Listen at an address that others reach without TLS, as behind a proxy that has it.
    #[arg(long, conflicts_with = "tls")]
    plain: bool,
    /// Most that a price may change at once, as a factor: one that a source names beyond is reached step by
    /// step.
    #[arg(long, value_name = "FACTOR")]
    price_step: Option<f64>,
    /// Most that a price may change within a minute, as a factor.
    #[arg(long, value_name = "FACTOR")]
    price_minute: Option<f64>,
}

fn socket_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("expected ADDRESS:PORT, such as {LISTEN}"))
}

/// Runs a provider until a signal ends it.
///
/// # Errors
/// If something that was asked for is wrong, or the address is taken.
pub fn provider(options: &Options) -> Result<u8> {
    if let Some(command) = &options.command {
        return administer(command);
    }
    let signal = watch_signals()?;
    let (config, token_file) = configuration(options)?;
    if exposes_keys(config.listen, config.tls.is_some()) && !options.plain {
        bail!(
            "--listen {}: keys would pass the network in the clear: expected --tls, or --plain behind a \
             proxy that has TLS",
            config.listen
        );
    }
    let ledger = config.ledger.as_deref().unwrap_or(Path::new("in memory")).display().to_string();
    let provider = Provider::start(config)?;
    println!("{}", provider.url());
    std::io::stdout().flush()?;
    eprintln!("prices: {}; ledger: {ledger}; {token_file}", provider.prices().source);
    if let Some(fingerprint) = provider.fingerprint() {
        eprintln!("certificate: --pin {fingerprint}");
    }
    while signal.load(Ordering::Relaxed) == 0 {
        std::thread::sleep(SIGNAL_POLL);
    }
    provider.shutdown();
    Ok(0)
}

/// What the provider is to be, and where its token is, for people.
fn configuration(options: &Options) -> Result<(Config, String)> {
    let mut config = match &options.config {
        Some(path) => Config::from_file(path)?,
        None => Config { listen: LISTEN.parse().expect("an address"), ..Config::default() },
    };
    config.log = |line| eprintln!("nom: {line}");
    if let Some(listen) = options.listen {
        config.listen = listen;
    }
    if let Some(seconds) = options.forget_after {
        config.forget_after = Duration::from_secs(seconds);
    }
    if let Some(ledger) = &options.ledger {
        config.ledger = Some(ledger.clone());
    }
    if !options.sources.is_empty() || options.prices.is_some() {
        config.sources = options.sources.clone();
    }
    if let Some(schedule) = &options.prices {
        config.sources.push(Source::schedule(schedule).context("--prices")?);
    }
    if config.ledger.is_none() {
        config.ledger = Some(state_file("ledger.db")?);
    }
    if let Some(path) = &options.token_file {
        config.token_file = Some(path.clone());
    }
    let token_file = config.token_file.take().map_or_else(|| state_file("token"), Ok)?;
    let described = format!("operator's token: {}", token_file.display());
    config.token_file = Some(token_file);
    if options.price_step.is_some() || options.price_minute.is_some() {
        config.pace =
            Pace::new(options.price_step, options.price_minute).map_err(|error| anyhow!("--{error}"))?;
    }
    config.hosts.extend(options.hosts.iter().cloned());
    if options.tls {
        let path = certificate_path(options.certificate.as_deref())?;
        config.tls = Some(Identity::from_file(&path, &config.hosts)?);
    }
    Ok((config, described))
}

/// A file of the provider among nom's own, whose directory is made.
pub fn state_file(name: &str) -> Result<PathBuf> {
    let directory = Store::open()?.root().join("provider");
    std::fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    Ok(directory.join(name))
}
