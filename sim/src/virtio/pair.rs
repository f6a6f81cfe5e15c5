//! A queue pair whose buffers are counted as long as somebody holds them.

use crate::card::Tally;
use crate::host::HostClock;
use nom_port::buffer::{Buffer, Buffers, Chain, Slice, Trimmed};
use nom_port::nic::{Nic, Outgoing, Properties, Received, RingFull};
use nom_port::world::Clock as _;
use nom_virtio::memory::DmaBuffer;
use nom_virtio::net::QueuePair;
use nom_virtio_fake::{FakeMemory, FakeRegisters};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// What a pair counts.
#[derive(Debug, Default)]
pub struct Counts {
    /// Handles that somebody else than the driver holds.
    pub live: Cell<usize>,
    /// Packets and bytes that went to and from the stack.
    pub work: Cell<(u64, u64)>,
    /// What happened.
    pub tally: Cell<Tally>,
    /// When the packets were queued that the device was not told of.
    queued_ns: RefCell<Vec<u64>>,
}

impl Counts {
    /// Whether packets were queued that the device was not told of.
    pub fn holds(&self) -> bool {
        !self.queued_ns.borrow().is_empty()
    }
}

/// A buffer of the driver's.
#[derive(Debug)]
pub struct Tracked {
    buffer: DmaBuffer,
    counts: Rc<Counts>,
}

impl Tracked {
    fn new(buffer: DmaBuffer, counts: &Rc<Counts>) -> Tracked {
        counts.live.set(counts.live.get() + 1);
        Tracked { buffer, counts: counts.clone() }
    }
}

impl Clone for Tracked {
    fn clone(&self) -> Tracked {
        Tracked::new(self.buffer.clone(), &self.counts)
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.counts.live.set(self.counts.live.get() - 1);
    }
}

impl AsRef<[u8]> for Tracked {
    fn as_ref(&self) -> &[u8] {
        self.buffer.as_ref()
    }
}

impl Buffer for Tracked {
    fn pinned(&self) -> usize {
        self.buffer.pinned()
    }

    fn is_scarce(&self) -> bool {
        self.buffer.is_scarce()
    }

    fn is_sparse(&self) -> bool {
        self.buffer.is_sparse()
    }

    fn memory(&mut self) -> Option<&mut [u8]> {
        self.buffer.memory()
    }
}

/// A queue pair of the real driver.
pub struct Pair {
    driver: QueuePair<FakeRegisters, FakeMemory, HostClock>,
    clock: HostClock,
    counts: Rc<Counts>,
}

impl Pair {
    /// `driver`, with its buffers counted.
    pub fn new(
        driver: QueuePair<FakeRegisters, FakeMemory, HostClock>,
        clock: HostClock,
        counts: Rc<Counts>,
    ) -> Pair {
        Pair { driver, clock, counts }
    }

    fn track(&self, slice: Slice<DmaBuffer>) -> Slice<Tracked> {
        let range = slice.range();
        let mut tracked = Slice::new(Tracked::new(slice.into_buffer(), &self.counts));
        tracked.show(range);
        tracked
    }

    fn count(&self, bytes: usize) {
        let (packets, before) = self.counts.work.get();
        self.counts.work.set((packets + 1, before + bytes as u64));
    }
}

/// The driver's own handle, and the part that is meant.
fn untracked(slice: &Slice<Tracked>) -> Slice<DmaBuffer> {
    let mut own = Slice::new(slice.buffer().buffer.clone());
    own.show(slice.range());
    own
}

impl Buffers for Pair {
    type Buffer = Tracked;

    fn buffer(&mut self, bytes: &[u8]) -> Option<Slice<Tracked>> {
        let slice = self.driver.buffer(bytes)?;
        Some(self.track(slice))
    }

    fn keep(&mut self, bytes: &[u8]) -> Option<Slice<Tracked>> {
        let slice = self.driver.keep(bytes)?;
        Some(self.track(slice))
    }

    fn trim(&mut self, keep_bytes: usize) -> Trimmed {
        self.driver.trim(keep_bytes)
    }
}

impl Nic for Pair {
    fn properties(&self) -> Properties {
        self.driver.properties()
    }

    fn receive(&mut self) -> Option<Received<Tracked>> {
        let Received { frame, checksum, at_ns } = self.driver.receive()?;
        let frame: Chain<Tracked> = frame.into_iter().map(|slice| self.track(slice)).collect();
        self.count(frame.iter().map(Slice::len).sum());
        Some(Received { frame, checksum, at_ns })
    }

    fn room(&mut self) -> usize {
        self.driver.room()
    }

    fn transmit(&mut self, frame: &mut Outgoing<Tracked>) -> Result<(), RingFull> {
        let Outgoing { head, checksum, segmentation, tag, .. } = *frame;
        let payload = frame.payload.iter().map(untracked).collect();
        let mut own = Outgoing { head, payload, checksum, segmentation, tag };
        let bytes = frame.len();
        self.driver.transmit(&mut own)?;
        frame.payload.clear();
        self.count(bytes);
        self.counts.queued_ns.borrow_mut().push(self.clock.now_ns());
        Ok(())
    }

    fn kick(&mut self) {
        self.driver.kick();
        let mut tally = self.counts.tally.get();
        (tally.kicks, tally.kicked_ns) = (tally.kicks + 1, self.clock.now_ns());
        for at_ns in self.counts.queued_ns.take() {
            tally.packets += 1;
            tally.held_max_ns = tally.held_max_ns.max(tally.kicked_ns - at_ns);
        }
        self.counts.tally.set(tally);
    }

    fn arm(&mut self) -> bool {
        self.driver.arm()
    }

    fn disarm(&mut self) {
        self.driver.disarm();
    }

    fn is_idle(&self) -> bool {
        self.driver.is_idle()
    }

    fn now_ns(&self, told_ns: u64) -> u64 {
        self.driver.now_ns(told_ns)
    }

    fn counters(&self, count: &mut dyn FnMut(&'static str, u64)) {
        Nic::counters(&self.driver, count);
    }
}
