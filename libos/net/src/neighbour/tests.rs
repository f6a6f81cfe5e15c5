//! RFC 4861 appendix C, row by row where a host can be in it.

use super::*;

const PEER: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(10, 0, 0, 2));
const MAC: Mac = [2, 0, 0, 0, 0, 2];
const OTHER: Mac = [2, 0, 0, 0, 0, 3];
const ANSWER: Said = Said::Told { is_solicited: true, is_override: true };
const NEWS: Said = Said::Told { is_solicited: false, is_override: true };

fn at(secs: u64) -> Instant {
    Instant::from_micros(secs * 1_000_000)
}

/// A neighbour that has answered at once.
fn reachable() -> Neighbours<()> {
    let mut all = Neighbours::new();
    assert_eq!(all.resolve(at(0), PEER), None);
    assert_eq!(all.due(at(0)).ask, [(PEER, None)]);
    all.learn(at(0), PEER, Some(MAC), ANSWER);
    assert_eq!(all.state(PEER), Some(State::Reachable));
    all
}

fn stale() -> Neighbours<()> {
    let mut all = reachable();
    assert_eq!(all.due(at(30)), Due::default());
    assert_eq!((all.state(PEER), all.first()), (Some(State::Stale), None));
    all
}

#[test]
fn who_does_not_answer_three_questions_is_gone() {
    let mut all: Neighbours<()> = Neighbours::new();
    all.resolve(at(0), PEER);
    for second in 0..3 {
        assert_eq!(all.due(at(second)).ask, [(PEER, None)]);
    }
    assert_eq!(all.due(at(3)).gone, [PEER]);
    assert_eq!(all.state(PEER), None);
}

#[test]
fn a_neighbour_is_asked_only_if_something_is_sent_to_it() {
    let mut all = stale();
    assert_eq!(all.due(at(3600)), Due::default(), "silence asks nobody");
    let hop = all.resolve_for_flow(at(3600), PEER).expect("it is used meanwhile");
    assert_eq!((hop.mac, all.state(PEER)), (MAC, Some(State::Delay)));
    assert_eq!(all.due(at(3604)).ask, []);
    for second in 3605..3608 {
        assert_eq!(all.due(at(second)).ask, [(PEER, Some(MAC))], "by its own address");
        assert_eq!(all.state(PEER), Some(State::Probe));
    }
    let before = all.version();
    assert_eq!(all.due(at(3608)).gone, [PEER]);
    assert_ne!(all.version(), before, "flows look for another way");
}

#[test]
fn an_answer_ends_the_doubt() {
    let mut all = stale();
    all.resolve(at(40), PEER);
    all.due(at(45));
    all.learn(at(45), PEER, Some(MAC), ANSWER);
    assert_eq!((all.due(at(46)), all.first()), (Due::default(), Some(at(75))));
    assert_eq!(all.state(PEER), Some(State::Reachable));
    all.due(at(75));
    all.resolve(at(80), PEER);
    all.due(at(85));
    all.learn(at(85), PEER, None, Said::Told { is_solicited: true, is_override: false });
    assert_eq!(all.state(PEER), Some(State::Reachable), "an answer by its own address names none");
}

#[test]
fn without_the_override_flag_nothing_is_replaced() {
    let weak = Said::Told { is_solicited: true, is_override: false };
    let mut all = reachable();
    all.learn(at(1), PEER, Some(OTHER), weak);
    assert_eq!((all.mac(PEER), all.state(PEER)), (Some(MAC), Some(State::Stale)), "only doubted");
    all.learn(at(2), PEER, Some(OTHER), weak);
    assert_eq!((all.mac(PEER), all.state(PEER)), (Some(MAC), Some(State::Stale)));
    all.learn(at(3), PEER, Some(OTHER), ANSWER);
    assert_eq!((all.mac(PEER), all.state(PEER)), (Some(OTHER), Some(State::Reachable)));
    all.learn(at(4), PEER, Some(MAC), NEWS);
    assert_eq!((all.mac(PEER), all.state(PEER)), (Some(MAC), Some(State::Stale)), "news is not an answer");
    all.learn(at(5), PEER, Some(OTHER), Said::Asked);
    assert_eq!((all.mac(PEER), all.state(PEER)), (Some(OTHER), Some(State::Stale)));
}

#[test]
fn only_who_is_asked_for_or_asks_is_remembered() {
    let mut all: Neighbours<()> = Neighbours::new();
    all.learn(at(0), PEER, Some(MAC), ANSWER);
    assert_eq!(all.state(PEER), None);
    all.learn(at(0), PEER, Some([1, 0, 0, 0, 0, 1]), Said::Asked);
    assert_eq!(all.state(PEER), None, "a group is nobody");
    all.learn(at(0), PEER, Some(MAC), Said::Asked);
    assert_eq!(all.state(PEER), Some(State::Stale));
    all.resolve(at(0), [10, 0, 0, 3].into());
    all.learn(at(0), [10, 0, 0, 3].into(), None, ANSWER);
    assert_eq!(all.state([10, 0, 0, 3].into()), Some(State::Incomplete), "no address is no answer");
}

#[test]
fn a_router_says_how_long_answers_hold() {
    let mut all: Neighbours<()> = Neighbours::new();
    all.set_times(Some(Duration::from_secs(10)), Some(Duration::from_secs(3)), 500);
    all.resolve(at(0), PEER);
    all.due(at(0));
    assert_eq!(all.first(), Some(at(3)));
    all.learn(at(0), PEER, Some(MAC), ANSWER);
    assert_eq!(all.due(at(10)), Due::default());
    assert_eq!(all.state(PEER), Some(State::Stale));
}

#[test]
fn a_full_table_forgets_who_was_heard_of_longest_ago() {
    let mut all: Neighbours<()> = Neighbours::new();
    for number in 0..2000u32 {
        let address = core::net::Ipv4Addr::from_bits(0x0a00_0000 + number).into();
        all.learn(at(number.into()), address, Some(MAC), Said::Asked);
    }
    assert_eq!(all.known.len(), NEIGHBOURS_MAX);
    assert_eq!(all.state([10, 0, 0, 0].into()), None);
}

#[test]
fn strangers_neither_unsettle_flows_nor_take_their_neighbours_places() {
    let mut all = reachable();
    all.resolve_for_flow(at(0), PEER).expect("it has answered");
    let before = all.version();
    for number in 0..2000u32 {
        let stranger = core::net::Ipv4Addr::from_bits(0x0a01_0000 + number).into();
        all.learn(at(1), stranger, Some(OTHER), Said::Asked);
        all.resolve(at(1), stranger);
        all.learn(at(1), stranger, Some(OTHER), Said::Asked);
        all.resolve(at(1), core::net::Ipv4Addr::from_bits(0x0a02_0000 + number).into());
    }
    assert_eq!((all.known.len(), all.state(PEER)), (NEIGHBOURS_MAX, Some(State::Reachable)));
    (2..10).for_each(|second| _ = all.due(at(second)));
    assert_eq!(all.version(), before, "no flow has to look for another way");
    assert_eq!(all.oldest.len(), all.known.len(), "whoever is known can be forgotten");
    let dues = all.known.values().filter(|neighbour| neighbour.due.is_some()).count();
    assert_eq!(all.dues.len(), dues);
}

fn packet() -> Outgoing<()> {
    let head = nom_port::nic::Head::zeroed(14);
    let payload = nom_port::buffer::Chain::new();
    Outgoing { head, payload, checksum: None, segmentation: None, tag: None }
}

#[test]
fn packets_wait_for_who_is_asked_for_and_go_with_it() {
    let mut all: Neighbours<()> = Neighbours::new();
    assert!(!all.hold(PEER, packet()), "nobody was asked for it");
    all.resolve(at(0), PEER);
    for _ in 0..WAITING_EACH_MAX {
        assert!(all.hold(PEER, packet()));
    }
    assert!(!all.hold(PEER, packet()), "as many as one neighbour may have");
    assert_eq!(all.learn(at(0), PEER, Some(MAC), ANSWER).len(), WAITING_EACH_MAX);
    assert!(!all.is_holding());
    let gone: IpAddr = [10, 0, 0, 3].into();
    all.resolve(at(0), gone);
    assert!(all.hold(gone, packet()));
    let dropped: u64 = (0..4).map(|second| all.due(at(second)).dropped).sum();
    assert_eq!((dropped, all.is_holding()), (1, false));
}
