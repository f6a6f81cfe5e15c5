//! What an application says of itself beside what its clients say: a check, for no money depends on it.

use super::contract::{Contract, Function};
use super::market::Heard;
use super::money::{Money, Served};
use super::runner::Adaptation;

/// Two answers to one question.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// By the clients, or by the TAP device.
    pub clients: f64,
    /// By the application.
    pub application: f64,
}

/// What was asked of one adaptive run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Agreement {
    /// By which function it adapted.
    pub function: Function,
    /// Profit in dollars. The application's revenue is for all that left, a client's for replies alone.
    pub profit: Pair,
    /// Bytes that left the machine.
    pub sent_bytes: Pair,
    /// Mean latency in each phase, in seconds.
    pub latency_s: [Pair; 2],
}

impl Agreement {
    /// Of one run; none unless both have said something of both phases.
    pub fn of(run: &Adaptation, contract: &Contract) -> Option<Agreement> {
        let change_s = run.set.last()?.at_s;
        let (before, after): (Vec<&Heard>, Vec<&Heard>) =
            run.heard.iter().partition(|heard| heard.at_s < change_s);
        let intervals = || run.halves.iter().flatten();
        let money: Money = intervals().map(|interval| interval.money(contract)).sum();
        let latency = |phase: usize, heard: &[&Heard]| {
            let clients = Served::of(&run.halves[phase])?.latency_s;
            Some(Pair { clients, application: mean_latency_s(heard)? })
        };
        let sent = |heard: &Heard| heard.status.sent_bytes as f64;
        Some(Agreement {
            function: run.function,
            profit: Pair { clients: money.profit(), application: run.heard.last()?.status.profit },
            sent_bytes: Pair {
                clients: intervals().map(|interval| interval.sent_bytes).sum(),
                application: run.heard.iter().map(sent).sum(),
            },
            latency_s: [latency(0, &before)?, latency(1, &after)?],
        })
    }
}

/// Of all requests in these reports.
fn mean_latency_s(heard: &[&Heard]) -> Option<f64> {
    let requests: f64 = heard.iter().map(|heard| heard.status.requests as f64).sum();
    let sum: f64 =
        heard.iter().map(|heard| heard.status.requests as f64 * heard.status.latency_mean_ns as f64).sum();
    (requests > 0.0).then(|| sum / requests / 1e9)
}

#[cfg(test)]
mod tests {
    use super::super::contract::{PAPER_LATENCY_S, Slowness};
    use super::super::market::Set;
    use super::super::market::tests::heard;
    use super::super::money::tests::second;
    use super::*;

    #[test]
    fn phases_are_parted_by_the_change_of_price() {
        let contract = Contract::new(Function::Bonus, Slowness::of(PAPER_LATENCY_S).unwrap()).unwrap();
        let says = |at_s: f64, requests: u64, latency_mean_ns: u64| {
            let mut heard = heard(at_s, at_s, 1);
            (heard.status.requests, heard.status.latency_mean_ns) = (requests, latency_mean_ns);
            (heard.status.sent_bytes, heard.status.profit) = (100, at_s);
            heard
        };
        let run = Adaptation {
            function: Function::Bonus,
            halves: [vec![second(1.0, 4e-4, 1.0)], vec![second(1.0, 2e-4, 10.0)]],
            set: vec![Set { at_s: 0.0, revision: 1 }, Set { at_s: 2.0, revision: 2 }],
            governing_share: None,
            heard: vec![says(1.0, 10, 400_000), says(1.9, 30, 800_000), says(2.1, 5, 100_000)],
        };
        let agreement = Agreement::of(&run, &contract).unwrap();
        assert!((agreement.latency_s[0].application - 7e-4).abs() < 1e-12);
        assert!((agreement.latency_s[1].application - 1e-4).abs() < 1e-12);
        assert!((agreement.latency_s[1].clients - 2e-4).abs() < 1e-12);
        assert_eq!((agreement.sent_bytes.application, agreement.profit.application), (300.0, 2.1));
        assert!((agreement.profit.clients - (20.0 + 25.0 - 1.1 + 20.0 + 50.0 - 11.0)).abs() < 1e-6);
        assert_eq!(Agreement::of(&Adaptation { heard: vec![], ..run }, &contract), None);
    }
}
