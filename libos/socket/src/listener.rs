//! Listeners: TCP ports with the connections that wait to be accepted.

use crate::error::Error;
use crate::sockets::{Kind, SocketId, Sockets};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;
use nom_net::{Family, Observed};

/// A port on which connections are accepted.
#[derive(Debug)]
pub(crate) struct Listener {
    port: u16,
    families: Vec<Family>,
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
        self.listen_for(&[Family::V4, Family::V6], port, pending_max)
    }

    /// The same from peers of these families alone: others may have a listener of their own.
    ///
    /// # Errors
    /// [`Error::InUse`] if one of them has a listener at that port.
    pub fn listen_for(
        &mut self,
        families: &[Family],
        port: u16,
        pending_max: usize,
    ) -> Result<SocketId, Error> {
        if families.iter().any(|family| self.table.listeners.contains_key(&(port, *family))) {
            return Err(Error::InUse);
        }
        let (families, pending_max) = (families.to_vec(), pending_max.max(1));
        let listener = Listener {
            port,
            families: families.clone(),
            pending: VecDeque::new(),
            pending_max,
            is_counted: true,
        };
        let id = self.table.insert(Kind::Listener(listener));
        self.table.listeners.extend(families.into_iter().map(|family| ((port, family), id)));
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

    pub(crate) fn close_listener(&mut self, listener: Listener) {
        for family in listener.families {
            self.table.listeners.remove(&(listener.port, family));
        }
        if !self.table.listeners.keys().any(|(port, _)| *port == listener.port) {
            self.stack.unlisten(listener.port);
        }
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
