use super::*;
use nom_economy_sim::Random;

/// As many delays as the demo tries.
const DELAYS_US: [u32; 6] = [0, 2, 5, 10, 20, 40];
/// How far a run is off, as found on a shared computer.
const NOISE: f64 = 0.08;
const TRIALS: u64 = 2000;

/// Runs of a sweep that earn `value` of the delay, but for noise.
fn sweep(random: &mut Random, repetitions: u32, value: impl Fn(u32) -> [f64; 2]) -> Vec<Tried> {
    let tried = |&delay_us: &u32| {
        let mut noisy = |value: f64| value * (1.0 + NOISE * random.normal());
        let runs = (0..repetitions).map(|run| (run, value(delay_us).map(&mut noisy))).collect();
        Tried { delay_us, runs }
    };
    DELAYS_US.iter().map(tried).collect()
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    values.sum::<f64>() / TRIALS as f64
}

/// What hindsight finds: the greatest mean.
fn luckiest(sweep: &[Tried], phase: usize) -> f64 {
    sweep.iter().filter_map(|tried| tried.mean(None)).map(|means| means[phase]).fold(f64::MIN, f64::max)
}

/// What the best delay is found to earn in the first phase, by the oracle and by hindsight, on average over
/// many sweeps.
fn found(repetitions: u32, value: impl Fn(u32) -> f64) -> [f64; 2] {
    let sweeps = |seed| sweep(&mut Random::new(seed), repetitions, |us| [value(us), 1.0]);
    let fair = |seed| {
        let folds = Oracle::among(&sweeps(seed)).unwrap().by_repetition(|fold| fold.phases[0].profit);
        folds.iter().map(|(_, profit)| profit).sum::<f64>() / folds.len() as f64
    };
    [mean((0..TRIALS).map(fair)), mean((0..TRIALS).map(|seed| luckiest(&sweeps(seed), 0)))]
}

#[test]
fn of_equal_delays_none_is_better_however_lucky_it_was() {
    for repetitions in [2, 3, 5] {
        let [fair, lucky] = found(repetitions, |_| 1.0);
        assert!((fair - 1.0).abs() < 0.005, "{repetitions}: {fair}");
        // What somebody earns who is as good as the best: the share that hindsight would leave.
        assert!(1.0 / lucky < 0.96, "{repetitions}: {lucky}");
    }
}

#[test]
fn what_is_really_better_is_found() {
    let value = |us| if us == 10 { 1.3 } else { 1.0 };
    let [fair, lucky] = found(3, value);
    assert!((fair - 1.3).abs() < 0.013 && lucky < 1.33, "{fair}, {lucky}");
    let oracle = Oracle::among(&sweep(&mut Random::new(1), 3, |us| [value(us), 2.3 - value(us)])).unwrap();
    assert_eq!((oracle.method, oracle.folds.len()), (Method::CrossValidated, 3));
    assert_eq!(oracle.delays_us(|fold| fold.phases[0]), [10]);
    assert!(!oracle.delays_us(|fold| fold.phases[1]).contains(&10));
}

#[test]
fn the_truth_lies_between_the_oracle_and_hindsight() {
    let [fair, lucky] = found(3, |us| 1.0 + f64::from(us) / 1000.0);
    assert!(fair < 1.04 && lucky > 1.04 && 1.04 - fair < lucky - 1.04, "{fair}, {lucky}");
}

#[test]
fn neighbours_take_some_luck_out_of_single_runs() {
    let [fair, lucky] = found(1, |_| 1.0);
    assert!(fair > 1.0 && fair - 1.0 < 0.85 * (lucky - 1.0), "{fair}, {lucky}");
    // W = 2 is best, and W = 0, where nothing is batched, has nothing to do with it.
    let falling = |us| if us == 0 { 1.0 } else { 1.4 - f64::from(us) / 100.0 };
    let [fair, lucky] = found(1, falling);
    assert!((fair - 1.38).abs() < lucky - 1.38, "{fair}, {lucky}");
    let jump = sweep(&mut Random::new(1), 1, |us| if us == 0 { [2.0; 2] } else { [1.0; 2] });
    let oracle = Oracle::among(&jump).unwrap();
    assert_eq!((oracle.method, oracle.folds.len()), (Method::Smoothed, 1));
    assert_eq!(oracle.delays_us(|fold| fold.stays), [0]);
}

#[test]
fn a_slope_is_not_lost_at_the_ends_of_a_curve_and_nothing_is_said_of_zero() {
    let line = |us: f64| (us, 100.0 - us);
    let mut points = [0.0, 2.0, 5.0, 10.0, 20.0, 40.0].map(line);
    points[0].1 = 7.0;
    for (found, (_, value)) in smooth(&points).into_iter().zip(points) {
        assert!((found - value).abs() < 1e-9, "{found}, {value}");
    }
    let flat = smooth(&[(1.0, 1.0), (2.0, 4.0), (3.0, 1.0)]);
    assert!((flat[1] - 2.0).abs() < 1e-12, "{flat:?}");
    assert_eq!(smooth(&[(0.0, 3.0), (5.0, 1.0), (9.0, 2.0)]), [3.0, 1.0, 2.0]);
    assert!(smooth(&[]).is_empty());
}

#[test]
fn a_delay_that_failed_in_a_repetition_is_not_judged_in_it() {
    let tried = |delay_us, runs: &[(u32, f64)]| Tried {
        delay_us,
        runs: runs.iter().map(|(run, profit)| (*run, [*profit, 1.0])).collect(),
    };
    let sweep =
        [tried(0, &[(0, 1.0), (1, 1.0), (2, 1.0)]), tried(5, &[(0, 2.0), (2, 3.0)]), tried(9, &[(1, 9.0)])];
    let oracle = Oracle::among(&sweep).unwrap();
    assert_eq!(oracle.by_repetition(|fold| fold.phases[0].profit), [(0, 2.0), (1, 1.0), (2, 3.0)]);
    assert_eq!(Oracle::among(&sweep[2..]).unwrap().method, Method::Smoothed);
    assert_eq!(Oracle::among(&[]), None);
    assert_eq!(Oracle::among(&[tried(5, &[])]), None);
}
