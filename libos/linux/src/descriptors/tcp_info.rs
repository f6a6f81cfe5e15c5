//! `struct tcp_info` (linux/tcp.h), as `TCP_INFO` in tcp(7) tells it.

use alloc::vec::Vec;
use core::time::Duration;
use nom_net::FlowInformation;
use nom_net::tcp::connection::State;

/// `TCP_ESTABLISHED`, `TCP_CLOSE` and `TCP_LISTEN` (netinet/tcp.h).
pub(super) const ESTABLISHED: u8 = 1;
pub(super) const CLOSE: u8 = 7;
pub(super) const LISTEN: u8 = 10;
/// `TCPI_OPT_*`.
const TIMESTAMPS: u8 = 1;
const SELECTIVE: u8 = 2;
const SCALED: u8 = 4;
/// `TCP_CA_Open` and `TCP_CA_Recovery`.
const OPEN: u8 = 0;
const RECOVERY: u8 = 3;
/// What Linux says of a threshold that is not known.
const UNKNOWN: u32 = 0x7fff_ffff;
/// Segments that may be out of order before one is taken for lost, as Linux has it at first.
const REORDERING: u32 = 3;
/// Bytes of headers of IPv4 and TCP.
const HEADERS: u32 = 40;
/// 32-bit words behind the first eight bytes.
const WORDS: usize = 24;

fn number(state: State) -> u8 {
    match state {
        State::Established => ESTABLISHED,
        State::SynSent => 2,
        State::SynReceived => 3,
        State::FinWait1 => 4,
        State::FinWait2 => 5,
        State::TimeWait => 6,
        State::Closed => CLOSE,
        State::CloseWait => 8,
        State::LastAck => 9,
        State::Closing => 11,
    }
}

/// Bytes of payload of a segment of so many bytes with the option that all have (RFC 7323 appendix A).
pub(super) fn payload_of(segment: u32) -> u32 {
    segment.saturating_sub(12).max(1)
}

/// Bytes of payload of a full segment, of what `TCP_INFO` tells.
pub(crate) fn segment_of(told: &[u8]) -> Option<i32> {
    const AT: usize = 16;
    told.get(AT..)?.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes))
}

fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

/// What is known of a socket of which the stack knows nothing: its state, and how long a segment may be.
pub(super) fn of_state(state: u8, mss: u32) -> Vec<u8> {
    let mut words = [0; WORDS];
    (words[2], words[3], words[13]) = (mss, mss, mss + HEADERS);
    (words[17], words[18], words[19], words[20]) = (UNKNOWN, 10, mss, REORDERING);
    bytes([state, OPEN, 0, 0, 0, 0, 0, 0], &words)
}

/// What the stack knows of a connection.
pub(super) fn of_flow(known: &FlowInformation) -> Vec<u8> {
    let mss = if known.has_timestamps { payload_of(known.mss) } else { known.mss.max(1) };
    let segments = |bytes: u32| bytes.div_ceil(mss);
    let has = |condition, flag| if condition { flag } else { 0 };
    let options = has(known.has_timestamps, TIMESTAMPS)
        | has(known.is_selective, SELECTIVE)
        | has(known.scales.is_some(), SCALED);
    let (peers, ours) = known.scales.unwrap_or((0, 0));
    let retries = known.retries.min(255) as u8;
    let recovering = if known.lost > 0 || retries > 0 { RECOVERY } else { OPEN };
    let head = [number(known.state), recovering, retries, 0, retries, options, peers & 15 | ours << 4, 0];
    let (round_trip, variation) = known.round_trip.unwrap_or_default();
    let mut words = [0; WORDS];
    words[0] = micros(known.timeout);
    (words[2], words[3]) = (mss, known.received_mss);
    words[4] = segments(known.unacknowledged);
    (words[5], words[6]) = (segments(known.arrived), segments(known.lost));
    (words[9], words[11], words[12]) = (millis(known.idle), millis(known.unheard), millis(known.unheard));
    (words[13], words[14]) = (known.mss + HEADERS, known.receive_window);
    (words[15], words[16]) = (micros(round_trip), micros(variation));
    words[17] = known.threshold.map_or(UNKNOWN, segments);
    words[18] = segments(known.congestion_window);
    (words[19], words[20]) = (known.mss, REORDERING);
    words[22] = known.receive_window;
    words[23] = known.retries;
    bytes(head, &words)
}

fn bytes(head: [u8; 8], words: &[u32; WORDS]) -> Vec<u8> {
    let words = words.iter().flat_map(|word| word.to_ne_bytes());
    head.into_iter().chain(words).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_lies_where_linux_has_it() {
        let known = FlowInformation {
            state: State::CloseWait,
            round_trip: Some((Duration::from_micros(250), Duration::from_micros(40))),
            timeout: Duration::from_millis(200),
            mss: 1012,
            received_mss: 900,
            congestion_window: 10_000,
            threshold: None,
            unacknowledged: 2500,
            arrived: 1000,
            lost: 1,
            unsent: 0,
            retries: 2,
            receive_window: 65_535,
            idle: Duration::from_millis(7),
            unheard: Duration::from_millis(8),
            has_timestamps: true,
            is_selective: true,
            scales: Some((7, 9)),
        };
        let told = of_flow(&known);
        let word = |at: usize| u32::from_ne_bytes(*told[at..].first_chunk().expect("it is there"));
        // Offsets of linux/tcp.h: state, rto, snd_mss, unacked, lost, last_data_sent, rtt, rttvar, snd_cwnd,
        // total_retrans.
        assert_eq!((told.len(), told[0], told[5], told[6]), (104, 8, 7, 0x97));
        assert_eq!([8, 16, 24, 32, 44].map(word), [200_000, 1000, 3, 1, 7]);
        assert_eq!([68, 72, 76, 80, 100].map(word), [250, 40, UNKNOWN, 10, 2]);
    }
}
