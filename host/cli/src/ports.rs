//! Which ports of the host lead into a machine.

use anyhow::{Result, bail};
use nom_image::manifest::{Application, BundleManifest, Port, Protocol};
use nom_vmm::Forward;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, TcpListener, UdpSocket};

/// What is forwarded, and what there is to say about it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Forwards {
    /// For the machine.
    pub forwards: Vec<Forward>,
    /// For the user: what became of the manifests' ports.
    pub notes: Vec<String>,
}

/// What is `published` (`-p`), and what the manifests say of other ports of the machine. A manifest's port
/// stands back where the host's `is_taken`: another machine may have it.
pub fn forwards(
    published: &[Port],
    bundle: Option<&BundleManifest>,
    is_taken: impl Fn(&Forward) -> bool,
) -> Forwards {
    let mut all = Forwards { forwards: published.iter().map(forward).collect(), notes: Vec::new() };
    let applications = bundle.iter().flat_map(|bundle| &bundle.applications);
    for (app, port) in applications.flat_map(|app| app.ports.iter().map(move |port| (app, forward(port)))) {
        let leads_there = |other: &Forward| (other.guest, other.udp) == (port.guest, port.udp);
        if published.iter().map(forward).any(|other| leads_there(&other)) {
            continue;
        }
        let has_it = |other: &Forward| (other.host, other.udp) == (port.host, port.udp);
        if all.forwards.iter().any(has_it) || is_taken(&port) {
            all.notes.push(taken(app, &port));
        } else {
            all.notes.push(format!("{} leads to {}'s port {}", place(&port), app.name, port.guest));
            all.forwards.push(port);
        }
    }
    all
}

fn taken(app: &Application, port: &Forward) -> String {
    let (guest, udp) = (port.guest, if port.udp { "/udp" } else { "" });
    format!(
        "{} is taken, so it does not lead to {}'s port {guest}: `-p HOST:{guest}{udp}` chooses another",
        place(port),
        app.name
    )
}

fn place(port: &Forward) -> String {
    let kind = if port.udp { "UDP port" } else { "port" };
    match port.address {
        Some(address) => format!("{kind} {} of {address}", port.host),
        None => format!("{kind} {} of this computer", port.host),
    }
}

/// A port of the host as it is typed.
fn typed(port: &Forward) -> String {
    let kind = if port.udp { "UDP port" } else { "port" };
    let address = port.address.map(|address| format!("{address}:")).unwrap_or_default();
    format!("{kind} {address}{}", port.host)
}

/// Whether somebody listens at a port of the host already, or this user may not.
pub fn is_taken(port: &Forward) -> bool {
    bind(port).is_err()
}

fn bind(port: &Forward) -> std::io::Result<()> {
    let place = (port.address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), port.host);
    match port.udp {
        true => UdpSocket::bind(place).map(drop),
        false => TcpListener::bind(place).map(drop),
    }
}

/// Checks that the host's ports that are to be `published` can be had. `holder` knows who has one.
///
/// # Errors
/// Names the first that cannot, and why.
pub fn check(published: &[Port], holder: impl Fn(&Forward) -> Option<String>) -> Result<()> {
    let all: Vec<Forward> = published.iter().map(forward).collect();
    for (number, port) in all.iter().enumerate() {
        let has_it =
            |other: &Forward| (other.address, other.host, other.udp) == (port.address, port.host, port.udp);
        if all[..number].iter().any(has_it) {
            bail!("{} is published twice: expected each port of the host once", typed(port));
        }
        let Err(error) = bind(port) else { continue };
        match error.kind() {
            ErrorKind::AddrInUse => {
                let holder = holder(port).unwrap_or_else(|| "a process that this user cannot see".to_owned());
                bail!("{} is taken by {holder}: expected a free one, `-p HOST:{}`", typed(port), port.guest)
            }
            ErrorKind::PermissionDenied => bail!("{} needs root: expected one from 1024 on", typed(port)),
            ErrorKind::AddrNotAvailable => bail!("{}: this computer has no such address", typed(port)),
            _ => bail!("{}: {error}", typed(port)),
        }
    }
    Ok(())
}

fn forward(port: &Port) -> Forward {
    Forward { address: port.address, host: port.host, guest: port.guest, udp: port.protocol == Protocol::Udp }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bundle of one application with these ports.
    fn bundle(ports: &str) -> BundleManifest {
        let directory = tempfile::tempdir().expect("a directory");
        let manifest = directory.path().join("app.toml");
        let text = format!("name = \"memcached\"\nprogram = \"p\"\nports = {ports}\n");
        std::fs::write(&manifest, text).expect("written");
        nom_image::manifest::load(&manifest).expect("it is good")
    }

    fn said(published: &[&str], ports: &str, taken: u16) -> (Vec<String>, Vec<String>) {
        let published: Vec<Port> = published.iter().map(|port| port.parse().expect("a port")).collect();
        let all = forwards(&published, Some(&bundle(ports)), |port| port.host == taken);
        (all.forwards.iter().map(Forward::to_string).collect(), all.notes)
    }

    #[test]
    fn a_manifests_port_is_forwarded_and_said() {
        let (forwards, notes) = said(&["8080:80"], "[\"127.0.0.1:11211:11211\"]", 1);
        assert_eq!(forwards, ["8080:80", "127.0.0.1:11211:11211"]);
        assert_eq!(notes, ["port 11211 of 127.0.0.1 leads to memcached's port 11211"]);
    }

    #[test]
    fn what_is_published_overrides_the_same_port_of_the_machine() {
        let ports = "[\"11211:11211\", \"11211:11211/udp\"]";
        let (forwards, notes) = said(&["9000:11211"], ports, 1);
        assert_eq!(forwards, ["9000:11211", "11211:11211/udp"]);
        assert_eq!(notes, ["UDP port 11211 of this computer leads to memcached's port 11211"]);
    }

    #[test]
    fn a_port_that_is_taken_is_left_out_with_a_word_on_what_to_do() {
        let note = "port 11211 of this computer is taken, so it does not lead to memcached's port 11211: `-p \
                    HOST:11211` chooses another";
        assert_eq!(said(&[], "[\"11211:11211\"]", 11211), (Vec::new(), vec![note.to_owned()]));
        let (forwards, notes) = said(&["11211:80"], "[\"11211:11211\"]", 1);
        assert_eq!((forwards, notes), (vec!["11211:80".to_owned()], vec![note.to_owned()]));
    }

    /// What is said of ports that are published.
    fn refusal(ports: &[&str]) -> String {
        let published: Vec<Port> = ports.iter().map(|port| port.parse().expect("a port")).collect();
        check(&published, |_| Some("nginx (process 7)".to_owned())).expect_err("refused").to_string()
    }

    #[test]
    fn a_published_port_that_cannot_be_had_is_refused_by_name() {
        let tcp = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let udp = UdpSocket::bind(("127.0.0.1", 0)).expect("a port");
        let tcp_port = tcp.local_addr().expect("bound").port();
        let udp_port = udp.local_addr().expect("bound").port();
        assert_eq!(
            refusal(&[&format!("127.0.0.1:{tcp_port}:80")]),
            format!(
                "port 127.0.0.1:{tcp_port} is taken by nginx (process 7): expected a free one, `-p HOST:80`"
            )
        );
        let anywhere = refusal(&[&format!("{udp_port}:53/udp")]);
        assert!(anywhere.starts_with(&format!("UDP port {udp_port} is taken by nginx")), "{anywhere}");
        assert!(
            refusal(&["192.0.2.1:8080:80"]).contains("192.0.2.1:8080: this computer has no such address")
        );
        drop(tcp);
        let free = format!("127.0.0.1:{tcp_port}:80");
        assert!(refusal(&[&free, &format!("127.0.0.1:{tcp_port}:81")]).contains("published twice"));
        check(&[free.parse().expect("a port")], |_| None).expect("it is free again");
    }

    #[test]
    fn a_port_with_a_listener_is_taken() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let host = listener.local_addr().expect("it is bound").port();
        let port = Forward { address: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)), host, guest: 1, udp: false };
        assert!(is_taken(&port));
        drop(listener);
        assert!(!is_taken(&port));
    }
}
