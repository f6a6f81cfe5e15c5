//! TLS 1.3 (RFC 8446) for servers, in tasks or on sockets: rustls's protocol, with RustCrypto's cryptography,
//! neither of which needs an operating system.
//!
//! - [`Identity`]: who the server says that it is.
//! - [`Session`]: one connection's protocol, without a network: bytes in, bytes out.
//! - [`TlsStream`]: both on a [`Carrier`]: a task's [`ByteStream`](nom_async::ByteStream), or sockets'
//!   [`TcpStream`](nom_socket::TcpStream).
//!
//! Clients have no certificates, sessions are not resumed, and there is no early data. Versions before 1.3
//! are refused.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod carrier;
mod error;
mod identity;
mod session;
mod stream;

pub use carrier::Carrier;
pub use error::Error;
pub use identity::{BadIdentity, Identity};
pub use session::Session;
pub use stream::TlsStream;
