//! A queue pair that counts what a provider meters, and notes when requests arrive and replies depart.

use crate::payers::Payers;
use crate::stopwatch::Stopwatch;
use alloc::rc::Rc;
use nom_net::{Answer, Observed};
use nom_port::buffer::{Buffers, Slice, Trimmed, chain_len};
use nom_port::nic::{Label, Nic, Outgoing, Properties, Received, RingFull, Tag};
use nom_port::world::Clock;
use nom_service::OTHERS;

/// Frames that went through a queue pair. A frame that the device cuts counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Frames that came.
    pub received_frames: u64,
    /// Bytes of them, Ethernet headers included.
    pub received_bytes: u64,
    /// Frames that left.
    pub sent_frames: u64,
    /// Bytes of them, Ethernet headers included.
    pub sent_bytes: u64,
    /// Bytes of answers to users, as these read them: without headers, and once, however often they are sent.
    pub answered_bytes: u64,
}

impl core::ops::AddAssign for Traffic {
    fn add_assign(&mut self, other: Traffic) {
        self.received_frames += other.received_frames;
        self.received_bytes += other.received_bytes;
        self.sent_frames += other.sent_frames;
        self.sent_bytes += other.sent_bytes;
        self.answered_bytes += other.answered_bytes;
    }
}

/// A queue pair under measurement.
#[derive(Debug)]
pub struct Metered<N, C> {
    nic: N,
    clock: C,
    traffic: Traffic,
    /// Nothing, as long as nobody wants to know.
    stopwatch: Option<Stopwatch>,
    /// Time that a governor took so far.
    governing_ns: u64,
    /// If activities are told apart.
    payers: Option<Rc<Payers>>,
}

impl<N: Nic, C: Clock> Metered<N, C> {
    /// A queue pair whose frames are counted, but not timed.
    pub fn new(nic: N, clock: C) -> Metered<N, C> {
        Metered { nic, clock, traffic: Traffic::default(), stopwatch: None, governing_ns: 0, payers: None }
    }

    /// Times requests from now on, if it did not already.
    pub(crate) fn start(&mut self) {
        let now_ns = self.clock.now_ns();
        self.stopwatch.get_or_insert_with(|| Stopwatch::new(now_ns));
    }

    /// Charges activities with what is done from now on.
    pub(crate) fn charge_to(&mut self, payers: Rc<Payers>) {
        self.payers = Some(payers);
    }

    /// Who pays, if activities are told apart.
    #[inline]
    pub(crate) fn payers(&self) -> Option<&Rc<Payers>> {
        self.payers.as_ref()
    }

    /// The queue pair.
    pub fn nic(&self) -> &N {
        &self.nic
    }

    /// Frames so far.
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Whether somebody wants to know how long requests take.
    #[inline]
    pub(crate) fn is_measuring(&self) -> bool {
        self.stopwatch.is_some()
    }

    /// A frame of so many bytes is queued.
    #[inline]
    fn sent(&mut self, bytes: usize, tag: Option<Tag>) {
        self.traffic.sent_frames += 1;
        self.traffic.sent_bytes += bytes as u64;
        if let Some(payers) = &self.payers {
            payers.frame_leaves(bytes as u64);
        }
        if let (Some(stopwatch), Some(tag)) = (&mut self.stopwatch, tag) {
            let activity = self.payers.as_ref().map_or(OTHERS, |payers| payers.present());
            stopwatch.queue(Answer::of(tag), activity);
        }
    }

    /// Users are answered so many bytes.
    #[inline]
    pub(crate) fn answer(&mut self, bytes: usize) {
        self.traffic.answered_bytes += bytes as u64;
    }

    /// Has a governor think, and counts the time that it takes.
    pub(crate) fn governing<R>(&mut self, think: impl FnOnce() -> R) -> R {
        let begin_ns = self.clock.now_ns();
        let thought = match self.payers.clone() {
            Some(payers) => payers.governing(think),
            None => think(),
        };
        self.governing_ns += self.clock.now_ns().saturating_sub(begin_ns);
        thought
    }

    /// Time that a governor took so far.
    pub fn governing_ns(&self) -> u64 {
        self.governing_ns
    }

    /// The times that were taken, if somebody wants to know.
    #[inline]
    pub(crate) fn stopwatch(&mut self) -> Option<&mut Stopwatch> {
        self.stopwatch.as_mut()
    }
}

impl<N: Nic, C: Clock> Buffers for Metered<N, C> {
    type Buffer = N::Buffer;

    fn buffer(&mut self, bytes: &[u8]) -> Option<Slice<N::Buffer>> {
        self.nic.buffer(bytes)
    }

    fn blank(&mut self, len: usize) -> Option<Slice<N::Buffer>> {
        self.nic.blank(len)
    }

    fn keep(&mut self, bytes: &[u8]) -> Option<Slice<N::Buffer>> {
        self.nic.keep(bytes)
    }

    fn trim(&mut self, keep_bytes: usize) -> Trimmed {
        self.nic.trim(keep_bytes)
    }
}

impl<N: Nic, C: Clock> Observed for Metered<N, C> {
    #[inline]
    fn arrived(&mut self, flow: u32, at_ns: u64) {
        if let Some(stopwatch) = &mut self.stopwatch {
            stopwatch.arrive(flow as usize, at_ns);
        }
    }

    #[inline]
    fn answered(&mut self, bytes: usize) {
        self.answer(bytes);
    }
}

impl<N: Nic, C: Clock> Nic for Metered<N, C> {
    #[inline]
    fn properties(&self) -> Properties {
        self.nic.properties()
    }

    #[inline]
    fn receive(&mut self) -> Option<Received<N::Buffer>> {
        let Some(received) = self.nic.receive() else {
            if let Some(payers) = &self.payers {
                payers.settle();
            }
            return None;
        };
        let bytes = chain_len(&received.frame) as u64;
        self.traffic.received_frames += 1;
        self.traffic.received_bytes += bytes;
        if let Some(payers) = &self.payers {
            payers.frame_came(bytes);
        }
        Some(received)
    }

    #[inline]
    fn is_idle(&self) -> bool {
        self.nic.is_idle()
    }

    #[inline]
    fn room(&mut self) -> usize {
        self.nic.room()
    }

    #[inline]
    fn transmit(&mut self, frame: &mut Outgoing<N::Buffer>) -> Result<(), RingFull> {
        let bytes = frame.len();
        self.nic.transmit(frame)?;
        self.sent(bytes, frame.tag);
        Ok(())
    }

    #[inline]
    fn transmit_behind(&mut self, frame: &mut Outgoing<N::Buffer>, short: &[u8]) -> Result<(), RingFull> {
        let bytes = frame.len() + short.len();
        self.nic.transmit_behind(frame, short)?;
        self.sent(bytes, frame.tag);
        Ok(())
    }

    #[inline]
    fn attribute(&mut self, label: Label) {
        if let Some(payers) = &self.payers {
            payers.attribute(label);
        }
    }

    #[inline]
    fn held_at_most_ns(&self) -> Option<u64> {
        self.payers.as_ref()?.held_at_most_ns()
    }

    #[inline]
    fn kick(&mut self) {
        // Before the device is told: telling it may take as long as the way there. The clock is read once for
        // all replies that depart together.
        if let Some(stopwatch) = &mut self.stopwatch
            && stopwatch.has_queued()
        {
            stopwatch.depart(self.clock.now_ns());
        }
        self.nic.kick();
    }

    #[inline]
    fn now_ns(&self, told_ns: u64) -> u64 {
        self.nic.now_ns(told_ns)
    }

    fn counters(&self, count: &mut dyn FnMut(&'static str, u64)) {
        self.nic.counters(count);
    }

    fn arm(&mut self) -> bool {
        self.nic.arm()
    }

    fn disarm(&mut self) {
        self.nic.disarm();
    }
}
