//! What every virtual machine monitor offers, and what running machines report.

use crate::config::MachineConfig;
use crate::control::ControlLine;
use anyhow::Result;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// A program that runs virtual machines.
pub trait Vmm {
    /// Starts a machine that ends with this process at the latest. Its files go to `directory`, which
    /// exists and is its own.
    ///
    /// # Errors
    /// If the configuration is impossible or the monitor cannot be started; a monitor that starts and then
    /// finds fault with the configuration reports it as [`Ending::Failed`].
    fn start(&self, config: &MachineConfig, directory: &Path) -> Result<Box<dyn Machine>>;

    /// Starts a machine that runs on by itself, and returns its process id once it is set up.
    ///
    /// # Errors
    /// If the configuration is impossible or the monitor refuses it; the error has its reason.
    fn start_detached(&self, config: &MachineConfig, directory: &Path) -> Result<u32>;
}

/// A running machine; it is killed when dropped.
pub trait Machine: Send {
    /// The next thing that happens, or `None` if nothing does within `timeout`. After [`Event::Ended`]
    /// nothing happens any more, and it is returned again and again.
    ///
    /// # Errors
    /// If the monitor's end cannot be learned from the operating system.
    fn next_event(&mut self, timeout: Duration) -> Result<Option<Event>>;

    /// Process id of its monitor.
    fn process_id(&self) -> u32;

    /// Presses the machine's power button, until it ends or is killed: its applications are told, and
    /// [`Event::Ended`] follows if all of them obey. Returns at once.
    fn shut_down(&mut self);

    /// Has the monitor end, whatever its guest is at; [`Event::Ended`] follows.
    ///
    /// # Errors
    /// If the monitor cannot be reached.
    fn stop(&mut self) -> Result<()>;

    /// Ends the machine at once.
    fn kill(&mut self);

    /// Plugs a device into an empty slot.
    ///
    /// # Errors
    /// If the monitor refuses.
    fn plug(&mut self, device: &PluggedDevice) -> Result<()>;

    /// Asks the guest to let a plugged device go, and waits until it is gone.
    ///
    /// # Errors
    /// If there is no such device, or the guest holds on to it longer than `timeout`.
    fn unplug(&mut self, id: &str, timeout: Duration) -> Result<()>;
}

/// A device that comes while the machine runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluggedDevice {
    /// Kind of device, by QEMU's name.
    pub driver: String,
    /// Name, to unplug it by.
    pub id: String,
    /// Slot, counted from 0, of [`MachineConfig::hotplug_slots`].
    pub slot: u32,
    /// Further properties.
    pub properties: BTreeMap<String, String>,
}

/// Something that a running machine did.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// It wrote to its serial line.
    Serial(Vec<u8>),
    /// The kernel reported something.
    Control(ControlLine),
    /// Its monitor is gone; all it wrote has been delivered before.
    Ended(Exit),
}

/// How a monitor's process ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exit {
    /// Exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Whether it was asked to end, by [`Machine::shut_down`], [`Machine::stop`] or [`Machine::kill`].
    pub requested: bool,
    /// What it complained about.
    pub complaints: String,
}

/// How a machine ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// In order; the application's exit status.
    Halted(u8),
    /// The kernel panicked; the report is on the serial line.
    Panicked,
    /// It was asked to end, and its applications have no say in that or were not waited for.
    Stopped,
    /// The same, by Ctrl-C in the terminal that it ran in.
    Interrupted,
    /// It was asked to end, did not in time, and was killed.
    Killed,
    /// The processor gave up (a triple fault).
    Reset,
    /// The monitor failed; its reason.
    Failed(String),
}

/// The status of a command whose machine did not get to an end of its own.
pub const STATUS_FAILED: u8 = 125;
/// The status of an application that the kernel ended because the machine was asked to end: as a shell shows
/// SIGTERM (`nom_kernel_pure::applications`).
pub const STATUS_SHUT_DOWN: u8 = 128 + 15;

/// QEMU's exit code when the kernel wrote 0x10 to the debug-exit port.
const CODE_HALTED: i32 = 0x10 * 2 + 1;
/// QEMU's exit code when the kernel wrote 0x11 to the debug-exit port.
const CODE_PANICKED: i32 = 0x11 * 2 + 1;

impl Ending {
    /// Judges by the monitor's exit and what the kernel reported.
    pub fn of(exit: &Exit, control: &[ControlLine]) -> Ending {
        match exit.code {
            Some(CODE_HALTED) => match Ending::reported(control) {
                Some(Ending::Halted(STATUS_SHUT_DOWN)) if exit.requested => Ending::Stopped,
                Some(ending) => ending,
                None => Ending::Failed("the machine ended without a `halt status=` line".to_owned()),
            },
            Some(CODE_PANICKED) => Ending::Panicked,
            _ if exit.requested => Ending::Stopped,
            Some(0) => Ending::Reset,
            Some(code) => Ending::Failed(format!("QEMU ended with {code}: {}", exit.complaints.trim())),
            None => Ending::Failed(format!("a signal killed QEMU: {}", exit.complaints.trim())),
        }
    }

    /// What the kernel itself reported of the end: how one knows when nobody watched the monitor's exit.
    pub fn reported(control: &[ControlLine]) -> Option<Ending> {
        if control.iter().any(|line| line.word == "panic") {
            return Some(Ending::Panicked);
        }
        let halt = control.iter().rfind(|line| line.word == "halt")?;
        Some(Ending::Halted(halt.number("status")? as u8))
    }

    /// Exit status of a command that ran the machine in the foreground.
    pub fn status(&self) -> u8 {
        match self {
            Ending::Halted(status) => *status,
            _ => STATUS_FAILED,
        }
    }
}

impl std::fmt::Display for Ending {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ending::Halted(status) => write!(out, "exited ({status})"),
            Ending::Panicked => out.write_str("kernel panic"),
            Ending::Stopped => out.write_str("stopped"),
            Ending::Interrupted => out.write_str("interrupted"),
            Ending::Killed => out.write_str("killed"),
            Ending::Reset => out.write_str("reset by a triple fault"),
            Ending::Failed(reason) => write!(out, "failed: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::parse_log;

    fn ending(code: Option<i32>, requested: bool, control: &str) -> Ending {
        Ending::of(&Exit { code, requested, complaints: "no memory".to_owned() }, &parse_log(control))
    }

    #[test]
    fn the_exit_and_the_report_together_say_how_it_ended() {
        assert_eq!(ending(Some(33), false, "halt status=7"), Ending::Halted(7));
        assert_eq!(
            ending(Some(33), true, "halt status=7"),
            Ending::Halted(7),
            "it ended by itself when it was asked"
        );
        assert_eq!(ending(Some(33), true, "halt status=143"), Ending::Stopped, "it was ended");
        assert_eq!(ending(Some(33), false, "halt status=143"), Ending::Halted(143));
        assert_eq!(ending(Some(35), false, "panic"), Ending::Panicked);
        assert_eq!(ending(Some(0), true, ""), Ending::Stopped);
        assert_eq!(ending(None, true, ""), Ending::Stopped);
        assert_eq!(ending(Some(0), false, ""), Ending::Reset);
        assert!(matches!(ending(Some(33), false, ""), Ending::Failed(_)));
        assert_eq!(ending(Some(1), false, ""), Ending::Failed("QEMU ended with 1: no memory".to_owned()));
    }

    #[test]
    fn only_an_orderly_end_has_the_applications_status() {
        assert_eq!(Ending::Halted(3).status(), 3);
        assert_eq!(Ending::Panicked.status(), STATUS_FAILED);
        assert_eq!(Ending::reported(&parse_log("panic\nhalt status=1")), Some(Ending::Panicked));
        assert_eq!(Ending::reported(&parse_log("boot clock=hpet")), None);
    }
}
