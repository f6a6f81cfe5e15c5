//! Streams: TCP connections that were accepted or asked for.

use crate::error::{Error, of_end};
use crate::exchange::Exchanges;
use crate::inbox::Inbox;
use crate::readiness::Ready;
use crate::sockets::{Kind, Shutdown, SocketId, Sockets};
use core::net::SocketAddr;
use core::ops::Range;
use nom_net::frame::Marks;
use nom_net::{Closed, FlowId, FlowInformation, Observed, PeerTimeouts, SmallSegments, Stack};
use nom_port::buffer::{Buffer, Slice};

/// Bytes that are put into one buffer of the device.
const CHUNK: usize = 16 << 10;

/// Bytes that may be unread without the stack knowing of it.
const UNTOLD: usize = 256;

/// A TCP connection.
#[derive(Debug)]
pub(crate) struct Stream<B> {
    pub flow: FlowId,
    pub remote: SocketAddr,
    /// Whether it was open: not if it was only asked for.
    pub is_open: bool,
    pub inbox: Inbox<B>,
    /// Bytes of the inbox that the stack knows of.
    held: usize,
    /// Whether the peer will send no more.
    pub is_finished: bool,
    /// How it ended.
    pub end: Option<Closed>,
    /// Whether somebody was told how it ended.
    is_told: bool,
    is_send_shut: bool,
    pub is_receive_shut: bool,
    /// If its peer opened it, and so asks, and that counts.
    exchanges: Option<Exchanges>,
    /// Whether that peer is one of those users that are connected.
    pub is_client: bool,
}

impl<B: Buffer> Stream<B> {
    /// One that was asked for, which opens later.
    pub fn asked_for(flow: FlowId, remote: SocketAddr) -> Stream<B> {
        Stream { is_open: false, ..Stream::accepted(flow, remote, None) }
    }

    /// One that its peer has opened, with what counts his requests, if they count.
    pub fn accepted(flow: FlowId, remote: SocketAddr, exchanges: Option<Exchanges>) -> Stream<B> {
        Stream {
            flow,
            remote,
            is_open: true,
            inbox: Inbox::new(),
            held: 0,
            is_finished: false,
            end: None,
            is_told: false,
            is_send_shut: false,
            is_receive_shut: false,
            is_client: exchanges.is_some(),
            exchanges,
        }
    }

    /// Whether it is a user's who was answered, and has asked nothing since.
    pub fn is_answered(&self) -> bool {
        self.is_client && self.exchanges.as_ref().is_some_and(Exchanges::is_answered)
    }

    /// Something came in a frame that was seen at `at_ns`.
    pub fn push(&mut self, bytes: Slice<B>, at_ns: u64) {
        if let Some(exchanges) = &mut self.exchanges {
            exchanges.arrived(bytes.len(), at_ns);
        }
        self.inbox.push(bytes);
    }

    /// The program has read so many bytes.
    fn note_read(&mut self, bytes: usize) {
        if let Some(exchanges) = &mut self.exchanges {
            exchanges.read(bytes);
        }
    }

    /// What it is ready for; if not for sending, the stack will tell when it is.
    pub fn ready<N: Observed<Buffer = B>>(&self, stack: &mut Stack<N>) -> Ready {
        let is_over = self.end.is_some();
        let is_failed = self.error().is_some();
        let has_room = self.is_open && stack.ask_for_room(self.flow);
        Ready::READABLE.when(!self.inbox.is_empty() || self.is_finished || is_over || self.is_receive_shut)
            | Ready::WRITABLE.when(has_room || is_over || self.is_send_shut)
            | Ready::FINISHED.when(self.is_finished || is_over)
            | Ready::ERROR.when(is_failed)
    }

    /// Why it ended, if that is news.
    fn error(&self) -> Option<Error> {
        self.end.filter(|_| !self.is_told).and_then(of_end)
    }

    /// Its flow, if that takes bytes.
    fn sending_flow(&mut self) -> Result<FlowId, Error> {
        if let Some(error) = self.take_error() {
            return Err(error);
        }
        if self.is_send_shut || self.end.is_some() {
            return Err(Error::BrokenPipe);
        }
        if self.is_open { Ok(self.flow) } else { Err(Error::WouldBlock) }
    }

    /// There is nothing to read: whether that is the end.
    fn nothing_came(&mut self) -> Result<(), Error> {
        if let Some(error) = self.take_error() {
            return Err(error);
        }
        if self.is_finished || self.is_receive_shut || self.end.is_some() {
            return Ok(());
        }
        Err(if self.is_open { Error::WouldBlock } else { Error::NotConnected })
    }

    fn take_error(&mut self) -> Option<Error> {
        let error = self.error();
        self.is_told |= error.is_some();
        error
    }

    /// Tells the stack how much is unread, and so how much the peer may send: but for a small request, which
    /// is read soon, or holds less than the connection itself.
    pub fn advertise<N: Observed<Buffer = B>>(&mut self, stack: &mut Stack<N>) {
        let unread = match self.inbox.len() {
            0..=UNTOLD => 0,
            unread => unread,
        };
        if core::mem::replace(&mut self.held, unread) != unread {
            stack.hold(self.flow, unread.min(u32::MAX as usize) as u32);
        }
    }
}

impl<N: Observed> Sockets<N> {
    /// Asks `remote` for a connection. The stream is writable when it is open, or has failed.
    ///
    /// # Errors
    /// [`Error::Unreachable`] or [`Error::Full`]; later failures are told by what is done with the stream.
    pub fn connect(&mut self, remote: SocketAddr) -> Result<SocketId, Error> {
        let flow = self.stack.connect(remote)?;
        let stream = Stream::asked_for(flow, remote);
        self.stack.window(flow, self.table.stream_max);
        let id = self.table.insert(Kind::Stream(stream));
        self.table.set_flow(flow, id);
        Ok(id)
    }

    /// Whether a stream that was asked for is open.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if that is not known yet; why it failed, if it did.
    pub fn connected(&mut self, id: SocketId) -> Result<(), Error> {
        let stream = self.table.stream(id)?;
        match stream.end {
            Some(_) if !stream.is_open => Err(stream.take_error().unwrap_or(Error::NotConnected)),
            _ if stream.is_open => Ok(()),
            _ => Err(Error::WouldBlock),
        }
    }

    /// Moves received bytes into `target`, and says how many; 0 at the end of the stream, or if `target` has
    /// no room.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if nothing is there; after all that came, why the connection failed, once.
    pub fn receive(&mut self, id: SocketId, target: &mut [u8]) -> Result<usize, Error> {
        let mut filled = 0;
        self.receive_with(id, target.len(), |bytes| {
            target[filled..filled + bytes.len()].copy_from_slice(bytes);
            filled += bytes.len();
        })
    }

    /// As [`Sockets::receive`], at most `most` bytes, which `put` copies from where they lie, piece by piece.
    ///
    /// # Errors
    /// As there.
    pub fn receive_with(
        &mut self,
        id: SocketId,
        most: usize,
        put: impl FnMut(&[u8]),
    ) -> Result<usize, Error> {
        let stream = self.table.stream(id)?;
        if !stream.inbox.is_empty() {
            let count = stream.inbox.read(most, put);
            stream.note_read(count);
            stream.advertise(&mut self.stack);
            return Ok(count);
        }
        stream.nothing_came().map(|()| 0)
    }

    /// Bytes that were received and nobody has read yet (FIONREAD).
    ///
    /// # Errors
    /// [`Error::BadSocket`], [`Error::NotSupported`].
    pub fn unread(&mut self, id: SocketId) -> Result<usize, Error> {
        Ok(self.table.stream(id)?.inbox.len())
    }

    /// Takes what was received as a piece of the memory that the device filled, to be kept or sent again
    /// without a copy; nothing at the end of the stream. Small pieces come together, in one that was copied.
    ///
    /// # Errors
    /// As [`Sockets::receive`]; and [`Error::NoMemory`], by which nothing is lost, if there is no buffer to
    /// put small pieces into.
    pub fn receive_bytes(&mut self, id: SocketId) -> Result<Option<Slice<N::Buffer>>, Error> {
        let stream = self.table.stream(id)?;
        if stream.inbox.is_empty() {
            return stream.nothing_came().map(|()| None);
        }
        let taken = stream.inbox.take(|bytes| self.stack.buffer(bytes));
        stream.note_read(taken.as_ref().map_or(0, Slice::len));
        stream.advertise(&mut self.stack);
        taken.map(Some).ok_or(Error::NoMemory)
    }

    /// Copies bytes to be sent, as many as there is room for, and says how many.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if there is no room; [`Error::BrokenPipe`] if the stream is closed for sending.
    pub fn send(&mut self, id: SocketId, bytes: &[u8]) -> Result<usize, Error> {
        self.send_made(id, bytes.len(), |stack, range| stack.buffer(&bytes[range]))
    }

    /// As [`Sockets::send`], `len` bytes, which `fill` writes to where they are sent from, the next ones each
    /// time. What it has written may yet find no room.
    ///
    /// # Errors
    /// As there.
    pub fn send_with(
        &mut self,
        id: SocketId,
        len: usize,
        mut fill: impl FnMut(&mut [u8]),
    ) -> Result<usize, Error> {
        self.send_made(id, len, |stack, range| stack.filled(range.len(), &mut fill))
    }

    /// Sends `len` bytes in pieces that `make` makes, as many as there is room for.
    fn send_made(
        &mut self,
        id: SocketId,
        len: usize,
        mut make: impl FnMut(&mut Stack<N>, Range<usize>) -> Option<Slice<N::Buffer>>,
    ) -> Result<usize, Error> {
        let flow = self.table.stream(id)?.sending_flow()?;
        let mut sent = 0;
        while sent < len {
            let range = sent..len.min(sent + CHUNK);
            match self.send_chunk(flow, |stack| make(stack, range.clone())) {
                Ok(()) => sent = range.end,
                Err(_) if sent > 0 => break,
                Err(error) => return Err(error),
            }
        }
        self.stack.ask_for_room(flow);
        self.note_sent(id, sent);
        self.stack.let_go();
        Ok(sent)
    }

    /// Sends a piece of the device's memory where it lies, all of it.
    ///
    /// # Errors
    /// As [`Sockets::send`]: nothing of it is sent.
    pub fn send_bytes(&mut self, id: SocketId, bytes: &Slice<N::Buffer>) -> Result<(), Error> {
        let flow = self.table.stream(id)?.sending_flow()?;
        if !self.stack.ask_for_room(flow) {
            return Err(Error::WouldBlock);
        }
        self.stack.send(flow, bytes.clone())?;
        self.stack.ask_for_room(flow);
        self.note_sent(id, bytes.len());
        self.stack.let_go();
        Ok(())
    }

    /// The program has sent so many bytes, which are queued: who measures hears what they answer.
    fn note_sent(&mut self, id: SocketId, bytes: usize) {
        let Ok(stream) = self.table.stream(id) else { return };
        let Some(exchanges) = &mut stream.exchanges else { return };
        let sent = exchanges.sent(bytes);
        self.stack.nic().answered(sent.answered);
        if let Some(asked_ns) = sent.asked_ns {
            self.stack.note_answer(stream.flow, asked_ns, 1, 0);
        }
    }

    fn send_chunk(
        &mut self,
        flow: FlowId,
        make: impl FnOnce(&mut Stack<N>) -> Option<Slice<N::Buffer>>,
    ) -> Result<(), Error> {
        if !self.stack.ask_for_room(flow) {
            return Err(Error::WouldBlock);
        }
        let slice = make(&mut self.stack).ok_or(Error::NoMemory)?;
        Ok(self.stack.send(flow, slice)?)
    }

    /// Shuts one side of a stream, or both.
    ///
    /// # Errors
    /// [`Error::NotConnected`] if it is not open.
    pub fn shutdown(&mut self, id: SocketId, side: Shutdown) -> Result<(), Error> {
        let stream = self.table.stream(id)?;
        if !stream.is_open || stream.end.is_some() {
            return Err(Error::NotConnected);
        }
        if side != Shutdown::Send {
            stream.is_receive_shut = true;
            stream.inbox.clear();
            stream.exchanges.iter_mut().for_each(Exchanges::forget_unread);
            stream.advertise(&mut self.stack);
        }
        if side != Shutdown::Receive {
            stream.is_send_shut = true;
            self.stack.shut_down(stream.flow);
        }
        self.table.rise(id, Ready::READABLE | Ready::WRITABLE);
        Ok(())
    }

    /// Has the stack do something with a stream's flow.
    fn with_flow<T>(
        &mut self,
        id: SocketId,
        act: impl FnOnce(&mut Stack<N>, FlowId) -> T,
    ) -> Result<T, Error> {
        let flow = self.table.stream(id)?.flow;
        Ok(act(&mut self.stack, flow))
    }

    /// When segments of a stream go that are not full, from now on (TCP_NODELAY, TCP_CORK).
    ///
    /// # Errors
    /// [`Error::BadSocket`], [`Error::NotSupported`].
    pub fn set_small_segments(&mut self, id: SocketId, when: SmallSegments) -> Result<(), Error> {
        self.with_flow(id, |stack, flow| stack.set_small_segments(flow, when))
    }

    /// Has no segment of a stream be longer than `most` bytes, options included (TCP_MAXSEG).
    ///
    /// # Errors
    /// [`Error::BadSocket`], [`Error::NotSupported`].
    pub fn limit_segments(&mut self, id: SocketId, most: u32) -> Result<(), Error> {
        self.with_flow(id, |stack, flow| stack.limit_segments(flow, most))
    }

    /// Has what a stream has to send go, though it fills no segment.
    ///
    /// # Errors
    /// [`Error::BadSocket`], [`Error::NotSupported`].
    pub fn push(&mut self, id: SocketId) -> Result<(), Error> {
        self.with_flow(id, Stack::push)
    }

    /// How long a stream waits for a peer that says nothing, from now on.
    ///
    /// # Errors
    /// [`Error::BadSocket`], [`Error::NotSupported`].
    pub fn set_peer_timeouts(&mut self, id: SocketId, timeouts: PeerTimeouts) -> Result<(), Error> {
        self.with_flow(id, |stack, flow| stack.set_peer_timeouts(flow, timeouts))
    }

    /// How packets of a stream are to be treated from now on.
    ///
    /// # Errors
    /// [`Error::BadSocket`], [`Error::NotSupported`].
    pub fn set_marks(&mut self, id: SocketId, marks: Marks) -> Result<(), Error> {
        self.with_flow(id, |stack, flow| stack.set_marks(flow, marks))
    }

    /// The peer of a stream.
    ///
    /// # Errors
    /// [`Error::BadSocket`], [`Error::NotSupported`].
    pub fn peer(&mut self, id: SocketId) -> Result<SocketAddr, Error> {
        Ok(self.table.stream(id)?.remote)
    }

    /// The address and port that a stream has here, while the stack has it.
    ///
    /// # Errors
    /// [`Error::BadSocket`], [`Error::NotSupported`]; [`Error::NotConnected`] once the connection is gone.
    pub fn local(&mut self, id: SocketId) -> Result<SocketAddr, Error> {
        let local = self.with_flow(id, |stack, flow| stack.addresses(flow).map(|addresses| addresses.local));
        local?.ok_or(Error::NotConnected)
    }

    /// What the stack knows of a stream's connection.
    ///
    /// # Errors
    /// [`Error::BadSocket`], [`Error::NotSupported`]; [`Error::NotConnected`] once the connection is gone.
    pub fn information(&mut self, id: SocketId) -> Result<FlowInformation, Error> {
        self.with_flow(id, |stack, flow| stack.information(flow))?.ok_or(Error::NotConnected)
    }

    /// Why a stream failed, if that was not told yet (SO_ERROR).
    ///
    /// # Errors
    /// [`Error::BadSocket`], [`Error::NotSupported`].
    pub fn take_error(&mut self, id: SocketId) -> Result<Option<Error>, Error> {
        Ok(self.table.stream(id)?.take_error())
    }

    pub(crate) fn close_stream(&mut self, stream: &Stream<N::Buffer>) {
        self.table.forget_flow(stream.flow);
        if stream.inbox.is_empty() && stream.is_open {
            self.stack.close(stream.flow);
        } else {
            self.stack.abort(stream.flow);
        }
    }
}
