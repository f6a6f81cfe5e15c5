//! Servers on several cores, each with a queue pair of its own: on a TAP device, which takes root.

use nom_system_tests::{Guest, MemcachedClient, Server};
use std::io::{BufRead, BufReader, Write};

/// Boots an application on two cores, and has `test` look at it.
fn on_two_cores(app: &str, port: u16, test: impl FnOnce(&Server) + Send) {
    Server::on_cores(&format!("queues-{app}"), Guest::app(app), port, 2, |server| test(server));
}

/// The number that memcached's statistics show for `name`.
fn stat(server: &Server, name: &str) -> u64 {
    MemcachedClient::new(server.connect()).stat(name)
}

#[test]
fn memcached_serves_one_store_on_two_cores() {
    on_two_cores("memcached", 11211, |server| {
        assert_eq!(stat(server, "threads"), 2);
        if let Some(said) = server.load("memccapable", "-h 10.0.2.15 -p {port}") {
            assert!(said.contains("All tests passed"), "{said}");
        }
        if let Some(said) = server.load("memcaslap", "-s 10.0.2.15:{port} -T 1 -c 16 -t 3s -v 0.5") {
            for line in ["get_misses: 0", "verify_misses: 0", "verify_failed: 0"] {
                assert!(said.contains(line), "expected `{line}`:\n{said}");
            }
            assert!(stat(server, "total_connections") > 16);
            assert!(stat(server, "bytes_written") > stat(server, "cmd_get"));
        }
    });
}

#[test]
fn nhttpd_serves_files_on_two_cores() {
    on_two_cores("nhttpd", 80, |server| {
        // Connections of different ports reach different cores; each has every file.
        for _ in 0..16 {
            let mut stream = server.connect();
            stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("it is sent");
            let status = BufReader::new(stream).lines().next().expect("an answer").expect("a line");
            assert_eq!(status, "HTTP/1.1 200 OK");
        }
    });
}
