//! The sending half of a queue pair.

use super::counters::Counters;
use super::{Lane, header};
use crate::memory::{DmaBuffer, Slot};
use crate::pool::Pool;
use crate::queue::{Descriptor, Errors, TABLE_ENTRY};
use crate::transport::Transport;
use alloc::boxed::Box;
use alloc::vec::Vec;
use nom_port::buffer::{Chain, Slice};
use nom_port::device::{Dma, Registers};
use nom_port::nic::{HEAD_MAX, Offloads, Outgoing, RingFull, gather};

/// Where a frame's first byte lies in its header slot: aligned, with the device's header right in front.
const FRAME_AT: usize = 16;
const HEADER_AT: usize = FRAME_AT - header::BYTES;
/// Heads are copied by so many bytes, for which the compiler needs no loop.
const HEAD_PIECE: usize = 48;
const _: () = assert!(HEAD_MAX.is_multiple_of(HEAD_PIECE), "all of a head is copied by pieces");
/// Bytes of a header slot.
const SLOT_BYTES: usize = FRAME_AT + HEAD_MAX;
/// Descriptors that every frame may take: the headers and one slice, or a table of all.
const DESCRIPTORS: usize = 2;
/// The longest frame: an IP packet of 64 KiB behind an Ethernet header with a VLAN tag.
const FRAME_MAX: usize = 65535 + 18;

type Frame = Outgoing<DmaBuffer>;

/// What the device reads of one frame; kept until it has.
#[derive(Debug)]
pub(super) enum Sent {
    /// Its headers alone.
    Bare,
    /// A payload in one piece, as nearly all are.
    Whole { _payload: DmaBuffer },
    /// Several pieces, and the table that lists them.
    Pieces { _kept: Box<(Chain<DmaBuffer>, Option<Slot>)> },
}

/// The sending half: frames that the device is to read.
#[derive(Debug)]
pub(super) struct Transmitter {
    lane: Lane<Sent>,
    /// For each chain by its number: the device's header and the frame's headers.
    heads: Box<[Slot]>,
    /// Whether the device reads tables of descriptors.
    indirect: bool,
    offloads: Offloads,
    /// Frames that the device was not told about.
    queued: u32,
    /// Whether the stack was told that there is no room.
    is_blocked: bool,
}

impl Transmitter {
    /// `None` if there is no memory for the headers.
    pub(super) fn new<D: Dma>(
        mut lane: Lane<Sent>,
        indirect: bool,
        offloads: Offloads,
        pool: &mut Pool<D>,
    ) -> Option<Transmitter> {
        lane.queue.disarm();
        let heads = (0..lane.queue.free()).map(|_| pool.take(SLOT_BYTES)).collect::<Option<_>>()?;
        Some(Transmitter { lane, heads, indirect, offloads, queued: 0, is_blocked: false })
    }

    /// Lets go of the frames that the device has read.
    #[inline]
    pub(super) fn reclaim(&mut self) {
        while let Some((sent, _)) = self.lane.queue.pop() {
            drop(sent);
        }
    }

    /// As `Nic::room`.
    #[inline]
    pub(super) fn room(&mut self) -> usize {
        self.reclaim();
        let room = self.lane.queue.free() / DESCRIPTORS;
        self.is_blocked |= room == 0;
        room
    }

    /// As `Nic::transmit_behind`, with nothing as `Nic::transmit`.
    #[inline]
    pub(super) fn push<D: Dma>(
        &mut self,
        frame: &mut Frame,
        short: &[u8],
        pool: &mut Pool<D>,
        counters: &mut Counters,
    ) -> core::result::Result<(), RingFull> {
        let bytes = frame.len() + short.len();
        if bytes == 0 || bytes > FRAME_MAX {
            counters.refused_length += 1;
            return Ok(());
        }
        if !self.offers(frame) {
            counters.refused_offload += 1;
            return Ok(());
        }
        if !self.lend(frame, short, pool, counters) {
            self.is_blocked = true;
            counters.ring_full += 1;
            return Err(RingFull);
        }
        self.queued += 1;
        counters.sent_frames += 1;
        counters.sent_bytes += bytes as u64;
        Ok(())
    }

    /// Whether the device does what the frame leaves to it; cutting a segment takes finishing checksums.
    #[inline]
    fn offers(&self, frame: &Frame) -> bool {
        let Offloads { checksum, segment_tcp4, segment_tcp6 } = self.offloads;
        let segments = frame.segmentation.is_none_or(|segmentation| {
            frame.checksum.is_some() && if segmentation.is_ipv6 { segment_tcp6 } else { segment_tcp4 }
        });
        segments && (checksum || frame.checksum.is_none())
    }

    /// Lends a frame to the device; `false` if there are too few descriptors.
    #[inline]
    fn lend<D: Dma>(
        &mut self,
        frame: &mut Frame,
        short: &[u8],
        pool: &mut Pool<D>,
        counters: &mut Counters,
    ) -> bool {
        if self.lane.queue.free() < DESCRIPTORS {
            self.reclaim();
        }
        let Some(id) = self.lane.queue.next_id() else { return false };
        let head = self.write_head(id, frame, short);
        // Short payloads were copied behind the headers.
        if frame.payload.is_empty() {
            return self.lane.queue.push_one(head, Sent::Bare).is_ok();
        }
        // Nearly all others are in one piece.
        if let [slice] = &frame.payload[..]
            && !slice.is_empty()
            && self.lane.queue.free() >= DESCRIPTORS
        {
            let slice = readable(slice);
            let sent = frame.payload.pop().map(|slice| Sent::Whole { _payload: slice.into_buffer() });
            return self.lane.queue.push(&[head, slice], sent.expect("there is one")).is_ok();
        }
        let (count, first) = (slices(frame).count(), slices(frame).next().map(readable));
        match first {
            None => self.give(&[head], frame, None),
            Some(slice) if count == 1 => self.give(&[head, slice], frame, None),
            Some(_) => self.lend_many(head, count + 1, frame, pool, counters),
        }
    }

    /// Writes the headers of chain `id`, and what stands behind them.
    #[inline]
    fn write_head(&mut self, id: u16, frame: &Frame, short: &[u8]) -> Descriptor {
        let slot = &mut self.heads[usize::from(id)];
        let len = frame.head.len();
        let place: &mut [u8; SLOT_BYTES] = slot.memory().first_chunk_mut().expect("a slot of that size");
        let header = header::outgoing(frame.checksum, frame.segmentation, len);
        place[HEADER_AT..FRAME_AT].copy_from_slice(&header);
        // Whatever is behind the head is not sent.
        let (from, _) = frame.head.storage().as_chunks::<HEAD_PIECE>();
        let (to, _) = place[FRAME_AT..].as_chunks_mut::<HEAD_PIECE>();
        for (to, from) in to.iter_mut().zip(from).take(len.div_ceil(HEAD_PIECE)) {
            *to = *from;
        }
        place[FRAME_AT + len..][..short.len()].copy_from_slice(short);
        Descriptor::readable(slot.bus() + HEADER_AT as u64, (header::BYTES + len + short.len()) as u32)
    }

    /// Lends a frame of `count` descriptors: in a table if the device reads tables, and copied together if
    /// they are more than a chain may have (section 2.7.5.3.1).
    fn lend_many<D: Dma>(
        &mut self,
        head: Descriptor,
        count: usize,
        frame: &mut Frame,
        pool: &mut Pool<D>,
        counters: &mut Counters,
    ) -> bool {
        if count > self.heads.len() {
            let Some(copy) = pool.copy(&gather(&frame.payload)) else { return false };
            frame.payload = Chain::from_iter([Slice::new(copy)]);
            counters.sent_copied += 1;
            return self.give(&[head, readable(&frame.payload[0])], frame, None);
        }
        if !self.indirect {
            let chain: Vec<_> = descriptors(head, frame).collect();
            return self.give(&chain, frame, None);
        }
        let Some(table) = self.list(head, count, frame, pool) else { return false };
        counters.sent_indirect += 1;
        self.give(&[Descriptor::indirect(table.bus(), count as u32)], frame, Some(table))
    }

    fn list<D: Dma>(
        &self,
        head: Descriptor,
        count: usize,
        frame: &Frame,
        pool: &mut Pool<D>,
    ) -> Option<Slot> {
        let mut table = pool.take(count * TABLE_ENTRY)?;
        for (index, descriptor) in descriptors(head, frame).enumerate() {
            let entry = self.lane.queue.table_entry(descriptor, index, index + 1 == count);
            table.write(index * TABLE_ENTRY, &entry);
        }
        Some(table)
    }

    /// Pushes a chain and takes the frame's payload; `false` if there are too few descriptors.
    #[inline]
    fn give(&mut self, chain: &[Descriptor], frame: &mut Frame, table: Option<Slot>) -> bool {
        if self.lane.queue.free() < chain.len() {
            return false;
        }
        let sent = match (frame.payload.len(), table) {
            (0, None) => Sent::Bare,
            (1, None) => {
                frame.payload.pop().map_or(Sent::Bare, |slice| Sent::Whole { _payload: slice.into_buffer() })
            }
            (_, table) => Sent::Pieces { _kept: Box::new((core::mem::take(&mut frame.payload), table)) },
        };
        let pushed = self.lane.queue.push(chain, sent);
        assert!(pushed.is_ok(), "a chain of {} does not fit", chain.len());
        true
    }

    /// As `Nic::kick`.
    #[inline]
    pub(super) fn kick<R: Registers>(&mut self, transport: &Transport<R>, counters: &mut Counters) {
        if core::mem::take(&mut self.queued) == 0 {
            return;
        }
        counters.sent_batches += 1;
        if self.lane.queue.publish() {
            counters.kicks += 1;
            transport.notify(self.lane.doorbell);
        } else {
            counters.kicks_suppressed += 1;
        }
        self.reclaim();
    }

    /// Asks for an interrupt when there is room again, if the stack waits for that. `false` if there is room
    /// already.
    pub(super) fn arm(&mut self) -> bool {
        if !self.is_blocked {
            return true;
        }
        self.is_blocked = false;
        if self.room() > 0 || !self.lane.queue.arm() {
            self.lane.queue.disarm();
            return false;
        }
        true
    }

    /// Asks for no more interrupts.
    pub(super) fn disarm(&mut self) {
        self.lane.queue.disarm();
    }

    /// Goes on with another queue, as the device that had the old one was reset. Returns how many frames it
    /// had, which are lost.
    pub(super) fn restart(&mut self, mut lane: Lane<Sent>) -> usize {
        lane.queue.disarm();
        (self.queued, self.is_blocked) = (0, false);
        core::mem::replace(&mut self.lane, lane).queue.lent()
    }

    pub(super) fn errors(&self) -> Errors {
        self.lane.queue.errors()
    }
}

/// The slices of a frame that are not empty: no descriptor may be (section 2.7.5.1).
#[inline]
fn slices(frame: &Frame) -> impl Iterator<Item = &Slice<DmaBuffer>> {
    frame.payload.iter().filter(|slice| !slice.range().is_empty())
}

fn descriptors(head: Descriptor, frame: &Frame) -> impl Iterator<Item = Descriptor> {
    core::iter::once(head).chain(slices(frame).map(readable))
}

#[inline]
fn readable(slice: &Slice<DmaBuffer>) -> Descriptor {
    let range = slice.range();
    Descriptor::readable(slice.buffer().bus() + range.start as u64, range.len() as u32)
}
