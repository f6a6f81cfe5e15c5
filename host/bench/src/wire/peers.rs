//! The two ends: a client of Linux's, and a server that is nom or Linux, with a cable between them.

use super::cable::Cable;
use super::load::PORT;
use anyhow::{Context, Result, ensure};
use nom_build::{Process, Project};
use nom_vmm::namespace::{DEVICE, GUEST, PREFIX};
use nom_vmm::{Namespace, qemu::BOUND_TO_THIS};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Between the device of nom and the cable, whose ends are both Linux's.
const BRIDGE: &str = "bridge0";
const PLUG: &str = "plug0";

/// A server at [`GUEST`] with a client's namespace beside it; both end with this value.
pub struct Pair {
    /// Where clients are.
    pub client: Namespace,
    /// Between the two.
    pub cable: Cable,
    server: Server,
    _place: Namespace,
}

enum Server {
    Nom(Child),
    Linux,
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Server::Nom(child) = self {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Pair {
    /// A server of Linux's.
    ///
    /// # Errors
    /// If this is not root, or Linux lacks something.
    pub fn linux() -> Result<Pair> {
        let (client, place) = (name_space("client")?, name_space("linux")?);
        configure(
            &place,
            &[format!("address flush dev {DEVICE}"), format!("address add {GUEST}/{PREFIX} dev {DEVICE}")],
        )?;
        let listener = listen(&place)?;
        std::thread::spawn(move || super::load::serve(&listener));
        let cable = Cable::plug([(&client, DEVICE), (&place, DEVICE)])?;
        Ok(Pair { client, cable, server: Server::Linux, _place: place })
    }

    /// nom's memcached as a process of Linux's, with its own stack on a TAP device.
    ///
    /// # Errors
    /// If it cannot be built or started, or what [`Pair::linux`] lacks.
    pub fn nom(project: &Project) -> Result<Pair> {
        let process = build(project)?;
        let (client, place) = (name_space("client")?, name_space("nom")?);
        configure(
            &place,
            &[
                format!("address flush dev {DEVICE}"),
                format!("link add {BRIDGE} type bridge"),
                format!("tuntap add dev {PLUG} mode tap"),
                format!("link set {DEVICE} master {BRIDGE}"),
                format!("link set {PLUG} master {BRIDGE}"),
                format!("link set {PLUG} up"),
                format!("link set {BRIDGE} up"),
            ],
        )?;
        let mut command = place.command(BOUND_TO_THIS[0]);
        command.args(&BOUND_TO_THIS[1..]).arg(&process.program);
        command.env("ip", format!("{GUEST}/{PREFIX}")).env("cores", "1");
        let child = process.furnish(&mut command).stdout(Stdio::null()).spawn();
        let server =
            Server::Nom(child.with_context(|| format!("cannot start {}", process.program.display()))?);
        let cable = Cable::plug([(&client, DEVICE), (&place, PLUG)])?;
        Ok(Pair { client, cable, server, _place: place })
    }

    /// Whether the server still runs.
    ///
    /// # Errors
    /// If it does not.
    pub fn check(&mut self) -> Result<()> {
        if let Server::Nom(child) = &mut self.server {
            let status = child.try_wait()?;
            ensure!(
                status.is_none(),
                "nom ended: {}",
                status.map(|status| status.to_string()).unwrap_or_default()
            );
        }
        Ok(())
    }
}

fn build(project: &Project) -> Result<Process> {
    project.process(project.bundle(&project.manifest_path("memcached")?, None)?)
}

fn name_space(what: &str) -> Result<Namespace> {
    // The same one may be made twice in a process.
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let namespace = Namespace::create(&format!("wire-{what}-{number}"), 1)?;
    // Nothing is remembered of earlier connections.
    let script = "echo 1 > /proc/sys/net/ipv4/tcp_no_metrics_save";
    let status = namespace.command("sh").args(["-c", script]).status()?;
    ensure!(status.success(), "cannot have Linux forget earlier connections");
    Ok(namespace)
}

/// Has `ip` take these steps in a namespace.
///
/// # Errors
/// If it refuses one.
pub(crate) fn configure(namespace: &Namespace, steps: &[String]) -> Result<()> {
    for step in steps {
        let mut command = Command::new("ip");
        let output = command
            .args(["-n", namespace.name()])
            .args(step.split(' '))
            .output()
            .context("cannot start ip")?;
        ensure!(output.status.success(), "`ip {step}`: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

fn listen(namespace: &Namespace) -> Result<TcpListener> {
    let inside = || -> Result<TcpListener> {
        namespace.enter()?;
        let listener = TcpListener::bind((GUEST, PORT)).context("cannot listen")?;
        super::load::use_cubic(&listener)?;
        Ok(listener)
    };
    std::thread::scope(|scope| scope.spawn(inside).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
