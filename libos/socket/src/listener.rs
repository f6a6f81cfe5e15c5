//! Listeners: TCP ports with the connections that wait to be accepted.

use crate::error::Error;
use crate::sockets::{Kind, SocketId, Sockets};
use alloc::collections::VecDeque;
use core::net::SocketAddr;
use nom_net::Observed;

/// A port on which connections are accepted.
#[derive(Debug)]
pub(crate) struct Listener {
    port: u16,
    /// Streams that nobody has accepted.
    pub pending: VecDeque<SocketId>,
    /// How many may wait; a further one is reset.
    pub pending_max: usize,
}

impl<N: Observed> Sockets<N> {
    /// Accepts connections to a TCP port, of which `pending_max` may wait for [`Sockets::accept`].
    ///
    /// # Errors
    /// [`Error::InUse`].
    pub fn listen(&mut self, port: u16, pending_max: usize) -> Result<SocketId, Error> {
        if self.table.listeners.contains_key(&port) {
            return Err(Error::InUse);
        }
        let listener = Listener { port, pending: VecDeque::new(), pending_max: pending_max.max(1) };
        let id = self.table.insert(Kind::Listener(listener));
        self.table.listeners.insert(port, id);
        self.stack.listen(port);
        Ok(id)
    }

    /// The connection that has waited longest, with its peer.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if none waits.
    pub fn accept(&mut self, id: SocketId) -> Result<(SocketId, SocketAddr), Error> {
        let Kind::Listener(listener) = &mut self.table.socket(id)?.kind else {
            return Err(Error::NotSupported);
        };
        let stream = listener.pending.pop_front().ok_or(Error::WouldBlock)?;
        Ok((stream, self.table.stream(stream)?.remote))
    }

    pub(crate) fn close_listener(&mut self, listener: Listener) {
        self.table.listeners.remove(&listener.port);
        self.stack.unlisten(listener.port);
        for id in listener.pending {
            if let Ok(stream) = self.table.stream(id) {
                let flow = stream.flow;
                self.stack.abort(flow);
                self.table.forget_flow(flow);
                self.table.sockets.remove(id);
            }
        }
    }
}
