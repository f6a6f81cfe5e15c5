//! `nom generate systemd`: units that let systemd start machines with the computer.

use crate::restart::Policy;
use crate::start::is_free;
use crate::store::{Machine, Store};
use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};

/// `nom generate`.
#[derive(Debug, Args)]
pub struct Generate {
    /// For whom.
    #[command(subcommand)]
    pub target: Target,
}

/// What can be generated.
#[derive(Debug, Subcommand)]
pub enum Target {
    /// Print a unit of systemd.
    Systemd(Systemd),
}

/// `nom generate systemd`.
#[derive(Debug, Args)]
#[command(
    after_help = "systemd then starts the machine with the computer, and again as its --restart says; it
is the supervisor. docs/machines.md has the steps.

Examples:
  nom generate systemd web-1 > /etc/systemd/system/web.service
  nom generate systemd shop/nom.toml > /etc/systemd/system/shop.service"
)]
pub struct Systemd {
    /// A machine, running or ended, or the file of `nom up`.
    #[arg(value_name = "MACHINE|FILE")]
    pub subject: String,
}

/// `nom generate`.
///
/// # Errors
/// If there is neither such a machine nor such a file.
pub fn generate(options: &Generate) -> Result<u8> {
    let Target::Systemd(Systemd { subject }) = &options.target;
    let surroundings = Surroundings::read()?;
    let unit = if Path::new(subject).is_file() {
        of_file(&std::path::absolute(subject)?, &surroundings)
    } else {
        let store = Store::open()?;
        let machine =
            store.find(subject).with_context(|| format!("`{subject}` is no file of `nom up` either"))?;
        is_free(&machine)?;
        of_machine(&machine, &surroundings)
    };
    print!("{unit}");
    Ok(0)
}

/// What the command needs of its surroundings, wherever it is started.
struct Surroundings {
    program: PathBuf,
    /// Variables of the environment.
    variables: Vec<(&'static str, String)>,
    is_root: bool,
}

impl Surroundings {
    fn read() -> Result<Surroundings> {
        let kept = ["HOME", "PATH", "XDG_STATE_HOME", "NOM_ROOT", "NOM_BRIDGE"];
        Ok(Surroundings {
            program: std::env::current_exe().context("this command has no file any more")?,
            variables: kept.into_iter().filter_map(|name| Some((name, std::env::var(name).ok()?))).collect(),
            is_root: rustix::process::geteuid().is_root(),
        })
    }

    /// A unit whose main process is this command with these words.
    fn unit(&self, description: &str, conditions: &str, words: &[&str], service: &str) -> String {
        let line: Vec<String> = [&self.program.display().to_string()]
            .into_iter()
            .map(String::as_str)
            .chain(words.iter().copied())
            .map(quoted)
            .collect();
        let variables: String = self
            .variables
            .iter()
            .map(|(name, value)| format!("Environment={}\n", quoted(&format!("{name}={value}"))))
            .collect();
        let target = if self.is_root { "multi-user.target" } else { "default.target" };
        format!(
            "[Unit]\nDescription={description}\n{conditions}\n\
             [Service]\nType=exec\n{variables}ExecStart={}\n{service}\
             # The command ends its machines in order; what then is left is killed.\n\
             KillMode=mixed\nTimeoutStopSec=60\n\n[Install]\nWantedBy={target}\n",
            line.join(" ")
        )
    }
}

fn of_machine(machine: &Machine, surroundings: &Surroundings) -> String {
    let record = &machine.record;
    let (restart, burst) = match record.restart {
        Policy::No => ("no", None),
        Policy::OnFailure(times) => ("on-failure", times),
        Policy::Always | Policy::UnlessStopped => ("always", None),
    };
    // So many starts in a day are too many; without a number none are.
    let limit = burst.map_or_else(
        || "StartLimitIntervalSec=0\n".to_owned(),
        |times| format!("StartLimitIntervalSec=1d\nStartLimitBurst={}\n", times.saturating_add(1)),
    );
    let condition = match record.restart {
        // `nom stop` leaves this file, `nom start` removes it.
        Policy::UnlessStopped => {
            format!(
                "ConditionPathExists=!{}\n",
                machine.stopped_file().display().to_string().replace('%', "%%")
            )
        }
        _ => String::new(),
    };
    // Statuses of a machine that somebody ended: by `nom stop` or SIGTERM, by Ctrl-C.
    let service = format!(
        "Restart={restart}\nRestartSec=1\nRestartPreventExitStatus=143 130\nSuccessExitStatus=143 130\n"
    );
    let words = ["start", "--attach", &record.name];
    surroundings.unit(
        &format!("nom machine {}", record.name),
        &format!("{limit}{condition}"),
        &words,
        &service,
    )
}

fn of_file(file: &Path, surroundings: &Surroundings) -> String {
    let path = file.display().to_string();
    let description = format!("nom machines of {}", path.replace('%', "%%"));
    let service = "Restart=on-failure\nRestartSec=1\nSuccessExitStatus=143 130\n";
    surroundings.unit(&description, "", &["up", "--file", &path], service)
}

/// A word as systemd.service(5) reads it back.
fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=,+@".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    let escaped = word.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn surroundings() -> Surroundings {
        let variables = vec![("HOME", "/root".to_owned()), ("NOM_ROOT", "/srv/my nom".to_owned())];
        Surroundings { program: "/bin/true".into(), variables, is_root: true }
    }

    /// Has systemd read a unit, where it is installed.
    fn verify(name: &str, unit: &str) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(name);
        std::fs::write(&path, unit).expect("written");
        let Ok(output) = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path).output()
        else {
            eprintln!("skipped: systemd-analyze is not installed");
            return;
        };
        let complaints = String::from_utf8_lossy(&output.stderr);
        let ours: Vec<&str> = complaints.lines().filter(|line| line.contains(name)).collect();
        assert!(output.status.success() && ours.is_empty(), "{complaints}\n{unit}");
    }

    #[test]
    fn words_are_quoted_as_systemd_reads_them() {
        assert_eq!(quoted("/usr/bin/nom"), "/usr/bin/nom");
        assert_eq!(quoted("a b"), "\"a b\"");
        assert_eq!(quoted("50% of $x \"\\\""), "\"50%% of $$x \\\"\\\\\\\"\"");
        assert_eq!(quoted(""), "\"\"");
    }

    #[test]
    fn systemd_accepts_the_unit_of_a_file() {
        let unit = of_file(Path::new("/srv/50% shop/nom.toml"), &surroundings());
        assert!(unit.contains("ExecStart=/bin/true up --file \"/srv/50%% shop/nom.toml\"\n"), "{unit}");
        assert!(unit.contains("Environment=\"NOM_ROOT=/srv/my nom\"\n"), "{unit}");
        verify("shop.service", &unit);
    }

    #[test]
    fn systemd_accepts_the_unit_of_a_machine_and_restarts_it_as_it_was_asked_to() {
        for (policy, expected) in [
            ("no", "Restart=no\n"),
            ("on-failure", "Restart=on-failure\n"),
            ("on-failure:3", "StartLimitBurst=4\n"),
            ("always", "Restart=always\n"),
            ("unless-stopped", "ConditionPathExists=!"),
        ] {
            let (_directory, machine) = crate::store::tests::ended(policy.parse().expect("a policy"));
            let unit = of_machine(&machine, &surroundings());
            assert!(unit.contains(expected), "{policy}: {unit}");
            assert!(unit.contains("ExecStart=/bin/true start --attach web\n"), "{unit}");
            verify("web.service", &unit);
        }
    }
}
