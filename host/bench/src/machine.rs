//! Runs a guest to its end and collects what it reported.

use anyhow::{Context, Result, anyhow, ensure};
use nom_vmm::control::parse_log;
use nom_vmm::{Accelerator, Allocation, ControlLine, Ending, MachineConfig, Memory, Qemu, Session, Vmm};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest {
    /// A kernel that QEMU's `-kernel` takes.
    pub kernel: PathBuf,
    /// Its initramfs.
    pub initramfs: Option<PathBuf>,
    /// Its command line.
    pub arguments: String,
    /// Processors of its machine.
    pub cores: u32,
}

/// On what to start it; all but this is the machine that `nom run` makes.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Who executes the guest's instructions.
    pub accelerator: Accelerator,
    /// Makes the time-stamp counter count executed instructions; needs [`Accelerator::Tcg`].
    pub counts_instructions: bool,
    /// Memory of the machine.
    pub memory_bytes: u64,
    /// When the machine takes it: all at its start where serving is measured, lest the guest stand still now
    /// and then to get more; as it is touched where starting is, or how much memory is enough.
    pub allocation: Allocation,
    /// After which the guest is ended.
    pub timeout: Duration,
}

/// A guest's whole run.
#[derive(Clone, Debug)]
pub struct Run {
    /// How it ended, and all that it wrote.
    pub outcome: nom_vmm::Outcome,
    /// From QEMU's start to its end.
    pub wall: Duration,
}

impl Run {
    /// The number under `key` in the first control line that begins with `word` and has one.
    ///
    /// # Errors
    /// If there is no such line.
    pub fn number(&self, word: &str, key: &str) -> Result<u64> {
        let mut numbers =
            self.outcome.control.iter().filter(|line| line.word == word).filter_map(|line| line.number(key));
        numbers.next().with_context(|| format!("the guest reported no `{word} {key}=`"))
    }

    /// The `figure name=.. cycles=..` lines of a guest that measures itself, from either of its streams.
    pub fn figures(&self) -> Vec<(String, u64)> {
        let figure = |line: &ControlLine| Some((line.field("name")?.to_owned(), line.number("cycles")?));
        let printed = parse_log(&self.outcome.serial);
        let lines = self.outcome.control.iter().chain(&printed);
        lines.filter(|line| line.word == "figure").filter_map(figure).collect()
    }

    /// Whether the guest ended in order and so did its application.
    pub fn succeeded(&self) -> bool {
        self.outcome.ending == Ending::Halted(0)
    }

    /// The run itself if it succeeded.
    ///
    /// # Errors
    /// Says how it ended and what it wrote last.
    pub fn checked(self) -> Result<Run> {
        let last = self.outcome.serial.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing");
        let ending =
            if self.outcome.timed_out { "ran out of time".into() } else { self.outcome.ending.to_string() };
        ensure!(self.succeeded(), "the guest {ending} after {:.1?} and wrote last: {last}", self.wall);
        Ok(self)
    }
}

/// Runs `guest` to its end.
///
/// # Errors
/// If QEMU cannot be started; a guest that fails is a run.
pub fn run(guest: &Guest, setting: &Setting) -> Result<Run> {
    let directory = tempfile::tempdir().context("no temporary directory")?;
    let config = config(guest, setting)?;
    let started = Instant::now();
    let outcome = Session::new(Qemu.start(&config, directory.path())?).finish(setting.timeout)?;
    Ok(Run { outcome, wall: started.elapsed() })
}

/// The machine in which `guest` runs.
pub(crate) fn config(guest: &Guest, setting: &Setting) -> Result<MachineConfig> {
    let mut extra_arguments = Vec::new();
    if let Some(initramfs) = &guest.initramfs {
        extra_arguments.extend(["-initrd".into(), absolute(initramfs)?.display().to_string()]);
    }
    if setting.counts_instructions {
        extra_arguments.extend(["-icount".into(), "shift=0".into()]);
    }
    Ok(MachineConfig {
        accelerator: setting.accelerator,
        cores: guest.cores,
        memory: Memory::from_bytes(setting.memory_bytes).map_err(|problem| anyhow!("{problem}"))?,
        allocation: setting.allocation,
        command_line: guest.arguments.clone(),
        extra_arguments,
        ..MachineConfig::new(absolute(&guest.kernel)?)
    })
}

/// QEMU runs in a directory of its own.
fn absolute(path: &PathBuf) -> Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("cannot find {}", path.display()))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use nom_vmm::Exit;

    /// A run that ended in order and wrote this.
    pub(crate) fn run_of(control: &str, serial: &str) -> Run {
        let exit = Exit { code: Some(33), ..Exit::default() };
        let (control, serial) = (parse_log(control), serial.to_owned());
        let ending = Ending::of(&exit, &control);
        let outcome = nom_vmm::Outcome { ending, timed_out: false, serial, control, exit };
        Run { outcome, wall: Duration::from_secs(1) }
    }

    #[test]
    fn numbers_are_found_by_word_and_key() {
        let run = run_of("probe tsc=0x00000000000000FF\nboot user_tsc=7 clock=hpet\nhalt status=0", "");
        assert_eq!(run.number("probe", "tsc").unwrap(), 255);
        assert_eq!(run.number("boot", "user_tsc").unwrap(), 7);
        for key in ["clock", "kernel_tsc"] {
            assert_eq!(
                run.number("boot", key).unwrap_err().to_string(),
                format!("the guest reported no `boot {key}=`")
            );
        }
    }

    #[test]
    fn figures_come_from_either_stream() {
        let serial = "hello\r\nfigure name=upcall cycles=9\r\nfigure of speech\nfigure name=x cycles=-1\n";
        let run = run_of("figure name=null_syscall cycles=4", serial);
        assert_eq!(run.figures(), [("null_syscall".into(), 4), ("upcall".into(), 9)]);
    }

    #[test]
    fn application_that_fails_is_no_success() {
        assert!(run_of("halt status=0", "").checked().is_ok());
        let error = run_of("halt status=139", "a\nlast words\n\n").checked().unwrap_err().to_string();
        assert_eq!(error, "the guest exited (139) after 1.0s and wrote last: last words");
        let mut late = run_of("", "");
        late.outcome.timed_out = true;
        assert!(late.checked().unwrap_err().to_string().contains("ran out of time"));
    }

    #[test]
    fn setting_reaches_the_machine() {
        let guest =
            Guest { kernel: "k".into(), initramfs: Some("/i".into()), arguments: "quiet".into(), cores: 2 };
        let setting = Setting {
            accelerator: Accelerator::Tcg,
            counts_instructions: true,
            memory_bytes: 2 << 20,
            allocation: Allocation::Immediate,
            timeout: Duration::ZERO,
        };
        let config = config(&guest, &setting).unwrap();
        assert!(config.image.is_absolute() && config.image.ends_with("k"));
        assert_eq!(config.extra_arguments, ["-initrd", "/i", "-icount", "shift=0"]);
        assert_eq!(config.allocation, Allocation::Immediate);
        assert_eq!(
            (config.command_line.as_str(), config.cores, config.memory.bytes()),
            ("quiet", 2, 2 << 20)
        );
    }
}
