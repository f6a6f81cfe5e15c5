//! Machines on the bridge, in a network namespace that the test makes: nothing of it is seen outside.

mod common;

use common::{Site, kill, said};
use nom_vmm::Namespace;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Runs `test` where there is no other bridge; says so if it cannot.
fn in_a_namespace(name: &str, test: impl FnOnce(&Site)) {
    let is_root = std::process::Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n");
    if !is_root || !Path::new("/dev/net/tun").exists() {
        eprintln!("skipped: {name} needs root and /dev/net/tun");
        return;
    }
    let namespace = Namespace::create(name, 1).expect("a namespace");
    test(&Site::inside(namespace.name()));
}

/// What a web server answers, asked from where the site is; waits until it does.
fn fetch(site: &Site, address: &str) -> String {
    let end = Instant::now() + common::PATIENCE;
    let script = "import sys, urllib.request as r\n\
                  print(r.urlopen('http://' + sys.argv[1] + '/', timeout=5).read().decode())";
    loop {
        let output = site.command("python3").args(["-c", script, address]).output().expect("python3 runs");
        if output.status.success() {
            return String::from_utf8_lossy(&output.stdout).into_owned();
        }
        assert!(Instant::now() < end, "{address}: {}", said(&output));
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// What an echo server on UDP says to `hello`.
fn datagram(site: &Site, host: &str, port: u16) -> String {
    let script = "import socket, sys\n\
                  s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(2)\n\
                  for _ in range(50):\n    \
                      s.sendto(b'hello', (sys.argv[1], int(sys.argv[2])))\n    \
                      try: print(s.recv(100).decode()); break\n    \
                      except OSError: pass\n";
    let output = site.command("python3").args(["-c", script, host, &port.to_string()]).output();
    String::from_utf8_lossy(&output.expect("python3 runs").stdout).trim().to_owned()
}

fn links(site: &Site) -> String {
    let output = site.command("ip").args(["-brief", "link"]).output().expect("ip runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_published_service_has_several_cores_and_machines_are_neighbours() {
    in_a_namespace("test-cli-bridge", |site| {
        site.run("run -d --name web --network bridge --cpus 2 -m 128M -p 18080:80 nhttpd");
        site.run("run -d --name echo --network bridge -p 127.0.0.1:17007:7/udp echo");
        site.wait_for_log("web", "on 2 cores", 1);
        assert!(fetch(site, "10.110.111.2").contains("nom"), "from this computer, by its address");
        assert!(fetch(site, "127.0.0.1:18080").contains("nom"), "by a published port");
        site.wait_for_log("echo", "serves at", 1);
        assert_eq!(datagram(site, "127.0.0.1", 17007), "hello");
        assert_eq!(datagram(site, "10.110.111.3", 7), "hello");
        let stats: Value = serde_json::from_str(&site.run("stats --no-stream --json web")).expect("JSON");
        assert!(stats[0]["network"]["sent"].as_u64().is_some_and(|bytes| bytes > 100), "{stats:#}");
        let refusal = site.refused("run --network bridge --address 10.110.111.2 hello");
        assert!(refusal.contains("taken by machine `web`"), "{refusal}");
        // A machine that is started again has the address that its image knows.
        site.run("restart --time 1 web");
        assert_eq!(
            site.inspect("web")["launch"]["config"]["networks"][0]["bridge"]["address"],
            json!("10.110.111.2")
        );
        assert!(fetch(site, "10.110.111.2").contains("nom"));
        site.run("stop --time 1 web");
        assert!(links(site).contains("nombr0"), "the other is still there");
        site.run("stop --time 1 echo");
        assert!(!links(site).contains("nombr0") && !links(site).contains("nomtap"), "{}", links(site));
    });
}

#[test]
fn what_a_killed_supervisor_leaves_is_removed_by_the_next_call() {
    in_a_namespace("test-cli-left", |site| {
        site.run("run -d --name one --network bridge echo");
        kill(&site.inspect("one"), "supervisor");
        site.wait_for("one", "its end", |known| known["running"] == json!(false));
        assert!(links(site).contains("nomtap0"), "nobody has looked since");
        site.run("rm one");
        assert!(!links(site).contains("nombr0") && !links(site).contains("nomtap"), "{}", links(site));
        // The same in the foreground, with a machine of the same name and address afterwards.
        let mut run =
            site.nom("run --name two --network bridge echo").stdout(Stdio::null()).spawn().expect("starts");
        let end = Instant::now() + common::PATIENCE;
        while !site
            .nom("logs two")
            .output()
            .is_ok_and(|logs| String::from_utf8_lossy(&logs.stdout).contains("serves"))
        {
            assert!(Instant::now() < end, "it does not serve");
            std::thread::sleep(Duration::from_millis(50));
        }
        let known = site.inspect("two");
        assert_eq!(known["launch"]["config"]["networks"][0]["bridge"]["address"], json!("10.110.111.2"));
        kill(&known, "supervisor");
        run.wait().expect("killed");
        site.wait_for("two", "its end", |known| known["running"] == json!(false));
        site.run("run -d --name three --network bridge --address 10.110.111.2 echo");
        assert_eq!(links(site).matches("nomtap").count(), 1, "{}", links(site));
        site.run("rm -f three");
    });
}
