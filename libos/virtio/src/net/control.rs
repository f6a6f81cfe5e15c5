//! The device as a whole: link state, and commands on the control queue (section 5.1.6.5).

use super::rss::{self, Rss};
use super::shared::{OnReset, Shared};
use super::{Config, Lane, LaneSetup, feature};
use crate::error::{Error, Result};
use crate::memory::{FreeList, Slot};
use crate::queue::Descriptor;
use crate::transport::Transport;
use alloc::sync::Arc;
use alloc::vec::Vec;
use nom_port::device::{DmaBlock, Registers};

/// A command's class and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Command(pub u8, pub u8);

const PROMISCUOUS: Command = Command(0, 0);
const ALL_MULTICAST: Command = Command(0, 1);
const SET_MAC: Command = Command(1, 1);
const SET_PAIRS: Command = Command(4, 0);

/// The device's answer to a command that it carried out.
const OK: u8 = 0;
/// Anything else, for the answer's byte before the device writes it.
const NO_ANSWER: u8 = 0xff;
/// Class, number and at most so many bytes of data, a table of 128 places and a key; then the answer.
pub(super) const DATA_MAX: usize = 320;
const ANSWER_AT: usize = 2 + DATA_MAX;
const SLOT_BYTES: u32 = 512;
/// Memory for commands.
pub(super) const BYTES: usize = SLOT_BYTES as usize;
/// Looks at the queue before a device is given up: some seconds.
const PATIENCE: u32 = 200_000_000;
/// Looks after which it is asked whether it has broken.
const ASKED: u32 = 1 << 16;
/// Bit of the configuration's status (section 5.1.4).
const LINK_UP: u16 = 1;

/// The control queue: one command at a time.
#[derive(Debug)]
pub(super) struct Control {
    setup: LaneSetup,
    lane: Lane<()>,
    /// The command that the device carries out. It stays the device's if it never answers, until a reset.
    slot: Slot,
    /// The last command of each kind that was carried out, with its data.
    done: Vec<(Command, Vec<u8>)>,
}

impl Control {
    pub(super) fn new(mut setup: LaneSetup, memory: DmaBlock) -> Result<Control> {
        let mut lane = setup.lane()?;
        lane.queue.disarm();
        let mut list = FreeList::default();
        list.add(memory, SLOT_BYTES);
        Ok(Control { setup, lane, slot: list.take().ok_or(Error::OutOfMemory)?, done: Vec::new() })
    }

    /// Tells the device, which was reset, where the queue lies.
    pub(super) fn enable<R: Registers>(&mut self, transport: &Transport<R>) -> Result<()> {
        self.setup.enable(transport)?;
        self.lane = self.setup.lane()?;
        self.lane.queue.disarm();
        Ok(())
    }

    /// Has the device carry out all that it did before it was reset.
    pub(super) fn repeat<R: Registers>(&mut self, transport: &Transport<R>) -> Result<()> {
        let done = core::mem::take(&mut self.done);
        done.into_iter().try_for_each(|(command, data)| self.execute(transport, command, &data))
    }

    /// Has the device carry out a command and waits for its answer.
    fn execute<R: Registers>(
        &mut self,
        transport: &Transport<R>,
        command: Command,
        data: &[u8],
    ) -> Result<()> {
        let Command(class, number) = command;
        if self.lane.queue.lent() > 0 || self.lane.queue.free() < 2 || data.len() > DATA_MAX {
            return Err(Error::NoAnswer(class, number));
        }
        self.slot.write(0, &[class, number]);
        self.slot.write(2, data);
        self.slot.write(ANSWER_AT, &[NO_ANSWER]);
        let chain = [
            Descriptor::readable(self.slot.bus(), 2 + data.len() as u32),
            Descriptor::writable(self.slot.bus() + ANSWER_AT as u64, 1),
        ];
        let pushed = self.lane.queue.push(&chain, ());
        if pushed.is_ok() && self.lane.queue.publish() {
            transport.notify(self.lane.doorbell);
        }
        let goes_on = |look: &u32| look % ASKED != ASKED - 1 || !transport.is_broken();
        let answered = (0..PATIENCE).take_while(goes_on).any(|_| {
            core::hint::spin_loop();
            self.lane.queue.pop().is_some()
        });
        let mut answer = [NO_ANSWER];
        self.slot.read(ANSWER_AT, &mut answer);
        match answer {
            _ if !answered => Err(Error::NoAnswer(class, number)),
            [OK] => {
                self.done.retain(|(before, _)| *before != command);
                self.done.push((command, data.to_vec()));
                Ok(())
            }
            _ => Err(Error::CommandRefused(class, number)),
        }
    }
}

/// A network device as a whole. Its queue pairs go on without it.
#[derive(Debug)]
pub struct NetDevice<R: Registers> {
    shared: Arc<Shared<R>>,
    /// If it sends frames where a hash says.
    rss: Option<Rss>,
}

impl<R: Registers> NetDevice<R> {
    pub(super) fn new(shared: Arc<Shared<R>>, rss: Option<Rss>) -> NetDevice<R> {
        NetDevice { shared, rss }
    }

    /// Has `on_reset` called with the reason whenever the device has broken and was reset, on the core that
    /// found it broken. It wakes the cores of all other queue pairs: these begin anew as soon as they look
    /// for frames, and receive nothing before.
    pub fn on_reset(&mut self, on_reset: OnReset) {
        self.shared.on_reset(on_reset);
    }

    /// The features that were negotiated, as [`feature`] and [`crate::transport::feature`] name them.
    pub fn features(&self) -> u64 {
        self.shared.features
    }

    /// Whether the link is up; a device that does not say always is.
    ///
    /// # Errors
    /// [`Error::Unsettled`].
    pub fn is_link_up(&self) -> Result<bool> {
        let status = Config::read(&self.shared.transport)?.status;
        Ok(self.features() & feature::STATUS == 0 || status & LINK_UP != 0)
    }

    /// Whether frames to other stations are received too.
    ///
    /// # Errors
    /// If the device does not offer it, refuses or does not answer; so for all commands.
    pub fn set_promiscuous(&mut self, on: bool) -> Result<()> {
        self.execute(feature::CONTROL_RECEIVE, "receive modes", PROMISCUOUS, &[on.into()])
    }

    /// Whether frames to all groups of stations are received.
    ///
    /// # Errors
    /// As [`NetDevice::set_promiscuous`].
    pub fn set_all_multicast(&mut self, on: bool) -> Result<()> {
        self.execute(feature::CONTROL_RECEIVE, "receive modes", ALL_MULTICAST, &[on.into()])
    }

    /// Gives the device another address. Queue pairs go on telling the one they began with.
    ///
    /// # Errors
    /// As [`NetDevice::set_promiscuous`].
    pub fn set_mac(&mut self, mac: [u8; 6]) -> Result<()> {
        self.execute(feature::CONTROL_MAC, "a change of its address", SET_MAC, &mac)
    }

    /// Spreads what is received over the first `pairs` queue pairs: by a hash if the device has one,
    /// otherwise as it thinks best.
    ///
    /// # Errors
    /// As [`NetDevice::set_promiscuous`].
    pub fn set_pairs(&mut self, pairs: u16) -> Result<()> {
        if let Some(table) = self.rss.and_then(|rss| rss.spread(pairs)) {
            match self.execute(feature::RSS, "spreading by a hash", rss::CONFIGURE, &table) {
                // It offers what it cannot do, as QEMU may with a back end that has no hash.
                Err(Error::CommandRefused(..)) => self.rss = None,
                other => return other,
            }
        }
        self.execute(feature::MULTIQUEUE, "several queue pairs", SET_PAIRS, &pairs.to_le_bytes())
    }

    fn execute(&mut self, needed: u64, name: &'static str, command: Command, data: &[u8]) -> Result<()> {
        let transport = &self.shared.transport;
        match &mut *self.shared.control() {
            Some(control) if self.features() & needed != 0 => control.execute(transport, command, data),
            _ => Err(Error::NotOffered(name)),
        }
    }
}
