//! What sockets are ready for, and who is told.
//!
//! [`take`](crate::Sockets::take_ready) reports what a socket of an interest set is ready for, as its
//! [`Trigger`] says: as long as it is, whenever it becomes so, or once. Idle sockets cost nothing: a set
//! keeps a list of those that became ready, and looks at these only; one that is found to be ready no more
//! leaves the list, until it becomes ready again.

use crate::error::Error;
use crate::sockets::SocketId;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::{BitAnd, BitOr};
use core::task::Waker;
use nom_rt::Sweep;
use slotmap::SlotMap;
use smallvec::SmallVec;

slotmap::new_key_type! {
    /// Names an interest set.
    pub struct PollId;
}

/// A set of conditions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready(u8);

impl Ready {
    /// None of them.
    pub const NONE: Ready = Ready(0);
    /// Something can be received or accepted, be it the end of the stream or an error.
    pub const READABLE: Ready = Ready(1);
    /// Something can be sent, or would fail at once.
    pub const WRITABLE: Ready = Ready(2);
    /// The peer will send no more.
    pub const FINISHED: Ready = Ready(4);
    /// The connection ended by an error. Reported whether anybody is interested or not.
    pub const ERROR: Ready = Ready(8);

    /// Whether none is there.
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Whether all of `other` are there.
    pub fn contains(self, other: Ready) -> bool {
        self & other == other
    }

    /// `self` if `condition` holds.
    pub(crate) fn when(self, condition: bool) -> Ready {
        if condition { self } else { Ready::NONE }
    }
}

impl BitOr for Ready {
    type Output = Ready;
    fn bitor(self, other: Ready) -> Ready {
        Ready(self.0 | other.0)
    }
}

impl BitAnd for Ready {
    type Output = Ready;
    fn bitand(self, other: Ready) -> Ready {
        Ready(self.0 & other.0)
    }
}

/// How often a set reports a socket that is ready; the names are those of epoll(7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trigger {
    /// As long as it is ready.
    #[default]
    Level,
    /// Once whenever it becomes ready, though it was already: whoever is told takes all there is. EPOLLET.
    Edge,
    /// Once, and then never until it is watched again. EPOLLONESHOT.
    OneShot,
}

/// What a socket is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    /// For what, beside errors.
    pub wanted: Ready,
    /// How often it is reported.
    pub trigger: Trigger,
}

impl From<Ready> for Interest {
    /// As long as it is ready.
    fn from(wanted: Ready) -> Interest {
        Interest { wanted, trigger: Trigger::Level }
    }
}

/// A socket that is ready; by default none, to make room with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// What was said when it was watched.
    pub token: u64,
    /// The socket.
    pub socket: SocketId,
    /// What it is ready for, of what was asked for.
    pub ready: Ready,
}

/// Who is to be told about one socket.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    polls: SmallVec<[PollId; 1]>,
    /// Tasks and threads that wait for this socket alone, with what for.
    wakers: SmallVec<[(Ready, Waker); 2]>,
    sweep: Sweep,
}

impl Watchers {
    /// Wakes `waker` when the socket becomes ready for any of `interest`; once.
    pub fn wake(&mut self, interest: Ready, waker: &Waker) {
        let known = self.wakers.iter_mut().find(|(_, other)| other.will_wake(waker));
        match known {
            Some((wanted, _)) => *wanted = *wanted | interest,
            None => {
                if self.sweep.is_due(self.wakers.len()) {
                    self.wakers.drain(..).for_each(|(_, gone)| gone.wake());
                }
                self.wakers.push((interest, waker.clone()));
            }
        }
    }
}

#[derive(Debug)]
struct Member {
    token: u64,
    /// For nothing: it was reported its one time.
    interest: Interest,
    /// Whether it stands in the list.
    is_listed: bool,
    /// Tells it from an earlier interest in the same socket, which may still stand in the list.
    serial: u64,
}

/// One interest set.
#[derive(Debug, Default)]
struct Set {
    members: BTreeMap<SocketId, Member>,
    /// Those that became ready, and may still be.
    listed: VecDeque<(SocketId, u64)>,
    serial: u64,
    wakers: Vec<Waker>,
    examined: u64,
}

impl Set {
    /// Lists a socket that became ready for what is in `risen`; whether anybody cares.
    fn list(&mut self, socket: SocketId, risen: Ready) -> bool {
        let Some(member) = self.members.get_mut(&socket) else { return false };
        if (member.interest.wanted & risen).is_none() {
            return false;
        }
        if !core::mem::replace(&mut member.is_listed, true) {
            self.listed.push_back((socket, member.serial));
        }
        true
    }
}

/// All interest sets, and whoever is to be woken.
#[derive(Debug, Default)]
pub(crate) struct Polls {
    sets: SlotMap<PollId, Set>,
    /// To be woken when nothing is borrowed any more.
    woken: Vec<Waker>,
}

impl Polls {
    pub fn add(&mut self) -> PollId {
        self.sets.insert(Set::default())
    }

    pub fn remove(&mut self, poll: PollId) -> Result<(), Error> {
        self.sets.remove(poll).map(drop).ok_or(Error::BadSocket)
    }

    /// Takes a socket into a set, or changes what it is watched for; it is listed, to be looked at.
    pub fn watch(
        &mut self,
        poll: PollId,
        (socket, watchers): (SocketId, &mut Watchers),
        (token, Interest { wanted, trigger }): (u64, Interest),
    ) -> Result<(), Error> {
        let set = self.sets.get_mut(poll).ok_or(Error::BadSocket)?;
        let interest = Interest { wanted: wanted | Ready::ERROR, trigger };
        set.serial += 1;
        let new = Member { token, interest, is_listed: false, serial: set.serial };
        let member = set.members.entry(socket).or_insert(new);
        (member.token, member.interest) = (token, interest);
        if !watchers.polls.contains(&poll) {
            watchers.polls.push(poll);
        }
        self.tell(poll, socket, interest.wanted);
        Ok(())
    }

    pub fn unwatch(&mut self, poll: PollId, socket: SocketId, watchers: &mut Watchers) -> Result<(), Error> {
        let set = self.sets.get_mut(poll).ok_or(Error::BadSocket)?;
        watchers.polls.retain(|other| *other != poll);
        // A name that is still listed finds no member there.
        set.members.remove(&socket).map(drop).ok_or(Error::BadSocket)
    }

    fn tell(&mut self, poll: PollId, socket: SocketId, risen: Ready) {
        if let Some(set) = self.sets.get_mut(poll)
            && set.list(socket, risen)
        {
            self.woken.append(&mut set.wakers);
        }
    }

    /// A socket became ready for what is in `risen`.
    pub fn rise(&mut self, socket: SocketId, watchers: &mut Watchers, risen: Ready) {
        for poll in &watchers.polls {
            self.tell(*poll, socket, risen);
        }
        watchers.wakers.retain(|(wanted, waker)| {
            let is_due = !(*wanted & risen).is_none();
            if is_due {
                self.woken.push(waker.clone());
            }
            !is_due
        });
    }

    /// A socket is gone: whoever waits for it finds that out.
    pub fn forget(&mut self, socket: SocketId, watchers: Watchers) {
        for poll in watchers.polls {
            if let Some(set) = self.sets.get_mut(poll) {
                set.members.remove(&socket);
            }
        }
        self.woken.extend(watchers.wakers.into_iter().map(|(_, waker)| waker));
    }

    /// Fills `events` with what is ready, as far as there is room: those first that waited longest.
    pub fn take(
        &mut self,
        poll: PollId,
        events: &mut [Event],
        mut ready_of: impl FnMut(SocketId) -> Ready,
    ) -> Result<usize, Error> {
        let set = self.sets.get_mut(poll).ok_or(Error::BadSocket)?;
        let mut filled = 0;
        for _ in 0..set.listed.len() {
            if filled == events.len() {
                break;
            }
            let Some((socket, serial)) = set.listed.pop_front() else { break };
            set.examined += 1;
            let member = set.members.get_mut(&socket).filter(|member| member.serial == serial);
            let Some(member) = member else { continue };
            let ready = ready_of(socket) & member.interest.wanted;
            member.is_listed = !ready.is_none() && member.interest.trigger == Trigger::Level;
            if member.is_listed {
                set.listed.push_back((socket, serial));
            }
            if !ready.is_none() {
                events[filled] = Event { token: member.token, socket, ready };
                filled += 1;
                if member.interest.trigger == Trigger::OneShot {
                    member.interest.wanted = Ready::NONE;
                }
            }
        }
        Ok(filled)
    }

    /// Wakes `waker` when a socket of the set becomes ready; once.
    pub fn wake(&mut self, poll: PollId, waker: &Waker) -> Result<(), Error> {
        let set = self.sets.get_mut(poll).ok_or(Error::BadSocket)?;
        if !set.wakers.iter().any(|other| other.will_wake(waker)) {
            set.wakers.push(waker.clone());
        }
        Ok(())
    }

    /// Sockets that were looked at for a set so far.
    pub fn examined(&self, poll: PollId) -> u64 {
        self.sets.get(poll).map_or(0, |set| set.examined)
    }

    /// Has these woken, who wait for something else than a socket.
    pub fn wake_all(&mut self, wakers: impl IntoIterator<Item = Waker>) {
        self.woken.extend(wakers);
    }

    /// Whether there is anybody to be woken.
    pub fn wakes_somebody(&self) -> bool {
        !self.woken.is_empty()
    }

    /// Takes those who are to be woken.
    pub fn take_woken(&mut self) -> Vec<Waker> {
        core::mem::take(&mut self.woken)
    }
}
