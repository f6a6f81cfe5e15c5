//! A server that is asked to end: it accepts nobody any more, answers what was asked, and ends when all
//! clients have their answers.

use super::Server;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};
use nom_port::nic::Nic;
use nom_port::world::Clock;
use nom_rt::handle::Handle;
use nom_service::Service;

/// How the cores of a server end together.
#[derive(Debug)]
pub struct Closing {
    is_asked: fn() -> bool,
    /// Clients on each core that are yet to take something.
    left: Box<[AtomicUsize]>,
}

/// Nobody has counted yet.
const UNKNOWN: usize = usize::MAX;

impl Closing {
    /// Of a server on `cores` cores, which is to end once `is_asked` says so.
    pub fn new(cores: usize, is_asked: fn() -> bool) -> Arc<Closing> {
        let left = (0..cores).map(|_| AtomicUsize::new(UNKNOWN)).collect();
        Arc::new(Closing { is_asked, left })
    }
}

/// A core's part in it.
pub(super) struct Part {
    closing: Arc<Closing>,
    index: usize,
    handle: Handle,
    has_begun: bool,
}

impl<N: Nic, C: Clock, S: Service<N::Buffer>> Server<N, C, S> {
    /// Ends the server when `closing` says so. This is core number `index` of its cores; the loop of `handle`
    /// on the first is stopped, with status 0, when no client is left on any.
    pub fn close_with(&mut self, closing: Arc<Closing>, index: usize, handle: &Handle) {
        self.closing = Some(Part { closing, index, handle: handle.clone(), has_begun: false });
    }

    /// Whether the server is ending.
    pub(super) fn is_closing(&self) -> bool {
        self.closing.as_ref().is_some_and(|part| part.has_begun)
    }

    /// Does what is left to do if the server is to end; all that has come by now has been answered.
    #[inline]
    pub(super) fn close(&mut self) {
        if self.is_asked_to_close() {
            self.go_on_closing();
        }
    }

    /// Whether the server is to end, or is about to.
    #[inline]
    pub(super) fn is_asked_to_close(&self) -> bool {
        self.closing.as_ref().is_some_and(|part| (part.closing.is_asked)())
    }

    #[cold]
    fn go_on_closing(&mut self) {
        let Some(part) = &mut self.closing else { return };
        if !core::mem::replace(&mut part.has_begun, true) {
            self.stack.stop_listening();
            self.front.core.iter().for_each(|core| core.ring_present());
        }
        self.front.clients.close_all(&mut self.stack);
        self.front.desk.iter_mut().for_each(|desk| desk.close_all(&mut self.stack));
        let left = self.stack.unfinished();
        let before = part.closing.left[part.index].swap(left, Ordering::AcqRel);
        let core = self.front.core.as_ref();
        if part.index > 0 {
            // The first one waits for it.
            core.filter(|_| left == 0 && before != 0).into_iter().for_each(|core| core.ring_first());
            return;
        }
        let is_over = |(index, left): (usize, &AtomicUsize)| {
            left.load(Ordering::Acquire) == 0 || core.is_some_and(|core| core.is_away(index))
        };
        if part.closing.left.iter().enumerate().all(is_over) {
            part.handle.stop(0);
        }
    }
}
