//! `nom test fresh`: what a stranger does first, on a computer that has nothing.
//!
//! A clean Debian 12 is made by mmdebstrap, the checkout is copied into a directory of it whose name has a
//! space, and there, in namespaces of its own, the commands of the README are run from another directory. The
//! network is this computer's, with its mirror, its settings of apt, and the authorities that it trusts.

use crate::counts::Counts;
use crate::suites::Verdict;
use anyhow::{Context, Result, ensure};
use nom_build::Project;
use nom_build::debian::Tool;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What makes the system and runs something in it.
pub const TOOLS: [Tool; 2] =
    [Tool::new("mmdebstrap", &["mmdebstrap"]), Tool::new("util-linux", &["unshare", "--version"])];

/// Debian's name of the release.
const RELEASE: &str = "bookworm";
/// Where the checkout lies in it.
const CHECKOUT: &str = "/srv/a checkout";

/// What is run there, one after the other, in a shell; `nom` is the checkout's, by a link on the search path.
const COMMANDS: [&str; 6] = [
    "nom run hello",
    "nom demo --seconds 2 --functions penalty",
    "test -f demo/report.html && test ! -e '/srv/a checkout/demo'",
    "nom build hello -o relative.img && test -f relative.img && nom run relative.img",
    "nom test tidy",
    // Somebody else, who may not write to the checkout.
    "mkdir -m 777 /srv/hers && cd /srv/hers && setpriv --reuid 65534 --regid 65534 --clear-groups \
     env HOME=/srv/hers nom run hello && test -d .cache/nom",
];

/// Runs in the new root, which is a mount point as a computer's is (`ip netns` wants that): mounts what a
/// computer has, then becomes a shell there with an environment of its own.
const ENTER: &str = r#"
    mount --bind "$0" "$0" &&
    mount -t proc proc "$0/proc" && mount --rbind /sys "$0/sys" && mount --rbind /dev "$0/dev" &&
    mount -t tmpfs tmpfs "$0/run" &&
    exec env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        chroot "$0" sh -c "mkdir -p /srv/work && cd /srv/work && $1""#;

/// Makes the system and runs every command in it; each counts as a test. It is removed if all pass.
///
/// # Errors
/// If the system cannot be made.
pub fn run(project: &Project) -> Result<Verdict> {
    if !std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0) {
        return Ok(Verdict::Skipped("a system in a directory can only be made by root".to_owned()));
    }
    let root = project.target().join("fresh");
    remove(&root)?;
    make(&root).context("no fresh system")?;
    copy_checkout(project, &root).context("the checkout cannot be copied")?;
    let mut counts = Counts::default();
    for command in COMMANDS {
        println!("\n---- {command}");
        let passed = enter(&root, command).status().context("cannot run unshare")?.success();
        println!("---- {command}: {}", if passed { "passed" } else { "failed" });
        counts += Counts::one(passed);
    }
    if counts.failed == 0 {
        remove(&root)?;
    } else {
        println!("the system is left in {}", root.display());
    }
    Ok(Verdict::Ran(counts))
}

fn remove(root: &Path) -> Result<()> {
    if root.exists() {
        std::fs::remove_dir_all(root).with_context(|| format!("cannot remove {}", root.display()))?;
    }
    Ok(())
}

/// A clean system, with as little of this one as it needs to reach the network.
fn make(root: &Path) -> Result<()> {
    println!("making a Debian ({RELEASE}) in {}: about a minute", root.display());
    let mut command = Command::new("mmdebstrap");
    // Nobody minds if this system is lost with the power.
    command.args(["--quiet", "--variant=apt", "--dpkgopt=force-unsafe-io"]);
    let settings = Command::new("apt-config").args(["dump", "Acquire"]).output()?;
    for setting in String::from_utf8_lossy(&settings.stdout).lines().filter(|line| is_of_the_network(line)) {
        command.arg(format!("--aptopt={setting}"));
    }
    command.arg(RELEASE).arg(root).args(sources());
    let status = command.stdin(Stdio::null()).status().context("cannot run mmdebstrap")?;
    ensure!(status.success(), "mmdebstrap ended with {status}");
    std::fs::copy("/etc/resolv.conf", root.join("etc/resolv.conf")).context("/etc/resolv.conf")?;
    let authorities = "usr/local/share/ca-certificates";
    std::fs::create_dir_all(root.join(authorities))?;
    for entry in std::fs::read_dir(Path::new("/").join(authorities)).into_iter().flatten().flatten() {
        std::fs::copy(entry.path(), root.join(authorities).join(entry.file_name()))?;
    }
    let link = root.join("usr/local/bin/nom");
    std::os::unix::fs::symlink(Path::new(CHECKOUT).join("nom"), link).context("a link on the search path")
}

/// Whether a line of `apt-config dump` says how packages are reached, and what is believed of them.
pub fn is_of_the_network(line: &str) -> bool {
    ["Acquire::http", "Acquire::Check-", "Acquire::Retries"].iter().any(|start| line.starts_with(start))
        && !line.ends_with(" \"\";")
}

/// This computer's file of Debian's archives, if it is a Debian of that release; elsewhere mmdebstrap knows
/// one.
pub fn sources() -> Option<PathBuf> {
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let files = ["/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"].map(PathBuf::from);
    files.into_iter().find(|file| release.contains(RELEASE) && file.is_file())
}

/// Copies the checkout without what was built in it.
fn copy_checkout(project: &Project, root: &Path) -> Result<()> {
    let checkout = root.join(CHECKOUT.trim_start_matches('/'));
    std::fs::create_dir_all(&checkout)?;
    let mut pack = Command::new("tar");
    pack.arg("-C").arg(project.root()).args(["--exclude=./target", "--exclude=./.git", "--exclude=./.nom"]);
    let mut pack = pack.args(["-cf", "-", "."]).stdout(Stdio::piped()).spawn().context("cannot run tar")?;
    let archive = pack.stdout.take().context("tar has an output")?;
    let mut unpack = Command::new("tar");
    unpack.arg("-C").arg(&checkout).args(["--no-same-owner", "-xf", "-"]).stdin(Stdio::from(archive));
    let unpacked = unpack.status().context("cannot run tar")?;
    ensure!(pack.wait()?.success() && unpacked.success(), "tar failed");
    Ok(())
}

/// A command in the system; whatever it starts and mounts ends with it.
fn enter(root: &Path, command: &str) -> Command {
    let mut enter = Command::new("unshare");
    enter.args(["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "sh", "-c", ENTER]);
    enter.arg(root).arg(command).stdin(Stdio::null());
    enter
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_the_network_are_told_from_others() {
        assert!(is_of_the_network("Acquire::http::Proxy \"http://[::1]:1/\";"));
        assert!(is_of_the_network("Acquire::Check-Date \"false\";"));
        assert!(!is_of_the_network("Acquire::http \"\";"));
        assert!(!is_of_the_network("Acquire::Languages:: \"none\";"));
    }
}
