//! What carries records.

use crate::error::Error;
use core::fmt;
use core::ops::Deref;
use nom_async::{ByteStream, Chunk};
use nom_net::Observed;
use nom_port::buffer::{Buffer, Slice};
use nom_socket::{Shutdown, TcpStream};

/// A connection: one future may receive while another one sends.
pub trait Carrier: fmt::Debug {
    /// Bytes that came, as they lie.
    type Bytes: Deref<Target = [u8]>;

    /// Waits until something came, and takes it; nothing at the end of the stream.
    ///
    /// # Errors
    /// Why the connection failed.
    fn receive(&self) -> impl Future<Output = Result<Option<Self::Bytes>, Error>>;

    /// Sends all of it, waiting for room as often as need be.
    ///
    /// # Errors
    /// Why the connection failed; a part may have been sent.
    fn send_all(&self, bytes: &[u8]) -> impl Future<Output = Result<(), Error>>;

    /// Closes the side that sends.
    ///
    /// # Errors
    /// If the connection is over.
    fn finish(&self) -> Result<(), Error>;
}

impl<B: Buffer> Carrier for ByteStream<B> {
    type Bytes = Chunk<B>;

    async fn receive(&self) -> Result<Option<Chunk<B>>, Error> {
        Ok(ByteStream::receive(self).await?)
    }

    async fn send_all(&self, bytes: &[u8]) -> Result<(), Error> {
        Ok(ByteStream::send_all(self, bytes).await?)
    }

    fn finish(&self) -> Result<(), Error> {
        ByteStream::finish(self);
        Ok(())
    }
}

impl<N: Observed> Carrier for TcpStream<N> {
    type Bytes = Slice<N::Buffer>;

    async fn receive(&self) -> Result<Option<Slice<N::Buffer>>, Error> {
        Ok(self.receive_bytes().await?)
    }

    async fn send_all(&self, bytes: &[u8]) -> Result<(), Error> {
        Ok(TcpStream::send_all(self, bytes).await?)
    }

    fn finish(&self) -> Result<(), Error> {
        Ok(self.shutdown(Shutdown::Send)?)
    }
}
