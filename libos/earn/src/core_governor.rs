//! A server on several cores that earns as one.
//!
//! Each core has its own stack, measures what it serves, and sets its own batching delay; but users pay for
//! the whole. So the cores share one [`Earner`]: whichever finds the window over decides for all, from what
//! all have served, and the others take the setting over with their next look. A core that sleeps holds up
//! nobody, and none ever waits for another.

use crate::contracts::Served;
use crate::earner::{CONSUMED_NS, Earner, IDLE_NS, has_passed};
use crate::market::PriceBoard;
use crate::report::Audience;
use crate::settings::Paying;
use crate::worth::Worths;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use core::time::Duration;
use lock_api::{Mutex, RawMutex};
use nom_economy::controller::BatchingDelays;
use nom_service::Demand;
use nom_service::{Activity, Consumed, CostRates, Earned, Governor, Setting, Urgent, Window};

/// The window of a core among others: short, so that little of it belongs to another window of the whole.
const PART_NS: u64 = 5_000_000;
/// That of a core by itself, whose window is the whole.
const WHOLE_NS: u64 = 20_000_000;
/// That of a core whose working point nobody sets.
const WATCHED_NS: u64 = 100_000_000;
/// A core whose windows make up this share of the whole's, or its inverse, was there all the time, and its
/// rates are taken as such; otherwise it slept, and what it counted is all there was.
const THROUGHOUT: f64 = 0.5;
/// Where in the word of a setting its parts are, from low to high: microseconds, cores, memory.
const CORES_AT: u32 = 15;
const MEMORY_AT: u32 = 31;
/// Bit of a setting that says that cores poll.
const POLLS: u64 = 1 << 63;
/// No limit of clients.
const ALL: u32 = u32::MAX;

/// What the cores have in common.
struct SharedEarner<L: RawMutex, B, A> {
    board: B,
    /// The board's sequence that the governor has seen.
    seen: AtomicU32,
    /// What is set, as [`word`] has it.
    setting: AtomicU64,
    /// Most clients of each core, or [`ALL`].
    clients_max: AtomicU32,
    /// Whose packets are not held, as bits.
    urgent: AtomicU64,
    wants_demand: bool,
    governs: bool,
    chooses_cores: bool,
    paying: Paying,
    joint: Mutex<L, Joint<B, A>>,
}

/// The governor, and what it has not been told yet.
struct Joint<B, A> {
    earner: Earner<B, A>,
    /// By core.
    parts: Vec<Served>,
    began_ns: u64,
    /// What activities have consumed of each core, as it said last.
    consumed: Vec<Vec<Consumed>>,
}

/// A setting as it is shared: its word, most clients, and whose packets are not held.
type Set = (u64, u32, u64);

/// One core's governor.
pub struct CoreGovernor<L: RawMutex, B, A> {
    shared: Arc<SharedEarner<L, B, A>>,
    index: usize,
    window_ns: u64,
    /// What it served since it last held the earner.
    part: Served,
    set: Set,
    /// What consumption cost when it last held the earner.
    rates: CostRates,
    /// What requests were worth when it last held the earner.
    worths: Worths,
    /// What was earned when it last held the earner, and by whom.
    earned: (Earned, Vec<i64>),
    /// When it said last what activities have consumed of its core.
    consumed_ns: Option<u64>,
}

impl<L: RawMutex, B: PriceBoard, A: Audience> CoreGovernor<L, B, A> {
    /// Governors for so many cores, which share `earner`; prices are posted on `board`.
    pub fn of_cores(earner: Earner<B, A>, board: B, cores: usize) -> impl Iterator<Item = Self> {
        let earner = earner.on(cores);
        let set = (word(earner.setting()), ALL, 0);
        let shared = Arc::new(SharedEarner {
            seen: AtomicU32::new(board.sequence().wrapping_sub(1)),
            board,
            setting: AtomicU64::new(set.0),
            clients_max: AtomicU32::new(set.1),
            urgent: AtomicU64::new(set.2),
            wants_demand: earner.wants_demand(),
            governs: earner.governs(),
            chooses_cores: earner.chooses_cores(),
            paying: earner.paying(),
            joint: Mutex::new(Joint {
                earner,
                parts: vec![Served::default(); cores],
                began_ns: 0,
                consumed: vec![Vec::new(); cores],
            }),
        });
        let window_ns = match cores {
            _ if !shared.governs => WATCHED_NS,
            1 => WHOLE_NS,
            _ => PART_NS,
        };
        let governor = move |index| {
            let (part, rates, earned) = (Served::default(), CostRates::default(), Default::default());
            let (shared, worths) = (shared.clone(), Worths::default());
            CoreGovernor { shared, index, window_ns, part, set, rates, worths, earned, consumed_ns: None }
        };
        (0..cores).map(governor)
    }
}

impl<L: RawMutex, B, A> SharedEarner<L, B, A> {
    fn set(&self, setting: Setting) {
        self.setting.store(word(setting), Relaxed);
        self.clients_max.store(setting.clients_max.unwrap_or(ALL), Relaxed);
        self.urgent.store(setting.urgent.bits(), Relaxed);
    }

    fn set_last(&self) -> Set {
        (self.setting.load(Relaxed), self.clients_max.load(Relaxed), self.urgent.load(Relaxed))
    }
}

impl<B: PriceBoard, A: Audience> Joint<B, A> {
    /// Takes a core's part, and decides if the window is over; `in_force` is what the core has set. Returns
    /// the setting.
    fn hear(&mut self, index: usize, part: &mut Served, now_ns: u64, in_force: Setting) -> Setting {
        self.parts[index].join(&core::mem::take(part), 1.0);
        if !has_passed(self.earner.window_ns(), self.began_ns, now_ns) {
            return self.earner.setting();
        }
        let length_ns = now_ns.saturating_sub(self.began_ns);
        let mut all = Served::default();
        for part in self.parts.iter_mut().map(core::mem::take).filter(|part| part.whole.length_ns > 0) {
            let share = part.whole.length_ns as f64 / length_ns as f64;
            let was_there = (THROUGHOUT..=1.0 / THROUGHOUT).contains(&share);
            all.join(&part, if was_there { 1.0 / share } else { 1.0 });
        }
        let setting = if self.earner.governs() { self.earner.setting() } else { in_force };
        let window = all.whole.window(self.began_ns, now_ns, setting);
        self.began_ns = now_ns;
        self.earner.share(all.shares);
        self.earner.observe(&window)
    }
}

impl<B, A> Joint<B, A> {
    /// What activities have consumed of all cores.
    fn consumed(&self) -> Vec<Consumed> {
        let mut all: Vec<Consumed> = Vec::new();
        for core in &self.consumed {
            if all.is_empty() {
                all.clone_from(core);
            } else {
                all.iter_mut().zip(core).for_each(|(sum, own)| sum.add(own));
            }
        }
        all
    }
}

impl<L: RawMutex, B: PriceBoard, A: Audience> CoreGovernor<L, B, A> {
    /// What all are to set, and whether this core does not yet.
    fn setting(&mut self) -> (Setting, bool) {
        let set = self.shared.set_last();
        let is_new = core::mem::replace(&mut self.set, set) != set;
        let (word, limit, urgent) = set;
        let clients_max = Some(limit).filter(|limit| *limit != ALL);
        let urgent = Urgent::from_bits(urgent);
        (Setting { clients_max, urgent, ..setting(word) }, is_new && self.shared.governs)
    }
}

impl<L: RawMutex, B: PriceBoard, A: Audience> Governor for CoreGovernor<L, B, A> {
    fn governs(&self) -> bool {
        self.shared.governs
    }

    fn chooses_cores(&self) -> bool {
        self.shared.chooses_cores
    }

    fn window_ns(&self) -> u64 {
        self.window_ns
    }

    /// One says for all that they are idle.
    fn idle_ns(&self) -> Option<u64> {
        (self.index == 0).then_some(IDLE_NS)
    }

    fn rates(&self) -> CostRates {
        self.rates
    }

    /// One says for all what they keep together.
    fn wants_demand(&self) -> bool {
        self.index == 0 && self.shared.wants_demand
    }

    fn hear(&mut self, demand: &Demand) {
        if let Some(mut joint) = self.shared.joint.try_lock() {
            joint.earner.hear(demand);
        }
    }

    fn wants_shares(&self) -> bool {
        self.shared.governs
    }

    fn divide(&mut self, shares: &[Window]) {
        self.part.add_shares(shares);
    }

    fn is_paid(&self, activity: Activity) -> bool {
        self.shared.paying.has(activity)
    }

    fn worth(&self, tell: &mut dyn FnMut(Activity, f64)) {
        self.worths.tell(tell);
    }

    /// One says for all what they earn together.
    fn earned(&mut self, tell: &mut dyn FnMut(Activity, i64)) -> Option<Earned> {
        if self.index != 0 {
            return None;
        }
        let (earned, shares) = &mut self.earned;
        if let Some(mut joint) = self.shared.joint.try_lock() {
            shares.iter_mut().for_each(|share| *share = 0);
            let mut note = |Activity(number): Activity, nanos| {
                let number = number as usize;
                if shares.len() <= number {
                    shares.resize(number + 1, 0);
                }
                shares[number] = nanos;
            };
            *earned = joint.earner.earned(&mut note).unwrap_or_default();
        }
        shares.iter().enumerate().for_each(|(number, nanos)| tell(Activity(number as u32), *nanos));
        Some(*earned)
    }

    fn wants_consumed(&self, now_ns: u64) -> bool {
        self.consumed_ns.is_none_or(|last_ns| has_passed(CONSUMED_NS, last_ns, now_ns))
    }

    /// One says for all what the others said last.
    fn consumed(&mut self, now_ns: u64, consumed: Vec<Consumed>) {
        let Some(mut joint) = self.shared.joint.try_lock() else { return };
        self.consumed_ns = Some(now_ns);
        if let Some(place) = joint.consumed.get_mut(self.index) {
            *place = consumed;
        }
        if self.index == 0 {
            let all = joint.consumed();
            joint.earner.consumed(now_ns, all);
        }
    }

    fn observe(&mut self, window: &Window) -> Setting {
        self.part.whole.add(window);
        // Whoever does not get hold of it says it with its next window.
        if let Some(mut joint) = self.shared.joint.try_lock() {
            let setting = joint.hear(self.index, &mut self.part, window.to_ns, window.setting);
            self.rates = joint.earner.rates();
            self.worths.clone_from(joint.earner.worths());
            self.shared.set(setting);
        }
        self.setting().0
    }

    fn look(&mut self, now_ns: u64) -> Option<Setting> {
        let shared = &self.shared;
        if shared.board.sequence() != shared.seen.load(Relaxed)
            && let Some(mut joint) = shared.joint.try_lock()
        {
            if let Some(setting) = joint.earner.look(now_ns) {
                shared.set(setting);
            }
            if let Some(seen) = joint.earner.seen() {
                shared.seen.store(seen, Relaxed);
            }
        }
        let (setting, is_new) = self.setting();
        is_new.then_some(setting)
    }
}

/// A setting in one word, so that a core takes over all of it or nothing.
fn word(setting: Setting) -> u64 {
    let micros = setting.batching_delay.as_micros().min(BatchingDelays::MAX_MICROS.into()) as u64;
    let (cores, memory) = (u64::from(setting.cores), u64::from(setting.memory_mib));
    micros | cores << CORES_AT | memory << MEMORY_AT | if setting.polls { POLLS } else { 0 }
}

/// The setting of a word.
fn setting(word: u64) -> Setting {
    let bits = |from: u32, to: u32| word >> from & ((1 << (to - from)) - 1);
    Setting {
        batching_delay: Duration::from_micros(bits(0, CORES_AT)),
        polls: word & POLLS != 0,
        cores: bits(CORES_AT, MEMORY_AT) as u16,
        memory_mib: bits(MEMORY_AT, 63) as u32,
        clients_max: None,
        urgent: Urgent::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_fits_into_a_word() {
        for (micros, polls, cores, memory_mib) in
            [(0, false, 0, 0), (10_000, true, u16::MAX, u32::MAX), (17, false, 2, 64), (0, true, 0, 1)]
        {
            let batching_delay = Duration::from_micros(micros);
            let whole = Setting { batching_delay, polls, cores, memory_mib, ..Setting::default() };
            assert_eq!(setting(word(whole)), whole);
        }
    }
}
