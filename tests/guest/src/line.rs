//! A conversation over a channel.

use crate::{Check, Failure, expect, expect_that};
use nom_sys::abi::Upcall;
use nom_sys::abi::ipc::{self, Consumer, Producer, RingError};
use nom_sys::channels::{self, Channel};
use nom_sys::{events, time};

/// How long an answer may take.
const TIMEOUT_NS: u64 = 20_000_000_000;

/// How to wait for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// By looking again and again.
    Awake,
    /// Asleep, until the peer notifies.
    Asleep,
}

/// This end of the application's first channel.
pub struct Line {
    /// The channel.
    pub channel: Channel,
    producer: Producer<'static>,
    consumer: Consumer<'static>,
}

impl Line {
    /// Opens it.
    ///
    /// # Errors
    /// If there is no channel.
    pub fn open() -> Result<Line, Failure> {
        let channel = channels::all().next().ok_or("no channel")?;
        let (producer, consumer) = ipc::open(channel.words, channel.end)?;
        Ok(Line { channel, producer, consumer })
    }

    /// Sends a message, when there is room, and wakes the peer if it sleeps.
    ///
    /// # Errors
    /// If the message is too long.
    pub fn send(&mut self, message: &[u8]) -> Check {
        self.push(message)?;
        if self.producer.take_notify_request() {
            self.channel.notify()?;
        }
        Ok(())
    }

    fn push(&mut self, message: &[u8]) -> Check {
        loop {
            match self.producer.push(message) {
                Ok(()) => return Ok(()),
                Err(RingError::Full) => events::yield_core(),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends a message and returns the next one, for which it sleeps: if the peer sleeps, too, by one call of
    /// the kernel.
    ///
    /// # Errors
    /// As for sending and receiving.
    pub fn exchange(&mut self, message: &[u8], buffer: &mut [u8]) -> Result<usize, Failure> {
        self.push(message)?;
        if self.producer.take_notify_request() {
            if self.consumer.prepare_wait() {
                self.channel.notify_and_wait(Some(time::now_ns() + TIMEOUT_NS));
            } else {
                self.channel.notify()?;
            }
        }
        self.receive(buffer, Patience::Asleep)
    }

    /// The next message, in `buffer`; returns its length.
    ///
    /// # Errors
    /// If there is none in time, or a notification was for another channel.
    pub fn receive(&mut self, buffer: &mut [u8], patience: Patience) -> Result<usize, Failure> {
        let deadline = time::now_ns() + TIMEOUT_NS;
        loop {
            if let Some(length) = self.consumer.pop(buffer)? {
                return Ok(length);
            }
            match patience {
                Patience::Awake => core::hint::spin_loop(),
                Patience::Asleep => self.sleep(deadline)?,
            }
        }
    }

    fn sleep(&mut self, deadline: u64) -> Check {
        if self.consumer.prepare_wait() {
            let events = events::wait(Some(deadline));
            if events.has(Upcall::Message) {
                expect("the channels notified", events.messages, 1 << self.channel.number)?;
            }
        }
        expect_that("a message comes in time", time::now_ns() < deadline)
    }
}
