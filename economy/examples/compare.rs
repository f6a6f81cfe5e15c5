//! Compares controllers over seeded servers, loads and prices.
use nom_economy::controller::{Bandit, Bayes, Climb, Strategy};
use nom_economy::simulate::{Scenario, run};
fn show<S: Strategy>(name: &str, scenarios: &[(u64, Scenario)]) {
    let t = std::time::Instant::now();
    let outs: Vec<_> = scenarios.iter().map(|(s, sc)| (s, sc, run::<S>(sc, *s))).collect();
    let el = t.elapsed().as_secs_f64();
    let n: f64 = scenarios
        .iter()
        .map(|(_, s)| s.phases.iter().map(|p| p.seconds as f64).sum::<f64>() / s.interval)
        .sum();
    let mut share: Vec<f64> = outs.iter().map(|(_, _, o)| o.profit / o.oracle).collect();
    share.sort_by(f64::total_cmp);
    let below = outs.iter().filter(|(_, _, o)| o.profit < o.best_static).count();
    let mut stat: Vec<f64> = outs.iter().map(|(_, _, o)| o.profit / o.best_static).collect();
    stat.sort_by(f64::total_cmp);
    let q = |v: &Vec<f64>, p: f64| v[((v.len() - 1) as f64 * p) as usize];
    let mut found: Vec<f64> = outs.iter().flat_map(|(_, _, o)| o.found_seconds.clone()).collect();
    found.sort_by(f64::total_cmp);
    let mut restless: Vec<f64> = outs.iter().flat_map(|(_, _, o)| o.restless.clone()).collect();
    restless.sort_by(f64::total_cmp);
    let losses = outs.iter().map(|(_, _, o)| o.losses).sum::<f64>() / outs.len() as f64;
    println!(
        "{name:8} share min {:.4} p5 {:.4} p50 {:.4} mean {:.4} >=97%: {}/{} below static {below} (min {:.4} p5 {:.4}) found p50 {:.2} p95 {:.2} max {:.1} restless p50 {:.2} p95 {:.2} losses {:.5} us/step {:.2}",
        share[0],
        q(&share, 0.05),
        q(&share, 0.5),
        share.iter().sum::<f64>() / share.len() as f64,
        share.iter().filter(|s| **s >= 0.97).count(),
        share.len(),
        stat[0],
        q(&stat, 0.05),
        q(&found, 0.5),
        q(&found, 0.95),
        q(&found, 1.0),
        q(&restless, 0.5),
        q(&restless, 0.95),
        losses,
        el / n * 1e6
    );
    let mut worst: Vec<_> = outs.iter().collect();
    worst.sort_by(|a, b| (a.2.profit / a.2.oracle).total_cmp(&(b.2.profit / b.2.oracle)));
    if std::env::args().any(|a| a == "-v") {
        for (s, sc, o) in worst.iter().take(8) {
            println!(
                "   seed {s} {} share {:.4} static {:.4} loads {} found {:?} restless {:?} losses {:.4} white {:.3} pers {:.2} hic {:.4} interval {:.3} pts {} orc {:?} phases {:?}",
                sc.contract.name(),
                o.profit / o.oracle,
                o.best_static / o.oracle,
                o.loads,
                o.found_seconds,
                o.restless,
                o.losses,
                sc.noise.white,
                sc.noise.persistence,
                sc.noise.hiccups,
                sc.interval,
                sc.points.micros(nom_economy::controller::WorkingPoints::count(&sc.points) - 1),
                sc.oracles().iter().map(|o| sc.points.micros(o.0)).collect::<Vec<_>>(),
                sc.phases.iter().map(|p| (p.seconds, p.price as u32, p.clients)).collect::<Vec<_>>()
            );
        }
    }
}
fn main() {
    let n: u64 = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(50);
    for (name, make) in
        [("published", Scenario::published as fn(u64) -> Scenario), ("random", Scenario::random)]
    {
        let scenarios: Vec<_> = (0..n).map(|s| (s, make(s))).collect();
        println!(
            "{name}: static/oracle mean {:.4}",
            scenarios
                .iter()
                .map(|(_, s)| s.best_static() / s.oracles().iter().map(|o| o.1).sum::<f64>())
                .sum::<f64>()
                / n as f64
        );
        show::<Bayes>("bayes", &scenarios);
        show::<Climb>("climb", &scenarios);
        show::<Bandit>("bandit", &scenarios);
    }
}
