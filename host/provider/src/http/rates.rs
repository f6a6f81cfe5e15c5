//! How often anybody may ask: a bucket for each account, and for each address without a key.

use crate::accounts::Identity;
use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use std::fmt;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;

/// Seconds' worth of requests that may come at once.
const BURST_SECONDS: u32 = 5;
/// Buckets beyond which full ones, which say nothing, are dropped.
const BUCKETS_MAX: usize = 10_000;

/// All buckets.
pub struct Rates {
    per_second: NonZeroU32,
    accounts: DefaultKeyedRateLimiter<(&'static str, String)>,
    addresses: DefaultKeyedRateLimiter<IpAddr>,
}

impl Rates {
    /// So many requests a second for each, and more at once after a pause.
    pub fn new(per_second: NonZeroU32) -> Rates {
        let burst = per_second.saturating_mul(NonZeroU32::new(BURST_SECONDS).expect("not 0"));
        let quota = Quota::per_second(per_second).allow_burst(burst);
        Rates { per_second, accounts: RateLimiter::keyed(quota), addresses: RateLimiter::keyed(quota) }
    }

    /// Requests a second that each may make.
    pub fn per_second(&self) -> u32 {
        self.per_second.get()
    }

    /// A request of an account: nothing, or after how many seconds it may come again.
    pub fn account(&self, identity: &Identity) -> Option<u64> {
        ask(&self.accounts, &(identity.role.name(), identity.name.clone()))
    }

    /// The same for a request without a good key.
    pub fn address(&self, address: IpAddr) -> Option<u64> {
        ask(&self.addresses, &network_of(address))
    }
}

/// What counts as one client: of an IPv6 address the network, in which its owner has as many addresses as he
/// likes; an IPv4 address that came to a socket of IPv6 is itself, or all of them would be one.
pub fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from(u128::from(address) >> 64 << 64)),
        address @ IpAddr::V4(_) => address,
    }
}

fn ask<K: Clone + Eq + Hash>(limiter: &DefaultKeyedRateLimiter<K>, key: &K) -> Option<u64> {
    if limiter.len() > BUCKETS_MAX {
        limiter.retain_recent();
    }
    let refused = limiter.check_key(key).err()?;
    let wait = refused.wait_time_from(DefaultClock::default().now());
    Some(wait.as_secs() + 1)
}

impl fmt::Debug for Rates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rates").field("per_second", &self.per_second).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nom_proto::account::Role;

    #[test]
    fn whoever_asks_too_often_waits_alone() {
        let rates = Rates::new(NonZeroU32::new(1).expect("not 0"));
        let identity = |name: &str| Identity { role: Role::Machine, name: name.into() };
        let asked = |name| (0..50).filter(|_| rates.account(&identity(name)).is_none()).count();
        let greedy = asked("greedy");
        assert!((5..50).contains(&greedy), "{greedy} of 50 at once");
        assert!(rates.account(&identity("greedy")).is_some_and(|seconds| (1..=6).contains(&seconds)));
        assert_eq!(rates.account(&identity("modest")), None);
        let address = |last| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, last));
        let many = (0..50).filter(|last| rates.address(address(*last)).is_none()).count();
        assert!(many < 50, "one network has one bucket");
    }
}
