//! One queue pair, for one core.

use super::counters::Counters;
use super::receive::Receiver;
use super::shared::Shared;
use super::transmit::Transmitter;
use super::{LaneSetup, Options};
use crate::error::{Error, Result};
use crate::memory::{DmaBuffer, Slot};
use crate::pool::Pool;
use crate::queue::Errors;
use crate::transport;
use alloc::sync::Arc;
use nom_port::buffer::{Buffers, Slice, Trimmed};
use nom_port::device::{Dma, PciFunction, Registers};
use nom_port::nic::{Nic, Outgoing, Properties, Received, RingFull};
use nom_port::world::Clock;

/// The two queues of a pair.
#[derive(Debug)]
pub(super) struct Lanes {
    pub receive: LaneSetup,
    pub transmit: LaneSetup,
}

/// What all pairs of a device have in common.
#[derive(Debug)]
pub(super) struct Common<R: Registers> {
    pub shared: Arc<Shared<R>>,
    pub options: Options,
    pub properties: Properties,
}

impl<R: Registers> Clone for Common<R> {
    fn clone(&self) -> Common<R> {
        Common { shared: self.shared.clone(), ..*self }
    }
}

/// The interrupt of a queue pair, which has to be bound where the pair's core is.
#[derive(Clone, Debug)]
pub struct Interrupt<F> {
    function: F,
    vector: u16,
}

impl<F: PciFunction> Interrupt<F> {
    /// Has the running core woken, by bit `bit`. An interrupt that came while this was bound nowhere may be
    /// lost: whoever waits for one looks at the pair before.
    ///
    /// # Errors
    /// If the world refuses.
    pub fn bind(&mut self, bit: u8) -> Result<()> {
        Ok(self.function.bind_interrupt(self.vector, bit)?)
    }
}

/// A queue pair on its way to the core that it will belong to.
#[derive(Debug)]
pub struct PairSetup<F: PciFunction, D> {
    lanes: Lanes,
    common: Common<F::Registers>,
    interrupt: Interrupt<F>,
    world: D,
}

impl<F: PciFunction, D: Dma> PairSetup<F, D> {
    pub(super) fn new(
        number: u16,
        lanes: Lanes,
        common: Common<F::Registers>,
        function: F,
        world: D,
    ) -> PairSetup<F, D> {
        PairSetup { lanes, common, interrupt: Interrupt { function, vector: number }, world }
    }

    /// Its number, from 0 on.
    pub fn number(&self) -> u16 {
        self.interrupt.vector
    }

    /// Its interrupt, for a core that does not stay where it is.
    pub fn interrupt(&self) -> Interrupt<F>
    where
        F: Clone,
    {
        self.interrupt.clone()
    }

    /// What the device is.
    pub fn properties(&self) -> Properties {
        self.common.properties
    }

    /// Makes it the queue pair of this core, whose interrupts are bit `bit` of the core's wake-ups. It begins
    /// by polling.
    ///
    /// # Errors
    /// If the world binds no interrupt or has no memory.
    pub fn start<C: Clock>(mut self, clock: C, bit: u8) -> Result<QueuePair<F::Registers, D, C>> {
        self.interrupt.bind(bit)?;
        let Common { shared, options, properties } = self.common;
        let features = shared.features;
        // The device may have been reset since it was brought up.
        let epoch = shared.take(self.interrupt.vector, &mut self.lanes);
        let mut pool = Pool::new(self.world, options.memory_bytes);
        let indirect = features & transport::feature::INDIRECT != 0;
        let (receive, transmit) = (self.lanes.receive.lane()?, self.lanes.transmit.lane()?);
        let transmitter = Transmitter::new(transmit, indirect, properties.offloads, &mut pool);
        let mut pair = QueuePair {
            receiver: Receiver::new(receive, features, properties.mtu, options.receive_buffers),
            transmitter: transmitter.ok_or(Error::OutOfMemory)?,
            pool,
            number: self.interrupt.vector,
            lanes: self.lanes,
            epoch,
            shared,
            clock,
            properties,
            counters: Counters::default(),
            is_interrupting: false,
            on_failure: |_| {},
        };
        pair.refill();
        match pair.counters.refilled_buffers {
            0 => Err(Error::OutOfMemory),
            _ => Ok(pair),
        }
    }
}

/// A queue pair of a network device. It stays on its core.
#[derive(Debug)]
pub struct QueuePair<R: Registers, D, C> {
    // Dropped last, by which the device is reset when no pair is left.
    receiver: Receiver,
    transmitter: Transmitter,
    pool: Pool<D>,
    pub(super) clock: C,
    properties: Properties,
    counters: Counters,
    number: u16,
    /// Where its queues lie.
    lanes: Lanes,
    /// The reset since which they are the device's.
    epoch: u64,
    /// Whether it sleeps on interrupts rather than polls.
    is_interrupting: bool,
    on_failure: fn(Error),
    shared: Arc<Shared<R>>,
}

impl<R: Registers, D: Dma, C: Clock> QueuePair<R, D, C> {
    /// What happened so far.
    pub fn counters(&self) -> Counters {
        let mut counters = self.counters;
        for errors in [self.receiver.errors(), self.transmitter.errors()] {
            counters.error_identifier_out_of_range += errors.identifier_out_of_range;
            counters.error_identifier_not_lent += errors.identifier_not_lent;
            counters.error_overrun += errors.overrun;
        }
        counters
    }

    /// Has `on_failure` told when the device has broken and no reset helps, or not for long: no frame comes
    /// or goes any more. It is found out before the core sleeps, each time, so `on_failure` had better not
    /// return.
    pub fn on_failure(self, on_failure: fn(Error)) -> Self {
        QueuePair { on_failure, ..self }
    }

    /// Looks whether the device has broken. It interrupts for that (section 2.1.2), but one interrupt may
    /// have told of a frame and of that: whoever sleeps without a look at the status, slow as it is to read,
    /// may sleep for good.
    fn failure(&self) -> Option<Error> {
        if [self.receiver.errors(), self.transmitter.errors()] != [Errors::default(); 2] {
            return Some(Error::BrokeRules);
        }
        self.shared.transport.is_broken().then_some(Error::NeedsReset)
    }

    /// Resets the device, which broke by `cause`, and goes on with it.
    #[cold]
    fn reset(&mut self, cause: Error) {
        match self.shared.reset(self.epoch, self.clock.now_ns(), cause) {
            Err(error) => return (self.on_failure)(error),
            Ok(by_us) => self.counters.resets += u64::from(by_us),
        }
        self.restart();
    }

    /// Goes on with new queues after a reset, of which the device has forgotten the old ones: all that it had
    /// comes back.
    #[cold]
    fn restart(&mut self) {
        self.counters = self.counters();
        self.epoch = self.shared.take(self.number, &mut self.lanes);
        let Lanes { receive, transmit } = &mut self.lanes;
        // Their memory was large enough when it was laid out.
        if let (Ok(receive), Ok(transmit)) = (receive.lane(), transmit.lane()) {
            let chains = self.receiver.restart(receive) + self.transmitter.restart(transmit);
            self.counters.reset_chains += chains as u64;
        }
    }

    /// Frees what the device has read, and gives it buffers for those that it has filled.
    #[inline]
    fn refill(&mut self) {
        if self.shared.epoch() != self.epoch {
            self.restart();
        }
        self.receiver.refill(&mut self.pool, &self.shared, &mut self.counters);
    }

    /// A slot of at least `bytes` to send from.
    #[inline]
    fn slot(&mut self, bytes: usize) -> Option<Slot> {
        self.pool.take(bytes).or_else(|| self.late_slot(bytes))
    }

    /// The same once the device has given back what it has read.
    #[cold]
    fn late_slot(&mut self, bytes: usize) -> Option<Slot> {
        self.transmitter.reclaim();
        let slot = self.pool.take(bytes);
        // What is sent is kept until its receipt is acknowledged: the device must be able to hear that.
        if slot.is_none() && self.receiver.has_enough() { self.pool.take_received(bytes) } else { slot }
    }
}

impl<R: Registers, D: Dma, C: Clock> Buffers for QueuePair<R, D, C> {
    type Buffer = DmaBuffer;

    #[inline]
    fn buffer(&mut self, bytes: &[u8]) -> Option<Slice<DmaBuffer>> {
        let mut slot = self.slot(bytes.len())?;
        slot.write(0, bytes);
        Some(Slice::new(slot.share(bytes.len() as u32)))
    }

    #[inline]
    fn blank(&mut self, len: usize) -> Option<Slice<DmaBuffer>> {
        self.slot(len).map(|slot| Slice::new(slot.share(len as u32)))
    }

    fn keep(&mut self, bytes: &[u8]) -> Option<Slice<DmaBuffer>> {
        self.pool.copy_to_keep(bytes).map(Slice::new)
    }

    fn trim(&mut self, keep_bytes: usize) -> Trimmed {
        self.transmitter.reclaim();
        self.pool.trim(keep_bytes)
    }
}

impl<R: Registers, D: Dma, C: Clock> Nic for QueuePair<R, D, C> {
    fn properties(&self) -> Properties {
        self.properties
    }

    #[inline]
    fn receive(&mut self) -> Option<Received<DmaBuffer>> {
        self.refill();
        self.receiver.next(&self.clock, &mut self.counters)
    }

    #[inline]
    fn is_idle(&self) -> bool {
        self.receiver.is_idle() && self.shared.epoch() == self.epoch
    }

    #[inline]
    fn room(&mut self) -> usize {
        self.transmitter.room()
    }

    #[inline]
    fn transmit(&mut self, frame: &mut Outgoing<DmaBuffer>) -> core::result::Result<(), RingFull> {
        self.transmitter.push(frame, &[], &mut self.pool, &mut self.counters)
    }

    #[inline]
    fn transmit_behind(
        &mut self,
        frame: &mut Outgoing<DmaBuffer>,
        short: &[u8],
    ) -> core::result::Result<(), RingFull> {
        self.transmitter.push(frame, short, &mut self.pool, &mut self.counters)
    }

    #[inline]
    fn kick(&mut self) {
        self.transmitter.kick(&self.shared.transport, &mut self.counters);
    }

    #[inline]
    fn now_ns(&self, _: u64) -> u64 {
        self.clock.now_ns()
    }

    fn counters(&self, count: &mut dyn FnMut(&'static str, u64)) {
        QueuePair::counters(self).named().for_each(|(name, value)| count(name, value));
    }

    fn arm(&mut self) -> bool {
        self.shared.transport.acknowledge();
        self.transmitter.reclaim();
        self.refill();
        let mut armed = self.transmitter.arm() && self.receiver.arm(&mut self.counters);
        if let Some(cause) = self.failure() {
            self.reset(cause);
            armed = false;
        }
        self.counters.switches_raced += u64::from(!armed);
        self.counters.switches_to_interrupts += u64::from(armed && !self.is_interrupting);
        self.is_interrupting |= armed;
        armed
    }

    fn disarm(&mut self) {
        self.receiver.disarm(&mut self.counters);
        self.transmitter.disarm();
        self.counters.switches_to_polling += u64::from(self.is_interrupting);
        self.is_interrupting = false;
    }
}
