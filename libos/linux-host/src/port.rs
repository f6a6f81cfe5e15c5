//! Clock, sleep, doorbell and chance of one core, which is a thread of the process.

use nom_port::world::{self, Wakeup};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, read, retry_on_intr, write};
use rustix::rand::{GetRandomFlags, getrandom};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

/// The monotonic clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock;

impl world::Clock for Clock {
    #[inline]
    fn now_ns(&self) -> u64 {
        crate::time::now_ns()
    }
}

/// The kernel's random numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Entropy;

impl Entropy {
    /// A source that no other one repeats.
    pub fn new() -> Entropy {
        Entropy
    }
}

impl world::Entropy for Entropy {
    fn fill(&mut self, bytes: &mut [u8]) {
        let mut filled = 0;
        while filled < bytes.len() {
            let got = retry_on_intr(|| getrandom(&mut bytes[filled..], GetRandomFlags::empty()));
            filled += got.expect("every Linux that this program starts on has getrandom(2)");
        }
    }
}

/// Why a process has no doorbells: what Linux said.
pub use rustix::io::Errno as DoorbellError;

/// The doorbells of a process: an eventfd for each core.
#[derive(Debug)]
pub struct Doorbells(Vec<OwnedFd>);

impl Doorbells {
    /// Doorbells of `cores` cores.
    ///
    /// # Errors
    /// If the process may open no more files.
    pub fn new(cores: usize) -> Result<Doorbells, DoorbellError> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        let bells = (0..cores).map(|_| eventfd(0, flags)).collect::<Result<_, Errno>>()?;
        Ok(Doorbells(bells))
    }
}

impl world::Doorbell for Doorbells {
    fn ring(&self, core: usize) {
        if let Some(bell) = self.0.get(core) {
            // It only fails on a count of 2^64 - 1, and such a bell rings already.
            let _ = write(bell, &1u64.to_ne_bytes());
        }
    }
}

/// Sleep of one core until its interface has a frame or its doorbell rings.
#[derive(Debug)]
pub struct Idle {
    core: usize,
    doorbells: Arc<Doorbells>,
    /// What ends a sleep when it can be read, as interrupt bit 0.
    interface: Option<Rc<OwnedFd>>,
}

/// The bit of [`Wakeup::interrupts`] that stands for the interface.
const INTERFACE_BIT: u64 = 1;

impl Idle {
    /// The sleep of core number `core`, which has a doorbell in `doorbells` and perhaps an interface.
    ///
    /// # Panics
    /// If there is no such doorbell.
    pub fn new(core: usize, doorbells: Arc<Doorbells>, interface: Option<Rc<OwnedFd>>) -> Idle {
        assert!(core < doorbells.0.len(), "core {core} has no doorbell");
        Idle { core, doorbells, interface }
    }

    /// Silences the doorbell; returns whether it had rung.
    fn answer(&self) -> bool {
        let mut count = [0; 8];
        read(&self.doorbells.0[self.core], &mut count).is_ok()
    }
}

impl world::Idle for Idle {
    fn sleep(&mut self, deadline_ns: Option<u64>) -> Wakeup {
        let bell = &self.doorbells.0[self.core];
        let interface = self.interface.as_deref().unwrap_or(bell);
        let mut files = [bell, interface].map(|file| PollFd::from_borrowed_fd(file.as_fd(), PollFlags::IN));
        let timeout = deadline_ns.map(|deadline_ns| span(deadline_ns.saturating_sub(crate::time::now_ns())));
        if !matches!(poll(&mut files, timeout.as_ref()), Ok(1..)) {
            // The deadline, or a signal, which is as good a reason as any to look around.
            return Wakeup::default();
        }
        let has_frames = self.interface.is_some() && !files[1].revents().is_empty();
        Wakeup { interrupts: if has_frames { INTERFACE_BIT } else { 0 }, messages: self.answer() }
    }
}

fn span(nanoseconds: u64) -> Timespec {
    Timespec { tv_sec: (nanoseconds / 1_000_000_000) as i64, tv_nsec: (nanoseconds % 1_000_000_000) as i64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nom_port::world::{Clock as _, Doorbell as _, Entropy as _, Idle as _};
    use std::os::unix::net::UnixDatagram;

    fn idle() -> (Arc<Doorbells>, Idle) {
        let doorbells = Arc::new(Doorbells::new(2).expect("two eventfds"));
        (doorbells.clone(), Idle::new(1, doorbells, None))
    }

    #[test]
    fn a_sleep_lasts_until_its_deadline() {
        let (_, mut idle) = idle();
        let deadline_ns = Clock.now_ns() + 2_000_000;
        assert_eq!(idle.sleep(Some(deadline_ns)), Wakeup::default());
        assert!(Clock.now_ns() >= deadline_ns);
        assert_eq!(idle.sleep(Some(0)), Wakeup::default(), "a deadline in the past is no sleep");
    }

    #[test]
    fn only_the_own_doorbell_ends_a_sleep_and_only_once() {
        let (doorbells, mut idle) = idle();
        doorbells.ring(0);
        doorbells.ring(7);
        assert_eq!(idle.sleep(Some(0)), Wakeup::default());
        doorbells.ring(1);
        doorbells.ring(1);
        assert_eq!(idle.sleep(None), Wakeup { interrupts: 0, messages: true });
        assert_eq!(idle.sleep(Some(0)), Wakeup::default());
    }

    #[test]
    fn another_thread_ends_a_sleep() {
        let (doorbells, mut idle) = idle();
        let ringer = std::thread::spawn(move || doorbells.ring(1));
        assert!(idle.sleep(None).messages);
        ringer.join().expect("no panic");
    }

    #[test]
    fn a_frame_ends_a_sleep_as_an_interrupt() {
        let (near, far) = UnixDatagram::pair().expect("a pair of sockets");
        let doorbells = Arc::new(Doorbells::new(1).expect("an eventfd"));
        let mut idle = Idle::new(0, doorbells, Some(Rc::new(near.into())));
        assert_eq!(idle.sleep(Some(0)), Wakeup::default());
        far.send(b"frame").expect("sent");
        assert_eq!(idle.sleep(None), Wakeup { interrupts: 1, messages: false });
    }

    #[test]
    fn chance_fills_everything_and_does_not_repeat() {
        let mut draws = [[0u8; 600]; 2];
        draws.iter_mut().for_each(|bytes| Entropy::new().fill(bytes));
        assert_ne!(draws[0], draws[1]);
        assert!(draws[0][560..].iter().any(|byte| *byte != 0));
    }
}

/// Panics of what the running thread does, kept within it: they unwind that far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwinding;

impl world::Containment for Unwinding {
    fn contained(&self, work: &mut dyn FnMut(), escape: &dyn Fn()) {
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err();
        if panicked {
            escape();
        }
    }
}
