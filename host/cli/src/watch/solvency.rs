//! What there is to say of a contract, in words.

use super::text;
use nom_proto::status::{Solvency, State, Status};

/// Where it is said how a server refuses what does not pay.
const OFFER: &str = "docs/earn.md: `refuse`";

/// Why an application's contract does not pay, and whom it refuses; nothing if nothing is amiss.
pub fn sentence(status: &Status) -> Option<String> {
    let Solvency { state, clients_max, .. } = status.solvency;
    let is_loss = matches!(state, State::CostsMore | State::Late);
    let why = match state {
        State::NoContract => return None,
        State::Pays => None,
        State::CostsMore => Some("each request costs more than it brings".to_owned()),
        State::Late => Some(lateness(&status.solvency)),
        State::HeldCostsMore => Some("its cores and memory cost more than its requests bring".to_owned()),
    };
    let refused = match clients_max {
        Some(0) => Some("all clients are refused, one is tried every 10 s".to_owned()),
        Some(most) => Some(format!("more than {most} clients on a core are refused")),
        None => is_loss.then(|| OFFER.to_owned()),
    };
    let parts: Vec<String> = why.into_iter().chain(refused).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn lateness(solvency: &Solvency) -> String {
    let Solvency { objective_ns, soonest_p99_ns, soonest_delay_us, .. } = *solvency;
    let what = match objective_ns {
        0 => "requests are answered too late to pay".to_owned(),
        promised => format!("the promise of {} is missed", text::latency(promised)),
    };
    let delay = if soonest_delay_us == 0 { "0".to_owned() } else { format!("{soonest_delay_us} us") };
    format!("{what}: p99 is {} at W = {delay}", text::latency(soonest_p99_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::model::tests::status;

    fn said(solvency: Solvency) -> Option<String> {
        sentence(&Status { solvency, ..status(1) })
    }

    #[test]
    fn what_is_amiss_is_said_in_a_sentence() {
        let solvency = |state| Solvency { state, ..Solvency::default() };
        assert_eq!(said(solvency(State::Pays)), None);
        assert_eq!(said(solvency(State::NoContract)), None);
        let costs = said(solvency(State::CostsMore)).expect("a sentence");
        assert!(costs.ends_with("costs more than it brings; docs/earn.md: `refuse`"), "{costs}");
        let late = Solvency {
            objective_ns: 750_000,
            soonest_p99_ns: 2_100_000,
            clients_max: Some(4),
            ..solvency(State::Late)
        };
        assert_eq!(
            said(late).as_deref(),
            Some(
                "the promise of 750 us is missed: p99 is 2.10 ms at W = 0; more than 4 clients on a core are \
                 refused"
            )
        );
        let fixed = Solvency { soonest_delay_us: 50, objective_ns: 0, clients_max: Some(0), ..late };
        assert_eq!(
            said(fixed).as_deref(),
            Some(
                "requests are answered too late to pay: p99 is 2.10 ms at W = 50 us; all clients are \
                 refused, one is tried every 10 s"
            )
        );
        assert_eq!(
            said(solvency(State::HeldCostsMore)).as_deref(),
            Some("its cores and memory cost more than its requests bring")
        );
    }
}
