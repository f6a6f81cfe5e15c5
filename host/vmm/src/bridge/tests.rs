use super::*;
use crate::Namespace;

/// As `ip -details -json address show` writes it, with less of what nobody reads.
const LIST: &str = r#"[
    {"ifname":"lo","addr_info":[{"family":"inet","local":"127.0.0.1","prefixlen":8}]},
    {"ifname":"eth0","addr_info":[{"family":"inet","local":"192.168.7.9","prefixlen":16},
                                  {"family":"inet6","local":"fe80::1","prefixlen":64}]},
    {"ifname":"nomtap0","ifalias":"nom web-1 10.110.111.2 7 1234","addr_info":[]},
    {"ifname":"nomtap2","ifalias":"somebody's","addr_info":[]},
    {"ifname":"nomtapx","addr_info":[]}
]"#;

fn survey() -> Survey {
    Survey::read(LIST).expect("it is good")
}

#[test]
fn ports_say_whose_they_are() {
    let alias = Alias {
        machine: "web-1".to_owned(),
        address: Ipv4Addr::new(10, 110, 111, 2),
        maker: ProcessIdentity { id: 7, started: 1234 },
    };
    let ports: Vec<_> = survey().ports(PORT).map(|(name, alias)| (name.to_owned(), alias)).collect();
    assert_eq!(ports, [("nomtap0".to_owned(), Some(alias.clone())), ("nomtap2".to_owned(), None)]);
    assert_eq!(alias.to_string(), "nom web-1 10.110.111.2 7 1234");
    assert_eq!(free_device(&survey()), "nomtap1");
}

#[test]
fn an_address_is_the_wanted_one_or_the_lowest_that_is_free() {
    let subnet = Subnet::default();
    let chosen = |wanted: Option<[u8; 4]>| choose(&survey(), wanted.map(Ipv4Addr::from), subnet);
    assert_eq!(chosen(None).expect("free"), Ipv4Addr::new(10, 110, 111, 3));
    assert_eq!(chosen(Some([10, 110, 111, 9])).expect("free"), Ipv4Addr::new(10, 110, 111, 9));
    for (wanted, expected) in [
        ([10, 110, 111, 2], "taken by machine `web-1`"),
        ([10, 110, 111, 1], "expected 10.110.111.2 to 10.110.111.254"),
        ([10, 110, 111, 255], "expected 10.110.111.2 to"),
        ([10, 110, 112, 9], "expected 10.110.111.2 to"),
    ] {
        let error = chosen(Some(wanted)).expect_err("refused").to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn addresses_that_the_computer_uses_are_refused_by_device() {
    assert!(survey().check_is_free(Subnet::default()).is_ok());
    let subnet: Subnet = "192.168.200.0/24".parse().expect("private");
    let error = survey().check_is_free(subnet).expect_err("eth0 has all of 192.168").to_string();
    assert!(error.contains("192.168.200.0/24") && error.contains("eth0 has 192.168.7.9/16"), "{error}");
    for text in ["10.1.2.0", "10.1.2.3/24", "8.8.8.0/24", "10.1.0.0/16", ""] {
        assert!(text.parse::<Subnet>().expect_err(text).contains("10.110.111.0/24"), "{text}");
    }
}

#[test]
fn each_machine_has_an_ethernet_address_of_its_own() {
    assert_eq!(ethernet_address(Ipv4Addr::new(10, 110, 111, 2)), "02:6e:0a:6e:6f:02");
}

/// Runs `test` in a network namespace of its own, where there is no other bridge; says so if it cannot.
fn in_a_namespace(name: &str, test: impl FnOnce() + Send) {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/net/tun").exists() {
        eprintln!("skipped: a bridge with TAP devices needs root and /dev/net/tun");
        return;
    }
    let namespace = Namespace::create(name, 1).expect("made");
    let inside = || {
        namespace.enter().expect("entered");
        test();
    };
    std::thread::scope(|scope| scope.spawn(inside).join()).expect("no panic");
}

#[test]
fn the_bridge_comes_with_its_first_port_and_goes_with_its_last() {
    in_a_namespace("test-bridge", || {
        let port = |wanted| Port::create("web", 2, wanted, Subnet::default());
        let (first, second) = (port(None).expect("made"), port(None).expect("made"));
        assert_eq!((first.address().octets()[3], second.address().octets()[3]), (2, 3));
        let taken = port(Some(first.address())).expect_err("taken").to_string();
        assert!(taken.contains("`web`"), "{taken}");
        drop(first);
        assert!(survey::take().expect("listed").has(NAME), "the second still needs it");
        drop(second);
        let left = survey::take().expect("listed");
        assert!(!left.has(NAME) && left.ports(PORT).next().is_none(), "{left:?}");
    });
}

#[test]
fn what_a_killed_process_left_is_removed() {
    in_a_namespace("test-bridge-left", || {
        let port = Port::create("web", 1, None, Subnet::default()).expect("made");
        let gone = Alias {
            machine: "old".to_owned(),
            address: Ipv4Addr::new(10, 110, 111, 9),
            maker: ProcessIdentity { id: std::process::id(), started: 0 },
        };
        let left = Port { device: "nomtap7".to_owned(), address: gone.address, host: port.host(), queues: 1 };
        left.steps(&gone).iter().for_each(|step| drop(ip(step).expect("made")));
        std::mem::forget(left);
        words("tuntap add dev nomtap8 mode tap").expect("killed before it had an alias");
        remove_stale().expect("removed");
        let survey = survey::take().expect("listed");
        let ports: Vec<&str> = survey.ports(PORT).map(|(device, _)| device).collect();
        assert_eq!(ports, [port.device()], "its maker runs");
    });
}
