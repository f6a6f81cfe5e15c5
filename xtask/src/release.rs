//! `nom test release`: a release in a clean Debian 12 that has neither a compiler nor, once it is made, a
//! network.

use crate::counts::Counts;
use crate::fresh;
use anyhow::{Context, Result, ensure};
use nom_build::Project;
use nom_package::{Made, Options, Programs};
use std::path::Path;
use std::process::{Command, Stdio};

/// Debian's name of its release.
const DEBIAN: &str = "bookworm";
/// Where both files lie in it.
const FILES: &str = "srv";

/// What is run there, one after the other, in a shell; each counts as a test.
const COMMANDS: [&str; 8] = [
    "! command -v cargo && ! command -v rustc && ! command -v cc && ! command -v ld",
    "dpkg --install /srv/*.deb && dpkg --audit && test -z \"$(dpkg --audit)\"",
    "nom run hello",
    "nom doctor && test -s /usr/share/man/man1/nom-run.1 && test -s /usr/share/doc/nom/copyright",
    "(cd /usr/lib/nom && sha256sum --check --quiet SHA256SUMS)",
    "nom run -d --name shop -p 127.0.0.1:11299:11211 memcached && nom ps && \
     for attempt in $(seq 100); do sleep 0.2; exec 3<>/dev/tcp/127.0.0.1/11299 || continue; \
     printf 'version\\r\\nquit\\r\\n' >&3; read -r -t 5 said <&3 && break; done; \
     nom logs shop && nom stop shop && case $said in VERSION*) ;; *) exit 1 ;; esac",
    "nom build nhttpd -o /srv/site.img && test -s /srv/site.img",
    "mkdir /srv/unpacked && tar -C /srv/unpacked -xzf /srv/*.tar.gz && dpkg --remove nom && \
     /srv/unpacked/nom-*/bin/nom run hello",
];

/// Runs in the new root with a loopback interface and no other; then becomes a shell there.
const ENTER: &str = r#"
    ip link set lo up && mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" &&
    exec env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$0" bash -c "$1""#;

/// Makes the release and the system, and runs every command in it. The system is removed if all pass.
///
/// # Errors
/// If either cannot be made.
pub fn run(project: &Project) -> Result<Counts> {
    let directory = project.target().join("release-test");
    if directory.exists() {
        std::fs::remove_dir_all(&directory)
            .with_context(|| format!("cannot remove {}", directory.display()))?;
    }
    let given = std::env::var("SOURCE_DATE_EPOCH").ok();
    let time = nom_package::time(project, given.as_deref())?;
    let options = Options { out: directory.join("files"), time, programs: Programs::Release };
    let made = nom_package::package(project, &options)?;
    let root = directory.join("root");
    make(&root)?;
    copy(&made, &root)?;
    let mut counts = Counts::default();
    for command in COMMANDS {
        println!("\n---- {command}");
        let passed = enter(&root, command).status().context("cannot run unshare")?.success();
        println!("---- {}", if passed { "passed" } else { "failed" });
        counts += Counts::one(passed);
    }
    match counts.failed {
        0 => std::fs::remove_dir_all(&directory).context("cannot remove the system")?,
        _ => println!("the system is left in {}", root.display()),
    }
    Ok(counts)
}

/// A clean system with what the package depends on, as apt would install it.
fn make(root: &Path) -> Result<()> {
    println!("making a Debian ({DEBIAN}) in {}: some minutes", root.display());
    let mut command = Command::new("mmdebstrap");
    command.args(["--quiet", "--variant=minbase", "--dpkgopt=force-unsafe-io"]);
    command.arg("--include=qemu-system-x86,iproute2,libgcc-s1");
    let settings = Command::new("apt-config").args(["dump", "Acquire"]).output()?;
    let settings = String::from_utf8_lossy(&settings.stdout);
    let settings = settings.lines().filter(|line| fresh::is_of_the_network(line));
    command.args(settings.map(|line| format!("--aptopt={line}")));
    let status = command.arg(DEBIAN).arg(root).args(fresh::sources()).stdin(Stdio::null()).status();
    let status = status.context("cannot run mmdebstrap")?;
    ensure!(status.success(), "mmdebstrap ended with {status}");
    Ok(())
}

fn copy(made: &Made, root: &Path) -> Result<()> {
    for file in [&made.archive, &made.debian] {
        let name = file.file_name().context("a file has a name")?;
        std::fs::copy(file, root.join(FILES).join(name))
            .with_context(|| format!("cannot copy {}", file.display()))?;
    }
    Ok(())
}

/// A command in the system, with no network; whatever it starts and mounts ends with it.
fn enter(root: &Path, command: &str) -> Command {
    let mut enter = Command::new("unshare");
    enter.args(["--mount", "--propagation", "private", "--net", "--pid", "--fork", "--kill-child"]);
    enter.args(["sh", "-c", ENTER]).arg(root).arg(command).stdin(Stdio::null());
    enter
}
