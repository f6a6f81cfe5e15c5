use super::*;
use core::net::Ipv4Addr;
use proptest::prelude::*;

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 1, 2, 3));

fn rules(text: &str) -> Rules {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn name(rules: &Rules, activity: Activity) -> &str {
    rules.names().nth(activity.0 as usize).expect("every activity has a name")
}

#[test]
fn the_first_rule_that_holds_decides() {
    let rules =
        rules("local port=80 clients=10.1.0.0/16; web port=80; ten clients=10.0.0.0/8; local port=81");
    let of = |port, client: &str| {
        name(&rules, rules.of_connection(port, client.parse().expect("an address")).base())
    };
    assert_eq!((of(80, "10.1.2.3"), of(80, "10.2.2.3"), of(80, "fe80::1")), ("local", "web", "web"));
    assert_eq!((of(22, "10.1.2.3"), of(22, "11.1.2.3"), of(81, "11.1.2.3")), ("ten", "others", "local"));
    assert_eq!(rules.names().count(), 3 + 3, "two rules name one activity");
}

#[test]
fn requests_are_told_apart_only_where_a_rule_could_hold() {
    let rules =
        rules("gold port=11211 key=g:; silver key=s; one clients=10.1.2.3; site host=A.example path=/x");
    let class = rules.of_connection(11211, CLIENT);
    assert!(class.is_by_request());
    let key = |key: &'static str| name(&rules, rules.of_request(class, Asked::Key(key.as_bytes())));
    assert_eq!((key("g:1"), key("s"), key("g"), key("")), ("gold", "silver", "one", "one"));
    let class = rules.of_connection(80, Ipv4Addr::LOCALHOST.into());
    let page = |host: &'static str, path: &'static str| {
        let asked = Asked::Page { host: host.as_bytes(), path: path.as_bytes() };
        name(&rules, rules.of_request(class, asked))
    };
    assert_eq!(
        (page("a.EXAMPLE", "/xy"), page("a.example", "/"), page("b", "/x")),
        ("site", "others", "others")
    );
    assert!(!super::Rules::default().of_connection(80, CLIENT).is_by_request());
}

#[test]
fn what_cannot_be_followed_is_named() {
    let why = |text: &str| text.parse::<Rules>().expect_err(text).to_string();
    for (text, expected) in [
        ("a prot=80", "`prot=80`: expected port="),
        ("a port=80000", "`port=80000`"),
        ("a clients=10.0.0.0/33", "`clients=10.0.0.0/33`"),
        ("a port", "`port`"),
        ("others port=80", "`name`: `others`, expected"),
        ("a\"b port=80", "`name`: `a\"b`"),
        ("a key=", "`key` of `a`: expected 1 to 250"),
        ("a port=80; b port=80 path=/x", "rule 2 never comes to its turn: rule 1"),
        ("a clients=10.0.0.0/8; b port=1; c clients=10.9.0.0/16 key=x", "rule 3 never"),
        ("a; b port=1", "rule 2 never"),
    ] {
        assert!(why(text).starts_with(expected), "{text}: {}", why(text));
    }
    let many: String = (0..=RULES_MAX).map(|port| alloc::format!("a{port} port={port};")).collect();
    assert!(why(&many).starts_with("65 rules, expected at most 64"));
    rules(&many[..many.rfind('a').expect("a name")]);
}

fn text() -> impl Strategy<Value = Option<String>> {
    proptest::option::of("[!-:<-~]{1,6}")
}

prop_compose! {
    fn any_rule()(
        name in "[a-c]",
        port in proptest::option::of(1u16..4),
        clients in proptest::option::of((0u32..4, 0u8..33)),
        host in text(),
        path in text(),
        key in text(),
    ) -> Rule {
        let clients = clients.map(|(address, bits)| AddressPrefix {
            address: Ipv4Addr::from_bits(address << 30).into(),
            bits,
        });
        Rule { name, port, clients, host, path, key }
    }
}

proptest! {
    /// What is printed is read again as the same.
    #[test]
    fn rules_are_read_as_they_are_written(given in proptest::collection::vec(any_rule(), 0..6)) {
        let Ok(rules) = Rules::checked(given) else { return Ok(()) };
        prop_assert_eq!(rules.to_string().parse::<Rules>(), Ok(rules));
    }

    /// The two steps find what a look at all rules, one after the other, finds.
    #[test]
    fn two_steps_are_as_one(
        given in proptest::collection::vec(any_rule(), 0..6),
        (port, client, is_key) in (1u16..4, any::<u32>(), any::<bool>()),
        (host, rest) in ("[!-~]{1,3}", "[!-~]{1,3}"),
    ) {
        let Ok(rules) = Rules::checked(given.clone()) else { return Ok(()) };
        let client = Ipv4Addr::from_bits(client).into();
        let asked = match is_key {
            true => Asked::Key(rest.as_bytes()),
            false => Asked::Page { host: host.as_bytes(), path: rest.as_bytes() },
        };
        let whole = given.iter().find(|rule| {
            let of_connections = rule.host.is_none() && rule.path.is_none() && rule.key.is_none();
            rule.holds_for_connection(port, client) && (of_connections || rule.holds_for_request(asked))
        });
        let found = rules.of_request(rules.of_connection(port, client), asked);
        prop_assert_eq!(name(&rules, found), whole.map_or("others", |rule| &rule.name));
    }
}
