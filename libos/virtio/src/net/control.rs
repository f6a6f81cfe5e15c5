//! The device as a whole: link state, and commands on the control queue (section 5.1.6.5).

use super::{Config, Lane, feature};
use crate::error::{Error, Result};
use crate::memory::{FreeList, Slot};
use crate::queue::Descriptor;
use crate::transport::Transport;
use alloc::sync::Arc;
use nom_port::device::{DmaBlock, Registers};

/// A command's class and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Command(u8, u8);

const PROMISCUOUS: Command = Command(0, 0);
const ALL_MULTICAST: Command = Command(0, 1);
const SET_MAC: Command = Command(1, 1);
const SET_PAIRS: Command = Command(4, 0);

/// The device's answer to a command that it carried out.
const OK: u8 = 0;
/// Anything else, for the answer's byte before the device writes it.
const NO_ANSWER: u8 = 0xff;
/// Class, number and at most 6 bytes of data; then the answer.
const DATA_MAX: usize = 6;
const ANSWER_AT: usize = 2 + DATA_MAX;
const SLOT_BYTES: u32 = 64;
/// Memory for commands.
pub(super) const BYTES: usize = SLOT_BYTES as usize;
/// Looks at the queue before a device is given up: some seconds.
const PATIENCE: u32 = 200_000_000;
/// Bit of the configuration's status (section 5.1.4).
const LINK_UP: u16 = 1;

/// The control queue: one command at a time.
#[derive(Debug)]
pub(super) struct Control {
    lane: Lane<()>,
    /// The command that the device carries out. It stays the device's if it never answers.
    slot: Slot,
}

impl Control {
    pub(super) fn new(mut lane: Lane<()>, memory: DmaBlock) -> Option<Control> {
        lane.queue.disarm();
        let mut list = FreeList::default();
        list.add(memory, SLOT_BYTES);
        Some(Control { lane, slot: list.take()? })
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
        let answered = (0..PATIENCE).any(|_| {
            core::hint::spin_loop();
            self.lane.queue.pop().is_some()
        });
        let mut answer = [NO_ANSWER];
        self.slot.read(ANSWER_AT, &mut answer);
        match answer {
            _ if !answered => Err(Error::NoAnswer(class, number)),
            [OK] => Ok(()),
            _ => Err(Error::CommandRefused(class, number)),
        }
    }
}

/// A network device as a whole. Its queue pairs go on without it.
#[derive(Debug)]
pub struct NetDevice<R: Registers> {
    transport: Arc<Transport<R>>,
    features: u64,
    control: Option<Control>,
}

impl<R: Registers> NetDevice<R> {
    pub(super) fn new(transport: Arc<Transport<R>>, features: u64, control: Option<Control>) -> NetDevice<R> {
        NetDevice { transport, features, control }
    }

    /// The features that were negotiated, as [`feature`] and [`crate::transport::feature`] name them.
    pub fn features(&self) -> u64 {
        self.features
    }

    /// Whether the link is up; a device that does not say always is.
    ///
    /// # Errors
    /// [`Error::Unsettled`].
    pub fn is_link_up(&self) -> Result<bool> {
        let status = Config::read(&self.transport)?.status;
        Ok(self.features & feature::STATUS == 0 || status & LINK_UP != 0)
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

    /// Spreads what is received over the first `pairs` queue pairs.
    ///
    /// # Errors
    /// As [`NetDevice::set_promiscuous`].
    pub fn set_pairs(&mut self, pairs: u16) -> Result<()> {
        self.execute(feature::MULTIQUEUE, "several queue pairs", SET_PAIRS, &pairs.to_le_bytes())
    }

    fn execute(&mut self, needed: u64, name: &'static str, command: Command, data: &[u8]) -> Result<()> {
        match &mut self.control {
            Some(control) if self.features & needed != 0 => control.execute(&self.transport, command, data),
            _ => Err(Error::NotOffered(name)),
        }
    }
}
