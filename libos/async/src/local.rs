//! What a task may ask of the core that it runs on.

use crate::channel::{Hub, SharedChannel};
use crate::error::StreamError;
use crate::stream::ByteStream;
use alloc::rc::Rc;
use core::fmt;
use core::net::SocketAddr;
use futures_channel::oneshot;
use nom_port::buffer::Buffer;
use nom_rt::Handle;
use nom_rt::task::JoinHandle;

/// There is no such core, or its loop has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuchCore(pub usize);

impl fmt::Display for NoSuchCore {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "there is no core number {}, or it has ended", self.0)
    }
}

impl core::error::Error for NoSuchCore {}

/// The core that a task runs on, and the way to the others of its server. Clones are the same core.
pub struct AsyncCore<B> {
    hub: Rc<Hub<B>>,
}

impl<B> Clone for AsyncCore<B> {
    fn clone(&self) -> Self {
        AsyncCore { hub: self.hub.clone() }
    }
}

impl<B> fmt::Debug for AsyncCore<B> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "AsyncCore({:?}, of {})", self.hub.handle, self.hub.cores.borrow().len())
    }
}

impl<B: Buffer> AsyncCore<B> {
    pub(crate) fn new(hub: Rc<Hub<B>>) -> AsyncCore<B> {
        AsyncCore { hub }
    }

    /// The stream of a connection of this core.
    pub(crate) fn stream(&self, channel: &SharedChannel<B>) -> ByteStream<B> {
        ByteStream::new(self.hub.clone(), channel.clone())
    }

    /// The core's event loop: time, timers, tasks, and who pays.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.hub.handle
    }

    /// Starts a task.
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> JoinHandle<T> {
        self.hub.handle.spawn(future)
    }

    /// Waits `ns` nanoseconds.
    pub async fn sleep(&self, ns: u64) {
        self.hub.handle.sleep(ns).await;
    }

    /// Asks `remote` for a connection, and waits until it is open.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn connect(&self, remote: SocketAddr) -> Result<ByteStream<B>, StreamError> {
        let stream = ByteStream::new(self.hub.clone(), self.hub.ask_for(remote));
        stream.opened().await?;
        Ok(stream)
    }

    /// How many cores serve: their numbers are those below it.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.hub.cores.borrow().len()
    }

    /// Has another core do something, as a task there, and waits for what comes of it.
    ///
    /// # Errors
    /// [`NoSuchCore`].
    pub async fn call<T: Send + 'static, R: Future<Output = T> + 'static>(
        &self,
        core: usize,
        work: impl FnOnce(Handle) -> R + Send + 'static,
    ) -> Result<T, NoSuchCore> {
        let remote = self.hub.cores.borrow().get(core).cloned().ok_or(NoSuchCore(core))?;
        let (answer, answered) = oneshot::channel();
        remote.post(self.hub.handle.activity(), move |handle| {
            let work = work(handle.clone());
            // Who asked may have lost interest.
            handle.spawn(async move { _ = answer.send(work.await) });
        });
        answered.await.map_err(|_| NoSuchCore(core))
    }
}
