//! A service that numbers the lines that its clients send, whatever it runs on.
#![no_std]
#![forbid(unsafe_code)]

use core::net::SocketAddr;
use nom_app::alloc::format;
use nom_app::alloc::vec::Vec;
use nom_app::service::{Buffer, Flow, Reply, Service, Sink, Slice};

/// The TCP port.
pub const PORT: u16 = 7007;
/// Most bytes of a line; who sends more is cut off.
const LINE_MAX: usize = 1024;

/// The service of one core.
#[derive(Default)]
pub struct Lines {
    count: u64,
}

/// What is known of a client: what it sent of a line that is not whole.
type Client = Vec<u8>;

impl<B: Buffer> Service<B> for Lines {
    type Connection = Client;

    fn connected(&mut self, _: SocketAddr, _: &mut Reply<B>) -> Option<Client> {
        Some(Vec::new())
    }

    fn received(&mut self, client: &mut Client, bytes: Slice<B>, reply: &mut Reply<B>) -> Flow {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if client.len() + piece.len() > LINE_MAX {
                reply.copy(b"a line is too long\n");
                return Flow::Close;
            }
            client.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                self.count += 1;
                reply.copy(format!("{} ", self.count).as_bytes());
                reply.copy(client);
                reply.count(1);
                client.clear();
            }
        }
        Flow::Open
    }
}
