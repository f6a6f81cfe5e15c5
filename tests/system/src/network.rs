//! A network of Linux's for one machine: a namespace with a TAP device, and servers of others on it.

use crate::{Guest, Vm, tap_is_possible};
use nom_build::debian;
use nom_vmm::{Namespace, namespace};
use std::fs::File;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long anything may take, on a slow and busy computer.
const PATIENCE: Duration = Duration::from_secs(90);

/// The network, with what runs on it; all ends with this value.
pub struct Site {
    namespace: Namespace,
    directory: TempDir,
    servers: Vec<Child>,
    queues: u32,
}

impl Site {
    /// A network named after `name`, whose machine has `queues` pairs of queues. Without the rights for that,
    /// or for installing what others wrote, it says so and there is none.
    pub fn new(name: &str, queues: u32) -> Option<Site> {
        if !tap_is_possible(name) {
            return None;
        }
        if let Err(why) = debian::set_up(&debian::PEERS) {
            println!("skipped: {why:#}");
            return None;
        }
        let namespace = Namespace::create(name, queues).expect("a namespace");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let site = Site { namespace, directory, servers: Vec::new(), queues };
        site.run("sysctl -q -w net.ipv6.conf.all.forwarding=1");
        Some(site)
    }

    /// Runs a command in the network; what it said.
    pub fn try_run(&self, command: &str) -> (bool, String) {
        let mut words = command.split_whitespace();
        let mut child = self.namespace.command(words.next().expect("a program"));
        let output = child.args(words).output().expect("it runs");
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    /// The same for one that must succeed.
    pub fn run(&self, command: &str) -> String {
        let (is_well, said) = self.try_run(command);
        assert!(is_well, "{command}: {said}");
        said
    }

    /// Repeats a command until what it says holds `text`.
    pub fn run_until(&self, command: &str, text: &str) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let (_, said) = self.try_run(command);
            if said.contains(text) {
                return said;
            }
            assert!(Instant::now() < end, "{command} never says `{text}`: {said}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// A file of this network's.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts a server, whose output goes to the file `log`.
    pub fn serve(&mut self, command: &str, log: &str) {
        let file = File::create(self.file(log)).expect("a log");
        let mut words = command.split_whitespace();
        let mut child = self.namespace.command(words.next().expect("a program"));
        child.args(words).stdin(Stdio::null()).stdout(file.try_clone().expect("a handle")).stderr(file);
        self.servers.push(child.spawn().expect("it starts"));
    }

    /// Waits until `log` holds `text` so many times; all of it.
    pub fn wait_for(&self, log: &str, text: &str, times: usize) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let said = std::fs::read_to_string(self.file(log)).expect("a log");
            if said.matches(text).count() >= times {
                return said;
            }
            assert!(Instant::now() < end, "{log} does not say `{text}` {times} times: {said}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Boots a machine on this network, with a core for each pair of queues.
    pub fn boot(&self, guest: Guest) -> Vm {
        let (device, queues) = (namespace::DEVICE, self.queues);
        let several = if queues > 1 { format!(",queues={queues}") } else { String::new() };
        let tap = format!("-netdev tap,id=net0,ifname={device},script=no,downscript=no{several}");
        let mq = if queues > 1 { format!(",mq=on,vectors={}", 2 * queues + 2) } else { String::new() };
        let card = format!("virtio-net-pci,disable-legacy=on,netdev=net0{mq}");
        let guest = guest.cpus(queues).memory("256M").qemu(&tap).device(&card);
        let start = || {
            self.namespace.enter().expect("entered");
            guest.boot()
        };
        std::thread::scope(|scope| scope.spawn(start).join().expect("no panic"))
    }

    /// Asks memcached at `address` for its version.
    pub fn ask(&self, address: IpAddr) -> String {
        use std::io::{BufRead, BufReader, Write};
        let talk = || {
            self.namespace.enter().expect("entered");
            let end = Instant::now() + PATIENCE;
            let mut stream = loop {
                match TcpStream::connect(SocketAddr::new(address, 11211)) {
                    Ok(stream) => break stream,
                    Err(error) => assert!(Instant::now() < end, "{address}: {error}"),
                }
            };
            stream.set_read_timeout(Some(PATIENCE)).expect("a timeout is set");
            stream.write_all(b"version\r\n").expect("it is sent");
            let mut line = String::new();
            BufReader::new(stream).read_line(&mut line).expect("an answer");
            line
        };
        std::thread::scope(|scope| scope.spawn(talk).join().expect("no panic"))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for server in &mut self.servers {
            // `ip netns exec` becomes the program; whatever hinders this, the namespace stays for the next.
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}
