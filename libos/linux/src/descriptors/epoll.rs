//! Watched sets: epoll(7). A wait looks at those that became ready, and at no others.

use super::open::{Description, Stream};
use super::ready::{Events, Waiters};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::rc::{Rc, Weak};
use alloc::sync::Arc;
use alloc::task::Wake;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::Waker;
use crossbeam_queue::SegQueue;
use linux_raw_sys::general::{EPOLLET, EPOLLEXCLUSIVE, EPOLLONESHOT, EPOLLWAKEUP};
use nom_fs::{Errno, NodeType};
use slotmap::SlotMap;
use smallvec::SmallVec;
use zerocopy::{Immutable, IntoBytes};

/// Bits of an interest that are no conditions.
const FLAGS: u32 = EPOLLET | EPOLLEXCLUSIVE | EPOLLONESHOT | EPOLLWAKEUP;

/// What was said when a descriptor was taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Watched {
    /// Conditions, and how often they are told.
    pub events: u32,
    /// Comes with them.
    pub data: u64,
}

/// A descriptor is ready: `struct epoll_event`, which has no gap on x86-64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Immutable, IntoBytes)]
#[repr(C, packed)]
pub(crate) struct Occurrence {
    /// For what.
    pub events: u32,
    /// What was said when it was taken in.
    pub data: u64,
}

/// What one call tells. Few take no memory of the heap.
pub(crate) type Occurrences = SmallVec<[Occurrence; 16]>;

slotmap::new_key_type! {
    /// Names a member. A name is never used for a second one.
    struct MemberKey;
}

/// Members that became ready, by their keys, and who waits for one. Wakers must be such that any core could
/// wake them, though none but their own does.
#[derive(Default)]
struct Listed {
    keys: SegQueue<MemberKey>,
    waiting: SegQueue<Waker>,
}

impl Listed {
    /// Wakes `waker`, once, when something is listed. Who asked before is not kept twice.
    fn wake_later(&self, waker: &Waker) {
        for _ in 0..self.waiting.len() {
            let Some(other) = self.waiting.pop() else { break };
            if !other.will_wake(waker) {
                self.waiting.push(other);
            }
        }
        self.waiting.push(waker.clone());
    }

    fn wake(&self) {
        while let Some(waker) = self.waiting.pop() {
            waker.wake();
        }
    }
}

/// Wakes when a member becomes ready.
struct Alarm {
    key: MemberKey,
    is_listed: AtomicBool,
    listed: Arc<Listed>,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_listed.swap(true, Ordering::Relaxed) {
            self.listed.keys.push(self.key);
            self.listed.wake();
        }
    }
}

struct Member {
    /// Descriptor and what it leads to.
    name: (i32, usize),
    description: Weak<Description>,
    interest: Watched,
    /// It was told its one time.
    is_spent: bool,
    alarm: Arc<Alarm>,
    waker: Waker,
}

impl Drop for Member {
    fn drop(&mut self) {
        // Its waker is where the descriptor's waiters are.
        nom_rt::retire();
    }
}

impl Member {
    /// What it is ready for, of what is told of it.
    fn ready(&self, description: &Description) -> Events {
        let wanted = Events(self.interest.events & !FLAGS).with(Events::ALWAYS_TOLD);
        description.ready().of(wanted)
    }

    /// Whether it would be told now.
    fn is_ready(&self) -> bool {
        let description = self.description.upgrade().filter(|_| !self.is_spent);
        description.is_some_and(|description| !self.ready(&description).is_none())
    }
}

#[derive(Default)]
struct State {
    members: SlotMap<MemberKey, Member>,
    /// By descriptor and what it leads to.
    keys: BTreeMap<(i32, usize), MemberKey>,
    /// Members to be looked at, first those that have waited longest: what was listed, and those that were
    /// told and are to be told again.
    due: VecDeque<MemberKey>,
    /// So many members are looked through for those whose descriptors are closed.
    crowd: usize,
}

/// Members that may be there before anybody looks for those that are gone.
const CROWD_MIN: usize = 64;

impl State {
    fn forget(&mut self, key: MemberKey) {
        if let Some(member) = self.members.remove(key)
            && self.keys.get(&member.name) == Some(&key)
        {
            self.keys.remove(&member.name);
        }
    }

    /// Forgets members that were closed, and of which nothing is ever heard again: when there are twice as
    /// many members as were left the last time, so that it costs each of them little.
    fn forget_closed(&mut self) {
        if self.members.len() < self.crowd.max(CROWD_MIN) {
            return;
        }
        let is_closed =
            |(key, member): (MemberKey, &Member)| (member.description.strong_count() == 0).then_some(key);
        let closed: Vec<MemberKey> = self.members.iter().filter_map(is_closed).collect();
        closed.into_iter().for_each(|key| self.forget(key));
        self.crowd = 2 * self.members.len();
    }
}

/// An interest set.
#[derive(Default)]
pub(crate) struct Epoll {
    state: RefCell<State>,
    listed: Arc<Listed>,
    waiters: Waiters,
    /// So many sets it is, or was, in, one within another.
    above: Cell<u32>,
}

impl fmt::Debug for Epoll {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Epoll({} members)", self.state.borrow().members.len())
    }
}

/// Sets that may be one within another, as on Linux: whoever asks one asks all of them.
const NESTED_MAX: u32 = 5;

fn set_of(description: &Rc<Description>) -> Option<&Epoll> {
    description.stream().and_then(|stream| stream.epoll())
}

fn name(descriptor: i32, description: &Rc<Description>) -> (i32, usize) {
    (descriptor, Rc::as_ptr(description) as usize)
}

impl Epoll {
    /// Takes a descriptor in.
    ///
    /// # Errors
    /// `EEXIST` if it is in; `EPERM` for what is always ready; `ELOOP` for a set that this one is in, or that
    /// would be too deep.
    pub fn add(
        &self,
        descriptor: i32,
        description: &Rc<Description>,
        interest: Watched,
    ) -> Result<(), Errno> {
        let inner = description.stream().ok_or(Errno::EPERM)?.epoll();
        let above = self.above.get() + 1;
        if inner.is_some_and(|inner| inner.reaches(self) || above + inner.sets() > NESTED_MAX) {
            return Err(Errno::ELOOP);
        }
        let mut state = self.state.borrow_mut();
        let name = name(descriptor, description);
        if let Some(key) = state.keys.get(&name).copied() {
            // What had that place in memory may be gone.
            if state.members.get(key).is_some_and(|member| member.description.strong_count() > 0) {
                return Err(Errno::EEXIST);
            }
            state.forget(key);
        }
        state.forget_closed();
        let key = state.members.insert_with_key(|key| {
            let (is_listed, listed) = (AtomicBool::new(false), self.listed.clone());
            let alarm = Arc::new(Alarm { key, is_listed, listed });
            let waker = Waker::from(alarm.clone());
            Member { name, description: Rc::downgrade(description), interest, is_spent: false, alarm, waker }
        });
        state.keys.insert(name, key);
        let waker = state.members[key].waker.clone();
        drop(state);
        inner.into_iter().for_each(|inner| inner.lower(above));
        // It may be ready already.
        waker.wake();
        self.waiters.wake();
        Ok(())
    }

    /// Changes what a descriptor is watched for.
    ///
    /// # Errors
    /// `ENOENT` if it is not in.
    pub fn change(
        &self,
        descriptor: i32,
        description: &Rc<Description>,
        interest: Watched,
    ) -> Result<(), Errno> {
        let mut state = self.state.borrow_mut();
        let key = *state.keys.get(&name(descriptor, description)).ok_or(Errno::ENOENT)?;
        let member = state.members.get_mut(key).ok_or(Errno::ENOENT)?;
        (member.interest, member.is_spent) = (interest, false);
        let waker = member.waker.clone();
        drop(state);
        waker.wake();
        self.waiters.wake();
        Ok(())
    }

    /// Takes a descriptor out.
    ///
    /// # Errors
    /// `ENOENT` if it is not in.
    pub fn remove(&self, descriptor: i32, description: &Rc<Description>) -> Result<(), Errno> {
        let mut state = self.state.borrow_mut();
        let key = state.keys.remove(&name(descriptor, description)).ok_or(Errno::ENOENT)?;
        state.members.remove(key).map(drop).ok_or(Errno::ENOENT)
    }

    /// Puts members that are ready, at most `most`, into `found`, where nothing is yet.
    ///
    /// # Errors
    /// `EAGAIN` if none is.
    pub fn take(&self, most: usize, found: &mut Occurrences) -> Result<(), Errno> {
        let mut state = self.state.borrow_mut();
        self.collect(&mut state);
        // Those that are told as long as they are ready come after those that were not looked at.
        for _ in 0..state.due.len() {
            if found.len() == most {
                break;
            }
            let Some(key) = state.due.pop_front() else { break };
            if let Some(occurrence) = state.look(key) {
                found.push(occurrence);
            }
        }
        if found.is_empty() { Err(Errno::EAGAIN) } else { Ok(()) }
    }

    /// Wakes `waker`, once, when a member becomes ready.
    pub fn wake_when_listed(&self, waker: &Waker) {
        self.listed.wake_later(waker);
    }

    /// Sets that are members.
    fn inner_sets(&self) -> Vec<Rc<Description>> {
        let state = self.state.borrow();
        let descriptions = state.members.values().filter_map(|member| member.description.upgrade());
        descriptions.filter(|description| set_of(description).is_some()).collect()
    }

    /// Whether it is `other`, or has it within.
    fn reaches(&self, other: &Epoll) -> bool {
        let within =
            |description: &Rc<Description>| set_of(description).is_some_and(|set| set.reaches(other));
        core::ptr::eq(self, other) || self.inner_sets().iter().any(within)
    }

    /// How many sets are one within another from it on.
    fn sets(&self) -> u32 {
        let inner = self.inner_sets();
        1 + inner.iter().filter_map(set_of).map(Epoll::sets).max().unwrap_or(0)
    }

    /// It is within so many.
    fn lower(&self, above: u32) {
        if self.above.get() < above {
            self.above.set(above);
            self.inner_sets().iter().filter_map(set_of).for_each(|set| set.lower(above + 1));
        }
    }

    /// What was listed is due.
    fn collect(&self, state: &mut State) {
        while let Some(key) = self.listed.keys.pop() {
            state.due.push_back(key);
        }
    }
}

impl State {
    /// Has those that are due, and not ready any more, be listed again when they are: for who waits without
    /// taking any.
    fn rearm(&mut self) {
        for _ in 0..self.due.len() {
            let Some(key) = self.due.pop_front() else { return };
            let Some(member) = self.members.get(key) else { continue };
            if member.is_ready() {
                self.due.push_back(key);
                continue;
            }
            member.alarm.is_listed.store(false, Ordering::Relaxed);
            if let Some(description) = member.description.upgrade() {
                description.wake(&member.waker);
            }
        }
    }

    /// Looks at a member that was due.
    fn look(&mut self, key: MemberKey) -> Option<Occurrence> {
        let member = self.members.get_mut(key)?;
        let Some(description) = member.description.upgrade() else {
            self.forget(key);
            return None;
        };
        let Watched { events, data } = member.interest;
        if member.is_spent {
            member.alarm.is_listed.store(false, Ordering::Relaxed);
            return None;
        }
        let ready = member.ready(&description);
        if !ready.is_none() && events & (EPOLLET | EPOLLONESHOT) == 0 {
            // It stays listed: nobody need wake it before it is looked at again.
            self.due.push_back(key);
            return Some(Occurrence { events: ready.0, data });
        }
        member.alarm.is_listed.store(false, Ordering::Relaxed);
        // Nothing has happened since it was looked at: the core does one or the other.
        description.wake(&member.waker);
        if ready.is_none() {
            return None;
        }
        member.is_spent = events & EPOLLONESHOT != 0;
        Some(Occurrence { events: ready.0, data })
    }
}

impl Stream for Epoll {
    fn ready(&self) -> Events {
        Events::IN.when(self.state.borrow().members.values().any(Member::is_ready))
    }

    fn wake(&self, waker: &Waker) {
        {
            let mut state = self.state.borrow_mut();
            self.collect(&mut state);
            state.rearm();
        }
        self.waiters.add(waker);
        self.wake_when_listed(waker);
    }

    fn kind(&self) -> NodeType {
        NodeType::File
    }

    fn epoll(&self) -> Option<&Epoll> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptors::pipe::pipe;
    use linux_raw_sys::general::{EPOLLIN, O_RDONLY};
    use std::sync::atomic::AtomicUsize;

    const INTEREST: Watched = Watched { events: EPOLLIN, data: 7 };

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn description(stream: impl Stream + 'static) -> Rc<Description> {
        Description::new(crate::descriptors::open::Object::Stream(Rc::new(stream)), O_RDONLY)
    }

    fn taken(epoll: &Epoll) -> Result<Vec<Occurrence>, Errno> {
        let mut found = Occurrences::new();
        epoll.take(9, &mut found).map(|()| found.to_vec())
    }

    #[test]
    fn an_occurrence_is_what_linux_calls_an_event() {
        let occurrence = Occurrence { events: 0x0403_0201, data: 0x0c0b_0a09_0807_0605 };
        assert_eq!(occurrence.as_bytes(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    }

    #[test]
    fn a_set_forgets_those_that_were_closed() {
        let epoll = Epoll::default();
        let (reader, writer) = pipe();
        let kept = description(reader);
        epoll.add(3, &kept, INTEREST).expect("taken in");
        for _ in 0..10_000 {
            let (reader, _writer) = pipe();
            epoll.add(4, &description(reader), INTEREST).expect("taken in");
        }
        let state = epoll.state.borrow();
        assert!(state.members.len() <= CROWD_MIN && state.keys.len() <= CROWD_MIN, "{epoll:?}");
        drop(state);
        writer.buffer().write(b"x").expect("written");
        assert_eq!(taken(&epoll), Ok(Vec::from([Occurrence { events: EPOLLIN, data: 7 }])));
    }

    #[test]
    fn who_reads_a_part_is_told_of_the_rest_by_level_alone() {
        let epoll = Epoll::default();
        let (reader, writer) = pipe();
        let kept = description(reader);
        epoll.add(3, &kept, Watched { events: EPOLLIN | EPOLLET, data: 7 }).expect("taken in");
        writer.buffer().write(b"xy").expect("written");
        let told = Ok(Vec::from([Occurrence { events: EPOLLIN, data: 7 }]));
        assert_eq!(taken(&epoll), told);
        assert_eq!(kept.stream().map(|stream| stream.read(&mut [0])), Some(Ok(1)));
        assert_eq!(taken(&epoll), Err(Errno::EAGAIN), "nothing came");
        writer.buffer().write(b"z").expect("written");
        assert_eq!(taken(&epoll), told);
        epoll.change(3, &kept, INTEREST).expect("it is in");
        assert_eq!([taken(&epoll), taken(&epoll)], [told.clone(), told]);
    }

    /// As by poll(2), or a set that it is a member of.
    #[test]
    fn who_waits_for_a_set_is_woken_though_its_member_was_told_before() {
        let (epoll, count) = (Epoll::default(), Arc::new(Count::default()));
        let (reader, writer) = pipe();
        let kept = description(reader);
        epoll.add(3, &kept, INTEREST).expect("taken in");
        writer.buffer().write(b"x").expect("written");
        assert!(taken(&epoll).is_ok());
        assert_eq!(kept.stream().map(|stream| stream.read(&mut [0])), Some(Ok(1)));
        assert!(epoll.ready().is_none());
        epoll.wake(&Waker::from(count.clone()));
        writer.buffer().write(b"y").expect("written");
        assert!(count.0.load(Ordering::Relaxed) > 0 && !epoll.ready().is_none());
        assert!(taken(&epoll).is_ok());
    }

    #[test]
    fn sets_are_in_no_circle_and_not_too_deep() {
        let sets: Vec<_> = (0..7).map(|_| description(Epoll::default())).collect();
        let add = |outer: usize, inner: usize| {
            set_of(&sets[outer]).expect("a set").add(inner as i32, &sets[inner], INTEREST)
        };
        // From the outermost inwards, and the other way round.
        assert_eq!(
            [0, 1, 2, 3, 4].map(|at| add(at, at + 1)),
            [Ok(()), Ok(()), Ok(()), Ok(()), Err(Errno::ELOOP)]
        );
        assert_eq!([add(4, 0), add(1, 0), add(2, 2)], [Err(Errno::ELOOP); 3]);
        assert_eq!([add(6, 3), add(5, 6)], [Ok(()); 2]);
        assert_eq!(add(6, 0), Err(Errno::ELOOP));
        assert!(set_of(&sets[0]).expect("a set").ready().is_none());
    }

    #[test]
    fn who_is_taken_in_and_out_again_is_not_kept_by_what_he_waited_for() {
        /// Counts those who are there.
        struct There(Arc<AtomicUsize>);
        impl Wake for There {
            fn wake(self: Arc<Self>) {}
        }
        impl Drop for There {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let (reader, _writer) = pipe();
        let there = Arc::new(AtomicUsize::new(0));
        for _ in 0..1000 {
            there.fetch_add(1, Ordering::Relaxed);
            let member = Waker::from(Arc::new(There(there.clone())));
            reader.wake(&member);
            let (epoll, empty) = (Epoll::default(), description(pipe().0));
            epoll.add(3, &empty, INTEREST).expect("taken in");
            epoll.remove(3, &empty).expect("taken out");
        }
        assert!(there.load(Ordering::Relaxed) < 200, "{there:?} are kept");
    }

    #[test]
    fn who_waits_again_and_again_is_woken_once() {
        let (epoll, count) = (Epoll::default(), Arc::new(Count::default()));
        let (first, second) = (Waker::from(count.clone()), Waker::from(Arc::new(Count::default())));
        for _ in 0..1000 {
            epoll.wake_when_listed(&first);
            epoll.wake_when_listed(&second);
        }
        assert_eq!(epoll.listed.waiting.len(), 2);
        epoll.listed.wake();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
    }
}
