//! Who pays for what a server does: every frame, and all the core's time, is charged to an activity.
//!
//! ```text
//!   frame comes       its flow is found      the request is read        segments are sent
//!   ──────┬──────────────────┬───────────────────────┬─────────────────────────┬────────▶
//!         │ nobody pays yet  │ the flow's activity,  │ the request's, for all  │ the flow's
//!         │                  │ if no request says    │ since the frame came    │
//! ```
//! What is done before anybody knows for whom is paid for by whoever turns out to be it; what nobody turns
//! out to be for, by the infrastructure. The clock is read where another begins to pay, and once
//! for what is done for several in one go.

use crate::metered::Traffic;
use crate::stopwatch::Stopwatch;
use alloc::borrow::ToOwned as _;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::Cell;
use nom_port::nic::Label;
use nom_rt::handle::Handle;
use nom_service::{Activity, Consumed, CostRates, GOVERNING, INFRASTRUCTURE, Payer, Rules, Urgent};

/// In a flow's label, beside the activity: a request may say otherwise.
const BY_REQUEST: u32 = 1 << 31;

/// Besides: all its requests were for this activity so far, so that the next is taken for another of its.
const SETTLED: u32 = 1 << 30;

/// The label of flows that are for an activity, until a request says otherwise if it `may`.
pub(crate) fn label(activity: Activity, may: bool) -> Label {
    Label(activity.0 | if may { BY_REQUEST } else { 0 })
}

/// The label of flows all of whose requests were for an activity so far.
pub(crate) fn settled(activity: Activity) -> Label {
    Label(activity.0 | BY_REQUEST | SETTLED)
}

/// Whom the last request of a flow of this label was for, if one has said.
#[inline]
pub(crate) fn said(Label(bits): Label) -> Option<Activity> {
    (bits & BY_REQUEST != 0).then(|| activity_of(Label(bits)))
}

/// Whom a flow of this label is for.
#[inline]
pub(crate) fn activity_of(Label(bits): Label) -> Activity {
    Activity(bits & !(BY_REQUEST | SETTLED))
}

/// What was consumed for an activity, but for the core's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Consumption {
    /// Requests that were answered.
    pub requests: u64,
    /// Frames, and bytes of answers, as they are counted for the whole server.
    pub traffic: Traffic,
    /// Clients that are connected.
    pub connections: u64,
    /// How long frames waited for their turn, in nanoseconds all together, and how many were lost since too
    /// many waited.
    pub queued_ns: u64,
    /// See there.
    pub lost_frames: u64,
    /// Memory that its connections hold, in bytes, and how often somebody of it was turned away since that
    /// was too much; 0 as long as nobody's is bounded.
    pub memory_bytes: u64,
    /// See there.
    pub refused: u64,
    /// What that cost, the core's time among it, in nanodollars; 0 as long as nobody knows prices.
    pub cost_nanodollars: u64,
    /// What it has brought, in nanodollars, less than nothing where users are compensated; told by one core
    /// for all.
    pub revenue_nanodollars: i64,
    /// How long its packets may be held to batch them, in nanoseconds, if not for W; the least of all cores.
    pub held_at_most_ns: Option<u64>,
}

impl core::ops::AddAssign for Consumption {
    fn add_assign(&mut self, other: Consumption) {
        self.requests += other.requests;
        self.traffic += other.traffic;
        self.connections += other.connections;
        self.queued_ns += other.queued_ns;
        self.lost_frames += other.lost_frames;
        self.memory_bytes += other.memory_bytes;
        self.refused += other.refused;
        self.cost_nanodollars += other.cost_nanodollars;
        self.revenue_nanodollars += other.revenue_nanodollars;
        let both = [self.held_at_most_ns, other.held_at_most_ns];
        self.held_at_most_ns = both.into_iter().flatten().min();
    }
}

/// Charges what is done on one core.
#[derive(Debug)]
pub(crate) struct Payers {
    rules: Arc<Rules>,
    handle: Handle,
    present: Cell<Activity>,
    /// Who pays by the meter as well: as long as he does, nothing need be said to it.
    running: Cell<Activity>,
    /// Who pays for the frame that came last, if no request says otherwise; its bytes.
    last: Cell<Activity>,
    last_bytes: Cell<u64>,
    /// Whose packets are not held.
    urgent: Cell<Urgent>,
    /// By the activities' numbers.
    records: Box<[Record]>,
}

/// Of who pays by the meter: whoever its loop says.
const UNSAID: Activity = Activity(u32::MAX);
/// Nobody yet.
const PARTED: Activity = Activity(u32::MAX - 1);

/// Of who pays for the last frame: somebody has.
const PAID: Activity = Activity(u32::MAX);
/// Nobody has yet, nor is it known who will.
const UNKNOWN: Activity = Activity(u32::MAX - 1);

/// A [`Consumption`] that grows.
#[derive(Debug, Default)]
struct Record {
    requests: Cell<u64>,
    received: Frames,
    sent: Frames,
    answered_bytes: Cell<u64>,
    connections: Cell<u64>,
    queued_ns: Cell<u64>,
    lost_frames: Cell<u64>,
    memory_bytes: Cell<u64>,
    refused: Cell<u64>,
    /// Nanodollars, and what they are for: nanoseconds, and bytes sent and received.
    cost: Cell<f64>,
    billed: Cell<[u64; 3]>,
    revenue: Cell<i64>,
    /// How long its packets may be held by its owner's terms, in nanoseconds.
    held_ns: Cell<Option<u64>>,
}

/// Frames, and their bytes.
#[derive(Debug, Default)]
struct Frames {
    frames: Cell<u64>,
    bytes: Cell<u64>,
}

impl Frames {
    #[inline]
    fn add(&self, bytes: u64) {
        self.frames.update(|frames| frames + 1);
        self.bytes.update(|before| before + bytes);
    }
}

impl Record {
    fn told(&self, held_at_most_ns: Option<u64>) -> Consumption {
        Consumption {
            requests: self.requests.get(),
            traffic: Traffic {
                received_frames: self.received.frames.get(),
                received_bytes: self.received.bytes.get(),
                sent_frames: self.sent.frames.get(),
                sent_bytes: self.sent.bytes.get(),
                answered_bytes: self.answered_bytes.get(),
            },
            connections: self.connections.get(),
            queued_ns: self.queued_ns.get(),
            lost_frames: self.lost_frames.get(),
            memory_bytes: self.memory_bytes.get(),
            refused: self.refused.get(),
            cost_nanodollars: self.cost.get() as u64,
            revenue_nanodollars: self.revenue.get(),
            held_at_most_ns,
        }
    }
}

impl Payers {
    pub fn new(rules: Arc<Rules>, handle: Handle) -> Rc<Payers> {
        let records: Box<[Record]> = rules.names().map(|_| Record::default()).collect();
        handle.expect_activities(records.len() as u32);
        let (present, running) = (Cell::new(INFRASTRUCTURE), Cell::new(UNSAID));
        let (last, last_bytes) = (Cell::new(PAID), Cell::new(0));
        let urgent = Cell::default();
        Rc::new(Payers { rules, handle, present, running, last, last_bytes, urgent, records })
    }

    pub fn rules(&self) -> &Arc<Rules> {
        &self.rules
    }

    /// What was consumed so far, by the activities' numbers.
    pub fn records(&self) -> Vec<Consumption> {
        let numbered = (0..).map(Activity).zip(&self.records);
        numbered.map(|(activity, record)| record.told(self.held_ns(activity))).collect()
    }

    /// The same, with names and the core's time, and how long requests took by a stopwatch, for whoever
    /// reports it.
    pub fn consumed(&self, stopwatch: &Stopwatch) -> Vec<Consumed> {
        let numbered = (0..).map(Activity).zip(self.rules.names().zip(self.records()));
        let of = |(activity, (name, record)): (Activity, (&str, Consumption))| Consumed {
            name: name.to_owned(),
            core_ns: self.handle.record(activity).ns,
            requests: record.requests,
            latency_ns: stopwatch.taken_ns(activity),
            received_bytes: record.traffic.received_bytes,
            sent_bytes: record.traffic.sent_bytes,
            connections: record.connections,
            memory_bytes: record.memory_bytes,
            cost_nanodollars: record.cost_nanodollars,
            revenue_nanodollars: record.revenue_nanodollars,
        };
        numbered.map(of).collect()
    }

    /// Bytes of frames that were sent for an activity so far.
    #[inline]
    pub fn sent_bytes(&self, activity: Activity) -> u64 {
        self.record(activity).sent.bytes.get()
    }

    /// Labels and activities come from the rules, so that there is always one.
    #[inline]
    fn record(&self, activity: Activity) -> &Record {
        &self.records[activity.0 as usize]
    }

    /// A frame came.
    #[inline]
    pub fn frame_came(&self, bytes: u64) {
        self.settle();
        self.last.set(UNKNOWN);
        self.last_bytes.set(bytes);
    }

    /// Nobody else will say for whom the last frame was: what was for nobody is the infrastructure's.
    #[inline(always)]
    pub fn settle(&self) {
        if self.last.get() != PAID {
            self.settle_last();
        }
    }

    #[inline(never)]
    fn settle_last(&self) {
        match self.last.get() {
            UNKNOWN => self.charge(INFRASTRUCTURE),
            found => self.charge(found),
        }
    }

    /// What is done is for whom `label` says.
    #[inline]
    pub fn attribute(&self, label: Label) {
        let activity = activity_of(label);
        match self.last.get() {
            UNKNOWN if label.0 & BY_REQUEST != 0 => {
                // Somebody else's work is over; so is that for one who may be another from here on.
                if label.0 & SETTLED == 0 || self.running.get() != activity {
                    self.part();
                }
                self.last.set(activity);
            }
            UNKNOWN | PAID => self.charge(activity),
            found if found == activity => {}
            found => {
                self.charge(found);
                self.charge(activity);
            }
        }
    }

    /// Whoever has worked so far has paid for it; somebody will say who pays for what follows.
    fn part(&self) {
        self.handle.part();
        self.running.set(PARTED);
    }

    /// Frames are taken from now on that are put into queues: [`Payers::put_away`] ends it.
    pub fn begin_taking(&self) {
        self.part();
    }

    /// The last frame has to wait: whoever is to pay for it will be known when it is read, if requests say.
    #[inline]
    pub fn postpone(&self, label: Label) {
        if self.last.replace(PAID) != PAID && label.0 & BY_REQUEST == 0 {
            self.record(activity_of(label)).received.add(self.last_bytes.get());
        }
    }

    /// It is `now_ns`: since [`Payers::begin_taking`], so many frames of each activity were put into queues,
    /// one as much work as the other.
    pub fn put_away(&self, now_ns: u64, frames: &[u64]) {
        let counts = frames.iter().enumerate();
        self.handle.divide(now_ns, counts.map(|(number, frames)| (Activity(number as u32), *frames)));
        self.running.set(PARTED);
    }

    /// A frame that had to wait for so long is read.
    #[inline]
    pub fn resume(&self, label: Label, bytes: u64, waited_ns: u64) {
        self.settle();
        self.record(activity_of(label)).queued_ns.update(|before| before + waited_ns);
        if label.0 & BY_REQUEST != 0 {
            self.last.set(UNKNOWN);
            self.last_bytes.set(bytes);
        }
    }

    /// A frame that had to wait was lost.
    pub fn frame_lost(&self, label: Label, bytes: u64) {
        let record = self.record(activity_of(label));
        record.lost_frames.update(|before| before + 1);
        if label.0 & BY_REQUEST != 0 {
            record.received.add(bytes);
        }
    }

    /// It is `now_ns`, and whoever pays has paid for what was done so far.
    pub fn pay(&self, now_ns: u64) {
        self.settle();
        self.handle.part_at(now_ns);
        self.running.set(PARTED);
    }

    /// Who paid last.
    #[inline]
    pub fn present(&self) -> Activity {
        self.present.get()
    }

    /// A frame of so many bytes leaves.
    #[inline]
    pub fn frame_leaves(&self, bytes: u64) {
        self.settle();
        self.record(self.present.get()).sent.add(bytes);
    }

    /// How long what is queued now may be held to batch it, in nanoseconds, if not for W.
    #[inline]
    pub fn held_at_most_ns(&self) -> Option<u64> {
        self.held_ns(self.present.get())
    }

    /// The same of an activity's packets.
    #[inline]
    fn held_ns(&self, activity: Activity) -> Option<u64> {
        if self.urgent.get().has(activity) { Some(0) } else { self.record(activity).held_ns.get() }
    }

    /// Packets of these activities are not held from now on, whatever their terms are.
    pub fn hurry(&self, urgent: Urgent) {
        self.urgent.set(urgent);
    }

    /// Packets of activities are held for so long at most, in microseconds, from now on, by their numbers.
    pub fn hold(&self, most_us: impl Iterator<Item = Option<u32>>) {
        for (record, most) in self.records.iter().zip(most_us) {
            record.held_ns.set(most.map(|us| u64::from(us) * 1000));
        }
    }

    /// A client of an activity came, or went.
    pub fn connected(&self, activity: Activity, change: i64) {
        self.record(activity).connections.update(|before| before.saturating_add_signed(change));
    }

    /// Clients of an activity.
    pub fn connections(&self, activity: Activity) -> u64 {
        self.record(activity).connections.get()
    }

    /// Changes what an activity's connections hold of memory.
    pub fn holds(&self, activity: Activity, change: impl FnOnce(u64) -> u64) {
        self.record(activity).memory_bytes.update(change);
    }

    /// Bytes of memory that an activity's connections hold.
    pub fn memory(&self, activity: Activity) -> u64 {
        self.record(activity).memory_bytes.get()
    }

    /// Somebody was turned away since his activity holds too much memory.
    pub fn refused(&self, activity: Activity) {
        self.record(activity).refused.update(|before| before + 1);
    }

    /// All that there was to do is done; what follows is for nobody.
    pub fn end(&self) {
        self.settle();
        if self.running.get() != UNSAID {
            self.charge(INFRASTRUCTURE);
            self.running.set(UNSAID);
        }
    }

    /// Bills everybody for what he has consumed since the last bill, at these rates.
    pub fn bill(&self, rates: CostRates) {
        for (number, record) in self.records.iter().enumerate() {
            let core_ns = self.handle.record(Activity(number as u32)).ns;
            let now = [core_ns, record.sent.bytes.get(), record.received.bytes.get()];
            let before = record.billed.replace(now);
            let [core_ns, sent, received] = [0, 1, 2].map(|index| (now[index] - before[index]) as f64);
            // Dollars for a second are nanodollars for a nanosecond.
            let cost =
                core_ns * rates.core_second + 1e9 * (sent * rates.sent_byte + received * rates.received_byte);
            record.cost.update(|sum| sum + cost);
        }
    }

    /// An activity has brought so much so far.
    pub fn earn(&self, activity: Activity, nanodollars: i64) {
        if let Some(record) = self.records.get(activity.0 as usize) {
            record.revenue.set(nanodollars);
        }
    }

    /// Has a governor think, at its own expense.
    pub fn governing<R>(&self, think: impl FnOnce() -> R) -> R {
        self.end();
        self.part();
        self.charge(GOVERNING);
        let thought = think();
        self.end();
        thought
    }
}

impl Payer for Payers {
    #[inline]
    fn charge(&self, activity: Activity) {
        if self.running.get() != activity {
            self.handle.charge(activity);
            self.present.set(activity);
            self.running.set(activity);
        }
        if self.last.replace(PAID) != PAID {
            self.record(activity).received.add(self.last_bytes.get());
        }
    }

    fn count(&self, activity: Activity, requests: u32, bytes: usize) {
        let record = self.record(activity);
        record.requests.update(|before| before + u64::from(requests));
        record.answered_bytes.update(|before| before + bytes as u64);
    }
}
