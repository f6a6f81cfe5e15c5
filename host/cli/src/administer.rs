//! `nom provider account`, `backup`, `bill` and `token`: what its owner does with a provider's files, whether
//! it runs or not.

use crate::provider::state_file;
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use nom_proto::account::{NewMachine, Role};
use nom_provider::{Accounts, Stored, Token, files};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What to do with a provider's files.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make, list, rotate and end the keys of accounts.
    #[command(subcommand)]
    Account(Account),
    /// Copy the ledger, with all accounts, to a new file; the provider may run meanwhile.
    Backup(Backup),
    /// Print what is owed, from a ledger or a copy of one, as JSON or in the columns of FOCUS.
    Bill(Bill),
    /// Put a new operator's token into its file; the old one ends at once.
    #[command(name = "rotate-token")]
    RotateToken(RotateToken),
}

/// `nom provider account`.
#[derive(Debug, Subcommand)]
pub enum Account {
    /// Make a key for an account, and print it; of a machine its own and its meter's.
    Add(Add),
    /// List all keys by their ids, but not the keys.
    List(Place),
    /// Make a new key for an account, and let the others go on for a while.
    Rotate(Rotate),
    /// End all keys of an account, or the one of that id.
    Revoke(Revoke),
}

/// Which ledger.
#[derive(Debug, Args)]
pub struct Place {
    /// The ledger [default: in the directory of nom's state].
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
}

/// `nom provider account add`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  nom provider account add tenant alice
  nom provider account add machine web-1 --tenant alice > web-1.keys
  nom provider account add auditor prometheus")]
pub struct Add {
    /// Role.
    role: RoleName,
    /// Name of the tenant, the machine, or whoever it is.
    name: String,
    /// Who pays for the machine.
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    #[command(flatten)]
    place: Place,
}

/// `nom provider account rotate`.
#[derive(Debug, Args)]
pub struct Rotate {
    /// Role.
    role: RoleName,
    /// Account.
    name: String,
    /// Seconds that the other keys go on.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    grace: u64,
    #[command(flatten)]
    place: Place,
}

/// `nom provider account revoke`.
#[derive(Debug, Args)]
pub struct Revoke {
    /// Account, or id of a key.
    name: String,
    #[command(flatten)]
    place: Place,
}

/// `nom provider backup`.
#[derive(Debug, Args)]
pub struct Backup {
    /// File to write, which must not be there.
    to: PathBuf,
    #[command(flatten)]
    place: Place,
}

/// `nom provider bill`.
#[derive(Debug, Args)]
pub struct Bill {
    /// Of this tenant alone.
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// In the columns of FOCUS 1.2, as CSV.
    #[arg(long)]
    focus: bool,
    #[command(flatten)]
    place: Place,
}

/// `nom provider rotate-token`.
#[derive(Debug, Args)]
pub struct RotateToken {
    /// The operator's token [default: in the directory of nom's state].
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// Roles, as the command line has them.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum RoleName {
    /// Does everything.
    Operator,
    /// Reads everything, as Prometheus does.
    Auditor,
    /// Reads what its machines report and owe.
    Tenant,
    /// A machine, which reports, and its meter, which enters records.
    Machine,
    /// A machine's meter.
    Meter,
}

impl From<RoleName> for Role {
    fn from(name: RoleName) -> Role {
        match name {
            RoleName::Operator => Role::Operator,
            RoleName::Auditor => Role::Auditor,
            RoleName::Tenant => Role::Tenant,
            RoleName::Machine => Role::Machine,
            RoleName::Meter => Role::Meter,
        }
    }
}

/// Does it.
///
/// # Errors
/// If a file is absent or something else, or what is asked for makes no sense.
pub fn administer(command: &Command) -> Result<u8> {
    match command {
        Command::Account(Account::Add(options)) => add(options)?,
        Command::Account(Account::List(place)) => {
            print!("{}", table(&place.accounts()?.list()?, now_ns()));
        }
        Command::Account(Account::Rotate(options)) => rotate(options)?,
        Command::Account(Account::Revoke(options)) => {
            let ended = options.place.accounts()?.revoke(&Role::ALL, &options.name, now_ns())?;
            if ended == 0 {
                bail!("`{}` has no key: expected an account or an id of `account list`", options.name);
            }
            println!("{ended} keys ended");
        }
        Command::Backup(options) => {
            files::back_up(&options.place.path()?, &options.to)?;
            println!("{}", options.to.display());
        }
        Command::Bill(options) => print!("{}", bill(options)?),
        Command::RotateToken(options) => {
            let path = options.token_file.clone().map_or_else(|| state_file("token"), Ok)?;
            Token::rotate(&path)?;
            println!("{}", path.display());
        }
    }
    Ok(0)
}

impl Place {
    fn path(&self) -> Result<PathBuf> {
        self.ledger.clone().map_or_else(|| state_file("ledger.db"), Ok)
    }

    fn accounts(&self) -> Result<Accounts> {
        Accounts::open(Some(&self.path()?))
    }
}

fn add(options: &Add) -> Result<()> {
    let accounts = options.place.accounts()?;
    let role = Role::from(options.role);
    if role == Role::Machine {
        let (name, tenant) = (options.name.clone(), options.tenant.clone());
        let keys = accounts.register(&NewMachine { name, tenant, holder: String::new() }, now_ns())?;
        println!("{}", serde_json::to_string_pretty(&keys)?);
        return Ok(());
    }
    if options.tenant.is_some() {
        bail!("--tenant: only a machine has one, not the role {}", role.name());
    }
    println!("{}", accounts.add(role, &options.name, now_ns())?.reveal());
    Ok(())
}

fn rotate(options: &Rotate) -> Result<()> {
    let now = now_ns();
    let ends = now.saturating_add(options.grace.saturating_mul(1_000_000_000));
    let key = options.place.accounts()?.rotate(options.role.into(), &options.name, now, ends)?;
    println!("{}", key.reveal());
    Ok(())
}

fn bill(options: &Bill) -> Result<String> {
    let path = options.place.path()?;
    let tenant = options.tenant.as_deref();
    if options.focus {
        return String::from_utf8(files::focus(&path, tenant)?).context("a bill");
    }
    Ok(serde_json::to_string_pretty(&files::summary_of(&path, tenant)?)? + "\n")
}

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_nanos() as u64
}

fn table(keys: &[Stored], now_ns: u64) -> String {
    let mut text = format!("{:<14}{:<10}{:<24}STATE\n", "ID", "ROLE", "NAME");
    for key in keys {
        let state = match key.ends_unix_ns {
            None => "good".to_owned(),
            Some(ends) if ends <= now_ns => "ended".to_owned(),
            Some(ends) => format!("ends in {} s", (ends - now_ns) / 1_000_000_000),
        };
        text.push_str(&format!("{:<14}{:<10}{:<24}{state}\n", key.id, key.owner.role.name(), key.owner.name));
    }
    text
}

/// Whether keys would pass a network in the clear.
pub fn exposes_keys(listen: std::net::SocketAddr, has_tls: bool) -> bool {
    !listen.ip().is_loopback() && !has_tls
}

/// Where the certificate is if nobody says.
///
/// # Errors
/// If there is no directory for it.
pub fn certificate_path(chosen: Option<&Path>) -> Result<PathBuf> {
    chosen.map_or_else(|| state_file("certificate.pem"), |path| Ok(path.to_owned()))
}
