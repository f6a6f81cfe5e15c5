//! Moving bytes between descriptors: splice(2), tee(2), vmsplice(2), copy_file_range(2).

use super::io::{CALL_BYTES, Way, pieces, wait, write_bytes, write_to};
use super::{get, with_vfs};
use crate::call::Call;
use crate::descriptors::buffer::{Buffer, PIPE_BYTES};
use crate::descriptors::destination::Destination;
use crate::descriptors::message::Outgoing;
use crate::descriptors::open::Description;
use crate::descriptors::ready::until_ready;
use crate::descriptors::source::Source;
use crate::signals::Signal;
use crate::table::SystemCall;
use alloc::rc::Rc;
use linux_raw_sys::general as abi;
use nom_fs::{Errno, NodeType};

/// linux/splice.h.
const SPLICE_F_MOVE: u32 = 1;
const SPLICE_F_NONBLOCK: u32 = 2;
const SPLICE_F_MORE: u32 = 4;
const SPLICE_F_GIFT: u32 = 8;
const KNOWN: u32 = SPLICE_F_MOVE | SPLICE_F_NONBLOCK | SPLICE_F_MORE | SPLICE_F_GIFT;

/// These calls.
pub(crate) const ROWS: &[SystemCall] = &[
    SystemCall::complete(
        abi::__NR_splice,
        "splice",
        &["from", "from_offset", "to", "to_offset", "length", "flags"],
        splice,
    ),
    SystemCall::complete(abi::__NR_tee, "tee", &["from", "to", "length", "flags"], tee),
    SystemCall::complete(
        abi::__NR_vmsplice,
        "vmsplice",
        &["descriptor", "pieces", "count", "flags"],
        from_memory,
    ),
    SystemCall::complete(
        abi::__NR_copy_file_range,
        "copy_file_range",
        &["from", "from_offset", "to", "to_offset", "length", "flags"],
        copy_range,
    ),
];

fn pipe(description: &Description) -> Option<&Rc<Buffer>> {
    description.stream().and_then(|stream| stream.pipe())
}

fn check_flags(flags: u64) -> Result<u32, Errno> {
    let flags = flags as u32;
    if flags & !KNOWN == 0 { Ok(flags) } else { Err(Errno::EINVAL) }
}

/// What `act` says of a pipe; waits for it unless flags or description say not to. Who writes to nobody is
/// sent a signal.
fn await_pipe<T>(
    call: &Call<'_>,
    (description, _, flags): (&Description, &Buffer, u32),
    mut act: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    let result = match act() {
        Err(Errno::EAGAIN) if flags & SPLICE_F_NONBLOCK == 0 && !description.is_nonblocking() => {
            call.block_on(until_ready(act, |waker| description.wake(waker)))?
        }
        result => result,
    };
    if matches!(result, Err(Errno::EPIPE)) {
        call.raise(Signal::PIPE);
    }
    result
}

/// Where a file is read or written: at an offset that the program keeps, or where the description is.
struct Position<'a> {
    description: &'a Description,
    /// Where the program has its offset.
    at: u64,
    offset: u64,
}

impl<'a> Position<'a> {
    fn of(call: &Call<'_>, description: &'a Description, at: u64) -> Result<Position<'a>, Errno> {
        if at != 0 && description.node().is_none() {
            return Err(Errno::ESPIPE);
        }
        let offset = if at == 0 { description.position.get() } else { call.memory().read_value(at)? };
        if (offset as i64) < 0 {
            return Err(Errno::EINVAL);
        }
        Ok(Position { description, at, offset })
    }

    fn advance(&self, call: &Call<'_>, count: u64) -> Result<(), Errno> {
        match self.at {
            0 => self.description.position.set(self.offset + count),
            at => call.memory().write_value(at, &(self.offset + count))?,
        }
        Ok(())
    }
}

fn splice(call: &Call<'_>) -> Result<u64, Errno> {
    let [_, from_at, _, to_at, len, flags] = call.arguments;
    let flags = check_flags(flags)?;
    let (from, to) = (get(call, call.int(0))?, get(call, call.int(2))?);
    if len == 0 {
        return Ok(0);
    }
    from.check_read()?;
    to.check_write()?;
    let len = len.min(PIPE_BYTES as u64) as usize;
    match (pipe(&from), pipe(&to)) {
        (Some(_), _) if from_at != 0 => Err(Errno::ESPIPE),
        (_, Some(_)) if to_at != 0 => Err(Errno::ESPIPE),
        (Some(one), Some(other)) if Rc::ptr_eq(one, other) => Err(Errno::EINVAL),
        (Some(source), _) => out_of_pipe(call, (&from, source, flags), (&to, to_at), len),
        (None, Some(target)) => into_pipe(call, (&from, from_at), (&to, target, flags), len),
        (None, None) => Err(Errno::EINVAL),
    }
}

/// Bytes of a pipe go to a file, a stream, or another pipe: they leave it when they are there.
fn out_of_pipe(
    call: &Call<'_>,
    source: (&Description, &Buffer, u32),
    (to, to_at): (&Description, u64),
    len: usize,
) -> Result<u64, Errno> {
    if to.flags.get() & abi::O_APPEND != 0 {
        return Err(Errno::EINVAL);
    }
    let position = Position::of(call, to, to_at)?;
    let mut piece = call.buffer(len);
    let count = await_pipe(call, source, || source.1.peek(&mut piece))?.count;
    if count == 0 {
        return Ok(0);
    }
    let written = match (to.node(), pipe(to)) {
        (Some(node), _) => {
            let written =
                with_vfs(call, |vfs, caller| node.write(vfs, caller, position.offset, &piece[..count]))?;
            position.advance(call, written as u64)?;
            written
        }
        (None, Some(target)) => {
            let target = (to, &**target, source.2);
            await_pipe(call, target, || target.1.write(&piece[..count.min(target.1.room().max(1))]))?
        }
        (None, None) => write_more(call, to, &piece[..count], source.2 & SPLICE_F_MORE)?,
    };
    source.1.read(&mut piece[..written])?;
    Ok(written as u64)
}

/// Writes to a stream; if `more` comes, a socket sends what fills no packet with that.
fn write_more(call: &Call<'_>, to: &Description, bytes: &[u8], more: u32) -> Result<usize, Errno> {
    let stream = to.stream().ok_or(Errno::EINVAL)?;
    match stream.socket().filter(|_| more != 0) {
        None => write_bytes(call, to, bytes),
        Some(socket) => {
            let begun = Outgoing { is_begun: true, ..Outgoing::plain(bytes) };
            write_to(call, to, stream, || socket.send(&begun))
        }
    }
}

/// Bytes of a file or a stream go to a pipe, as many as it has room for.
fn into_pipe(
    call: &Call<'_>,
    (from, from_at): (&Description, u64),
    target: (&Description, &Buffer, u32),
    len: usize,
) -> Result<u64, Errno> {
    let position = Position::of(call, from, from_at)?;
    let room = await_pipe(call, target, || {
        if target.1.is_unread() {
            return Err(Errno::EPIPE);
        }
        Some(target.1.room()).filter(|room| *room > 0).ok_or(Errno::EAGAIN)
    })?;
    let mut piece = call.buffer(len.min(room));
    let count = match (from.node(), from.stream()) {
        (Some(node), _) => node.read(position.offset, &mut piece)?,
        (_, Some(stream)) => wait(call, from, stream, Way::Read, || stream.read(&mut piece))?,
        (None, None) => return Err(Errno::EINVAL),
    };
    if from.node().is_some() {
        position.advance(call, count as u64)?;
    }
    put_all(call, target, &piece[..count])
}

/// Puts bytes into a pipe, one part after another, until all are there or no more can be: others may have
/// taken room meanwhile.
fn put_all(call: &Call<'_>, target: (&Description, &Buffer, u32), bytes: &[u8]) -> Result<u64, Errno> {
    let buffer = target.1;
    let mut done = 0;
    while done < bytes.len() {
        let rest = &bytes[done..];
        let act = || buffer.write(&rest[..rest.len().min(buffer.room().max(1))]);
        match await_pipe(call, target, act) {
            Ok(count) => done += count,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done as u64)
}

/// Bytes of a pipe go to another one and stay.
fn tee(call: &Call<'_>) -> Result<u64, Errno> {
    let [_, _, len, flags, ..] = call.arguments;
    let flags = check_flags(flags)?;
    let (from, to) = (get(call, call.int(0))?, get(call, call.int(1))?);
    if len == 0 {
        return Ok(0);
    }
    from.check_read()?;
    to.check_write()?;
    let (Some(source), Some(target)) = (pipe(&from), pipe(&to)) else { return Err(Errno::EINVAL) };
    if Rc::ptr_eq(source, target) {
        return Err(Errno::EINVAL);
    }
    let mut piece = call.buffer(len.min(PIPE_BYTES as u64) as usize);
    let count = await_pipe(call, (&from, source, flags), || source.peek(&mut piece))?.count;
    if count == 0 {
        return Ok(0);
    }
    let act = || target.write(&piece[..count.min(target.room().max(1))]);
    await_pipe(call, (&to, target, flags), act).map(|count| count as u64)
}

/// Bytes of the caller's memory go to a pipe, or the other way round.
fn from_memory(call: &Call<'_>) -> Result<u64, Errno> {
    let flags = check_flags(call.arguments[3])?;
    let description = get(call, call.int(0))?;
    let buffer = pipe(&description).ok_or(Errno::EBADF)?;
    let pieces = pieces(call, call.arguments[1], call.arguments[2])?;
    if description.check_write().is_ok() {
        let source = Source::new(call, &pieces, 0, PIPE_BYTES as u64);
        return source.by_buffer(|bytes| put_all(call, (&description, buffer, flags), bytes));
    }
    let to = Destination::new(call, &pieces, PIPE_BYTES as u64);
    let read = || to.by_buffer(|bytes| buffer.read(bytes), |count| *count);
    await_pipe(call, (&description, buffer, flags), read).map(|count| count as u64)
}

fn copy_range(call: &Call<'_>) -> Result<u64, Errno> {
    let [_, from_at, _, to_at, len, flags] = call.arguments;
    let len = len.min(CALL_BYTES);
    let (from, to) = (get(call, call.int(0))?, get(call, call.int(2))?);
    if flags as u32 != 0 {
        return Err(Errno::EINVAL);
    }
    from.check_read()?;
    to.check_write()?;
    if to.flags.get() & abi::O_APPEND != 0 {
        return Err(Errno::EBADF);
    }
    let (Some(source), Some(target)) = (from.node(), to.node()) else { return Err(Errno::EINVAL) };
    for node in [source.node, target.node] {
        match with_vfs(call, |vfs, _| vfs.kind(node)) {
            NodeType::File => {}
            NodeType::Directory => return Err(Errno::EISDIR),
            _ => return Err(Errno::EINVAL),
        }
    }
    let (read_at, write_at) = (Position::of(call, &from, from_at)?, Position::of(call, &to, to_at)?);
    let (start, other) = (read_at.offset, write_at.offset);
    let overlaps = start < other.saturating_add(len) && other < start.saturating_add(len);
    if source.node == target.node && overlaps {
        return Err(Errno::EINVAL);
    }
    let mut done = 0;
    while done < len {
        let mut piece = call.buffer((len - done).min(PIPE_BYTES as u64) as usize);
        let count = source.read(start + done, &mut piece)?;
        if count == 0 {
            break;
        }
        match with_vfs(call, |vfs, caller| target.write(vfs, caller, other + done, &piece[..count])) {
            Ok(count) => done += count as u64,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    read_at.advance(call, done)?;
    write_at.advance(call, done)?;
    Ok(done)
}
