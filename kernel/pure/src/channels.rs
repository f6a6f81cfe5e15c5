//! Channels: memory that two applications share, and how one tells the other to look.

use crate::ids::{AppId, CoreId};
use crate::kernel::Kernel;
use crate::machine::Machine;
use crate::syscalls::{Caller, Reply};
use nom_abi::error::{Error, Result};
use nom_abi::syscall::arguments::*;
use nom_abi::upcall::Upcall;

/// A peer that computes is interrupted so often at most by one application, a hundredth of whose time that is
/// where an upcall and its handler take 500 ns; and in between so much more often than that.
const INTERRUPTION_NS: u64 = 50_000;
const INTERRUPTIONS_NS: u64 = 64 * INTERRUPTION_NS;

/// One end of a channel, as its application numbers them: in the bundle's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Which channel of the bundle.
    pub index: usize,
    /// The application at the other end.
    pub peer: AppId,
    /// Which end this is.
    pub end: usize,
    /// Bytes of shared memory.
    pub bytes: u64,
}

impl<'m, M: Machine> Kernel<'m, M> {
    /// The channels of an application, in the order of its own numbers for them.
    pub(crate) fn channels_of(&self, app: AppId) -> impl Iterator<Item = End> + use<'m, M> {
        self.bundle.channels().enumerate().filter_map(move |(index, channel)| {
            let end = channel.ends.iter().position(|end| *end as usize == app.index())?;
            Some(End { index, peer: AppId::new(channel.ends[1 - end] as usize), end, bytes: channel.bytes })
        })
    }

    pub(crate) fn channel_notify(&mut self, caller: Caller<'_>, asked: ChannelNotify) -> Result<Reply> {
        self.notify(caller.app, asked.channel, |_| Ok(Reply::DONE))
    }

    /// The caller sleeps before its peer is told, which may so run at once.
    pub(crate) fn channel_notify_and_wait(
        &mut self,
        caller: Caller<'_>,
        asked: ChannelNotifyAndWait,
    ) -> Result<Reply> {
        let ChannelNotifyAndWait { channel, deadline_ns, events } = asked;
        let wait = CoreWait { deadline_ns, events };
        self.notify(caller.app, channel, |kernel| kernel.core_wait(caller, wait))
    }

    /// Tells the other end of a channel, after `act`, whose reply it is.
    #[inline(always)]
    fn notify(&mut self, app: AppId, to: u64, act: impl FnOnce(&mut Self) -> Result<Reply>) -> Result<Reply> {
        let (peer, message) = self.message(app, to)?;
        if !self.may_interrupt(app, peer) {
            return Ok(Reply::Unfinished);
        }
        let reply = act(self)?;
        self.tell(peer, Upcall::Message, |events| events.messages |= message);
        Ok(reply)
    }

    /// Whether an application may take the time of a peer's that computes, and is to be told something, by an
    /// upcall. Otherwise it tries again, in its own time, and nothing is lost. Who waits is woken as often as
    /// it likes to wait.
    fn may_interrupt(&mut self, app: AppId, peer: AppId) -> bool {
        let core = self.applications[peer].first_core().unwrap_or(CoreId::FIRST);
        let is_current = self.cores[core].current() == Some(peer);
        let interrupts = is_current && self.context(core, peer).takes_upcalls();
        let now_ns = self.machine.now_ns();
        !interrupts || self.applications[app].messages().take(now_ns, INTERRUPTION_NS, INTERRUPTIONS_NS)
    }

    /// Who is at the other end of a channel, and the bit by which it knows the channel. Errors: NoChannel.
    fn message(&self, app: AppId, channel: u64) -> Result<(AppId, u64)> {
        let number = usize::try_from(channel).map_err(|_| Error::NoChannel)?;
        let end = self.channels_of(app).nth(number).ok_or(Error::NoChannel)?;
        let theirs = self.channels_of(end.peer).position(|other| other.index == end.index);
        Ok((end.peer, 1 << theirs.ok_or(Error::NoChannel)?))
    }
}
