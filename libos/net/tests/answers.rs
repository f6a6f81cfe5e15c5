//! What a frame says that it answers: the time of a reply ends with the last frame of it.

mod common;

use common::{Device, Faults, Machine, Memory, World, config, server};
use nom_net::Answer;
use nom_net::{Application, FlowId, Slice, Stack};
use std::time::Duration;

/// Sends a byte as soon as it can.
#[derive(Default)]
struct Client {
    received: usize,
}

impl Application<Device> for Client {
    fn connected(&mut self, stack: &mut Stack<Device>, flow: FlowId) {
        let byte = stack.buffer(b"?").unwrap();
        stack.send(flow, byte).unwrap();
    }

    fn received(&mut self, _: &mut Stack<Device>, _: FlowId, bytes: Slice<Memory>) {
        self.received += bytes.len();
    }
}

/// Answers by replies of these lengths, to so many requests each, as if they had come at 1, 2, ... ns.
struct Server(Vec<(usize, u32)>);

impl Application<Device> for Server {
    fn received(&mut self, stack: &mut Stack<Device>, flow: FlowId, _: Slice<Memory>) {
        for (&(len, requests), arrived_ns) in self.0.iter().zip(1..) {
            stack.note_answer(flow, arrived_ns, requests, len);
            let reply = stack.buffer(&vec![b'!'; len]).unwrap();
            stack.send(flow, reply).unwrap();
        }
    }
}

/// What the server's frames say that they answer, from the first that says anything of requests.
fn answers(replies: &[(usize, u32)]) -> Vec<Option<(u64, u32)>> {
    let left = Machine::new(Device::new(1, <_>::default()), config(1, 5), Client::default());
    let right = Machine::new(Device::new(2, <_>::default()), config(2, 5), Server(replies.to_vec()));
    let mut world = World::new(left, right, 9, Faults::default());
    world.right.stack.listen(80);
    world.left.stack.connect(server(2)).unwrap();
    let bytes = replies.iter().map(|(len, _)| len).sum();
    let is_done = world.run(Duration::from_secs(10), |world| world.left.application.received == bytes);
    assert!(is_done, "{} of {bytes} bytes came", world.left.application.received);
    let told = |answer: &Option<Answer>| answer.map(|answer| (answer.arrived_ns, answer.requests));
    let told: Vec<_> = world.right.device.port.borrow().answers.iter().map(told).collect();
    // ARP, then the handshake, which answers no request.
    let opened = told.iter().position(Option::is_some).expect("the handshake is answered");
    assert_eq!(told[opened].unwrap().1, 0);
    told[opened + 1..].to_vec()
}

#[test]
fn a_reply_of_several_frames_ends_with_the_last() {
    assert_eq!(answers(&[(4000, 1)]), [None, None, Some((1, 1))]);
}

#[test]
fn replies_that_share_a_frame_are_as_old_as_the_oldest_and_all_count() {
    assert_eq!(answers(&[(10, 1), (20, 5), (30, 1)]), [Some((1, 7))]);
    // The second reply begins in the first frame and ends in the second.
    assert_eq!(answers(&[(1000, 1), (1000, 2)]), [Some((1, 1)), Some((2, 2))]);
}

#[test]
fn a_crowd_of_replies_counts_whole() {
    let told = answers(&[(2, 1); 1000]);
    assert_eq!(told.iter().flatten().map(|(_, requests)| requests).sum::<u32>(), 1000);
}
