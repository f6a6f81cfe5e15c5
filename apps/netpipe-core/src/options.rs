//! The command line: the options of `NPtcp` that the side that is asked must know.

use alloc::borrow::ToOwned;
use alloc::string::ToString;
use getargs::{Opt, Options as Arguments};
use nom_port::options::{OptionError, number};

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
    /// `-2`: in trials both sides send at once, each message as soon as the one before has come.
    pub bidirectional: bool,
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
            bidirectional: false,
            reset: false,
        }
    }
}

/// The options that there are.
const KNOWN: &str = "-P -l -u -p -i -r -s -2";

impl Options {
    /// Reads a command line, without the name of the program.
    pub fn parse<'a>(arguments: impl Iterator<Item = &'a str>) -> Result<Options, OptionError> {
        let mut options = Options::default();
        let mut arguments = Arguments::new(arguments);
        while let Some(option) = arguments.next_opt().map_err(OptionError::missing)? {
            let name = match option {
                Opt::Short('i') => {
                    // NetPIPE's check writes numbers of four bytes and a mark behind them.
                    (options.first, options.perturbation, options.trials) = (5, 0, 1);
                    continue;
                }
                Opt::Short('2') => {
                    options.bidirectional = true;
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
                other => return Err(OptionError::Unknown { option: other.to_string(), known: KNOWN }),
            };
            let value = arguments.value().map_err(OptionError::missing)?;
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
        assert_eq!(parse("-3").unwrap_err(), "unknown option -3; known are -P -l -u -p -i -r -s -2");
        assert!(parse("-2").unwrap().bidirectional);
        assert_eq!(parse("host").unwrap_err(), "unexpected argument 'host': only options are taken");
        assert!(parse("-u").unwrap_err().contains("-u"));
    }
}
