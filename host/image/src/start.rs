//! What whoever runs a program of Linux says of how it starts, as `docker run` has it.

use crate::error::Result;
use crate::root::{Command, Root, error};
use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// What takes the place of what an image, or nom by default, says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StartOverrides {
    /// The program of an image, in place of its `Entrypoint` and `Cmd`.
    pub entrypoint: Option<String>,
    /// As whom it runs: `USER[:GROUP]`, by names of the root's or by numbers.
    pub user: Option<String>,
    /// Where it begins: an absolute path. It is made if it is not there.
    pub directory: Option<String>,
    /// What asks it to end.
    pub stop_signal: Option<StopSignal>,
}

impl StartOverrides {
    /// The command of a program that no image describes, with what is said here in it.
    ///
    /// # Errors
    /// A user that the root does not know, a directory that is not absolute, an entrypoint, which only
    /// images have.
    pub fn apply(&self, mut command: Command, root: &mut Root) -> Result<Command> {
        let place = Path::new(&command.program);
        if let Some(entrypoint) = &self.entrypoint {
            let text = format!("--entrypoint {entrypoint}: expected a container image, which has one");
            return Err(error(place, text));
        }
        if let Some(user) = &self.user {
            command.user = root.user(user)?;
            command.environment.retain(|variable| !variable.starts_with("HOME="));
            command.environment.push(format!("HOME={}", root.home(command.user.0)));
        }
        if let Some(directory) = &self.directory {
            command.directory = absolute(directory, "--workdir", place)?;
            root.make_directory(directory);
        }
        command.stop_signal = self.stop_signal.or(command.stop_signal);
        Ok(command)
    }
}

/// A directory of the root, named as `option`.
///
/// # Errors
/// If it is not an absolute path.
pub(crate) fn absolute(directory: &str, option: &str, place: &Path) -> Result<String> {
    if directory.starts_with('/') {
        return Ok(directory.to_owned());
    }
    Err(error(place, format!("{option} {directory}: expected an absolute path")))
}

/// A signal by which a program is asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopSignal(u8);

/// The last signal, and the first of those that programs use as they like (signal(7), as the C library counts
/// them).
const LAST: u8 = 64;
const FIRST_REAL_TIME: u8 = 34;

/// Names of the signals from 1 on (signal(7), x86).
const NAMES: &str = "HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD CONT \
    STOP TSTP TTIN TTOU URG XCPU XFSZ VTALRM PROF WINCH IO PWR SYS";

impl StopSignal {
    /// Its number.
    pub fn number(self) -> u8 {
        self.0
    }

    fn named(name: &str) -> Option<u8> {
        let counted = |rest: &str, sign: char| rest.strip_prefix(sign).and_then(|text| text.parse().ok());
        if let Some(rest) = name.strip_prefix("RTMIN") {
            let above = if rest.is_empty() { 0 } else { counted(rest, '+')? };
            return FIRST_REAL_TIME.checked_add(above);
        }
        if let Some(rest) = name.strip_prefix("RTMAX") {
            let below = if rest.is_empty() { 0 } else { counted(rest, '-')? };
            return LAST.checked_sub(below).filter(|number| *number >= FIRST_REAL_TIME);
        }
        NAMES.split(' ').position(|known| known == name).and_then(|index| u8::try_from(index + 1).ok())
    }
}

impl FromStr for StopSignal {
    type Err = String;

    /// Reads `SIGTERM`, `TERM`, `15` or `SIGRTMIN+3`.
    fn from_str(text: &str) -> std::result::Result<StopSignal, String> {
        let name = text.to_ascii_uppercase();
        let name = name.strip_prefix("SIG").unwrap_or(&name);
        let number = name.parse().ok().or_else(|| StopSignal::named(name));
        let number = number.filter(|number| (1..=LAST).contains(number));
        number.map(StopSignal).ok_or_else(|| {
            format!(
                "`{text}`: expected a signal, such as SIGTERM, QUIT, SIGRTMIN+3, or a number from 1 to 64"
            )
        })
    }
}

impl fmt::Display for StopSignal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Option<u8> {
        text.parse().ok().map(StopSignal::number)
    }

    #[test]
    fn signals_have_names_and_numbers() {
        let known = [
            ("SIGTERM", 15),
            ("term", 15),
            ("15", 15),
            ("SIGQUIT", 3),
            ("WINCH", 28),
            ("SYS", 31),
            ("SIGRTMIN", 34),
            ("SIGRTMIN+3", 37),
            ("RTMAX-1", 63),
            ("64", 64),
            ("HUP", 1),
        ];
        known.iter().for_each(|(text, expected)| assert_eq!(number(text), Some(*expected), "{text}"));
        for wrong in
            ["", "0", "65", "SIG", "SIGNOTHING", "RTMIN+31", "RTMIN+256", "RTMAX-31", "RTMIN-1", "-1"]
        {
            assert_eq!(number(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_plain_program_begins_as_is_said() {
        let mut root = Root::new();
        let overrides = StartOverrides {
            user: Some("7:8".into()),
            directory: Some("/srv/data".into()),
            stop_signal: "QUIT".parse().ok(),
            entrypoint: None,
        };
        let command = overrides.apply(Command::plain("/bin/x", &[]), &mut root).expect("it is sound");
        assert_eq!((command.user, command.directory.as_str()), ((7, 8), "/srv/data"));
        assert_eq!(command.stop_signal.map(StopSignal::number), Some(3));
        let homes = command.environment.iter().filter(|variable| variable.starts_with("HOME="));
        assert_eq!(homes.collect::<Vec<_>>(), ["HOME=/"]);
    }

    #[test]
    fn what_a_plain_program_cannot_have_is_refused_by_name() {
        let wrong = [
            StartOverrides { entrypoint: Some("sh".into()), ..StartOverrides::default() },
            StartOverrides { directory: Some("data".into()), ..StartOverrides::default() },
            StartOverrides { user: Some("nobody-knows".into()), ..StartOverrides::default() },
        ];
        let named = ["--entrypoint sh", "--workdir data", "nobody-knows"];
        for (overrides, name) in wrong.iter().zip(named) {
            let result = overrides.apply(Command::plain("/bin/x", &[]), &mut Root::new());
            assert!(result.is_err_and(|error| error.to_string().contains(name)), "{name}");
        }
    }
}
