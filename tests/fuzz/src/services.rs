//! Messages of DHCP and DNS, as if they answered what was asked; advertisements of routers, questions about
//! groups, and IPv6 extension headers.

use crate::input::Input;
use nom_net::chance::Chance;
use nom_net::dhcp::{Client, News};
use nom_net::frame::{ETHERNET, IPV6, Packet, protocol};
use nom_net::multicast::Listener;
use nom_net::router::{Advertisement, Routers};
use nom_net::{Config, Instant, dns, extensions};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const KEY: [u64; 2] = [1, 2];
const POLLS_MAX: usize = 1000;

pub fn run(data: &[u8]) {
    let mut input = Input(data);
    match input.byte() {
        0xf0 => routers(&mut input),
        0xf2 => groups(&mut input),
        0xf4 => extensions(input.byte(), input.0),
        choice if choice & 1 == 0 => dhcp(&mut input),
        _ => dns(input.byte(), input.0),
    }
}

/// Messages with their lengths in front. A client that has a lease can use it; one that has none asks on.
fn dhcp(input: &mut Input<'_>) {
    let mut client = Client::new(MAC, Chance::new(KEY));
    let mut transaction = [0; 4];
    let mut now = Instant::from_micros(1);
    while !input.is_empty() {
        let (len, wait) = (input.word() % 1500, input.byte());
        let mut message = input.bytes(usize::from(len)).to_vec();
        // Only what seems to be meant for us is looked at.
        if let Some(place) = message.get_mut(4..8) {
            place.copy_from_slice(&transaction);
        }
        if let Some(place) = message.get_mut(28..34) {
            place.copy_from_slice(&MAC);
        }
        let (asked, news) = client.poll(now);
        assert!(matches!(news, None | Some(News::Lost)), "time alone leased {news:?}");
        if let Some(asked) = asked {
            transaction.copy_from_slice(&asked.bytes[4..8]);
            message.get_mut(4..8).into_iter().for_each(|place| place.copy_from_slice(&transaction));
        }
        match client.take(now, &message) {
            Some(News::Lent(lent)) => {
                let address = lent.address;
                assert!(!address.is_unspecified() && !address.is_multicast(), "lent {address}");
                if wait & 1 == 0 { drop(client.accept()) } else { client.decline(now) }
            }
            Some(News::Bound(lease)) => assert!(lease.address.prefix > 0, "everybody is near"),
            Some(News::Lost) | None => {}
        }
        assert!(client.due() >= now || client.poll(now).0.is_some(), "it waits for what is past");
        now = now + Duration::from_micros(1 << (wait % 40));
    }
}

/// Advertisements of some routers, with their lengths in front. What is made of them is bounded and in order.
fn routers(input: &mut Input<'_>) {
    let mut chance = Chance::new(KEY);
    let mut now = Instant::from_micros(1);
    let mut routers = Routers::new(now, KEY, MAC, &mut chance);
    while !input.is_empty() {
        let (len, from, wait) = (input.word() % 1500, input.byte(), input.byte());
        let mut message = input.bytes(usize::from(len)).to_vec();
        message.get_mut(1).into_iter().for_each(|code| *code = 0);
        if let Some(said) = Advertisement::parse(&message) {
            let router = Ipv6Addr::from_bits(0xfe80 << 112 | u128::from(from));
            for fresh in routers.hear(now, router, &said) {
                let IpAddr::V6(address) = fresh.address else { panic!("an address of IPv4") };
                if from & 1 == 0 {
                    routers.accept(address);
                } else {
                    let _ = routers.decline(address);
                }
            }
        }
        let mut config = Config::new([0; 4]);
        routers.apply(&mut config);
        assert!(config.addresses.len() <= 8 && config.on_link.len() <= 16 && config.nameservers.len() <= 4);
        assert!(config.addresses.iter().all(|cidr| cidr.prefix == 128), "{config:?}");
        now = now + Duration::from_micros(1 << (wait % 48));
        let mut polls = 0;
        while routers.due().is_some_and(|due| due <= now) {
            if !routers.solicits(now, &mut chance) {
                routers.expire(now);
            }
            polls += 1;
            assert!(polls < POLLS_MAX, "it waits for what is past");
        }
    }
}

/// Questions about groups, with their lengths in front, between joining and leaving.
fn groups(input: &mut Input<'_>) {
    let (mut listener, mut chance, mut now) =
        (Listener::default(), Chance::new(KEY), Instant::from_micros(1));
    while !input.is_empty() {
        let (choice, wait, len) = (input.byte(), input.byte(), input.byte());
        let group = |number: u8| Ipv6Addr::from_bits(0xff02 << 112 | u128::from(number));
        match choice & 3 {
            0 => listener.join(now, group(len)),
            1 => listener.retain(now, |other| other != group(len)),
            _ => listener.query(now, input.bytes(len.into()), &mut chance),
        }
        now = now + Duration::from_micros(1 << (wait % 40));
        let mut polls = 0;
        while listener.due().is_some_and(|due| due <= now) {
            let report = listener.poll(now, &mut chance).expect("what is due is said");
            assert_eq!(report.len(), 8 + 20 * usize::from(report[7]), "records of 20 bytes");
            polls += 1;
            assert!(polls < POLLS_MAX, "it waits for what is past");
        }
    }
}

/// What is behind the headers is in the packet, and what is complained about, too.
fn extensions(next: u8, payload: &[u8]) {
    let frame = [&[0; ETHERNET + IPV6][..], payload].concat();
    let address = IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1]);
    let (start, len) = (ETHERNET + IPV6, payload.len());
    let packet = Packet { from: address, to: address, protocol: next, start, len, hops: 64 };
    match extensions::walk(&frame, packet) {
        Ok(extensions::Walk::Upper(upper)) => {
            assert!(matches!(upper.protocol, protocol::TCP | protocol::UDP | protocol::ICMPV6));
            assert_eq!(upper.start + upper.len, frame.len());
        }
        Ok(extensions::Walk::Fragment(at)) => assert!(at.start <= frame.len()),
        Ok(extensions::Walk::Problem(problem)) => {
            assert!((problem.pointer as usize) < frame.len() - ETHERNET, "{problem:?}");
        }
        Ok(extensions::Walk::Cut) | Err(_) => {}
    }
}

/// The answer to a question that it repeats, or not.
fn dns(choice: u8, message: &[u8]) {
    let family = if choice & 1 == 0 { dns::Family::V4 } else { dns::Family::V6 };
    let name = dns::encode("example.org").expect("a name");
    let mut message = message.to_vec();
    if choice & 2 == 0
        && let Some(place) = message.get_mut(..2)
    {
        place.copy_from_slice(&77u16.to_be_bytes());
    }
    if let Some(Ok(addresses)) = dns::answer(&message, 77, &name, family) {
        let fits = |address: &std::net::IpAddr| address.is_ipv4() == matches!(family, dns::Family::V4);
        assert!(addresses.iter().all(fits), "{addresses:?}");
    }
}
