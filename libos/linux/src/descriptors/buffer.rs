//! Bytes on their way from who writes to who reads: of a pipe, or one way of a connection.

use super::destination::Destination;
use super::flight::Flight;
use super::message::{Outgoing, Received, Sender};
use super::open::Description;
use super::ready::{Events, Waiters};
use super::socket::Peeking;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::ops::Range;
use core::task::Waker;
use nom_fs::Errno;

/// Bytes that a pipe takes at first.
pub(crate) const PIPE_BYTES: usize = 64 << 10;
/// And at most (`/proc/sys/fs/pipe-max-size`).
const PIPE_BYTES_MAX: usize = 1 << 20;
/// Bytes of a place for one packet of a pipe.
const SLOT_BYTES: usize = 4096;
/// Writes of at most so many bytes go wholly or not at all.
const ATOMIC_BYTES: usize = 4096;
/// Bytes of packets that wait, and of the largest with its head, as on Linux (`net.core.wmem_default`).
const PACKETS_BYTES: usize = 212_992;
const PACKET_HEAD: usize = 32;

/// What goes along with bytes of these numbers.
#[derive(Debug)]
struct Attached {
    bytes: Range<u64>,
    flight: Option<Rc<Flight>>,
    by: Option<Sender>,
}

/// The byte that was sent as urgent last (tcp(7), "Sockets API"): its number, and it itself, unless it lies
/// among the others or was received.
#[derive(Clone, Copy, Debug)]
struct Urgent {
    at: u64,
    byte: Option<u8>,
}

/// Where urgent bytes lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum UrgentPlace {
    /// Apart from the others.
    #[default]
    Apart,
    /// Among the others: `SO_OOBINLINE`.
    Among,
}

/// Packets that wait.
#[derive(Debug)]
struct Packets {
    lengths: RefCell<VecDeque<usize>>,
    /// How many may.
    most: Cell<usize>,
}

/// Bytes on their way, and how many have each end.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    bytes: RefCell<VecDeque<u8>>,
    /// How many were taken out so far.
    taken: Cell<u64>,
    /// What goes along with some of the bytes, in order.
    attached: RefCell<VecDeque<Attached>>,
    /// The lengths of packets, if these are no stream.
    packets: Option<Packets>,
    /// How many bytes it takes, if not as many as at first.
    capacity: Cell<Option<usize>>,
    urgent: Cell<Option<Urgent>>,
    /// Where urgent bytes lie.
    urgent_place: Cell<UrgentPlace>,
    /// Why nothing more comes, which is told once, behind all bytes.
    error: Cell<Option<Errno>>,
    /// How often it was filled, or had no room for something.
    fills: Cell<u64>,
    readers: Cell<u32>,
    writers: Cell<u32>,
    /// Who waits for bytes or for their end, and who for room: that bytes were taken is no news to who reads.
    for_bytes: Waiters,
    for_room: Waiters,
}

/// Copies as many of the first `count` bytes as `target` has room for, piece by piece and not byte by byte.
pub(super) fn copy_first(bytes: &VecDeque<u8>, target: &mut [u8], count: usize) {
    let (first, second) = bytes.as_slices();
    let mut done = 0;
    for piece in [first, second] {
        let len = piece.len().min(count.min(target.len()) - done);
        target[done..done + len].copy_from_slice(&piece[..len]);
        done += len;
    }
}

/// The descriptors that went along with something.
pub(super) fn passed(flight: Option<&Rc<Flight>>) -> Vec<Rc<Description>> {
    flight.map_or_else(Vec::new, |flight| flight.descriptors().to_vec())
}

/// Moves bytes from the front, as many as there are or there is room for; says how many.
pub(crate) fn take_first(bytes: &mut VecDeque<u8>, target: &mut [u8]) -> usize {
    let count = bytes.len().min(target.len());
    copy_first(bytes, target, count);
    bytes.drain(..count);
    count
}

impl Buffer {
    /// One whose reads and writes are whole packets, of which so many may wait.
    pub fn of_packets(most: usize) -> Buffer {
        let packets = Packets { lengths: RefCell::default(), most: Cell::new(most) };
        Buffer { packets: Some(packets), ..Buffer::default() }
    }

    /// Whether reads and writes are whole packets.
    pub fn has_packets(&self) -> bool {
        self.packets.is_some()
    }

    /// Whether there is something to be read.
    fn has_any(&self) -> bool {
        match &self.packets {
            Some(packets) => !packets.lengths.borrow().is_empty(),
            None => !self.bytes.borrow().is_empty(),
        }
    }

    /// What reading says when nothing is there.
    fn nothing_there(&self, target: &[u8]) -> Result<usize, Errno> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        if self.is_finished() || target.is_empty() && self.packets.is_none() {
            Ok(0)
        } else {
            Err(Errno::EAGAIN)
        }
    }

    /// Takes bytes out.
    ///
    /// # Errors
    /// `EAGAIN` if there are none, and somebody may still write; why nobody will, once.
    pub fn read(&self, target: &mut [u8]) -> Result<usize, Errno> {
        // What went along with them is closed.
        self.read_message(target).map(|received| received.count)
    }

    /// The same, to where a program wants them: from where they lie, unless something goes along with some.
    ///
    /// # Errors
    /// As [`Buffer::read`]; `EFAULT`, and then they stay.
    pub fn read_to(&self, to: &Destination<'_>) -> Result<usize, Errno> {
        let is_plain =
            self.packets.is_none() && self.attached.borrow().is_empty() && self.urgent.get().is_none();
        let count = self.next_len(to.len()).min(to.len());
        if !is_plain || count == 0 {
            self.check_target(to)?;
            return to.by_buffer(|bytes| self.read(bytes), |count| *count);
        }
        let mut target = to.reached(count)?;
        let mut bytes = self.bytes.borrow_mut();
        let (first, second) = bytes.as_slices();
        let whole = first.len().min(count);
        target.put(&first[..whole]);
        target.put(&second[..count - whole]);
        drop(target);
        bytes.drain(..count);
        drop(bytes);
        self.taken.update(|taken| taken + count as u64);
        self.for_room.wake();
        Ok(count)
    }

    /// Whether what is read next can be put where a program wants it: else it would be lost.
    ///
    /// # Errors
    /// `EFAULT`.
    pub fn check_target(&self, to: &Destination<'_>) -> Result<(), Errno> {
        match self.has_any() {
            true => to.reached(self.next_len(to.len()).min(to.len())).map(drop),
            false => Ok(()),
        }
    }

    /// Takes bytes out, and what goes along with one of them: behind the bytes that were put in with that, no
    /// more are taken (unix(7), "Ancillary messages"). Of a packet, what there is no room for is lost.
    ///
    /// # Errors
    /// As [`Buffer::read`].
    pub fn read_message(&self, target: &mut [u8]) -> Result<Received, Errno> {
        if !self.has_any() {
            return self.nothing_there(target).map(Received::bytes);
        }
        let whole = self.next_len(target.len());
        let (taken, mut received) = (self.taken.get(), Received::bytes(whole.min(target.len())));
        received.whole = whole;
        let is_of_these = |first: &mut Attached| first.bytes.start < taken + whole.max(1) as u64;
        let first = self.attached.borrow_mut().pop_front_if(is_of_these);
        if let Some(Attached { bytes, flight, by }) = first {
            (received.attached, received.by) = (passed(flight.as_ref()), by);
            if self.packets.is_none() {
                received.count = received.count.min((bytes.end - taken) as usize);
                received.whole = received.count;
            }
        }
        let mut bytes = self.bytes.borrow_mut();
        copy_first(&bytes, target, received.whole);
        bytes.drain(..received.whole);
        drop(bytes);
        if let Some(packets) = &self.packets {
            packets.lengths.borrow_mut().pop_front();
        }
        if self.urgent.get().is_some_and(|urgent| urgent.at <= taken) {
            // It is passed.
            self.urgent.set(None);
        }
        self.taken.update(|taken| taken + received.whole as u64);
        self.for_room.wake();
        Ok(received)
    }

    /// Copies bytes, which stay.
    ///
    /// # Errors
    /// As [`Buffer::read`].
    pub fn peek(&self, target: &mut [u8]) -> Result<Received, Errno> {
        if !self.has_any() {
            return self.nothing_there(target).map(Received::bytes);
        }
        let whole = self.next_len(target.len());
        copy_first(&self.bytes.borrow(), target, whole);
        let (start, mut received) = (self.taken.get(), Received::bytes(whole.min(target.len())));
        received.whole = whole;
        if let Some(first) = self.attached.borrow().front().filter(|first| first.bytes.start == start) {
            (received.attached, received.by) = (passed(first.flight.as_ref()), first.by);
        }
        Ok(received)
    }

    /// Bytes that one call reads at most: a packet, or what is there, up to the urgent mark.
    fn next_len(&self, room: usize) -> usize {
        if self.packets.is_some() {
            return self.unread();
        }
        let len = self.len().min(room);
        match self.urgent.get() {
            Some(Urgent { at, .. }) if at > self.taken.get() => len.min((at - self.taken.get()) as usize),
            _ => len,
        }
    }

    /// Puts bytes in.
    ///
    /// # Errors
    /// `EPIPE` if nobody reads; `EAGAIN` if there is no room.
    pub fn write(&self, source: &[u8]) -> Result<usize, Errno> {
        self.write_message(&Outgoing::plain(source))
    }

    /// Puts bytes into a pipe of packets, each as long as what a pipe takes as a whole (pipe(2), `O_DIRECT`).
    ///
    /// # Errors
    /// As [`Buffer::write`], if that is so of the first.
    pub fn write_packets(&self, source: &[u8]) -> Result<usize, Errno> {
        let mut done = 0;
        for packet in source.chunks(ATOMIC_BYTES) {
            match self.write(packet) {
                Ok(count) => done += count,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Puts bytes in, with what goes along with them.
    ///
    /// # Errors
    /// As [`Buffer::write`]; `EMSGSIZE` for a packet that is too long, `EOPNOTSUPP` for an urgent one.
    pub fn write_message(&self, what: &Outgoing<'_>) -> Result<usize, Errno> {
        if self.is_unread() {
            return Err(Errno::EPIPE);
        }
        let count = self.room_for(what.bytes.len()).inspect_err(|_| self.note_full())?;
        if what.is_urgent && self.packets.is_some() {
            return Err(Errno::EOPNOTSUPP);
        }
        let mut bytes = self.bytes.borrow_mut();
        let at = self.taken.get() + bytes.len() as u64;
        if (count > 0 || self.packets.is_some()) && (what.is_signed || what.attached.is_some()) {
            let end = at + count.max(1) as u64;
            let (flight, by) = (what.attached.cloned(), what.is_signed.then_some(what.by));
            self.attached.borrow_mut().push_back(Attached { bytes: at..end, flight, by });
        }
        let is_urgent = what.is_urgent && count == what.bytes.len() && count > 0;
        let apart = usize::from(is_urgent && self.urgent_place.get() == UrgentPlace::Apart);
        bytes.extend(&what.bytes[..count - apart]);
        if is_urgent {
            let byte = what.bytes.last().copied().filter(|_| apart > 0);
            self.urgent.set(Some(Urgent { at: at + count as u64 - 1, byte }));
        }
        drop(bytes);
        match &self.packets {
            Some(packets) => packets.lengths.borrow_mut().push_back(count),
            None if self.room() == 0 => self.note_full(),
            None => {}
        }
        self.for_bytes.wake();
        Ok(count)
    }

    /// Shows descriptors that go along with bytes that wait.
    pub fn each_attached(&self, see: &mut dyn FnMut(&Description)) {
        let attached = self.attached.borrow();
        let flights = attached.iter().filter_map(|attached| attached.flight.as_ref());
        flights.flat_map(|flight| flight.descriptors()).for_each(|description| see(description));
    }

    fn note_full(&self) {
        self.fills.update(|fills| fills + 1);
    }

    /// How many bytes were ever put in.
    pub fn arrived(&self) -> u64 {
        self.taken.get() + self.len() as u64
    }

    /// How often it was filled, or had no room for something.
    pub fn fills(&self) -> u64 {
        self.fills.get()
    }

    /// How many of so many bytes can be put in.
    fn room_for(&self, wanted: usize) -> Result<usize, Errno> {
        if let Some(packets) = &self.packets {
            if wanted > PACKETS_BYTES - PACKET_HEAD {
                return Err(Errno::EMSGSIZE);
            }
            let count = packets.lengths.borrow().len();
            let costs = self.len() + count * PACKET_HEAD;
            return if costs >= PACKETS_BYTES || count >= packets.most.get() {
                Err(Errno::EAGAIN)
            } else {
                Ok(wanted)
            };
        }
        let room = self.room();
        let is_whole = wanted <= ATOMIC_BYTES;
        if wanted > 0 && (room == 0 || is_whole && room < wanted) {
            return Err(Errno::EAGAIN);
        }
        Ok(room.min(wanted))
    }

    /// Bytes that there is room for.
    pub fn room(&self) -> usize {
        self.capacity().saturating_sub(self.len())
    }

    /// Bytes that it takes.
    pub fn capacity(&self) -> usize {
        self.capacity.get().unwrap_or(PIPE_BYTES)
    }

    /// Has a pipe take about so many bytes: how many then.
    ///
    /// # Errors
    /// `EPERM` if that is too much; `EBUSY` if more are in it.
    pub fn set_capacity(&self, wanted: usize) -> Result<usize, Errno> {
        if wanted > PIPE_BYTES_MAX {
            return Err(Errno::EPERM);
        }
        let capacity = wanted.max(SLOT_BYTES).next_power_of_two();
        let slots = capacity / SLOT_BYTES;
        let waiting = self.packets.as_ref().map_or(0, |packets| packets.lengths.borrow().len());
        if waiting > slots || self.len() > capacity {
            return Err(Errno::EBUSY);
        }
        self.packets.iter().for_each(|packets| packets.most.set(slots));
        self.capacity.set(Some(capacity));
        self.for_room.wake();
        Ok(capacity)
    }

    /// Takes the urgent byte, or looks at it.
    ///
    /// # Errors
    /// `EINVAL` if there is none apart from the others.
    pub fn take_urgent(&self, target: &mut [u8], peeking: Peeking) -> Result<usize, Errno> {
        let urgent = self.urgent.get().ok_or(Errno::EINVAL)?;
        let byte = urgent.byte.ok_or(Errno::EINVAL)?;
        if peeking == Peeking::Take {
            self.urgent.set(Some(Urgent { byte: None, ..urgent }));
        }
        target.first_mut().map_or(Ok(0), |to| {
            *to = byte;
            Ok(1)
        })
    }

    /// Whether what is read next is behind the urgent byte, or that itself.
    pub fn is_at_urgent(&self) -> bool {
        self.urgent.get().is_some_and(|urgent| urgent.at == self.taken.get())
    }

    /// Where urgent bytes lie that come from now on.
    pub fn set_urgent_place(&self, place: UrgentPlace) {
        self.urgent_place.set(place);
    }

    /// Nothing more comes, for this reason.
    pub fn fail(&self, error: Errno) {
        self.error.set(Some(error));
        self.for_bytes.wake();
    }

    /// Why nothing more comes, if nobody was told yet.
    pub fn take_error(&self) -> Option<Errno> {
        self.error.take()
    }

    /// Bytes in it.
    pub fn len(&self) -> usize {
        self.bytes.borrow().len()
    }

    /// Bytes that can be read: of packets, the first one's.
    pub fn unread(&self) -> usize {
        match &self.packets {
            Some(packets) => packets.lengths.borrow().front().copied().unwrap_or(0),
            None => self.len(),
        }
    }

    /// What who reads can do.
    pub fn readable(&self) -> Events {
        let is_urgent = self.urgent.get().is_some_and(|urgent| urgent.byte.is_some());
        let error = self.error.get().is_some();
        Events::IN
            .when(self.has_any() || error)
            .with(Events::HANG_UP.when(self.is_finished()))
            .with(Events::URGENT.when(is_urgent))
            .with(Events::ERROR.when(error))
    }

    /// What who writes can do.
    pub fn writable(&self) -> Events {
        let is_over = self.is_unread();
        let has_room = match &self.packets {
            Some(_) => self.room_for(0).is_ok(),
            None => self.room() >= ATOMIC_BYTES,
        };
        Events::OUT.when(has_room || is_over).with(Events::ERROR.when(is_over))
    }

    /// Wakes when what is readable may be more.
    pub fn wake_for_bytes(&self, waker: &Waker) {
        self.for_bytes.add(waker);
    }

    /// Wakes when what is writable may be more.
    pub fn wake_for_room(&self, waker: &Waker) {
        self.for_room.add(waker);
    }

    /// Whether nobody writes any more.
    pub fn is_finished(&self) -> bool {
        self.writers.get() == 0
    }

    /// Whether nobody reads any more.
    pub fn is_unread(&self) -> bool {
        self.readers.get() == 0
    }

    /// One more or one less reads.
    pub(super) fn count_readers(&self, change: i32) {
        self.readers.update(|count| count.saturating_add_signed(change));
        self.for_room.wake();
    }

    /// One more or one less writes.
    pub(super) fn count_writers(&self, change: i32) {
        self.writers.update(|count| count.saturating_add_signed(change));
        self.for_bytes.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::super::flight::Flights;
    use super::super::pipe::pipe;
    use super::*;
    use crate::memory::tests::{START, memory};
    use crate::memory::{MappedRegion, Rights, Where};
    use linux_raw_sys::general::O_RDONLY;

    #[test]
    fn what_goes_along_comes_with_its_bytes_and_no_later_ones() {
        let (reader, writer) = pipe();
        let passed = Description::of(pipe().0, O_RDONLY);
        let flights = Rc::<Flights>::default();
        let with = |bytes: &'static [u8], attached: &[Rc<Description>]| {
            let flight = flights.begin(0, 9, attached.to_vec()).expect("few");
            let attached = Some(&flight).filter(|flight| !flight.descriptors().is_empty());
            writer.buffer().write_message(&Outgoing { attached, ..Outgoing::plain(bytes) }).expect("room")
        };
        with(b"ab", &[]);
        with(b"cd", core::slice::from_ref(&passed));
        with(b"ef", &[passed.clone(), passed.clone()]);
        assert_eq!(Rc::strong_count(&passed), 4);
        let mut bytes = [0; 16];
        let received = reader.buffer().read_message(&mut bytes).expect("bytes");
        assert_eq!((&bytes[..received.count], received.attached.len()), (&b"abcd"[..], 1));
        drop(received);
        assert_eq!(reader.buffer().read(&mut [0; 1]), Ok(1));
        assert_eq!(Rc::strong_count(&passed), 1, "what nobody asked for is closed");
        assert_eq!(reader.buffer().read(&mut [0; 9]), Ok(1));
    }

    #[test]
    fn packets_are_read_whole_or_cut_and_may_be_empty() {
        let buffer = Buffer::of_packets(usize::MAX);
        buffer.count_readers(1);
        buffer.count_writers(1);
        for packet in [&b"first"[..], b"", b"third"] {
            buffer.write(packet).expect("room");
        }
        let mut target = [0; 3];
        let mut read = || buffer.read_message(&mut target).map(|received| (received.count, received.whole));
        assert_eq!(read().ok(), Some((3, 5)));
        assert_eq!(read().ok(), Some((0, 0)));
        assert_eq!(read().ok(), Some((3, 5)));
        assert_eq!(read().err(), Some(Errno::EAGAIN));
        assert_eq!(buffer.write(&[0; PACKETS_BYTES]), Err(Errno::EMSGSIZE));
    }

    #[test]
    fn what_cannot_be_put_where_it_is_wanted_stays() {
        const PAGE: u64 = crate::memory::PAGE;
        let (_, memory) = memory(1, 9);
        let zeros = MappedRegion::zeros(Rights::READ_WRITE);
        memory.map(Where::At(START), PAGE, zeros).expect("room");
        let (buffers, end) = (Rc::default(), START + PAGE);
        for (buffer, name) in [(Buffer::default(), "bytes"), (Buffer::of_packets(9), "a packet")] {
            buffer.count_readers(1);
            buffer.count_writers(1);
            let read = |pieces: &[(u64, u64)]| buffer.read_to(&Destination::of(&memory, &buffers, pieces));
            assert_eq!(read(&[(8, 4)]), Err(Errno::EAGAIN), "{name}: nothing is there");
            // They lie in two parts then.
            buffer.write(&[7; PIPE_BYTES - 10]).expect("room");
            buffer.read(&mut [0; PIPE_BYTES]).expect("bytes");
            buffer.write(b"0123456789abcdef").expect("room");
            for pieces in [&[(8, 16)][..], &[(end - 15, 16)], &[(START, 15), (end, 1)]] {
                assert_eq!(read(pieces), Err(Errno::EFAULT), "{name} at {pieces:x?}");
            }
            assert_eq!(read(&[(START, 3), (START + 8, 13)]), Ok(16), "{name}");
            let mut found = [0; 21];
            memory.read(START, &mut found).expect("it is mapped");
            assert_eq!(&found, b"012\0\0\0\0\x003456789abcdef", "{name}");
            assert_eq!((read(&[(8, 1)]), buffer.room() > 0), (Err(Errno::EAGAIN), true));
        }
    }

    #[test]
    fn the_urgent_byte_lies_apart_and_reading_stops_before_it() {
        let (reader, writer) = pipe();
        let urgent = Outgoing { is_urgent: true, ..Outgoing::plain(b"ab!") };
        writer.buffer().write_message(&urgent).expect("room");
        writer.buffer().write(b"cd").expect("room");
        let (buffer, mut bytes) = (reader.buffer(), [0; 16]);
        assert_eq!(buffer.readable().of(Events::URGENT), Events::URGENT);
        assert_eq!((buffer.is_at_urgent(), buffer.read(&mut bytes)), (false, Ok(2)));
        assert_eq!((buffer.is_at_urgent(), buffer.take_urgent(&mut bytes, Peeking::Take)), (true, Ok(1)));
        assert_eq!((bytes[0], buffer.take_urgent(&mut bytes, Peeking::Take)), (b'!', Err(Errno::EINVAL)));
        assert_eq!((buffer.read(&mut bytes), &bytes[..2]), (Ok(2), &b"cd"[..]));
        buffer.set_urgent_place(UrgentPlace::Among);
        writer.buffer().write_message(&urgent).expect("room");
        assert_eq!((buffer.read(&mut bytes), buffer.is_at_urgent()), (Ok(2), true));
        assert_eq!((buffer.read(&mut bytes), bytes[0]), (Ok(1), b'!'));
    }
}
