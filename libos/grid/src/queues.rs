//! The request queues before one resource, on one core.

use crate::record::ResourceRecord;
use crate::scheduler::{
    Availability, BadClient, CLIENTS_MAX, ClientIndex, ClientParameters, ClientStatistics, QueueHead,
    ResourceScheduler,
};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::num::NonZeroU32;

/// How much may wait in the queue of one client. Who has more to say is refused; nobody else notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Messages.
    pub messages: usize,
    /// Bytes that they hold, all together.
    pub bytes: usize,
}

/// A message that a queue did not take.
#[derive(Debug, PartialEq, Eq)]
pub enum QueueRefusal<T> {
    /// The client has as much waiting as it may.
    Full(T),
    /// The client is gone, or about to be.
    Gone(T),
}

/// What is served next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next<T> {
    /// A message of a client.
    Serve(ClientIndex, T),
    /// Nothing for so many nanoseconds, though something waits.
    After(u64),
    /// Nothing waits that may be served.
    Nothing,
}

#[derive(Debug)]
struct Waiting<T> {
    message: T,
    bytes: usize,
    arrived_ns: u64,
}

/// A request queue.
#[derive(Debug)]
struct RequestQueue<T> {
    waiting: VecDeque<Waiting<T>>,
    bytes: usize,
    limits: QueueLimits,
    /// The resource had no room for what is next.
    is_suspended: bool,
    /// To be forgotten when it is empty.
    is_leaving: bool,
    refused: u64,
    /// How long messages waited, all together.
    queued_ns: u64,
    consumed: ResourceRecord,
}

/// The request queues before a resource, and its scheduler.
#[derive(Debug)]
pub struct RequestQueues<T> {
    scheduler: Box<dyn ResourceScheduler>,
    may_be_bypassed: bool,
    /// By client.
    queues: Vec<Option<RequestQueue<T>>>,
    /// Messages in all of them, and in how many of them there are any.
    waiting: usize,
    occupied: usize,
    /// Messages that one decision is for.
    batching: NonZeroU32,
    /// Whom the last decision was for, and how many messages it still covers.
    chosen: Option<(ClientIndex, u32)>,
    /// What those consumed who are gone.
    consumed_by_gone: ResourceRecord,
}

impl<T> RequestQueues<T> {
    /// With no clients yet. A decision of `scheduler` is for `batching` messages.
    #[must_use]
    pub fn new(scheduler: Box<dyn ResourceScheduler>, batching: NonZeroU32) -> Self {
        let may_be_bypassed = scheduler.may_be_bypassed();
        RequestQueues {
            scheduler,
            may_be_bypassed,
            queues: Vec::new(),
            waiting: 0,
            occupied: 0,
            batching,
            chosen: None,
            consumed_by_gone: ResourceRecord::default(),
        }
    }

    /// Adds a client, of a number that none has.
    ///
    /// # Errors
    /// [`BadClient`], if the scheduler cannot serve it so.
    pub fn add(
        &mut self,
        client: ClientIndex,
        parameters: &ClientParameters,
        limits: QueueLimits,
    ) -> Result<(), BadClient> {
        if client >= CLIENTS_MAX {
            return Err(BadClient::Number(client));
        }
        self.scheduler.add_client(client, parameters)?;
        if self.queues.len() <= client {
            self.queues.resize_with(client + 1, || None);
        }
        self.queues[client] = Some(RequestQueue {
            waiting: VecDeque::new(),
            bytes: 0,
            limits,
            is_suspended: false,
            is_leaving: false,
            refused: 0,
            queued_ns: 0,
            consumed: ResourceRecord::default(),
        });
        Ok(())
    }

    /// Treats a client otherwise from now on.
    ///
    /// # Errors
    /// [`BadClient`]; it is treated as before.
    pub fn update(
        &mut self,
        client: ClientIndex,
        parameters: &ClientParameters,
        now_ns: u64,
    ) -> Result<(), BadClient> {
        self.scheduler.update_client(client, parameters, now_ns)
    }

    /// Has another scheduler choose from now on. What waits, waits on.
    ///
    /// # Errors
    /// [`BadClient`], if it cannot serve a client as `parameters` say; the old one chooses on.
    pub fn replace_scheduler(
        &mut self,
        mut scheduler: Box<dyn ResourceScheduler>,
        parameters: impl Fn(ClientIndex) -> ClientParameters,
        now_ns: u64,
    ) -> Result<(), BadClient> {
        for (client, queue) in self.queues.iter().enumerate() {
            let Some(queue) = queue else { continue };
            scheduler.add_client(client, &parameters(client))?;
            if let Some(head) = queue.head() {
                scheduler.client_ready(client, head, now_ns);
            }
        }
        self.may_be_bypassed = scheduler.may_be_bypassed();
        self.scheduler = scheduler;
        if let Some((client, _)) = self.chosen.take() {
            self.forget_if_empty(client);
        }
        Ok(())
    }

    /// Takes no more from a client. What it has waiting is still served; then it is forgotten.
    pub fn remove(&mut self, client: ClientIndex) {
        if let Some(Some(queue)) = self.queues.get_mut(client) {
            queue.is_leaving = true;
            self.forget_if_empty(client);
        }
    }

    /// Messages that wait.
    #[inline]
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Whether messages of one client at most wait: nobody's turn is delayed by who is served.
    #[inline]
    #[must_use]
    pub fn is_uncontended(&self) -> bool {
        self.occupied < 2
    }

    /// Whether the resource may be called at once for whoever comes first: nobody waits, and the scheduler
    /// would only say yes.
    #[inline]
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.waiting == 0 && self.may_be_bypassed
    }

    /// Puts a message, which holds so many bytes, behind those of its client.
    ///
    /// # Errors
    /// [`QueueRefusal`], with the message.
    pub fn push(
        &mut self,
        client: ClientIndex,
        message: T,
        bytes: usize,
        now_ns: u64,
    ) -> Result<(), QueueRefusal<T>> {
        let Some(Some(queue)) = self.queues.get_mut(client) else { return Err(QueueRefusal::Gone(message)) };
        if queue.is_leaving {
            return Err(QueueRefusal::Gone(message));
        }
        let is_full = queue.waiting.len() >= queue.limits.messages
            || queue.bytes.saturating_add(bytes) > queue.limits.bytes;
        if is_full {
            queue.refused += 1;
            return Err(QueueRefusal::Full(message));
        }
        let was_empty = queue.waiting.is_empty();
        queue.waiting.push_back(Waiting { message, bytes, arrived_ns: now_ns });
        queue.bytes += bytes;
        self.waiting += 1;
        if was_empty {
            self.occupy(client, now_ns);
        }
        Ok(())
    }

    /// A queue that was empty is so no more.
    fn occupy(&mut self, client: ClientIndex, arrived_ns: u64) {
        self.occupied += 1;
        let is_chosen = self.chosen.is_some_and(|(chosen, _)| chosen == client);
        let is_suspended = self.queue(client).is_some_and(|queue| queue.is_suspended);
        if !is_suspended && !is_chosen {
            self.scheduler.client_ready(client, QueueHead { arrived_ns }, arrived_ns);
        }
    }

    /// What is served next. Whoever serves it says with [`RequestQueues::served`] what that consumed, before
    /// the next question; or gives it back ([`RequestQueues::reject`]).
    pub fn next(&mut self, now_ns: u64) -> Next<T> {
        loop {
            if self.chosen.is_some_and(|(_, left)| left > 0)
                && let Some((client, message)) = self.take_chosen(now_ns)
            {
                return Next::Serve(client, message);
            }
            self.end_decision(now_ns);
            let Some(client) = self.scheduler.schedule(now_ns) else { break };
            self.chosen = Some((client, self.batching.get()));
        }
        if self.waiting == 0 {
            return Next::Nothing;
        }
        match self.scheduler.poll_ready(now_ns) {
            Availability::After(ns) => Next::After(ns.get()),
            // All that waits is suspended.
            Availability::Now | Availability::Never => Next::Nothing,
        }
    }

    /// The next message that the last decision is for, if there is one: nobody need be asked, and the time
    /// need not be exact. While nobody else waits it is for all of its client's, if the scheduler would only
    /// say so: whoever serves for long asks with [`RequestQueues::next`] now and then, so that who comes has
    /// no claim from before.
    #[inline]
    pub fn go_on(&mut self, now_ns: u64) -> Option<(ClientIndex, T)> {
        let is_alone = self.may_be_bypassed && self.is_uncontended();
        self.chosen.filter(|(_, left)| *left > 0 || is_alone)?;
        self.take_chosen(now_ns)
    }

    #[inline]
    fn take_chosen(&mut self, now_ns: u64) -> Option<(ClientIndex, T)> {
        let (client, left) = self.chosen?;
        let message = self.take(client, now_ns)?;
        self.chosen = Some((client, left.saturating_sub(1)));
        Some((client, message))
    }

    /// Of the message that was taken last, which holds so many bytes, only a part was served: it is the next
    /// of its client again. Said before anything else is asked.
    pub fn put_back(&mut self, client: ClientIndex, message: T, bytes: usize, now_ns: u64) {
        let Some(Some(queue)) = self.queues.get_mut(client) else { return };
        let was_empty = queue.waiting.is_empty();
        queue.waiting.push_front(Waiting { message, bytes, arrived_ns: now_ns });
        queue.bytes += bytes;
        self.waiting += 1;
        if was_empty {
            self.occupy(client, now_ns);
        }
    }

    /// Ends a turn before so many messages were served as a decision is for: they took long.
    pub fn end_turn(&mut self) {
        self.chosen = self.chosen.map(|(client, _)| (client, 0));
    }

    #[inline]
    fn take(&mut self, client: ClientIndex, now_ns: u64) -> Option<T> {
        let queue = self.queues.get_mut(client)?.as_mut().filter(|queue| !queue.is_suspended)?;
        let Waiting { message, bytes, arrived_ns } = queue.waiting.pop_front()?;
        queue.bytes -= bytes;
        queue.queued_ns += now_ns.saturating_sub(arrived_ns);
        self.waiting -= 1;
        self.occupied -= usize::from(queue.waiting.is_empty());
        Some(message)
    }

    /// The last decision covers no more: its client is ready again if it has more.
    fn end_decision(&mut self, now_ns: u64) {
        let Some((client, _)) = self.chosen.take() else { return };
        let Some(Some(queue)) = self.queues.get(client) else { return };
        let is_leaving = queue.is_leaving;
        if let Some(head) = queue.head() {
            self.scheduler.client_ready(client, head, now_ns);
        }
        if is_leaving {
            self.forget_if_empty(client);
        }
    }

    #[cold]
    #[inline(never)]
    fn forget_if_empty(&mut self, client: ClientIndex) {
        let is_chosen = self.chosen.is_some_and(|(chosen, _)| chosen == client);
        if let Some(Some(queue)) = self.queues.get(client)
            && queue.is_leaving
            && queue.waiting.is_empty()
            && !is_chosen
        {
            self.scheduler.remove_client(client);
            self.consumed_by_gone += queue.consumed;
            self.queues[client] = None;
        }
    }

    /// What serving a client consumed.
    #[inline]
    pub fn served(&mut self, client: ClientIndex, record: &ResourceRecord, now_ns: u64) {
        match self.queues.get_mut(client) {
            Some(Some(queue)) => queue.consumed += *record,
            _ => self.consumed_by_gone += *record,
        }
        self.scheduler.resource_record(client, record, now_ns);
    }

    /// What serving a client consumed so far, whatever scheduler chose it.
    #[must_use]
    pub fn consumed(&self, client: ClientIndex) -> ResourceRecord {
        self.queue(client).map_or_else(ResourceRecord::default, |queue| queue.consumed)
    }

    /// The same for all that are gone.
    #[must_use]
    pub fn consumed_by_gone(&self) -> ResourceRecord {
        self.consumed_by_gone
    }

    /// The resource has no room for the message that was taken last, of so many bytes, which came at
    /// `arrived_ns`: it is next again, and its queue is suspended until [`RequestQueues::resume`].
    pub fn reject(&mut self, client: ClientIndex, message: T, bytes: usize, arrived_ns: u64) {
        let Some(Some(queue)) = self.queues.get_mut(client) else { return };
        self.occupied += usize::from(queue.waiting.is_empty());
        queue.waiting.push_front(Waiting { message, bytes, arrived_ns });
        queue.bytes += bytes;
        queue.is_suspended = true;
        self.waiting += 1;
        self.scheduler.client_rejected(client);
        self.scheduler.client_suspended(client);
        self.chosen = self.chosen.filter(|(chosen, _)| *chosen != client);
    }

    /// The resource has room again: all that were suspended may be served.
    pub fn resume(&mut self, now_ns: u64) {
        for (client, queue) in self.queues.iter_mut().enumerate() {
            let Some(queue) = queue.as_mut().filter(|queue| queue.is_suspended) else { continue };
            queue.is_suspended = false;
            if let Some(head) = queue.head() {
                self.scheduler.client_ready(client, head, now_ns);
            }
        }
    }

    /// How many messages of a client wait, and how many bytes they hold.
    #[must_use]
    pub fn held(&self, client: ClientIndex) -> (usize, usize) {
        self.queue(client).map_or((0, 0), |queue| (queue.waiting.len(), queue.bytes))
    }

    /// How many messages of a client were refused.
    #[must_use]
    pub fn refused(&self, client: ClientIndex) -> u64 {
        self.queue(client).map_or(0, |queue| queue.refused)
    }

    /// How long messages of a client have waited, all together.
    #[must_use]
    pub fn queued_ns(&self, client: ClientIndex) -> u64 {
        self.queue(client).map_or(0, |queue| queue.queued_ns)
    }

    /// What the scheduler knows of a client.
    #[must_use]
    pub fn statistics(&self, client: ClientIndex) -> ClientStatistics {
        self.scheduler.client_statistics(client)
    }

    fn queue(&self, client: ClientIndex) -> Option<&RequestQueue<T>> {
        self.queues.get(client)?.as_ref()
    }
}

impl<T> RequestQueue<T> {
    /// What may be served next.
    fn head(&self) -> Option<QueueHead> {
        let first = self.waiting.front().filter(|_| !self.is_suspended)?;
        Some(QueueHead { arrived_ns: first.arrived_ns })
    }
}
