//! What machines earn, as the providers that they report to know it.

use crate::credentials;
use crate::store::Machine;
use crate::watch::model::SILENCE;
use crate::watch::text;
use nom_proto::path;
use nom_proto::status::Reported;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use ureq::Agent;

/// How long a provider may take: people wait for the list.
const ANSWER: Duration = Duration::from_secs(1);

/// What one machine earns, all of its applications together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Earned {
    /// Revenue less cost so far, in dollars.
    pub profit: f64,
    /// In dollars a second, over the last stretch that was reported.
    pub profit_per_second: f64,
    /// How long ago the last report was.
    pub age_seconds: f64,
}

impl fmt::Display for Earned {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} $", text::number(self.profit))?;
        if self.age_seconds > SILENCE.as_secs_f64() {
            return write!(out, ", silent for {}", text::stretch(self.age_seconds));
        }
        write!(out, ", {} $/s", text::number(self.profit_per_second))
    }
}

/// What each machine earns that reports to anybody.
#[derive(Clone, Debug, Default)]
pub struct Earnings(BTreeMap<String, Earned>);

impl Earnings {
    /// Of those of `machines` that run; asks the provider of each. One that does not answer knows nothing.
    pub fn of(machines: &[Machine]) -> Earnings {
        let running = || machines.iter().filter(|machine| machine.is_running());
        let mut earnings = Earnings::default();
        for machine in running() {
            let (Some(provider), Some(key)) = (&machine.record.provider, credentials::of(&machine.directory))
            else {
                continue;
            };
            // Each by its own key, with which it sees itself alone.
            ask(provider, &key).iter().for_each(|report| earnings.add(report));
        }
        earnings
    }

    /// What it earns, if it has reported.
    pub fn of_machine(&self, name: &str) -> Option<Earned> {
        self.0.get(name).copied()
    }

    /// What has no contract earns nothing.
    fn add(&mut self, Reported { status, age_seconds }: &Reported) {
        if !status.has_contract() {
            return;
        }
        let nothing = Earned { profit: 0.0, profit_per_second: 0.0, age_seconds: 0.0 };
        let earned = self.0.entry(status.machine.clone()).or_insert(nothing);
        earned.profit += status.profit;
        earned.profit_per_second += status.revenue_per_second - status.cost_per_second;
        earned.age_seconds = earned.age_seconds.max(*age_seconds);
    }
}

/// The last report of each application that the owner of the key may see.
fn ask(provider: &str, key: &str) -> Vec<Reported> {
    let agent: Agent = Agent::config_builder().timeout_global(Some(ANSWER)).build().into();
    let answer = agent.get(format!("{provider}{}", path::STATUS));
    let answer = answer.header("Authorization", format!("Bearer {key}")).call();
    let text = answer.ok().and_then(|mut answer| answer.body_mut().read_to_string().ok());
    text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::model::tests::status;
    use nom_proto::status::{Solvency, State, Status};

    #[test]
    fn applications_of_a_machine_earn_together() {
        let mut earnings = Earnings::default();
        for (application, age_seconds) in [("a", 0.25), ("b", 0.5)] {
            let figures = Status {
                application: application.into(),
                profit: 10.0,
                revenue_per_second: 3.0,
                cost_per_second: 1.0,
                ..status(1)
            };
            earnings.add(&Reported { status: figures, age_seconds });
        }
        let earned = earnings.of_machine(&status(1).machine).expect("it reported");
        assert_eq!(earned, Earned { profit: 20.0, profit_per_second: 4.0, age_seconds: 0.5 });
        assert_eq!(earned.to_string(), "20.0 $, 4.00 $/s");
        assert_eq!(Earned { age_seconds: 9.0, ..earned }.to_string(), "20.0 $, silent for 9 s");
        let solvency = Solvency { state: State::NoContract, ..Solvency::default() };
        let unpaid = Status { machine: "another".into(), solvency, ..status(1) };
        earnings.add(&Reported { status: unpaid, age_seconds: 0.0 });
        assert_eq!(earnings.of_machine("another"), None);
    }

    #[test]
    fn a_provider_that_is_gone_knows_nothing() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it has one");
        drop(listener);
        assert!(ask(&format!("http://{address}"), "key").is_empty());
    }
}
