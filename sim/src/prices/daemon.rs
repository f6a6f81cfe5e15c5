//! The machine of `priced`: its connections, the board that it writes, and the channel that reports come by.

use super::market::{Board, Books, Script};
use crate::memory::Bytes;
use crate::program::{HostStack, Program};
use nom_net::{Closed, FlowId};
use nom_priced_core::{Command, Daemon, Happening, Held, Link, Loss, Source, status};
use std::net::SocketAddr;
use std::rc::Rc;
use zerocopy::IntoBytes;

/// It looks at the channel so often.
const LOOK_NS: u64 = 5_000_000;
/// So long after it was named a price is on the board, though frames are lost and the provider breaks down;
/// it is less than the silence after which `priced` asks anew.
const LATEST_NS: u64 = 8_000_000_000;

pub struct Priced {
    daemon: Daemon,
    provider: SocketAddr,
    flows: [Option<FlowId>; Link::ALL.len()],
    board: Board,
    books: Books,
    script: Rc<Script>,
    start_ns: u64,
    next_ns: u64,
    published: u64,
    is_over: bool,
}

impl Priced {
    /// One that asks `provider`, on a clock that shows `start_ns` when the prices begin. Its random numbers
    /// follow from that, too.
    pub fn new(
        provider: SocketAddr,
        start_ns: u64,
        board: Board,
        books: Books,
        script: Rc<Script>,
    ) -> Priced {
        let daemon = Daemon::new(Source::Provider(provider), None, start_ns);
        let (flows, next_ns, published, is_over) = ([None; 2], 0, 0, false);
        Priced { daemon, provider, flows, board, books, script, start_ns, next_ns, published, is_over }
    }

    fn happened(&mut self, stack: &mut HostStack, flow: FlowId, happening: Happening<'_>) {
        let now_ns = stack.now().nanos();
        if let Some(link) = Link::ALL.into_iter().find(|link| self.flows[*link as usize] == Some(flow)) {
            self.daemon.happened(now_ns, link, happening);
            self.go_on(stack, now_ns);
        }
    }

    /// Does what the daemon wants done.
    fn go_on(&mut self, stack: &mut HostStack, now_ns: u64) {
        if let Some(publication) = self.daemon.publication() {
            self.board.post(&self.script, publication.list);
            self.published += 1;
        }
        while self.daemon.line().is_some() {}
        while let Some((link, command)) = self.daemon.command() {
            if let Err(loss) = self.obey(stack, link, &command) {
                self.daemon.happened(now_ns, link, Happening::Closed(loss));
            }
        }
    }

    fn obey(&mut self, stack: &mut HostStack, link: Link, command: &Command) -> Result<(), Loss> {
        let flow = &mut self.flows[link as usize];
        match command {
            Command::Connect => *flow = Some(stack.connect(self.provider).map_err(|_| Loss::Unreachable)?),
            Command::Send(bytes) => {
                let buffer = stack.buffer(bytes).ok_or(Loss::Reset)?;
                let flow = flow.ok_or(Loss::Reset)?;
                stack.send(flow, buffer).map_err(|_| Loss::Reset)?;
            }
            Command::Drop => flow.take().into_iter().for_each(|flow| stack.abort(flow)),
        }
        Ok(())
    }

    /// Once the provider was found, nothing of what it says is late.
    fn check_age(&self, now_ns: u64) {
        let Some(passed_ns) = now_ns.checked_sub(self.start_ns + LATEST_NS) else { return };
        let (due, there) = (self.script.revision(passed_ns), self.board.revision());
        assert!(self.published == 0 || due <= there, "revision {due} is due, and {there} on the board");
    }

    fn hear_reports(&mut self) {
        while let Some((report, solvency)) = self.books.next() {
            let message = [report.as_bytes(), solvency.as_bytes()].concat();
            let held = Held { cores: 1, ..Held::default() };
            self.daemon.report(status(&message, "machine", "memcached", held).expect("it is a report"));
        }
    }
}

impl Program for Priced {
    fn at(&mut self, stack: &mut HostStack, now_ns: u64) {
        if self.is_over {
            return;
        }
        self.next_ns = now_ns + LOOK_NS;
        self.hear_reports();
        self.daemon.tick(now_ns);
        self.go_on(stack, now_ns);
        self.check_age(now_ns);
        let last = self.script.last();
        if self.board.revision() == last && self.books.is_told(last) {
            self.is_over = true;
            self.flows.iter_mut().filter_map(Option::take).for_each(|flow| stack.abort(flow));
        }
    }

    fn due_ns(&self) -> Option<u64> {
        let due_ns = self.daemon.due_ns().map_or(self.next_ns, |due_ns| due_ns.min(self.next_ns));
        (!self.is_over).then_some(due_ns)
    }

    fn connected(&mut self, stack: &mut HostStack, flow: FlowId) {
        self.happened(stack, flow, Happening::Connected);
    }

    fn received(&mut self, stack: &mut HostStack, flow: FlowId, bytes: Bytes) {
        self.happened(stack, flow, Happening::Received(&bytes));
    }

    fn sendable(&mut self, _: &mut HostStack, _: FlowId) {}

    fn finished(&mut self, stack: &mut HostStack, flow: FlowId) {
        stack.close(flow);
    }

    fn closed(&mut self, stack: &mut HostStack, flow: FlowId, why: Closed) {
        let loss = match why {
            Closed::Finished => Loss::Finished,
            Closed::Reset => Loss::Reset,
            Closed::Refused => Loss::Refused,
            Closed::TimedOut => Loss::TimedOut,
            Closed::Unreachable => Loss::Unreachable,
        };
        self.happened(stack, flow, Happening::Closed(loss));
        self.flows.iter_mut().filter(|known| **known == Some(flow)).for_each(|known| *known = None);
    }

    fn is_over(&self) -> bool {
        self.is_over
    }

    fn achieved(&self) -> u64 {
        self.published
    }
}
