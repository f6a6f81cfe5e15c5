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
/// Bits that bronze is answered for a request: a value of a hundred bytes with what is around it.
const REQUEST_GBIT: f64 = 8e-9 * 128.0;

/// The contracts of all tenants.
#[derive(Debug)]
pub struct Contracts {
    /// What gold sees where it is alone, and what a request takes of the core.
    alone_s: f64,
    request_ns: f64,
    objective_s: f64,
    slope: f64,
    utilities: [Utility; TENANTS.len()],
}

impl Contracts {
    /// For a machine in which gold waits so long where it is alone, and a request takes so much of the core.
    ///
    /// # Errors
    /// If those are no times.
    pub fn of(alone_s: f64, request_ns: f64) -> Result<Contracts> {
        ensure!(
            alone_s > 0.0 && request_ns > 0.0 && alone_s.is_finite() && request_ns.is_finite(),
            "a latency of {alone_s} s and {request_ns} ns a request: expected more than none"
        );
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
        Ok(Contracts { alone_s, request_ns, objective_s, slope, utilities })
    }

    /// What a million nanoseconds of the core earn if all is answered in time, in nanodollars: what the
    /// scheduler `profit` is told of each.
    fn earns(&self) -> [u64; TENANTS.len()] {
        [GOLD, SILVER, BRONZE * REQUEST_GBIT].map(|dollars| (dollars * 1e9 * 1e6 / self.request_ns) as u64)
    }

    /// What the control port is told for this scheduler: only `profit` goes by what activities earn. Each
    /// frame has 32 requests, so that more of them at once would only have the next one wait.
    pub fn grid(&self, scheduler: Scheduler) -> String {
        let terms = TENANTS.iter().zip(self.earns()).map(|((tenant, _), earns)| match scheduler {
            Scheduler::Fair => format!("; for {tenant}"),
            Scheduler::Profit => format!("; for {tenant} earns={earns}"),
        });
        format!("at input {} batching=1{}", scheduler.name(), terms.collect::<String>())
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
        for (((tenant, _), earns), (unit, term)) in TENANTS.iter().zip(self.earns()).zip(terms) {
            write!(
                text,
                "\n[[activity]]\nname = \"{tenant}\"\nkey = \"{tenant}:\"\nearns = {earns}\n\
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
        let mut table =
            Table::new("Contracts", ["tenant", "connections", "pays", "earns, n$ for 1 ms of the core"]);
        for (((tenant, connections), said), earns) in TENANTS.iter().zip(said).zip(self.earns()) {
            table = table.row([(*tenant).to_owned(), connections.to_string(), said, earns.to_string()]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(latency_s: f64) -> Taken {
        let latency_s = [latency_s, latency_s / 100.0, latency_s * 1.1];
        Taken { requests: 1e6, answered_bytes: 1e6 * 128.0, latency_s, ..Taken::default() }
    }

    #[test]
    fn each_pays_by_its_own_contract_and_in_the_order_that_the_scheduler_is_told() {
        let contracts = Contracts::of(1e-3, 5000.0).unwrap();
        let pays = |tenant, latency_s| contracts.revenue(tenant, &taken(latency_s), 2.0).unwrap();
        assert!((pays(0, 1e-3) - 3.0).abs() < 1e-3, "{}", pays(0, 1e-3));
        assert!(pays(0, 4e-3) < 1e-3, "late: {}", pays(0, 4e-3));
        assert!((pays(1, 50e-3) - 1.0).abs() < 1e-6, "half of it is refunded: {}", pays(1, 50e-3));
        assert!((pays(2, 1.0) - BRONZE * REQUEST_GBIT * 1e6).abs() < 1e-6, "{}", pays(2, 1.0));
        let [gold, silver, bronze] = contracts.earns();
        assert!(gold > silver && silver > bronze && bronze > 0);
        assert_eq!(gold, 600_000, "3,000 n$ for 5,000 ns");
        assert!(Contracts::of(f64::NAN, 1.0).is_err() && Contracts::of(1.0, 0.0).is_err());
    }

    #[test]
    fn only_profit_is_told_what_they_earn() {
        let contracts = Contracts::of(1e-3, 5000.0).unwrap();
        assert_eq!(
            contracts.grid(Scheduler::Fair),
            "at input fair batching=1; for gold; for silver; for bronze"
        );
        let profit = contracts.grid(Scheduler::Profit);
        assert!(
            profit.starts_with("at input profit batching=1; for gold earns=600000; for silver earns=4"),
            "{profit}"
        );
    }

    #[test]
    fn a_manifest_says_the_same() {
        let text = Contracts::of(1e-3, 5000.0).unwrap().manifest();
        assert!(text.contains("key = \"silver:\"") && text.contains("earns = 600000"), "{text}");
        assert!(
            text.contains("function = \"penalty\", alpha = 0.000003, factor = 2.0, objective = 0.002"),
            "{text}"
        );
    }
}
