//! The command line: the options of `NPtcp` that the side that is asked must know.

use alloc::borrow::ToOwned;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;
use getargs::{Opt, Options as Arguments};

/// What both sides must agree on; `Default` is a default run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// `-P`: TCP port.
    pub port: u16,
    /// `-l`: first size of a message, in bytes.
    pub first: u32,
    /// `-u`: last size of a message, in bytes.
    pub last: u32,
    /// `-p`: how far below and above each size is measured, too; 0 for not at all.
    pub perturbation: u32,
    /// How often each size is measured: `-i` asks for one time.
    pub trials: u32,
    /// `-s`: messages are not returned; the time they took is.
    pub streaming: bool,
    /// `-r`, or `-s`: each measurement has a connection of its own.
    pub reset: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            port: 5002,
            first: 1,
            last: 10_000_000,
            perturbation: 3,
            trials: 3,
            streaming: false,
            reset: false,
        }
    }
}

/// What is wrong with a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionError {
    /// There is no such option.
    Unknown(String),
    /// An argument that belongs to no option.
    Stray(String),
    /// An option lacks its value.
    Missing(String),
    /// A value is not what its option takes.
    Bad {
        /// The option.
        option: &'static str,
        /// What stood there.
        value: String,
        /// What should have.
        expected: &'static str,
    },
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionError::Unknown(option) => {
                write!(f, "unknown option {option}; known are -P -l -u -p -i -r -s")
            }
            OptionError::Stray(argument) => {
                write!(f, "unexpected argument '{argument}': only options are taken")
            }
            OptionError::Missing(what) => write!(f, "{what}"),
            OptionError::Bad { option, value, expected } => {
                write!(f, "{option} '{value}': expected {expected}")
            }
        }
    }
}

impl core::error::Error for OptionError {}

impl Options {
    /// Reads a command line, without the name of the program.
    pub fn parse<'a>(arguments: impl Iterator<Item = &'a str>) -> Result<Options, OptionError> {
        let mut options = Options::default();
        let mut arguments = Arguments::new(arguments);
        let missing = |error: getargs::Error<&str>| OptionError::Missing(alloc::format!("{error}"));
        while let Some(option) = arguments.next_opt().map_err(missing)? {
            let name = match option {
                Opt::Short('i') => {
                    // NetPIPE's check writes numbers of four bytes and a mark behind them.
                    (options.first, options.perturbation, options.trials) = (5, 0, 1);
                    continue;
                }
                Opt::Short('r') => {
                    options.reset = true;
                    continue;
                }
                Opt::Short('s') => {
                    (options.streaming, options.reset) = (true, true);
                    continue;
                }
                Opt::Short('P') => "-P",
                Opt::Short('l') => "-l",
                Opt::Short('u') => "-u",
                Opt::Short('p') => "-p",
                other => return Err(OptionError::Unknown(alloc::format!("{other}"))),
            };
            let value = arguments.value().map_err(missing)?;
            options.set(name, value)?;
        }
        match arguments.next_positional() {
            Some(argument) => Err(OptionError::Stray(argument.to_owned())),
            None => Ok(options),
        }
    }

    fn set(&mut self, option: &'static str, value: &str) -> Result<(), OptionError> {
        match option {
            "-P" => self.port = number(option, value, 1, "a port, 1 to 65535")?,
            "-l" => self.first = number(option, value, 1, "a number of bytes, at least 1")?,
            "-u" => self.last = number(option, value, 1, "a number of bytes, at least 1")?,
            _ => self.perturbation = number(option, value, 0, "a number of bytes, at least 0")?,
        }
        Ok(())
    }
}

fn number<N: FromStr + PartialOrd>(
    option: &'static str,
    value: &str,
    least: N,
    expected: &'static str,
) -> Result<N, OptionError> {
    let number = value.parse().ok().filter(|number| *number >= least);
    number.ok_or_else(|| OptionError::Bad { option, value: value.to_owned(), expected })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(line.split_whitespace()).map_err(|error| error.to_string())
    }

    #[test]
    fn options_are_those_of_nptcp() {
        assert_eq!(parse("").unwrap(), Options::default());
        let ranged = parse("-P 6000 -l2 -u 300 -p 0").unwrap();
        assert_eq!((ranged.port, ranged.first, ranged.last, ranged.perturbation), (6000, 2, 300, 0));
        let streaming = parse("-s").unwrap();
        assert!(streaming.streaming && streaming.reset);
        let checked = parse("-i").unwrap();
        assert_eq!((checked.first, checked.perturbation, checked.trials), (5, 0, 1));
    }

    #[test]
    fn a_bad_option_is_named() {
        assert_eq!(parse("-l 0").unwrap_err(), "-l '0': expected a number of bytes, at least 1");
        assert_eq!(parse("-P x").unwrap_err(), "-P 'x': expected a port, 1 to 65535");
        assert_eq!(parse("-2").unwrap_err(), "unknown option -2; known are -P -l -u -p -i -r -s");
        assert_eq!(parse("host").unwrap_err(), "unexpected argument 'host': only options are taken");
        assert!(parse("-u").unwrap_err().contains("-u"));
    }
}
