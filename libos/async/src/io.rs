//! Streams as libraries without a standard library know them: the traits of [`embedded_io_async`].

use crate::error::StreamError;
use crate::stream::ByteStream;
use embedded_io_async::{ErrorKind, ErrorType, Read, Write};
use nom_port::buffer::Buffer;
use nom_service::StreamEnd;

impl embedded_io_async::Error for StreamError {
    fn kind(&self) -> ErrorKind {
        match self {
            StreamError::Ended(StreamEnd::Finished) | StreamError::Finished => ErrorKind::BrokenPipe,
            StreamError::Ended(StreamEnd::Reset) => ErrorKind::ConnectionReset,
            StreamError::Ended(StreamEnd::Refused) => ErrorKind::ConnectionRefused,
            StreamError::Ended(StreamEnd::TimedOut) => ErrorKind::TimedOut,
            StreamError::Ended(StreamEnd::Unreachable) => ErrorKind::NotConnected,
            StreamError::Ended(StreamEnd::NoMemory) | StreamError::NoMemory => ErrorKind::OutOfMemory,
        }
    }
}

impl<B: Buffer> ErrorType for ByteStream<B> {
    type Error = StreamError;
}

impl<B: Buffer> ErrorType for &ByteStream<B> {
    type Error = StreamError;
}

impl<B: Buffer> Read for &ByteStream<B> {
    async fn read(&mut self, target: &mut [u8]) -> Result<usize, StreamError> {
        self.receive_into(target).await
    }
}

impl<B: Buffer> Write for &ByteStream<B> {
    async fn write(&mut self, bytes: &[u8]) -> Result<usize, StreamError> {
        if bytes.is_empty() { Ok(0) } else { self.send(bytes).await }
    }

    /// What is written is on its way: nothing is held back but by the batching delay.
    async fn flush(&mut self) -> Result<(), StreamError> {
        Ok(())
    }
}

impl<B: Buffer> Read for ByteStream<B> {
    async fn read(&mut self, target: &mut [u8]) -> Result<usize, StreamError> {
        Read::read(&mut &*self, target).await
    }
}

impl<B: Buffer> Write for ByteStream<B> {
    async fn write(&mut self, bytes: &[u8]) -> Result<usize, StreamError> {
        Write::write(&mut &*self, bytes).await
    }

    async fn flush(&mut self) -> Result<(), StreamError> {
        Ok(())
    }
}
