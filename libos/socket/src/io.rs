//! Streams as libraries without a standard library know them: the traits of [`embedded_io_async`].

use crate::error::Error;
use crate::network::TcpStream;
use embedded_io_async::{ErrorKind, ErrorType, Read, Write};
use nom_net::Observed;

impl embedded_io_async::Error for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            // Nobody who waits is told so.
            Error::WouldBlock | Error::BadSocket | Error::Full => ErrorKind::Other,
            Error::NotSupported => ErrorKind::Unsupported,
            Error::InUse => ErrorKind::AddrInUse,
            Error::NotConnected | Error::Unreachable => ErrorKind::NotConnected,
            Error::BrokenPipe => ErrorKind::BrokenPipe,
            Error::Reset => ErrorKind::ConnectionReset,
            Error::Refused => ErrorKind::ConnectionRefused,
            Error::TimedOut => ErrorKind::TimedOut,
            Error::TooLong => ErrorKind::InvalidInput,
            Error::NoMemory => ErrorKind::OutOfMemory,
        }
    }
}

impl<N: Observed> ErrorType for TcpStream<N> {
    type Error = Error;
}

impl<N: Observed> ErrorType for &TcpStream<N> {
    type Error = Error;
}

impl<N: Observed> Read for &TcpStream<N> {
    async fn read(&mut self, target: &mut [u8]) -> Result<usize, Error> {
        if target.is_empty() { Ok(0) } else { self.receive(target).await }
    }
}

impl<N: Observed> Write for &TcpStream<N> {
    async fn write(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        if bytes.is_empty() { Ok(0) } else { self.send(bytes).await }
    }

    /// What is written is on its way: nothing is held back but by the batching delay.
    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

impl<N: Observed> Read for TcpStream<N> {
    async fn read(&mut self, target: &mut [u8]) -> Result<usize, Error> {
        Read::read(&mut &*self, target).await
    }
}

impl<N: Observed> Write for TcpStream<N> {
    async fn write(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        Write::write(&mut &*self, bytes).await
    }

    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }
}
