//! The network stack of one core: sans-I/O, no lock, no copy.
//!
//! A [`Stack`] owns one queue pair ([`nom_port::nic::Nic`]) and everything that comes and goes through it. It
//! has no thread, no clock and no socket: the core's loop calls [`Stack::poll`] when a frame has come or the
//! time has come that the last call named, and the stack calls the [`Application`].
//!
//! ```
//! use nom_net::{Application, Cidr, Config, FlowId, Instant, Nic, Slice, Stack};
//!
//! /// Sends back what it gets: the very memory that the device filled.
//! struct Echo;
//!
//! impl<N: Nic> Application<N> for Echo {
//!     fn received(&mut self, stack: &mut Stack<N>, flow: FlowId, bytes: Slice<N::Buffer>) {
//!         // A full queue ends the flow; an echo that waits would keep `bytes` and `stack.window(flow, 0)`.
//!         if stack.send(flow, bytes).is_err() {
//!             stack.abort(flow);
//!         }
//!     }
//! }
//!
//! fn start<N: Nic>(nic: N, secret: [u64; 4]) -> Stack<N> {
//!     let address = Cidr { address: [10, 0, 2, 15].into(), prefix: 24 };
//!     let gateway4 = Some([10, 0, 2, 2].into());
//!     let config = Config { addresses: vec![address], gateway4, ..Config::new(secret) };
//!     let mut stack = Stack::new(nic, config);
//!     stack.listen(7);
//!     stack
//! }
//!
//! /// One turn of the loop: when to come back, unless a frame comes first. `None`: only when one does.
//! fn turn<N: Nic>(stack: &mut Stack<N>, now_ns: u64) -> Option<u64> {
//!     stack.poll(Instant::from_nanos(now_ns), &mut Echo).map(Instant::nanos)
//! }
//! ```
//!
//! - **TCP**: [`Stack::listen`], [`Stack::connect`], [`Stack::send`], [`Stack::close`], [`Stack::abort`],
//!   [`Stack::window`]; [`FlowId::index`] is small and dense, to index what an application keeps about its
//!   flows.
//! - **UDP**: [`Stack::bind`], [`Stack::send_datagram`], [`Application::datagram`].
//! - **Names and addresses**: [`Stack::start_dhcp`], [`Stack::resolve`].
//! - **Packet API**: [`Application::filter`] sees each frame first and may answer with [`Stack::transmit`];
//!   [`Stack::answer_in_place`] and [`packet::Datagram`] help with UDP.
//! - **Several cores**: a stack for each, which know of each other by [`Stack::share`]; [`Stack::detach`] and
//!   [`Stack::adopt`] move a flow.
//! - **Batching delay W**: [`Stack::set_delay`] at any time; [`Stack::tallies`] says what each flush carried
//!   and why.
//! - **What happened**: [`Stack::counters`], by name; every dropped frame raises exactly one.
//!
//! What is sent during a method of [`Application`] goes with the acknowledgement of what was received, in as
//! few packets as there can be; what is sent outside goes at the next [`Stack::poll`]. Nothing is allocated
//! for a packet but the chain that carries it.
//!
//! IP fragments are reassembled ([`fragments`]), and datagrams sent in some that are longer than a packet.
//!
//! Not spoken: urgent data, ECN.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod answer;
pub mod batch;
pub mod chain;
pub mod chance;
pub mod checksum;
pub mod common;
pub mod config;
pub mod counters;
pub mod dhcp;
pub mod dns;
pub mod duplicate;
pub mod extensions;
pub mod fragments;
pub mod frame;
mod identification;
pub mod link;
pub mod multicast;
pub mod neighbour;
pub mod packet;
mod paths;
mod ports;
pub mod presence;
pub mod router;
mod shares;
pub mod stack;
pub mod table;
pub mod tcp;
mod template;
pub mod time;
pub mod timers;

pub use answer::{Answer, Observed};
pub use config::{Cidr, Config};
pub use dns::{Family, ResolveError};
pub use nom_port::buffer;
pub use nom_port::buffer::{Buffer, Chain, Slice};
pub use nom_port::nic::Nic;
pub use presence::Presence;
pub use stack::{
    AdoptError, Application, Arrival, BATCH_MAX, ConnectError, DatagramError, Detached, Direct, Dispute, Ear,
    Finding, FlowInformation, Noted, QueryId, Queues, Setup, Stack,
};
pub use table::{FlowId, FourTuple};
pub use tcp::close::SendError;
pub use tcp::connection::{Closed, KeepAlive, PeerTimeouts, Settings, SmallSegments};
pub use time::Instant;
