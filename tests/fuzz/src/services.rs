//! Messages of DHCP and DNS, as if they answered what was asked.

use crate::input::Input;
use nom_net::dhcp::{Client, News};
use nom_net::{Instant, dns};
use std::time::Duration;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const TRANSACTION: u32 = 0x1234_5678;

pub fn run(data: &[u8]) {
    let mut input = Input(data);
    match input.byte() & 1 {
        0 => dhcp(&mut input),
        _ => dns(input.byte(), input.0),
    }
}

/// Messages with their lengths in front. A client that has a lease can use it; one that has none asks on.
fn dhcp(input: &mut Input<'_>) {
    let mut client = Client::new(MAC, TRANSACTION);
    let mut now = Instant::from_micros(1);
    while !input.is_empty() {
        let (len, wait) = (input.word() % 1500, input.byte());
        let mut message = input.bytes(usize::from(len)).to_vec();
        // Only what seems to be meant for us is looked at.
        if let Some(place) = message.get_mut(4..8) {
            place.copy_from_slice(&TRANSACTION.to_be_bytes());
        }
        if let Some(place) = message.get_mut(28..34) {
            place.copy_from_slice(&MAC);
        }
        if let (_, Some(News::Bound(lease))) = client.poll(now) {
            panic!("time alone leased {lease:?}");
        }
        if let Some(News::Bound(lease)) = client.take(now, &message) {
            let address = lease.address.address;
            assert!(!address.is_unspecified() && !address.is_multicast(), "leased {address}");
        }
        assert!(client.due() >= now || client.poll(now).0.is_some(), "it waits for what is past");
        now = now + Duration::from_micros(1 << (wait % 40));
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
