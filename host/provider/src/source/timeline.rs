//! Prices at fixed times: a schedule of the command line, or a recorded trace.

use super::spec::{BadSource, Spec};
use nom_proto::prices::Resource;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::time::Duration;

/// The longest time that means something.
const AT_MAX: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Prices and when they begin, from the provider's start on, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    steps: Vec<Step>,
    repeat: Option<Duration>,
}

/// Prices that begin together.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// When.
    pub at: Duration,
    /// Which.
    pub prices: Vec<(Resource, f64)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    seconds: f64,
    resource: Resource,
    dollars: f64,
}

impl Timeline {
    /// Reads `network_out=1@0s,10@60s; core=0.01; repeat=120s`. A price without a time begins at once.
    ///
    /// # Errors
    /// If that is no schedule.
    pub fn schedule(text: &str) -> Result<Timeline, BadSource> {
        let bad = |field: &str, found: &str, expected: &str| BadSource {
            source_text: format!("schedule:{text}"),
            field: field.to_owned(),
            found: found.to_owned(),
            expected: expected.to_owned(),
        };
        let mut points = Vec::new();
        let mut repeat = None;
        for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| bad("a part", part, "RESOURCE=PRICE@TIME,PRICE@TIME,... or repeat=TIME"))?;
            let key = key.trim();
            if key == "repeat" {
                repeat = Some(time(value).ok_or_else(|| bad(key, value, TIME))?);
                continue;
            }
            let names = Resource::ALL.map(Resource::name).join(", ");
            let resource = Resource::from_name(key).ok_or_else(|| bad("the resource", key, &names))?;
            for price in value.split(',').map(str::trim) {
                let (price, at) = price.split_once('@').unwrap_or((price, "0s"));
                let at = time(at).ok_or_else(|| bad(key, at, TIME))?;
                let dollars = positive(price.trim()).ok_or_else(|| bad(key, price, PRICE))?;
                points.push((at, resource, dollars));
            }
        }
        Timeline::new(points, repeat).map_err(|(field, found, expected)| bad(&field, &found, &expected))
    }

    /// Reads the CSV file that `trace:FILE,speed=X,repeat=SECONDS` names: columns `seconds` since the start,
    /// `resource` and `dollars` for one of its units. With a speed, that many of its seconds take one.
    ///
    /// # Errors
    /// If the file cannot be read, or a line is no price.
    pub fn trace(spec: &mut Spec) -> Result<Timeline, BadSource> {
        let speed = spec.number("speed")?.unwrap_or(1.0);
        let repeat = spec.number("repeat")?;
        let path = spec.argument.clone();
        let unreadable = |error: csv::Error| {
            spec.bad("the file", &format!("{path}: {error}"), "CSV with columns seconds, resource, dollars")
        };
        let mut points = Vec::new();
        let mut reader =
            csv::ReaderBuilder::new().trim(csv::Trim::All).from_path(&path).map_err(unreadable)?;
        for (index, row) in reader.deserialize::<Row>().enumerate() {
            let row = row.map_err(unreadable)?;
            let line = |column: &str| format!("{column} in row {} of {path}", index + 1);
            let at = Duration::try_from_secs_f64(row.seconds / speed)
                .map_err(|_| spec.bad(&line("seconds"), &row.seconds.to_string(), "a time, at least 0"))?;
            if !(row.dollars.is_finite() && row.dollars > 0.0) {
                return Err(spec.bad(&line("dollars"), &row.dollars.to_string(), PRICE));
            }
            points.push((at, row.resource, row.dollars));
        }
        let repeat =
            repeat.map(|seconds| Duration::try_from_secs_f64(seconds / speed).unwrap_or(Duration::MAX));
        Timeline::new(points, repeat).map_err(|(field, found, expected)| spec.bad(&field, &found, &expected))
    }

    fn new(
        mut points: Vec<(Duration, Resource, f64)>,
        repeat: Option<Duration>,
    ) -> Result<Timeline, (String, String, String)> {
        points.sort_by_key(|&(at, ..)| at);
        let mut steps: Vec<Step> = Vec::new();
        for (at, resource, dollars) in points {
            match steps.last_mut() {
                Some(step) if step.at == at => step.prices.push((resource, dollars)),
                _ => steps.push(Step { at, prices: vec![(resource, dollars)] }),
            }
        }
        let Some(last) = steps.last() else {
            return Err(("the prices".into(), "nothing".into(), "at least one".into()));
        };
        if let Some(long) = [last.at, repeat.unwrap_or_default()].into_iter().find(|at| *at > AT_MAX) {
            return Err(("a time".into(), format!("{long:?}"), "at most 100 years".into()));
        }
        if let Some(repeat) = repeat.filter(|repeat| *repeat <= last.at) {
            let expected = format!("longer than {:?}, when the last price begins", last.at);
            return Err(("repeat".into(), format!("{repeat:?}"), expected));
        }
        Ok(Timeline { steps, repeat })
    }

    /// What it names prices of.
    pub fn resources(&self) -> Vec<Resource> {
        let all: BTreeSet<Resource> =
            self.steps.iter().flat_map(|step| &step.prices).map(|&(resource, _)| resource).collect();
        all.into_iter().collect()
    }

    /// Every step, with its time since the start; without end if the timeline repeats.
    pub fn steps(&self) -> impl Iterator<Item = Step> + '_ {
        let rounds = if self.repeat.is_some() { u32::MAX } else { 1 };
        (0..rounds).flat_map(move |round| {
            let begin = self.repeat.unwrap_or_default().saturating_mul(round);
            let at = move |step: &Step| begin.saturating_add(step.at).min(AT_MAX);
            self.steps.iter().map(move |step| Step { at: at(step), prices: step.prices.clone() })
        })
    }
}

const TIME: &str = "a time such as 500ms, 60s, 2m or 1h 30m";
const PRICE: &str = "a price: a finite number above 0";

fn time(text: &str) -> Option<Duration> {
    humantime::parse_duration(text.trim()).ok()
}

fn positive(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn steps(text: &str, count: usize) -> Vec<(u64, f64)> {
        let timeline = Timeline::schedule(text).expect(text);
        timeline.steps().take(count).map(|step| (step.at.as_secs(), step.prices[0].1)).collect()
    }

    #[test]
    fn a_schedule_goes_on_or_begins_anew() {
        assert_eq!(steps("core=10@60s, 1 @ 0s", 9), [(0, 1.0), (60, 10.0)]);
        let repeated = [(0, 1.0), (60, 10.0), (120, 1.0), (180, 10.0), (240, 1.0)];
        assert_eq!(steps("core=1,10@1m; repeat=2m", 5), repeated);
        let together = Timeline::schedule("core=1@0s;memory=2@0s").expect("good");
        assert_eq!(together.steps().next().map(|step| step.prices.len()), Some(2));
    }

    #[test]
    fn nothing_lasts_for_ever() {
        for text in ["core=1@1000y", "core=1;repeat=1000y"] {
            assert!(Timeline::schedule(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_line_makes_a_source_panic(text in "(schedule|trace|azure|nom|aws-egress):[ -~]{0,40}") {
            let _ = text.parse::<crate::source::Source>();
        }

        #[test]
        fn no_schedule_makes_time_overflow(
            at in "[0-9]{1,12}[smhdwy]",
            repeat in "(;repeat=[0-9]{1,12}[smhdwy])?",
        ) {
            if let Ok(timeline) = Timeline::schedule(&format!("core=1@{at}{repeat}")) {
                let start = std::time::Instant::now();
                prop_assert!(timeline.steps().take(1000).all(|step| start.checked_add(step.at).is_some()));
            }
        }
    }
}
