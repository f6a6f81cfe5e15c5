//! What users pay: the paper's three utility functions and their parameters (nom, VEE'16, section 6.4), for
//! a machine of any speed.
//!
//! On a machine that is slower than the paper's every time of the experiment is stretched by one factor: this
//! machine's mean latency of one client served by Linux over the paper's. So the objective, the refund, the
//! bonus and the batching delays keep their meaning beside the latencies that can be had here.

use anyhow::{Context, Result, ensure};
use nom_economy::units::Seconds;
use nom_economy::utility::{Bonus, Latency, Penalty, Refund};

/// Mean latency of Linux with a single client in the paper (table 1).
pub const PAPER_LATENCY_S: f64 = 82e-6;
/// Alpha: what useful bandwidth is worth, in dollars for a Gbit.
pub const ALPHA: f64 = 20.0;
/// X: how many times over a late request is compensated.
const PENALTY_FACTOR: f64 = 100.0;
/// L0: the latency that is promised, in seconds.
const OBJECTIVE_S: f64 = 750e-6;
/// Beta: dollars for a Gbit and a second of latency.
const SLOPE: f64 = 10.0;
/// Gamma: dollar-seconds for a Gbit.
const EXTENT: f64 = 0.01;
/// Batching delays that are tried; the paper's are between 0 and 40 microseconds.
const DELAYS_US: [u32; 6] = [0, 2, 5, 10, 20, 40];
/// The longest batching delay that nom's stack takes.
const DELAY_MAX_US: f64 = 10_000.0;

/// How many times as long as in the paper everything takes here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slowness(f64);

impl Slowness {
    /// That of the paper's machine.
    pub const PAPER: Slowness = Slowness(1.0);

    /// Of the machine on which Linux answers a single client in `latency_s` on average.
    ///
    /// # Errors
    /// If that is no latency.
    pub fn of(latency_s: f64) -> Result<Slowness> {
        ensure!(latency_s.is_finite() && latency_s > 0.0, "a mean latency of {latency_s} s is none");
        Ok(Slowness(latency_s / PAPER_LATENCY_S))
    }

    /// The factor itself.
    pub fn factor(self) -> f64 {
        self.0
    }

    /// The batching delays to try here, in whole microseconds, each once.
    pub fn delays_us(self) -> Vec<u32> {
        let stretched = |us: u32| (f64::from(us) * self.0).round().min(DELAY_MAX_US) as u32;
        let mut delays = DELAYS_US.map(stretched).to_vec();
        delays.dedup();
        delays
    }

    /// The longest of them.
    pub fn delay_max_us(self) -> u32 {
        self.delays_us().last().copied().unwrap_or_default()
    }

    /// Every parameter's name, the paper's value, and the value here.
    pub fn parameters(self) -> [[String; 3]; 8] {
        let ms = |seconds: f64| format!("{:.3} ms", seconds * 1e3);
        let same = |text: &str| [text.to_owned(), text.to_owned()];
        let both = |paper: String, here: String| [paper, here];
        [
            ("Linux, single client: mean latency", both(ms(PAPER_LATENCY_S), ms(PAPER_LATENCY_S * self.0))),
            ("alpha, value of useful data", same("20 $/Gbit")),
            ("price of outgoing data, first half, second half", same("1, 10 $/Gbit")),
            ("X, penalty factor", same("100")),
            ("L0, latency promised", both(ms(OBJECTIVE_S), ms(OBJECTIVE_S * self.0))),
            ("beta, refund slope", both("10 $/(Gbit s)".into(), format!("{:.3} $/(Gbit s)", SLOPE / self.0))),
            ("gamma, bonus extent", both("0.01 $ s/Gbit".into(), format!("{:.4} $ s/Gbit", EXTENT * self.0))),
            (
                "W, longest batching delay tried",
                both("40 \u{b5}s".into(), format!("{} \u{b5}s", self.delay_max_us())),
            ),
        ]
        .map(|(name, [paper, here])| [name.to_owned(), paper, here])
    }
}

/// One of the published utility functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// Equation 2.
    Penalty,
    /// Equation 3.
    Refund,
    /// Equation 4.
    Bonus,
}

impl Function {
    /// All of them, in the paper's order.
    pub const ALL: [Function; 3] = [Function::Penalty, Function::Refund, Function::Bonus];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Function::Penalty => "penalty",
            Function::Refund => "refund",
            Function::Bonus => "bonus",
        }
    }
}

/// A utility function with its parameters: what users pay for a Gbit at some latency.
#[derive(Clone, Copy, Debug)]
pub enum Contract {
    /// With the objective stretched.
    Penalty(Penalty),
    /// With the slope made gentler.
    Refund(Refund),
    /// With the extent made greater.
    Bonus(Bonus),
}

impl Contract {
    /// The contract under `function` of a service on a machine of this `slowness`.
    ///
    /// # Errors
    /// If the machine is so slow or fast that a parameter is none any more.
    pub fn new(function: Function, Slowness(factor): Slowness) -> Result<Contract> {
        let said = || format!("the {} function of a machine {factor} times as slow", function.name());
        Ok(match function {
            Function::Penalty => {
                let objective = Seconds::new(OBJECTIVE_S * factor).with_context(said)?;
                Contract::Penalty(Penalty::new(PENALTY_FACTOR, objective).with_context(said)?)
            }
            Function::Refund => Contract::Refund(Refund::new(SLOPE / factor).with_context(said)?),
            Function::Bonus => {
                Contract::Bonus(Bonus::new(EXTENT * factor, f64::INFINITY).with_context(said)?)
            }
        })
    }

    /// What users pay for a Gbit that reaches them at this latency, in dollars.
    pub fn value(&self, latency: Latency) -> f64 {
        match self {
            Contract::Penalty(penalty) => ALPHA * penalty.share(latency),
            Contract::Refund(refund) => refund.value(ALPHA, latency),
            Contract::Bonus(bonus) => bonus.value(ALPHA, latency),
        }
    }
}

/// The section `[utility]` of an `app.toml` that says the same to nom's application.
pub fn manifest(function: Function, Slowness(factor): Slowness) -> String {
    let own = match function {
        Function::Penalty => format!("factor = {PENALTY_FACTOR:?}\nobjective = {:?}", OBJECTIVE_S * factor),
        Function::Refund => format!("slope = {:?}", SLOPE / factor),
        Function::Bonus => format!("extent = {:?}", EXTENT * factor),
    };
    let name = function.name();
    format!(
        "[utility]\nunit = \"Gbit\"\n\n[[utility.term]]\nfunction = \"{name}\"\nalpha = {ALPHA:?}\n{own}\n"
    )
}

/// The table of a manifest whose users pay for what they get, whatever its latency.
pub fn value() -> String {
    format!("[utility]\nunit = \"Gbit\"\n\n[[utility.term]]\nfunction = \"value\"\nalpha = {ALPHA:?}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use nom_economy::prices::Prices;
    use nom_economy::response::Response;
    use nom_economy::units::{GbitPerSecond, OperationsPerSecond};

    fn latency(mean: f64, jitter: f64) -> Latency {
        let seconds = |value| Seconds::new(value).expect("a time");
        Latency::new(seconds(mean), seconds(jitter), seconds(mean)).expect("above zero")
    }

    #[test]
    fn paper_parameters_are_those_of_factor_one() {
        let paper = Slowness::of(PAPER_LATENCY_S).unwrap();
        assert_eq!(paper.factor(), 1.0);
        assert_eq!(paper.delays_us(), DELAYS_US);
        let value = |function| Contract::new(function, paper).unwrap().value(latency(400e-6, 1e-6));
        assert_eq!(Function::ALL.map(value), [20.0, 20.0 - 10.0 * 400e-6, 20.0 + 0.01 / 400e-6]);
    }

    #[test]
    fn what_is_slower_in_the_same_measure_is_worth_the_same() {
        for function in Function::ALL {
            let value = |factor: f64| {
                let slowness = Slowness::of(PAPER_LATENCY_S * factor).unwrap();
                Contract::new(function, slowness).unwrap().value(latency(500e-6 * factor, 100e-6 * factor))
            };
            assert!((value(1.0) - value(7.5)).abs() < 1e-9, "{}", function.name());
        }
    }

    #[test]
    fn delays_stay_within_what_the_stack_takes() {
        assert_eq!(Slowness(3.0).delays_us(), [0, 6, 15, 30, 60, 120]);
        assert_eq!(Slowness(1e6).delays_us(), [0, 10_000]);
        assert_eq!(Slowness(1e-6).delays_us(), [0]);
        assert!(Slowness::of(0.0).is_err() && Slowness::of(f64::NAN).is_err());
    }

    #[test]
    fn application_is_told_the_same_contract() {
        let slowness = Slowness::of(600e-6).unwrap();
        for function in Function::ALL {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("app.toml");
            let text = format!("name = \"a\"\nprogram = \"a\"\n\n{}", manifest(function, slowness));
            std::fs::write(&path, &text).unwrap();
            let bundle = nom_image::manifest::load(&path).unwrap_or_else(|error| panic!("{error}"));
            let told = bundle.applications[0].utility.as_ref().expect("the section is there");
            let sent = GbitPerSecond::new(1.0).unwrap();
            let response = Response {
                throughput: OperationsPerSecond::new(1e5).unwrap(),
                answered: sent,
                sent,
                received: sent,
                latency: latency(5.2e-3, 0.3e-3),
            };
            let revenue = told.revenue(&response, &Prices::default()).get();
            let value = Contract::new(function, slowness).unwrap().value(response.latency);
            assert!((revenue - value).abs() < 1e-9, "{text}: {revenue}, {value}");
        }
    }
}
