//! The request queues of a core, and the choice between them.

use crate::handle::Handle;
use crate::meter::{Activity, Record};
use crate::scheduler::{Parameters, QueueId, Scheduler};
use crate::task::TaskId;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::mem;
use slotmap::SlotMap;

/// The one unit of work: runs to completion.
pub(crate) struct Event {
    /// Who pays for it.
    pub activity: Activity,
    pub work: Work,
}

pub(crate) enum Work {
    Call(Box<dyn FnOnce(&Handle)>),
    /// Lets a task go on.
    Task(TaskId),
}

struct Queue {
    events: VecDeque<Event>,
    parameters: Parameters,
    /// What was served from it.
    record: Record,
    is_suspended: bool,
    /// It stands in `Queues::fresh`, or the scheduler takes it for ready.
    is_announced: bool,
}

impl Queue {
    fn is_ready(&self) -> bool {
        !self.events.is_empty() && !self.is_suspended
    }
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Serve(QueueId),
    /// There is work, but the scheduler holds it back for so many nanoseconds.
    Wait(u64),
    Nothing,
}

pub(crate) struct Queues {
    queues: SlotMap<QueueId, Queue>,
    scheduler: Box<dyn Scheduler>,
    conserves_work: bool,
    /// How many queues are ready.
    ready: usize,
    /// The queue that became ready last, or was served last: if only one is ready, most likely this one.
    guess: QueueId,
    /// Ready queues of which the scheduler has not heard: it hears of them only if there is a choice.
    fresh: Vec<QueueId>,
    /// Decisions that the scheduler made.
    pub scheduled: u64,
    /// Times when there was no choice.
    pub direct: u64,
}

impl Queues {
    pub fn new(scheduler: Box<dyn Scheduler>) -> Self {
        Self {
            queues: SlotMap::with_key(),
            conserves_work: scheduler.is_work_conserving(),
            scheduler,
            ready: 0,
            guess: QueueId::default(),
            fresh: Vec::new(),
            scheduled: 0,
            direct: 0,
        }
    }

    pub fn add(&mut self, parameters: Parameters) -> QueueId {
        let queue = Queue {
            events: VecDeque::new(),
            parameters,
            record: Record::default(),
            is_suspended: false,
            is_announced: false,
        };
        let id = self.queues.insert(queue);
        self.scheduler.add_client(id, parameters);
        id
    }

    pub fn update(&mut self, id: QueueId, parameters: Parameters) -> Option<()> {
        self.queues.get_mut(id)?.parameters = parameters;
        self.scheduler.update_client(id, parameters);
        Some(())
    }

    /// Removes a queue and returns what waited in it: to be dropped when nothing is borrowed any more.
    pub fn remove(&mut self, id: QueueId) -> Option<VecDeque<Event>> {
        let queue = self.queues.remove(id)?;
        self.ready -= usize::from(queue.is_ready());
        self.scheduler.remove_client(id);
        self.fresh.retain(|other| *other != id);
        Some(queue.events)
    }

    /// All that waits anywhere.
    pub fn take_all(&mut self) -> Vec<Event> {
        self.ready = 0;
        self.queues.values_mut().flat_map(|queue| mem::take(&mut queue.events)).collect()
    }

    pub fn suspend(&mut self, id: QueueId) -> Option<()> {
        let queue = self.queues.get_mut(id)?;
        self.ready -= usize::from(queue.is_ready());
        queue.is_suspended = true;
        if mem::take(&mut queue.is_announced) {
            self.fresh.retain(|other| *other != id);
            self.scheduler.client_suspended(id);
        }
        Some(())
    }

    pub fn resume(&mut self, id: QueueId) -> Option<()> {
        let queue = self.queues.get_mut(id)?;
        if mem::take(&mut queue.is_suspended) && !queue.events.is_empty() {
            self.ready += 1;
            self.announce(id);
        }
        Some(())
    }

    pub fn record(&self, id: QueueId) -> Option<Record> {
        self.queues.get(id).map(|queue| queue.record)
    }

    /// Another policy from now on.
    pub fn set_scheduler(&mut self, scheduler: Box<dyn Scheduler>) {
        self.conserves_work = scheduler.is_work_conserving();
        self.scheduler = scheduler;
        self.fresh.clear();
        for (id, queue) in &mut self.queues {
            self.scheduler.add_client(id, queue.parameters);
            queue.is_announced = queue.is_ready();
            self.fresh.extend(queue.is_announced.then_some(id));
        }
    }

    /// # Errors
    /// Gives the event back if there is no such queue.
    pub fn push(&mut self, id: QueueId, event: Event) -> Result<(), Event> {
        let Some(queue) = self.queues.get_mut(id) else { return Err(event) };
        queue.events.push_back(event);
        if queue.events.len() == 1 && !queue.is_suspended {
            self.ready += 1;
            self.announce(id);
        }
        Ok(())
    }

    pub fn pop(&mut self, id: QueueId) -> Option<Event> {
        let queue = self.queues.get_mut(id).filter(|queue| !queue.is_suspended)?;
        let event = queue.events.pop_front()?;
        self.ready -= usize::from(queue.events.is_empty());
        Some(event)
    }

    /// Whether any queue is to be served.
    #[inline]
    pub fn has_ready(&self) -> bool {
        self.ready > 0
    }

    pub fn choose(&mut self, now_ns: u64) -> Choice {
        if self.ready == 0 {
            return Choice::Nothing;
        }
        if self.ready == 1 && self.conserves_work && self.is_ready(self.guess) {
            self.direct += 1;
            return Choice::Serve(self.guess);
        }
        self.tell(now_ns);
        while let Some(id) = self.scheduler.schedule(now_ns) {
            self.withdraw(id);
            if self.is_ready(id) {
                self.scheduled += 1;
                self.guess = id;
                return Choice::Serve(id);
            }
        }
        Choice::Wait(self.scheduler.poll_ready(now_ns).unwrap_or(0))
    }

    /// A turn of a queue is over.
    pub fn served(&mut self, id: QueueId, record: Record) {
        let Some(queue) = self.queues.get_mut(id) else { return };
        queue.record.events += record.events;
        queue.record.ns += record.ns;
        let has_more = queue.is_ready();
        self.scheduler.resource_record(id, record);
        if has_more {
            self.announce(id);
        }
    }

    fn is_ready(&self, id: QueueId) -> bool {
        self.queues.get(id).is_some_and(Queue::is_ready)
    }

    fn withdraw(&mut self, id: QueueId) {
        if let Some(queue) = self.queues.get_mut(id) {
            queue.is_announced = false;
        }
    }

    fn announce(&mut self, id: QueueId) {
        self.guess = id;
        if !mem::replace(&mut self.queues[id].is_announced, true) {
            self.fresh.push(id);
        }
    }

    fn tell(&mut self, now_ns: u64) {
        for id in self.fresh.drain(..) {
            let queue = &mut self.queues[id];
            queue.is_announced = queue.is_ready();
            if queue.is_announced {
                self.scheduler.client_ready(id, now_ns);
            }
        }
    }
}

#[cfg(test)]
mod tests;
