//! A service made of an async function.

use crate::beside::{Beside, NoMore};
use crate::channel::{ConnectionKey, Hub, SharedChannel};
use crate::local::AsyncCore;
use crate::stream::ByteStream;
use alloc::boxed::Box;
use alloc::rc::Rc;
use core::fmt;
use core::net::SocketAddr;
use core::pin::Pin;
use nom_port::buffer::{Buffer, Buffers, Slice};
use nom_rt::{Handle, Remote};
use nom_service::{
    ClientId, Demand, Happening, Metrics, Reaction, Reply, Service, Stream, StreamEnd, Wanted,
};

/// Serves a connection.
type Serve<B> = dyn Fn(SharedChannel<B>) -> Pin<Box<dyn Future<Output = ()>>>;

/// A service whose clients are each served by a task; what is about no client in particular (datagrams,
/// memory, metrics) is the affair of [`Beside`].
pub struct AsyncService<B: Buffer, P = NoMore> {
    core: AsyncCore<B>,
    hub: Rc<Hub<B>>,
    serve: Box<Serve<B>>,
    rest: P,
}

impl<B: Buffer, P> fmt::Debug for AsyncService<B, P> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "AsyncService({:?})", self.core)
    }
}

impl<B: Buffer + 'static> AsyncService<B> {
    /// Has each client served by what `serve` makes of it, on the loop of `handle`, which is the one that
    /// polls the server. What it says went wrong is logged, with the client's address.
    pub fn new<R, E>(handle: &Handle, serve: impl Fn(ByteStream<B>, AsyncCore<B>) -> R + 'static) -> Self
    where
        R: Future<Output = Result<(), E>> + 'static,
        E: fmt::Display + 'static,
    {
        let hub = Rc::new(Hub::new(handle));
        let losing = Rc::downgrade(&hub);
        handle.on_failure(move |task| losing.upgrade().into_iter().for_each(|hub| hub.lose(task)));
        let core = AsyncCore::new(hub.clone());
        let shared = Rc::new((serve, core.clone()));
        let serve = move |channel: SharedChannel<B>| -> Pin<Box<dyn Future<Output = ()>>> {
            let shared = shared.clone();
            // All is made where it is awaited: what is moved there has its place twice.
            Box::pin(async move {
                let (serve, core) = &*shared;
                if let Err(why) = serve(core.stream(&channel), core.clone()).await {
                    log::info!("a client at {}: {why}", channel.borrow().peer);
                }
            })
        };
        AsyncService { core, hub, serve: Box::new(serve), rest: NoMore }
    }
}

impl<B: Buffer, P> AsyncService<B, P> {
    /// The same on one of several cores, which tasks can call by their numbers.
    #[must_use]
    pub fn among(self, cores: &[Remote]) -> Self {
        *self.hub.cores.borrow_mut() = cores.into();
        self
    }

    /// The same, where `rest` does what is about no client in particular.
    pub fn beside<Q>(self, rest: Q) -> AsyncService<B, Q> {
        AsyncService { core: self.core, hub: self.hub, serve: self.serve, rest }
    }

    /// What its tasks may ask of the core.
    pub fn core(&self) -> &AsyncCore<B> {
        &self.core
    }
}

impl<B: Buffer + 'static, P: Beside<B>> Service<B> for AsyncService<B, P> {
    type Connection = ConnectionKey;

    const IS_ACTIVE: bool = true;

    fn connected(&mut self, peer: SocketAddr, _: &mut Reply<B>) -> Option<ConnectionKey> {
        Some(self.hub.add(peer))
    }

    fn refused(&mut self) {
        self.rest.refused();
    }

    /// Never called of an active service.
    fn received(&mut self, _: &mut ConnectionKey, _: Slice<B>, _: &mut Reply<B>) -> Stream {
        Stream::Close
    }

    fn happened(
        &mut self,
        connection: &mut ConnectionKey,
        what: Happening<B>,
        reply: &mut Reply<B>,
    ) -> Reaction {
        let is_new = matches!(what, Happening::Opened(_));
        let said = self.hub.happened(*connection, what, reply);
        if is_new && let Some(channel) = self.hub.unserved(*connection) {
            let task = self.hub.handle.detach((self.serve)(channel));
            self.hub.serve_by(*connection, task);
        }
        said
    }

    fn ended(&mut self, connection: ConnectionKey, end: StreamEnd) {
        self.hub.ended(connection, end);
    }

    #[inline]
    fn has_due(&self) -> bool {
        self.hub.has_due()
    }

    #[inline]
    fn next_due(&mut self) -> Option<ClientId> {
        self.hub.next_due()
    }

    #[inline]
    fn next_wanted(&mut self) -> Option<Wanted<ConnectionKey>> {
        self.hub.next_wanted()
    }

    fn datagram(&mut self, bytes: Slice<B>, reply: &mut Reply<B>) {
        self.rest.datagram(bytes, reply);
    }

    fn demand(&mut self) -> Option<Demand> {
        self.rest.demand()
    }

    fn set_memory(&mut self, bytes: Option<u64>) {
        self.rest.set_memory(bytes);
    }

    fn tend<M: Buffers<Buffer = B>>(&mut self, now_ns: u64, memory: &mut M) -> Option<u64> {
        self.rest.tend(now_ns, memory)
    }

    fn metrics(&self, out: &mut Metrics) {
        self.rest.metrics(out);
    }

    fn at(&mut self, now_ns: u64) {
        self.rest.at(now_ns);
    }
}
