//! Runs a guest in QEMU to its end and collects what it reported.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use wait_timeout::ChildExt;

/// The program that runs guests.
pub const QEMU: &str = "qemu-system-x86_64";
/// QEMU's exit status after an orderly end of the guest through `isa-debug-exit`.
const ORDERLY: i32 = 33;

/// What to start.
#[derive(Clone, Debug)]
pub struct Guest {
    /// A kernel that QEMU's `-kernel` takes.
    pub kernel: PathBuf,
    /// Its initramfs.
    pub initramfs: Option<PathBuf>,
    /// Its command line.
    pub arguments: String,
}

/// On what to start it.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// `kvm` or `tcg`.
    pub accelerator: &'a str,
    /// Makes the time-stamp counter count executed instructions; needs `tcg`.
    pub counts_instructions: bool,
    /// Memory of the machine, in KiB.
    pub memory_kib: u64,
    /// After which the guest is ended.
    pub timeout: Duration,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What the guest wrote to its debug console.
    pub control: Vec<u8>,
    /// What it wrote to its serial port.
    pub serial: Vec<u8>,
    /// Whether it ended by itself and in order.
    pub is_orderly: bool,
    /// From QEMU's start to its end.
    pub wall: Duration,
}

impl Outcome {
    /// Everything readable that the guest wrote: control lines, then serial output.
    pub fn text(&self) -> String {
        let serial = String::from_utf8_lossy(&self.serial).replace('\r', "");
        format!("{}\n{serial}", String::from_utf8_lossy(&self.control))
    }
}

/// Runs `guest` to its end.
///
/// # Errors
/// If QEMU cannot be started; a guest that fails is an outcome.
pub fn run(guest: &Guest, setting: &Setting) -> Result<Outcome> {
    let directory = tempfile::tempdir()?;
    let (control, serial) = (directory.path().join("control"), directory.path().join("serial"));
    let started = Instant::now();
    let mut qemu = Command::new(QEMU)
        .args(arguments(guest, setting, &control, &serial))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot run {QEMU}"))?;
    let status = qemu.wait_timeout(setting.timeout)?;
    if status.is_none() {
        qemu.kill()?;
        qemu.wait()?;
    }
    Ok(Outcome {
        wall: started.elapsed(),
        is_orderly: status.and_then(|status| status.code()) == Some(ORDERLY),
        control: std::fs::read(control).unwrap_or_default(),
        serial: std::fs::read(serial).unwrap_or_default(),
    })
}

fn arguments(guest: &Guest, setting: &Setting, control: &Path, serial: &Path) -> Vec<String> {
    let accelerator = setting.accelerator;
    let processor = if accelerator == "kvm" { "host" } else { "max" };
    let mut arguments: Vec<String> = [
        "-nodefaults",
        "-no-user-config",
        "-no-reboot",
        "-display",
        "none",
        "-machine",
        "q35",
        "-accel",
        accelerator,
        "-cpu",
        processor,
        // QEMU 7.2's ACPI tables are only complete where a second processor could be plugged.
        "-smp",
        "1,maxcpus=2",
        "-device",
        "isa-debug-exit,iobase=0xf4,iosize=4",
        "-device",
        "isa-debugcon,iobase=0xe9,chardev=control",
    ]
    .map(String::from)
    .into();
    let mut push = |option: &str, value: String| arguments.extend([option.to_owned(), value]);
    push("-m", format!("{}K", setting.memory_kib));
    push("-chardev", format!("file,id=control,path={}", control.display()));
    push("-serial", format!("file:{}", serial.display()));
    push("-kernel", guest.kernel.display().to_string());
    push("-append", guest.arguments.clone());
    if let Some(initramfs) = &guest.initramfs {
        push("-initrd", initramfs.display().to_string());
    }
    if setting.counts_instructions {
        push("-icount", "shift=0".into());
    }
    arguments
}
