//! A Debian binary package (deb(5)): an `ar` archive of a version, the control files and the data.

use crate::VERSION;
use crate::archive::tar_gz;
use crate::tree::Tree;
use anyhow::Result;
use ar::{Builder, Header};

/// What the command runs, beside the libraries that it is linked with: QEMU; `setpriv`, which ties a machine
/// to its command; `ip`, for TAP devices.
const DEPENDS: &[&str] = &["qemu-system-x86", "util-linux", "iproute2"];
/// Where the tree goes.
const PREFIX: &str = "usr/";
/// Mode of the members: a plain file's.
const MODE: u32 = 0o100_644;

/// The package that installs the tree below `/usr`; `libraries` are the packages of the libraries that its
/// programs need.
///
/// # Errors
/// If a path is too long for the format.
pub fn package(tree: &Tree, libraries: &[String], time: u64) -> Result<Vec<u8>> {
    let mut control = Tree::default();
    control.add("control", control_file(tree, libraries));
    let members = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", tar_gz(&control, "", time)?),
        ("data.tar.gz", tar_gz(tree, PREFIX, time)?),
    ];
    let mut archive = Builder::new(Vec::new());
    for (name, contents) in members {
        let mut header = Header::new(name.as_bytes().to_vec(), contents.len() as u64);
        header.set_mtime(time);
        header.set_mode(MODE);
        archive.append(&header, contents.as_slice())?;
    }
    Ok(archive.into_inner()?)
}

/// Binary package control file (Debian policy, section 5.3).
fn control_file(tree: &Tree, libraries: &[String]) -> String {
    let needed: Vec<&str> = libraries.iter().map(String::as_str).chain(DEPENDS.iter().copied()).collect();
    let kibibytes = tree.bytes().div_ceil(1024);
    format!(
        "Package: nom\n\
         Version: {VERSION}\n\
         Architecture: amd64\n\
         Maintainer: The nom developers <nom@localhost>\n\
         Installed-Size: {kibibytes}\n\
         Depends: {}\n\
         Suggests: gdb\n\
         Section: admin\n\
         Priority: optional\n\
         Description: operating system for applications in the cloud\n \
         Boots each application on a kernel of its own in a virtual machine, with its own\n \
         network stack, in milliseconds. The programs of this package are ready-made: no\n \
         compiler is needed.\n",
        needed.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_package_tells_what_it_is_and_needs() {
        let mut tree = Tree::default();
        tree.add_program("bin/nom", "program");
        let bytes = package(&tree, &["libc6 (>= 2.34)".to_owned()], 7).expect("packed");
        assert_eq!(bytes, package(&tree, &["libc6 (>= 2.34)".to_owned()], 7).expect("packed"));
        let mut archive = ar::Archive::new(bytes.as_slice());
        let mut names = Vec::new();
        while let Some(entry) = archive.next_entry() {
            let header = entry.expect("a member").header().clone();
            assert_eq!((header.mtime(), header.uid()), (7, 0));
            names.push(String::from_utf8_lossy(header.identifier()).into_owned());
        }
        assert_eq!(names, ["debian-binary", "control.tar.gz", "data.tar.gz"]);

        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), bytes).expect("written");
        let Ok(output) = Command::new("dpkg-deb").arg("--info").arg(file.path()).output() else {
            return println!("skipped: dpkg-deb is not installed");
        };
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("Depends: libc6 (>= 2.34), qemu-system-x86, util-linux, iproute2\n"), "{said}");
        let listed = Command::new("dpkg-deb").arg("--contents").arg(file.path()).output().expect("it runs");
        let said = String::from_utf8_lossy(&listed.stdout);
        assert!(said.contains("-rwxr-xr-x root/root") && said.contains("usr/bin/nom"), "{said}");
    }
}
