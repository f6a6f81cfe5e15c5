//! Whose frames go on next: the request queues before the stack's input, if the owner has asked for a
//! scheduler there.
//!
//! The stack harvests what the device has, finds out for whom each frame is, and asks here. As long as all
//! frames are for one activity and none wait, each goes on at once. When others come, frames are put into
//! the queues of their activities; all that the device has is taken first, so that nobody's flood fills the
//! ring before the others are seen, and then the scheduler says whose turn it is. A full queue takes no more:
//! that is its activity's loss alone, and TCP's business to repeat.

use crate::payers::{Consumption, Payers, activity_of};
use crate::yields::Yields;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::ops::RangeInclusive;
use nom_grid::{
    ClientIndex, ClientParameters, EarningStep, Earnings, GridPlan, GridResource, Next, QueueLimits,
    RequestQueues, ResourcePlan, ResourceRecord, ResourceScheduler,
};
use nom_net::{Arrival, Instant, Queues};
use nom_port::buffer::Buffer;
use nom_port::nic::Label;
use nom_rt::handle::Handle;
use nom_service::{Activity, Governor};

/// Most frames that are taken from the device before somebody is served: then its ring, and the buffers in
/// it, are free for what comes.
const HARVEST_MAX: u32 = 128;

/// Most messages that are served in a poll while others wait: who is answered may soon have more to ask, and
/// is to be heard before somebody else has his share. When for [`ALONE_NS`] nobody had to wait for another
/// all go on that were taken from the device, which are about [`HARVEST_MAX`] at most: only then do frames
/// go on at once again, though there are always some to come.
const SERVE_MAX: u32 = 32;

/// How long one is served before others are looked at, if not for fewer messages, and how long answers may
/// stay while others are served. A message is not interrupted.
const TURN_NS: u64 = 200_000;

/// After so long in which only one activity's frames waited, others are not expected soon: who asks again
/// when he is answered does so within less.
const ALONE_NS: u64 = 20_000_000;

/// Bytes of frames that may wait for one activity: few enough that all together do not take the driver's
/// buffers away.
const WAITING_BYTES_MAX: usize = 256 << 10;

/// How long a frame is served in one go: longer than what an honest client asks at once takes, lest it is
/// answered in parts. The device merges a flood into frames that hold thousands of requests.
const PIECE_NS: u64 = 1_000_000;

/// Bytes of a frame's payload that are served in one go, at least and at most.
const PIECE_BYTES: RangeInclusive<usize> = 64..=65_536;

/// The queue of activities that have none of their own: a scheduler has so many clients at most.
const SHARED: ClientIndex = nom_grid::CLIENTS_MAX - 1;

/// Why every scheduler can serve every activity.
const CHECKED: &str = "a checked plan gives schedulers what they go by";

/// A frame that waits.
#[derive(Clone, Copy, Debug)]
struct Ticket {
    /// Where it does.
    place: u32,
    /// Whether a piece of it was served.
    is_begun: bool,
}

/// What is being served.
#[derive(Clone, Copy, Debug)]
struct Serving {
    client: ClientIndex,
    place: u32,
    /// Bytes that were left of it.
    left: usize,
}

/// The request queues of one core.
pub(crate) struct Gate<B> {
    queues: RequestQueues<Ticket>,
    /// Frames that wait: each stays where it was put until it is served.
    frames: Vec<Option<Arrival<B>>>,
    /// Places of frames that were.
    free: Vec<u32>,
    payers: Rc<Payers>,
    handle: Handle,
    /// Whose frames go on at once while none wait.
    alone: ClientIndex,
    /// Frames that were taken since somebody was served; how many of them since the last question.
    harvested: u32,
    is_fresh: bool,
    /// Frames that were put into queues and are not paid for yet, by the activities' numbers.
    taken: Vec<u64>,
    has_taken: bool,
    /// Messages that may yet be served in this poll.
    left: u32,
    serving: Option<Serving>,
    /// What was served, for whom, since the scheduler was told.
    untold: (ClientIndex, ResourceRecord),
    /// What the scheduler was told of each activity, by their numbers.
    told_of: Vec<ResourceRecord>,
    /// Who earns by his contract, each with what else the scheduler is told of him; and what that brings.
    by_contract: Vec<(ClientIndex, ClientParameters)>,
    yields: Yields,
    /// By client.
    paces: Vec<Pace>,
    /// Bytes of a frame that go on at a time.
    piece_max: usize,
    /// When the present turn began, and when frames of several were last seen to wait.
    turn_ns: u64,
    contended_ns: u64,
    look: Look,
    /// Messages of all polls.
    served: u64,
    due: Option<Instant>,
}

/// When the clock is read: not for each message, if many are served in a turn.
#[derive(Clone, Copy, Debug)]
struct Look {
    /// When it was read last, and whether no message was served since.
    now_ns: u64,
    is_new: bool,
    /// Messages since then, all of one client, and after how many it is read again.
    messages: u32,
    most: u32,
}

/// How long what a client sends takes, of late.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    /// A message, in nanoseconds.
    each_ns: u64,
    /// 1,024 bytes.
    kibibyte_ns: u64,
}

impl Pace {
    /// Messages that a turn which is over in `left_ns` will take.
    fn messages(self, left_ns: u64) -> u32 {
        left_ns.div_ceil(self.each_ns.max(1)).clamp(1, u64::from(u32::MAX)) as u32
    }

    /// Bytes that take as long as a piece may.
    fn piece(self) -> usize {
        let bytes = (PIECE_NS * 1024).checked_div(self.kibibyte_ns).unwrap_or(u64::MAX);
        (bytes.min(u64::from(u32::MAX)) as usize).clamp(*PIECE_BYTES.start(), *PIECE_BYTES.end())
    }
}

/// What stands before input by a plan, if anything does.
fn input(plan: &GridPlan) -> Option<&ResourcePlan> {
    plan.at(GridResource::Input)
}

/// The scheduler of a plan before input, and what it is told of each client: activities by their numbers, and
/// last all that have no queue of their own.
#[allow(clippy::type_complexity, reason = "it is taken apart where it is used")]
fn scheduler(
    plan: &GridPlan,
    payers: &Payers,
) -> Option<(Box<dyn ResourceScheduler>, Vec<(ClientIndex, ClientParameters)>)> {
    let names = payers.rules().names().take(SHARED);
    let clients = (0..names.clone().count()).chain([SHARED]);
    let (scheduler, parameters) = plan.input_scheduler(names.chain(["others"]))?;
    Some((scheduler, clients.zip(parameters).collect()))
}

/// Who earns by his contract by a plan, each with what else a scheduler is told of him. The queue of all who
/// have none of their own earns nothing: theirs are many contracts.
fn by_contract(plan: &GridPlan, payers: &Payers) -> Vec<(ClientIndex, ClientParameters)> {
    let clients = payers.rules().names().enumerate().take(SHARED);
    let terms = clients.map(|(client, name)| (client, plan.terms_of(name)));
    let by_contract = terms.filter(|(_, own)| own.earns == Some(Earnings::ByContract));
    by_contract.map(|(client, own)| (client, own.parameters())).collect()
}

#[inline]
fn client_of(activity: Activity) -> ClientIndex {
    (activity.0 as usize).min(SHARED)
}

impl<B: Buffer> Gate<B> {
    /// As `plan` says, for the activities that `payers` tell apart; nothing, if it puts nothing before input.
    pub fn new(plan: &GridPlan, payers: Rc<Payers>, handle: Handle) -> Option<Gate<B>> {
        let at_input = input(plan)?;
        let (scheduler, parameters) = scheduler(plan, &payers)?;
        let mut queues = RequestQueues::new(scheduler, at_input.batching);
        let limits = QueueLimits { messages: at_input.queue.get() as usize, bytes: WAITING_BYTES_MAX };
        for (client, parameters) in &parameters {
            queues.add(*client, parameters, limits).expect(CHECKED);
        }
        let by_contract = by_contract(plan, &payers);
        let activities = payers.rules().names().count();
        Some(Gate {
            queues,
            frames: Vec::new(),
            free: Vec::new(),
            payers,
            handle,
            alone: 0,
            harvested: 0,
            is_fresh: false,
            taken: alloc::vec![0; activities],
            has_taken: false,
            left: SERVE_MAX,
            serving: None,
            untold: (0, ResourceRecord::default()),
            told_of: alloc::vec![ResourceRecord::default(); activities],
            by_contract,
            yields: Yields::new(at_input.metric),
            paces: alloc::vec![Pace::default(); SHARED + 1],
            piece_max: *PIECE_BYTES.end(),
            turn_ns: 0,
            contended_ns: 0,
            look: Look { now_ns: 0, is_new: false, messages: 0, most: 1 },
            served: 0,
            due: None,
        })
    }

    /// Serves by another plan from now on, with what waits. Its queues stay as long as they were.
    pub fn follow(&mut self, plan: &GridPlan) {
        let Some(at_input) = input(plan) else { return };
        let Some((scheduler, parameters)) = scheduler(plan, &self.payers) else { return };
        let of_client = |client: ClientIndex| {
            let own = parameters.iter().find(|(known, _)| *known == client);
            own.map_or_else(ClientParameters::default, |(_, own)| own.clone())
        };
        let now_ns = self.handle.clock_ns();
        self.queues.replace_scheduler(scheduler, of_client, now_ns).expect(CHECKED);
        self.by_contract = by_contract(plan, &self.payers);
        self.yields = Yields::new(at_input.metric);
    }

    /// Whether somebody earns by his contract.
    pub fn goes_by_contracts(&self) -> bool {
        !self.by_contract.is_empty()
    }

    /// Has the scheduler go by what contracts pay, as `governor` knows it by now, from now on; `consumed` is
    /// what each has been served so far. Whoever was served nothing yet earns nothing.
    pub fn earn(&mut self, governor: &dyn Governor, consumed: &[Consumption]) {
        self.yields.learn(consumed, &self.handle);
        let now_ns = self.handle.clock_ns();
        let (by_contract, yields, queues) = (&mut self.by_contract, &self.yields, &mut self.queues);
        governor.worth(&mut |activity, nanodollars| {
            let own = by_contract.iter_mut().find(|(client, _)| *client == activity.0 as usize);
            let earns = yields.of_million(activity, nanodollars);
            if let (Some((client, parameters)), Some(earns)) = (own, earns) {
                parameters.earns.clear();
                parameters.earns.push(EarningStep::always(earns));
                queues.update(*client, parameters, now_ns).expect(CHECKED);
            }
        });
    }

    /// A poll begins.
    #[inline]
    pub fn begin(&mut self) {
        self.left = SERVE_MAX;
        self.turn_ns = self.handle.now_ns();
    }

    /// How many messages were served so far that had to wait.
    #[inline]
    pub fn served(&self) -> u64 {
        self.served
    }

    /// Reads the clock.
    fn look_up(&mut self) {
        let now_ns = self.handle.clock_ns();
        let Look { now_ns: before_ns, messages, .. } = self.look;
        if messages > 0 {
            let taken_ns = now_ns.saturating_sub(before_ns);
            self.paces[self.untold.0].each_ns = taken_ns / u64::from(messages);
        }
        self.look = Look { now_ns, is_new: true, messages: 0, ..self.look };
    }

    /// What was served last is over, or waits again with what is left of it.
    #[inline]
    fn end_message(&mut self) {
        let Some(Serving { client, place, left }) = self.serving.take() else { return };
        let Some(arrival) = &self.frames[place as usize] else { return };
        let (now, bytes, untold) = (arrival.left(), arrival.bytes(), &mut self.untold.1);
        untold.bytes += (left - now) as u64;
        if now == 0 {
            untold.messages += 1;
            self.free.push(place);
        } else {
            self.queues.put_back(client, Ticket { place, is_begun: true }, bytes, self.look.now_ns);
        }
    }

    /// Whoever has been served until now is charged, and the scheduler hears of it.
    fn account(&mut self, now_ns: u64) {
        if self.has_taken {
            return self.put_away(now_ns);
        }
        let (client, mut record) = core::mem::take(&mut self.untold);
        if record.bytes == 0 {
            return;
        }
        self.payers.pay(now_ns);
        // A request may have said that it is for another: who that was is told with the rest.
        let activity = if client < SHARED { Activity(client as u32) } else { self.payers.present() };
        let consumed = self.untold_of(activity);
        let kibibyte_ns = consumed.core_ns.saturating_mul(1024) / record.bytes;
        let pace = &mut self.paces[client];
        pace.kibibyte_ns = match pace.kibibyte_ns {
            0 => kibibyte_ns,
            // That the core was taken away meanwhile says nothing of the bytes.
            before => (3 * before + kibibyte_ns.min(2 * before)) / 4,
        };
        record += consumed;
        self.queues.served(client, &record, now_ns);
    }

    /// Whoever had frames put into queues is charged for that.
    fn put_away(&mut self, now_ns: u64) {
        self.payers.put_away(now_ns, &self.taken);
        self.taken.fill(0);
        self.has_taken = false;
    }

    /// Tells the scheduler of what activities have had beside what was served: who sends what is lost, or is
    /// sent a great deal, has had that time, and those bytes.
    fn account_for_rest(&mut self, now_ns: u64) {
        for number in 0..self.told_of.len() {
            let activity = Activity(number as u32);
            let record = self.untold_of(activity);
            if record != ResourceRecord::default() {
                self.queues.served(client_of(activity), &record, now_ns);
            }
        }
    }

    /// What an activity has been charged and the scheduler does not know: time of the core, and bytes that
    /// were sent.
    fn untold_of(&mut self, activity: Activity) -> ResourceRecord {
        let (core_ns, sent_bytes) = (self.handle.record(activity).ns, self.payers.sent_bytes(activity));
        let now = ResourceRecord { core_ns, sent_bytes, ..ResourceRecord::default() };
        let Some(told) = self.told_of.get_mut(activity.0 as usize) else { return ResourceRecord::default() };
        let before = core::mem::replace(told, now);
        ResourceRecord {
            core_ns: now.core_ns.saturating_sub(before.core_ns),
            sent_bytes: now.sent_bytes.saturating_sub(before.sent_bytes),
            ..now
        }
    }

    /// A message is served.
    #[inline]
    fn serve(&mut self, client: ClientIndex, Ticket { place, is_begun }: Ticket) -> u32 {
        self.left = self.left.saturating_sub(1);
        self.served += 1;
        self.look.is_new = false;
        let Some(arrival) = &self.frames[place as usize] else { return place };
        self.serving = Some(Serving { client, place, left: arrival.left() });
        if !is_begun {
            let waited_ns = self.look.now_ns.saturating_sub(arrival.at_ns());
            self.payers.resume(arrival.label(), arrival.bytes() as u64, waited_ns);
        }
        self.untold.0 = client;
        place
    }

    /// Whether another message may be served in this poll.
    #[inline]
    fn may_serve(&self) -> bool {
        self.left > 0
            || self.queues.is_uncontended() && self.look.now_ns.saturating_sub(self.contended_ns) > ALONE_NS
    }

    /// Where the frame is that is served next.
    fn choose(&mut self) -> Option<u32> {
        self.end_message();
        // While a decision goes on nobody is asked, nor is the clock.
        if !self.is_fresh
            && !self.look.is_new
            && self.may_serve()
            && let Some((client, ticket)) = self.queues.go_on(self.look.now_ns)
        {
            return Some(self.serve(client, ticket));
        }
        if !self.look.is_new {
            self.look_up();
        }
        let now_ns = self.look.now_ns;
        if !self.queues.is_uncontended() {
            self.contended_ns = now_ns;
        }
        self.account(now_ns);
        // The device may have more: who is in there is to be heard first.
        let may_have_more = core::mem::take(&mut self.is_fresh) && self.harvested < HARVEST_MAX;
        if may_have_more || !self.may_serve() {
            self.due = (self.queues.waiting() > 0).then(|| Instant::from_nanos(now_ns));
            self.look.is_new = false;
            return None;
        }
        if core::mem::take(&mut self.harvested) > 0 {
            self.account_for_rest(now_ns);
        }
        let next = self.queues.next(now_ns);
        if let Next::Serve(client, ticket) = next {
            self.alone = client;
            self.piece_max = self.paces[client].piece();
            let left_ns = (self.turn_ns + TURN_NS).saturating_sub(now_ns);
            self.look.most = self.paces[client].messages(left_ns);
            return Some(self.serve(client, ticket));
        }
        self.look.is_new = false;
        self.due = match next {
            Next::After(ns) => Some(Instant::from_nanos(now_ns.saturating_add(ns))),
            Next::Nothing | Next::Serve(..) => None,
        };
        None
    }
}

impl<B: Buffer> Queues<B> for Gate<B> {
    #[inline]
    fn goes_on(&mut self, label: Label) -> bool {
        self.harvested += 1;
        self.is_fresh = true;
        let is_alone = self.queues.is_direct() && client_of(activity_of(label)) == self.alone;
        if is_alone && self.has_taken {
            // What was taken was lost: nobody waits.
            let now_ns = self.handle.clock_ns();
            self.put_away(now_ns);
        }
        is_alone
    }

    #[inline]
    fn push(&mut self, label: Label, bytes: usize) -> Option<&mut Option<Arrival<B>>> {
        if !core::mem::replace(&mut self.has_taken, true) {
            self.payers.begin_taking();
        }
        let activity = activity_of(label);
        self.payers.postpone(label);
        if let Some(taken) = self.taken.get_mut(activity.0 as usize) {
            *taken += 1;
        }
        let place = self.free.last().copied().unwrap_or(self.frames.len() as u32);
        let ticket = Ticket { place, is_begun: false };
        if self.queues.push(client_of(activity), ticket, bytes, self.handle.now_ns()).is_err() {
            self.payers.frame_lost(label, bytes as u64);
            return None;
        }
        if self.free.pop().is_none() {
            self.frames.push(None);
        }
        self.frames.get_mut(place as usize)
    }

    #[inline]
    fn next(&mut self) -> Option<&mut Arrival<B>> {
        if self.queues.waiting() == 0 && self.serving.is_none() && !self.has_taken {
            (self.harvested, self.is_fresh, self.due) = (0, false, None);
            return None;
        }
        let place = self.choose()?;
        let arrival = self.frames[place as usize].as_mut()?;
        arrival.cut(self.piece_max);
        Some(arrival)
    }

    #[inline]
    fn is_turn_over(&mut self) -> bool {
        self.look.messages += 1;
        // A piece takes longer than a turn.
        let is_piece = self.serving.is_some_and(|serving| serving.left > self.piece_max);
        if self.look.messages < self.look.most && !is_piece {
            return false;
        }
        self.look_up();
        let is_over = self.look.now_ns.saturating_sub(self.turn_ns) >= TURN_NS;
        if is_over {
            self.turn_ns = self.look.now_ns;
            self.queues.end_turn();
        }
        is_over
    }

    #[inline]
    fn due(&self) -> Option<Instant> {
        self.due
    }
}
