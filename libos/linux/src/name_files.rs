//! What C libraries read of names and addresses (hosts(5), resolv.conf(5)): made when a machine begins, as in
//! a container, from what its network says. What the root has of these names is left as it is, unless it is
//! empty, as in many images, or leads nowhere.

use crate::facts::HOST;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};
use linux_raw_sys::general::{O_CREAT, O_EXCL, O_WRONLY};
use nom_fs::{Caller, Errno, LastLink, NodeId, Vfs};

const HOSTS: &[u8] = b"/etc/hosts";
const RESOLVER: &[u8] = b"/etc/resolv.conf";
/// The name of a machine that has no address leads there, as in Debian.
const NO_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 1, 1));
/// What a machine's network says of names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NetworkNames {
    /// Its address, if it has one yet.
    pub address: Option<IpAddr>,
    /// Whom to ask, the first one first.
    pub nameservers: Vec<IpAddr>,
}

impl NetworkNames {
    /// Names of this machine.
    fn hosts(&self) -> String {
        let own = self.address.unwrap_or(NO_ADDRESS);
        format!("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n{own}\t{HOST}\n")
    }

    /// Whom to ask for others; nothing if nobody is known.
    fn resolver(&self) -> Option<String> {
        let lines = self.nameservers.iter().map(|server| format!("nameserver {server}\n"));
        Some(lines.collect::<String>()).filter(|text| !text.is_empty())
    }

    /// Writes the files.
    ///
    /// # Errors
    /// If a root has something else where their directory is to be, or there is no memory.
    pub fn write(&self, vfs: &mut Vfs, caller: &Caller<'_>) -> Result<(), Errno> {
        match vfs.make_directory(caller, caller.root, b"/etc", 0o755) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(error) => return Err(error),
        }
        put(vfs, caller, HOSTS, &self.hosts())?;
        self.resolver().map_or(Ok(()), |text| put(vfs, caller, RESOLVER, &text))
    }
}

/// Writes a file unless something of its name is there.
fn put(vfs: &mut Vfs, caller: &Caller<'_>, path: &[u8], text: &str) -> Result<(), Errno> {
    let flags = match vfs.resolve(caller, caller.root, path, LastLink::Follow) {
        // Nothing is written to files that the host lends.
        Ok(node @ NodeId::Stored(_)) if vfs.size(node) == Ok(0) => O_WRONLY,
        Ok(_) => return Ok(()),
        Err(_) => {
            // A link to nothing.
            let _ = vfs.unlink(caller, caller.root, path);
            O_WRONLY | O_CREAT | O_EXCL
        }
    };
    let node = vfs.open(caller, caller.root, path, flags, 0o644)?;
    let written = vfs.write(node, 0, text.as_bytes(), caller);
    vfs.release(node);
    written.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nom_fs::{Credentials, FileTime};

    fn names() -> NetworkNames {
        let nameservers = [[10, 0, 2, 3], [9, 9, 9, 9]].map(IpAddr::from).to_vec();
        NetworkNames { address: Some([10, 0, 2, 15].into()), nameservers }
    }

    /// What is read after `prepare` has made a root, and names were written.
    fn read(
        names: &NetworkNames,
        path: &[u8],
        prepare: impl FnOnce(&mut Vfs, &Caller<'_>),
    ) -> Option<String> {
        let mut vfs = Vfs::new(FileTime::default(), 1 << 20);
        let (credentials, root) = (Credentials::default(), vfs.root());
        let caller = Caller::first(&credentials, root, FileTime::default());
        prepare(&mut vfs, &caller);
        names.write(&mut vfs, &caller).expect("written");
        let node = vfs.resolve(&caller, root, path, LastLink::Follow).ok()?;
        let mut text = [0; 256];
        let count = vfs.read(node, 0, &mut text).expect("read");
        Some(String::from_utf8_lossy(&text[..count]).into_owned())
    }

    #[test]
    fn an_empty_root_gets_what_its_network_says() {
        let hosts = read(&names(), HOSTS, |_, _| {}).expect("there");
        assert!(
            hosts.ends_with("10.0.2.15\tnom\n") && hosts.starts_with("127.0.0.1\tlocalhost\n"),
            "{hosts}"
        );
        let resolver = read(&names(), RESOLVER, |_, _| {});
        assert_eq!(resolver.as_deref(), Some("nameserver 10.0.2.3\nnameserver 9.9.9.9\n"));
        let nothing = NetworkNames::default();
        assert_eq!(read(&nothing, RESOLVER, |_, _| {}), None, "nobody to ask");
        assert!(read(&nothing, HOSTS, |_, _| {}).is_some_and(|hosts| hosts.ends_with("127.0.1.1\tnom\n")));
    }

    #[test]
    fn what_a_root_has_is_left_unless_it_is_empty_or_leads_nowhere() {
        let make = |text: &'static str| {
            move |vfs: &mut Vfs, caller: &Caller<'_>| {
                vfs.make_directory(caller, caller.root, b"/etc", 0o755).expect("made");
                let file = vfs.open(caller, caller.root, RESOLVER, O_CREAT | O_WRONLY, 0o644).expect("made");
                vfs.write(file, 0, text.as_bytes(), caller).expect("written");
                vfs.release(file);
            }
        };
        assert_eq!(
            read(&names(), RESOLVER, make("nameserver 1.1.1.1\n")).as_deref(),
            Some("nameserver 1.1.1.1\n")
        );
        assert_eq!(read(&names(), RESOLVER, make("")), names().resolver());
        let linked = read(&names(), RESOLVER, |vfs, caller| {
            vfs.make_directory(caller, caller.root, b"/etc", 0o755).expect("made");
            vfs.make_link(caller, b"../run/nobody/resolv.conf", caller.root, RESOLVER).expect("made");
        });
        assert_eq!(linked, names().resolver());
    }
}
