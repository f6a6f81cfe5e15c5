//! Channels to other applications: this program's ends of the shared memory.

use crate::{events, raw, start};
use core::sync::atomic::AtomicU64;
use nom_abi::Events;
use nom_abi::error::{Error, Result};

/// One end of a channel.
#[derive(Clone, Copy, Debug)]
pub struct Channel {
    /// The channel's number in this application.
    pub number: usize,
    /// Index of the application at the other end.
    pub peer: usize,
    /// Which end this is, 0 or 1, in the order of the manifest.
    pub end: usize,
    /// The shared memory, for [`nom_abi::ipc`].
    pub words: &'static [AtomicU64],
}

/// This application's channels, in order of their numbers.
pub fn all() -> impl Iterator<Item = Channel> {
    let info = start::info();
    info.channel.iter().take(info.channels as usize).enumerate().map(|(number, channel)| Channel {
        number,
        peer: channel.peer as usize,
        end: channel.end as usize,
        // SAFETY: the kernel maps the memory there, page aligned, readable and writable, for as long as the
        // program runs; the peer writes it at any time, for which atomics are made.
        words: unsafe {
            core::slice::from_raw_parts(channel.address as *const AtomicU64, (channel.bytes / 8) as usize)
        },
    })
}

/// The first channel to this application.
///
/// # Errors
/// NoChannel if there is none.
pub fn to(peer: usize) -> Result<Channel> {
    all().find(|channel| channel.peer == peer).ok_or(Error::NoChannel)
}

impl Channel {
    /// Tells the peer that there is something in the channel.
    ///
    /// # Errors
    /// NoChannel.
    pub fn notify(&self) -> Result<()> {
        // SAFETY: the call concerns no memory of ours.
        unsafe { raw::channel_notify(self.number as u64) }?;
        Ok(())
    }

    /// Tells the peer, and sleeps as [`events::wait`] does. A peer that waits on the same core runs at once.
    ///
    /// # Panics
    /// As [`events::wait`], and if the channel is none of this program's.
    pub fn notify_and_wait(&self, deadline_ns: Option<u64>) -> Events {
        events::wait_by(deadline_ns, |deadline_ns, events| {
            // SAFETY: the call writes one `Events` there, where `wait_by` has the core's own.
            unsafe { raw::channel_notify_and_wait(self.number as u64, deadline_ns, events) }
        })
    }
}
