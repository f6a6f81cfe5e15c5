//! Tasks: futures that live on one core and go on as events of its loop.

use crate::inbox::{Inbox, Message};
use crate::meter::Activity;
use crate::queues::QueueId;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::task::Wake;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt;
use core::pin::Pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll, Waker};
use slotmap::SlotMap;

slotmap::new_key_type! {
    /// Names a task of one core.
    pub struct TaskId;
}

pub(crate) type LocalFuture = Pin<Box<dyn Future<Output = ()>>>;

/// Wakes a task from anywhere. Until the task goes on, only the first wake-up sends a message.
struct Alarm {
    task: TaskId,
    inbox: Arc<Inbox>,
    is_scheduled: AtomicBool,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_scheduled.swap(true, Ordering::AcqRel) {
            self.inbox.send(Message::Wake(self.task));
        }
    }
}

/// What is taken out of a task while it runs.
pub(crate) type Body = (LocalFuture, Waker);

pub(crate) struct Task {
    body: Option<Body>,
    alarm: Arc<Alarm>,
    activity: Activity,
    queue: QueueId,
    /// Who joins it, if anybody can.
    joiner: Option<Rc<dyn Joined>>,
}

impl Task {
    /// It has ended without a value: tells who joins it.
    pub fn fail(&self) {
        self.joiner.iter().for_each(|joiner| joiner.tell());
    }
}

/// Who joins a task, as far as it has to be told that nothing comes of that.
pub(crate) trait Joined {
    /// The task has ended without a value.
    fn tell(&self);
}

impl<T> Joined for RefCell<Outcome<T>> {
    fn tell(&self) {
        let mut outcome = self.borrow_mut();
        outcome.is_over = true;
        let joiner = outcome.joiner.take();
        drop(outcome);
        joiner.into_iter().for_each(Waker::wake);
    }
}

/// The tasks of a core.
pub(crate) struct Tasks {
    tasks: SlotMap<TaskId, Task>,
    inbox: Arc<Inbox>,
}

impl Tasks {
    pub fn new(inbox: Arc<Inbox>) -> Self {
        Self { tasks: SlotMap::with_key(), inbox }
    }

    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// A task that counts as woken: the caller queues its first event.
    pub fn insert(
        &mut self,
        (activity, queue): (Activity, QueueId),
        future: LocalFuture,
        joiner: Option<Rc<dyn Joined>>,
    ) -> TaskId {
        let inbox = &self.inbox;
        self.tasks.insert_with_key(|task| {
            let alarm = Arc::new(Alarm { task, inbox: inbox.clone(), is_scheduled: AtomicBool::new(true) });
            Task { body: Some((future, alarm.clone().into())), alarm, activity, queue, joiner }
        })
    }

    /// Where and for whom a task goes on.
    pub fn place_of(&self, id: TaskId) -> Option<(QueueId, Activity)> {
        self.tasks.get(id).map(|task| (task.queue, task.activity))
    }

    /// Takes a task's future, to be polled when nothing is borrowed any more.
    pub fn start(&mut self, id: TaskId) -> Option<Body> {
        let task = self.tasks.get_mut(id)?;
        // Down before it is polled, so that what happens from now on wakes it once more.
        task.alarm.is_scheduled.store(false, Ordering::Release);
        task.body.take()
    }

    /// Puts a future back that is not ready; gives it back if the task was aborted meanwhile.
    pub fn suspend(&mut self, id: TaskId, body: Body) -> Option<Body> {
        let Some(task) = self.tasks.get_mut(id) else { return Some(body) };
        task.body = Some(body);
        None
    }

    /// Removes a task; it is to be dropped when nothing is borrowed any more.
    pub fn remove(&mut self, id: TaskId) -> Option<Task> {
        self.tasks.remove(id)
    }

    pub fn take_all(&mut self) -> Vec<Task> {
        self.tasks.drain().map(|(_, task)| task).collect()
    }
}

/// The task was aborted, or panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aborted;

impl fmt::Display for Aborted {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the task was aborted, or panicked")
    }
}

impl core::error::Error for Aborted {}

/// What a task leaves for who joins it.
struct Outcome<T> {
    value: Option<T>,
    /// No more value will come.
    is_over: bool,
    joiner: Option<Waker>,
}

/// The task's end of a [`JoinHandle`]. Dropped without a value, it says that the task was aborted.
pub(crate) struct Promise<T> {
    outcome: Rc<RefCell<Outcome<T>>>,
}

impl<T: 'static> Promise<T> {
    pub fn joiner(&self) -> Rc<dyn Joined> {
        self.outcome.clone()
    }
}

impl<T> Promise<T> {
    pub fn keep(self, value: T) {
        self.outcome.borrow_mut().value = Some(value);
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        self.outcome.tell();
    }
}

/// Awaits a task or, with another kind of name, a thread. Dropping it lets that run on by itself.
pub struct JoinHandle<T, Id = TaskId> {
    id: Id,
    outcome: Rc<RefCell<Outcome<T>>>,
}

impl<T, Id: Copy> JoinHandle<T, Id> {
    /// Its name; [`Handle::abort`](crate::handle::Handle::abort) takes that of a task.
    #[must_use]
    pub fn id(&self) -> Id {
        self.id
    }

    /// Whether it has ended or was aborted.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.outcome.borrow().is_over
    }

    /// Its value, if it has ended and nobody took it.
    #[must_use]
    pub fn take(&self) -> Option<T> {
        self.outcome.borrow_mut().value.take()
    }
}

impl<T, Id> Future for JoinHandle<T, Id> {
    type Output = Result<T, Aborted>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut outcome = self.outcome.borrow_mut();
        if outcome.is_over {
            return Poll::Ready(outcome.value.take().ok_or(Aborted));
        }
        outcome.joiner = Some(context.waker().clone());
        Poll::Pending
    }
}

impl<T, Id: fmt::Debug> fmt::Debug for JoinHandle<T, Id> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("JoinHandle").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Both ends of a value to come; the second wants to know whose it is.
pub(crate) fn promise<T, Id>() -> (Promise<T>, impl FnOnce(Id) -> JoinHandle<T, Id>) {
    let outcome = Rc::new(RefCell::new(Outcome { value: None, is_over: false, joiner: None }));
    (Promise { outcome: outcome.clone() }, move |id| JoinHandle { id, outcome })
}

#[cfg(test)]
mod tests;
