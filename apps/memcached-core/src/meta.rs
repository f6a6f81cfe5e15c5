//! The meta commands `mg`, `ms`, `md`, `ma`, `me` and `mn`: a key, flags of one letter, and replies that
//! repeat what the flags ask for, in their order.

use crate::KEY_MAX;
use crate::number;
use crate::shard::Mode;
use crate::text::{self, BAD_FORMAT, Refusal, Words};
use base64ct::{Base64, Encoding};

mod execute;
pub(crate) use execute::{admit, complete, execute};

/// Most words of a line, command and key included.
const WORDS_MAX: usize = 19;

/// Longest opaque token in bytes, its letter included.
const OPAQUE_MAX: usize = 32;

const BAD_TOKEN: &str = "CLIENT_ERROR bad token in command line format";
const BAD_FLAGS: &str = "CLIENT_ERROR invalid or duplicate flag";

/// Which command it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Get,
    Set,
    Delete,
    Arithmetic,
    Debug,
    Noop,
}

/// A meta command.
#[derive(Clone, Debug)]
pub(crate) struct Request<'a> {
    pub command: Command,
    /// As it stands on the line, in base64 if the flags say so.
    raw_key: &'a [u8],
    /// The words of the flags, in order.
    words: Words<'a>,
    flags: Flags,
    /// Bytes of the value of `ms`.
    pub len: usize,
}

/// What the flags say.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flags {
    key_binary: bool,
    value: bool,
    no_bump: bool,
    pub quiet: bool,
    invalidate: bool,
    vivify: Option<i64>,
    exptime: Option<i64>,
    recache: Option<i64>,
    cas: Option<u64>,
    client_flags: u32,
    initial: u64,
    delta: Option<u64>,
    mode: Option<u8>,
}

/// A key on the stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecodedKey {
    bytes: [u8; KEY_MAX],
    len: usize,
}

impl DecodedKey {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Request<'_> {
    /// The key as it is stored.
    pub(crate) fn key(&self) -> DecodedKey {
        let mut key = DecodedKey { bytes: [0; KEY_MAX], len: self.raw_key.len() };
        if self.flags.key_binary {
            let decoded = Base64::decode(self.raw_key, &mut key.bytes);
            key.len = decoded.expect("parse has decoded it before").len();
        } else {
            key.bytes[..key.len].copy_from_slice(self.raw_key);
        }
        key
    }
}

/// Reads a meta command: `letter` is the second of its name, `words` what follows the name.
pub(crate) fn parse<'a>(letter: u8, line: &'a [u8], mut words: Words<'a>) -> Result<Request<'a>, Refusal> {
    let command = match letter {
        b'g' => Command::Get,
        b's' => Command::Set,
        b'd' => Command::Delete,
        b'a' => Command::Arithmetic,
        b'e' => Command::Debug,
        b'n' => Command::Noop,
        _ => return Err(Refusal::new("ERROR")),
    };
    let raw_key = words.next().unwrap_or_default();
    let mut request = Request { command, raw_key, words, flags: Flags::default(), len: 0 };
    match command {
        Command::Noop => return Ok(request),
        Command::Debug => return parse_debug(request),
        _ if raw_key.is_empty() => return Err(Refusal::new("ERROR")),
        _ if raw_key.len() > KEY_MAX => return Err(Refusal::new(BAD_FORMAT)),
        Command::Set => {
            let len = request.words.next().ok_or(Refusal::new(BAD_FORMAT))?;
            check_count(command, line)?;
            request.len = text::len(len).ok_or(Refusal::new(BAD_FORMAT))?;
        }
        _ => check_count(command, line)?,
    }
    match request.read_flags() {
        Ok(()) => Ok(request),
        Err(line) => Err(Refusal { skip: request.skip(), ..Refusal::new(line) }),
    }
}

fn check_count(command: Command, line: &[u8]) -> Result<(), Refusal> {
    let message = match command {
        Command::Get => "CLIENT_ERROR options flags are too long",
        _ => "CLIENT_ERROR options flags too long",
    };
    match Words::of(line).take(WORDS_MAX + 1).count() <= WORDS_MAX {
        true => Ok(()),
        false => Err(Refusal::new(message)),
    }
}

/// `me` knows one flag, in one place.
fn parse_debug(mut request: Request<'_>) -> Result<Request<'_>, Refusal> {
    let raw_key = request.raw_key;
    request.flags.key_binary = request.words.next() == Some(b"b");
    let decodes = !request.flags.key_binary || decodes(raw_key);
    match !raw_key.is_empty() && raw_key.len() <= KEY_MAX && decodes {
        true => Ok(request),
        false => Err(Refusal::new(BAD_FORMAT)),
    }
}

fn decodes(raw_key: &[u8]) -> bool {
    let mut place = [0; KEY_MAX];
    Base64::decode(raw_key, &mut place).is_ok_and(|key| !key.is_empty())
}

impl Request<'_> {
    /// Bytes that follow the line even if it is refused.
    pub(crate) fn skip(&self) -> usize {
        if self.command == Command::Set { self.len + 2 } else { 0 }
    }

    fn read_flags(&mut self) -> Result<(), &'static str> {
        let vague = matches!(self.command, Command::Delete | Command::Arithmetic);
        let mut seen = 0u128;
        let mut problem = Ok(());
        for word in self.words.clone() {
            let letter = word[0];
            if letter >= 127 || seen >> letter & 1 != 0 {
                return Err(if vague { BAD_FLAGS } else { "CLIENT_ERROR duplicate flag" });
            }
            seen |= 1 << letter;
            match self.read_flag(letter, &word[1..]) {
                Ok(true) => {}
                Ok(false) => return Err(if vague { BAD_FLAGS } else { "CLIENT_ERROR invalid flag" }),
                Err(_) if vague => problem = Err(BAD_FLAGS),
                // The message of `F` is the one that there is without a problem.
                Err(BAD_FORMAT) if problem.is_err() => {}
                Err(line) => problem = Err(line),
            }
        }
        problem?;
        self.check_mode()?;
        self.check_opaque()
    }

    /// Takes in one flag; `false` if there is none of that letter.
    fn read_flag(&mut self, letter: u8, argument: &[u8]) -> Result<bool, &'static str> {
        let flags = &mut self.flags;
        match letter {
            b'b' if decodes(self.raw_key) => flags.key_binary = true,
            b'b' => return Err("CLIENT_ERROR error decoding key"),
            b'N' => flags.vivify = Some(number::signed(argument).ok_or(BAD_TOKEN)?),
            b'T' => flags.exptime = Some(number::signed(argument).ok_or(BAD_TOKEN)?),
            b'R' => flags.recache = Some(number::signed(argument).ok_or(BAD_TOKEN)?),
            b'C' => flags.cas = Some(number::unsigned(argument).ok_or(BAD_TOKEN)?),
            b'F' => flags.client_flags = number::unsigned_32(argument).ok_or(BAD_FORMAT)?,
            b'J' => {
                flags.initial =
                    number::unsigned(argument).ok_or("CLIENT_ERROR invalid numeric initial value")?;
            }
            b'D' => {
                let delta = number::unsigned(argument).ok_or("CLIENT_ERROR invalid numeric delta value")?;
                flags.delta = Some(delta);
            }
            b'M' => match argument {
                &[mode] => flags.mode = Some(mode),
                _ => return Err("CLIENT_ERROR incorrect length for M token"),
            },
            b'v' => flags.value = true,
            b'u' => flags.no_bump = true,
            b'q' => flags.quiet = true,
            b'I' => flags.invalidate = true,
            b'O' | b'P' | b'L' | b'k' | b's' | b't' | b'c' | b'f' | b'h' | b'l' => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn check_opaque(&self) -> Result<(), &'static str> {
        match self.words.clone().any(|word| word[0] == b'O' && word.len() > OPAQUE_MAX) {
            true => Err("CLIENT_ERROR opaque token too long"),
            false => Ok(()),
        }
    }

    fn check_mode(&self) -> Result<(), &'static str> {
        match self.command {
            Command::Set if self.set_mode().is_none() => Err("CLIENT_ERROR invalid mode for ms M token"),
            Command::Arithmetic if self.increments().is_none() => {
                Err("CLIENT_ERROR invalid mode for ma M token")
            }
            _ => Ok(()),
        }
    }

    /// How `ms` stores. With an id, plain storing compares it.
    fn set_mode(&self) -> Option<Mode> {
        let stale_wins = self.flags.invalidate;
        match self.flags.mode {
            None | Some(b'S' | b'R') if self.flags.cas.is_some() => Some(Mode::Cas { stale_wins }),
            None | Some(b'S') => Some(Mode::Set),
            Some(b'R') => Some(Mode::Replace),
            Some(b'E') => Some(Mode::Add),
            Some(b'A') => Some(Mode::Append),
            Some(b'P') => Some(Mode::Prepend),
            Some(_) => None,
        }
    }

    /// Whether `ma` adds.
    fn increments(&self) -> Option<bool> {
        match self.flags.mode {
            None | Some(b'I' | b'+') => Some(true),
            Some(b'D' | b'-') => Some(false),
            Some(_) => None,
        }
    }
}
