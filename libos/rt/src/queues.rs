//! The request queues of a core: clients of its scheduler, each of one activity.

use crate::event_loop::Client;
use crate::handle::Handle;
use crate::meter::{Activity, Record};
use crate::scheduler::{Account, Scheduler, SeatId};
use crate::task::TaskId;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::mem;
use core::num::NonZeroU32;
use nom_service::ByActivity;
use slotmap::SlotMap;

slotmap::new_key_type! {
    /// Names a request queue of one core.
    pub struct QueueId;
}

/// What the scheduler is told about a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Its share of what its activity gets is its weight over those of all of that activity that are ready.
    pub weight: NonZeroU32,
}

impl Default for Parameters {
    fn default() -> Self {
        Self { weight: NonZeroU32::MIN }
    }
}

/// The one unit of work: runs to completion.
pub(crate) enum Work {
    Call(Box<dyn FnOnce(&Handle)>),
    /// Lets a task go on.
    Task(TaskId),
}

struct Queue {
    work: VecDeque<Work>,
    activity: Activity,
    seat: SeatId,
    /// Here while the scheduler does not take it for ready.
    account: Option<Account>,
    /// What was served from it.
    record: Record,
    is_suspended: bool,
    /// Where its activity's work goes that names no queue.
    is_default: bool,
}

impl Queue {
    fn is_ready(&self) -> bool {
        !self.work.is_empty() && !self.is_suspended
    }
}

type Clients = Scheduler<Client>;

#[derive(Default)]
pub(crate) struct Queues {
    queues: SlotMap<QueueId, Queue>,
    defaults: ByActivity<QueueId>,
    /// Whose default queue was asked for last.
    last: Option<(Activity, QueueId)>,
}

impl Queues {
    pub fn add(&mut self, activity: Activity, parameters: Parameters, scheduler: &mut Clients) -> QueueId {
        self.queues.insert(Queue {
            work: VecDeque::new(),
            activity,
            seat: scheduler.seat_of(activity),
            account: Some(Account::new(parameters.weight)),
            record: Record::default(),
            is_suspended: false,
            is_default: false,
        })
    }

    /// The queue of work of an activity that names none; made when it is first asked for, and never removed.
    pub fn default_of(&mut self, activity: Activity, scheduler: &mut Clients) -> QueueId {
        if let Some((last, queue)) = self.last
            && last == activity
        {
            return queue;
        }
        let known = self.defaults.get(activity).copied();
        let queue = known.unwrap_or_else(|| {
            let queue = self.add(activity, Parameters::default(), scheduler);
            self.queues[queue].is_default = true;
            *self.defaults.get_or_insert_with(activity, || queue)
        });
        self.last = Some((activity, queue));
        queue
    }

    pub fn update(
        &mut self,
        id: QueueId,
        parameters: Parameters,
        scheduler: &mut Clients,
        now_ns: u64,
    ) -> Option<()> {
        let queue = self.queues.get_mut(id)?;
        let account = queue.account.take();
        let was_ready = account.is_none();
        let account = account.or_else(|| scheduler.withdraw(queue.seat, Client::Queue(id), now_ns));
        let mut account = account.expect("it is either here or there");
        account.set_weight(parameters.weight);
        queue.account = Some(account);
        if was_ready {
            self.announce(id, scheduler, now_ns);
        }
        Some(())
    }

    /// Removes a queue that is no default queue, and returns what waited in it: to be dropped when nothing is
    /// borrowed any more.
    pub fn remove(&mut self, id: QueueId, scheduler: &mut Clients, now_ns: u64) -> Option<VecDeque<Work>> {
        let queue = self.queues.get(id).filter(|queue| !queue.is_default)?;
        scheduler.withdraw(queue.seat, Client::Queue(id), now_ns);
        self.queues.remove(id).map(|queue| queue.work)
    }

    /// All that waits anywhere.
    pub fn take_all(&mut self) -> Vec<Work> {
        self.queues.values_mut().flat_map(|queue| mem::take(&mut queue.work)).collect()
    }

    pub fn suspend(&mut self, id: QueueId, scheduler: &mut Clients, now_ns: u64) -> Option<()> {
        let queue = self.queues.get_mut(id)?;
        queue.is_suspended = true;
        queue.account = queue.account.or_else(|| scheduler.withdraw(queue.seat, Client::Queue(id), now_ns));
        Some(())
    }

    pub fn resume(&mut self, id: QueueId, scheduler: &mut Clients, now_ns: u64) -> Option<()> {
        self.queues.get_mut(id)?.is_suspended = false;
        self.announce(id, scheduler, now_ns);
        Some(())
    }

    pub fn record(&self, id: QueueId) -> Option<Record> {
        self.queues.get(id).map(|queue| queue.record)
    }

    /// Who pays for what is served from a queue.
    pub fn activity_of(&self, id: QueueId) -> Option<Activity> {
        self.queues.get(id).map(|queue| queue.activity)
    }

    /// # Errors
    /// Gives the work back if there is no such queue.
    pub fn push(
        &mut self,
        id: QueueId,
        work: Work,
        scheduler: &mut Clients,
        now_ns: u64,
    ) -> Result<(), Work> {
        let Some(queue) = self.queues.get_mut(id) else { return Err(work) };
        queue.work.push_back(work);
        self.announce(id, scheduler, now_ns);
        Ok(())
    }

    /// Takes the next piece of work, and says who pays for it.
    pub fn pop(&mut self, id: QueueId) -> Option<(Activity, Work)> {
        let queue = self.queues.get_mut(id).filter(|queue| !queue.is_suspended)?;
        queue.work.pop_front().map(|work| (queue.activity, work))
    }

    /// A turn of a queue is over.
    pub fn served(&mut self, id: QueueId, record: Record, scheduler: &mut Clients, now_ns: u64) {
        let Some(queue) = self.queues.get_mut(id) else { return };
        queue.record.events += record.events;
        queue.record.ns += record.ns;
        if !queue.is_ready() && queue.account.is_none() {
            queue.account = scheduler.withdraw(queue.seat, Client::Queue(id), now_ns);
        }
    }

    /// Tells the scheduler of a queue, if it is ready and the scheduler does not know.
    fn announce(&mut self, id: QueueId, scheduler: &mut Clients, now_ns: u64) {
        let queue = &mut self.queues[id];
        if queue.is_ready()
            && let Some(account) = queue.account.take()
        {
            scheduler.wake(queue.seat, Client::Queue(id), account, now_ns);
        }
    }
}

#[cfg(test)]
mod tests;
