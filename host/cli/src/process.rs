//! `nom run --host`: the application as a process of this computer, without a machine.

use crate::arguments::Run;
use crate::attend::{self, SIGNAL_POLL};
use crate::farewell::{Cause, Farewell, Step};
use crate::mounts::given_files;
use crate::network;
use anyhow::{Context, Result};
use nom_build::Project;
use nom_image::manifest::BundleManifest;
use nom_vmm::qemu::{BOUND_TO_THIS, signal};
use nom_vmm::{Namespace, namespace};
use rustix::process::Signal;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::time::Instant;

/// Runs an application; returns the command's exit status.
///
/// # Errors
/// If it cannot be built or started, or there is no network for it.
pub fn run(options: &Run) -> Result<u8> {
    let project = Project::find()?;
    let manifest = project.manifest_path(options.label())?;
    let arguments = (!options.arguments.is_empty()).then_some(options.arguments.as_slice());
    let bundle = given_files(options.contract.bundle(&manifest, arguments)?, &options.files)?;
    // A signal must not leave a namespace behind.
    let signals = attend::watch_signals()?;
    // Before anything is built: it asks for root. Until the end of this function, when it is removed.
    let made = private_network(options, &bundle)?;
    let process = project.process(bundle)?;
    let mut command = bound_command(options.netns.as_deref().or(made.as_ref().map(Namespace::name)));
    command.arg(&process.program);
    if made.is_some() {
        command.env("ip", format!("{}/{},{}", namespace::GUEST, namespace::PREFIX, namespace::HOST));
        if options.xdp {
            command.env("xdp", namespace::PEER);
        }
    }
    command.env("cores", options.cpus.to_string());
    if let Some(cause) = attend::take_signal(&signals) {
        return Ok(cause.status());
    }
    let child = process.furnish(&mut command).spawn();
    let child = child.with_context(|| format!("cannot start {}", process.program.display()))?;
    attend(child, &process.application.name, || attend::take_signal(&signals))
}

/// What starts a program in a namespace, if any, such that not even SIGKILL of this process leaves it behind,
/// and no signal of the terminal reaches it but through this process.
fn bound_command(namespace: Option<&str>) -> Command {
    let mut command = match namespace {
        Some(name) => namespace::command_in(name, BOUND_TO_THIS[0]),
        None => Command::new(BOUND_TO_THIS[0]),
    };
    command.args(&BOUND_TO_THIS[1..]).process_group(0);
    command
}

/// A network of the process's own, if it needs one and is not put into another; says how to get there.
fn private_network(options: &Run, bundle: &BundleManifest) -> Result<Option<Namespace>> {
    let served = bundle.applications.iter().find(|application| network::wants_network(application));
    let Some(application) = served.filter(|_| options.netns.is_none()) else { return Ok(None) };
    let create = if options.xdp { Namespace::with_pair } else { Namespace::create };
    let made = create(&application.name, options.cpus).context("--host")?;
    eprintln!("network: {} from `ip netns exec {} COMMAND`", namespace::GUEST, made.name());
    Ok(Some(made))
}

/// Waits until the process ends by itself or because it was `asked` to, by signals that it is passed; returns
/// the exit status.
fn attend(mut child: Child, name: &str, asked: impl Fn() -> Option<Cause>) -> Result<u8> {
    let mut farewell = Farewell::default();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(conclude(status, &farewell));
        }
        match farewell.step(asked(), Instant::now()) {
            Step::Wait => {}
            Step::Ask(cause) => signal(child.id(), passed_on(cause))?,
            Step::Remind => eprintln!("nom: {name} is still ending; Ctrl-C ends it at once"),
            Step::Kill => child.kill()?,
        }
        std::thread::sleep(SIGNAL_POLL);
    }
}

/// The signal that the process gets.
fn passed_on(cause: Cause) -> Signal {
    match cause {
        Cause::INTERRUPT => Signal::INT,
        _ => Signal::TERM,
    }
}

/// The process's own status, or a shell's for one that a signal ended.
fn conclude(status: ExitStatus, farewell: &Farewell) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(number)) if !farewell.was_asked() => 128 + number as u8,
        _ => farewell.status(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A shell that SIGINT ends, though this test may run where it is ignored: in a script's background.
    fn sh(script: &str) -> Child {
        let mut command = Command::new("env");
        command.args(["--default-signal=INT", "sh", "-c", script]).process_group(0);
        command.spawn().expect("a shell")
    }

    /// The status of a script that is asked to end as soon as it has said that it runs.
    fn asked(script: &str, causes: &[Cause]) -> u8 {
        let marker = tempfile::tempdir().expect("a directory");
        let file = marker.path().join("runs");
        let child = sh(&script.replace("READY", &format!("touch {}", file.display())));
        let next = Cell::new(0);
        let asked = || {
            let cause = file.exists().then(|| causes.get(next.get()).copied())??;
            next.set(next.get() + 1);
            Some(cause)
        };
        attend(child, "sh", asked).expect("it ends")
    }

    #[test]
    fn the_status_is_the_process_own_or_a_shells() {
        assert_eq!(attend(sh("exit 7"), "sh", || None).expect("it ends"), 7);
        assert_eq!(attend(sh("kill -SEGV $$"), "sh", || None).expect("it ends"), 139);
    }

    #[test]
    fn a_signal_is_passed_on_and_the_process_has_the_last_word() {
        let loops = "READY; while :; do sleep 0.01; done";
        assert_eq!(asked(loops, &[Cause::INTERRUPT]), 130);
        assert_eq!(asked(loops, &[Cause::Signal(15)]), 143);
        assert_eq!(asked(&format!("trap 'exit 5' INT; {loops}"), &[Cause::INTERRUPT]), 5);
        assert_eq!(asked(&format!("trap 'exit 6' TERM; {loops}"), &[Cause::Signal(1)]), 6);
    }

    #[test]
    fn the_second_signal_kills() {
        let deaf = "trap '' INT; READY; while :; do sleep 0.01; done";
        assert_eq!(asked(deaf, &[Cause::INTERRUPT, Cause::INTERRUPT]), 130);
    }
}
