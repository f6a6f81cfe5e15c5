use super::*;

const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const SECOND: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
const MAC: Mac = [2, 0, 0, 0, 0, 1];

fn at(secs: u64) -> Instant {
    Instant::from_micros(secs * 1_000_000)
}

fn routers() -> Routers {
    Routers::new(at(0), [1, 2], MAC, &mut Chance::new([3, 4]))
}

fn prefix(valid_s: u32, preferred_s: u32) -> Prefix {
    let cidr = Cidr { address: "2001:db8::".parse().unwrap(), prefix: 64 };
    Prefix { cidr, is_on_link: true, is_autonomous: true, valid_s, preferred_s }
}

fn said(lifetime_s: u16, prefixes: &[Prefix]) -> Advertisement {
    Advertisement { lifetime_s, prefixes: prefixes.to_vec(), ..Advertisement::default() }
}

/// What the configuration is after it.
fn applied(routers: &Routers) -> Config {
    let mut config = Config::new([0; 4]);
    routers.apply(&mut config);
    config
}

/// Options of an advertisement, of 8 bytes each or what they say.
fn message(options: &[&[u8]]) -> Vec<u8> {
    let header = [ADVERTISEMENT, 0, 0, 0, 64, 0, 7, 8, 0, 0, 117, 48, 0, 0, 3, 232];
    [&header[..], &options.concat()].concat()
}

#[test]
fn an_advertisement_is_read() {
    let mut option = vec![3, 4, 64, 0xc0, 0, 0, 14, 16, 0, 0, 7, 8, 0, 0, 0, 0];
    option.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9]);
    let mut names = vec![25, 3, 0, 0, 0, 0, 0, 60];
    names.extend(SECOND.octets());
    let [unknown, mac, mtu] =
        [[200, 1, 0, 0, 0, 0, 0, 0], [1, 1, 2, 0, 0, 0, 0, 9], [5, 1, 0, 0, 0, 0, 5, 140]];
    let bytes = message(&[&unknown, &mac, &mtu, &option, &names]);
    let expected = Advertisement {
        hop_limit: 64,
        lifetime_s: 1800,
        reachable_ms: 30_000,
        retransmit_ms: 1000,
        mac: Some([2, 0, 0, 0, 0, 9]),
        mtu: Some(1420),
        prefixes: vec![prefix(3600, 1800)],
        nameservers: vec![(SECOND, 60)],
    };
    assert_eq!(Advertisement::parse(&bytes), Some(expected));
    for len in 0..bytes.len() {
        let cut = Advertisement::parse(&bytes[..len]);
        assert!(cut.is_none() || len >= HEADER_LEN && (len - HEADER_LEN).is_multiple_of(8), "{len}");
    }
    assert_eq!(
        Advertisement::parse(&message(&[&[5, 0, 0, 0, 0, 0, 5, 140]])),
        None,
        "an option without length"
    );
    let strange: [&[u8]; 3] =
        [&[5, 1, 0, 0, 0, 0, 0, 99], &[3, 1, 64, 0xc0, 0, 0, 0, 0], &[25, 1, 0, 0, 0, 0, 0, 9]];
    let said = Advertisement::parse(&message(&strange)).expect("strange options are skipped");
    assert_eq!((said.mtu, said.prefixes.len(), said.nameservers.len()), (None, 0, 0));
}

const HEADER_LEN: usize = 16;

#[test]
fn a_router_is_asked_for_ever_more_seldom_until_one_answers() {
    let (mut routers, mut chance) = (routers(), Chance::new([3, 4]));
    let mut times = Vec::new();
    for _ in 0..14 {
        let due = routers.due().expect("a solicitation");
        assert!(routers.solicits(due, &mut chance) && !routers.solicits(due, &mut chance));
        times.push(due.micros() / 1_000_000);
    }
    assert!(times[0] < 1 && (3..6).contains(&(times[1] - times[0])), "{times:?}");
    assert!((3240..=3960).contains(&(times[13] - times[12])), "{times:?}");
    routers.hear(at(100_000), ROUTER, &said(1800, &[]));
    assert_eq!(routers.due(), Some(at(101_800)));
}

#[test]
fn default_routers_come_and_go_by_their_lifetimes_and_take_each_others_places() {
    let mut routers = routers();
    routers.hear(at(0), ROUTER, &said(60, &[]));
    routers.hear(at(0), SECOND, &said(90, &[]));
    assert_eq!(applied(&routers).gateway6, Some(ROUTER));
    assert!(routers.doubt(ROUTER) && !routers.doubt(ROUTER));
    assert_eq!(applied(&routers).gateway6, Some(SECOND), "the first did not answer");
    routers.hear(at(1), SECOND, &said(0, &[]));
    assert_eq!(applied(&routers).gateway6, Some(ROUTER), "the second says that it is none");
    assert!(!routers.expire(at(59)) && routers.expire(at(60)));
    assert_eq!(applied(&routers).gateway6, None);
    for number in 0..100 {
        routers.hear(at(60), Ipv6Addr::from_bits(0xfe80 << 112 | number), &said(60, &[]));
    }
    assert_eq!(
        (routers.routers.len(), routers.first()),
        (ROUTERS_MAX, Some(Ipv6Addr::from_bits(0xfe80 << 112)))
    );
    let mut config = Config { gateway6: Some(SECOND), ..Config::new([0; 4]) };
    routers.apply(&mut config);
    assert_eq!(config.gateway6, Some(SECOND), "what was told goes first");
}

#[test]
fn an_address_is_made_of_the_prefix_and_the_key_alone() {
    let fresh = routers().hear(at(0), ROUTER, &said(60, &[prefix(3600, 1800)]));
    let again = routers().hear(at(9), SECOND, &said(60, &[prefix(99, 9)]));
    assert_eq!((fresh.len(), &fresh), (1, &again), "stable");
    let (mut other_key, mut other_mac) = (routers(), routers());
    (other_key.key, other_mac.mac) = ([9, 9], [2, 0, 0, 0, 0, 2]);
    for mut other in [other_key, other_mac] {
        assert_ne!(other.hear(at(0), ROUTER, &said(60, &[prefix(3600, 1800)])), fresh);
    }
    let IpAddr::V6(address) = fresh[0].address else { panic!("IPv6") };
    assert_eq!((address.to_bits() >> 64, fresh[0].prefix), (0x2001_0db8_0000_0000, 128));
}

#[test]
fn an_address_that_is_taken_gives_way_to_another_three_times() {
    let mut routers = routers();
    let mut address = routers.hear(at(0), ROUTER, &said(60, &[prefix(3600, 1800)]))[0];
    for _ in 0..3 {
        let IpAddr::V6(taken) = address.address else { panic!("IPv6") };
        let next = routers.decline(taken).expect("another");
        assert_ne!(next, address);
        address = next;
    }
    let IpAddr::V6(taken) = address.address else { panic!("IPv6") };
    assert_eq!((routers.decline(taken), routers.has(taken)), (None, false));
}

#[test]
fn an_address_is_used_when_it_is_free_and_ages() {
    let mut routers = routers();
    let other = Cidr { address: "2001:db8:1::".parse().unwrap(), prefix: 64 };
    let prefixes = [prefix(3600, 1800), Prefix { cidr: other, ..prefix(7200, 3600) }];
    let fresh = routers.hear(at(0), ROUTER, &said(9000, &prefixes));
    assert_eq!(applied(&routers).addresses, [], "nobody knows yet whether they are free");
    for cidr in &fresh {
        let IpAddr::V6(address) = cidr.address else { panic!("IPv6") };
        routers.accept(address);
    }
    assert_eq!(applied(&routers).addresses, fresh);
    assert_eq!(applied(&routers).on_link, [prefixes[0].cidr, other]);
    assert_eq!(routers.due(), Some(at(1800)));
    assert!(routers.expire(at(1800)));
    assert_eq!(applied(&routers).addresses, [fresh[1], fresh[0]], "the one that is not preferred goes last");
    routers.expire(at(3600));
    assert_eq!(applied(&routers).addresses, [fresh[1]]);
    assert_eq!(applied(&routers).on_link, [other]);
    let mut for_ever = self::routers();
    for_ever.hear(at(0), ROUTER, &said(0, &[prefix(FOR_EVER, FOR_EVER)]));
    for_ever.solicit = None;
    assert_eq!(for_ever.due(), None);
}

#[test]
fn nobody_ends_an_address_within_two_hours() {
    let mut routers = routers();
    let end = |routers: &Routers| routers.addresses[0].valid;
    routers.hear(at(0), ROUTER, &said(60, &[prefix(86_400, 3600)]));
    routers.hear(at(0), ROUTER, &said(60, &[prefix(1, 1)]));
    assert_eq!(end(&routers), at(7200));
    routers.hear(at(3600), ROUTER, &said(60, &[prefix(1, 1)]));
    assert_eq!(end(&routers), at(7200), "what is left is less than that already");
    routers.hear(at(3600), ROUTER, &said(60, &[prefix(5000, 1)]));
    assert_eq!(end(&routers), at(8600), "longer is believed");
}

#[test]
fn prefixes_that_are_not_for_addresses_make_none() {
    let with = |change: &dyn Fn(&mut Prefix)| {
        let mut one = prefix(3600, 1800);
        change(&mut one);
        routers().hear(at(0), ROUTER, &said(60, &[one])).len()
    };
    assert_eq!(with(&|_| {}), 1);
    assert_eq!(with(&|prefix| prefix.is_autonomous = false), 0);
    assert_eq!(with(&|prefix| prefix.cidr.prefix = 63), 0);
    assert_eq!(with(&|prefix| prefix.preferred_s = 3601), 0);
    assert_eq!(with(&|prefix| (prefix.valid_s, prefix.preferred_s) = (0, 0)), 0);
    let mut routers = routers();
    for number in 0..100u128 {
        let address = Ipv6Addr::from_bits(0x2001_0db8 << 96 | number << 64).into();
        let one = Prefix { cidr: Cidr { address, prefix: 64 }, ..prefix(3600, 1800) };
        routers.hear(at(0), ROUTER, &said(60, &[one]));
    }
    assert_eq!((routers.addresses.len(), routers.on_link.len()), (ADDRESSES_MAX, PREFIXES_MAX));
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300)) {
        let mut bytes = bytes;
        if let Some(code) = bytes.get_mut(1) {
            *code = 0;
        }
        if let Some(said) = Advertisement::parse(&bytes) {
            let mut routers = routers();
            routers.hear(at(1), ROUTER, &said);
            routers.expire(at(1 << 33));
        }
    }
}
