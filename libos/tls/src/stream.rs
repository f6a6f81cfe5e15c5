//! A session on a connection.

use crate::carrier::Carrier;
use crate::error::Error;
use crate::identity::Identity;
use crate::session::Session;
use core::cell::{Cell, RefCell};
use core::fmt;
use nom_rt::WaitQueue;

/// Bytes that are encrypted at a time: a record.
const PIECE: usize = 16 << 10;

/// A client's connection, encrypted. One future may receive and another one send at the same time.
pub struct TlsStream<S> {
    stream: S,
    session: RefCell<Session>,
    /// Somebody hands records to the connection: all others wait, so that records stay whole.
    is_sending: Cell<bool>,
    senders: WaitQueue,
}

impl<S: fmt::Debug> fmt::Debug for TlsStream<S> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "TlsStream({:?})", self.stream)
    }
}

impl<S: Carrier> TlsStream<S> {
    /// Shakes hands with the client of `stream`. Who does not want to wait for ever sets a time limit
    /// ([`Handle::timeout`](nom_rt::Handle::timeout)).
    ///
    /// # Errors
    /// Why there is no connection; the client was told, if it still listens.
    pub async fn accept(identity: &Identity, stream: S) -> Result<TlsStream<S>, Error> {
        let session = RefCell::new(Session::new(identity)?);
        let tls = TlsStream { stream, session, is_sending: Cell::new(false), senders: WaitQueue::new() };
        while !tls.session.borrow().is_established() {
            tls.take_more().await?;
        }
        Ok(tls)
    }

    /// Waits until something came, and moves it into `target`; 0 when the peer has said that this was all.
    ///
    /// # Errors
    /// Why the connection failed, after all that came before; [`Error::Truncated`] if it was cut off.
    pub async fn receive(&self, target: &mut [u8]) -> Result<usize, Error> {
        loop {
            let (len, is_finished) = {
                let mut session = self.session.borrow_mut();
                (session.read(target), session.is_finished())
            };
            if len > 0 || is_finished || target.is_empty() {
                return Ok(len);
            }
            self.take_more().await?;
        }
    }

    /// Waits for the peer, and sends what the protocol answers.
    async fn take_more(&self) -> Result<(), Error> {
        self.session.borrow().failed()?;
        let bytes = self.stream.receive().await?.ok_or(Error::Truncated)?;
        let taken = self.session.borrow_mut().receive(&bytes);
        drop(bytes);
        let flushed = self.flush().await;
        // What came before an error is read before the error is told.
        if self.session.borrow().has_text() {
            return Ok(());
        }
        // An alert is for a peer who may have gone: what went wrong counts.
        taken.and(flushed)
    }

    /// Sends all of it, waiting for room as often as need be.
    ///
    /// # Errors
    /// Why the connection failed; a part may have been sent.
    pub async fn send_all(&self, bytes: &[u8]) -> Result<(), Error> {
        for piece in bytes.chunks(PIECE) {
            self.session.borrow_mut().write(piece)?;
            self.flush().await?;
        }
        Ok(())
    }

    /// Says that nothing more will be sent, and closes that side.
    ///
    /// # Errors
    /// Why the connection failed.
    pub async fn finish(&self) -> Result<(), Error> {
        self.session.borrow_mut().close()?;
        self.flush().await?;
        self.stream.finish()
    }

    /// The connection below.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// Hands what the session has to say to the connection.
    async fn flush(&self) -> Result<(), Error> {
        while self.session.borrow().has_outgoing() {
            self.senders.until(|| (!self.is_sending.replace(true)).then_some(())).await;
            let mut turn = Turn { tls: self, is_whole: false };
            let records = self.session.borrow_mut().take_outgoing();
            let sent = self.stream.send_all(&records).await;
            turn.is_whole = sent.is_ok();
            sent?;
        }
        Ok(())
    }
}

/// Somebody's turn to send, until it is over, one way or another.
struct Turn<'a, S> {
    tls: &'a TlsStream<S>,
    /// Whether all that was taken was sent.
    is_whole: bool,
}

impl<S> Drop for Turn<'_, S> {
    fn drop(&mut self) {
        if !self.is_whole {
            self.tls.session.borrow_mut().interrupt();
        }
        self.tls.is_sending.set(false);
        self.tls.senders.wake_one();
    }
}

impl<S> embedded_io_async::ErrorType for TlsStream<S> {
    type Error = Error;
}

impl<S: Carrier> embedded_io_async::Read for TlsStream<S> {
    async fn read(&mut self, target: &mut [u8]) -> Result<usize, Error> {
        self.receive(target).await
    }
}

impl<S: Carrier> embedded_io_async::Write for TlsStream<S> {
    async fn write(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        let piece = &bytes[..bytes.len().min(PIECE)];
        self.send_all(piece).await?;
        Ok(piece.len())
    }

    /// What is written is on its way.
    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }
}
