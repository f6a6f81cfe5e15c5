//! A stream, as a task has it.

use crate::channel::{Channel, Hub, SharedChannel};
use crate::chunk::Chunk;
use crate::error::StreamError;
use alloc::rc::Rc;
use core::cell::RefMut;
use core::fmt;
use core::future::poll_fn;
use core::net::SocketAddr;
use core::task::{Context, Poll};
use nom_port::buffer::Buffer;
use nom_service::{Course, StreamEnd};

/// A connection: a client's, or one that was asked for ([`AsyncCore::connect`](crate::AsyncCore::connect)).
/// One future may receive while another one sends. When it is dropped, it is closed behind what was sent; by
/// a reset, if something came that nobody took (RFC 2525 section 2.17).
pub struct ByteStream<B: Buffer> {
    hub: Rc<Hub<B>>,
    channel: SharedChannel<B>,
}

impl<B: Buffer> fmt::Debug for ByteStream<B> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ByteStream({})", self.peer())
    }
}

impl<B: Buffer> ByteStream<B> {
    pub(crate) fn new(hub: Rc<Hub<B>>, channel: SharedChannel<B>) -> ByteStream<B> {
        ByteStream { hub, channel }
    }

    /// The other end.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.channel.borrow().peer
    }

    /// Waits until something came, and takes it where it lies; nothing if the peer has said that this was
    /// all.
    ///
    /// # Errors
    /// How the connection ended, after all that came before.
    pub fn receive(&self) -> impl Future<Output = Result<Option<Chunk<B>>, StreamError>> {
        // Not an `async fn`, like those below: its future would have every argument twice.
        poll_fn(|context| self.poll_receive(context))
    }

    pub(crate) fn poll_receive(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Chunk<B>>, StreamError>> {
        let mut channel = self.channel.borrow_mut();
        if let Some((arrived_ns, chunk)) = self.hub.take_unread(&mut channel) {
            channel.asked_ns.get_or_insert(arrived_ns);
            self.hub.is_due(&mut channel);
            return Poll::Ready(Ok(Some(chunk)));
        }
        if channel.is_finished || channel.end == Some(StreamEnd::Finished) {
            return Poll::Ready(Ok(None));
        }
        if let Some(end) = channel.end {
            return Poll::Ready(Err(StreamError::Ended(end)));
        }
        channel.await_input(&self.hub.handle, context.waker());
        Poll::Pending
    }

    /// Waits until something came, and moves as much into `target` as it has room for; says how much, 0 at
    /// the end.
    ///
    /// # Errors
    /// As [`ByteStream::receive`].
    pub fn receive_into(&self, target: &mut [u8]) -> impl Future<Output = Result<usize, StreamError>> {
        poll_fn(|context| self.poll_receive_into(context, target))
    }

    pub(crate) fn poll_receive_into(
        &self,
        context: &mut Context<'_>,
        target: &mut [u8],
    ) -> Poll<Result<usize, StreamError>> {
        if target.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let Poll::Ready(received) = self.poll_receive(context) else { return Poll::Pending };
        let Some(mut chunk) = received? else { return Poll::Ready(Ok(0)) };
        let count = chunk.len().min(target.len());
        target[..count].copy_from_slice(&chunk[..count]);
        if count < chunk.len() {
            chunk.advance(count);
            let mut channel = self.channel.borrow_mut();
            let at_ns = channel.asked_ns.unwrap_or_default();
            self.hub.put_back(&mut channel, at_ns, chunk);
        }
        Poll::Ready(Ok(count))
    }

    /// Waits for room, and sends as much of a copy as fits into it; says how much.
    ///
    /// # Errors
    /// How the connection ended, or that there is no memory for the copy.
    pub fn send(&self, bytes: &[u8]) -> impl Future<Output = Result<usize, StreamError>> {
        poll_fn(|context| self.poll_send(context, bytes))
    }

    pub(crate) fn poll_send(
        &self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, StreamError>> {
        let Poll::Ready(channel) = self.poll_room(context) else { return Poll::Pending };
        let mut channel = channel?;
        self.hub.lend(&mut channel);
        let written = channel.write(bytes);
        self.hub.is_due(&mut channel);
        Poll::Ready(written)
    }

    /// The connection, once there is room.
    fn poll_room(&self, context: &mut Context<'_>) -> Poll<Result<RefMut<'_, Channel<B>>, StreamError>> {
        let mut channel = self.channel.borrow_mut();
        match channel.has_room() {
            Ok(true) => Poll::Ready(Ok(channel)),
            Ok(false) => {
                channel.await_room(context.waker());
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Sends a copy of all of it, waiting for room as often as need be.
    ///
    /// # Errors
    /// As [`ByteStream::send`]; a part may have been sent.
    pub fn send_all(&self, mut bytes: &[u8]) -> impl Future<Output = Result<(), StreamError>> {
        poll_fn(move |context| {
            while !bytes.is_empty() {
                let Poll::Ready(sent) = self.poll_send(context, bytes) else { return Poll::Pending };
                bytes = &bytes[sent?..];
            }
            Poll::Ready(Ok(()))
        })
    }

    /// Waits for room, and sends a piece of the device's memory where it lies.
    ///
    /// # Errors
    /// As [`ByteStream::send`]: nothing of it is sent.
    pub fn share(&self, bytes: impl Into<Chunk<B>>) -> impl Future<Output = Result<(), StreamError>> {
        let mut chunk = Some(bytes.into());
        poll_fn(move |context| {
            let Poll::Ready(channel) = self.poll_room(context) else { return Poll::Pending };
            let mut channel = channel?;
            self.hub.lend(&mut channel);
            let shared = chunk.take().map_or(Ok(()), |chunk| channel.share(chunk));
            self.hub.is_due(&mut channel);
            Poll::Ready(shared)
        })
    }

    /// Says that what is sent next answers so many requests more. Of a task that never says so, all that it
    /// took until it sends something counts as one.
    pub fn count(&self, requests: u32) {
        self.channel.borrow_mut().count(requests);
    }

    /// Says that nothing more will be sent. What comes is still wanted.
    pub fn finish(&self) {
        self.end_by(Course::Finish);
    }

    /// Ends the connection at once, by a reset.
    pub fn reset(&self) {
        self.end_by(Course::Reset);
    }

    fn end_by(&self, course: Course) {
        let mut channel = self.channel.borrow_mut();
        if !matches!(channel.course, Course::Close | Course::Reset) {
            channel.course = course;
        }
        self.hub.is_due(&mut channel);
    }

    /// Waits until it is open.
    pub(crate) async fn opened(&self) -> Result<(), StreamError> {
        poll_fn(|context| {
            let mut channel = self.channel.borrow_mut();
            match channel.end {
                Some(end) => Poll::Ready(Err(StreamError::Ended(end))),
                None if channel.is_settled() => Poll::Ready(Ok(())),
                None => {
                    channel.await_room(context.waker());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

impl<B: Buffer> Drop for ByteStream<B> {
    fn drop(&mut self) {
        let was_unread = self.channel.borrow_mut().forget_unread();
        self.end_by(if was_unread { Course::Reset } else { Course::Close });
    }
}
