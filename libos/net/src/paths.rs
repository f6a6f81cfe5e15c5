//! What earlier connections learned of the ways to their peers, for the next ones: how large segments may be
//! (RFC 1191, RFC 8201) and how long a round trip takes (RFC 9040).
//!
//! The congestion window is not remembered, nor its threshold: what one connection lost says little about the
//! next, and Linux has ceased to keep it (`tcp_no_ssthresh_metrics_save`).

use crate::table::address_hash;
use crate::time::Instant;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

/// Ways remembered. Each has a place that a keyed hash chooses, and yields it to the next that wants it.
const PLACES: usize = 256;
/// How long (RFC 1191 section 6.3, RFC 8201 section 4).
const LIFE: Duration = Duration::from_secs(600);

/// What is known of the way to `remote`.
#[derive(Clone, Copy, Debug)]
struct Known {
    remote: IpAddr,
    /// Most bytes of payload and options in a segment, until when.
    mss: Option<(u32, Instant)>,
    /// Most bytes of a packet with a datagram, headers of IP included, until when.
    mtu: Option<(u32, Instant)>,
    /// Smoothed round-trip time, until when.
    rtt: Option<(Duration, Instant)>,
}

/// Ways to peers.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    places: Vec<Option<Known>>,
    secret: [u64; 2],
}

impl Paths {
    pub fn new(secret: [u64; 2]) -> Paths {
        Paths { places: Vec::new(), secret }
    }

    fn find(&self, remote: IpAddr) -> Option<&Known> {
        let place = address_hash(self.secret, remote) as usize % PLACES;
        self.places.get(place)?.as_ref().filter(|known| known.remote == remote)
    }

    fn entry(&mut self, remote: IpAddr) -> &mut Known {
        let place = address_hash(self.secret, remote) as usize % PLACES;
        if self.places.is_empty() {
            self.places.resize(PLACES, None);
        }
        let known = self.places[place].take().filter(|known| known.remote == remote);
        self.places[place].insert(known.unwrap_or(Known { remote, mss: None, mtu: None, rtt: None }))
    }

    /// Most bytes of payload and options that are known to reach `remote`, if fewer than the link takes.
    pub fn mss(&self, remote: IpAddr, now: Instant) -> Option<u32> {
        self.find(remote)?.mss.filter(|(_, until)| now < *until).map(|(mss, _)| mss)
    }

    /// Most bytes of a packet with a datagram that are known to reach `remote`, if fewer than the link takes.
    pub fn mtu(&self, remote: IpAddr, now: Instant) -> Option<u32> {
        self.find(remote)?.mtu.filter(|(_, until)| now < *until).map(|(mtu, _)| mtu)
    }

    /// The round trip to `remote`.
    pub fn rtt(&self, remote: IpAddr, now: Instant) -> Option<Duration> {
        self.find(remote)?.rtt.filter(|(_, until)| now < *until).map(|(rtt, _)| rtt)
    }

    /// Larger segments than `mss` do not reach `remote`.
    pub fn narrow(&mut self, remote: IpAddr, mss: u32, now: Instant) {
        self.entry(remote).mss = Some((mss, now + LIFE));
    }

    /// Larger packets with datagrams than `mtu` do not reach `remote`.
    pub fn narrow_datagrams(&mut self, remote: IpAddr, mtu: u32, now: Instant) {
        self.entry(remote).mtu = Some((mtu, now + LIFE));
    }

    /// A connection with `remote` that is over measured a round trip.
    pub fn measured(&mut self, remote: IpAddr, rtt: Duration, now: Instant) {
        self.entry(remote).rtt = Some((rtt, now + LIFE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_micros(1);

    fn peer(number: u32) -> IpAddr {
        core::net::Ipv4Addr::from_bits(0x0a00_0000 + number).into()
    }

    #[test]
    fn what_was_learned_is_known_for_ten_minutes() {
        let mut paths = Paths::new([1, 2]);
        assert_eq!(paths.mss(peer(1), NOW), None);
        paths.narrow(peer(1), 1000, NOW);
        paths.measured(peer(1), Duration::from_millis(5), NOW);
        assert_eq!((paths.mss(peer(1), NOW), paths.mss(peer(2), NOW)), (Some(1000), None));
        assert_eq!(paths.rtt(peer(1), NOW), Some(Duration::from_millis(5)));
        let later = NOW + LIFE;
        assert_eq!((paths.mss(peer(1), later), paths.rtt(peer(1), later)), (None, None));
    }

    #[test]
    fn a_crowd_takes_no_more_places_than_there_are() {
        let mut paths = Paths::new([1, 2]);
        for number in 0..10_000 {
            paths.measured(peer(number), Duration::from_millis(1), NOW);
        }
        let known = (0..10_000).filter(|&number| paths.rtt(peer(number), NOW).is_some()).count();
        assert_eq!((known, paths.places.len()), (PLACES, PLACES));
    }
}
