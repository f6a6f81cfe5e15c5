//! Scripts of commands, made from a seed: few keys, so that commands meet; many mistakes.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// A generator of numbers, so that a script can be made again.
pub struct Dice(SplitMix64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(SplitMix64::seed_from_u64(seed))
    }

    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0.next_u64() % sides
    }

    pub fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.roll(of.len() as u64) as usize]
    }

    fn key(&mut self) -> String {
        match self.roll(40) {
            0 => "k".repeat(250),
            1 => "k".repeat(251),
            2 => "Zm9vYmFy".to_owned(),
            number => format!("key{}", number % 6),
        }
    }

    fn value(&mut self) -> String {
        match self.roll(10) {
            0 => String::new(),
            1..=4 => self.roll(200).to_string(),
            5 => u64::MAX.to_string(),
            6 => "x".repeat(self.roll(1900) as usize),
            7 => format!("{} ", self.roll(1000)),
            _ => "value ".repeat(self.roll(5) as usize),
        }
    }

    fn noreply(&mut self) -> &'static str {
        self.pick(&["", "", "", " noreply", " nonsense"])
    }

    /// Expiry times whose effect does not depend on the second.
    fn exptime(&mut self) -> &'static str {
        self.pick(&["0", "0", "0", "0", "100000", "-1", "x"])
    }
}

/// One command of the text or meta protocol, with its value.
pub fn text_command(dice: &mut Dice) -> Vec<u8> {
    let key = dice.key();
    // memcached drops the replies to all commands before a `get` with a key that is too long.
    let short = |key: String| key.chars().take(250).collect::<String>();
    let line = match dice.roll(24) {
        0..=3 => format!("{} {} {}", dice.pick(&["get", "gets", "get"]), short(key), short(dice.key())),
        4 => format!("{} {} {}", dice.pick(&["gat", "gats"]), dice.exptime(), short(key)),
        5..=9 => return store(dice, &key),
        10 => format!("delete {key}{}", dice.pick(&["", "", " noreply", " 0", " 0 noreply", " 1"])),
        11..=12 => format!(
            "{} {key} {}{}",
            dice.pick(&["incr", "decr"]),
            dice.pick(&["1", "5", "99", "18446744073709551615", "-1", "a"]),
            dice.noreply()
        ),
        13 => format!("touch {key} {}{}", dice.exptime(), dice.noreply()),
        14 => match dice.roll(4) {
            0 => format!("flush_all{}", dice.pick(&["", " 0", " noreply", " x", " 0 0 0"])),
            _ => format!("verbosity{}", dice.pick(&["", " 0", " 0 noreply", " x", " 0 0 0"])),
        },
        15 => dice
            .pick(&["", " ", "version", "nonsense", "get", "set a", "mx", "m", "shutdown", "incr a"])
            .to_owned(),
        16..=18 => format!("mg {key}{}", flags(dice, &["v", "k", "s", "c", "f", "h", "q", "u", "b", "t"])),
        19..=20 => return meta_store(dice, &key),
        21 => format!("md {key}{}", flags(dice, &["q", "k", "I", "C1", "C5", "b", "T0", "x"])),
        22 => format!(
            "ma {key}{}",
            flags(dice, &["v", "k", "q", "N0", "J13", "D3", "MD", "M+", "MX", "c", "t"])
        ),
        _ => "mn".to_owned(),
    };
    (line + dice.pick(&["\r\n", "\r\n", "\r\n", "\n"])).into_bytes()
}

fn flags(dice: &mut Dice, of: &[&str]) -> String {
    let common = ["Oopaque", "O0123456789012345678901234567890", "N0", "R30", "T-1", "T0", "é", "vv", "F1x"];
    let mut flags = String::new();
    for _ in 0..dice.roll(5) {
        let flag = if dice.roll(6) == 0 { dice.pick(&common) } else { dice.pick(of) };
        flags += &format!(" {flag}");
    }
    flags
}

fn data(dice: &mut Dice, line: &str, value: &str) -> Vec<u8> {
    let end = if dice.roll(30) == 0 { "xx" } else { "\r\n" };
    format!("{line}\r\n{value}{end}").into_bytes()
}

fn store(dice: &mut Dice, key: &str) -> Vec<u8> {
    let value = dice.value();
    let command = dice.pick(&["set", "set", "set", "add", "replace", "append", "prepend", "cas"]);
    let flags = dice.pick(&["0", "0", "7", "4294967295", "-1", "x"]);
    let len = if dice.roll(50) == 0 { dice.pick(&["-1", "x"]).to_owned() } else { value.len().to_string() };
    let cas = if command == "cas" { format!(" {}", dice.roll(40)) } else { String::new() };
    let line = format!("{command} {key} {flags} {} {len}{cas}{}", dice.exptime(), dice.noreply());
    data(dice, &line, &value)
}

fn meta_store(dice: &mut Dice, key: &str) -> Vec<u8> {
    let value = dice.value();
    let of = [
        "k", "q", "c", "b", "F5", "I", "C1", "C9", "C30", "ME", "MA", "MP", "MR", "MS", "MX", "M", "T0",
        "T-1",
    ];
    let line = format!("ms {key} {}{}", value.len(), flags(dice, &of));
    data(dice, &line, &value)
}

/// One command of the binary protocol.
pub fn binary_command(dice: &mut Dice) -> Vec<u8> {
    let opcode = match dice.roll(12) {
        0..=3 => dice.pick(&["\x00", "\x09", "\x0c", "\x0d"]).as_bytes()[0],
        4..=7 => dice.pick(&["\x01", "\x02", "\x03", "\x11", "\x12", "\x13"]).as_bytes()[0],
        _ => dice.roll(0x26) as u8,
    };
    let (mut extras, mut value) = (Vec::new(), String::new());
    let mut key = format!("key{}", dice.roll(6));
    match opcode {
        0x01..=0x03 | 0x11..=0x13 => {
            value = dice.value();
            extras.extend_from_slice(&(dice.roll(9) as u32).to_be_bytes());
            extras.extend_from_slice(&[0, 0, 0, 0]);
        }
        0x05 | 0x06 | 0x15 | 0x16 => {
            extras.extend_from_slice(&dice.roll(9).to_be_bytes());
            extras.extend_from_slice(&dice.roll(99).to_be_bytes());
            extras.extend_from_slice(if dice.roll(2) == 0 { &[0xff; 4] } else { &[0; 4] });
        }
        0x0e | 0x0f | 0x19 | 0x1a => value = dice.value(),
        0x1c..=0x1e | 0x23 | 0x24 => extras.extend_from_slice(&[0; 4]),
        // Those that end the connection, and flush, seldom; stat answers differ; unknown ones carry nothing.
        0x07 | 0x17 | 0x10 | 0x0b | 0x0a => return frame(0x0a, &[], "", "", 0, dice.roll(1 << 32) as u32),
        0x08 | 0x18 | 0x1b | 0x1f | 0x20 | 0x25.. => key.clear(),
        _ => {}
    }
    let cas = if dice.roll(6) == 0 { dice.roll(50) } else { 0 };
    frame(opcode, &extras, &key, &value, cas, dice.roll(1 << 32) as u32)
}

/// A request of the binary protocol.
pub fn frame(opcode: u8, extras: &[u8], key: &str, value: &str, cas: u64, opaque: u32) -> Vec<u8> {
    let body = (extras.len() + key.len() + value.len()) as u32;
    let mut frame = vec![0x80, opcode];
    frame.extend_from_slice(&(key.len() as u16).to_be_bytes());
    frame.extend_from_slice(&[extras.len() as u8, 0, 0, 0]);
    frame.extend_from_slice(&body.to_be_bytes());
    frame.extend_from_slice(&opaque.to_be_bytes());
    frame.extend_from_slice(&cas.to_be_bytes());
    frame.extend_from_slice(extras);
    frame.extend_from_slice(key.as_bytes());
    frame.extend_from_slice(value.as_bytes());
    frame
}
