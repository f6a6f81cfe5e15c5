//! Reading and writing.

use super::{get, with_vfs};
use crate::call::Call;
use crate::descriptors::destination::Destination;
use crate::descriptors::node::OpenNode;
use crate::descriptors::open::{Description, Stream};
use crate::descriptors::ready::until_ready;
use crate::descriptors::source::{Source, total};
use crate::memory::Touch;
use crate::signals::Signal;
use crate::table::SystemCall;
use crate::terminal::Wish;
use alloc::rc::Rc;
use linux_raw_sys::general as abi;
use linux_raw_sys::net::SOCK_STREAM;
use nom_fs::{Durable, Errno, Seek};
use smallvec::SmallVec;
use zerocopy::IntoBytes;

/// Bytes that are copied at once.
const PIECE: usize = 64 << 10;
/// Bytes of a message at most.
pub(super) const MESSAGE_BYTES: u64 = 256 << 10;
/// Most bytes of one call, as on Linux.
pub(super) const CALL_BYTES: u64 = 0x7fff_f000;
/// Most pieces of one call.
const PIECES: u64 = 1024;
/// So many pieces take no memory of the heap: an answer of memcached's or nginx's has fewer.
const FEW: usize = 4;

/// Address and length of each of a call's pieces.
pub(super) type Pieces = SmallVec<[(u64, u64); FEW]>;

const VECTOR: &[&str] = &["descriptor", "pieces", "count"];
const VECTOR_AT: &[&str] = &["descriptor", "pieces", "count", "offset"];
const VECTOR_WITH: &[&str] = &["descriptor", "pieces", "count", "offset", "offset_high", "flags"];
const WITH: &str = "RWF_HIPRI, RWF_DSYNC, RWF_SYNC; others are EOPNOTSUPP";
const AT: &[&str] = &["descriptor", "buffer", "length", "offset"];

/// These calls.
pub(crate) const ROWS: &[SystemCall] = &[
    SystemCall::complete(abi::__NR_read, "read", &["descriptor", "buffer", "length"], read),
    SystemCall::complete(abi::__NR_write, "write", &["descriptor", "buffer", "length"], write),
    SystemCall::complete(abi::__NR_readv, "readv", VECTOR, read_pieces),
    SystemCall::complete(abi::__NR_writev, "writev", VECTOR, write_pieces),
    SystemCall::complete(abi::__NR_pread64, "pread64", AT, |call| read_at(call, call.arguments[3])),
    SystemCall::complete(abi::__NR_pwrite64, "pwrite64", AT, |call| write_at(call, call.arguments[3])),
    SystemCall::complete(abi::__NR_preadv, "preadv", VECTOR_AT, |call| pieces_at(call, Way::Read)),
    SystemCall::complete(abi::__NR_pwritev, "pwritev", VECTOR_AT, |call| pieces_at(call, Way::Write)),
    SystemCall::partial(abi::__NR_preadv2, "preadv2", VECTOR_WITH, |call| pieces_with(call, Way::Read), WITH),
    SystemCall::partial(
        abi::__NR_pwritev2,
        "pwritev2",
        VECTOR_WITH,
        |call| pieces_with(call, Way::Write),
        WITH,
    ),
    SystemCall::complete(abi::__NR_lseek, "lseek", &["descriptor", "offset", "whence"], seek),
    SystemCall::complete(abi::__NR_sendfile, "sendfile", &["to", "from", "offset", "count"], send_file),
];

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Read,
    Write,
}

/// What `act` says of a stream; waits for it unless the description says not to, nor longer than a socket
/// says of this way.
pub(super) fn wait<T>(
    call: &Call<'_>,
    description: &Description,
    stream: &Rc<dyn Stream>,
    way: Way,
    act: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    if description.is_terminal
        && let Some(end) = stream.terminal()
    {
        match way {
            Way::Read => return end.wait_to_read(call, description, act),
            Way::Write => end.admit(call, Wish::Write)?,
        }
    }
    let within_ns = stream.socket().and_then(|socket| match way {
        Way::Read => socket.options().receive_within_ns.get(),
        Way::Write => socket.options().send_within_ns.get(),
    });
    wait_within(call, description, stream, within_ns, act)
}

/// As [`wait`], for so many nanoseconds at most.
pub(super) fn wait_within<T>(
    call: &Call<'_>,
    description: &Description,
    stream: &Rc<dyn Stream>,
    within_ns: Option<u64>,
    mut act: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    match act() {
        Err(Errno::EAGAIN) if !description.is_nonblocking() => {
            let deadline_ns = within_ns.map(|ns| call.now().1.saturating_add(ns));
            let waiting = until_ready(act, |waker| stream.wake(waker));
            call.block_until(deadline_ns, waiting)?.unwrap_or(Err(Errno::EAGAIN))
        }
        result => result,
    }
}

/// Reads into the caller's memory, from `offset` of a file on, or where a description is.
fn read_into(
    call: &Call<'_>,
    description: &Description,
    at: Option<u64>,
    to: u64,
    len: u64,
) -> Result<u64, Errno> {
    description.check_read()?;
    let len = len.min(CALL_BYTES);
    let Some(node) = description.node() else {
        let stream = description.stream().ok_or(Errno::EINVAL)?;
        if at.is_some() && !stream.takes_offsets() {
            return Err(Errno::ESPIPE);
        }
        return read_stream(call, description, stream, &[(to, len)]);
    };
    let start = at.unwrap_or(description.position.get());
    let mut done = 0;
    loop {
        let part = (len - done).min(PIECE as u64);
        let count = match read_node(call, node, start + done, to + done, part) {
            Ok(count) => count as u64,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        };
        done += count;
        if count < part || done == len {
            break;
        }
    }
    if at.is_none() {
        description.position.set(start + done);
    }
    Ok(done)
}

/// Reads what a stream has into pieces of the caller's memory: what comes in one piece is read in one.
fn read_stream(
    call: &Call<'_>,
    description: &Description,
    stream: &Rc<dyn Stream>,
    pieces: &[(u64, u64)],
) -> Result<u64, Errno> {
    let to = Destination::new(call, pieces, PIECE as u64);
    wait(call, description, stream, Way::Read, || stream.read_to(&to)).map(|count| count as u64)
}

/// Reads a part of a file that is no longer than a buffer.
fn read_node(call: &Call<'_>, node: &OpenNode, offset: u64, to: u64, len: u64) -> Result<usize, Errno> {
    if node.is_stored() {
        return node.read_stored(call.memory(), offset, to, len);
    }
    let mut piece = call.buffer(len as usize);
    let count = node.read(offset, &mut piece)?;
    call.memory().write(to, &piece[..count]).map(|()| count)
}

/// Writes from the caller's memory.
fn write_from(
    call: &Call<'_>,
    description: &Description,
    at: Option<u64>,
    from: u64,
    len: u64,
) -> Result<u64, Errno> {
    description.check_write()?;
    let len = len.min(CALL_BYTES);
    if let Some(node) = description.node() {
        return write_node(call, description, node, at, (from, len));
    }
    if at.is_some() && !description.stream().is_some_and(|stream| stream.takes_offsets()) {
        return Err(Errno::ESPIPE);
    }
    write_stream(call, description, &[(from, len)])
}

/// How many of `len` bytes are sent to a stream at a time. A message goes as a whole.
///
/// # Errors
/// `EMSGSIZE` if it is longer than any can be.
fn at_once(description: &Description, len: u64) -> Result<u64, Errno> {
    let is_message = description.socket().is_ok_and(|socket| socket.names().1 != SOCK_STREAM);
    match is_message {
        true if len > MESSAGE_BYTES => Err(Errno::EMSGSIZE),
        true => Ok(len),
        false => Ok(PIECE as u64),
    }
}

/// What becomes of a call of which not all could be given.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// It says how much was.
    Ends,
    /// It tries again with what is left.
    Waits,
}

/// Has `give` give pieces of the caller's memory to a stream, a part at a time; says how much it gave.
///
/// # Errors
/// `EMSGSIZE`; what `give` says if it has not given anything before; `EFAULT` likewise.
pub(super) fn give_pieces(
    call: &Call<'_>,
    description: &Description,
    pieces: &[(u64, u64)],
    rest: Rest,
    mut give: impl FnMut(&Source<'_>) -> Result<u64, Errno>,
) -> Result<u64, Errno> {
    let len = total(pieces).min(CALL_BYTES);
    let most = at_once(description, len)?;
    let mut done = 0;
    loop {
        let source = Source::new(call, pieces, done, (len - done).min(most));
        let wanted = source.len() as u64;
        let count = match give(&source) {
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
            Ok(count) => count,
        };
        done += count;
        if done == len || count < wanted && rest == Rest::Ends {
            break;
        }
    }
    Ok(done)
}

/// Writes pieces of the caller's memory to a stream: all of it, or what there is room for if it must not
/// wait.
fn write_stream(call: &Call<'_>, description: &Description, pieces: &[(u64, u64)]) -> Result<u64, Errno> {
    let rest = if description.is_nonblocking() { Rest::Ends } else { Rest::Waits };
    let stream = description.stream().ok_or(Errno::EINVAL)?;
    give_pieces(call, description, pieces, rest, |source| {
        write_to(call, description, stream, || stream.write_from(source)).map(|count| count as u64)
    })
}

/// Writes to a stream.
pub(super) fn write_bytes(call: &Call<'_>, description: &Description, bytes: &[u8]) -> Result<usize, Errno> {
    let stream = description.stream().ok_or(Errno::EINVAL)?;
    write_to(call, description, stream, || stream.write(bytes))
}

/// Writes to a stream as `act` does; who writes to nobody is sent a signal.
pub(super) fn write_to(
    call: &Call<'_>,
    description: &Description,
    stream: &Rc<dyn Stream>,
    act: impl FnMut() -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    let written = wait(call, description, stream, Way::Write, act);
    if written == Err(Errno::EPIPE) {
        call.raise(Signal::PIPE);
    }
    written
}

fn write_node(
    call: &Call<'_>,
    description: &Description,
    node: &OpenNode,
    at: Option<u64>,
    (from, len): (u64, u64),
) -> Result<u64, Errno> {
    let is_appended = description.flags.get() & abi::O_APPEND != 0;
    let start = if is_appended { node.size()? } else { at.unwrap_or(description.position.get()) };
    let mut done = 0;
    while done < len {
        match write_part(call, node, start + done, from + done, (len - done).min(PIECE as u64)) {
            Ok(count) => done += count as u64,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    if at.is_none() {
        description.position.set(start + done);
    }
    if done > 0 && description.flags.get() & abi::O_DSYNC != 0 {
        with_vfs(call, |vfs, _| vfs.sync(node.node, Durable::Data))?;
    }
    Ok(done)
}

/// Writes a part of a file that is no longer than a buffer.
fn write_part(call: &Call<'_>, node: &OpenNode, offset: u64, from: u64, len: u64) -> Result<usize, Errno> {
    if node.is_stored() {
        let mut source = call.memory().reached(from, len, Touch::Read)?;
        let mut fill = |piece: &mut [u8]| source.get(piece);
        return with_vfs(call, |vfs, caller| vfs.write_with(node.node, offset, len, caller, &mut fill));
    }
    let mut piece = call.buffer(len as usize);
    call.memory().read(from, &mut piece)?;
    with_vfs(call, |vfs, caller| node.write(vfs, caller, offset, &piece))
}

fn read(call: &Call<'_>) -> Result<u64, Errno> {
    let [_, buffer, len, ..] = call.arguments;
    read_into(call, &*get(call, call.int(0))?, None, buffer, len)
}

fn write(call: &Call<'_>) -> Result<u64, Errno> {
    let [_, buffer, len, ..] = call.arguments;
    write_from(call, &*get(call, call.int(0))?, None, buffer, len)
}

fn read_at(call: &Call<'_>, offset: u64) -> Result<u64, Errno> {
    let [_, buffer, len, ..] = call.arguments;
    let offset = Some(offset).filter(|offset| (*offset as i64) >= 0).ok_or(Errno::EINVAL)?;
    read_into(call, &*get(call, call.int(0))?, Some(offset), buffer, len)
}

fn write_at(call: &Call<'_>, offset: u64) -> Result<u64, Errno> {
    let [_, buffer, len, ..] = call.arguments;
    let offset = Some(offset).filter(|offset| (*offset as i64) >= 0).ok_or(Errno::EINVAL)?;
    write_from(call, &*get(call, call.int(0))?, Some(offset), buffer, len)
}

/// Addresses and lengths of a call's pieces, which have no more bytes than one call moves.
pub(crate) fn pieces(call: &Call<'_>, address: u64, count: u64) -> Result<Pieces, Errno> {
    if count > PIECES {
        return Err(Errno::EINVAL);
    }
    let mut pieces = Pieces::new();
    while pieces.len() < count as usize {
        let mut words = [[0_u64; 2]; FEW];
        let words = &mut words[..FEW.min(count as usize - pieces.len())];
        let at = address.checked_add(16 * pieces.len() as u64).ok_or(Errno::EFAULT)?;
        call.memory().read(at, words.as_mut_bytes())?;
        pieces.extend(words.iter().map(|[start, len]| (*start, *len)));
    }
    let is_long = pieces
        .iter()
        .try_fold(0_u64, |sum, (_, len)| sum.checked_add(*len))
        .is_none_or(|sum| sum > i64::MAX as u64);
    if is_long {
        return Err(Errno::EINVAL);
    }
    cut_to(CALL_BYTES, &mut pieces);
    Ok(pieces)
}

/// Makes pieces shorter, from the last on, until they have no more than `most` bytes.
fn cut_to(most: u64, pieces: &mut [(u64, u64)]) {
    let mut left = most;
    for (_, len) in pieces {
        *len = left.min(*len);
        left -= *len;
    }
}

fn read_pieces(call: &Call<'_>) -> Result<u64, Errno> {
    let description = get(call, call.int(0))?;
    let pieces = pieces(call, call.arguments[1], call.arguments[2])?;
    if let Some(stream) = description.stream() {
        description.check_read()?;
        return read_stream(call, &description, stream, &pieces);
    }
    each(&pieces, |start, len| read_into(call, &description, None, start, len))
}

fn write_pieces(call: &Call<'_>) -> Result<u64, Errno> {
    let description = get(call, call.int(0))?;
    let pieces = pieces(call, call.arguments[1], call.arguments[2])?;
    if description.stream().is_none() {
        return each(&pieces, |start, len| write_from(call, &description, None, start, len));
    }
    description.check_write()?;
    write_stream(call, &description, &pieces)
}

fn pieces_at(call: &Call<'_>, way: Way) -> Result<u64, Errno> {
    let description = get(call, call.int(0))?;
    let pieces = pieces(call, call.arguments[1], call.arguments[2])?;
    let mut offset = call.arguments[3];
    if (offset as i64) < 0 {
        return Err(Errno::EINVAL);
    }
    each(&pieces, |start, len| {
        let count = match way {
            Way::Read => read_into(call, &description, Some(offset), start, len)?,
            Way::Write => write_from(call, &description, Some(offset), start, len)?,
        };
        offset += count;
        Ok(count)
    })
}

/// As preadv(2) and pwritev(2), or as readv(2) and writev(2) if the offset is -1, with flags.
fn pieces_with(call: &Call<'_>, way: Way) -> Result<u64, Errno> {
    let flags = call.arguments[5] as u32;
    if flags & !(abi::RWF_HIPRI | abi::RWF_DSYNC | abi::RWF_SYNC) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let done = match (call.arguments[3] as i64, way) {
        (-1, Way::Read) => read_pieces(call),
        (-1, Way::Write) => write_pieces(call),
        _ => pieces_at(call, way),
    }?;
    if way == Way::Write
        && flags & (abi::RWF_DSYNC | abi::RWF_SYNC) != 0
        && let Some(node) = get(call, call.int(0))?.node()
    {
        with_vfs(call, |vfs, _| vfs.sync(node.node, Durable::Data))?;
    }
    Ok(done)
}

/// Does something with each piece until one is not full.
fn each(pieces: &[(u64, u64)], mut act: impl FnMut(u64, u64) -> Result<u64, Errno>) -> Result<u64, Errno> {
    let mut done = 0;
    for (start, len) in pieces.iter().copied().filter(|(_, len)| *len > 0) {
        match act(start, len) {
            Ok(count) => done += count,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
        if !pieces.is_empty() && done == 0 {
            break;
        }
    }
    Ok(done)
}

fn seek(call: &Call<'_>) -> Result<u64, Errno> {
    let description = get(call, call.int(0))?;
    if description.stream().is_some_and(|stream| stream.takes_offsets()) {
        return Ok(0);
    }
    let node = description.node().ok_or(Errno::ESPIPE)?;
    let offset = call.arguments[1] as i64;
    let from = |start: u64| start.checked_add_signed(offset).filter(|at| *at <= i64::MAX as u64);
    let unsigned = || u64::try_from(offset).map_err(|_| Errno::ENXIO);
    let position = match call.arguments[2] as u32 {
        abi::SEEK_SET => from(0).ok_or(Errno::EINVAL)?,
        abi::SEEK_CUR => from(description.position.get()).ok_or(Errno::EINVAL)?,
        abi::SEEK_END => from(node.size()?).ok_or(Errno::EINVAL)?,
        abi::SEEK_DATA => with_vfs(call, |vfs, _| vfs.seek(node.node, unsigned()?, Seek::Data))?,
        abi::SEEK_HOLE => with_vfs(call, |vfs, _| vfs.seek(node.node, unsigned()?, Seek::Hole))?,
        _ => return Err(Errno::EINVAL),
    };
    description.position.set(position);
    Ok(position)
}

fn send_file(call: &Call<'_>) -> Result<u64, Errno> {
    let (to, from) = (get(call, call.int(0))?, get(call, call.int(1))?);
    let (offset_at, count) = (call.arguments[2], call.arguments[3].min(CALL_BYTES));
    from.check_read()?;
    to.check_write()?;
    let node = from.node().ok_or(Errno::EINVAL)?;
    let start = if offset_at == 0 { from.position.get() } else { call.memory().read_value(offset_at)? };
    if start > i64::MAX as u64 - CALL_BYTES {
        return Err(Errno::EINVAL);
    }
    let mut done = 0;
    while done < count {
        let mut piece = call.buffer((count - done).min(PIECE as u64) as usize);
        let there = node.read(start + done, &mut piece)?;
        if there == 0 {
            break;
        }
        let written = match to.node() {
            Some(target) => {
                let at = to.position.get();
                let written = with_vfs(call, |vfs, caller| target.write(vfs, caller, at, &piece[..there]));
                written.inspect(|count| to.position.set(at + *count as u64))
            }
            None => write_bytes(call, &to, &piece[..there]),
        };
        match written {
            Ok(count) => done += count as u64,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
        if to.is_nonblocking() && done % PIECE as u64 != 0 {
            break;
        }
    }
    match offset_at {
        0 => from.position.set(start + done),
        _ => call.memory().write_value(offset_at, &(start + done))?,
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_have_no_more_bytes_than_one_call_moves() {
        let mut pieces = [(1, 5), (2, 0), (3, 9), (4, 7), (5, 0)];
        cut_to(21, &mut pieces);
        assert_eq!(pieces, [(1, 5), (2, 0), (3, 9), (4, 7), (5, 0)]);
        cut_to(8, &mut pieces);
        assert_eq!(pieces, [(1, 5), (2, 0), (3, 3), (4, 0), (5, 0)]);
    }
}
