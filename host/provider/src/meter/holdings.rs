//! What a machine holds: cores, memory and energy, from what it says itself and what is measured outside it.
//!
//! | | the machine says | measured outside | charged |
//! |---|---|---|---|
//! | cores | cores that its applications hold | processor time of its virtual processors | the greater |
//! | memory | bytes that are held in it | nothing: memory given back stays with the monitor | what it says |
//! | energy | nothing | the computer's counter, by share of processor time | what is measured |
//!
//! A machine that says nothing, or what cannot be, is charged for all that its configuration gives it, and
//! never for more. So a machine that lies about cores gains nothing: those that it uses show as processor
//! time. About memory it could gain; [`Basis::Configured`] takes no word of it.

use crate::clock::Moment;
use nom_proto::meter::MeterReport;
use serde::{Deserialize, Serialize};

/// A word of the machine is good for so long: it says it at least every second.
const WORD_GOOD_NS: u64 = 5_000_000_000;
/// Part of a core's time by which processor time may exceed what is held before that is a disagreement: the
/// machine's word is up to a second old, and its monitor works a little for it.
const TOLERANCE: f64 = 0.1;
/// Stretches in a row that must disagree: a core that has just been taken is heard of a little later.
const PATIENCE: u32 = 3;

/// What the charges for cores and memory rest upon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Basis {
    /// What the machine says that it holds, within what is measured and configured.
    #[default]
    Held,
    /// What its configuration gives it, whether it holds it or not.
    Configured,
}

/// What a machine's configuration gives it, and how that is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// Cores.
    pub cores: u32,
    /// Bytes of memory.
    pub memory: u64,
    /// What is charged.
    pub basis: Basis,
}

/// What a machine says that is held in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// Cores.
    pub cores: u32,
    /// Bytes of memory.
    pub memory: u64,
    /// When it said so, in nanoseconds of the steady clock.
    pub at_ns: u64,
}

/// What is measured of a machine from outside, since any begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Processor time of its virtual processors, in nanoseconds.
    pub virtual_ns: u64,
    /// Its part of the computer's energy, in microjoules.
    pub energy_uj: u64,
}

/// What measures a machine from outside.
pub trait Probe: Send {
    /// All so far; nothing if the machine is gone.
    fn read(&mut self) -> Option<Sample>;
    /// Why energy is not measured, if it is not.
    fn energy_refused(&self) -> Option<&str>;
}

/// What a machine has held so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Core-nanoseconds.
    pub core_ns: u64,
    /// Byte-nanoseconds.
    byte_ns: u128,
    /// Microjoules.
    pub energy_uj: u64,
}

impl Held {
    /// Byte-seconds.
    pub fn byte_seconds(&self) -> u64 {
        u64::try_from(self.byte_ns / 1_000_000_000).unwrap_or(u64::MAX)
    }
}

/// The account of what a machine holds.
pub struct Holdings {
    machine: String,
    terms: Terms,
    probe: Box<dyn Probe>,
    word: Option<Word>,
    held: Held,
    last_ns: u64,
    sample: Sample,
    busy: f64,
    /// Stretches in a row in which more processor time passed than is held.
    excess: u32,
    disagreements: u64,
    disagreement: Option<String>,
}

impl std::fmt::Debug for Holdings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Holdings")
            .field("machine", &self.machine)
            .field("held", &self.held)
            .finish_non_exhaustive()
    }
}

impl Holdings {
    /// One that begins now.
    pub fn new(machine: &str, terms: Terms, mut probe: Box<dyn Probe>, now: Moment) -> Holdings {
        let sample = probe.read().unwrap_or_default();
        Holdings {
            machine: machine.to_owned(),
            terms,
            probe,
            word: None,
            held: Held::default(),
            last_ns: now.steady_ns,
            sample,
            busy: 0.0,
            excess: 0,
            disagreements: 0,
            disagreement: None,
        }
    }

    /// The machine has said what it holds.
    pub fn hear(&mut self, word: Word) {
        self.word = Some(word);
    }

    /// Charges the time until now; all that was held so far. Of a machine that is gone nothing more is.
    pub fn advance(&mut self, now: Moment) -> Held {
        let time_ns = now.steady_ns.saturating_sub(self.last_ns);
        let Some(sample) = self.probe.read().filter(|_| time_ns > 0) else { return self.held };
        let busy_ns = sample.virtual_ns.saturating_sub(self.sample.virtual_ns);
        let (cores, memory) = self.judge(now.steady_ns, busy_ns as f64 / time_ns as f64);
        let most_ns = u64::from(self.terms.cores).saturating_mul(time_ns);
        self.held.core_ns += (u64::from(cores) * time_ns).max(busy_ns).min(most_ns);
        self.held.byte_ns += u128::from(memory) * u128::from(time_ns);
        self.held.energy_uj += sample.energy_uj.saturating_sub(self.sample.energy_uj);
        (self.last_ns, self.sample) = (now.steady_ns, sample);
        self.held
    }

    /// Cores and bytes of memory to charge for a stretch in which so many virtual processors were busy.
    fn judge(&mut self, now_ns: u64, busy: f64) -> (u32, u64) {
        self.busy = busy;
        let configured = (self.terms.cores, self.terms.memory);
        let Some(word) = self.present(now_ns) else { return configured };
        if word.cores > self.terms.cores || word.memory > self.terms.memory {
            self.disagree(format!(
                "it says that it holds {} cores and {} bytes, and has {} and {}",
                word.cores, word.memory, self.terms.cores, self.terms.memory
            ));
            return configured;
        }
        self.excess = if busy > f64::from(word.cores) + TOLERANCE { self.excess + 1 } else { 0 };
        if self.excess >= PATIENCE {
            self.disagree(format!("it says that it holds {} cores, and keeps {busy:.2} busy", word.cores));
        }
        match self.terms.basis {
            Basis::Held => (word.cores, word.memory),
            Basis::Configured => configured,
        }
    }

    /// What the machine has said, unless that is too long ago.
    fn present(&self, now_ns: u64) -> Option<Word> {
        self.word.filter(|word| now_ns.saturating_sub(word.at_ns) <= WORD_GOOD_NS)
    }

    fn disagree(&mut self, how: String) {
        self.disagreements += 1;
        self.disagreement = Some(how);
    }

    /// How it stands, for the provider.
    pub fn report(&self, now: Moment) -> MeterReport {
        let word = self.present(now.steady_ns);
        MeterReport {
            machine: self.machine.clone(),
            cores_configured: self.terms.cores,
            cores_claimed: word.map(|word| f64::from(word.cores)),
            cores_busy: self.busy,
            memory_configured: self.terms.memory,
            memory_claimed: word.map(|word| word.memory),
            disagreements: self.disagreements,
            disagreement: self.disagreement.clone(),
            energy_refused: self.probe.energy_refused().map(str::to_owned),
            records_refused: 0,
            record_refused: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    const SECOND: u64 = 1_000_000_000;
    const GIB: u64 = 1 << 30;

    #[derive(Clone, Default)]
    struct Outside(Arc<Mutex<Option<Sample>>>);

    impl Probe for Outside {
        fn read(&mut self) -> Option<Sample> {
            *self.0.lock().expect("no panic")
        }

        fn energy_refused(&self) -> Option<&str> {
            Some("no counter")
        }
    }

    /// A machine of four cores and 4 GiB, and the clock.
    struct Case {
        outside: Outside,
        holdings: Holdings,
        now_ns: u64,
    }

    impl Case {
        fn new(basis: Basis) -> Case {
            let outside = Outside(Arc::new(Mutex::new(Some(Sample::default()))));
            let terms = Terms { cores: 4, memory: 4 * GIB, basis };
            let holdings = Holdings::new("web-1", terms, Box::new(outside.clone()), at(0));
            Case { outside, holdings, now_ns: 0 }
        }

        /// A second in which the machine says so much, and keeps so many cores busy: what is charged for it,
        /// in cores and GiB.
        fn second(&mut self, word: Option<(u32, u64)>, busy: f64) -> (f64, f64) {
            let before = self.holdings.held;
            self.now_ns += SECOND;
            if let Some((cores, memory)) = word {
                self.holdings.hear(Word { cores, memory, at_ns: self.now_ns });
            }
            self.outside.0.lock().expect("no panic").as_mut().expect("it runs").virtual_ns +=
                (busy * SECOND as f64) as u64;
            let held = self.holdings.advance(at(self.now_ns));
            let cores = (held.core_ns - before.core_ns) as f64 / SECOND as f64;
            (cores, (held.byte_seconds() - before.byte_seconds()) as f64 / GIB as f64)
        }

        fn report(&self) -> MeterReport {
            self.holdings.report(at(self.now_ns))
        }
    }

    fn at(steady_ns: u64) -> Moment {
        Moment { unix_ns: steady_ns, steady_ns }
    }

    #[test]
    fn what_is_held_is_charged_while_the_machine_says_it() {
        let mut case = Case::new(Basis::Held);
        assert_eq!(case.second(None, 0.1), (4.0, 4.0), "nothing was said yet");
        assert_eq!(case.second(Some((2, GIB)), 1.5), (2.0, 1.0));
        assert_eq!(case.second(Some((1, 2 * GIB)), 1.0), (1.0, 2.0));
        assert_eq!((case.report().disagreements, case.report().cores_claimed), (0, Some(1.0)));
        for _ in 0..5 {
            assert_eq!(case.second(None, 0.0), (1.0, 2.0));
        }
        assert_eq!(case.second(None, 0.0), (4.0, 4.0), "its word is too old");
        assert_eq!(case.report().memory_claimed, None);
    }

    #[test]
    fn cores_that_are_used_are_charged_whatever_the_machine_says() {
        let mut case = Case::new(Basis::Held);
        assert_eq!(case.second(Some((1, GIB)), 3.0), (3.0, 1.0));
        assert_eq!(case.report().disagreements, 0, "its word may be late");
        for _ in 0..2 {
            case.second(Some((1, GIB)), 3.0);
        }
        let report = case.report();
        assert_eq!((report.disagreements, report.cores_busy), (1, 3.0));
        assert!(report.disagreement.is_some_and(|how| how.contains("holds 1 cores, and keeps 3.00 busy")));
        assert_eq!(case.second(Some((1, GIB)), 9.0).0, 4.0, "never more than there are");
        case.second(Some((1, GIB)), 1.05);
        assert_eq!(case.second(Some((1, GIB)), 3.0).0, 3.0);
        assert_eq!(case.report().disagreements, 2, "one stretch that agrees begins anew");
    }

    #[test]
    fn who_says_what_cannot_be_is_charged_for_all() {
        let mut case = Case::new(Basis::Held);
        for word in [(5, GIB), (1, 5 * GIB), (u32::MAX, u64::MAX)] {
            assert_eq!(case.second(Some(word), 0.0), (4.0, 4.0), "{word:?}");
        }
        assert_eq!(case.report().disagreements, 3);
    }

    #[test]
    fn by_configuration_no_word_is_taken() {
        let mut case = Case::new(Basis::Configured);
        assert_eq!(case.second(Some((1, 1)), 0.0), (4.0, 4.0));
    }

    #[test]
    fn of_a_machine_that_is_gone_nothing_is_charged() {
        let mut case = Case::new(Basis::Held);
        case.second(Some((1, GIB)), 0.0);
        let before = case.holdings.held;
        *case.outside.0.lock().expect("no panic") = None;
        assert_eq!(case.holdings.advance(at(10 * SECOND)), before);
    }
}
