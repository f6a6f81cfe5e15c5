//! Which Ethernet address belongs to a neighbour's IP address, and whether the neighbour is there: for ARP
//! and neighbour discovery (RFC 4861 section 7.3) alike.

use crate::frame::Mac;
use crate::time::Instant;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::IpAddr;
use core::num::NonZeroU32;
use core::time::Duration;
use nom_port::nic::Outgoing;

/// Neighbours remembered. A link with more makes the oldest go.
const NEIGHBOURS_MAX: usize = 1024;
/// Packets that wait for an address, all neighbours together.
const WAITING_MAX: usize = 128;
/// Packets that wait for one neighbour (RFC 1122 section 2.3.2.2 wants at least one).
const WAITING_EACH_MAX: usize = 16;
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

#[derive(Clone, Copy, Debug)]
struct Neighbour {
    /// None while it is [`State::Incomplete`], and only then.
    mac: Option<Mac>,
    state: State,
    /// Questions asked since the last answer.
    asked: u8,
    /// When its state is looked at next.
    due: Option<Instant>,
    /// When it was last heard of, or asked for.
    heard_at: Instant,
}

/// What is known about a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Its Ethernet address.
    pub mac: Mac,
    /// It holds as long as [`Neighbours::version`] is this.
    pub version: NonZeroU32,
}

/// The neighbours, and the packets that wait for them.
#[derive(Debug)]
pub struct Neighbours<B> {
    known: BTreeMap<IpAddr, Neighbour>,
    waiting: VecDeque<(IpAddr, Outgoing<B>)>,
    version: NonZeroU32,
    /// Nothing is due before this.
    wake: Option<Instant>,
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
            waiting: VecDeque::new(),
            version: NonZeroU32::MIN,
            wake: None,
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
    pub fn resolve(&mut self, now: Instant, address: IpAddr) -> Option<Hop> {
        let Some(neighbour) = self.known.get_mut(&address) else {
            self.insert(now, address, None, State::Incomplete, Some(now));
            return None;
        };
        if neighbour.state == State::Stale {
            (neighbour.state, neighbour.due) = (State::Delay, Some(now + DELAY));
            self.wake = earlier(self.wake, neighbour.due);
        }
        neighbour.mac.map(|mac| Hop { mac, version: self.version })
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
            self.doubt();
        }
    }

    /// Keeps a packet until its neighbour is known; `false` if too many wait already.
    pub fn hold(&mut self, address: IpAddr, packet: Outgoing<B>) -> bool {
        let same = self.waiting.iter().filter(|(other, _)| *other == address).count();
        if self.waiting.len() >= WAITING_MAX || same >= WAITING_EACH_MAX {
            return false;
        }
        self.waiting.push_back((address, packet));
        true
    }

    /// Somebody said which Ethernet address a neighbour has, or only that it is there. Only one that we ask
    /// for, know, or that asks us is remembered: the rest would be anybody's way to fill the table. Returns
    /// what waited for it (RFC 4861 sections 7.2.3 and 7.2.5).
    pub fn learn(
        &mut self,
        now: Instant,
        address: IpAddr,
        mac: Option<Mac>,
        said: Said,
    ) -> VecDeque<Outgoing<B>> {
        let mac = mac.filter(|mac| mac[0] & 1 == 0);
        let Some(known) = self.known.get(&address).copied() else {
            if let (Said::Asked, Some(_)) = (said, mac) {
                self.insert(now, address, mac, State::Stale, None);
                self.doubt();
            }
            return VecDeque::new();
        };
        let (state, mac) = match judge(known.mac, known.state, mac, said) {
            Some(judged) => judged,
            None => return VecDeque::new(),
        };
        let due = match state {
            State::Reachable => Some(now + self.reachable),
            State::Stale => None,
            _ => known.due,
        };
        let asked = if state == known.state { known.asked } else { 0 };
        self.known.insert(address, Neighbour { mac: Some(mac), state, asked, due, heard_at: now });
        self.wake = earlier(self.wake, due);
        if known.mac != Some(mac) || state == State::Stale {
            self.doubt();
        }
        self.take_waiting(address)
    }

    /// What is to be done now.
    pub fn due(&mut self, now: Instant) -> Due {
        let mut due = Due::default();
        if self.wake.is_none_or(|wake| wake > now) {
            return due;
        }
        let mut is_doubtful = false;
        for (address, neighbour) in &mut self.known {
            if neighbour.due.is_none_or(|due| due > now) {
                continue;
            }
            match neighbour.state {
                State::Reachable | State::Stale => {
                    (neighbour.state, neighbour.due) = (State::Stale, None);
                    is_doubtful = true;
                    continue;
                }
                State::Delay => (neighbour.state, neighbour.asked) = (State::Probe, 0),
                State::Incomplete | State::Probe if neighbour.asked >= ASK_TIMES => {
                    due.gone.push(*address);
                    continue;
                }
                State::Incomplete | State::Probe => {}
            }
            neighbour.asked += 1;
            neighbour.due = Some(now + self.ask_every);
            due.ask.push((*address, neighbour.mac));
        }
        for address in &due.gone {
            self.known.remove(address);
            is_doubtful = true;
            due.dropped += self.take_waiting(*address).len() as u64;
        }
        if is_doubtful {
            self.doubt();
        }
        self.wake = self.known.values().filter_map(|neighbour| neighbour.due).min();
        due
    }

    /// When [`Neighbours::due`] next has something to say.
    pub fn first(&self) -> Option<Instant> {
        self.wake
    }

    fn insert(
        &mut self,
        now: Instant,
        address: IpAddr,
        mac: Option<Mac>,
        state: State,
        due: Option<Instant>,
    ) {
        self.make_room();
        let neighbour = Neighbour { mac, state, asked: 0, due, heard_at: now };
        self.known.insert(address, neighbour);
        self.wake = earlier(self.wake, due);
    }

    /// Whether packets wait for a neighbour's address.
    pub fn is_holding(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn take_waiting(&mut self, address: IpAddr) -> VecDeque<Outgoing<B>> {
        let (mine, others) = core::mem::take(&mut self.waiting)
            .into_iter()
            .partition::<VecDeque<_>, _>(|(to, _)| *to == address);
        self.waiting = others;
        mine.into_iter().map(|(_, packet)| packet).collect()
    }

    fn make_room(&mut self) {
        if self.known.len() >= NEIGHBOURS_MAX
            && let Some(oldest) =
                self.known.iter().min_by_key(|(_, n)| n.heard_at).map(|(address, _)| *address)
        {
            self.known.remove(&oldest);
            self.doubt();
            self.take_waiting(oldest);
        }
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

fn earlier(wake: Option<Instant>, at: Option<Instant>) -> Option<Instant> {
    wake.into_iter().chain(at).min()
}

#[cfg(test)]
mod tests;
