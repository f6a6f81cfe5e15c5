//! `nom doctor`: what this computer can do, and what to do about the rest.

use crate::arguments::Doctor;
use crate::store::Store;
use anyhow::Result;
use nom_build::toolchain::{MIRI_ADVICE, PIN};
use nom_build::{Project, Release, Toolchain};
use nom_vmm::accelerator::{self, find_program};
use nom_vmm::{Accelerator, meminfo, qemu};
use serde::Serialize;
use std::fs::File;
use std::process::Command;

/// First release of QEMU that nom is tested with.
const QEMU_MIN: (u32, u32) = (7, 2);
/// Bit of CAP_NET_ADMIN in a set of capabilities (linux/capability.h).
const NET_ADMIN: u32 = 12;

/// How one thing stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    /// As it should be.
    Ok,
    /// nom works, but something is slower or absent.
    Warn,
    /// nom does not work.
    Fail,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    status: Status,
    /// What was found, and why it matters.
    finding: String,
    /// What to do, unless all is well.
    advice: Option<String>,
}

impl Check {
    fn ok(name: &'static str, finding: impl Into<String>) -> Check {
        Check { name, status: Status::Ok, finding: finding.into(), advice: None }
    }

    fn warn(name: &'static str, finding: impl Into<String>, advice: &str) -> Check {
        Check { name, status: Status::Warn, finding: finding.into(), advice: Some(advice.to_owned()) }
    }

    fn fail(name: &'static str, finding: impl Into<String>, advice: &str) -> Check {
        Check { name, status: Status::Fail, finding: finding.into(), advice: Some(advice.to_owned()) }
    }
}

/// `nom doctor`; the status is 1 if something fails.
///
/// # Errors
/// If the results cannot be printed.
pub fn doctor(options: &Doctor) -> Result<u8> {
    let checks = examine();
    if options.json {
        println!("{}", serde_json::to_string_pretty(&checks)?);
    } else {
        checks.iter().for_each(|check| println!("{}", line(check)));
    }
    Ok(u8::from(checks.iter().any(|check| check.status == Status::Fail)))
}

fn examine() -> Vec<Check> {
    let meminfo = meminfo::read();
    let machine = vec![accelerator(), network(), huge_pages(&meminfo), memory(&meminfo), cores(), qemu()];
    let project = Project::find();
    let parts = match project.as_ref().map(Project::release) {
        Ok(Some(installed)) => vec![release(installed)],
        _ => vec![rust(), miri(), linker()],
    };
    machine.into_iter().chain(parts).chain([debugger(), orphans(), state()]).collect()
}

/// The programs of an installed release, which needs no compiler.
fn release(installed: &Release) -> Check {
    match installed.check() {
        Ok(files) => {
            Check::ok("release", format!("{files} files in {}, as packed", installed.root().display()))
        }
        Err(error) => Check::fail("release", format!("{error:#}"), "install it again"),
    }
}

fn line(check: &Check) -> String {
    let status = match check.status {
        Status::Ok => "ok  ",
        Status::Warn => "warn",
        Status::Fail => "FAIL",
    };
    let advice = check.advice.iter().map(|advice| format!("\n{:20}-> {advice}", ""));
    format!("{status}  {:13} {}{}", check.name, check.finding, advice.collect::<String>())
}

fn accelerator() -> Check {
    let cache = Store::open().map(|store| store.root().to_owned()).unwrap_or_else(|_| std::env::temp_dir());
    let choice = accelerator::choose(&cache);
    let finding = format!("{} ({})", choice.accelerator, choice.reason);
    match choice.accelerator {
        Accelerator::Kvm => Check::ok("accelerator", finding),
        Accelerator::Tcg => Check::warn(
            "accelerator",
            format!("{finding}; guests run, some ten times slower"),
            choice.advice.unwrap_or("see the reason"),
        ),
    }
}

fn network() -> Check {
    let device = File::options().read(true).write(true).open("/dev/net/tun");
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let tap = match (device, may_administer_network(&status)) {
        (Ok(_), true) => "TAP is possible too".to_owned(),
        (Ok(_), false) => "no TAP: it needs root or CAP_NET_ADMIN".to_owned(),
        (Err(error), _) => format!("no TAP: /dev/net/tun: {error}"),
    };
    Check::ok("network", format!("user mode, ports by -p; {tap}"))
}

/// Whether a process with this /proc/PID/status has CAP_NET_ADMIN.
fn may_administer_network(status: &str) -> bool {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective
        .and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .is_some_and(|set| set >> NET_ADMIN & 1 == 1)
}

fn huge_pages(meminfo: &str) -> Check {
    let transparent =
        std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let transparent = selected(&transparent).unwrap_or("absent");
    let reserved = meminfo::value(meminfo, "HugePages_Total").unwrap_or(0);
    let finding = format!("transparent: {transparent}, reserved: {reserved}");
    if reserved == 0 && !["always", "madvise"].contains(&transparent) {
        let advice = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled";
        return Check::warn("huge pages", format!("{finding}; guests miss their caches more often"), advice);
    }
    Check::ok("huge pages", finding)
}

/// The word in brackets.
fn selected(choices: &str) -> Option<&str> {
    Some(choices.split_once('[')?.1.split_once(']')?.0)
}

fn memory(meminfo: &str) -> Check {
    let mib = |key| meminfo::value(meminfo, key).unwrap_or(0) / 1024;
    let (available, total) = (mib("MemAvailable"), mib("MemTotal"));
    let finding = format!("{available} MiB available of {total} MiB");
    if available < 1024 {
        return Check::warn("memory", finding, "builds take up to 1 GiB: end something else");
    }
    Check::ok("memory", finding)
}

fn cores() -> Check {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    match cores {
        1 => Check::warn("cores", "1", "guests with several cores share it: measure nothing here"),
        _ => Check::ok("cores", cores.to_string()),
    }
}

fn qemu() -> Check {
    let advice = "apt-get install qemu-system-x86";
    let Some(version) = first_line(Command::new(qemu::PROGRAM).arg("--version")) else {
        return Check::fail("qemu", format!("no {}", qemu::PROGRAM), advice);
    };
    let (major, minor) = QEMU_MIN;
    if number_after(&version, "version ").is_none_or(|found| found < QEMU_MIN) {
        return Check::warn("qemu", format!("{version}; tested from {major}.{minor} on"), advice);
    }
    Check::ok("qemu", version)
}

fn rust() -> Check {
    match Project::find().and_then(|project| Toolchain::find(project.root())) {
        Ok(found) => Check::ok("rust", format!("{} in {}", found.version, found.bin.display())),
        Err(error) => Check::fail("rust", format!("{error:#}"), &PIN.advice()),
    }
}

/// Miri, which checks memory in some of nom's own tests.
fn miri() -> Check {
    let mut probe = Command::new("rustup");
    match first_line(probe.args(["run", "nightly", "cargo", "miri", "--version"])) {
        Some(version) => Check::ok("miri", version),
        None => Check::warn("miri", "absent: `nom test` skips suite miri", MIRI_ADVICE),
    }
}

fn linker() -> Check {
    match first_line(Command::new("ld.lld").arg("--version")) {
        Some(version) => Check::ok("linker", version),
        None => Check::fail("linker", "no ld.lld: guests cannot be linked", "apt-get install lld"),
    }
}

fn debugger() -> Check {
    match first_line(Command::new("gdb").arg("--version")) {
        Some(version) => Check::ok("debugger", version),
        None => Check::warn("debugger", "no gdb for `nom run --gdb`", "apt-get install gdb"),
    }
}

fn orphans() -> Check {
    match find_program("setpriv") {
        Some(_) => Check::ok("setpriv", "machines end with the command that runs them"),
        None => {
            Check::fail("setpriv", "absent; it ties machines to their command", "apt-get install util-linux")
        }
    }
}

fn state() -> Check {
    let attempt = Store::open().and_then(|store| {
        std::fs::create_dir_all(store.root())?;
        let probe = store.root().join("writable");
        std::fs::write(&probe, "")?;
        std::fs::remove_file(&probe)?;
        Ok(store.root().display().to_string())
    });
    match attempt {
        Ok(path) => Check::ok("state", path),
        Err(error) => {
            Check::fail("state", format!("cannot write machines' logs: {error:#}"), "set XDG_STATE_HOME")
        }
    }
}

fn first_line(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    String::from_utf8_lossy(&output.stdout).lines().next().map(|line| line.trim().to_owned())
}

/// The two leading numbers of the version behind `label`.
fn number_after(text: &str, label: &str) -> Option<(u32, u32)> {
    let (_, version) = text.split_once(label)?;
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(|digits| digits.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_compared() {
        let qemu = "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)";
        assert_eq!(number_after(qemu, "version "), Some((7, 2)));
        assert_eq!(number_after("QEMU", "version "), None);
    }

    #[test]
    fn facts_are_found_in_the_kernels_files() {
        assert_eq!(selected("always [madvise] never"), Some("madvise"));
        assert!(may_administer_network("Name:\tnom\nCapEff:\t0000000000001000\n"));
        assert!(!may_administer_network("CapEff:\t0000000000000fff\n"));
    }

    #[test]
    fn advice_goes_under_the_finding() {
        let check = Check::warn("debugger", "no gdb", "apt-get install gdb");
        assert_eq!(line(&check), "warn  debugger      no gdb\n                    -> apt-get install gdb");
    }

    #[test]
    fn whatever_is_amiss_comes_with_advice() {
        for check in examine() {
            assert_eq!(check.status == Status::Ok, check.advice.is_none(), "{}", line(&check));
        }
    }
}
