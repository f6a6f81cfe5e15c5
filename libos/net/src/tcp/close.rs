//! What the application asks of a connection: send, close, abort, window (RFC 9293 sections 3.10.2 to
//! 3.10.5).

use super::connection::{Connection, Context, Settings, State};
use super::memory::Held;
use super::segment::{Flags, Segment};
use crate::buffer::{Buffer, Slice};
use crate::time::Instant;

/// Why bytes were not taken for sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The queue is full: wait for `sendable`.
    Full,
    /// There is no such flow, or it is closed for sending.
    Closed,
}

impl core::fmt::Display for SendError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str(match self {
            SendError::Full => "the flow's send queue is full",
            SendError::Closed => "the flow is closed for sending",
        })
    }
}

impl core::error::Error for SendError {}

impl<B: Buffer> Connection<B> {
    /// Queues bytes. While there is any room, a slice is taken whole.
    ///
    /// # Errors
    /// [`SendError`]; nothing was queued.
    pub fn push(&mut self, bytes: Slice<B>, settings: &Settings, held: &mut Held) -> Result<(), SendError> {
        self.make_room(settings, held)?;
        self.push_within(bytes, held);
        Ok(())
    }

    /// Whether a slice can be queued; if not, for want of room, it will be said when there is some.
    ///
    /// # Errors
    /// [`SendError`].
    #[inline]
    pub fn make_room(&mut self, settings: &Settings, held: &Held) -> Result<(), SendError> {
        let is_open =
            matches!(self.state, State::SynSent | State::SynReceived | State::Established | State::CloseWait);
        if !is_open || self.send.is_closing {
            return Err(SendError::Closed);
        }
        // An empty queue has room, whatever the limit is.
        if !self.send.queue.is_empty() && self.send.queue.len() >= self.send_limit(settings, held) {
            self.send.is_awaited = true;
            return Err(SendError::Full);
        }
        Ok(())
    }

    /// Queues a slice where there is room.
    #[inline]
    pub fn push_within(&mut self, bytes: Slice<B>, held: &mut Held) {
        held.queued += bytes.len();
        self.send.queue.push(bytes);
    }

    /// Sends FIN after everything queued; the peer may go on as long as it likes. Who says so again says
    /// nothing new: there is one FIN (RFC 9293 section 3.10.4).
    pub fn shut_down(&mut self) {
        self.state = match self.state {
            State::Established => State::FinWait1,
            State::CloseWait => State::LastAck,
            // It follows when the handshake is over.
            opening @ (State::SynSent | State::SynReceived) => opening,
            _ => return,
        };
        self.send.is_closing = true;
    }

    /// The same for an application that wants to hear no more: a peer that does not close is left at
    /// `patience`.
    pub fn close(&mut self, patience: Instant) {
        self.is_orphan = true;
        if self.state == State::FinWait2 {
            self.rare.make().linger.get_or_insert(patience);
        } else {
            self.shut_down();
        }
    }

    /// The segment that ends the connection at once.
    pub fn abort(&mut self) -> Option<Segment> {
        let is_synchronised = self.is_synchronised();
        let was_sent = self.state != State::SynSent;
        self.state = State::Closed;
        let reset = Segment { seq: self.send.max, flags: Flags::RST, ..Segment::default() };
        match (is_synchronised, was_sent) {
            (true, _) => Some(Segment { ack: self.receive.next, flags: Flags::RST | Flags::ACK, ..reset }),
            (false, true) => Some(reset),
            (false, false) => None,
        }
    }

    /// Takes at most `bytes` ahead from now on. What was already promised may still come.
    pub fn set_window(&mut self, bytes: u32, context: &mut Context<'_>) {
        self.receive.tuning.limit = bytes;
        self.refresh_window(context);
        self.tell_window();
    }

    /// The application has `bytes` that it has not yet read.
    pub fn hold(&mut self, bytes: u32, context: &mut Context<'_>) {
        context.held.kept = context.held.kept + bytes as usize - self.receive.tuning.unread as usize;
        self.receive.tuning.unread = bytes;
        self.refresh_window(context);
        self.tell_window();
    }

    /// Says that the window is larger, if it is so by much.
    fn tell_window(&mut self) {
        let wanted = (self.receive.next + self.receive.window).since(self.receive.edge);
        // RFC 9293 section 3.8.6.2.2: a window that opens by crumbs makes small segments.
        if wanted >= self.receive.window.min(2 * self.receive.mss).max(1) {
            self.receive.is_acknowledgement_due = true;
        }
    }
}
