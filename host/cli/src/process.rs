//! `nom run --host`: the application as a process of this computer, without a machine.

use crate::arguments::Run;
use crate::attend::{self, SIGNAL_POLL};
use crate::network;
use anyhow::{Context, Result};
use nom_build::Project;
use nom_image::manifest::Application;
use nom_vmm::{Namespace, namespace};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::Ordering;

/// Runs an application; returns the command's exit status.
///
/// # Errors
/// If it cannot be built or started, or there is no network for it.
pub fn run(options: &Run) -> Result<u8> {
    let project = Project::find()?;
    let manifest = project.manifest_path(&options.app)?;
    let arguments = (!options.arguments.is_empty()).then_some(options.arguments.as_slice());
    let process = project.process(&manifest, arguments)?;
    // Until the end of this function, when it is removed.
    let made = private_network(options, &process.application)?;
    let name = options.netns.as_deref().or(made.as_ref().map(Namespace::name));
    let mut command = match name {
        Some(name) => namespace::command_in(name, &process.program),
        None => Command::new(&process.program),
    };
    if made.is_some() {
        command.env("ip", format!("{}/{},{}", namespace::GUEST, namespace::PREFIX, namespace::HOST));
    }
    command.env("cores", options.cpus.to_string());
    let signal = attend::watch_signals()?;
    let child = process.furnish(&mut command).spawn();
    let child = child.with_context(|| format!("cannot start {}", process.program.display()))?;
    attend(child, || signal.load(Ordering::Relaxed))
}

/// A network of the process's own, if it needs one and is not put into another; says how to get there.
fn private_network(options: &Run, application: &Application) -> Result<Option<Namespace>> {
    if options.netns.is_some() || !network::wants_network(application) {
        return Ok(None);
    }
    let made = Namespace::create(&application.name, options.cpus).context("--host")?;
    eprintln!("network: {} from `ip netns exec {} COMMAND`", namespace::GUEST, made.name());
    Ok(Some(made))
}

/// Waits until the process ends by itself or because of a signal; returns the exit status.
fn attend(mut child: Child, signal: impl Fn() -> usize) -> Result<u8> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(conclude(status, signal()));
        }
        if signal() != 0 {
            // It has nothing to put in order.
            child.kill()?;
        }
        std::thread::sleep(SIGNAL_POLL);
    }
}

/// The process's own status, or a shell's for one that a signal ended.
fn conclude(status: ExitStatus, signal: usize) -> u8 {
    let killer = if signal == 0 { status.signal().unwrap_or_default() } else { signal as i32 };
    status.code().unwrap_or(128 + killer) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Child {
        Command::new("sh").args(["-c", script]).spawn().expect("a shell")
    }

    #[test]
    fn the_status_is_the_process_own_or_a_shells() {
        assert_eq!(attend(sh("exit 7"), || 0).expect("it ends"), 7);
        assert_eq!(attend(sh("kill -SEGV $$"), || 0).expect("it ends"), 139);
    }

    #[test]
    fn a_signal_ends_the_process() {
        assert_eq!(attend(sh("sleep 100"), || 2).expect("it ends"), 130);
    }
}
