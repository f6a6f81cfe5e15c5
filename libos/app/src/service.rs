//! What a service is made of, in every world: for the library part of an application, which its tests and the
//! simulator run, too. [`crate::serve`] runs one on the program's own network interface.

pub use nom_async::{AsyncCore, AsyncService, Beside, ByteStream, Chunk, NoSuchCore, StreamError};
pub use nom_port::buffer::{Buffer, Buffers, Sink, Slice};
pub use nom_port::nic::Nic;
pub use nom_rt::Handle;
pub use nom_serve::Budget;
pub use nom_service::{Metrics, Reply, Service, Stream, StreamEnd};
