//! Connections answered without remembering them, while too many are half open (RFC 4987 section 3.6).

use super::Stack;
use crate::table::{FlowId, FourTuple};
use crate::tcp::connection::Connection;
use crate::tcp::cookie::{self, Cookie};
use crate::tcp::segment::{Flags, Segment, Timestamps};
use core::time::Duration;
use nom_port::nic::Nic;

/// How long after the last cookie one may still come back.
const LIFE: Duration = Duration::from_secs(2 * cookie::PERIOD.as_secs());

impl<N: Nic> Stack<N> {
    /// Answers SYN by a SYN-ACK whose sequence number is all that is remembered.
    pub(super) fn bake(&mut self, tuple: &FourTuple, syn: &Segment) {
        let cookie = Cookie::of(&syn.options, self.mss_for(tuple.remote.ip()));
        let mut answer = Segment { ack: syn.seq + 1, flags: Flags::SYN | Flags::ACK, ..Segment::default() };
        answer.seq = cookie.seal(self.cookie_key(), tuple, syn.seq, self.now);
        answer.window = self.config.tcp.receive_window.min(0xffff) as u16;
        answer.options.mss = Some(self.mss_for(tuple.remote.ip()));
        if let Some(stamps) = syn.options.timestamps {
            // Scale and selective acknowledgements have no place but the timestamp that comes back with the
            // cookie.
            let origin = self.origin(tuple);
            let value = cookie.stamp(self.now.millis_wrapping().wrapping_add(origin.stamp_offset));
            answer.options.timestamps = Some(Timestamps { value, echo: stamps.value });
            answer.options.sack_permitted = cookie.sack;
            let connection = Connection::<N::Buffer>::answer(syn, origin, &self.config.tcp);
            answer.options.scale = cookie.scale.map(|_| connection.receive.scale);
        }
        self.cookies_until = self.now + LIFE;
        self.flows.presence().iter().for_each(|presence| presence.expect_cookies(self.cookies_until));
        self.link.counters.cookies_sent += 1;
        self.reply(tuple, &answer);
    }

    /// The cookie that `segment` brings back, if it does.
    pub(super) fn cookie_of(&self, tuple: &FourTuple, segment: &Segment) -> Option<Cookie> {
        if !self.may_follow_a_cookie(segment) {
            return None;
        }
        Cookie::open(self.cookie_key(), tuple, segment.seq - 1, segment.ack - 1, self.now)
    }

    /// The connection whose cookie `segment` brings back, if it is one.
    pub(super) fn redeem(&mut self, tuple: &FourTuple, segment: &Segment) -> Option<FlowId> {
        let cookie = self.cookie_of(tuple, segment).filter(|_| self.has_place_for(tuple.remote.ip()))?;
        let (iss, irs) = (segment.ack - 1, segment.seq - 1);
        let cookie = cookie.with_stamp(segment.options.timestamps.map(|stamps| stamps.echo));
        let syn = Segment {
            seq: irs,
            flags: Flags::SYN,
            window: segment.window,
            options: cookie.options(segment.options.timestamps),
            ..Segment::default()
        };
        let mut origin = self.origin(tuple);
        origin.iss = iss;
        let mut connection = Connection::answer(&syn, origin, &self.config.tcp);
        connection.send.next = segment.ack;
        connection.send.max = segment.ack;
        let id = self.add(*tuple, connection, false)?;
        self.link.counters.cookies_accepted += 1;
        Some(id)
    }

    /// Whether a segment that brings no cookie may come behind one that was lost and did: whoever sends it
    /// sends that again, and must not be reset before.
    pub(super) fn may_follow_a_cookie(&self, segment: &Segment) -> bool {
        let flags = segment.flags;
        flags.any(Flags::ACK) && !flags.any(Flags::SYN | Flags::RST) && self.expects_cookies()
    }

    /// Whether a cookie may come back, of this stack or of another of this host.
    fn expects_cookies(&self) -> bool {
        let elsewhere = self.flows.presence().map(|presence| presence.cookies_until());
        self.now < elsewhere.map_or(self.cookies_until, |until| until.max(self.cookies_until))
    }

    fn cookie_key(&self) -> [u64; 2] {
        let [a, b, c, d] = self.config.secret;
        [a ^ d, b ^ c]
    }
}
