//! The provider, as far as a machine's `priced` knows it: prices as events, and reports that are taken.

use super::market::{Books, Script};
use crate::memory::{Bytes, Memory};
use nom_port::buffer::Sink as _;
use nom_service::{Reply, Service, Stream};
use std::net::SocketAddr;
use std::rc::Rc;

/// Between two comments, which say that it is alive.
const COMMENT_NS: u64 = 1_000_000_000;

pub struct Provider {
    script: Rc<Script>,
    books: Books,
    start_ns: u64,
    now_ns: u64,
}

impl Provider {
    /// A provider whose clock shows `start_ns` when the prices begin.
    pub fn new(script: Rc<Script>, books: Books, start_ns: u64) -> Provider {
        Provider { script, books, start_ns, now_ns: start_ns }
    }

    fn revision(&self) -> u64 {
        self.script.revision(self.now_ns.saturating_sub(self.start_ns))
    }

    fn tell(&self, viewer: &mut Viewer, reply: &mut Reply<Memory>) {
        let revision = self.revision();
        let dollars = self.script.posted(revision);
        (viewer.told, viewer.told_ns) = (revision, self.now_ns);
        let event = format!(
            "event: prices\ndata: {{\"revision\":{revision},\"source\":\"seed\",\"age_seconds\":0.0,\
             \"prices\":[{{\"resource\":\"network_out\",\"dollars\":{dollars:?},\"since_unix_ns\":1}}]}}\n\n"
        );
        reply.copy(event.as_bytes());
    }

    fn answer(&self, viewer: &mut Viewer, head: &str, body: &str, reply: &mut Reply<Memory>) {
        if head.starts_with("GET /v1/prices/events ") {
            viewer.follows = true;
            reply.copy(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n");
            return self.tell(viewer, reply);
        }
        assert!(head.starts_with("POST /v1/status "), "priced asks for `{head}`");
        let number = |name: &str| {
            let (_, rest) = body.split_once(&format!("\"{name}\":")).expect("it is reported");
            rest.split([',', '}']).next().expect("a number").trim()
        };
        let whole = |name| number(name).parse().expect("a whole number");
        let profit = number("profit").parse().expect("a number");
        self.books.take(whole("at_ns"), whole("price_revision"), profit);
        reply.copy(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    }
}

/// Who is connected.
#[derive(Debug, Default)]
pub struct Viewer {
    input: String,
    /// Whether he wants to hear of prices.
    follows: bool,
    /// The revision that he was told, and when he was told anything.
    told: u64,
    told_ns: u64,
}

impl Viewer {
    /// The next request, its head and its body, if it has come whole.
    fn take(&mut self) -> Option<(String, String)> {
        let end = self.input.find("\r\n\r\n")? + 4;
        let length = self.input[..end].split_once("Content-Length: ").map_or(0, |(_, rest)| {
            rest.split("\r\n").next().and_then(|number| number.parse().ok()).expect("a length")
        });
        let whole = self.input.get(..end + length)?.to_owned();
        self.input.drain(..whole.len());
        Some((whole[..end].to_owned(), whole[end..].to_owned()))
    }
}

impl Service<Memory> for Provider {
    type Connection = Viewer;

    fn look_every_ns(&self) -> Option<u64> {
        Some(20_000_000)
    }

    fn connected(&mut self, _: SocketAddr, _: &mut Reply<Memory>) -> Option<Viewer> {
        Some(Viewer::default())
    }

    fn received(&mut self, viewer: &mut Viewer, bytes: Bytes, reply: &mut Reply<Memory>) -> Stream {
        viewer.input.push_str(std::str::from_utf8(&bytes).expect("priced writes ASCII"));
        while let Some((head, body)) = viewer.take() {
            self.answer(viewer, &head, &body, reply);
        }
        Stream::Open
    }

    fn check(&mut self, viewer: &mut Viewer, reply: &mut Reply<Memory>) -> Stream {
        if viewer.follows && self.revision() != viewer.told {
            self.tell(viewer, reply);
        } else if viewer.follows && self.now_ns - viewer.told_ns >= COMMENT_NS {
            viewer.told_ns = self.now_ns;
            reply.copy(b":\n\n");
        }
        Stream::Open
    }

    fn at(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }
}
