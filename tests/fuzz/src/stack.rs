//! Frames through the whole stack: Ethernet, ARP, neighbour discovery, IPv4, IPv6, ICMP, UDP, TCP and what is
//! behind them.
//!
//! An input is a list of frames: two bytes of length, one that chooses, the frame. What is sent must be
//! sound, and no frame may make the stack want to be polled for ever.

use crate::device::{Device, config, device, take_sent};
use crate::input::Input;
use nom_net::{Application, Chain, Family, FlowId, Instant, Setup, Slice, Stack, checksum};
use nom_port::nic::Received;
use std::net::SocketAddr;

type Memory = crate::device::Memory;

/// Echoes on TCP 80 and UDP 7, and answers UDP 9 in place.
struct Echo;

impl Application<Device> for Echo {
    fn filter(&mut self, stack: &mut Stack<Device>, frame: Received<Memory>) -> Option<Received<Memory>> {
        stack.answer_in_place(frame, 9, |question, room| {
            let len = question.len().min(room.len());
            room[..len].copy_from_slice(&question[..len]);
            Some(len)
        })
    }

    fn received(&mut self, stack: &mut Stack<Device>, flow: FlowId, bytes: Slice<Memory>) {
        if stack.send(flow, bytes).is_err() {
            stack.abort(flow);
        }
    }

    fn datagram(
        &mut self,
        stack: &mut Stack<Device>,
        to: SocketAddr,
        from: SocketAddr,
        bytes: Chain<Memory>,
    ) {
        let _ = stack.send_datagram(to, from, bytes);
    }
}

/// Polls that may follow one another without time passing.
const POLLS_MAX: usize = 100;

pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let choice = input.byte();
    let device = device(choice & 1 == 0);
    let mut stack = Stack::new(device.clone(), config());
    stack.listen(80);
    stack.bind(7);
    stack.bind(9);
    let mut now = Instant::from_micros(1_000_000);
    if choice & 2 == 0 {
        stack.start_dhcp();
    } else {
        stack.discover(now, Setup { dhcp: true, routers: true, stable_key: Some([1, 2]) });
    }
    stack.resolve("example.org", Family::V4).expect("there is a name server");
    poll(&mut stack, now);
    while !input.is_empty() {
        let (len, choice) = (input.word(), input.byte());
        let mut frame = input.bytes(usize::from(len % 2048)).to_vec();
        if choice & 1 == 0 {
            mend_header(&mut frame);
        }
        device.deliver(now.nanos(), frame);
        poll(&mut stack, now);
        take_sent(&device);
        // From nothing to 2^31 us, half an hour, at a time.
        now = now + core::time::Duration::from_micros((1 << (choice >> 3)) - 1);
    }
    poll(&mut stack, now);
    take_sent(&device);
}

fn poll(stack: &mut Stack<Device>, now: Instant) {
    for _ in 0..POLLS_MAX {
        if stack.poll(now, &mut Echo).is_none_or(|due| due > now) {
            return;
        }
    }
    panic!("the stack wants to be polled for ever");
}

/// Makes the checksum of an IPv4 header right, which a fuzzer does not find.
fn mend_header(frame: &mut [u8]) {
    let Some([first, ..]) = frame.get(14..) else { return };
    let end = 14 + usize::from(first & 15) * 4;
    if frame[12..14] != [8, 0] || end < 34 || frame.len() < end {
        return;
    }
    frame[24..26].fill(0);
    let sum = !checksum::sum(&frame[14..end]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}
