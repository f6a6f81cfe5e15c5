//! The keys with which a machine reports to its provider, and is metered for it.

use crate::store::Store;
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use nom_proto::account::{MachineKeys, NewMachine};
use nom_proto::path;
use nom_provider::meter::Basis;
use nom_provider::{Token, tls};
use serde::{Deserialize, Serialize};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use ureq::Agent;

/// How long the provider may take to register a machine.
const PATIENCE: Duration = Duration::from_secs(10);
/// File of the machine's key in its directory, for `nom ps`.
const KEY_FILE: &str = "provider.key";

/// Who a machine is at its provider.
#[derive(Clone, Debug, Default, Args)]
pub struct Options {
    /// With --provider: the machine's keys there, from `nom provider account add machine`; its name is in
    /// them.
    #[arg(long, value_name = "FILE", requires = "provider")]
    pub keys: Option<PathBuf>,
    /// With --provider: the operator's token there, to register the machine [default: of this user's own
    /// provider].
    #[arg(long, value_name = "FILE", requires = "provider", conflicts_with = "keys")]
    pub token_file: Option<PathBuf>,
    /// With --provider: who pays for the machine, when it is registered.
    #[arg(long, value_name = "NAME", requires = "provider", conflicts_with = "keys")]
    pub tenant: Option<String>,
    /// With --provider https://...: fingerprint of its certificate, as it prints it [default: of this user's
    /// own provider].
    #[arg(long, value_name = "SHA-256", requires = "provider")]
    pub pin: Option<String>,
    /// What cores and memory are charged by: what the machine says that it holds, as far as that can be true,
    /// or what its configuration gives it.
    #[arg(long, value_enum, value_name = "held|configured", default_value_t = ChargeBy::Held)]
    pub charge_by: ChargeBy,
}

/// Values of `--charge-by`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ChargeBy {
    /// What is held.
    #[default]
    Held,
    /// What could be held.
    Configured,
}

impl From<ChargeBy> for Basis {
    fn from(by: ChargeBy) -> Basis {
        match by {
            ChargeBy::Held => Basis::Held,
            ChargeBy::Configured => Basis::Configured,
        }
    }
}

/// A machine that was registered for as long as it runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Registration {
    base: String,
    token: String,
    name: String,
}

impl Options {
    /// Keys from a file, if one is given.
    ///
    /// # Errors
    /// If it cannot be read, or holds something else.
    pub fn given(&self) -> Result<Option<MachineKeys>> {
        let Some(path) = &self.keys else { return Ok(None) };
        let named = || format!("--keys {}", path.display());
        let text = std::fs::read_to_string(path).with_context(named)?;
        let keys = serde_json::from_str(&text);
        keys.with_context(|| format!("{}: expected what `nom provider account add machine` printed", named()))
            .map(Some)
    }

    /// Registers the machine `name` at the provider at `base`.
    ///
    /// # Errors
    /// If nobody knows the operator's token, or the provider refuses.
    pub fn register(&self, base: &str, name: &str) -> Result<(MachineKeys, Registration)> {
        let token = self.token()?;
        let new = NewMachine { name: name.to_owned(), tenant: self.tenant.clone(), holder: holder() };
        let url = format!("{base}{}", path::MACHINES);
        let request = agent().post(&url).header("Content-Type", "application/json");
        let request = request.header("Authorization", format!("Bearer {}", token.reveal()));
        let mut answer =
            request.send(serde_json::to_string(&new)?).with_context(|| format!("cannot ask {url}"))?;
        let text = answer.body_mut().read_to_string().with_context(|| format!("cannot read {url}"))?;
        ensure!(answer.status().is_success(), "{url} refuses machine `{name}`: {}", reason(&text));
        let keys = serde_json::from_str(&text).with_context(|| format!("{url} answers no keys"))?;
        let token = token.reveal().to_owned();
        Ok((keys, Registration { base: base.to_owned(), token, name: name.to_owned() }))
    }

    /// Fingerprint of the provider's certificate.
    ///
    /// # Errors
    /// If none is given, and this user has no provider of his own.
    pub fn pin(&self) -> Result<String> {
        if let Some(pin) = &self.pin {
            return Ok(pin.clone());
        }
        let path = Store::open()?.root().join("provider/certificate.pem");
        let known = tls::fingerprint_of(&path).map(|fingerprint| fingerprint.to_string());
        known.context("--provider https://...: expected --pin with the fingerprint that the provider prints")
    }

    fn token(&self) -> Result<Token> {
        if let Some(path) = &self.token_file {
            return Token::read(path);
        }
        let path = Store::open()?.root().join("provider/token");
        if !path.exists() {
            bail!(
                "--provider: the machine needs keys there, and {} is absent: expected --keys FILE of \
                 `nom provider account add machine`, or --token-file FILE of the operator",
                path.display()
            );
        }
        Token::read(&path)
    }
}

impl Registration {
    /// Ends the machine's keys.
    ///
    /// # Errors
    /// If the provider cannot be reached; the next machine of this name ends them, too.
    pub fn give_up(self) -> Result<()> {
        let url = format!("{}{}/{}", self.base, path::MACHINES, self.name);
        let request = agent().delete(&url).header("Authorization", format!("Bearer {}", self.token));
        request.call().with_context(|| format!("cannot ask {url}")).map(drop)
    }
}

/// Writes the machine's key into its directory, for its owner alone.
///
/// # Errors
/// If it cannot be written.
pub fn save(directory: &Path, key: &str) -> Result<()> {
    let path = directory.join(KEY_FILE);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    let written = file.as_mut().map(|file| file.write_all(key.as_bytes()));
    written
        .map_err(|error| anyhow::anyhow!("cannot write {}: {error}", path.display()))?
        .with_context(|| format!("cannot write {}", path.display()))
}

/// The key of the machine of a directory, if it has one.
pub fn of(directory: &Path) -> Option<String> {
    std::fs::read_to_string(directory.join(KEY_FILE)).ok()
}

/// This user of this computer: machines that another has registered are not his to register.
fn holder() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let user = std::env::var("USER").unwrap_or_else(|_| "?".to_owned());
    format!("{}/{user}", host.trim())
}

/// What a provider's refusal says.
fn reason(text: &str) -> String {
    let problem = serde_json::from_str::<nom_proto::problem::Problem>(text);
    problem.map_or_else(|_| text.chars().take(200).collect(), |problem| problem.detail)
}

fn agent() -> Agent {
    Agent::config_builder().http_status_as_error(false).timeout_global(Some(PATIENCE)).build().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nom_provider::{Config, Provider};

    #[test]
    fn a_machine_is_registered_and_given_up() {
        let directory = tempfile::tempdir().expect("a directory");
        let token_file = directory.path().join("token");
        let config = Config { token_file: Some(token_file.clone()), ..Config::default() };
        let provider = Provider::start(config).expect("it starts");
        let options =
            Options { token_file: Some(token_file), tenant: Some("alice".into()), ..Options::default() };
        let (keys, registration) = options.register(&provider.url(), "web-1").expect("registered");
        save(directory.path(), &keys.machine_key).expect("written");
        assert_eq!(of(directory.path()), Some(keys.machine_key.clone()));
        let file = directory.path().join("keys");
        std::fs::write(&file, serde_json::to_string(&keys).expect("plain data")).expect("written");
        let given = Options { keys: Some(file.clone()), ..Options::default() }.given().expect("read");
        assert_eq!(given, Some(keys.clone()));
        std::fs::write(&file, "{}").expect("written");
        let error = Options { keys: Some(file), ..Options::default() }.given().expect_err("no keys");
        assert!(format!("{error:#}").contains("account add machine"), "{error:#}");
        let status = |key: &str| {
            let request = agent().get(format!("{}{}", provider.url(), path::STATUS));
            request
                .header("Authorization", format!("Bearer {key}"))
                .call()
                .expect("an answer")
                .status()
                .as_u16()
        };
        assert_eq!(status(&keys.machine_key), 200);
        registration.give_up().expect("done");
        assert_eq!(status(&keys.machine_key), 401);
        let error = format!("{:#}", options.register(&provider.url(), "a/b").expect_err("no name"));
        assert!(error.contains("refuses machine `a/b`"), "{error}");
    }
}
