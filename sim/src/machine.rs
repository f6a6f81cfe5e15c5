//! What runs on a host, as the world sees it: a client's program or a server.

use crate::host::HostClock;
use crate::program::{Node, Program};
use nom_net::batch::Tallies;
use nom_port::nic::Nic;
use nom_rt::poller::{Poller, Progress};
use nom_serve::Server;
use nom_service::Service;
use std::any::Any;
use std::time::Duration;

/// Something over a stack, which the host's loop polls.
pub trait Machine: Poller {
    /// Sets its batching delay.
    fn set_delay(&mut self, delay: Duration);
    /// Flows of its stack.
    fn flow_count(&self) -> usize;
    /// Flushes of what it received, and of what it sent.
    fn tallies(&self) -> (Tallies, Tallies);
    /// Whether it has nothing left to do: always so for a server.
    fn is_over(&self) -> bool;
    /// Whether other cores have done something that it is to act on and has not seen.
    fn is_behind(&self) -> bool {
        false
    }
    /// Whether it is a core that is to leave, and can as soon as the first one tells it to look.
    fn can_leave(&self) -> bool {
        false
    }
    /// Things achieved, such as answers that were right.
    fn achieved(&self) -> u64;
    /// Ends what runs over the stack, and frees what that held. The stack stays, with what it holds.
    fn end(self: Box<Self>) -> Box<dyn Any>;
}

impl<P: Program> Machine for Node<P> {
    fn set_delay(&mut self, delay: Duration) {
        self.stack.set_delay(delay).expect("scenarios set delays that exist");
    }

    fn flow_count(&self) -> usize {
        self.stack.flow_count()
    }

    fn tallies(&self) -> (Tallies, Tallies) {
        self.stack.tallies()
    }

    fn is_over(&self) -> bool {
        self.program().is_over()
    }

    fn achieved(&self) -> u64 {
        self.program().achieved()
    }

    fn end(self: Box<Self>) -> Box<dyn Any> {
        Box::new(self.stack)
    }
}

impl<N: Nic + 'static, S: Service<N::Buffer> + 'static> Machine for Server<N, HostClock, S> {
    fn set_delay(&mut self, delay: Duration) {
        Server::set_delay(self, delay).expect("scenarios set delays that exist");
    }

    fn flow_count(&self) -> usize {
        self.stack().flow_count()
    }

    fn tallies(&self) -> (Tallies, Tallies) {
        self.stack().tallies()
    }

    fn is_over(&self) -> bool {
        true
    }

    fn is_behind(&self) -> bool {
        Server::is_behind(self)
    }

    fn can_leave(&self) -> bool {
        Server::can_leave(self)
    }

    fn achieved(&self) -> u64 {
        0
    }

    fn end(self: Box<Self>) -> Box<dyn Any> {
        Box::new(self.into_stack())
    }
}

/// A machine, or what is left of it, that notes when it wants to be polled next.
pub struct Watched {
    state: State,
    /// When it wants to be polled next.
    pub deadline_ns: Option<u64>,
}

enum State {
    Running(Box<dyn Machine>),
    Ended { tallies: (Tallies, Tallies), _stack: Option<Box<dyn Any>> },
}

impl Watched {
    /// A machine that was not polled yet.
    pub fn new(machine: Box<dyn Machine>) -> Watched {
        Watched { state: State::Running(machine), deadline_ns: None }
    }

    /// The machine, unless it has ended.
    pub fn machine(&mut self) -> Option<&mut (dyn Machine + 'static)> {
        match &mut self.state {
            State::Running(machine) => Some(&mut **machine),
            State::Ended { .. } => None,
        }
    }

    /// As [`Machine::tallies`], also when it has ended.
    pub fn tallies(&self) -> (Tallies, Tallies) {
        match &self.state {
            State::Running(machine) => machine.tallies(),
            State::Ended { tallies, .. } => *tallies,
        }
    }

    /// As [`Machine::end`].
    pub fn end(&mut self) {
        let ended = State::Ended { tallies: self.tallies(), _stack: None };
        if let State::Running(machine) = std::mem::replace(&mut self.state, ended) {
            self.state = State::Ended { tallies: machine.tallies(), _stack: Some(machine.end()) };
        }
    }
}

impl Poller for Watched {
    fn poll(&mut self, now_ns: u64) -> Progress {
        let Some(machine) = self.machine() else { return Progress::default() };
        let progress = machine.poll(now_ns);
        self.deadline_ns = progress.deadline_ns;
        progress
    }

    fn arm(&mut self) -> bool {
        self.machine().is_none_or(|machine| machine.arm())
    }

    fn disarm(&mut self) {
        self.machine().into_iter().for_each(|machine| machine.disarm());
    }
}
