//! `provider.toml`: what a provider is to be, in a file.

use crate::pace::Pace;
use crate::provider::Config;
use crate::source::Source;
use crate::tls::Identity;
use anyhow::{Context, Result, anyhow};
use serde::Deserialize;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    listen: Option<SocketAddr>,
    token_file: Option<PathBuf>,
    ledger: Option<PathBuf>,
    source: Option<String>,
    #[serde(default)]
    hosts: Vec<String>,
    requests_per_second: Option<NonZeroU32>,
    #[serde(default)]
    tls: bool,
    certificate: Option<PathBuf>,
    price_step: Option<f64>,
    price_minute: Option<f64>,
    #[serde(default)]
    sources: Vec<String>,
    schedule: Option<String>,
    forget_after_seconds: Option<u64>,
}

impl Config {
    /// Reads the file at `path`; other files that it names are looked for beside it.
    ///
    /// # Errors
    /// If it cannot be read, has a field that nobody knows, or names a source that is none.
    pub fn from_file(path: &Path) -> Result<Config> {
        let named = || path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(named)?;
        let file: File = toml::from_str(&text).with_context(named)?;
        let beside = |other: PathBuf| path.parent().unwrap_or(Path::new("")).join(other);
        let mut config = Config {
            token_file: file.token_file.map(beside),
            ledger: file.ledger.map(beside),
            hosts: file.hosts,
            ..Config::default()
        };
        config.pace = Pace::new(file.price_step, file.price_minute)
            .map_err(|error| anyhow!(error))
            .with_context(named)?;
        if file.tls {
            let path = beside(file.certificate.unwrap_or_else(|| PathBuf::from("certificate.pem")));
            config.tls = Some(Identity::from_file(&path, &config.hosts)?);
        }
        if let Some(rate) = file.requests_per_second {
            config.requests_per_second = rate;
        }
        if let Some(listen) = file.listen {
            config.listen = listen;
        }
        if let Some(seconds) = file.forget_after_seconds {
            config.forget_after = Duration::from_secs(seconds);
        }
        for source in file.source.iter().chain(&file.sources) {
            config.sources.push(source.parse().with_context(named)?);
        }
        if let Some(schedule) = file.schedule {
            config.sources.push(Source::schedule(&schedule).with_context(named)?);
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("provider.toml");
        std::fs::write(&path, text).expect("written");
        Config::from_file(&path)
    }

    #[test]
    fn a_file_says_everything() {
        let config = read(
            "listen = '127.0.0.1:7070'\nledger = 'ledger.db'\ntoken_file = 'token'\ntls = true\n\
             hosts = ['bills.example']\nrequests_per_second = 50\nprice_step = 2\nprice_minute = 10.0\n\
             source = 'energy-charts:DE-LU,dollars_per_euro=1.1'\n\
             schedule = 'network_out=1@0s,10@60s; core=0.01'\nforget_after_seconds = 60\n",
        )
        .expect("good");
        assert_eq!(config.listen.port(), 7070);
        assert_eq!(config.forget_after, Duration::from_secs(60));
        assert!(config.ledger.expect("named").ends_with("ledger.db") && config.token_file.is_some());
        assert!(config.tls.is_some() && config.pace == Pace { step: 2.0, minute: 10.0 });
        let names: Vec<&str> = config.sources.iter().map(Source::name).collect();
        assert_eq!(names, ["energy-charts DE-LU", "schedule"]);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, expected) in [
            ("lisen = 'x'", "lisen"),
            ("listen = '127.0.0.1'", "listen"),
            ("source = 'gold:x'", "`gold`"),
            ("price_step = 0.5", "price_step"),
            ("schedule = 'core=free'", "`free`"),
        ] {
            let error = format!("{:#}", read(text).expect_err(expected));
            assert!(error.contains(expected) && error.contains("provider.toml"), "{error}");
        }
    }
}
