//! Whether KVM really runs guests here.
//!
//! That `/dev/kvm` opens proves nothing: a nested or software KVM offers the device and then cannot run an
//! ordinary guest. So the processor must show `vmx` or `svm`, and a small guest must have run.

use crate::config::{Accelerator, MachineConfig};
use crate::machine::{Event, Vmm};
use crate::probe_image::{EXIT, ProbeImage};
use crate::qemu::{PROGRAM, Qemu};
use anyhow::{Context, Result};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, UNIX_EPOCH};

/// How long the small guest may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// The accelerator for this machine, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// What to use.
    pub accelerator: Accelerator,
    /// Why, in a few words.
    pub reason: String,
    /// What would make guests faster.
    pub advice: Option<&'static str>,
}

const OTHER_COMPUTER: &str =
    "use a computer, or a cloud instance, whose processor shows vmx or svm, with /dev/kvm";
const JOIN_GROUP: &str = "as root: usermod --append --groups kvm USER; then log in again";
/// Root is refused only by whoever holds its container.
const PASS_DEVICE: &str = "give this container the device, such as by docker run --device /dev/kvm";

impl std::fmt::Display for Choice {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "accelerator: {} ({})", self.accelerator, self.reason)
    }
}

/// Chooses the accelerator; what the probe found is kept in `cache` until the next boot of this machine or
/// the next QEMU.
pub fn choose(cache: &Path) -> Choice {
    let tcg = |(reason, advice)| Choice { accelerator: Accelerator::Tcg, reason, advice: Some(advice) };
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let device = File::options().read(true).write(true).open("/dev/kvm");
    if let Some(obstacle) = visible_obstacle(&cpuinfo, device, rustix::process::geteuid().is_root()) {
        return tcg(obstacle);
    }
    match probe_cached(cache) {
        Ok(()) => {
            Choice { accelerator: Accelerator::Kvm, reason: "a probe guest ran".to_owned(), advice: None }
        }
        Err(problem) => tcg((format!("KVM: {problem:#}"), OTHER_COMPUTER)),
    }
}

/// What rules KVM out before anything is run, and what to do about it.
fn visible_obstacle(
    cpuinfo: &str,
    device: std::io::Result<File>,
    is_root: bool,
) -> Option<(String, &'static str)> {
    use std::io::ErrorKind::{NotFound, PermissionDenied};
    match device {
        Err(error) if error.kind() == NotFound => return Some(("no /dev/kvm".to_owned(), OTHER_COMPUTER)),
        Err(error) if error.kind() == PermissionDenied => {
            let advice = if is_root { PASS_DEVICE } else { JOIN_GROUP };
            return Some(("no permission to read and write /dev/kvm".to_owned(), advice));
        }
        Err(error) => return Some((format!("/dev/kvm: {error}"), OTHER_COMPUTER)),
        Ok(_) => {}
    }
    let virtualises = |flag: &str| flag == "vmx" || flag == "svm";
    let mut flags = cpuinfo.lines().filter(|line| line.starts_with("flags")).flat_map(str::split_whitespace);
    (!flags.any(virtualises))
        .then(|| ("KVM: no vmx or svm in /proc/cpuinfo: nested or software KVM".to_owned(), OTHER_COMPUTER))
}

fn probe_cached(cache: &Path) -> Result<()> {
    let key = cache_key().unwrap_or_default();
    let file = cache.join("accelerator");
    let remembered = std::fs::read_to_string(&file).unwrap_or_default();
    if let Some(answer) = remembered.strip_prefix(&format!("{key}\n")).filter(|_| !key.is_empty()) {
        return if answer == "works" { Ok(()) } else { Err(anyhow::anyhow!(answer.to_owned())) };
    }
    let outcome = probe(Accelerator::Kvm);
    let answer = outcome.as_ref().map_or_else(|problem| format!("{problem:#}"), |()| "works".to_owned());
    // Without the cache the next call probes again, which is only slower.
    let _ = std::fs::create_dir_all(cache).and_then(|()| std::fs::write(&file, format!("{key}\n{answer}")));
    outcome
}

/// Changes with every boot and with every other QEMU.
fn cache_key() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let qemu = find_program(PROGRAM)?.metadata().ok()?;
    let modified = qemu.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(format!("{} {} {}", boot.trim(), qemu.len(), modified.as_nanos()))
}

/// A program of the search path.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.is_file())
}

/// Runs the smallest guest.
///
/// # Errors
/// If it does not come to its end, with what is known of the reason.
pub fn probe(accelerator: Accelerator) -> Result<()> {
    let directory = std::env::temp_dir().join(format!("nom-probe-{}", std::process::id()));
    std::fs::create_dir_all(&directory).context("no temporary directory")?;
    let outcome = probe_in(&directory, accelerator);
    // What is left of it does no harm.
    let _ = std::fs::remove_dir_all(&directory);
    outcome
}

fn probe_in(directory: &Path, accelerator: Accelerator) -> Result<()> {
    let image = directory.join("image");
    std::fs::write(&image, ProbeImage::new().output(EXIT, &[0x2a]).build())?;
    let mut machine = Qemu.start(&MachineConfig { accelerator, ..MachineConfig::new(image) }, directory)?;
    let deadline = Instant::now() + PROBE_TIMEOUT;
    while let Some(event) = machine.next_event(deadline.saturating_duration_since(Instant::now()))? {
        match event {
            Event::Ended(exit) if exit.code == Some(0x2a * 2 + 1) => return Ok(()),
            Event::Ended(exit) => anyhow::bail!("QEMU: {}", last_line(&exit.complaints)),
            Event::Serial(_) | Event::Control(_) => {}
        }
    }
    anyhow::bail!("a probe guest did not end within {} s", PROBE_TIMEOUT.as_secs())
}

fn last_line(text: &str) -> &str {
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("ended without a reason")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Error, ErrorKind};

    #[test]
    fn a_device_that_opens_is_no_proof() {
        let open = || File::open("/dev/null");
        let plain = "processor : 0\nflags : fpu sse2 hypervisor\n";
        let (reason, advice) = visible_obstacle(plain, open(), false).expect("ruled out");
        assert!(reason.contains("no vmx or svm") && advice.contains("vmx or svm"), "{reason}; {advice}");
        assert_eq!(visible_obstacle("flags : fpu vmx\n", open(), false), None);
        assert_eq!(visible_obstacle("flags\t\t: fpu svm\n", open(), false), None);
        let absent = Err(Error::from(ErrorKind::NotFound));
        let (reason, _) = visible_obstacle("flags : vmx\n", absent, false).expect("ruled out");
        assert_eq!(reason, "no /dev/kvm");
    }

    #[test]
    fn a_lack_of_permission_is_answered_by_how_to_get_it() {
        for (is_root, expected) in [(false, "usermod --append --groups kvm"), (true, "container")] {
            let denied = Err(Error::from(ErrorKind::PermissionDenied));
            let (reason, advice) = visible_obstacle("flags : vmx\n", denied, is_root).expect("ruled out");
            assert!(reason.starts_with("no permission") && advice.contains(expected), "{reason}; {advice}");
        }
    }

    #[test]
    fn the_probe_guest_runs_under_tcg() {
        probe(Accelerator::Tcg).expect("the translator runs it");
    }

    #[test]
    fn the_choice_says_why() {
        let cache = tempfile::tempdir().expect("a temporary directory");
        let choice = choose(cache.path());
        assert_eq!(choice, choose(cache.path()), "the cache gives the same answer");
        assert!(choice.to_string().starts_with("accelerator: ") && choice.reason.len() > 5, "{choice}");
    }
}
