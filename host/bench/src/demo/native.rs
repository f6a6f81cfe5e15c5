//! Servers that are processes of this computer: nobody translates them, and each kick is a system call.
//!
//! Both are at one end of a pair of virtual Ethernet devices, whose other end the clients have: nom's has an
//! XDP socket there, as `nom run --host --xdp` has it; Linux's is Debian's, in a network namespace of its
//! own. Each has what Linux offers it, and one processor.

use super::guests::{self, Setup};
use super::peer::Running;
use super::tap::Meter;
use crate::linux::serve::Servers;
use crate::serve::service::Service;
use crate::wire::peers::configure;
use anyhow::{Context, Result, ensure};
use nom_build::{Process, Project};
use nom_vmm::Namespace;
use nom_vmm::namespace::{DEVICE, GUEST, HOST, PEER, PREFIX};
use nom_vmm::qemu::BOUND_TO_THIS;
use std::path::Path;

/// The batching delays that are tried, in microseconds: times are not stretched here.
pub const DELAYS_US: [u32; 7] = [0, 2, 5, 10, 20, 50, 100];

/// A server to be started.
#[derive(Debug)]
pub enum Native<'a> {
    /// nom's.
    Nom(&'a Process),
    /// Debian's.
    Linux(&'a Servers, &'static Service),
}

/// Builds nom's application as a process that is set up so.
///
/// # Errors
/// If it does not build.
pub fn process(project: &Project, service: &Service, setup: Setup, directory: &Path) -> Result<Process> {
    let manifest = guests::manifest(project, service, setup, directory)?;
    project.process(project.bundle(&manifest, None)?)
}

impl Native<'_> {
    /// Starts it for clients in `namespace`: the server, what it sends, and the namespace that it is in if
    /// that is another.
    ///
    /// # Errors
    /// If it cannot be started, or the wire not be laid.
    pub fn start(
        self,
        namespace: &Namespace,
        directory: &Path,
    ) -> Result<(Running, Meter, Option<Namespace>)> {
        match self {
            Native::Nom(process) => {
                let mut command = namespace.command(BOUND_TO_THIS[0]);
                command.args(&BOUND_TO_THIS[1..]).args(alone()).arg(&process.program);
                command.env("ip", format!("{GUEST}/{PREFIX}")).env("cores", "1").env("xdp", PEER);
                process.furnish(&mut command);
                let running = Running::spawn(command, directory);
                let running =
                    running.with_context(|| format!("cannot start {}", process.program.display()))?;
                let meter = Meter::of_process(running.id());
                Ok((running, meter, None))
            }
            Native::Linux(servers, service) => {
                let beside = Namespace::create("demo-linux", 1)?;
                connect(namespace, &beside)?;
                ensure!(
                    service.name == "memcached",
                    "of Debian's servers only memcached runs without a machine"
                );
                let mut command = beside.command(BOUND_TO_THIS[0]);
                command.args(&BOUND_TO_THIS[1..]).args(alone()).args(servers.loaded(&service.linux));
                command.args(["-u", "root", "-t", "1", "-U", "11211"]);
                let running =
                    Running::spawn(command, directory).context("cannot start Debian's memcached")?;
                let meter = Meter::of_server(running.id());
                Ok((running, meter, Some(beside)))
            }
        }
    }
}

/// Lays a wire between two namespaces: a pair of virtual Ethernet devices in place of their TAP devices.
fn connect(clients: &Namespace, server: &Namespace) -> Result<()> {
    let remove = [format!("link delete {DEVICE}")];
    configure(clients, &remove)?;
    configure(server, &remove)?;
    let other = server.name();
    let wire = format!("link add {DEVICE} type veth peer name {DEVICE} netns {other}");
    let up =
        |address| [format!("address add {address}/{PREFIX} dev {DEVICE}"), format!("link set {DEVICE} up")];
    configure(clients, &[wire])?;
    configure(clients, &up(HOST))?;
    configure(server, &up(GUEST))
}

/// Processors for a server and for its clients, as `taskset` lists them; none where there is only one.
pub fn processors() -> Option<[String; 2]> {
    let count = std::thread::available_parallelism().map_or(1, |count| count.get());
    let last = count.checked_sub(1).filter(|last| *last > 0)?;
    Some([last.to_string(), format!("0-{}", last - 1)])
}

/// Words before a server's command that keep it to its processor.
fn alone() -> Vec<String> {
    let words = |[server, _]: [String; 2]| vec!["taskset".into(), "-c".into(), server];
    processors().map(words).unwrap_or_default()
}
