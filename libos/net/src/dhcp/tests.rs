use super::*;
use proptest::prelude::*;
use smoltcp::wire::DhcpOption;

const MAC: Mac = [2, 0, 0, 0, 0, 1];
const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 3);

fn at(secs: u64) -> Instant {
    Instant::from_micros(secs * 1_000_000)
}

/// What a server says to `message` after `change`, and what `message` was.
fn answer(
    message: &Message,
    kind: DhcpMessageType,
    change: impl FnOnce(&mut DhcpRepr<'_>),
) -> (DhcpMessageType, Vec<u8>) {
    let packet = DhcpPacket::new_checked(&message.bytes[..]).unwrap();
    let asked = DhcpRepr::parse(&packet).unwrap();
    let said = asked.message_type;
    let mut repr = DhcpRepr {
        message_type: kind,
        your_ip: OURS,
        router: Some(SERVER),
        subnet_mask: Some(Ipv4Addr::new(255, 255, 254, 0)),
        server_identifier: Some(SERVER),
        lease_duration: Some(3600),
        client_identifier: None,
        parameter_request_list: None,
        ..asked
    };
    change(&mut repr);
    let mut bytes = vec![0; repr.buffer_len()];
    repr.emit(&mut DhcpPacket::new_unchecked(&mut bytes[..])).unwrap();
    (said, bytes)
}

fn client() -> Client {
    Client::new(MAC, Chance::new([7, 8]))
}

/// A client that has asked for what was offered, and its question.
fn requesting() -> (Client, Message) {
    let mut client = client();
    let (said, offer) = answer(&client.poll(at(0)).0.unwrap(), DhcpMessageType::Offer, |_| {});
    assert_eq!((said, client.take(at(0), &offer)), (DhcpMessageType::Discover, None));
    let request = client.poll(at(0)).0.unwrap();
    (client, request)
}

fn lent(change: impl FnOnce(&mut DhcpRepr<'_>)) -> Client {
    let (mut client, request) = requesting();
    let (said, ack) = answer(&request, DhcpMessageType::Ack, change);
    assert_eq!(said, DhcpMessageType::Request);
    let address = Cidr { address: OURS.into(), prefix: 23 };
    assert_eq!(client.take(at(0), &ack), Some(News::Lent(address)));
    assert_eq!(client.poll(at(0)), (None, None), "it waits for the test");
    client
}

fn bound() -> Client {
    let mut client = lent(|_| {});
    let address = Cidr { address: OURS.into(), prefix: 23 };
    let expected = Lease { address, router: Some(SERVER), nameservers: Vec::new() };
    assert_eq!(client.accept(), Some(News::Bound(expected)));
    client
}

#[test]
fn a_lease_is_offered_tested_taken_and_kept_by_asking_its_server_alone() {
    let mut client = bound();
    let renewal = client.due();
    assert!((at(1740)..=at(1800)).contains(&renewal), "{renewal:?}");
    let message = client.poll(renewal).0.unwrap();
    assert_eq!(message.to, Some((OURS, SERVER)));
    let packet = DhcpPacket::new_checked(&message.bytes[..]).unwrap();
    let repr = DhcpRepr::parse(&packet).unwrap();
    assert_eq!((repr.client_ip, repr.broadcast), (OURS, false));
    assert_eq!((repr.requested_ip, repr.server_identifier), (None, None), "RFC 2131 table 5");
    let (_, ack) = answer(&message, DhcpMessageType::Ack, |_| {});
    assert!(matches!(client.take(at(1801), &ack), Some(News::Bound(_))));
    assert!((at(1801 + 1740)..=at(1801 + 1800)).contains(&client.due()));
}

#[test]
fn a_lease_that_nobody_renews_is_asked_of_everybody_and_ends() {
    let mut client = bound();
    let (mut alone, mut all) = (0, 0);
    let lost = loop {
        let now = client.due();
        let (message, news) = client.poll(now);
        if let Some(news) = news {
            break (now, news);
        }
        match message.expect("a question").to {
            Some(to) => {
                assert!(to == (OURS, SERVER) && now < at(3150), "{to:?} at {now:?}");
                alone += 1;
            }
            None => {
                assert!(now >= at(3150), "everybody is asked only after 7/8: {now:?}");
                all += 1;
            }
        }
    };
    assert_eq!(lost, (at(3600), News::Lost));
    assert!((2..9).contains(&alone) && (2..6).contains(&all), "{alone} and {all} questions");
}

#[test]
fn only_the_server_that_was_chosen_grants_or_refuses() {
    let (mut client, request) = requesting();
    for kind in [DhcpMessageType::Ack, DhcpMessageType::Nak] {
        let (_, forged) = answer(&request, kind, |repr| repr.server_identifier = Some(OTHER));
        assert_eq!(client.take(at(0), &forged), None);
        let (_, nameless) = answer(&request, kind, |repr| repr.server_identifier = None);
        assert_eq!(client.take(at(0), &nameless), None);
    }
    let (_, old) = answer(&request, DhcpMessageType::Ack, |repr| repr.transaction_id ^= 1);
    assert_eq!(client.take(at(0), &old), None, "another transaction");
    let other = EthernetAddress([2, 0, 0, 0, 0, 2]);
    let (_, strange) = answer(&request, DhcpMessageType::Ack, |repr| repr.client_hardware_address = other);
    assert_eq!(client.take(at(0), &strange), None, "another client");
    let (_, moved) = answer(&request, DhcpMessageType::Ack, |repr| repr.your_ip = OTHER);
    assert_eq!(client.take(at(0), &moved), None, "not what was asked for");
    let mut client = bound();
    let due = client.due();
    let (_, nak) = answer(&client.poll(due).0.unwrap(), DhcpMessageType::Nak, |repr| {
        repr.server_identifier = Some(OTHER);
    });
    assert_eq!(client.take(due, &nak), None, "a stranger does not end a lease");
}

#[test]
fn whoever_answers_everybodys_question_renews() {
    let mut client = bound();
    while client.due() < at(3150) {
        client.poll(client.due());
    }
    let due = client.due();
    let message = client.poll(due).0.unwrap();
    let (_, ack) = answer(&message, DhcpMessageType::Ack, |repr| repr.server_identifier = Some(OTHER));
    assert!(matches!(client.take(due, &ack), Some(News::Bound(_))));
    let due = client.due();
    assert_eq!(client.poll(due).0.unwrap().to, Some((OURS, OTHER)));
}

#[test]
fn a_refusal_begins_again() {
    let mut client = bound();
    let due = client.due();
    let (_, nak) = answer(&client.poll(due).0.unwrap(), DhcpMessageType::Nak, |_| {});
    assert_eq!(client.take(due, &nak), Some(News::Lost));
    assert!(client.due() > due, "not at once");
    let due = client.due();
    let (said, offer) = answer(&client.poll(due).0.unwrap(), DhcpMessageType::Offer, |_| {});
    assert_eq!((said, client.take(due, &nak)), (DhcpMessageType::Discover, None), "an old transaction");
    client.take(due, &offer);
    assert!(matches!(client.state, State::Requesting { .. }));
}

#[test]
fn an_address_that_somebody_else_has_is_declined() {
    let mut client = lent(|_| {});
    client.decline(at(1));
    let message = client.poll(at(1)).0.unwrap();
    let packet = DhcpPacket::new_checked(&message.bytes[..]).unwrap();
    let repr = DhcpRepr::parse(&packet).unwrap();
    assert_eq!((repr.message_type, repr.requested_ip), (DhcpMessageType::Decline, Some(OURS)));
    assert_eq!((repr.server_identifier, message.to), (Some(SERVER), None));
    assert!(client.due() >= at(11), "RFC 2131 section 3.1.5: ten seconds at least");
    let due = client.due();
    let (said, _) = answer(&client.poll(due).0.unwrap(), DhcpMessageType::Offer, |_| {});
    assert_eq!(said, DhcpMessageType::Discover);
    assert_eq!(client.accept(), None, "there is nothing to accept any more");
}

#[test]
fn silence_is_asked_ever_later_and_not_by_all_at_once() {
    let times = |seed| {
        let mut client = Client::new(MAC, Chance::new([seed, 0]));
        let mut times = vec![];
        for _ in 0..8 {
            let due = client.due();
            client.poll(due);
            times.push(due.micros() / 1000);
        }
        times.windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<u64>>()
    };
    for (waited, expected) in times(7).iter().zip([4, 8, 16, 32, 64, 64, 64]) {
        assert!(waited.abs_diff(expected * 1000) <= 1000, "{waited} ms instead of {expected} s");
    }
    assert_ne!(times(7), times(8));
}

#[test]
fn what_makes_no_sense_is_no_lease() {
    let offered = |change: &dyn Fn(&mut DhcpRepr<'_>)| {
        let mut client = client();
        let (_, offer) = answer(&client.poll(at(0)).0.unwrap(), DhcpMessageType::Offer, change);
        client.take(at(0), &offer);
        matches!(client.state, State::Requesting { .. })
    };
    assert!(offered(&|_| {}));
    assert!(!offered(&|repr| repr.lease_duration = Some(0)));
    assert!(!offered(&|repr| repr.lease_duration = None));
    assert!(!offered(&|repr| repr.subnet_mask = Some(Ipv4Addr::new(255, 0, 255, 0))));
    assert!(!offered(&|repr| repr.subnet_mask = Some(Ipv4Addr::UNSPECIFIED)), "everybody is near");
    for address in [[0; 4], [255; 4], [127, 0, 0, 1], [224, 0, 0, 1], [10, 0, 2, 0], [10, 0, 3, 255]] {
        assert!(!offered(&|repr| repr.your_ip = address.into()), "{address:?}");
    }
    for address in [[0; 4], [255; 4], [224, 0, 0, 1]] {
        assert!(!offered(&|repr| repr.server_identifier = Some(address.into())), "{address:?}");
    }
    assert!(offered(&|repr| repr.subnet_mask = Some(Ipv4Addr::BROADCAST)), "a network of one");
}

#[test]
fn times_out_of_order_are_replaced_and_a_lease_may_have_no_end() {
    let mut client = lent(|repr| (repr.renew_duration, repr.rebind_duration) = (Some(9000), Some(8000)));
    client.accept();
    assert!((at(1740)..=at(1800)).contains(&client.due()));
    let mut client = lent(|repr| repr.lease_duration = Some(u32::MAX));
    client.accept();
    assert_eq!(client.due(), NEVER);
    let mut client = lent(|repr| repr.lease_duration = Some(1));
    client.accept();
    let asked = (0..).take_while(|_| client.poll(client.due()).1.is_none()).count();
    assert!(asked < 10, "{asked} questions in a second");
}

#[test]
fn the_first_of_several_routers_is_taken() {
    let (mut client, request) = requesting();
    let two = [10, 0, 2, 9, 10, 0, 2, 10];
    let routers = [DhcpOption { kind: ROUTERS, data: &two }];
    let packet = DhcpPacket::new_checked(&request.bytes[..]).unwrap();
    let repr = DhcpRepr {
        message_type: DhcpMessageType::Ack,
        your_ip: OURS,
        router: None,
        subnet_mask: Some(Ipv4Addr::new(255, 255, 255, 0)),
        server_identifier: Some(SERVER),
        lease_duration: Some(60),
        parameter_request_list: None,
        additional_options: &routers,
        ..DhcpRepr::parse(&packet).unwrap()
    };
    let mut ack = vec![0; repr.buffer_len()];
    repr.emit(&mut DhcpPacket::new_unchecked(&mut ack[..])).unwrap();
    client.take(at(0), &ack);
    let Some(News::Bound(lease)) = client.accept() else { panic!("no lease") };
    assert_eq!(lease.router, Some([10, 0, 2, 9].into()));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        at_byte in 0usize..400,
        value: u8,
    ) {
        let mut client = bound();
        client.take(at(1), &bytes);
        let due = client.due();
        let (_, mut ack) = answer(&client.poll(due).0.unwrap(), DhcpMessageType::Ack, |_| {});
        if let Some(byte) = ack.get_mut(at_byte) {
            *byte = value;
        }
        client.take(due, &ack);
        client.poll(client.due());
    }
}
