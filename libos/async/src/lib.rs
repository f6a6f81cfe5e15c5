//! Services written as tasks: an `async` function for each client, in place of callbacks.
//!
//! ```
//! use nom_async::{AsyncService, ByteStream, StreamError};
//! use nom_port::buffer::Buffer;
//! use nom_rt::Handle;
//!
//! /// Sends back what a client sends, where it lies, until it has no more to say.
//! async fn echo<B: Buffer>(stream: ByteStream<B>) -> Result<(), StreamError> {
//!     while let Some(bytes) = stream.receive().await? {
//!         stream.share(bytes).await?;
//!     }
//!     Ok(())
//! }
//!
//! fn service<B: Buffer + 'static>(handle: &Handle) -> AsyncService<B> {
//!     AsyncService::new(handle, |stream, _| echo(stream))
//! }
//! ```
//!
//! An [`AsyncService`] is a [`Service`](nom_service::Service) like any other, so whatever serves and measures
//! those does it for these: governor, control port, activities, simulator. What a client sent is there as the
//! memory that the device filled; a task that waits for it goes on in the very event in which it came, and
//! what it answers then leaves with the acknowledgement. What it answers later leaves with the next poll of
//! its core. A request, for the governor, is what was taken until something is sent, or as many as the task
//! [says](ByteStream::count); its time begins when the oldest piece of it arrived.
//!
//! Beside answering, tasks [connect](AsyncCore::connect) to others, wait for time to pass, start other tasks,
//! and have [another core](AsyncCore::call) do something. A stream that is dropped is closed behind what was
//! sent. Connections stay on their core, and so do their tasks.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod beside;
mod channel;
mod chunk;
mod error;
mod io;
mod local;
mod service;
mod stream;

pub use beside::{Beside, NoMore};
pub use chunk::Chunk;
pub use error::StreamError;
pub use local::{AsyncCore, NoSuchCore};
pub use service::AsyncService;
pub use stream::ByteStream;
