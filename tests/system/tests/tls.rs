//! A TLS front in a machine, before servers in machines of their own, and OpenSSL's clients.

use nom_system_tests::{Guest, Server};
use std::io::Read;
use std::path::Path;
use std::process::Command;

const PYTHON: &str = "/usr/bin/python3";
const HTTPS: u16 = 443;
/// This computer, as QEMU's user-mode network shows it to a machine.
const HOST: &str = "10.0.2.2";

/// A client that says how many bytes it hears before the end.
const HEAR: &str = "import socket, ssl, sys
stream = socket.create_connection(('127.0.0.1', int(sys.argv[1])), 60)
print(len(ssl._create_unverified_context().wrap_socket(stream).recv(1)))";

/// A certificate for `localhost`, which vouches for itself, and its key.
fn write_identity(directory: &Path) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    std::fs::write(directory.join("cert.pem"), made.cert.pem()).expect("written");
    std::fs::write(directory.join("key.pem"), made.signing_key.serialize_pem()).expect("written");
}

fn front(identity: &Path, server: &str) -> Guest {
    Guest::app("tls-proxy").files(identity).arguments(&[server])
}

#[test]
fn clients_of_openssl_are_served_as_those_in_the_clear() {
    let (site, identity) =
        (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    write_identity(identity.path());
    std::fs::write(site.path().join("index.html"), "<p>").expect("written");
    std::fs::write(site.path().join("long.txt"), "more than a record ".repeat(20_000)).expect("written");
    let web = Server::boot(Guest::app("nhttpd").memory("128M").files(site.path()), 80);
    let store = Server::boot(Guest::app("memcached").memory("128M"), 11211);
    let [front, store_front] = [&web, &store].map(|server| {
        let behind = format!("{HOST}:{}", server.address.port());
        Server::boot(front(identity.path(), &behind).memory("128M"), HTTPS)
    });
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../foreign/tls.py");
    let mut command = Command::new(PYTHON);
    command.arg(script).arg("--root").arg(identity.path().join("cert.pem"));
    for (name, server) in
        [("--front", &front), ("--store-front", &store_front), ("--web", &web), ("--store", &store)]
    {
        command.arg(name).arg(server.address.port().to_string());
    }
    let output = command.output().expect("Python runs");
    let complaint = String::from_utf8_lossy(&output.stderr);
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect(&complaint);
    let expected = serde_json::json!({
        "version": "TLSv1.3",
        "same": 8,
        "bytes": 380_000,
        "stored": 8,
        "clear": true,
        "older": "TLSV1_ALERT_PROTOCOL_VERSION",
        "stranger": "CERTIFICATE_VERIFY_FAILED",
        // Fatal, decode_error: RFC 8446 section 6.
        "noise": "15030300020232",
    });
    assert_eq!(said, expected, "{complaint}");
}

#[test]
fn who_is_behind_and_absent_is_named_and_the_client_is_not_left_waiting() {
    let identity = tempfile::tempdir().expect("a directory");
    write_identity(identity.path());
    // Nobody listens at the port of echo's own protocol here.
    let mut server = Server::boot(front(identity.path(), "10.0.2.2:9").memory("128M"), HTTPS);
    let mut stream = server.connect();
    let heard = Command::new(PYTHON)
        .args(["-c", HEAR])
        .arg(server.address.port().to_string())
        .output()
        .expect("Python runs");
    assert_eq!(String::from_utf8_lossy(&heard.stdout), "0\n", "{}", String::from_utf8_lossy(&heard.stderr));
    server.vm.wait_for("the server at 10.0.2.2:9: the peer refused the connection");
    // One who says nothing at all is closed, too.
    assert_eq!(stream.read(&mut [0]).map_err(|error| error.kind()).unwrap_or(0), 0);
    server.vm.wait_for("no handshake within 10 s");
}

#[test]
fn what_is_missing_is_named() {
    let identity = tempfile::tempdir().expect("a directory");
    let refused = |server: &[&str], text: &str| {
        let guest = Guest::app("tls-proxy").network().files(identity.path()).arguments(server);
        guest.run().expect_status(1).expect(text);
    };
    refused(&[], "expected the ADDRESS:PORT of the server");
    refused(&["localhost"], "localhost: expected [-p PORT] ADDRESS:PORT");
    refused(&["10.0.2.2:80"], "no file cert.pem: expected cert.pem and key.pem, by `nom run -v DIRECTORY:/`");
    write_identity(identity.path());
    std::fs::write(identity.path().join("key.pem"), "no key").expect("written");
    refused(&["10.0.2.2:80"], "the key is no PRIVATE KEY in PEM");
}
