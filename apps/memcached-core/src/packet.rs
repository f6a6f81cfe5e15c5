//! The packet API: a request of one datagram answered by one, in the memory in which it came.
//!
//! What most requests are is carried out here: a line of the text protocol about one key, its value, if it
//! has one, with it, its reply short. Everything else is left to [`udp`](crate::udp), as if nobody had
//! looked: requests and replies of several datagrams, binary and meta commands, `noreply`, errors.

use crate::find::find;
use crate::server::Server;
use crate::text::{self, Request, TextUpdate, Words};
use crate::udp::{DATAGRAM_MAX, FRAME_LEN};
use crate::value::{COPY_MAX, Incoming};
use lock_api::RawMutex;
use nom_port::buffer::{Buffer, Sink, Slice};

/// Answers a datagram into `reply`, frame included, and says how many bytes that takes; `None` if nothing was
/// done because it is not of the ordinary kind, or `reply` too short.
pub fn answer<B: Buffer, R: RawMutex>(
    server: &mut Server<B, R>,
    datagram: &[u8],
    reply: &mut [u8],
) -> Option<usize> {
    let (&[i0, i1, _, _, 0, 1, _, _], commands) = datagram.split_first_chunk::<FRAME_LEN>()? else {
        return None;
    };
    let longest = reply.len().min(DATAGRAM_MAX);
    let (frame, room) = reply[..longest].split_first_chunk_mut::<FRAME_LEN>()?;
    let len = carry_out(server, commands, room)?;
    *frame = [i0, i1, 0, 0, 0, 1, 0, 0];
    server.counts.bytes_read.add(commands.len() as u64);
    Some(FRAME_LEN + len)
}

/// Carries out one command and says how long its reply is.
fn carry_out<B: Buffer, R: RawMutex>(
    server: &mut Server<B, R>,
    commands: &[u8],
    room: &mut [u8],
) -> Option<usize> {
    if room.len() >= LINE_MAX
        && let Some((key, used)) = text::lone_get(commands)
        && used == commands.len()
    {
        return get(server, key, false, room);
    }
    let end = find(b'\n', commands)?;
    let (line, rest) = (commands[..end].strip_suffix(b"\r")?, &commands[end + 1..]);
    if line.len() > LINE_MAX || room.len() < LINE_MAX {
        return None;
    }
    let request = text::parse(line).ok()?;
    match &request {
        Request::Get { keys, cas, exptime: None } if rest.is_empty() => {
            let key = keys.single()?;
            get(server, key, *cas, room)
        }
        Request::Update { update, quiet: false } => store(server, update, rest, room),
        Request::Delete { quiet: false, .. }
        | Request::Arithmetic { quiet: false, .. }
        | Request::Touch { quiet: false, .. }
            if rest.is_empty() =>
        {
            let mut room = Room::new(room);
            text::execute(server, &request, &mut room);
            room.filled()
        }
        _ => None,
    }
}

/// Longest line that is carried out here. Its reply, but for a value, is not longer by more than the names of
/// replies are: it fits wherever twice as much does.
const LINE_MAX: usize = 512;

/// A value that does not fit is not sent, and was not asked for.
fn get<B: Buffer, R: RawMutex>(
    server: &mut Server<B, R>,
    key: &[u8],
    cas: bool,
    room: &mut [u8],
) -> Option<usize> {
    let mut room = Room::new(room);
    match cas {
        false => text::get_one(server, key, &mut room),
        true => text::get_all(server, Words::of(key), cas, None, &mut room),
    }
    if room.is_full {
        // Whoever answers counts it. Another core may have reset the counters meanwhile.
        let mut shard = server.shard(key);
        shard.stats.cmd_get = shard.stats.cmd_get.saturating_sub(1);
        shard.stats.get_hits = shard.stats.get_hits.saturating_sub(1);
        return None;
    }
    room.filled()
}

/// Stores a value that is worth copying; a long one is better kept in the buffer that it came in.
fn store<B: Buffer, R: RawMutex>(
    server: &mut Server<B, R>,
    update: &TextUpdate<'_>,
    rest: &[u8],
    room: &mut [u8],
) -> Option<usize> {
    let value = rest.strip_suffix(b"\r\n").filter(|value| value.len() == update.len)?;
    if value.len() > COPY_MAX || !server.fits(update.key, update.flags, update.len) {
        return None;
    }
    let mut room = Room::new(room);
    text::complete(server, update, Incoming::Copy(value), false, &mut room);
    room.filled()
}

/// Where a reply is written, as far as it fits.
struct Room<'a> {
    bytes: &'a mut [u8],
    len: usize,
    /// Whether something did not fit.
    is_full: bool,
}

impl<'a> Room<'a> {
    fn new(bytes: &'a mut [u8]) -> Room<'a> {
        Room { bytes, len: 0, is_full: false }
    }

    /// Bytes written, if all were.
    fn filled(&self) -> Option<usize> {
        (!self.is_full).then_some(self.len)
    }
}

impl<B: Buffer> Sink<B> for Room<'_> {
    #[inline]
    fn copy(&mut self, bytes: &[u8]) {
        match Sink::<B>::room(self, bytes.len()) {
            Some(place) => place.copy_from_slice(bytes),
            None => self.is_full = true,
        }
    }

    #[inline]
    fn room(&mut self, len: usize) -> Option<&mut [u8]> {
        let place = self.bytes.get_mut(self.len..self.len + len)?;
        self.len += len;
        Some(place)
    }

    fn share(&mut self, slice: Slice<B>) {
        Sink::<B>::copy(self, &slice);
    }
}
