//! What each tenant pays, on a machine of any speed.

use super::{Scheduler, TENANTS, Taken};
use crate::table::Table;
use anyhow::{Context, Result, ensure};
use nom_economy::prices::Prices;
use nom_economy::response::Response;
use nom_economy::units::{GbitPerSecond, OperationsPerSecond, Seconds};
use nom_economy::utility::{Latency, Term, Unit, Utility};
use std::fmt::Write as _;

/// What gold and silver pay for a request that is answered soon, in dollars; and bronze for a Gbit, which is
/// less for each request.
const GOLD: f64 = 3e-6;
const SILVER: f64 = 2e-6;
const BRONZE: f64 = 0.6;
/// A request of gold that comes too late costs what this many bring.
const FACTOR: f64 = 2.0;
/// How many times as long as where it is alone gold may wait; and until silver pays nothing more.
const GOLD_WAITS: f64 = 2.0;
const SILVER_WAITS: f64 = 100.0;

/// The contracts of all tenants.
#[derive(Debug)]
pub struct Contracts {
    /// What gold sees where it is alone.
    alone_s: f64,
    objective_s: f64,
    slope: f64,
    utilities: [Utility; TENANTS.len()],
}

impl Contracts {
    /// For a machine in which gold waits so long where it is alone.
    ///
    /// # Errors
    /// If that is no time.
    pub fn of(alone_s: f64) -> Result<Contracts> {
        ensure!(alone_s > 0.0 && alone_s.is_finite(), "a latency of {alone_s} s: expected more than none");
        let objective_s = GOLD_WAITS * alone_s;
        let slope = SILVER / (SILVER_WAITS * alone_s);
        let utility = |unit, term: Term| {
            Utility::new(unit, None, vec![term])
                .map_err(|why| anyhow::anyhow!("a tenant's contract: {why:?}"))
        };
        let utilities = [
            utility(Unit::Operation, Term::penalty(GOLD, FACTOR, objective_s).context("gold's contract")?)?,
            utility(Unit::Operation, Term::refund(SILVER, slope).context("silver's contract")?)?,
            utility(Unit::Gbit, Term::value(BRONZE).context("bronze's contract")?)?,
        ];
        Ok(Contracts { alone_s, objective_s, slope, utilities })
    }

    /// What the control port is told for this scheduler: `profit` goes by what contracts pay, which the
    /// machine knows. Each frame has 32 requests, so that more of them at once would only have the next one
    /// wait.
    pub fn grid(scheduler: Scheduler) -> String {
        let terms = TENANTS.map(|(tenant, _)| match scheduler {
            Scheduler::Fair => format!("; for {tenant}"),
            Scheduler::Profit => format!("; for {tenant} earns=contract"),
        });
        format!("at input {} batching=1{}", scheduler.name(), terms.concat())
    }

    /// What a manifest says of all that.
    pub fn manifest(&self) -> String {
        let terms = [
            (
                "operation",
                format!(
                    "function = \"penalty\", alpha = {GOLD}, factor = {FACTOR:.1}, objective = {}",
                    self.objective_s
                ),
            ),
            ("operation", format!("function = \"refund\", alpha = {SILVER}, slope = {}", self.slope)),
            ("Gbit", format!("function = \"value\", alpha = {BRONZE}")),
        ];
        let mut text = "[grid.input]\nscheduler = \"profit\"\n".to_owned();
        for ((tenant, _), (unit, term)) in TENANTS.iter().zip(terms) {
            write!(
                text,
                "\n[[activity]]\nname = \"{tenant}\"\nkey = \"{tenant}:\"\n\
                 utility = {{ unit = \"{unit}\", term = [{{ {term} }}] }}\n"
            )
            .expect("a String takes everything");
        }
        text
    }

    /// What a tenant pays for what it was served in so many seconds, in dollars.
    ///
    /// # Errors
    /// If what it was served is no number.
    pub fn revenue(&self, tenant: usize, taken: &Taken, seconds: f64) -> Result<f64> {
        let [mean, jitter, p99] = taken.latency_s.map(Seconds::new);
        let rate = |bytes: f64| GbitPerSecond::new(bytes * 8e-9 / seconds);
        let response = Response {
            throughput: OperationsPerSecond::new(taken.requests / seconds)?,
            answered: rate(taken.answered_bytes)?,
            sent: rate(taken.sent_bytes)?,
            received: GbitPerSecond::ZERO,
            latency: Latency::new(mean?, jitter?, p99?)?,
        };
        Ok(self.utilities[tenant].revenue(&response, &Prices::default()).get() * seconds)
    }

    /// Says them to a person.
    pub fn table(&self) -> Table {
        let ms = |seconds: f64| format!("{:.2} ms", seconds * 1e3);
        let said = [
            format!("{GOLD} $ a request within {}; late, it costs {FACTOR} times that", ms(self.objective_s)),
            format!(
                "{SILVER} $ a request, less the longer it takes: nothing after {}",
                ms(SILVER_WAITS * self.alone_s)
            ),
            format!("{BRONZE} $ a Gbit of answers"),
        ];
        let mut table = Table::new("Contracts", ["tenant", "connections", "pays"]);
        for ((tenant, connections), said) in TENANTS.iter().zip(said) {
            table = table.row([(*tenant).to_owned(), connections.to_string(), said]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bits that bronze is answered for a request: a value of a hundred bytes with what is around it.
    const REQUEST_GBIT: f64 = 8e-9 * 128.0;

    fn taken(latency_s: f64) -> Taken {
        let latency_s = [latency_s, latency_s / 100.0, latency_s * 1.1];
        Taken { requests: 1e6, answered_bytes: 1e6 * 128.0, latency_s, ..Taken::default() }
    }

    #[test]
    fn each_pays_by_its_own_contract() {
        let contracts = Contracts::of(1e-3).unwrap();
        let pays = |tenant, latency_s| contracts.revenue(tenant, &taken(latency_s), 2.0).unwrap();
        assert!((pays(0, 1e-3) - 3.0).abs() < 1e-3, "{}", pays(0, 1e-3));
        assert!(pays(0, 4e-3) < 1e-3, "late: {}", pays(0, 4e-3));
        assert!((pays(1, 50e-3) - 1.0).abs() < 1e-6, "half of it is refunded: {}", pays(1, 50e-3));
        assert!((pays(2, 1.0) - BRONZE * REQUEST_GBIT * 1e6).abs() < 1e-6, "{}", pays(2, 1.0));
        assert!(Contracts::of(f64::NAN).is_err() && Contracts::of(0.0).is_err());
    }

    #[test]
    fn only_profit_goes_by_contracts() {
        let plan = |scheduler| {
            let text = Contracts::grid(scheduler);
            let plan: nom_grid::GridPlan = text.parse().expect("a plan");
            (text, plan.terms_of("gold").earns)
        };
        let (fair, earns) = plan(Scheduler::Fair);
        assert_eq!((&fair[..], earns), ("at input fair batching=1; for gold; for silver; for bronze", None));
        assert_eq!(plan(Scheduler::Profit).1, Some(nom_grid::Earnings::ByContract));
    }

    #[test]
    fn a_manifest_says_the_same() {
        let text = Contracts::of(1e-3).unwrap().manifest();
        assert!(text.contains("key = \"silver:\"") && !text.contains("earns"), "{text}");
        assert!(
            text.contains("function = \"penalty\", alpha = 0.000003, factor = 2.0, objective = 0.002"),
            "{text}"
        );
    }
}
