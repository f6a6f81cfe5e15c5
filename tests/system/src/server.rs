//! Servers under test, and the clients that load them.

use crate::{Guest, Vm, tap_is_possible};
use nom_vmm::{Namespace, namespace};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// How long a server may take until it answers, and a client until it is done.
const PATIENCE: Duration = Duration::from_secs(60);

/// A machine that serves on a port of this computer.
pub struct Server {
    /// The machine; it ends with this value.
    pub vm: Vm,
    /// Where its port is found, for TCP and UDP.
    pub address: SocketAddr,
}

impl Server {
    /// Boots an application of `apps/` whose TCP and UDP port `port` is forwarded, and waits until it serves.
    pub fn boot(guest: Guest, port: u16) -> Server {
        let address = free_address();
        let forward = format!("127.0.0.1:{}-:{port}", address.port());
        let network = format!("-netdev user,id=net0,hostfwd=tcp:{forward},hostfwd=udp:{forward}");
        let guest = guest.qemu(&network).device("virtio-net-pci,disable-legacy=on,netdev=net0");
        let mut vm = guest.boot();
        // QEMU accepts connections before the guest does, and resets those that the guest does not take.
        vm.wait_for("serves at");
        Server { vm, address }
    }

    /// Boots a guest whose server has a core and a queue pair of a TAP device on each of `cores` processors,
    /// in a network namespace of its own, named after `name`, and there has `test` look at it. Without the
    /// rights for that it says so.
    pub fn on_cores(name: &str, guest: Guest, port: u16, cores: u32, test: impl FnOnce(&mut Server) + Send) {
        Server::on_card(name, guest, port, (cores, "mq=on"), test);
    }

    /// The same, where the network device has these properties of QEMU's virtio-net-pci.
    pub fn on_card(
        name: &str,
        guest: Guest,
        port: u16,
        (cores, properties): (u32, &str),
        test: impl FnOnce(&mut Server) + Send,
    ) {
        if !tap_is_possible(name) {
            return;
        }
        let namespace = Namespace::create(name, cores).expect("a namespace");
        let inside = || {
            namespace.enter().expect("entered");
            let device = namespace::DEVICE;
            let tap = format!("-netdev tap,id=net0,ifname={device},script=no,downscript=no,queues={cores}");
            let vectors = 2 * cores + 2;
            let card = format!("virtio-net-pci,disable-legacy=on,netdev=net0,{properties},vectors={vectors}");
            let mut vm = guest.cpus(cores).memory("256M").qemu(&tap).device(&card).boot();
            // A lone core goes without saying.
            vm.wait_for(&if cores > 1 { format!(", on {cores} cores") } else { "serves at".into() });
            let address = SocketAddr::new(namespace::GUEST.into(), port);
            reach(address);
            test(&mut Server { vm, address });
        };
        std::thread::scope(|scope| scope.spawn(inside).join().expect("no panic"));
    }

    /// A connection.
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("the server accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout is set");
        stream
    }

    /// Runs a client with `{host}` and `{port}` in its arguments replaced; what it said, if it ended well.
    /// `None` if it is not installed, which is said.
    pub fn load(&self, program: &str, arguments: &str) -> Option<String> {
        let port = self.address.port().to_string();
        let arguments = arguments.replace("{host}", "127.0.0.1").replace("{port}", &port);
        let seconds = PATIENCE.as_secs().to_string();
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut command = Command::new("timeout");
        command.arg(seconds).arg(program).args(arguments.split_whitespace()).current_dir(directory.path());
        let Output { status, stdout, stderr } = command.output().expect("`timeout` runs");
        let said = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        if status.code() == Some(127) {
            println!("skipped: {program} is not installed");
            return None;
        }
        assert!(status.success(), "{program} {arguments}: {status}\n{said}");
        Some(said)
    }
}

/// Waits until the machine is a neighbour: the host asks for its Ethernet address only for some
/// milliseconds, and fails to connect if an emulated core is slower than that.
fn reach(address: SocketAddr) {
    let end = Instant::now() + PATIENCE;
    while let Err(error) = TcpStream::connect(address) {
        assert!(Instant::now() < end, "{address}: {error}");
    }
}

/// An address of this computer whose port nobody uses.
fn free_address() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("a bound address")
}
