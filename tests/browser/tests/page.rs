//! The provider's page in Chromium: each test is a real provider and a scenario of `scenarios.py`, which
//! steers the browser and asks this side, line by line, to steer the provider.
#![forbid(unsafe_code)]

use nom_proto::prices::Resource;
use nom_provider::{Config, Provider, Token};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

/// The operator's token.
const TOKEN: &str = "0123456789abcdef0123456789abcdef";
/// Python with what `requirements.txt` names; `nom test browser` sets it.
const PYTHON: &str = "NOM_BROWSER_PYTHON";

/// A provider that can be away for a while.
struct Stage {
    address: SocketAddr,
    provider: Option<Provider>,
}

/// The same operator's token for every provider of a scenario, as if it were in a file.
fn config() -> Config {
    Config { token: Some(Token::new(TOKEN).expect("long enough")), ..Config::default() }
}

impl Stage {
    fn new() -> Stage {
        let provider = Provider::start(config()).expect("a provider");
        Stage { address: provider.address(), provider: Some(provider) }
    }

    /// Does what a scenario asks for, `price NETWORK_OUT`, `stop` or `start`, and answers.
    fn obey(&mut self, request: &str) -> String {
        match request.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["price", dollars] => {
                let dollars: f64 = dollars.parse().expect("a price");
                let provider = self.provider.as_ref().expect("it runs");
                provider.set_prices(&[(Resource::NetworkOut, dollars)]).expect("a price that is taken");
            }
            ["stop"] => self.provider = None,
            ["start"] => {
                let config = Config { listen: self.address, ..config() };
                self.provider = Some(Provider::start(config).expect("its port is free again"));
            }
            other => panic!("a scenario asks for {other:?}"),
        }
        "done".to_owned()
    }
}

fn play(scenario: &str) {
    let python =
        std::env::var_os(PYTHON).unwrap_or_else(|| panic!("{PYTHON} is not set: `nom test browser` sets it"));
    let mut stage = Stage::new();
    let mut browser = Command::new(python)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios.py"))
        .args([scenario, &format!("http://{}/#key={TOKEN}", stage.address)])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python starts");
    let mut answers = browser.stdin.take().expect("it has one");
    let requests = BufReader::new(browser.stdout.take().expect("it has one"));
    for request in requests.lines() {
        let answer = stage.obey(&request.expect("text"));
        writeln!(answers, "{answer}").expect("it listens");
    }
    let status = browser.wait().expect("it ends");
    assert!(status.success(), "{scenario}: {status}, see above");
}

#[test]
fn prices_and_reports_are_shown_as_they_come() {
    play("figures");
}

#[test]
fn an_outage_is_shown_and_overcome() {
    play("outage");
}

#[test]
fn names_are_text_and_the_page_is_for_everybody() {
    play("readers");
}

#[test]
fn an_old_answer_takes_no_newer_report_away() {
    play("late");
}

#[test]
fn no_column_is_hidden_on_a_screen_of_1300_pixels() {
    play("columns");
}
