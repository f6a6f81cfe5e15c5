//! One server on several cores, which are threads here.

use nom_memcached_core::{Connection, Options, Server, Stats};
use nom_port::buffer::Slice;
use nom_service::Stream;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread;

type Bytes = Arc<[u8]>;
type Core = Server<Bytes, parking_lot::RawMutex>;

const UNIX: u64 = 1_700_000_000;
const PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 4000);

/// What a new client of `core` gets for `request`.
fn talk(core: &mut Core, request: &str) -> String {
    let mut reply = Vec::new();
    let flow = Connection::new().receive(core, Slice::new(Bytes::from(request.as_bytes())), &mut reply);
    assert_eq!(flow, Stream::Open, "{request}");
    String::from_utf8(reply).expect("text")
}

fn cores(count: u32) -> Vec<Core> {
    let first = Core::new(Options { threads: count, ..Options::default() }, UNIX, 7);
    let others: Vec<Core> = (1..count).map(|_| first.for_another_core()).collect();
    std::iter::once(first).chain(others).collect()
}

fn stat(core: &mut Core, name: &str) -> u64 {
    let all = talk(core, "stats\r\n");
    let line = all.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")).map(str::to_owned));
    line.unwrap_or_else(|| panic!("no {name} in {all}")).parse().expect("a number")
}

#[test]
fn what_one_core_stores_the_others_have() {
    let mut cores = cores(4);
    for key in 0..100 {
        let stored = talk(&mut cores[key % 4], &format!("set key{key} 0 0 3\r\n{key:03}\r\n"));
        assert_eq!(stored, "STORED\r\n");
    }
    for (index, core) in cores.iter_mut().enumerate() {
        for key in 0..100 {
            let found = talk(core, &format!("get key{key}\r\n"));
            assert_eq!(found, format!("VALUE key{key} 0 3\r\n{key:03}\r\nEND\r\n"), "core {index}");
        }
    }
    let both = talk(&mut cores[0], "get key1 none key2 key3\r\n");
    assert_eq!(both.matches("VALUE").count(), 3);
    assert_eq!(talk(&mut cores[3], "flush_all\r\n"), "OK\r\n");
    assert!(cores.iter_mut().all(|core| talk(core, "get key1 key2 key3 key4\r\n") == "END\r\n"));
}

#[test]
fn statistics_add_up_over_cores() {
    let mut cores = cores(3);
    let clients = cores.iter_mut().map(|core| core.connected(PEER, &mut Vec::new()).expect("it is let in"));
    let clients: Vec<_> = clients.collect();
    for (index, core) in cores.iter_mut().enumerate() {
        talk(core, &format!("set a{index} 0 0 1\r\nx\r\nget a{index} b\r\n"));
        core.sent(100);
    }
    let of = |core: &mut Core| {
        [
            "threads",
            "curr_connections",
            "total_connections",
            "cmd_set",
            "get_hits",
            "get_misses",
            "curr_items",
        ]
        .map(|name| stat(core, name))
    };
    assert_eq!(of(&mut cores[0]), [3, 3, 3, 3, 3, 3, 3]);
    assert_eq!(of(&mut cores[2]), [3, 3, 3, 3, 3, 3, 3]);
    assert_eq!(cores[1].stats().bytes_written, 300);
    cores[0].disconnected(&clients[0]);
    assert_eq!(talk(&mut cores[1], "stats reset\r\n"), "RESET\r\n");
    let forgotten = cores[2].stats();
    // What asked for the reset was read before it.
    assert_eq!(forgotten, Stats::default());
    assert_eq!(of(&mut cores[0]), [3, 2, 0, 0, 0, 0, 3]);
}

#[test]
fn the_limit_of_connections_is_that_of_all_cores() {
    let options = Options { threads: 2, connections: 3, ..Options::default() };
    let mut first = Core::new(options, UNIX, 7);
    let mut second = first.for_another_core();
    let connect = |core: &mut Core| {
        let mut told = Vec::new();
        core.connected(PEER, &mut told).ok_or(String::from_utf8(told).expect("text"))
    };
    let is_let_in = |core: &mut Core| connect(core).is_ok();
    let gone = connect(&mut second).expect("the first");
    assert!(is_let_in(&mut first) && is_let_in(&mut second));
    for core in [&mut first, &mut second] {
        let told = connect(core).expect_err("one too many");
        assert_eq!(told, "ERROR Too many open connections\r\n");
    }
    second.disconnected(&gone);
    assert!(is_let_in(&mut first));
    assert_eq!(second.stats().rejected_connections, 2);
}

/// What one client's stream is answered.
fn ask(core: &mut Core, client: &mut Connection<Bytes>, request: &str) -> String {
    let mut reply = Vec::new();
    assert_eq!(client.receive(core, Slice::new(Bytes::from(request.as_bytes())), &mut reply), Stream::Open);
    String::from_utf8(reply).expect("text")
}

fn news(core: &Core, client: &mut Connection<Bytes>) -> String {
    let mut told = Vec::new();
    client.news(core, &mut told);
    String::from_utf8(told).expect("text")
}

#[test]
fn who_watches_hears_what_clients_of_all_cores_do() {
    let mut cores = cores(2);
    let enter = |core: &mut Core| core.connected(PEER, &mut Vec::new()).expect("it is let in");
    let (mut watcher, mut reader) = (enter(&mut cores[0]), enter(&mut cores[0]));
    let mut client = enter(&mut cores[1]);
    let named = [1, 2, 3].map(|number| format!("STAT {number}:addr tcp:10.0.0.2:4000\r\n")).concat();
    assert_eq!(ask(&mut cores[1], &mut client, "stats conns\r\n"), named + "END\r\n");
    assert!(!cores[1].is_watched());
    assert_eq!(ask(&mut cores[0], &mut watcher, "watch nobody\r\n"), "ERROR\r\n");
    assert_eq!(ask(&mut cores[0], &mut watcher, "watch fetchers mutations\r\nget a\r\n"), "OK\r\n");
    assert_eq!(ask(&mut cores[0], &mut watcher, "get a\r\n"), "", "it only hears");
    assert_eq!(ask(&mut cores[0], &mut reader, "watch\r\n"), "OK\r\n");
    assert!(cores[1].is_watched());
    ask(&mut cores[1], &mut client, "set a:b 0 30 5 noreply\r\nhello\r\nadd a:b 0 0 1\r\nx\r\nmg a:b v\r\n");
    assert_eq!(talk(&mut cores[1], "watch\r\n"), "ERROR\r\n", "a datagram hears nothing");
    let line = |number: u32, rest: &str| format!("ts={UNIX}.0 gid={number} type={rest}\n");
    let sought = [
        line(1, "item_get key=a%3Ab status=not_found clsid=0 cfd=3 size=0"),
        line(3, "item_get key=a%3Ab status=found clsid=1 cfd=3 size=5"),
        line(5, "item_get key=a%3Ab status=found clsid=1 cfd=3 size=5"),
    ];
    let stored = [
        line(2, "item_store key=a%3Ab status=stored cmd=set ttl=30 clsid=1 cfd=3 size=5"),
        line(4, "item_store key=a%3Ab status=not_stored cmd=add ttl=0 clsid=1 cfd=3 size=1"),
    ];
    assert_eq!(news(&cores[0], &mut reader), sought.concat(), "`watch` alone is of what is looked for");
    let all = [&sought[0], &stored[0], &sought[1], &stored[1], &sought[2]].map(String::as_str).concat();
    assert_eq!(news(&cores[0], &mut watcher), all);
    assert_eq!((news(&cores[0], &mut watcher), news(&cores[1], &mut client)), (String::new(), String::new()));
    cores[0].disconnected(&watcher);
    cores[0].disconnected(&reader);
    assert!(!cores[1].is_watched());
}

/// Sums lose nothing, whoever adds, and each core reads what was written last.
#[test]
fn cores_that_want_the_same_keys_take_turns() {
    const KEYS: u64 = 5;
    const ADDED: u64 = if cfg!(miri) { 20 } else { 4000 };
    let mut cores = cores(4);
    for key in 0..KEYS {
        talk(&mut cores[0], &format!("set sum{key} 0 0 1\r\n0\r\n"));
    }
    thread::scope(|scope| {
        for core in &mut cores {
            scope.spawn(move || {
                for step in 0..ADDED {
                    let sum = talk(core, &format!("incr sum{} 1\r\n", step % KEYS));
                    assert!(sum.trim_end().parse::<u64>().is_ok_and(|sum| sum > 0), "{sum}");
                    // Large values are kept in the buffers that they came in, and dropped on any core.
                    let value = (b'a' + (step % 26) as u8) as char;
                    let value: String = std::iter::repeat_n(value, 1500).collect();
                    talk(core, &format!("set large{} 0 0 1500\r\n{value}\r\n", step % 3));
                    let found = talk(core, &format!("get large{}\r\n", (step + 1) % 3));
                    let body = found.lines().nth(1).unwrap_or_default().as_bytes();
                    assert!(body.iter().all(|byte| *byte == body[0]), "a value is one core's: {found}");
                }
            });
        }
    });
    let total: u64 = (0..KEYS)
        .map(|key| {
            let found = talk(&mut cores[3], &format!("get sum{key}\r\n"));
            found.lines().nth(1).expect("a value").trim_end().parse::<u64>().expect("a number")
        })
        .sum();
    assert_eq!(total, 4 * ADDED);
    assert_eq!(stat(&mut cores[1], "incr_hits"), 4 * ADDED);
}
