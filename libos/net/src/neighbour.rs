//! Which Ethernet address belongs to a neighbour's IP address, and whether the neighbour is there: for ARP
//! and neighbour discovery (RFC 4861 section 7.3) alike.

use crate::frame::Mac;
use crate::time::Instant;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::IpAddr;
use core::num::NonZeroU32;
use core::time::Duration;
use nom_port::nic::Outgoing;

/// Neighbours remembered. A link with more makes the oldest go.
const NEIGHBOURS_MAX: usize = 1024;
/// Packets that wait for an address, all neighbours together.
const WAITING_MAX: usize = 128;
/// Packets that wait for one neighbour (RFC 1122 section 2.3.2.2 wants at least one): the longest datagram
/// has 45 fragments on Ethernet.
const WAITING_EACH_MAX: usize = 48;
/// Questions before a neighbour counts as gone, and what is waited for each answer unless a router says
/// otherwise (RFC 4861 section 10).
const ASK_TIMES: u8 = 3;
const ASK_EVERY: Duration = Duration::from_secs(1);
/// How long an answer is believed, about, unless a router says otherwise.
const REACHABLE: Duration = Duration::from_secs(30);
/// How long others may show that a neighbour is there before it is asked.
const DELAY: Duration = Duration::from_secs(5);

/// How sure it is that a neighbour is there (RFC 4861 section 7.3.2). ARP goes by the same states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is asked for its Ethernet address.
    Incomplete,
    /// It has answered of late.
    Reachable,
    /// It may have gone; who sends to it finds out.
    Stale,
    /// Something was sent to it since.
    Delay,
    /// It is asked whether it is there.
    Probe,
}

/// What a neighbour said about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// It asked us something.
    Asked,
    /// It answered, or told everybody.
    Told {
        /// We had asked.
        is_solicited: bool,
        /// It replaces what was known.
        is_override: bool,
    },
}

#[derive(Debug)]
struct Neighbour<B> {
    /// None while it is [`State::Incomplete`], and only then.
    mac: Option<Mac>,
    state: State,
    /// Questions asked since the last answer.
    asked: u8,
    /// Whether a flow may hold a [`Hop`] to it, and has to hear if it goes.
    is_used: bool,
    /// When its state is looked at next.
    due: Option<Instant>,
    /// When it was last heard of, or asked for.
    heard_at: Instant,
    /// Packets that wait for its address: none unless it is [`State::Incomplete`].
    waiting: Vec<Outgoing<B>>,
}

/// What is known about a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Its Ethernet address.
    pub mac: Mac,
    /// It holds as long as [`Neighbours::version`] is this.
    pub version: NonZeroU32,
}

/// The neighbours, and the packets that wait for them. Strangers can fill it, so nothing that a frame of
/// theirs does looks at all of them.
#[derive(Debug)]
pub struct Neighbours<B> {
    known: BTreeMap<IpAddr, Neighbour<B>>,
    /// Whose state is to be looked at, in the order of time.
    dues: BTreeSet<(Instant, IpAddr)>,
    /// All of them, in the order in which they were heard of; before all others those that no flow needs.
    oldest: BTreeSet<(bool, Instant, IpAddr)>,
    /// Packets that wait, for all of them.
    waiting: usize,
    version: NonZeroU32,
    reachable: Duration,
    ask_every: Duration,
}

/// Questions that are to be asked now, and packets for which nobody answered.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// Who is to be asked for, and by which Ethernet address if one was known.
    pub ask: Vec<(IpAddr, Option<Mac>)>,
    /// Who did not answer.
    pub gone: Vec<IpAddr>,
    /// Packets given up.
    pub dropped: u64,
}

impl<B> Neighbours<B> {
    /// Nobody.
    pub fn new() -> Neighbours<B> {
        Neighbours {
            known: BTreeMap::new(),
            dues: BTreeSet::new(),
            oldest: BTreeSet::new(),
            waiting: 0,
            version: NonZeroU32::MIN,
            reachable: REACHABLE,
            ask_every: ASK_EVERY,
        }
    }

    /// How long answers are believed, if a router says so, and waited for. Nobody believes for exactly as
    /// long as others: `chance` is a random number (RFC 4861 section 6.3.2).
    pub fn set_times(&mut self, reachable: Option<Duration>, ask_every: Option<Duration>, chance: u64) {
        let base = reachable.unwrap_or(REACHABLE).min(Duration::from_secs(3600));
        self.reachable = base / 2 + base / 1000 * (chance % 1000) as u32;
        self.ask_every =
            ask_every.unwrap_or(ASK_EVERY).clamp(Duration::from_millis(100), Duration::from_secs(60));
    }

    /// Changes whenever something becomes known, unknown or doubtful.
    pub fn version(&self) -> NonZeroU32 {
        self.version
    }

    /// Has every flow ask anew through whom its peer is reached.
    pub fn doubt(&mut self) {
        self.version = self.version.checked_add(1).unwrap_or(NonZeroU32::MIN);
    }

    /// A neighbour's Ethernet address, for something that is sent. If it has to be asked for, it is at the
    /// next [`Neighbours::due`].
    pub fn resolve(&mut self, now: Instant, address: IpAddr) -> Option<Mac> {
        let Some(neighbour) = self.known.get_mut(&address) else {
            self.insert(now, address, None, State::Incomplete, Some(now));
            return None;
        };
        if neighbour.state == State::Stale {
            neighbour.state = State::Delay;
            put_due(&mut self.dues, address, &mut neighbour.due, Some(now + DELAY));
        }
        neighbour.mac
    }

    /// The same for a flow, which keeps it as long as it holds: the neighbour stays, while others can go.
    pub fn resolve_for_flow(&mut self, now: Instant, address: IpAddr) -> Option<Hop> {
        let mac = self.resolve(now, address)?;
        if let Some(neighbour) = self.known.get_mut(&address).filter(|neighbour| !neighbour.is_used) {
            self.oldest.remove(&(false, neighbour.heard_at, address));
            self.oldest.insert((true, neighbour.heard_at, address));
            neighbour.is_used = true;
        }
        Some(Hop { mac, version: self.version })
    }

    /// A neighbour's Ethernet address, if it is known; nobody is asked.
    pub fn mac(&self, address: IpAddr) -> Option<Mac> {
        self.known.get(&address)?.mac
    }

    /// How sure a neighbour is; nothing of those who are not known.
    pub fn state(&self, address: IpAddr) -> Option<State> {
        Some(self.known.get(&address)?.state)
    }

    /// Believes somebody of this host about a neighbour of whom nothing is known, and asks the neighbour at
    /// the next [`Neighbours::due`].
    pub fn suppose(&mut self, now: Instant, address: IpAddr, mac: Mac) {
        if !self.known.contains_key(&address) {
            self.insert(now, address, Some(mac), State::Probe, Some(now));
        }
    }

    /// Keeps a packet until its neighbour, who was just asked for by [`Neighbours::resolve`], is known;
    /// `false` if too many wait already.
    pub fn hold(&mut self, address: IpAddr, packet: Outgoing<B>) -> bool {
        let Some(neighbour) = self.known.get_mut(&address).filter(|neighbour| neighbour.mac.is_none()) else {
            return false;
        };
        if self.waiting >= WAITING_MAX || neighbour.waiting.len() >= WAITING_EACH_MAX {
            return false;
        }
        neighbour.waiting.push(packet);
        self.waiting += 1;
        true
    }

    /// Somebody said which Ethernet address a neighbour has, or only that it is there. Only one that we ask
    /// for, know, or that asks us is remembered: the rest would be anybody's way to fill the table. Returns
    /// what waited for it (RFC 4861 sections 7.2.3 and 7.2.5).
    pub fn learn(&mut self, now: Instant, address: IpAddr, mac: Option<Mac>, said: Said) -> Vec<Outgoing<B>> {
        let mac = mac.filter(|mac| mac[0] & 1 == 0);
        let Some(known) = self.known.get_mut(&address) else {
            if let (Said::Asked, Some(_)) = (said, mac) {
                self.insert(now, address, mac, State::Stale, None);
            }
            return Vec::new();
        };
        let Some((state, mac)) = judge(known.mac, known.state, mac, said) else { return Vec::new() };
        let due = match state {
            State::Reachable => Some(now + self.reachable),
            State::Stale => None,
            _ => known.due,
        };
        // Nobody who holds a hop heard of it before, or has to ask anew.
        let is_news = known.mac != Some(mac) || state == State::Stale && known.state != State::Stale;
        let is_doubtful = known.is_used && is_news;
        known.asked = if state == known.state { known.asked } else { 0 };
        (known.mac, known.state) = (Some(mac), state);
        put_due(&mut self.dues, address, &mut known.due, due);
        if known.heard_at != now {
            self.oldest.remove(&(known.is_used, known.heard_at, address));
            self.oldest.insert((known.is_used, now, address));
            known.heard_at = now;
        }
        let waited = core::mem::take(&mut known.waiting);
        self.waiting -= waited.len();
        if is_doubtful {
            self.doubt();
        }
        waited
    }

    /// What is to be done now.
    pub fn due(&mut self, now: Instant) -> Due {
        let mut due = Due::default();
        let mut is_doubtful = false;
        while let Some((_, address)) = self.dues.first().copied().filter(|(at, _)| *at <= now) {
            let Some(neighbour) = self.known.get_mut(&address) else { unreachable!("who is due is known") };
            let mut next = Some(now + self.ask_every);
            match neighbour.state {
                State::Reachable | State::Stale => {
                    (neighbour.state, next) = (State::Stale, None);
                    is_doubtful |= neighbour.is_used;
                }
                State::Incomplete | State::Probe if neighbour.asked >= ASK_TIMES => {
                    due.dropped += self.remove(address) as u64;
                    due.gone.push(address);
                    continue;
                }
                State::Delay | State::Incomplete | State::Probe => {
                    if neighbour.state == State::Delay {
                        (neighbour.state, neighbour.asked) = (State::Probe, 0);
                    }
                    neighbour.asked += 1;
                    due.ask.push((address, neighbour.mac));
                }
            }
            put_due(&mut self.dues, address, &mut neighbour.due, next);
        }
        if is_doubtful {
            self.doubt();
        }
        due
    }

    /// When [`Neighbours::due`] next has something to say.
    pub fn first(&self) -> Option<Instant> {
        self.dues.first().map(|(at, _)| *at)
    }

    fn insert(
        &mut self,
        now: Instant,
        address: IpAddr,
        mac: Option<Mac>,
        state: State,
        due: Option<Instant>,
    ) {
        if self.known.len() >= NEIGHBOURS_MAX
            && let Some((_, _, oldest)) = self.oldest.first().copied()
        {
            self.remove(oldest);
        }
        self.dues.extend(due.map(|due| (due, address)));
        self.oldest.insert((false, now, address));
        let (asked, is_used, waiting) = (0, false, Vec::new());
        let neighbour = Neighbour { mac, state, asked, is_used, due, heard_at: now, waiting };
        self.known.insert(address, neighbour);
    }

    /// Forgets a neighbour, and says how many packets waited for it.
    fn remove(&mut self, address: IpAddr) -> usize {
        let Some(gone) = self.known.remove(&address) else { return 0 };
        self.oldest.remove(&(gone.is_used, gone.heard_at, address));
        gone.due.iter().for_each(|due| _ = self.dues.remove(&(*due, address)));
        self.waiting -= gone.waiting.len();
        if gone.is_used {
            self.doubt();
        }
        gone.waiting.len()
    }

    /// Whether packets wait for a neighbour's address.
    pub fn is_holding(&self) -> bool {
        self.waiting > 0
    }
}

/// Has the state of a neighbour looked at at `at`, instead of when that was `due`.
fn put_due(
    dues: &mut BTreeSet<(Instant, IpAddr)>,
    address: IpAddr,
    due: &mut Option<Instant>,
    at: Option<Instant>,
) {
    if *due != at {
        due.iter().for_each(|due| _ = dues.remove(&(*due, address)));
        dues.extend(at.map(|at| (at, address)));
        *due = at;
    }
}

/// State and Ethernet address of a neighbour after what it `said`; nothing if that is to be ignored.
fn judge(known: Option<Mac>, state: State, mac: Option<Mac>, said: Said) -> Option<(State, Mac)> {
    let is_new = mac.is_some() && mac != known;
    match said {
        _ if state == State::Incomplete => {
            let is_answer = matches!(said, Said::Told { is_solicited: true, .. });
            Some((if is_answer { State::Reachable } else { State::Stale }, mac?))
        }
        Said::Asked => Some((if is_new { State::Stale } else { state }, mac.or(known)?)),
        Said::Told { is_override: false, .. } if is_new => {
            // Two say that they have it: who was there first is asked again before it is believed again.
            (state == State::Reachable).then_some((State::Stale, known?))
        }
        Said::Told { is_solicited: true, .. } => Some((State::Reachable, mac.or(known)?)),
        Said::Told { .. } => Some((if is_new { State::Stale } else { state }, mac.or(known)?)),
    }
}

impl<B> Default for Neighbours<B> {
    fn default() -> Neighbours<B> {
        Neighbours::new()
    }
}

#[cfg(test)]
mod tests;
