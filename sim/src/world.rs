//! The world: hosts, the network between them, and the time that passes from event to event.

use crate::core_pool::Group;
use crate::host::Host;
use crate::network::{Link, Way};
use crate::random::Random;
use crate::trace::{Fate, Trace};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

/// How long after the last program's end all flows must be gone: a minute of TIME-WAIT, and before it what
/// keep-alive and the last retransmissions take.
const DRAIN: Duration = Duration::from_secs(900);

#[derive(Debug)]
enum Event {
    /// A frame comes to a plug; from which host is for the trace.
    Arrival { from: usize, to: usize, frame: Vec<u8> },
    /// A host goes on.
    Turn { host: usize },
    /// A host's batching delay is changed to microseconds.
    Delay { host: usize, micros: u64 },
    /// A host is woken by something that is not the network.
    Wake { host: usize },
    /// Another core has rung for a host.
    Ring { host: usize },
    /// A host's device breaks, for so long.
    Break { host: usize, for_ns: u64 },
}

/// Where a machine is plugged into the network.
struct Plug {
    up: Way,
    down: Way,
    /// The hosts that are its cores.
    cores: Vec<usize>,
    /// What they share, if they are several.
    group: Option<Group>,
}

/// One core at the end of the network.
struct End {
    host: Host,
    plug: usize,
    /// The longest batching delay that it has had, in nanoseconds.
    delay_max_ns: u64,
    /// When its next turn was queued for.
    queued_ns: Option<u64>,
    /// Whether somebody has rung for it, which it is yet to hear.
    is_rung: bool,
}

/// Hosts on a switch.
pub struct World {
    ends: Vec<End>,
    plugs: Vec<Plug>,
    /// Plugs by their addresses.
    by_mac: BTreeMap<[u8; 6], usize>,
    /// By time, then by number: two events at one time happen in the order in which they came to be.
    events: BinaryHeap<Reverse<(u64, u64)>>,
    waiting: BTreeMap<u64, Event>,
    count: u64,
    now_ns: u64,
    random: Random,
    trace: Trace,
    frames: u64,
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Of everything that happened: two runs of one seed agree.
    pub hash: u64,
    /// Virtual time that passed, in nanoseconds.
    pub virtual_ns: u64,
    /// Frames that set out.
    pub frames: u64,
    /// Answers, bytes and acts of all programs.
    pub achieved: u64,
}

impl World {
    /// A world without hosts; `random` is for the network.
    pub fn new(random: Random, trace: Trace) -> World {
        World {
            ends: Vec::new(),
            plugs: Vec::new(),
            by_mac: BTreeMap::new(),
            events: BinaryHeap::new(),
            waiting: BTreeMap::new(),
            count: 0,
            now_ns: 0,
            random,
            trace,
            frames: 0,
        }
    }

    /// Adds a host at the end of a link.
    pub fn add(&mut self, host: Host, mac: [u8; 6], link: Link) -> usize {
        self.add_machine(vec![host], None, mac, link)
    }

    /// Adds a machine of several cores, each a host; the number of the first. The others follow.
    pub fn add_machine(&mut self, hosts: Vec<Host>, group: Option<Group>, mac: [u8; 6], link: Link) -> usize {
        let (first, plug) = (self.ends.len(), self.plugs.len());
        // Twice damaged, a frame may pass for sound: no sum of 16 bits is proof against that.
        let down = Link { corrupt: 0, truncate: 0, ..link };
        let (up, down) = (Way::new(link, self.random.fork()), Way::new(down, self.random.fork()));
        let cores = (first..first + hosts.len()).collect::<Vec<_>>();
        self.by_mac.insert(mac, plug);
        for host in hosts {
            self.ends.push(End { host, plug, delay_max_ns: 0, queued_ns: None, is_rung: false });
        }
        cores.iter().for_each(|core| self.queue_turn(*core));
        self.plugs.push(Plug { up, down, cores, group });
        first
    }

    /// Hosts so far.
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// Changes a host's batching delay at a time.
    pub fn set_delay(&mut self, host: usize, at_ns: u64, micros: u64) {
        self.queue(at_ns, Event::Delay { host, micros });
    }

    /// Wakes a host at a time.
    pub fn wake(&mut self, host: usize, at_ns: u64) {
        self.queue(at_ns, Event::Wake { host });
    }

    /// Breaks a host's device at a time, for so long.
    pub fn break_device(&mut self, host: usize, at_ns: u64, for_ns: u64) {
        self.queue(at_ns, Event::Break { host, for_ns });
    }

    /// Lets a host's batching delay be up to microseconds.
    pub fn allow_delay(&mut self, host: usize, micros: u64) {
        let end = &mut self.ends[host];
        end.delay_max_ns = end.delay_max_ns.max(micros * 1000);
    }

    fn queue(&mut self, at_ns: u64, event: Event) {
        self.count += 1;
        self.events.push(Reverse((at_ns.max(self.now_ns), self.count)));
        self.waiting.insert(self.count, event);
    }

    fn queue_turn(&mut self, index: usize) {
        let end = &mut self.ends[index];
        // What is long due, as of a core that comes back, is due now.
        let Some(due_ns) = end.host.next_ns().map(|due_ns| due_ns.max(self.now_ns)) else { return };
        // A turn that was queued for later is found to be stale then.
        if end.queued_ns.is_none_or(|queued_ns| due_ns < queued_ns) {
            end.queued_ns = Some(due_ns);
            self.queue(due_ns, Event::Turn { host: index });
        }
    }

    /// Lets the next event happen; `false` if there is none.
    fn step(&mut self) -> bool {
        let Some(Reverse((at_ns, number))) = self.events.pop() else { return false };
        self.now_ns = at_ns;
        match self.waiting.remove(&number).expect("every number has its event") {
            Event::Arrival { from, to, frame } => self.arrive(from, to, frame),
            Event::Turn { host } => self.turn(host),
            Event::Delay { host, micros } => {
                self.allow_delay(host, micros);
                self.ends[host].host.set_delay(Duration::from_micros(micros));
                self.rouse(host);
            }
            Event::Wake { host } => self.rouse(host),
            Event::Ring { host } => {
                self.ends[host].is_rung = false;
                self.ends[host].host.ring(self.now_ns);
                self.queue_turn(host);
            }
            Event::Break { host, for_ns } => {
                self.ends[host].host.break_device(self.now_ns, self.now_ns + for_ns);
                self.queue_turn(host);
            }
        }
        true
    }

    fn rouse(&mut self, host: usize) {
        self.ends[host].host.rouse(self.now_ns);
        self.queue_turn(host);
    }

    fn arrive(&mut self, from: usize, to: usize, frame: Vec<u8>) {
        let now_ns = self.now_ns;
        let plug = &mut self.plugs[to];
        let core = plug.group.as_mut().map_or(0, |group| group.steer(&frame));
        let to = plug.cores[core];
        let copy = frame.clone();
        let is_taken = self.ends[to].host.deliver(now_ns, frame);
        let fate = if is_taken { Fate::Arrived } else { Fate::Overrun };
        self.note(from, to, fate, &copy);
        self.queue_turn(to);
    }

    fn note(&mut self, from: usize, to: usize, fate: Fate, frame: &[u8]) {
        let (from, to) = (self.ends[from].host.name(), self.ends[to].host.name());
        self.trace.frame(self.now_ns, from, to, fate, frame);
    }

    /// A frame on its way to a plug is no more.
    fn note_lost(&mut self, from: usize, to: usize, fate: Fate, frame: &[u8]) {
        self.note(from, self.plugs[to].cores[0], fate, frame);
    }

    fn turn(&mut self, index: usize) {
        let end = &mut self.ends[index];
        if end.queued_ns == Some(self.now_ns) {
            end.queued_ns = None;
        }
        if end.host.next_ns().is_none_or(|due_ns| due_ns > self.now_ns) {
            return self.queue_turn(index);
        }
        if self.is_away(index) {
            return;
        }
        let (done_ns, sent) = self.ends[index].host.run(self.now_ns);
        self.check(index);
        for frame in sent {
            self.send(index, done_ns, frame);
        }
        self.queue_turn(index);
        self.ring_others(index);
    }

    /// Which core of its machine a host is.
    fn core_of(&self, index: usize) -> usize {
        index - self.plugs[self.ends[index].plug].cores[0]
    }

    /// Whether a host is a core that its machine has given back.
    fn is_away(&self, index: usize) -> bool {
        let group = &self.plugs[self.ends[index].plug].group;
        group.as_ref().is_some_and(|group| group.is_away(self.core_of(index)))
    }

    /// Wakes the cores for which a host has rung, and those that it has called back; and looks whether its
    /// device has interrupted them, which may have been reset.
    fn ring_others(&mut self, index: usize) {
        let plug = &self.plugs[self.ends[index].plug];
        let Some(group) = &plug.group else { return };
        let cores = plug.cores.clone();
        for core in group.take_back() {
            self.ends[cores[core]].host.come_back(self.now_ns);
        }
        for core in group.take_rung().collect::<Vec<_>>() {
            self.ends[cores[core]].is_rung = true;
            self.queue(self.now_ns, Event::Ring { host: cores[core] });
        }
        self.check_rung(&cores);
        for core in cores.into_iter().filter(|core| *core != index) {
            self.ends[core].host.hear(self.now_ns);
            self.queue_turn(core);
        }
    }

    /// Nobody sleeps over what other cores of its machine have done: whoever is to act on it was rung for.
    /// Who can leave is told so by the first core, once that has heard: he may wait while others are awake.
    fn check_rung(&self, cores: &[usize]) {
        let present = || cores.iter().filter(|core| !self.is_away(**core)).map(|core| &self.ends[*core]);
        let sleeps = |end: &&End| !end.is_rung && end.host.is_untold();
        let all_sleep = present().all(|end| sleeps(&end));
        for End { host, .. } in present().filter(sleeps) {
            let is_left_out = host.is_behind() || all_sleep && host.can_leave();
            assert!(!is_left_out, "{}: nobody has rung for what it is to do", host.name());
        }
    }

    /// What must always be so.
    fn check(&self, index: usize) {
        let end = &self.ends[index];
        let (name, tally) = (end.host.name(), end.host.tally());
        // A clock that is fast leaves out a nanosecond now and then, which may be the one at which W ends.
        let limit_ns = end.delay_max_ns + u64::from(end.delay_max_ns > 0) + end.host.busiest_ns();
        assert!(
            tally.held_max_ns <= limit_ns,
            "{name}: held a packet for {} ns with W = {} ns",
            tally.held_max_ns,
            end.delay_max_ns
        );
        let limit_ns = end.host.lay_limit_ns();
        let lay_ns = tally.lay_max_ns;
        assert!(lay_ns <= limit_ns, "{name}: a frame lay in the ring for {lay_ns} ns, at most {limit_ns}");
    }

    /// A frame leaves a host for one other, or for all, at `at_ns`.
    fn send(&mut self, from: usize, at_ns: u64, frame: Vec<u8>) {
        self.frames += 1;
        let to: [u8; 6] = frame[..6].try_into().expect("frames have an Ethernet header");
        let (core, own) = (self.core_of(from), self.ends[from].plug);
        let targets: Vec<usize> = match self.by_mac.get(&to) {
            Some(&target) => vec![target],
            None if to[0] & 1 == 1 => (0..self.plugs.len()).filter(|plug| *plug != own).collect(),
            None => return,
        };
        let plug = &mut self.plugs[own];
        plug.group.iter_mut().for_each(|group| group.learn(core, &frame));
        let first = targets[0];
        match plug.up.carry(at_ns, frame) {
            Err(frame) => self.note_lost(from, first, Fate::Crowded, &frame),
            Ok(copies) if copies.is_empty() => self.note_lost(from, first, Fate::Lost, &[]),
            Ok(copies) => {
                for (at_ns, frame) in copies {
                    targets.iter().for_each(|target| self.pass(from, *target, at_ns, frame.clone()));
                }
            }
        }
    }

    /// A frame that is at the switch at `at_ns` goes on to a plug.
    fn pass(&mut self, from: usize, to: usize, at_ns: u64, frame: Vec<u8>) {
        match self.plugs[to].down.carry(at_ns, frame) {
            Err(frame) => self.note_lost(from, to, Fate::Crowded, &frame),
            Ok(copies) if copies.is_empty() => self.note_lost(from, to, Fate::Lost, &[]),
            Ok(copies) => {
                for (at_ns, frame) in copies {
                    self.queue(at_ns, Event::Arrival { from, to, frame });
                }
            }
        }
    }

    /// Runs until all programs are over, lets the network heal and all flows end, and looks for what is left.
    ///
    /// # Panics
    /// If something is not as it must be, or the programs are not over within `limit` of virtual time.
    pub fn run(&mut self, limit: Duration) -> Outcome {
        let limit_ns = limit.as_nanos() as u64;
        self.run_until(limit_ns, |end| end.host.is_over());
        let late: Vec<&str> = self.names(|end| !end.host.is_over());
        assert!(late.is_empty(), "not over after {limit:?}: {late:?}");
        let achieved = self.ends.iter().map(|end| end.host.achieved()).sum();
        for plug in &mut self.plugs {
            plug.up.heal();
            plug.down.heal();
        }
        self.run_until(self.now_ns + DRAIN.as_nanos() as u64, |end| end.host.flow_count() == 0);
        let kept = self.names(|end| end.host.flow_count() > 0);
        assert!(kept.is_empty(), "{DRAIN:?} after the end there are flows left at {kept:?}");
        self.check_memory();
        let (hash, frames) = (self.trace.hash(), self.frames);
        Outcome { hash, virtual_ns: self.now_ns, frames, achieved }
    }

    /// Ends the programs, which may keep what they like until then; nothing may stay after that.
    fn check_memory(&mut self) {
        // Packets may wait for neighbours that do not answer.
        self.run_until(self.now_ns + Duration::from_secs(30).as_nanos() as u64, |_| false);
        self.ends.iter_mut().for_each(|end| end.host.end());
        for end in &self.ends {
            let (name, live) = (end.host.name(), end.host.memory_live());
            assert!(live == 0, "{name}: {live} buffers are held by nobody who needs them");
        }
    }

    fn names(&self, matches: impl Fn(&End) -> bool) -> Vec<&str> {
        self.ends.iter().filter(|end| matches(end)).map(|end| end.host.name()).collect()
    }

    /// Runs until `is_done` holds of every host, or until a time.
    fn run_until(&mut self, until_ns: u64, is_done: impl Fn(&End) -> bool) {
        /// Looking at every host after every event would cost more than the events.
        const EVERY: u32 = 64;
        let mut events = 0;
        while self.events.peek().is_some_and(|Reverse((at_ns, _))| *at_ns <= until_ns) {
            if events % EVERY == 0 && self.ends.iter().all(&is_done) {
                return;
            }
            events += 1;
            self.step();
        }
    }

    /// Lets so much time pass, whatever happens.
    #[cfg(test)]
    pub(crate) fn run_for(&mut self, time: Duration) {
        let until_ns = self.now_ns + time.as_nanos() as u64;
        self.run_until(until_ns, |_| false);
        self.now_ns = until_ns;
    }

    /// A look at a host.
    pub fn host(&self, index: usize) -> &Host {
        &self.ends[index].host
    }
}
