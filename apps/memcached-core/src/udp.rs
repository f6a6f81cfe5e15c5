//! Requests and replies over UDP: each datagram begins with a frame of 8 bytes, the number of the request,
//! that of the datagram in it, how many there are, and two bytes of nothing; all big-endian.

use crate::connection::Connection;
use crate::server::Server;
use core::ops::Range;
use lock_api::RawMutex;
use nom_port::buffer::{Buffer, Sink, Slice};

/// Bytes of a frame.
pub const FRAME_LEN: usize = 8;

/// Most bytes of a datagram of a reply, its frame included: what memcached sends, so that no path cuts it.
pub const DATAGRAM_MAX: usize = 1400;

const PAYLOAD_MAX: usize = DATAGRAM_MAX - FRAME_LEN;

/// Number of a request, chosen by the client.
pub type RequestId = u16;

/// Answers the commands in one datagram and says which request that was; `None` if it is to be dropped. What
/// it writes into the sink is to be sent as [`frames`] divides it, if it is anything.
///
/// A request of several datagrams is refused, as memcached does; a command cut short is forgotten.
pub fn answer<B: Buffer, R: RawMutex>(
    server: &mut Server<B, R>,
    mut datagram: Slice<B>,
    sink: &mut impl Sink<B>,
) -> Option<RequestId> {
    let Some(&[i0, i1, _, _, t0, t1, _, _]) = datagram.first_chunk::<FRAME_LEN>() else {
        server.counts.protocol_errors.add(1);
        return None;
    };
    if [t0, t1] != [0, 1] {
        sink.copy(b"SERVER_ERROR multi-packet request not supported\r\n");
    } else {
        datagram.advance(FRAME_LEN);
        let _ends_with_the_datagram = Connection::new().receive(server, datagram, sink);
    }
    Some(RequestId::from_be_bytes([i0, i1]))
}

/// The datagrams of a reply of `len` bytes: the frame of each, and which part of the reply follows it. A
/// reply that is too long to be numbered ends with its last number.
pub fn frames(
    request: RequestId,
    len: usize,
) -> impl ExactSizeIterator<Item = ([u8; FRAME_LEN], Range<usize>)> {
    let total = len.div_ceil(PAYLOAD_MAX).min(usize::from(u16::MAX)) as u16;
    (0..total).map(move |number| {
        let ([i0, i1], [n0, n1], [t0, t1]) =
            (request.to_be_bytes(), number.to_be_bytes(), total.to_be_bytes());
        let start = usize::from(number) * PAYLOAD_MAX;
        ([i0, i1, n0, n1, t0, t1, 0, 0], start..len.min(start + PAYLOAD_MAX))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_divided_into_numbered_datagrams() {
        let parts: Vec<_> = frames(0x0102, 2 * PAYLOAD_MAX + 5).collect();
        assert_eq!(parts[0], ([1, 2, 0, 0, 0, 3, 0, 0], 0..PAYLOAD_MAX));
        assert_eq!(parts[2], ([1, 2, 0, 2, 0, 3, 0, 0], 2 * PAYLOAD_MAX..2 * PAYLOAD_MAX + 5));
        assert_eq!((parts.len(), frames(1, 0).len()), (3, 0));
        assert_eq!(frames(1, usize::MAX).len(), 65535);
    }
}
