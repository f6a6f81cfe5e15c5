//! The receiver of NetPIPE's TCP test, as `NPtcp` without `-h`; it serves one transmitter after the other.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::net::SocketAddr;
use nom_app::alloc::boxed::Box;
use nom_app::net::DmaBuffer;
use nom_app::serve::{Bytes, Ports, Reply, Service, Stream, serve};
use nom_app::{args, println};
use nom_netpipe_core::{Options, Session};

nom_app::main!(main);

fn main() -> Result<u8, Box<dyn core::error::Error>> {
    let options = Options::parse(args())?;
    let ports = Ports { tcp: [options.port].into(), udp: Default::default() };
    let session = Session::new(options.clone());
    Ok(serve(&ports, |_| Netpipe { options, session, is_connected: false, now_ns: 0 })?)
}

struct Netpipe {
    options: Options,
    session: Session<DmaBuffer>,
    is_connected: bool,
    now_ns: u64,
}

impl Service<DmaBuffer> for Netpipe {
    type Connection = ();

    fn connected(&mut self, peer: SocketAddr, reply: &mut Reply) -> Option<()> {
        if self.is_connected {
            println!("netpipe: {peer} is turned away: another transmitter is at work");
            return None;
        }
        self.is_connected = true;
        self.session.connected(reply);
        Some(())
    }

    fn received(&mut self, (): &mut (), bytes: Bytes, reply: &mut Reply) -> Stream {
        match self.session.receive(bytes, self.now_ns, reply) {
            Ok(stream) => stream,
            Err(error) => {
                println!("netpipe: {error}");
                self.session = Session::new(self.options.clone());
                Stream::Close
            }
        }
    }

    fn disconnected(&mut self, (): ()) {
        self.is_connected = false;
        if self.session.is_finished() || !self.options.reset {
            self.session = Session::new(self.options.clone());
        }
    }

    fn at(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }
}
