//! Tasks on a stack apart from the loop's, so that one that panics is all that ends.
//!
//! A panic cannot be undone here: nothing unwinds. But a stack can be left for good, as if who runs on it
//! waited for ever: what it holds, and has borrowed, it keeps, and what points to that stays sound.

use crate::task::Body;
use crate::threads::{Coroutine, Stack};
use alloc::boxed::Box;
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use core::task::Context;
use nom_port::world::Containment;

/// Tasks of a core that may panic, each for the price of its stack and all that it holds; one more ends the
/// loop. So who finds a way to have a task panic cannot take all memory by that.
const FAILURES_MAX: u32 = 32;

/// Makes a stack, if there is memory.
type MakeStack = dyn Fn() -> Option<Box<dyn Stack>>;

/// Where the tasks of a core run.
pub(crate) struct Ward {
    world: &'static dyn Containment,
    make_stack: Box<MakeStack>,
    /// The loop, which waits while a task runs.
    home: Rc<Coroutine>,
    /// Who runs tasks, unless there is no memory for a stack: then the loop does.
    worker: RefCell<Option<Rc<Coroutine>>>,
    /// The task that is to run, or has run, and whether it has ended by that.
    job: Cell<Option<Body>>,
    has_ended: Cell<bool>,
    is_occupied: Cell<bool>,
    failures: Cell<u32>,
}

/// How a task was left.
pub(crate) enum Left {
    /// It goes on another time.
    Waiting(Body),
    /// It has ended, and this is to be dropped.
    Over(Body),
    /// It panicked: nothing is left of it that anybody may touch.
    Failed,
}

impl Ward {
    pub fn new(world: &'static dyn Containment, make_stack: Box<MakeStack>) -> Rc<Ward> {
        Rc::new(Ward {
            world,
            make_stack,
            home: Coroutine::here(),
            worker: RefCell::new(None),
            job: Cell::new(None),
            has_ended: Cell::new(false),
            is_occupied: Cell::new(false),
            failures: Cell::new(0),
        })
    }

    /// Lets a task go on, apart from the loop if that can be.
    ///
    /// # Panics
    /// If too many tasks have.
    pub fn run(self: &Rc<Self>, body: Body) -> Left {
        // A task that has another one go on answers for it.
        let worker = if self.is_occupied.get() { None } else { self.worker() };
        let Some(worker) = worker else { return run(body) };
        self.job.set(Some(body));
        self.is_occupied.set(true);
        self.home.switch_to(worker.resumption().expect("it waits for a task"));
        self.is_occupied.set(false);
        match self.job.take() {
            Some(body) if self.has_ended.get() => Left::Over(body),
            Some(body) => Left::Waiting(body),
            None => {
                let failures = self.failures.replace(self.failures.get() + 1);
                assert!(
                    failures < FAILURES_MAX,
                    "{FAILURES_MAX} tasks of this core have panicked, and one more"
                );
                Left::Failed
            }
        }
    }

    fn worker(self: &Rc<Self>) -> Option<Rc<Coroutine>> {
        let mut worker = self.worker.borrow_mut();
        if worker.is_none() {
            let (ward, stack) = (self.clone(), (self.make_stack)()?);
            *worker = Some(Coroutine::new(stack, self.home.clone(), move || ward.work()));
        }
        worker.clone()
    }

    /// On the worker's stack: runs one task after the other.
    fn work(&self) {
        let worker = self.worker.borrow().clone().expect("this is it");
        while let Some(body) = self.job.take() {
            let mut body = Some(body);
            let mut left = None;
            let mut work = || left = body.take().map(run);
            self.world.contained(&mut work, &|| self.escape(&worker));
            let (body, has_ended) = match left {
                Some(Left::Waiting(body)) => (body, false),
                Some(Left::Over(body)) => (body, true),
                _ => return,
            };
            self.job.set(Some(body));
            self.has_ended.set(has_ended);
            self.go_home(&worker);
        }
    }

    /// On top of the stack of a task that panicked: nobody goes on here.
    fn escape(&self, worker: &Rc<Coroutine>) {
        self.worker.take();
        self.go_home(worker);
    }

    fn go_home(&self, worker: &Coroutine) {
        worker.switch_to(self.home.resumption().expect("the loop waits while a task runs"));
    }
}

/// Polls a task where it is.
pub(crate) fn run(mut body: Body) -> Left {
    let is_over = body.0.as_mut().poll(&mut Context::from_waker(&body.1)).is_ready();
    if is_over { Left::Over(body) } else { Left::Waiting(body) }
}
