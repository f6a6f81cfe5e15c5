//! Whether an address is somebody else's: IPv4 address conflict detection (RFC 5227) and IPv6 duplicate
//! address detection (RFC 4862 section 5.4), without the packets.
//!
//! The gaps between IPv4 probes are a fifth of those of RFC 5227, which were made for links where a bridge
//! takes its time: a machine is to serve within a second or two.

use crate::chance::Chance;
use crate::config::Cidr;
use crate::time::Instant;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

/// Probes of an IPv4 address, and least and longest gap between them and after the last.
const PROBES_V4: u8 = 3;
const GAP_MIN: Duration = Duration::from_millis(200);
const GAP_MAX: Duration = Duration::from_millis(400);
/// Solicitations of an IPv6 address, and the wait after each (RFC 4862 section 5.1).
const PROBES_V6: u8 = 1;
const GAP_V6: Duration = Duration::from_secs(1);
/// Announcements of an IPv4 address that nobody has, and the gap between them (RFC 5227 section 1.1).
const ANNOUNCEMENTS: u8 = 2;
const ANNOUNCE_GAP: Duration = Duration::from_secs(2);
/// How often an address is defended at most (RFC 5227 section 1.1).
const DEFEND_EVERY: Duration = Duration::from_secs(10);
/// Addresses under test or under dispute at a time.
const MOST: usize = 32;

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask whether anybody has this address.
    Ask(IpAddr),
    /// Nobody has it: it can be used.
    Free(Cidr),
    /// Tell everybody that it is ours.
    Announce(IpAddr),
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    address: Cidr,
    asked: u8,
    /// Announced so often; nothing before it is free.
    announced: Option<u8>,
    due: Instant,
}

/// The addresses under test.
#[derive(Clone, Debug, Default)]
pub struct Probes {
    probes: Vec<Probe>,
    defended: Vec<(IpAddr, Instant)>,
}

impl Probes {
    /// Tests an address from `at` on; not again one that is being tested.
    pub fn begin(&mut self, at: Instant, address: Cidr) {
        self.end(address.address);
        if self.probes.len() < MOST {
            self.probes.push(Probe { address, asked: 0, announced: None, due: at });
        }
    }

    /// Tests or announces it no further.
    pub fn end(&mut self, address: IpAddr) {
        self.probes.retain(|probe| probe.address.address != address);
    }

    /// Whether an address is under test.
    pub fn tests(&self, address: IpAddr) -> bool {
        self.probes.iter().any(|probe| probe.address.address == address && probe.announced.is_none())
    }

    /// The addresses under test.
    pub fn under_test(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.probes.iter().filter(|probe| probe.announced.is_none()).map(|probe| probe.address.address)
    }

    /// When there is something to do.
    pub fn due(&self) -> Option<Instant> {
        self.probes.iter().map(|probe| probe.due).min()
    }

    /// What is to be done now; to be asked until there is nothing.
    pub fn poll(&mut self, now: Instant, chance: &mut Chance) -> Option<Step> {
        let index = self.probes.iter().position(|probe| probe.due <= now)?;
        let probe = &mut self.probes[index];
        let Cidr { address, .. } = probe.address;
        let (most, gap) = match address {
            IpAddr::V4(_) => (PROBES_V4, GAP_MIN + chance.below(GAP_MAX - GAP_MIN)),
            IpAddr::V6(_) => (PROBES_V6, GAP_V6),
        };
        let Some(announced) = &mut probe.announced else {
            if probe.asked < most {
                (probe.asked, probe.due) = (probe.asked + 1, now + gap);
                return Some(Step::Ask(address));
            }
            let step = Step::Free(probe.address);
            match address {
                IpAddr::V4(_) => probe.announced = Some(0),
                // Whoever asks is told; nobody has an old answer.
                IpAddr::V6(_) => drop(self.probes.swap_remove(index)),
            }
            return Some(step);
        };
        *announced += 1;
        probe.due = now + ANNOUNCE_GAP;
        if *announced >= ANNOUNCEMENTS {
            self.probes.swap_remove(index);
        }
        Some(Step::Announce(address))
    }

    /// Whether an address of ours that somebody else claims is to be defended now. It is never given up: who
    /// took servers' addresses by two packets would be an attacker more often than a neighbour (RFC 5227
    /// section 2.4 (c)).
    pub fn may_defend(&mut self, now: Instant, address: IpAddr) -> bool {
        self.defended.retain(|(_, at)| now < *at + DEFEND_EVERY);
        let may = self.defended.len() < MOST && !self.defended.iter().any(|(other, _)| *other == address);
        if may {
            self.defended.push((address, now));
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_micros(millis * 1000)
    }

    /// What is done about an address, with the times in milliseconds.
    fn steps(address: Cidr) -> Vec<(u64, Step)> {
        let (mut probes, mut chance) = (Probes::default(), Chance::new([1, 2]));
        probes.begin(at(500), address);
        let mut steps = Vec::new();
        while let Some(due) = probes.due() {
            let step = probes.poll(due, &mut chance).expect("something is due");
            steps.push((due.micros() / 1000, step));
        }
        steps
    }

    #[test]
    fn an_ipv4_address_is_probed_thrice_and_announced_twice() {
        let cidr = Cidr { address: [10, 0, 0, 1].into(), prefix: 24 };
        let steps = steps(cidr);
        let kinds: Vec<Step> = steps.iter().map(|(_, step)| *step).collect();
        let (ask, announce) = (Step::Ask(cidr.address), Step::Announce(cidr.address));
        assert_eq!(kinds, [ask, ask, ask, Step::Free(cidr), announce, announce]);
        assert_eq!(steps[0].0, 500);
        for pair in steps[..4].windows(2) {
            assert!((200..=400).contains(&(pair[1].0 - pair[0].0)), "{steps:?}");
        }
        assert_eq!((steps[4].0, steps[5].0), (steps[3].0, steps[4].0 + 2000));
    }

    #[test]
    fn an_ipv6_address_is_free_after_a_second_of_silence() {
        let cidr = Cidr { address: [0xfe80, 0, 0, 0, 0, 0, 0, 1].into(), prefix: 64 };
        assert_eq!(steps(cidr), [(500, Step::Ask(cidr.address)), (1500, Step::Free(cidr))]);
    }

    #[test]
    fn an_address_is_defended_every_ten_seconds_at_most() {
        let mut probes = Probes::default();
        let mut defends = |millis| probes.may_defend(at(millis), [10, 0, 0, 1].into());
        assert!(defends(0) && !defends(9_999) && defends(10_000) && !defends(10_001));
    }
}
