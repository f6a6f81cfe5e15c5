//! Whose frames go on next: the request queues before the stack's input, if the owner has asked for a
//! scheduler there.
//!
//! The stack harvests what the device has, finds out for whom each frame is, and asks here. As long as all
//! frames are for one activity and none wait, each goes on at once. When others come, frames are put into
//! the queues of their activities; all that the device has is taken first, so that nobody's flood fills the
//! ring before the others are seen, and then the scheduler says whose turn it is. A full queue takes no more:
//! that is its activity's loss alone, and TCP's business to repeat.

use crate::payers::{Payers, activity_of};
use alloc::rc::Rc;
use alloc::vec::Vec;
use nom_grid::{
    ClientIndex, GridPlan, GridResource, Next, QueueLimits, RequestQueues, ResourcePlan, ResourceRecord,
};
use nom_net::{Arrival, Instant, Queues};
use nom_port::buffer::Buffer;
use nom_port::nic::Label;
use nom_rt::handle::Handle;
use nom_service::Activity;

/// Most frames that are taken from the device before somebody is served: then its ring, and the buffers in
/// it, are free for what comes.
const HARVEST_MAX: u32 = 128;

/// Most messages that are served in a poll: who is answered may soon have more to ask, and is to be heard
/// before somebody else has his share.
const SERVE_MAX: u32 = 32;

/// How long one is served before others are looked at, if not for fewer messages, and how long answers may
/// stay while others are served. A message is not interrupted.
const TURN_NS: u64 = 200_000;

/// Bytes of frames that may wait for one activity: few enough that all together do not take the driver's
/// buffers away.
const WAITING_BYTES_MAX: usize = 256 << 10;

/// The queue of activities that have none of their own: a scheduler has so many clients at most.
const SHARED: ClientIndex = nom_grid::CLIENTS_MAX - 1;

/// Why every scheduler can serve every activity.
const CHECKED: &str = "a checked plan gives schedulers what they go by";

/// The request queues of one core.
pub(crate) struct Gate<B> {
    queues: RequestQueues<Arrival<B>>,
    payers: Rc<Payers>,
    handle: Handle,
    /// Whose frames go on at once while none wait.
    alone: ClientIndex,
    /// Frames that were taken since somebody was served; how many of them since the last question.
    harvested: u32,
    is_fresh: bool,
    /// Messages that may yet be served in this poll.
    left: u32,
    /// What is being served: bytes of its frame.
    serving: Option<u64>,
    /// What the scheduler was told of each activity's time, in nanoseconds, by their numbers.
    told_of: Vec<u64>,
    /// When the present turn began, and the time if it was read since a message was served.
    turn_ns: u64,
    read_ns: Option<u64>,
    /// Messages of all polls.
    served: u64,
    due: Option<Instant>,
}

/// What stands before input by a plan, if anything does.
fn input(plan: &GridPlan) -> Option<&ResourcePlan> {
    plan.at(GridResource::Input)
}

#[inline]
fn client_of(activity: Activity) -> ClientIndex {
    (activity.0 as usize).min(SHARED)
}

impl<B: Buffer> Gate<B> {
    /// As `plan` says, for the activities that `payers` tell apart; nothing, if it puts nothing before input.
    pub fn new(plan: &GridPlan, payers: Rc<Payers>, handle: Handle) -> Option<Gate<B>> {
        let at_input = input(plan)?;
        let mut queues = RequestQueues::new(at_input.scheduler(), at_input.batching);
        let limits = QueueLimits { messages: at_input.queue.get() as usize, bytes: WAITING_BYTES_MAX };
        for (client, name) in payers.rules().names().enumerate().take(SHARED) {
            queues.add(client, &plan.terms_of(name).parameters(), limits).expect(CHECKED);
        }
        let told_of = payers.rules().names().map(|_| 0).collect();
        queues.add(SHARED, &plan.terms_of("others").parameters(), limits).expect(CHECKED);
        Some(Gate {
            queues,
            payers,
            handle,
            alone: 0,
            harvested: 0,
            is_fresh: false,
            left: SERVE_MAX,
            serving: None,
            turn_ns: 0,
            read_ns: None,
            told_of,
            served: 0,
            due: None,
        })
    }

    /// Serves by another plan from now on, with what waits. Its queues stay as long as they were.
    pub fn follow(&mut self, plan: &GridPlan) {
        let Some(at_input) = input(plan) else { return };
        let rules = self.payers.rules().clone();
        let parameters = |client: ClientIndex| {
            let name = rules.names().nth(client).filter(|_| client < SHARED).unwrap_or("others");
            plan.terms_of(name).parameters()
        };
        let now_ns = self.handle.clock_ns();
        self.queues.replace_scheduler(at_input.scheduler(), parameters, now_ns).expect(CHECKED);
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

    /// What was served last is over: whoever pays for it is charged.
    fn account(&mut self, now_ns: u64) {
        let Some(bytes) = self.serving.take() else { return };
        self.payers.pay();
        // A request may have said that it is for another than its connection was for.
        let activity = self.payers.present();
        let core_ns = self.untold_ns(activity);
        let record = ResourceRecord { messages: 1, core_ns, bytes, ..ResourceRecord::default() };
        self.queues.served(client_of(activity), &record, now_ns);
    }

    /// Tells the scheduler of what activities have taken of the core beside what was served: who sends what
    /// is lost, or is sent a great deal, has had that time.
    fn account_for_rest(&mut self, now_ns: u64) {
        for number in 0..self.told_of.len() {
            let activity = Activity(number as u32);
            let core_ns = self.untold_ns(activity);
            if core_ns > 0 {
                let record = ResourceRecord { core_ns, ..ResourceRecord::default() };
                self.queues.served(client_of(activity), &record, now_ns);
            }
        }
    }

    /// What an activity has been charged of the core's time and the scheduler does not know.
    fn untold_ns(&mut self, activity: Activity) -> u64 {
        let ns = self.handle.record(activity).ns;
        let told = self.told_of.get_mut(activity.0 as usize);
        told.map_or(0, |told| ns.saturating_sub(core::mem::replace(told, ns)))
    }
}

impl<B: Buffer> Queues<B> for Gate<B> {
    #[inline]
    fn goes_on(&mut self, label: Label) -> bool {
        self.harvested += 1;
        self.is_fresh = true;
        self.queues.is_direct() && client_of(activity_of(label)) == self.alone
    }

    fn push(&mut self, arrival: Arrival<B>) {
        let bytes = arrival.bytes();
        self.payers.postpone();
        let client = client_of(activity_of(arrival.label()));
        if let Err(refusal) = self.queues.push(client, arrival, bytes, self.handle.now_ns()) {
            let (nom_grid::QueueRefusal::Full(arrival) | nom_grid::QueueRefusal::Gone(arrival)) = refusal;
            self.payers.frame_lost(arrival.label(), bytes as u64);
        }
    }

    fn next(&mut self) -> Option<Arrival<B>> {
        if self.queues.waiting() == 0 && self.serving.is_none() {
            (self.harvested, self.is_fresh, self.due) = (0, false, None);
            return None;
        }
        let now_ns = self.read_ns.take().unwrap_or_else(|| self.handle.clock_ns());
        self.account(now_ns);
        // The device may have more: who is in there is to be heard first.
        let may_have_more = core::mem::take(&mut self.is_fresh) && self.harvested < HARVEST_MAX;
        if may_have_more || self.left == 0 {
            self.due = (self.queues.waiting() > 0).then(|| Instant::from_nanos(now_ns));
            return None;
        }
        if core::mem::take(&mut self.harvested) > 0 {
            self.account_for_rest(now_ns);
        }
        match self.queues.next(now_ns) {
            Next::Serve(client, arrival) => {
                self.left -= 1;
                self.served += 1;
                self.alone = client;
                let bytes = arrival.bytes() as u64;
                self.payers.resume(arrival.label(), bytes, now_ns.saturating_sub(arrival.at_ns()));
                self.serving = Some(bytes);
                Some(arrival)
            }
            Next::After(ns) => {
                self.due = Some(Instant::from_nanos(now_ns.saturating_add(ns)));
                None
            }
            Next::Nothing => {
                self.due = None;
                None
            }
        }
    }

    fn is_turn_over(&mut self) -> bool {
        let now_ns = self.handle.clock_ns();
        let is_over = now_ns.saturating_sub(self.turn_ns) >= TURN_NS;
        if is_over {
            self.turn_ns = now_ns;
            self.queues.end_turn();
        } else {
            self.read_ns = Some(now_ns);
        }
        is_over
    }

    #[inline]
    fn due(&self) -> Option<Instant> {
        self.due
    }
}
