//! Who has a port of this computer, as far as this user may know.

use crate::store::{Machine, Store};
use nom_vmm::Forward;
use procfs::net::{self, TcpState};
use procfs::process::{FDTarget, Process, all_processes};
use std::net::{IpAddr, SocketAddr};

/// In words: a machine of nom, or a process.
pub fn holder(store: &Store, port: &Forward) -> Option<String> {
    let sockets = sockets(port);
    let process = all_processes().ok()?.flatten().find(|process| has_one(process, &sockets))?;
    let is_its = |machine: &Machine| i64::from(machine.record.process.id) == i64::from(process.pid);
    Some(match store.list().ok().and_then(|machines| machines.into_iter().find(is_its)) {
        Some(Machine { record, .. }) => format!("the machine `{}` (`nom stop {}`)", record.name, record.name),
        None => format!("{} (process {})", process.stat().ok()?.comm, process.pid),
    })
}

/// Inodes of the sockets that are in the way of `port`. A table that cannot be read has none.
fn sockets(port: &Forward) -> Vec<u64> {
    let is_in_the_way = |at: SocketAddr| at.port() == port.host && clash(at.ip(), port.address);
    if port.udp {
        let all = [net::udp(), net::udp6()].into_iter().flatten().flatten();
        return all.filter(|socket| is_in_the_way(socket.local_address)).map(|socket| socket.inode).collect();
    }
    let all = [net::tcp(), net::tcp6()].into_iter().flatten().flatten();
    let listening = all.filter(|socket| socket.state == TcpState::Listen);
    listening.filter(|socket| is_in_the_way(socket.local_address)).map(|socket| socket.inode).collect()
}

/// Whether two sockets of one port exclude each other; no address stands for all.
fn clash(one: IpAddr, other: Option<IpAddr>) -> bool {
    one.is_unspecified() || other.is_none_or(|other| other.is_unspecified() || other == one.to_canonical())
}

fn has_one(process: &Process, sockets: &[u64]) -> bool {
    let Ok(files) = process.fd() else { return false };
    files.flatten().any(|file| matches!(file.target, FDTarget::Socket(inode) if sockets.contains(&inode)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};

    #[test]
    fn the_holder_of_a_port_is_found() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::at(directory.path());
        let ours = format!("(process {})", std::process::id());
        let tcp = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let udp = UdpSocket::bind(("0.0.0.0", 0)).expect("a port");
        let ports = [
            (tcp.local_addr().expect("bound").port(), false, None),
            (tcp.local_addr().expect("bound").port(), false, Some(IpAddr::from([127, 0, 0, 1]))),
            (udp.local_addr().expect("bound").port(), true, Some(IpAddr::from([127, 0, 0, 1]))),
        ];
        for (host, udp, address) in ports {
            let found =
                holder(&store, &Forward { address, host, guest: 1, udp }).expect("it is this process");
            assert!(found.ends_with(&ours), "{found}");
        }
        let elsewhere = Some(IpAddr::from([127, 0, 0, 9]));
        let other = Forward { address: elsewhere, host: ports[0].0, guest: 1, udp: false };
        assert_eq!(holder(&store, &other), None, "another address is no clash");
    }
}
