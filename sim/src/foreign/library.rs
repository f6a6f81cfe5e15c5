//! smoltcp's TCP, as a foreign end.

use super::scene::Facts;
use super::{Endpoint, State};
use crate::random::Random;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{self, DeviceCapabilities, Medium};
use smoltcp::socket::tcp::{self, Socket, SocketBuffer};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Sockets that listen at a time: one that is taken is replaced when it is looked at.
const LISTENERS: usize = 8;

/// Who says nothing for so long is taken for gone; twelve losses in a row take as long.
const SILENCE: Duration = Duration::from_secs(300);

/// The frames between it and the device.
struct Frames {
    received: VecDeque<Vec<u8>>,
    sent: Vec<Vec<u8>>,
    mtu: usize,
}

/// smoltcp.
pub struct Library {
    interface: Interface,
    sockets: SocketSet<'static>,
    frames: Frames,
    listeners: Vec<SocketHandle>,
    port: u16,
    /// By their numbers; `None` when they are over.
    connections: Vec<Option<SocketHandle>>,
    accepted: VecDeque<usize>,
    random: Random,
    next_port: u16,
}

fn instant(now_ns: u64) -> Instant {
    Instant::from_micros((now_ns / 1000) as i64)
}

impl Library {
    /// A host; how it behaves is drawn from the seed.
    pub fn new(facts: Facts) -> Library {
        let Facts { mac, mtu, addresses, port, now_ns, mut random } = facts;
        let mut frames = Frames { received: VecDeque::new(), sent: Vec::new(), mtu: mtu.into() };
        let mut config = Config::new(EthernetAddress(mac).into());
        config.random_seed = random.word();
        let mut interface = Interface::new(config, &mut frames, instant(now_ns));
        interface.update_ip_addrs(|list| {
            for (address, prefix) in &addresses {
                list.push(IpCidr::new(IpAddress::from(*address), *prefix)).expect("two fit");
            }
        });
        let sockets = SocketSet::new(Vec::new());
        let next_port = 49_152 + random.within(0..10_000) as u16;
        let (listeners, connections, accepted) = (Vec::new(), Vec::new(), VecDeque::new());
        let mut library =
            Library { interface, sockets, frames, listeners, port, connections, accepted, random, next_port };
        library.listen();
        library
    }

    fn socket(&mut self) -> Socket<'static> {
        let random = &mut self.random;
        let mut buffer = || SocketBuffer::new(vec![0; random.choose(&[2_000, 8_000, 65_535, 200_000])]);
        let mut socket = Socket::new(buffer(), buffer());
        let delay = random.choose(&[None, Some(10), Some(40)]);
        socket.set_ack_delay(delay.map(Duration::from_millis));
        socket.set_nagle_enabled(random.happens(500_000));
        socket.set_timeout(Some(SILENCE));
        socket.set_keep_alive(Some(Duration::from_secs(20)));
        socket
    }

    fn listen(&mut self) {
        while self.listeners.len() < LISTENERS {
            let mut socket = self.socket();
            socket.listen(self.port).expect("it is new");
            self.listeners.push(self.sockets.add(socket));
        }
    }

    fn get(&self, id: usize) -> Option<&Socket<'static>> {
        Some(self.sockets.get(self.connections[id]?))
    }

    fn get_mut(&mut self, id: usize) -> Option<&mut Socket<'static>> {
        Some(self.sockets.get_mut(self.connections[id]?))
    }

    /// Takes connections that were opened.
    fn sort(&mut self) {
        let Library { sockets, listeners, connections, accepted, .. } = self;
        listeners.retain(|handle| {
            let is_taken = sockets.get::<Socket<'_>>(*handle).state() != tcp::State::Listen;
            if is_taken {
                accepted.push_back(connections.len());
                connections.push(Some(*handle));
            }
            !is_taken
        });
        self.listen();
    }
}

impl Endpoint for Library {
    fn frame(&mut self, _: u64, frame: Vec<u8>) {
        self.frames.received.push_back(frame);
    }

    fn poll(&mut self, now_ns: u64, sent: &mut Vec<Vec<u8>>) {
        self.interface.poll(instant(now_ns), &mut self.frames, &mut self.sockets);
        self.sort();
        sent.append(&mut self.frames.sent);
    }

    fn due_ns(&mut self, now_ns: u64) -> Option<u64> {
        let due = self.interface.poll_at(instant(now_ns), &self.sockets)?;
        Some((due.total_micros().max(0) as u64 * 1000).max(now_ns))
    }

    fn connect(&mut self, _: u64, remote: SocketAddr) -> Option<usize> {
        let mut socket = self.socket();
        self.next_port = self.next_port.checked_add(1).unwrap_or(49_152);
        socket.connect(self.interface.context(), remote, self.next_port).ok()?;
        self.connections.push(Some(self.sockets.add(socket)));
        Some(self.connections.len() - 1)
    }

    fn accept(&mut self) -> Option<usize> {
        self.accepted.pop_front()
    }

    fn state(&self, id: usize) -> State {
        match self.get(id).map(Socket::state) {
            // Whose handshake is reset listens again.
            None | Some(tcp::State::Closed | tcp::State::Listen) => State::Gone,
            Some(tcp::State::SynSent | tcp::State::SynReceived) => State::Opening,
            Some(tcp::State::Established | tcp::State::FinWait1 | tcp::State::FinWait2) => State::Open,
            Some(
                tcp::State::CloseWait | tcp::State::Closing | tcp::State::LastAck | tcp::State::TimeWait,
            ) => State::Finished,
        }
    }

    fn send(&mut self, id: usize, bytes: &[u8]) -> usize {
        let socket = self.get_mut(id).filter(|socket| socket.can_send());
        socket.map_or(0, |socket| socket.send_slice(bytes).expect("it can send"))
    }

    fn take(&mut self, id: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while let Some(socket) = self.get_mut(id).filter(|socket| socket.can_recv()) {
            socket
                .recv(|piece| {
                    bytes.extend_from_slice(piece);
                    (piece.len(), ())
                })
                .expect("it can receive");
        }
        bytes
    }

    fn close(&mut self, id: usize) {
        self.get_mut(id).into_iter().for_each(Socket::close);
    }

    fn forget(&mut self, id: usize) {
        if let Some(handle) = self.connections[id].take() {
            self.sockets.remove(handle);
        }
    }

    fn count(&self) -> usize {
        (0..self.connections.len()).filter(|id| self.state(*id) != State::Gone).count()
    }
}

/// Takes a received frame.
pub struct Rx(Vec<u8>);
/// Makes a frame to send.
pub struct Tx<'a>(&'a mut Vec<Vec<u8>>);

impl phy::RxToken for Rx {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        take(&self.0)
    }
}

impl phy::TxToken for Tx<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, fill: F) -> R {
        let mut frame = vec![0; len];
        let result = fill(&mut frame);
        self.0.push(frame);
        result
    }
}

impl phy::Device for Frames {
    type RxToken<'a> = Rx;
    type TxToken<'a> = Tx<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Rx, Tx<'_>)> {
        let frame = self.received.pop_front()?;
        Some((Rx(frame), Tx(&mut self.sent)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Tx<'_>> {
        Some(Tx(&mut self.sent))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = self.mtu + 14;
        capabilities
    }
}
