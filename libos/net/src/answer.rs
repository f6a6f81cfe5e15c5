//! What a frame answers: said by the stack to whoever measures its queue pair.

use nom_port::nic::{Nic, Tag};

/// What a frame answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// When the oldest of the requests arrived ([`Received::at_ns`](nom_port::nic::Received::at_ns)).
    pub arrived_ns: u64,
    /// How many requests they are; none if the frame opens a connection.
    pub requests: u32,
    /// The connection, by the number that its stack knows it by, below [`u32::MAX`]; a datagram has none.
    pub flow: Option<u32>,
}

impl Answer {
    /// That to a datagram which arrived at `arrived_ns`.
    #[inline]
    pub fn to_datagram(arrived_ns: u64) -> Answer {
        Answer { arrived_ns, requests: 1, flow: None }
    }

    /// As the tag of the frame.
    #[inline]
    pub fn tag(self) -> Tag {
        Tag([self.arrived_ns, u64::from(self.requests) << 32 | u64::from(self.flow.unwrap_or(u32::MAX))])
    }

    /// What the stack said by a tag.
    #[inline]
    pub fn of(Tag([arrived_ns, rest]): Tag) -> Answer {
        let flow = rest as u32;
        Answer { arrived_ns, requests: (rest >> 32) as u32, flow: (flow != u32::MAX).then_some(flow) }
    }
}

/// A queue pair that hears when something comes on a connection, for who measures paths, and what users are
/// answered. A driver does not.
pub trait Observed: Nic {
    /// Bytes of a connection came, or the end of its handshake, in a frame that was first seen at `at_ns`.
    fn arrived(&mut self, flow: u32, at_ns: u64) {
        let _ = (flow, at_ns);
    }

    /// Users are answered so many bytes, once, however often the network sends them.
    fn answered(&mut self, bytes: usize) {
        let _ = bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_says_what_was_answered() {
        let answer = Answer { arrived_ns: u64::MAX - 1, requests: 7, flow: Some(0) };
        let answers = [answer, Answer { requests: u32::MAX, flow: Some(u32::MAX - 1), ..answer }];
        for answer in answers.into_iter().chain([Answer::to_datagram(5)]) {
            assert_eq!(Answer::of(answer.tag()), answer);
        }
    }
}
