//! Programs that nom uses and does not build, and the packages of Debian (and Ubuntu) that they come in.
//!
//! Whoever needs some calls [`set_up`], which installs what is missing where it may, and elsewhere names the
//! command that does.

use anyhow::{Context, Result, bail, ensure};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

/// A program, or what else a package brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tool {
    /// Its package.
    pub package: &'static str,
    /// How one sees that it is there: a program's name, or a command that succeeds.
    pub probe: &'static [&'static str],
}

impl Tool {
    /// What `package` brings, which is there if `probe`, a program or a command, can be found or succeeds.
    pub const fn new(package: &'static str, probe: &'static [&'static str]) -> Tool {
        Tool { package, probe }
    }

    /// Whether it is there.
    pub fn is_there(&self) -> bool {
        match self.probe {
            [program] => {
                let path = std::env::var_os("PATH").unwrap_or_default();
                std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
            }
            [program, arguments @ ..] => {
                let mut command = Command::new(program);
                command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                command.status().is_ok_and(|status| status.success())
            }
            [] => true,
        }
    }
}

/// Clients that others wrote, which load servers, and what networks of machines are made with.
pub const CLIENTS: [Tool; 4] = [
    Tool::new("libmemcached-tools", &["memcaslap"]),
    Tool::new("wrk", &["wrk"]),
    Tool::new("netpipe-tcp", &["NPtcp"]),
    Tool::new("iproute2", &["ip"]),
];

/// Programs of Linux that run unchanged in a machine (docs/linux.md), and their own clients.
pub const PROGRAMS: [Tool; 21] = [
    Tool::new("memcached", &["memcached"]),
    Tool::new("redis-server", &["redis-server"]),
    Tool::new("redis-tools", &["redis-benchmark"]),
    Tool::new("nginx", &["/usr/sbin/nginx", "-v"]),
    Tool::new("lighttpd", &["/usr/sbin/lighttpd", "-v"]),
    Tool::new("haproxy", &["/usr/sbin/haproxy", "-v"]),
    Tool::new("apache2-bin", &["/usr/sbin/apache2", "-v"]),
    Tool::new("openssh-server", &["/usr/sbin/sshd", "-V"]),
    Tool::new("openssh-client", &["ssh"]),
    Tool::new("bind9", &["/usr/sbin/named", "-v"]),
    Tool::new("bind9-dnsutils", &["dig", "-v"]),
    Tool::new("nsd", &["/usr/sbin/nsd", "-v"]),
    Tool::new("sqlite3", &["sqlite3"]),
    Tool::new("docker-registry", &["docker-registry"]),
    Tool::new("python3", &["/usr/bin/python3", "-c", "import asyncio, http.server"]),
    Tool::new("busybox-static", &["/bin/busybox", "true"]),
    Tool::new("nodejs", &["node"]),
    Tool::new("openjdk-17-jdk-headless", &["javac"]),
    Tool::new("postgresql", &["pgbench"]),
    Tool::new("mariadb-server-core", &["/usr/sbin/mariadbd", "--version"]),
    Tool::new("mariadb-client", &["mariadb-slap", "--version"]),
];

/// What lends and advertises addresses in tests, and asks for neighbours.
pub const PEERS: [Tool; 4] = [
    Tool::new("iproute2", &["ip"]),
    Tool::new("dnsmasq-base", &["/usr/sbin/dnsmasq", "--version"]),
    Tool::new("radvd", &["/usr/sbin/radvd", "--version"]),
    Tool::new("ndisc6", &["ndisc6"]),
];

/// Installs those of `tools` that are missing, as root; says before what it does, and for how long.
///
/// # Errors
/// Names the commands that install them, if this is not root or they fail.
pub fn set_up(tools: &[Tool]) -> Result<()> {
    let packages = missing(tools, Tool::is_there);
    if packages.is_empty() {
        return Ok(());
    }
    if !may_install() {
        bail!("programs are missing: {}", advice(&packages));
    }
    eprintln!("nom: installing {}: about a minute", packages.join(" "));
    refresh()?;
    apt_get(&[&["install", "-y", "--no-install-recommends"][..], &packages].concat())
        .with_context(|| format!("programs are missing: {}", advice(&packages)))?;
    let still = missing(tools, Tool::is_there);
    ensure!(still.is_empty(), "apt-get installed {}, but nothing of it is found", still.join(" "));
    Ok(())
}

/// What a person without the rights, or without apt, is told.
fn advice(packages: &[&str]) -> String {
    let install = format!("apt-get install -y --no-install-recommends {}", packages.join(" "));
    format!("this must be done once, as root:\n    apt-get update\n    {install}")
}

/// Whether this process may install packages.
pub fn may_install() -> bool {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    is_root && Tool::new("apt", &["apt-get"]).is_there()
}

/// Has apt read the lists of packages, as a fresh computer has none and old ones name what is gone.
///
/// # Errors
/// If apt fails.
pub fn refresh() -> Result<()> {
    apt_get(&["update"])
}

/// Packages of the tools that are not `there`, each once.
fn missing(tools: &[Tool], there: impl Fn(&Tool) -> bool) -> Vec<&'static str> {
    let mut packages = Vec::new();
    for tool in tools.iter().filter(|tool| !there(tool)) {
        if !packages.contains(&tool.package) {
            packages.push(tool.package);
        }
    }
    packages
}

/// Runs apt-get; its output is of no interest unless it fails.
fn apt_get(arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("apt-get");
    command.arg("-qq").args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
    let output = command.output().context("cannot run apt-get")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "apt-get {} failed: {}", arguments.join(" "), complaint.trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_programs_are_named_by_their_packages_each_once() {
        assert_eq!(
            missing(&CLIENTS, |tool| tool.package == "wrk"),
            ["libmemcached-tools", "netpipe-tcp", "iproute2"]
        );
        let twice = [CLIENTS[1], Tool::new("wrk", &["wrk", "--version"])];
        assert_eq!(missing(&twice, |_| false), ["wrk"]);
        assert!(missing(&twice, |_| true).is_empty());
    }

    #[test]
    fn whoever_may_install_nothing_is_told_the_exact_commands() {
        let said = advice(&["wrk", "netpipe-tcp"]);
        let install = "\n    apt-get install -y --no-install-recommends wrk netpipe-tcp";
        assert!(said.contains("as root:\n    apt-get update") && said.ends_with(install), "{said}");
    }

    #[test]
    fn tools_are_found_by_name_and_by_what_they_do() {
        assert!(
            Tool::new("dash", &["sh"]).is_there() && Tool::new("coreutils", &["sh", "-c", "true"]).is_there()
        );
        assert!(!Tool::new("x", &["no-such-program"]).is_there());
        assert!(!Tool::new("x", &["sh", "-c", "false"]).is_there());
        set_up(&[Tool::new("dash", &["sh"])]).expect("nothing is missing");
    }

    #[test]
    fn a_command_that_fails_is_named_with_its_reason() {
        if !Tool::new("apt", &["apt-get"]).is_there() {
            return println!("skipped: this is no Debian");
        }
        let error = apt_get(&["no-such-operation"]).expect_err("it fails").to_string();
        assert!(error.contains("apt-get no-such-operation failed: E: "), "{error}");
    }
}
