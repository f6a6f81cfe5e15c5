//! A machine's private network: a network namespace of Linux with one TAP device, whose other end is the
//! machine's network device; or a process's, with a virtual Ethernet pair.
//!
//! Nothing of it is seen outside: the host's end has the address [`HOST`], the machine is to have [`GUEST`],
//! the addresses of QEMU's user-mode network, so that an image needs no other setting for either. Programs
//! that are to talk to the machine run in the namespace ([`Namespace::command`], [`Namespace::enter`]).
//!
//! A namespace outlives its processes, so its name says who made it; one that was left behind by a killed
//! process is removed when the next is made.

use crate::config::Network;
use crate::ip::ip;
use crate::qemu::ProcessIdentity;
use anyhow::{Context, Result, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::ffi::OsStr;
use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;

/// Address of the host's end.
pub const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
/// Address that the machine is to use.
pub const GUEST: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
/// Length of the prefix that both share.
pub const PREFIX: u8 = 24;
/// Name of the TAP device in its namespace.
pub const DEVICE: &str = "tap0";

/// Name of a process's end of a virtual Ethernet pair, whose other end is called [`DEVICE`].
pub const PEER: &str = "xdp0";

/// Where `ip netns` keeps its handles of namespaces.
const DIRECTORY: &str = "/run/netns";
/// First part of every name.
const MARK: &str = "nom";
/// After this many milliseconds an unanswered address resolution is repeated: what starts here answers within
/// a few, and nobody else is disturbed.
const RESOLUTION_MS: &str = "10";

/// A namespace with a TAP device; it is removed when dropped.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    queues: u32,
}

impl Namespace {
    /// Makes the network of the machine called `machine`, whose device has `queues` pairs of queues, after
    /// removing what killed processes left.
    ///
    /// # Errors
    /// If this process may not administer the network, or `ip` (package iproute2) refuses a step.
    pub fn create(machine: &str, queues: u32) -> Result<Namespace> {
        Namespace::with(machine, queues, Cable::Tap)
    }

    /// The same with a virtual Ethernet pair in place of the TAP device, for a process that uses [`PEER`] by
    /// XDP: [`DEVICE`] is the host's end as ever.
    ///
    /// # Errors
    /// As [`Namespace::create`].
    pub fn with_pair(machine: &str, queues: u32) -> Result<Namespace> {
        Namespace::with(machine, queues, Cable::Pair)
    }

    fn with(machine: &str, queues: u32, cable: Cable) -> Result<Namespace> {
        if !rustix::process::geteuid().is_root() {
            bail!("a network namespace with a TAP device needs root");
        }
        remove_stale()?;
        let ours = ProcessIdentity::of(std::process::id()).context("this process is not in /proc")?;
        // From here on a failure takes the namespace along, or what there is of it.
        let namespace = Namespace { name: name(machine, ours), queues };
        ip(&["netns", "add", &namespace.name])?;
        for step in steps(&namespace.name, queues, cable) {
            ip(&step)?;
        }
        Ok(namespace)
    }

    /// What connects a machine to it.
    pub fn network(&self) -> Network {
        Network::Tap { namespace: self.name.clone(), queues: self.queues }
    }

    /// Its name, as `ip netns` knows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `program`, to be started inside.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        command_in(&self.name, program)
    }

    /// Moves the calling thread, and no other, inside: sockets that it opens from now on are there.
    ///
    /// # Errors
    /// If the namespace is gone, or this process has lost its rights.
    pub fn enter(&self) -> Result<()> {
        let path = Path::new(DIRECTORY).join(&self.name);
        let handle = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
        move_into_link_name_space(handle.as_fd(), Some(LinkNameSpaceType::Network))
            .with_context(|| format!("cannot enter {}", path.display()))
    }

    /// A listener at a free port of the namespace's loopback interface, for any thread to use.
    ///
    /// # Errors
    /// See [`Namespace::enter`].
    pub fn listen(&self) -> Result<TcpListener> {
        let enter_and_listen = || -> Result<TcpListener> {
            self.enter()?;
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen in the namespace")
        };
        let listener = std::thread::scope(|scope| scope.spawn(enter_and_listen).join());
        listener.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Remembers the Ethernet address of the machine, which has answered, for good: on a busy computer an
    /// emulated one may be too slow when it is asked again, and what is sent meanwhile would be lost.
    ///
    /// # Errors
    /// If the machine has not answered yet.
    pub fn remember_guest(&self) -> Result<()> {
        let words = format!("-n {} neighbour change {GUEST} dev {DEVICE} nud permanent", self.name);
        ip(&words.split(' ').collect::<Vec<_>>()).map(drop)
    }

    /// Leaves it to a machine that outlives this process; [`remove_stale`] removes it after that.
    pub fn leave(self) {
        std::mem::forget(self);
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Whatever hinders this, the next `remove_stale` finds it.
        let _ = ip(&["netns", "delete", &self.name]);
    }
}

/// `program`, to be started inside the namespace `name`; the process that is started becomes it.
pub fn command_in(name: &str, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", name]).arg(program);
    command
}

/// Removes every namespace whose maker is gone and in which nothing runs any more.
///
/// # Errors
/// If the list of namespaces cannot be read.
pub fn remove_stale() -> Result<()> {
    let entries = match std::fs::read_dir(DIRECTORY) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("cannot read {DIRECTORY}")),
    };
    for name in entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()) {
        if maker(&name).is_some_and(|maker| !maker.is_running()) && is_empty(&name) {
            // Another process may be removing the same one.
            let _ = ip(&["netns", "delete", &name]);
        }
    }
    Ok(())
}

/// Whether no process is in the namespace; one that cannot be asked may hold some.
fn is_empty(name: &str) -> bool {
    ip(&["netns", "pids", name]).is_ok_and(|processes| processes.trim().is_empty())
}

/// The name of a namespace says whose it is: no list of them can be lost.
fn name(machine: &str, maker: ProcessIdentity) -> String {
    format!("{MARK}.{machine}.{}.{}", maker.id, maker.started)
}

/// Who made the namespace `name`; none if it is not one of ours.
fn maker(name: &str) -> Option<ProcessIdentity> {
    let (rest, started) = name.strip_prefix(MARK)?.strip_prefix('.')?.rsplit_once('.')?;
    let (_machine, id) = rest.rsplit_once('.')?;
    Some(ProcessIdentity { id: id.parse().ok()?, started: started.parse().ok()? })
}

/// What the host's end is connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cable {
    /// A file: what a machine or a process attaches to.
    Tap,
    /// Another device, which leaves Linux alone: it has no address of any kind.
    Pair,
}

/// Arguments of `ip`, step by step, that furnish a new namespace.
fn steps(name: &str, queues: u32, cable: Cable) -> Vec<Vec<String>> {
    let several = if queues > 1 { " multi_queue" } else { "" };
    let both = format!("numtxqueues {queues} numrxqueues {queues}");
    let laid = match cable {
        Cable::Tap => vec![format!("-n {name} tuntap add dev {DEVICE} mode tap{several}")],
        Cable::Pair => vec![
            format!("-n {name} link add {DEVICE} {both} type veth peer name {PEER} {both}"),
            format!("-n {name} link set {PEER} addrgenmode none up"),
        ],
    };
    let furnished = [
        format!("-n {name} address add {HOST}/{PREFIX} dev {DEVICE}"),
        format!("-n {name} ntable change name arp_cache dev {DEVICE} retrans {RESOLUTION_MS}"),
        format!("-n {name} link set lo up"),
        format!("-n {name} link set {DEVICE} up"),
    ];
    let words = |step: String| step.split_whitespace().map(str::to_owned).collect();
    laid.into_iter().chain(furnished).map(words).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::sync::{Mutex, PoisonError};

    /// What one test makes another's clean-up could take for stale.
    static NAMESPACES: Mutex<()> = Mutex::new(());

    /// A process that cannot exist any more: this one, had it been started before the computer was.
    fn gone() -> ProcessIdentity {
        ProcessIdentity { id: std::process::id(), started: 0 }
    }

    /// Whether namespaces can be made; says so where they cannot.
    fn may_make_namespaces() -> bool {
        let root = rustix::process::geteuid().is_root() && Path::new("/dev/net/tun").exists();
        if !root {
            eprintln!("skipped: namespaces with TAP devices need root and /dev/net/tun");
        }
        root
    }

    #[test]
    fn a_name_says_who_made_it_whatever_the_machine_is_called() {
        let maker_of = ProcessIdentity { id: 7, started: 1234 };
        for machine in ["web-1", "a.b", "1.2", "_"] {
            assert_eq!(maker(&name(machine, maker_of)), Some(maker_of), "{machine}");
        }
        for foreign in
            ["web", "nom", "nom.", "nom.web", "nom.web.7", "nom.web.x.7", "nom.web.7.-1", "x.web.7.8"]
        {
            assert_eq!(maker(foreign), None, "{foreign} is somebody else's");
        }
    }

    #[test]
    fn only_several_queues_make_a_device_of_several_queues() {
        let line = |queues| steps("n", queues, Cable::Tap).concat().join(" ");
        assert!(!line(1).contains("multi_queue") && line(2).contains("mode tap multi_queue"));
        assert!(line(1).contains("address add 10.0.2.2/24 dev tap0"));
    }

    #[test]
    fn a_refused_step_is_named_with_the_reason() {
        let error = ip(&["netns", "delete", "nom.no.such"]).expect_err("there is none").to_string();
        assert!(error.contains("`ip netns delete nom.no.such` failed: "), "{error}");
    }

    #[test]
    fn a_namespace_is_entered_by_one_thread_and_gone_when_dropped() {
        if !may_make_namespaces() {
            return;
        }
        let _alone = NAMESPACES.lock().unwrap_or_else(PoisonError::into_inner);
        let namespace = Namespace::create("test-enter", 1).expect("made");
        let path = Path::new(DIRECTORY).join(namespace.name());
        let inside = std::thread::scope(|scope| {
            let bind = || {
                namespace.enter().expect("entered");
                UdpSocket::bind((HOST, 0)).is_ok()
            };
            scope.spawn(bind).join().expect("no panic")
        });
        assert!(inside, "the host's end has its address inside");
        assert!(UdpSocket::bind((HOST, 0)).is_err(), "this thread stayed outside");
        let port = namespace.listen().and_then(|listener| Ok(listener.local_addr()?.port())).expect("bound");
        assert!(std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err(), "it listens inside");
        let addresses = namespace.command("ip").args(["-br", "address"]).output().expect("ip runs");
        assert!(String::from_utf8_lossy(&addresses.stdout).contains("tap0"));
        assert!(namespace.remember_guest().is_err(), "nobody has answered");
        let neighbour = |words: &str| {
            let line = format!("-n {} neighbour {words}", namespace.name());
            ip(&line.split(' ').collect::<Vec<_>>()).expect("done")
        };
        neighbour("add 10.0.2.15 lladdr 02:00:00:00:00:01 dev tap0 nud stale");
        namespace.remember_guest().expect("it is known");
        assert!(neighbour("show").contains("PERMANENT"), "{}", neighbour("show"));
        assert!(path.exists());
        drop(namespace);
        assert!(!path.exists());
    }

    #[test]
    fn what_a_killed_process_left_is_removed_unless_something_runs_there() {
        if !may_make_namespaces() {
            return;
        }
        let _alone = NAMESPACES.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, ours) =
            (name("test-left", gone()), ProcessIdentity::of(std::process::id()).expect("runs"));
        let kept = name("test-kept", ours);
        for name in [&left, &kept] {
            ip(&["netns", "add", name.as_str()]).expect("made");
        }
        let exists = |name: &str| Path::new(DIRECTORY).join(name).exists();
        let mut guest = command_in(&left, "sleep").arg("60").spawn().expect("it starts");
        while is_empty(&left) {
            std::thread::yield_now(); // `ip` has not entered yet.
        }
        remove_stale().expect("removed");
        assert!(exists(&left), "a machine still uses it");
        guest.kill().expect("killed");
        guest.wait().expect("waited for");
        remove_stale().expect("removed");
        assert!(!exists(&left) && exists(&kept), "its maker runs");
        ip(&["netns", "delete", kept.as_str()]).expect("removed");
    }
}
