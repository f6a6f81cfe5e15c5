//! What the application's environment says about earning.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;
use nom_economy::controller::BatchingDelays;
use nom_economy::table::{BadResponseTable, ResponseTable};
use nom_economy::utility::{BadLine, Utility};
use nom_service::{Activity, BadRules, Rules};

/// The longest batching delay that is tried, unless the environment says otherwise: beyond a millisecond
/// hardly a contract pays for what is gained.
const LONGEST_MICROS: u32 = 1000;

/// How an application is to earn.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// What its users pay.
    pub utility: Utility,
    /// What the users of an activity pay, where that is something else.
    pub contracts: Vec<(Activity, Utility)>,
    /// What decides the batching delay.
    pub batching: Batching,
    /// What is turned besides the batching delay.
    pub knobs: Knobs,
    /// Responses that were measured beforehand; none, if it learns by itself.
    pub responses: ResponseTable,
    /// Whether there is a contract at all. Without one nothing is set, and only costs are reckoned.
    pub has_contract: bool,
}

/// Whose users pay by a contract.
#[derive(Clone, Debug)]
pub(crate) struct Paying {
    /// By contracts of their own.
    own: Vec<Activity>,
    /// Whether all others do.
    rest: bool,
}

impl Paying {
    pub fn has(&self, activity: Activity) -> bool {
        self.rest || self.own.contains(&activity)
    }
}

/// Knobs that are turned besides the batching delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Knobs {
    /// Polling or interrupts.
    pub notice: bool,
    /// How many of the program's cores serve; the others are given back.
    pub cores: bool,
    /// How much memory is taken for what is kept; the rest is given back.
    pub memory: bool,
    /// How many clients are let in: fewer, as long as what is served costs more than it brings.
    pub admission: bool,
    /// Which activities' packets are not held, those first whose contracts hurry most.
    pub activities: bool,
}

impl Knobs {
    /// From their names, separated by commas; nothing if one is unknown.
    fn parse(names: &str) -> Option<Knobs> {
        let mut knobs = Knobs::default();
        for name in names.split(',') {
            match name.trim() {
                "batching_delay" => {}
                "notice" => knobs.notice = true,
                "cores" => knobs.cores = true,
                "memory" => knobs.memory = true,
                "admission" => knobs.admission = true,
                "activities" => knobs.activities = true,
                _ => return None,
            }
        }
        Some(knobs)
    }
}

/// What decides the batching delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batching {
    /// Profit, from 0 to so many microseconds.
    Adaptive {
        /// The longest.
        longest_micros: u32,
    },
    /// The owner: so many microseconds. Profit is still reckoned.
    Fixed {
        /// The batching delay.
        micros: u32,
    },
}

/// A variable of the environment that is not what it must be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BadSetting {
    /// No contract.
    #[error("the environment's utility={line}: {error}")]
    Utility {
        /// As it stands there.
        line: String,
        /// What is wrong.
        error: BadLine,
    },
    /// No contract of an activity.
    #[error("the environment's contracts: `{part}`: {problem}")]
    Contract {
        /// What stands there.
        part: String,
        /// What is wrong, or was expected.
        problem: String,
    },
    /// No table of responses.
    #[error("the environment's responses: {0}")]
    Responses(#[from] BadResponseTable),
    /// Another variable.
    #[error("the environment's {name}={value}: expected {expected}")]
    Variable {
        /// Its name.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it could have been.
        expected: &'static str,
    },
}

impl Settings {
    /// Whose users pay.
    pub(crate) fn paying(&self) -> Paying {
        let own = self.contracts.iter().map(|(activity, _)| *activity).collect();
        Paying { own, rest: self.has_contract && !self.utility.terms().is_empty() }
    }

    /// Whether the users of an activity pay by a contract, its own or the application's.
    #[must_use]
    pub fn is_paid(&self, activity: Activity) -> bool {
        self.paying().has(activity)
    }

    /// From the environment, as `var` looks it up; nothing without a contract, variable `utility`, or
    /// `contracts`, those of activities: `for ACTIVITY`, with its contract behind, for each. The others
    /// are `batching_delay`: `adaptive`, or microseconds; `batching_delay_max`: the longest that is tried, in
    /// microseconds; `knobs`: some of `batching_delay`, `notice`, `cores`, `memory`, `admission`
    /// and `activities`, separated by commas; `refuse`: `loss`, the same as the knob `admission`;
    /// `responses`: a [`ResponseTable`].
    ///
    /// # Errors
    /// The first variable that is not what it must be.
    pub fn from_environment<'v>(var: impl Fn(&str) -> Option<&'v str>) -> Result<Option<Self>, BadSetting> {
        let utility = var("utility").map(|line| {
            Utility::from_checked_line(line)
                .map_err(|error| BadSetting::Utility { line: line.to_string(), error })
        });
        let contracts = contracts(&var)?;
        let utility = match utility.transpose()? {
            Some(utility) => utility,
            None if contracts.is_empty() => return Ok(None),
            None => Utility::none(),
        };
        let names = var("knobs").unwrap_or_default();
        let knobs = if names.is_empty() { Some(Knobs::default()) } else { Knobs::parse(names) };
        let mut knobs = knobs.ok_or_else(|| bad("knobs", names, KNOBS))?;
        let longest_micros = micros(&var, "batching_delay_max", "microseconds from 0 to 10000")?;
        let batching = match var("batching_delay") {
            None | Some("adaptive") => {
                Batching::Adaptive { longest_micros: longest_micros.unwrap_or(LONGEST_MICROS) }
            }
            Some(_) => {
                let expected = "`adaptive`, or microseconds from 0 to 10000";
                Batching::Fixed { micros: micros(&var, "batching_delay", expected)?.unwrap_or(0) }
            }
        };
        let responses = var("responses").map(str::parse).transpose()?.unwrap_or_default();
        match var("refuse") {
            None => {}
            Some("loss") => knobs.admission = true,
            Some(other) => return Err(bad("refuse", other, "`loss`")),
        }
        Ok(Some(Self { utility, contracts, batching, knobs, responses, has_contract: true }))
    }

    /// Those of a server without a contract, of which only what it serves is to be known.
    #[must_use]
    pub fn watched() -> Self {
        Self {
            utility: Utility::none(),
            contracts: Vec::new(),
            batching: Batching::Fixed { micros: 0 },
            knobs: Knobs::default(),
            responses: ResponseTable::default(),
            has_contract: false,
        }
    }
}

impl Settings {
    /// The batching delay to begin with.
    #[must_use]
    pub fn first_delay(&self) -> Duration {
        match self.batching {
            Batching::Adaptive { .. } => Duration::ZERO,
            Batching::Fixed { micros } => Duration::from_micros(micros.into()),
        }
    }
}

/// What activities pay that have contracts of their own: variable `contracts`.
fn contracts<'v>(var: impl Fn(&str) -> Option<&'v str>) -> Result<Vec<(Activity, Utility)>, BadSetting> {
    let (line, rules) = (var("contracts").unwrap_or_default(), var("activity").unwrap_or_default());
    let bad = |part: &str, problem: String| BadSetting::Contract { part: part.to_string(), problem };
    if line.is_empty() {
        return Ok(Vec::new());
    }
    let rules: Rules = rules.parse().map_err(|error: BadRules| bad(rules, error.to_string()))?;
    let mut all: Vec<(Activity, Utility)> = Vec::new();
    for part in line.strip_prefix("for ").unwrap_or(line).split("; for ") {
        let (name, contract) = part.split_once(' ').unwrap_or((part, ""));
        let number = rules.names().position(|known| known == name);
        let activity = number.map(|number| Activity(number as u32));
        let activity = activity.filter(|activity| all.iter().all(|(other, _)| other != activity));
        let activity =
            activity.ok_or_else(|| bad(part, "expected an activity that there is, each once".to_string()))?;
        let utility = Utility::from_checked_line(contract).map_err(|error| bad(part, error.to_string()))?;
        all.push((activity, utility));
    }
    Ok(all)
}

/// What `knobs` may say.
const KNOBS: &str = "some of `batching_delay`, `notice`, `cores`, `memory`, `admission` and `activities`, \
                     separated by commas";

fn bad(name: &'static str, value: &str, expected: &'static str) -> BadSetting {
    BadSetting::Variable { name, value: value.to_string(), expected }
}

fn micros<'v>(
    var: impl Fn(&str) -> Option<&'v str>,
    name: &'static str,
    expected: &'static str,
) -> Result<Option<u32>, BadSetting> {
    let Some(value) = var(name) else { return Ok(None) };
    let micros = value.parse().ok().filter(|micros| *micros <= BatchingDelays::MAX_MICROS);
    micros.map(Some).ok_or_else(|| bad(name, value, expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &'static str)]) -> Result<Option<Settings>, String> {
        let var = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        Settings::from_environment(var).map_err(|error| error.to_string())
    }

    const CONTRACT: (&str, &str) = ("utility", "Gbit; penalty 20 100 0.00075");

    #[test]
    fn without_a_contract_nothing_is_earned() {
        assert_eq!(settings(&[("batching_delay", "5"), ("knobs", "?")]), Ok(None));
    }

    #[test]
    fn with_a_contract_the_delay_adapts_unless_it_is_fixed() {
        let batching = |more: &[_]| {
            let all = [&[CONTRACT], more].concat();
            let settings = settings(&all).expect("good").expect("there is a contract");
            (settings.batching, settings.knobs)
        };
        let adaptive = |longest_micros| Batching::Adaptive { longest_micros };
        let none = Knobs::default();
        assert_eq!(batching(&[]), (adaptive(1000), none));
        assert_eq!(
            batching(&[("batching_delay", "adaptive"), ("knobs", "batching_delay")]),
            (adaptive(1000), none)
        );
        assert_eq!(batching(&[("batching_delay_max", "250")]), (adaptive(250), none));
        for (names, knobs) in [
            ("batching_delay,notice", Knobs { notice: true, ..none }),
            ("cores, memory", Knobs { cores: true, memory: true, ..none }),
            ("admission", Knobs { admission: true, ..none }),
            ("notice,cores,batching_delay", Knobs { notice: true, cores: true, ..none }),
        ] {
            assert_eq!(batching(&[("knobs", names)]), (adaptive(1000), knobs));
        }
        assert_eq!(batching(&[("refuse", "loss")]).1, Knobs { admission: true, ..none });
        assert_eq!(batching(&[("batching_delay", "50")]), (Batching::Fixed { micros: 50 }, none));
    }

    #[test]
    fn activities_have_contracts_of_their_own() {
        let read = |line| settings(&[("activity", "gold key=g; silver key=s"), ("contracts", line)]);
        let line = "for silver operation; floor 0; value 1; for gold Gbit; penalty 20 100 0.00075";
        let all = read(line).expect("good").expect("there are two");
        let lines: Vec<_> = all.contracts.iter().map(|(of, utility)| (of.0, utility.to_string())).collect();
        let expected =
            [(4, "operation; floor 0; value 1"), (3, CONTRACT.1)].map(|(of, line)| (of, line.to_string()));
        assert_eq!((lines.as_slice(), all.utility, all.has_contract), (&expected[..], Utility::none(), true));
        for (line, part) in [
            ("for bronze Gbit; value 1", "`bronze Gbit; value 1`: expected an activity"),
            ("for gold Gbit; value 1; for gold Gbit; value 2", "`gold Gbit; value 2`: expected an activity"),
            ("for gold Gbyte; value 1", "`gold Gbyte; value 1`: `Gbyte`: expected `Gbit`"),
            ("for gold", "`gold`: ``: expected `Gbit`"),
        ] {
            let text = read(line).expect_err("it is refused");
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_table_of_responses_is_read_or_refused() {
        let read = |line| settings(&[CONTRACT, ("responses", line)]);
        let table = read("0 44200 0.25 0 0.0015 0.0003 0.002").expect("good").expect("a contract").responses;
        assert_eq!((table.load.len(), table.load[0].response[0].throughput), (1, 44200.0));
        assert_eq!(
            read("0 44200 0.25 0 0 0.0003 0.002"),
            Err("the environment's responses: load[0].response[0].latency is 0: expected a finite number \
                 above 0"
                .to_string())
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        let refusal = |more| settings(&[more, CONTRACT]).expect_err("should be refused");
        assert_eq!(
            refusal(("utility", "Gbit; value -1")),
            "the environment's utility=Gbit; value -1: term[0].alpha is -1: expected a finite number, \
             at least 0"
        );
        for (name, value) in [
            ("batching_delay", "fast"),
            ("batching_delay", "-1"),
            ("batching_delay", "10001"),
            ("batching_delay_max", "10001"),
            ("knobs", "core"),
            ("knobs", "cores,,memory"),
            ("refuse", "everybody"),
        ] {
            let text = refusal((name, value));
            assert!(
                text.starts_with(&alloc::format!("the environment's {name}={value}: expected ")),
                "{text}"
            );
        }
    }
}
