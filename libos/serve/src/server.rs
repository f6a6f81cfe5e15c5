//! A service on a stack, as the event loop polls it.

use crate::clients::Clients;
use crate::service::Service;
use alloc::vec::Vec;
use nom_net::{Config, Instant, Stack};
use nom_port::nic::Nic;
use nom_rt::poller::{Poller, Progress};

/// Where a service is to be found.
#[derive(Clone, Debug, Default)]
pub struct Ports {
    /// TCP ports.
    pub tcp: Vec<u16>,
    /// UDP ports.
    pub udp: Vec<u16>,
}

/// The stack of one core with the clients on it.
pub struct Server<N: Nic, S: Service<N::Buffer>> {
    stack: Stack<N>,
    clients: Clients<N::Buffer, S>,
    /// Frames received before the last poll.
    frames: u64,
    /// When the clients are looked at next.
    check_ns: u64,
}

impl<N: Nic, S: Service<N::Buffer>> Server<N, S> {
    /// `service` at `ports` of the address that `config` gives.
    pub fn new(nic: N, config: Config, ports: &Ports, service: S) -> Server<N, S> {
        let clients = Clients::new(service, config.tcp.receive_window);
        let mut stack = Stack::new(nic, config);
        ports.tcp.iter().for_each(|port| stack.listen(*port));
        ports.udp.iter().for_each(|port| stack.bind(*port));
        Server { stack, clients, frames: 0, check_ns: 0 }
    }

    /// The stack, to ask it about itself.
    pub fn stack(&self) -> &Stack<N> {
        &self.stack
    }

    /// The stack, to set it up.
    pub fn stack_mut(&mut self) -> &mut Stack<N> {
        &mut self.stack
    }

    /// Ends the service: what it and its clients held is free.
    pub fn into_stack(self) -> Stack<N> {
        self.stack
    }

    /// Looks at the clients if it is time to. Returns when it will be; never, if there are none.
    fn check(&mut self, now_ns: u64) -> Option<u64> {
        let every_ns = S::CHECK_NS.filter(|_| self.stack.flow_count() > 0)?;
        if now_ns >= self.check_ns {
            self.check_ns = now_ns + every_ns;
            self.clients.check(&mut self.stack);
        }
        Some(self.check_ns)
    }
}

impl<N: Nic, S: Service<N::Buffer>> Poller for Server<N, S> {
    fn poll(&mut self, now_ns: u64) -> Progress {
        self.clients.service.at(now_ns);
        let check_ns = self.check(now_ns);
        let deadline = self.stack.poll(Instant::from_nanos(now_ns), &mut self.clients);
        let frames = self.stack.counters().frames_received;
        let worked = frames.wrapping_sub(core::mem::replace(&mut self.frames, frames)) as u32;
        Progress { worked, deadline_ns: deadline.map(Instant::nanos).into_iter().chain(check_ns).min() }
    }

    fn arm(&mut self) -> bool {
        self.stack.nic().arm()
    }

    fn disarm(&mut self) {
        self.stack.nic().disarm();
    }
}
