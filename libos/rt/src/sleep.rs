//! Futures that wait for the clock.

use crate::event_loop::Timer;
use crate::handle::Handle;
use crate::wheel::TimerId;
use core::fmt;
use core::future::poll_fn;
use core::pin::{Pin, pin};
use core::task::{Context, Poll};

/// Ready at a deadline, and not before.
#[derive(Debug)]
pub struct Sleep {
    handle: Handle,
    deadline_ns: u64,
    timer: Option<TimerId>,
}

impl Sleep {
    pub(crate) fn new(handle: Handle, deadline_ns: u64) -> Self {
        Self { handle, deadline_ns, timer: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.handle.now_ns() >= self.deadline_ns {
            return Poll::Ready(());
        }
        let waker = context.waker();
        let mut wheel = self.handle.shared().wheel.borrow_mut();
        match self.timer.and_then(|timer| wheel.get_mut(timer)) {
            Some(Timer::Wake(old)) => old.clone_from(waker),
            _ => {
                drop(wheel);
                let timer = Timer::Wake(waker.clone());
                self.timer = Some(self.handle.shared().start_timer(self.deadline_ns, timer));
            }
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            self.handle.cancel(timer);
        }
    }
}

/// The deadline came first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the deadline came first")
    }
}

impl core::error::Error for Elapsed {}

/// What `future` yields, unless `sleep` is over first; if both are ready, the future wins.
pub(crate) async fn timeout<F: Future>(sleep: Sleep, future: F) -> Result<F::Output, Elapsed> {
    let (mut sleep, mut future) = (pin!(sleep), pin!(future));
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(Ok(value)),
        Poll::Pending => sleep.as_mut().poll(context).map(|()| Err(Elapsed)),
    })
    .await
}

/// Lets other events go first, once.
pub(crate) fn yield_now() -> impl Future<Output = ()> {
    let mut has_yielded = false;
    poll_fn(move |context| {
        if has_yielded {
            return Poll::Ready(());
        }
        has_yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
}
