//! memcached without `-m` takes all memory that nobody else needs, and gives back when somebody does.

use nom_system_tests::{Guest, MemcachedClient, Server};

/// Bytes of the values, and how many are stored: more than the machine's memory.
const LENGTH: usize = 8000;
const COUNT: usize = 16_000;
/// Stored at a time, so that a slow computer waits seldom.
const AT_ONCE: usize = 40;
/// Those who come when memory is full of values, and how much of a request each has sent.
const CROWD: usize = 400;
const WHOLE: usize = 100_000;
const HALF: usize = 90_000;
const MIB: u64 = 1 << 20;

fn value(number: usize) -> Vec<u8> {
    vec![b'a' + (number % 26) as u8; LENGTH]
}

fn store(client: &mut MemcachedClient) {
    for first in (0..COUNT).step_by(AT_ONCE) {
        let numbers = first..first + AT_ONCE;
        let set =
            |number| [format!("set {number} 0 0 {LENGTH}\r\n").as_bytes(), &value(number), b"\r\n"].concat();
        client.send(&numbers.clone().flat_map(set).collect::<Vec<u8>>());
        numbers.for_each(|number| assert_eq!(client.line(), "STORED\r\n", "{number}"));
    }
}

#[test]
fn memcached_takes_all_that_nobody_else_needs_and_gives_it_back() {
    let guest = Guest::app("memcached").arguments(&["-c", "2000"]);
    Server::on_cores("shrinker", guest, 11211, 1, |server| {
        let connect = || MemcachedClient::new(server.connect());
        let mut client = connect();
        store(&mut client);
        let (full, evicted) = (client.stat("curr_items"), client.stat("evictions"));
        let held = full * LENGTH as u64;
        println!("{full} values, {} MiB; {evicted} went", held / MIB);
        assert!(held > 70 * MIB && evicted > 0, "{} MiB of 96, {evicted} went", held / MIB);

        let mut crowd: Vec<_> = (0..CROWD).map(|_| connect()).collect();
        for (number, one) in crowd.iter_mut().enumerate() {
            one.send(format!("set crowd{number} 0 0 {WHOLE}\r\n").as_bytes());
            one.send(&vec![b'x'; HALF]);
        }
        let stats = ["curr_items", "evictions", "nom_free_bytes"];
        println!("half: {:?}", stats.map(|name| client.stat(name)));
        for (number, one) in crowd.iter_mut().enumerate() {
            one.send(&vec![b'x'; WHOLE - HALF]);
            one.send(b"\r\n");
            let answer = one.line();
            let mut now = || stats.map(|name| client.stat(name));
            assert_eq!(answer, "STORED\r\n", "{number}: {stats:?} {:?}", now());
        }
        let left = client.stat("curr_items");
        println!("{left} values are left; {} KiB are free", client.stat("nom_free_bytes") >> 10);
        assert!(left < full, "{full} values, and then {left}");
        // What was used last is there, and right.
        let last = format!("crowd{}", CROWD - 1);
        assert!(client.get(&last, WHOLE).is_some_and(|value| value == vec![b'x'; WHOLE]));
    });
}
