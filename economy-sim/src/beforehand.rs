//! Tables of responses measured before anything counts, as the paper made its own (nom, VEE'16, section 6.1)
//! and `nom bench table` does.

use super::random::Random;
use super::scenario::{Phase, Scenario};
use nom_economy::response::{BETTER, CHANNELS, Logs, Response};
use nom_economy::table::LOADS_MAX;

/// How long each point is measured under each load, in seconds.
const SECONDS: f64 = 3.0;
/// Each point has a machine started anew, and such machines differ by so much for as long as they live.
const MACHINES: f64 = 0.05;

/// What is measured of each load beforehand, as pairs of a point and its response; `seed` decides the noise.
/// Loads are those of the phases once all clients are connected, on the host of the scenario, at another time
/// for each point; there are no more than a table has.
#[must_use]
pub fn measured(scenario: &Scenario, seed: u64) -> Vec<Vec<(usize, Response)>> {
    let (mut random, mut known) = (Random::new(seed), Vec::new());
    let mut is_new = |phase: &Phase| {
        let is_new = !known.contains(&phase.load);
        known.push(phase.load);
        is_new
    };
    let last = scenario.spans().map(|(span, phase)| (span.end - 1, phase));
    let loads: Vec<usize> =
        last.filter(|(_, phase)| is_new(phase)).map(|(at, _)| at).take(LOADS_MAX).collect();
    let mut load = |at| {
        let row = |point| (point, row(scenario, scenario.quiet(at, point), &mut random));
        (0..scenario.count()).map(row).collect()
    };
    loads.into_iter().map(&mut load).collect()
}

/// One machine measured at one point under one load.
fn row(scenario: &Scenario, quiet: &Response, random: &mut Random) -> Response {
    let intervals = (SECONDS / scenario.interval).max(1.0) as usize;
    let begin = (random.unit() * scenario.moments() as f64) as usize;
    let machine = MACHINES * random.normal();
    let (mut noise, mut sum): (_, Logs) = (scenario.noise.clone(), [0.0; CHANNELS]);
    for interval in 0..intervals {
        let truth = scenario.moment((begin + interval) % scenario.moments()).slow(quiet);
        let logs = noise.observe(&truth, scenario.interval, random).response.logs();
        sum.iter_mut().zip(logs).for_each(|(sum, log)| *sum += log);
    }
    Response::from_logs(&core::array::from_fn(|channel| {
        sum[channel] / intervals as f64 + machine * BETTER[channel]
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Outcome, run, run_taught};

    #[test]
    fn every_point_is_measured_under_every_load_with_some_error() {
        let scenario = Scenario::published(1);
        let table = measured(&scenario, 7);
        assert_eq!(table.len(), 2, "many clients, and a single one");
        for (load, (span, _)) in table.iter().zip(scenario.spans()) {
            assert_eq!(load.len(), scenario.count());
            let error = |(point, response): &(usize, Response)| {
                response.throughput.get() / scenario.quiet(span.end - 1, *point).throughput.get() - 1.0
            };
            assert!(load.iter().all(|row| error(row).abs() < 5.0 * MACHINES));
            assert!(load.iter().any(|row| error(row).abs() > 0.5 * MACHINES));
        }
        assert_eq!(table, measured(&scenario, 7));
        assert!(measured(&Scenario::wandering(1), 7).len() <= LOADS_MAX);
    }

    #[test]
    fn a_table_measured_beforehand_earns_more_than_none_at_first_and_in_all() {
        const SEEDS: u64 = 60;
        let mean = |share: fn(&Outcome) -> f64, outcomes: &[Outcome]| {
            outcomes.iter().map(share).sum::<f64>() / SEEDS as f64
        };
        let scenarios: Vec<Scenario> = (0..SEEDS).map(Scenario::host).collect();
        let all = || (0..SEEDS).zip(&scenarios);
        let learned: Vec<Outcome> = all().map(|(seed, scenario)| run(scenario, seed)).collect();
        let taught = |(seed, scenario)| run_taught(scenario, seed, &measured(scenario, !seed));
        let taught: Vec<Outcome> = all().map(taught).collect();
        let early = |outcomes: &[Outcome]| mean(|outcome| outcome.early[0] / outcome.early[1], outcomes);
        let whole = |outcomes: &[Outcome]| mean(|outcome| outcome.profit / outcome.oracle, outcomes);
        let (before, after) = (early(&learned), early(&taught));
        assert!(after > before + 0.05, "in the first second {before} without, {after} with a table");
        let (before, after) = (whole(&learned), whole(&taught));
        assert!(after > before, "in all {before} without, {after} with a table");
    }
}
