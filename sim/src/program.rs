//! What runs on the host of a client: a program over its stack.

use crate::memory::{Bytes, Memory};
use crate::nic::Device;
use nom_net::{Application, Chain, Closed, Config, FlowId, Instant, Stack};
use nom_port::nic::{Nic as _, gather};
use nom_rt::poller::{Poller, Progress};
use std::net::SocketAddr;

/// A stack over a simulated device.
pub type HostStack = Stack<Device>;

/// What runs on a host, over its stack.
pub trait Program {
    /// Does what is to be done at `now_ns` of the host's clock.
    fn at(&mut self, stack: &mut HostStack, now_ns: u64);
    /// When it wants to be called if nothing happens before.
    fn due_ns(&self) -> Option<u64>;
    /// A flow is open.
    fn connected(&mut self, stack: &mut HostStack, flow: FlowId);
    /// Bytes came.
    fn received(&mut self, stack: &mut HostStack, flow: FlowId, bytes: Bytes);
    /// A flow can take more.
    fn sendable(&mut self, stack: &mut HostStack, flow: FlowId);
    /// The peer will send no more.
    fn finished(&mut self, stack: &mut HostStack, flow: FlowId);
    /// A flow is over.
    fn closed(&mut self, stack: &mut HostStack, flow: FlowId, why: Closed);
    /// A datagram came.
    fn datagram(&mut self, stack: &mut HostStack, to: SocketAddr, from: SocketAddr, bytes: Bytes) {
        let _ = (stack, to, from, bytes);
    }
    /// Whether it has nothing left to do.
    fn is_over(&self) -> bool;
    /// Things achieved, such as answers that were right.
    fn achieved(&self) -> u64;
}

/// A program, as the stack wants it.
struct Calls<P>(P);

impl<P: Program> Application<Device> for Calls<P> {
    fn connected(&mut self, stack: &mut HostStack, flow: FlowId) {
        self.0.connected(stack, flow);
    }

    fn received(&mut self, stack: &mut HostStack, flow: FlowId, bytes: Bytes) {
        self.0.received(stack, flow, bytes);
    }

    fn sendable(&mut self, stack: &mut HostStack, flow: FlowId) {
        self.0.sendable(stack, flow);
    }

    fn finished(&mut self, stack: &mut HostStack, flow: FlowId) {
        self.0.finished(stack, flow);
    }

    fn closed(&mut self, stack: &mut HostStack, flow: FlowId, why: Closed) {
        self.0.closed(stack, flow, why);
    }

    fn datagram(&mut self, stack: &mut HostStack, to: SocketAddr, from: SocketAddr, bytes: Chain<Memory>) {
        if let Some(bytes) = stack.buffer(&gather(&bytes)) {
            self.0.datagram(stack, to, from, bytes);
        }
    }
}

/// Stack and program, as the loop polls them.
pub struct Node<P> {
    /// The stack.
    pub stack: HostStack,
    program: Calls<P>,
    frames: u64,
}

impl<P: Program> Node<P> {
    /// `program` over a stack of its own, on which it binds `udp` ports.
    pub fn new(device: Device, config: Config, udp: &[u16], program: P) -> Node<P> {
        let mut stack = Stack::new(device, config);
        udp.iter().for_each(|port| stack.bind(*port));
        Node { stack, program: Calls(program), frames: 0 }
    }

    /// The program.
    pub fn program(&self) -> &P {
        &self.program.0
    }
}

impl<P: Program> Poller for Node<P> {
    fn poll(&mut self, now_ns: u64) -> Progress {
        let Node { stack, program, frames } = self;
        program.0.at(stack, now_ns);
        let stack_ns = stack.poll(Instant::from_nanos(now_ns), program).map(Instant::nanos);
        let program_ns = program.0.due_ns();
        let received = stack.counters().frames_received;
        let worked = received.wrapping_sub(std::mem::replace(frames, received)) as u32;
        Progress { worked, deadline_ns: stack_ns.into_iter().chain(program_ns).min() }
    }

    fn arm(&mut self) -> bool {
        self.stack.nic().arm()
    }

    fn disarm(&mut self) {
        self.stack.nic().disarm();
    }
}
