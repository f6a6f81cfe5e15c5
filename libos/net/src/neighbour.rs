//! Which Ethernet address belongs to a neighbour's IP address, for ARP and neighbour discovery alike.

use crate::frame::Mac;
use crate::time::Instant;
use alloc::collections::{BTreeMap, VecDeque};
use core::net::IpAddr;
use core::time::Duration;
use nom_port::nic::Outgoing;

/// Neighbours remembered. A link with more makes the oldest go.
const NEIGHBOURS_MAX: usize = 1024;
/// Packets that wait for an address, all neighbours together.
const WAITING_MAX: usize = 128;
/// Packets that wait for one neighbour (RFC 1122 section 2.3.2.2 wants at least one).
const WAITING_EACH_MAX: usize = 16;
/// Time between questions, and how many there are (RFC 4861 section 10).
const ASK_EVERY: Duration = Duration::from_secs(1);
const ASK_TIMES: u8 = 3;
/// How long an answer is believed.
const LIFE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
struct Neighbour {
    mac: Option<Mac>,
    /// Until then nobody needs to be asked.
    fresh_until: Instant,
    /// Questions asked since the last answer, and when the next is due.
    asked: u8,
    ask_at: Instant,
}

/// What is known about a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Its Ethernet address.
    pub mac: Mac,
    /// It holds as long as [`Neighbours::version`] is this.
    pub version: u32,
}

/// The neighbours, and the packets that wait for them.
#[derive(Debug)]
pub struct Neighbours<B> {
    known: BTreeMap<IpAddr, Neighbour>,
    waiting: VecDeque<(IpAddr, Outgoing<B>)>,
    version: u32,
    /// No question is due before this.
    wake: Option<Instant>,
}

/// Questions that are to be asked now, and packets for which nobody answered.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// Who is to be asked for, and by which Ethernet address if one was known.
    pub ask: alloc::vec::Vec<(IpAddr, Option<Mac>)>,
    /// Packets given up.
    pub dropped: u64,
}

impl<B> Neighbours<B> {
    /// Nobody.
    pub fn new() -> Neighbours<B> {
        Neighbours { known: BTreeMap::new(), waiting: VecDeque::new(), version: 0, wake: None }
    }

    /// Changes whenever something becomes known or unknown.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// A neighbour's Ethernet address. If it has to be asked for, it is at the next [`Neighbours::due`].
    pub fn resolve(&mut self, now: Instant, address: IpAddr) -> Option<Hop> {
        let version = self.version;
        if !self.known.contains_key(&address) {
            self.make_room();
        }
        let unknown = Neighbour { mac: None, fresh_until: now, asked: 0, ask_at: now };
        let neighbour = self.known.entry(address).or_insert(unknown);
        self.wake = earlier(self.wake, neighbour.ask_at);
        neighbour.mac.map(|mac| Hop { mac, version })
    }

    /// A neighbour's Ethernet address, if it is known; nobody is asked.
    pub fn mac(&self, address: IpAddr) -> Option<Mac> {
        known_mac(self.known.get(&address))
    }

    /// Believes somebody of this host about a neighbour of whom nothing is known, and asks the neighbour at
    /// the next [`Neighbours::due`].
    pub fn suppose(&mut self, now: Instant, address: IpAddr, mac: Mac) {
        if self.known.contains_key(&address) {
            return;
        }
        self.make_room();
        self.known.insert(address, Neighbour { mac: Some(mac), fresh_until: now, asked: 0, ask_at: now });
        self.version = self.version.wrapping_add(1);
        self.wake = earlier(self.wake, now);
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

    /// Somebody said which Ethernet address a neighbour has. Only one that we ask for, know, or that asks us
    /// is remembered (`is_asking`): the rest would be anybody's way to fill the table.
    pub fn learn(
        &mut self,
        now: Instant,
        address: IpAddr,
        mac: Mac,
        is_asking: bool,
    ) -> VecDeque<Outgoing<B>> {
        let known = self.known.get(&address);
        if !is_asking && known.is_none() || mac[0] & 1 == 1 {
            return VecDeque::new();
        }
        if known.is_none() {
            self.make_room();
        }
        if known_mac(self.known.get(&address)) != Some(mac) {
            self.version = self.version.wrapping_add(1);
        }
        let fresh_until = now + LIFE;
        self.known.insert(address, Neighbour { mac: Some(mac), fresh_until, asked: 0, ask_at: fresh_until });
        self.wake = earlier(self.wake, fresh_until);
        self.take_waiting(address)
    }

    /// What is to be done now.
    pub fn due(&mut self, now: Instant) -> Due {
        let mut due = Due::default();
        if self.wake.is_none_or(|wake| wake > now) {
            return due;
        }
        let mut gone = alloc::vec::Vec::new();
        for (address, neighbour) in &mut self.known {
            if neighbour.ask_at > now {
                continue;
            }
            if neighbour.asked >= ASK_TIMES {
                gone.push(*address);
                continue;
            }
            neighbour.asked += 1;
            neighbour.ask_at = now + ASK_EVERY;
            due.ask.push((*address, neighbour.mac));
        }
        for address in gone {
            self.known.remove(&address);
            self.version = self.version.wrapping_add(1);
            due.dropped += self.take_waiting(address).len() as u64;
        }
        self.wake = self.known.values().map(|neighbour| neighbour.ask_at).min();
        due
    }

    /// When [`Neighbours::due`] next has something to say.
    pub fn first(&self) -> Option<Instant> {
        self.wake
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
                self.known.iter().min_by_key(|(_, n)| n.fresh_until).map(|(address, _)| *address)
        {
            self.known.remove(&oldest);
            self.version = self.version.wrapping_add(1);
            self.take_waiting(oldest);
        }
    }
}

impl<B> Default for Neighbours<B> {
    fn default() -> Neighbours<B> {
        Neighbours::new()
    }
}

fn earlier(wake: Option<Instant>, at: Instant) -> Option<Instant> {
    Some(wake.map_or(at, |wake| wake.min(at)))
}

fn known_mac(neighbour: Option<&Neighbour>) -> Option<Mac> {
    neighbour.and_then(|neighbour| neighbour.mac)
}
