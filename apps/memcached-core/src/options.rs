//! The command line: the options of memcached that have a meaning here.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::ToString;
use core::net::IpAddr;
use getargs::{Opt, Options as Arguments};
use nom_port::options::{OptionError, number};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

/// How a server is set up; `Default` is memcached's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// `-m`, in bytes: memory that the items may cost; unless given, all that nobody else needs, where it is
    /// known how much there is.
    pub memory: usize,
    /// `-c`: most connections at a time.
    pub connections: u32,
    /// `-t`: cores.
    pub threads: u32,
    /// `-p`: TCP port, 0 for none.
    pub tcp_port: u16,
    /// `-U`: UDP port, 0 for none.
    pub udp_port: u16,
    /// `-l`: address to listen at, `None` for all.
    pub address: Option<IpAddr>,
    /// `-I`, in bytes: largest item, header included; unless given, no more than half of `-m`.
    pub item_max: usize,
    /// `--packet-api`: UDP requests are answered in the memory in which they came.
    pub packet_api: bool,
    /// `-v`: how much to tell, 0 to 2.
    pub verbosity: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            memory: 64 * MIB,
            connections: 1024,
            threads: 4,
            tcp_port: 11211,
            udp_port: 0,
            address: None,
            item_max: MIB,
            packet_api: false,
            verbosity: 0,
        }
    }
}

/// What `-m` may be of `free` bytes: three quarters, but for a megabyte; on the smallest machines a quarter.
/// Small items cost up to a quarter more than is counted.
fn room(free: u64) -> usize {
    let most = (free / 4 * 3).saturating_sub(MIB as u64).max(free / 4);
    usize::try_from(most).unwrap_or(usize::MAX)
}

fn too_much(value: &str, free: u64) -> OptionError {
    let expected = format!(
        "at most {} megabytes of the {} that are free, since connections, buffers and tables take the rest: \
         `memory` in app.toml and `nom run --memory` say how many there are",
        room(free) / MIB,
        free / MIB as u64
    );
    OptionError::bad("-m", value, expected)
}

/// The options that there are.
const KNOWN: &str = "-m -c -t -p -U -l -I -v --packet-api";

impl Options {
    /// Reads a command line, without the name of the program.
    pub fn parse<'a>(arguments: impl Iterator<Item = &'a str>) -> Result<Options, OptionError> {
        Options::parse_within(arguments, u64::MAX)
    }

    /// The same where `free` bytes of memory are free: `-m` must leave some of it for connections, buffers
    /// and tables. Without, items may take all of it, as long as nobody else wants any.
    pub fn parse_within<'a>(
        arguments: impl Iterator<Item = &'a str>,
        free: u64,
    ) -> Result<Options, OptionError> {
        let mut options = Options::default();
        if free < u64::MAX {
            options.memory = usize::try_from(free).unwrap_or(usize::MAX);
        }
        let mut item_max_given = false;
        let mut arguments = Arguments::new(arguments);
        while let Some(option) = arguments.next_opt().map_err(OptionError::missing)? {
            if matches!(option, Opt::Short('v') | Opt::Long("verbose")) {
                options.verbosity = (options.verbosity + 1).min(2);
                continue;
            }
            if option == Opt::Long("packet-api") {
                options.packet_api = true;
                continue;
            }
            let name = known(option)?;
            let value = arguments.value().map_err(OptionError::missing)?;
            options.set(name, value)?;
            if name == "-m" && options.memory > room(free) {
                return Err(too_much(value, free));
            }
            item_max_given |= name == "-I";
        }
        if let Some(argument) = arguments.next_positional() {
            return Err(OptionError::Stray(argument.to_owned()));
        }
        if !item_max_given {
            options.item_max = options.item_max.min(options.memory / 2);
        }
        options.check()
    }

    fn set(&mut self, option: &'static str, value: &str) -> Result<(), OptionError> {
        let bad = |expected| OptionError::bad(option, value, expected);
        match option {
            "-m" => self.memory = size(value, MIB).ok_or_else(|| bad("megabytes, at least 1, such as 64"))?,
            "-c" => self.connections = number(option, value, 1, "a number of connections, at least 1")?,
            "-t" => self.threads = number(option, value, 1, "a number of threads, at least 1")?,
            "-p" => self.tcp_port = number(option, value, 0, "a port, 0 to 65535")?,
            "-U" => self.udp_port = number(option, value, 0, "a port, 0 to 65535")?,
            "-l" => self.address = Some(value.parse().map_err(|_| bad("an IPv4 or IPv6 address"))?),
            _ => self.item_max = size(value, 1).ok_or_else(|| bad("a size such as 2048, 512k or 4m"))?,
        }
        Ok(())
    }

    fn check(self) -> Result<Options, OptionError> {
        let bad = |expected| {
            let mut digits = itoa::Buffer::new();
            let value = digits.format(self.item_max);
            Err(OptionError::bad("-I", value, expected))
        };
        match self.item_max {
            0..KIB => bad("at least 1k"),
            large if large > GIB => bad("at most 1g"),
            large if large > self.memory / 2 => bad("at most half of -m"),
            _ => Ok(self),
        }
    }
}

fn known(option: Opt<&str>) -> Result<&'static str, OptionError> {
    let name = match option {
        Opt::Short('m') | Opt::Long("memory-limit") => "-m",
        Opt::Short('c') | Opt::Long("conn-limit") => "-c",
        Opt::Short('t') | Opt::Long("threads") => "-t",
        Opt::Short('p') | Opt::Long("port") => "-p",
        Opt::Short('U') | Opt::Long("udp-port") => "-U",
        Opt::Short('l') | Opt::Long("listen") => "-l",
        Opt::Short('I') | Opt::Long("max-item-size") => "-I",
        other => return Err(OptionError::Unknown { option: other.to_string(), known: KNOWN }),
    };
    Ok(name)
}

/// A size: a number of `unit`s, or of what the letter behind it says.
fn size(value: &str, unit: usize) -> Option<usize> {
    let (digits, unit) = match value.char_indices().last()? {
        (at, 'k' | 'K') => (&value[..at], KIB),
        (at, 'm' | 'M') => (&value[..at], MIB),
        (at, 'g' | 'G') => (&value[..at], GIB),
        _ => (value, unit),
    };
    let count: usize = positive_usize(digits)?;
    count.checked_mul(unit)
}

fn positive_usize(digits: &str) -> Option<usize> {
    digits.parse().ok().filter(|&count| count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(line.split_whitespace()).map_err(|error| error.to_string())
    }

    #[test]
    fn options_are_those_of_memcached() {
        let options = parse("-m128 -c 10 -t2 -p 4000 -U 4001 -l 10.0.0.1 -I 2m --packet-api -vv").unwrap();
        let expected = Options {
            memory: 128 * MIB,
            connections: 10,
            threads: 2,
            tcp_port: 4000,
            udp_port: 4001,
            address: Some([10, 0, 0, 1].into()),
            item_max: 2 * MIB,
            packet_api: true,
            verbosity: 2,
        };
        assert_eq!(options, expected);
        assert_eq!(parse("").unwrap(), Options::default());
        assert_eq!(parse("--memory-limit=32 --listen=::1").unwrap().address, Some("::1".parse().unwrap()));
    }

    #[test]
    fn memory_that_is_not_there_is_refused() {
        let parse = |line: &str, free: u64| {
            Options::parse_within(line.split_whitespace(), free).map_err(|error| error.to_string())
        };
        assert_eq!(
            parse("-m 500", 96 << 20).unwrap_err(),
            "-m '500': expected at most 71 megabytes of the 96 that are free, since connections, buffers and \
             tables take the rest: `memory` in app.toml and `nom run --memory` say how many there are"
        );
        assert_eq!(parse("-m 71", 96 << 20).map(|options| options.memory), Ok(71 * MIB));
        assert_eq!(parse("", 96 << 20).map(|options| options.memory), Ok(96 * MIB), "all that there is");
        assert_eq!(parse("", u64::MAX), Ok(Options::default()), "nobody knows how much that is");
        let small = parse("", 1 << 20).unwrap();
        assert_eq!((small.memory, small.item_max), (MIB, MIB / 2));
    }

    #[test]
    fn a_bad_option_is_named() {
        assert_eq!(parse("-m lots").unwrap_err(), "-m 'lots': expected megabytes, at least 1, such as 64");
        assert_eq!(
            parse("-m 99999999999999999").unwrap_err().split(':').next(),
            Some("-m '99999999999999999'")
        );
        assert_eq!(parse("-c 0").unwrap_err(), "-c '0': expected a number of connections, at least 1");
        assert_eq!(parse("-p 65536").unwrap_err(), "-p '65536': expected a port, 0 to 65535");
        assert_eq!(parse("-l here").unwrap_err(), "-l 'here': expected an IPv4 or IPv6 address");
        assert_eq!(parse("-I 1000").unwrap_err(), "-I '1000': expected at least 1k");
        assert_eq!(parse("-m 4 -I 3m").unwrap_err(), "-I '3145728': expected at most half of -m");
        assert_eq!(
            parse("-x").unwrap_err(),
            "unknown option -x; known are -m -c -t -p -U -l -I -v --packet-api"
        );
        assert_eq!(parse("now").unwrap_err(), "unexpected argument 'now': only options are taken");
        assert!(parse("-m").unwrap_err().contains("-m"));
    }
}
