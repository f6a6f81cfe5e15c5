//! Listeners: TCP ports with the connections that wait to be accepted.

use crate::error::Error;
use crate::sockets::{Kind, Socket, SocketId, Sockets};
use alloc::collections::VecDeque;
use core::net::{IpAddr, SocketAddr};
use nom_net::{Family, Observed};

/// Which connections to a port a listener gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ListenAddress {
    /// Those to one of our addresses.
    One(IpAddr),
    /// Those of a family that no listener of one address gets.
    Any(Family),
}

/// Whether others may have a listener at the same place (`SO_REUSEPORT` in socket(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortSharing {
    /// Nobody may.
    Alone,
    /// Whoever says the same: connections are spread over them.
    Shared,
}

/// A port on which connections are accepted.
#[derive(Debug)]
pub(crate) struct Listener {
    port: u16,
    sharing: PortSharing,
    /// Streams that nobody has accepted.
    pub pending: VecDeque<SocketId>,
    /// How many may wait; who comes then hears nothing, and asks again.
    pub pending_max: usize,
    /// Whether what is asked and answered there counts ([`crate::exchange`]).
    pub is_counted: bool,
}

impl<N: Observed> Sockets<N> {
    /// Accepts connections to a TCP port, of which `pending_max` (at least one) may wait for
    /// [`Sockets::accept`]. Who comes while so many do is left without an answer, and asks again after a
    /// second or so.
    ///
    /// # Errors
    /// [`Error::InUse`].
    pub fn listen(&mut self, port: u16, pending_max: usize) -> Result<SocketId, Error> {
        let all = [Family::V4, Family::V6].map(ListenAddress::Any);
        self.listen_at(&all, port, pending_max, PortSharing::Alone)
    }

    /// The same, but for connections to these addresses alone: others may have a listener of their own.
    ///
    /// # Errors
    /// [`Error::InUse`] if one of them has a listener at that port, unless both share it.
    pub fn listen_at(
        &mut self,
        addresses: &[ListenAddress],
        port: u16,
        pending_max: usize,
        sharing: PortSharing,
    ) -> Result<SocketId, Error> {
        let shares = |id: SocketId| match self.table.sockets.get(id).map(|socket| &socket.kind) {
            Some(Kind::Listener(other)) => [sharing, other.sharing] == [PortSharing::Shared; 2],
            _ => true,
        };
        if addresses.iter().any(|address| !self.table.heard_at(port, *address).all(shares)) {
            return Err(Error::InUse);
        }
        let listener = Listener {
            port,
            sharing,
            pending: VecDeque::new(),
            pending_max: pending_max.max(1),
            is_counted: true,
        };
        let id = self.table.insert(Kind::Listener(listener));
        self.table.listeners.extend(addresses.iter().map(|address| (port, *address, id)));
        self.stack.listen(port);
        Ok(id)
    }

    /// From now on `pending_max` may wait (at least one); who does already goes on waiting.
    ///
    /// # Errors
    /// [`Error::NotSupported`] where nobody listens.
    pub fn set_pending_max(&mut self, id: SocketId, pending_max: usize) -> Result<(), Error> {
        let Kind::Listener(listener) = &mut self.table.socket(id)?.kind else {
            return Err(Error::NotSupported);
        };
        listener.pending_max = pending_max.max(1);
        Ok(())
    }

    /// Who connects here from now on is no user: what he asks is no request, and nobody pays for the answer.
    ///
    /// # Errors
    /// [`Error::NotSupported`] where nobody listens.
    pub fn leave_uncounted(&mut self, id: SocketId) -> Result<(), Error> {
        let Kind::Listener(listener) = &mut self.table.socket(id)?.kind else {
            return Err(Error::NotSupported);
        };
        listener.is_counted = false;
        Ok(())
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

    pub(crate) fn close_listener(&mut self, own: SocketId, listener: Listener) {
        self.table.listeners.retain(|(_, _, id)| *id != own);
        if !self.table.listeners.iter().any(|(port, ..)| *port == listener.port) {
            self.stack.unlisten(listener.port);
        }
        for id in listener.pending {
            let Some(Socket { kind: Kind::Stream(mut stream), .. }) = self.table.sockets.remove(id) else {
                continue;
            };
            self.stack.abort(stream.flow);
            self.table.forget_flow(stream.flow);
            self.table.leave(&mut stream);
        }
    }
}
