//! Arguments and results of calls as text, in strace's form.

use super::names::{self, Names};
use super::shapes::{self, Shape};
use crate::table::SystemCall;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use linux_raw_sys::{general as abi, net};

/// How many strings of a program's arguments, and how many members of other lists are shown.
const MEMBERS_MAX: u64 = 32;
const STRING_MAX: usize = 4096;

/// What a program has in its memory: whether the bytes at an address could be read.
pub(super) type Peek<'a> = &'a dyn Fn(u64, &mut [u8]) -> bool;

/// The name of a call, if there is a row for it; else what strace calls one that it does not know.
pub(super) fn name(row: Option<&SystemCall>, number: u64) -> String {
    row.map_or_else(|| alloc::format!("syscall_{number:#x}"), |row| row.name.into())
}

/// A call that is to be shown.
pub(super) struct ShownCall<'a> {
    /// Its row, if it is known.
    pub row: Option<&'static SystemCall>,
    /// Its arguments.
    pub arguments: [u64; 6],
    /// The memory of who makes it.
    pub memory: Peek<'a>,
    /// How much of a string is shown, in bytes.
    pub most: usize,
}

impl ShownCall<'_> {
    fn shapes(&self) -> Vec<Shape> {
        let Some(row) = self.row else { return [Shape::Hex; 6].into() };
        match shapes::usual(row.number) {
            Some(shapes) => shapes.into(),
            None => row.arguments.iter().map(|name| shapes::by_name(name)).collect(),
        }
    }

    /// Those of its arguments that are known before it is made, and how many those are.
    pub fn beginning(&self) -> (String, usize) {
        let shapes = self.shapes();
        let known = shapes.iter().position(|shape| shape.is_left_there()).unwrap_or(shapes.len());
        (self.text(&shapes, 0..known, 0), known)
    }

    /// The other arguments, once it has returned this.
    pub fn rest(&self, shown: usize, result: i64) -> String {
        let shapes = self.shapes();
        self.text(&shapes, shown..shapes.len(), result)
    }

    fn text(&self, shapes: &[Shape], which: core::ops::Range<usize>, result: i64) -> String {
        let mut text = String::new();
        for index in which {
            let before = text.len();
            let separator = if index == 0 { "" } else { ", " };
            text.push_str(separator);
            if !self.argument(&mut text, shapes[index], index, result) {
                text.truncate(before);
            }
        }
        text
    }

    /// One argument; whether there is anything to show.
    fn argument(&self, out: &mut String, shape: Shape, index: usize, result: i64) -> bool {
        let value = self.arguments[index];
        let next = self.arguments.get(index + 1).copied().unwrap_or(0);
        match shape {
            Shape::ModeIfMade => {
                let flags = self.arguments[index - 1] as u32;
                let makes = flags & abi::O_CREAT != 0 || flags & abi::O_TMPFILE == abi::O_TMPFILE;
                if makes {
                    mode(out, value);
                }
                return makes;
            }
            _ if shape.is_left_there() && result < 0 => address(out, value),
            Shape::Bytes(at) => self.bytes(out, value, self.arguments[at]),
            Shape::BytesOut => self.bytes(out, value, result as u64),
            Shape::EventsOut => self.list(out, value, result as u64, 12, &event),
            Shape::Polled => self.list(out, value, next.min(u64::from(u32::MAX)), 8, &polled),
            Shape::Pieces => self.pieces(out, value, next),
            Shape::Address => self.socket_address(out, value, next),
            Shape::AddressOut => {
                let bytes = self.number(next).map_or(0, u64::from);
                self.socket_address(out, value, bytes);
            }
            Shape::SocketOption => match self.arguments[index - 1] {
                1 => one(out, names::SOCKET_OPTIONS, value),
                6 => one(out, names::TCP_OPTIONS, value),
                _ => number(out, i64::from(value as i32)),
            },
            _ => self.plain(out, shape, value),
        }
        true
    }

    /// An argument that says what it is by itself.
    fn plain(&self, out: &mut String, shape: Shape, value: u64) {
        match shape {
            Shape::Int => number(out, value as i64),
            Shape::Int32 => number(out, i64::from(value as i32)),
            Shape::Mode => mode(out, value),
            Shape::Descriptor if value as i32 == abi::AT_FDCWD => out.push_str("AT_FDCWD"),
            Shape::Descriptor => number(out, i64::from(value as i32)),
            Shape::Path => self.path(out, value),
            Shape::Open => {
                one(out, names::ACCESS, value & u64::from(abi::O_ACCMODE));
                more(out, names::OPEN, value & !u64::from(abi::O_ACCMODE) & u64::from(u32::MAX));
            }
            Shape::One(names) => one(out, names, value & u64::from(u32::MAX)),
            Shape::Flags(names) => flags(out, names, value & u64::from(u32::MAX)),
            Shape::Futex => {
                let of_operation = !u64::from(abi::FUTEX_PRIVATE_FLAG | abi::FUTEX_CLOCK_REALTIME);
                one(out, names::FUTEX, value & of_operation & u64::from(u32::MAX));
                more(out, names::FUTEX_FLAGS, value & !of_operation);
            }
            Shape::Socket => {
                const KIND: u64 = 0xf;
                one(out, names::KINDS, value & KIND);
                more(out, names::KIND_FLAGS, value & !KIND & u64::from(u32::MAX));
            }
            Shape::Signal => signal(out, value),
            Shape::Signals => self.signals(out, value),
            Shape::Action => self.action(out, value),
            Shape::Clone => {
                const SIGNAL: u64 = 0xff;
                flags(out, names::CLONE, value & !SIGNAL);
                if value & SIGNAL != 0 {
                    out.push('|');
                    signal(out, value & SIGNAL);
                }
            }
            Shape::Strings => self.strings(out, value),
            Shape::Variables => self.variables(out, value),
            Shape::StatusOut => self.status(out, value),
            Shape::PairOut => match (self.number(value), self.number(value.wrapping_add(4))) {
                (Some(first), Some(second)) => put(out, format_args!("[{first}, {second}]")),
                _ => address(out, value),
            },
            Shape::EndOut => self.end(out, value),
            Shape::Event => self.list(out, value, 1, 12, &event),
            Shape::Time | Shape::TimeOut => match (self.long(value), self.long(value.wrapping_add(8))) {
                (Some(seconds), Some(ns)) => put(out, format_args!("{{tv_sec={seconds}, tv_nsec={ns}}}")),
                _ => address(out, value),
            },
            Shape::Int32In | Shape::Int32Out => match self.number(value) {
                Some(there) => put(out, format_args!("[{}]", there as i32)),
                None => address(out, value),
            },
            _ => address(out, value),
        }
    }

    fn number(&self, at: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        (at != 0 && (self.memory)(at, &mut bytes)).then(|| u32::from_le_bytes(bytes))
    }

    fn long(&self, at: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        (at != 0 && (self.memory)(at, &mut bytes)).then(|| u64::from_le_bytes(bytes))
    }

    fn bytes(&self, out: &mut String, at: u64, count: u64) {
        let shown = count.min(self.most as u64) as usize;
        let mut bytes = alloc::vec![0; shown];
        if at == 0 || !(self.memory)(at, &mut bytes) {
            return address(out, at);
        }
        quote(out, &bytes);
        if (shown as u64) < count {
            out.push_str("...");
        }
    }

    /// The bytes before a zero.
    fn string(&self, at: u64) -> Option<Vec<u8>> {
        let mut string = Vec::new();
        let mut byte = [0];
        while string.len() < STRING_MAX {
            if at == 0 || !(self.memory)(at.wrapping_add(string.len() as u64), &mut byte) {
                return None;
            }
            if byte[0] == 0 {
                break;
            }
            string.push(byte[0]);
        }
        Some(string)
    }

    fn path(&self, out: &mut String, at: u64) {
        match self.string(at) {
            Some(path) => quote(out, &path),
            None => address(out, at),
        }
    }

    fn strings(&self, out: &mut String, at: u64) {
        let mut separator = "[";
        for index in 0..MEMBERS_MAX {
            let pointer = match self.long(at.wrapping_add(8 * index)) {
                Some(0) => break,
                Some(pointer) => pointer,
                None => return address(out, at),
            };
            out.push_str(separator);
            self.path(out, pointer);
            separator = ", ";
        }
        out.push_str(if separator == "[" { "[]" } else { "]" });
    }

    fn variables(&self, out: &mut String, at: u64) {
        let pointers = (0..1 << 16).map(|index| self.long(at.wrapping_add(8 * index)));
        let count = pointers.take_while(|pointer| pointer.is_some_and(|pointer| pointer != 0)).count();
        address(out, at);
        put(out, format_args!(" /* {count} vars */"));
    }

    fn pieces(&self, out: &mut String, at: u64, count: u64) {
        out.push('[');
        for index in 0..count.min(MEMBERS_MAX) {
            let piece = at.wrapping_add(16 * index);
            let (Some(base), Some(bytes)) = (self.long(piece), self.long(piece.wrapping_add(8))) else {
                break;
            };
            out.push_str(if index == 0 { "{iov_base=" } else { ", {iov_base=" });
            self.bytes(out, base, bytes);
            put(out, format_args!(", iov_len={bytes}}}"));
        }
        out.push(']');
    }

    /// A list of structures of so many bytes each.
    fn list(&self, out: &mut String, at: u64, count: u64, bytes: usize, show: &dyn Fn(&mut String, &[u8])) {
        if at == 0 {
            return address(out, at);
        }
        let alone = count == 1 && bytes == 12;
        out.push_str(if alone { "" } else { "[" });
        for index in 0..count.min(MEMBERS_MAX) {
            let mut member = alloc::vec![0; bytes];
            if !(self.memory)(at.wrapping_add(index * bytes as u64), &mut member) {
                break;
            }
            out.push_str(if index == 0 { "" } else { ", " });
            show(out, &member);
        }
        out.push_str(if alone { "" } else { "]" });
    }

    fn socket_address(&self, out: &mut String, at: u64, bytes: u64) {
        const MOST: u64 = 110;
        let mut found = alloc::vec![0; bytes.min(MOST) as usize];
        if at == 0 || found.len() < 2 || !(self.memory)(at, &mut found) {
            return address(out, at);
        }
        out.push_str("{sa_family=");
        let family = u16::from_le_bytes([found[0], found[1]]);
        one(out, names::FAMILIES, family.into());
        let port = || u16::from_be_bytes([found[2], found[3]]);
        match (u32::from(family), found.len()) {
            (net::AF_INET, 8..) => {
                let [a, b, c, d] = [found[4], found[5], found[6], found[7]];
                put(
                    out,
                    format_args!(", sin_port=htons({}), sin_addr=inet_addr(\"{a}.{b}.{c}.{d}\")", port()),
                );
            }
            (net::AF_INET6, 24..) => {
                let mut numbers = [0; 16];
                numbers.copy_from_slice(&found[8..24]);
                let there = core::net::Ipv6Addr::from(numbers);
                put(out, format_args!(", sin6_port=htons({}), sin6_addr=\"{there}\"", port()));
            }
            (net::AF_UNIX, 3..) => {
                let path = &found[2..];
                let end = path.iter().skip(1).position(|byte| *byte == 0).map_or(path.len(), |end| end + 1);
                out.push_str(", sun_path=");
                quote(out, if path[0] == 0 { path } else { &path[..end] });
            }
            _ => {}
        }
        out.push('}');
    }

    fn status(&self, out: &mut String, at: u64) {
        const MODE: u64 = 24;
        const SIZE: u64 = 48;
        let (Some(bits), Some(size)) = (self.number(at.wrapping_add(MODE)), self.long(at.wrapping_add(SIZE)))
        else {
            return address(out, at);
        };
        let kind = match bits & abi::S_IFMT {
            abi::S_IFREG => "S_IFREG",
            abi::S_IFDIR => "S_IFDIR",
            abi::S_IFLNK => "S_IFLNK",
            abi::S_IFCHR => "S_IFCHR",
            abi::S_IFBLK => "S_IFBLK",
            abi::S_IFIFO => "S_IFIFO",
            abi::S_IFSOCK => "S_IFSOCK",
            _ => "0",
        };
        put(out, format_args!("{{st_mode={kind}|0{:03o}, st_size={size}, ...}}", bits & !abi::S_IFMT));
    }

    fn end(&self, out: &mut String, at: u64) {
        const CONTINUED: u32 = 0xffff;
        const STOPPED: u32 = 0x7f;
        let Some(status) = self.number(at) else { return address(out, at) };
        let code = status >> 8 & 0xff;
        match status & 0x7f {
            _ if status == CONTINUED => out.push_str("[{WIFCONTINUED(s)}]"),
            0 => put(out, format_args!("[{{WIFEXITED(s) && WEXITSTATUS(s) == {code}}}]")),
            STOPPED => {
                out.push_str("[{WIFSTOPPED(s) && WSTOPSIG(s) == ");
                signal(out, code.into());
                out.push_str("}]");
            }
            number => {
                out.push_str("[{WIFSIGNALED(s) && WTERMSIG(s) == ");
                signal(out, number.into());
                out.push_str("}]");
            }
        }
    }

    fn signals(&self, out: &mut String, at: u64) {
        let Some(set) = self.long(at) else { return address(out, at) };
        let members = |set: u64| (1..=64).filter(move |number| set & 1 << (number - 1) != 0);
        // As strace does: what is not in a set that is nearly full is shorter.
        let (not, shown) = if set.count_ones() > 32 { ("~", !set) } else { ("", set) };
        out.push_str(not);
        out.push('[');
        for (index, number) in members(shown).enumerate() {
            out.push_str(if index == 0 { "" } else { " " });
            match names::signal(number) {
                Some(name) => out.push_str(name.trim_start_matches("SIG")),
                None => put(out, format_args!("RT_{}", number - 32)),
            }
        }
        out.push(']');
    }

    fn action(&self, out: &mut String, at: u64) {
        match self.long(at) {
            Some(0) => out.push_str("{sa_handler=SIG_DFL, ...}"),
            Some(1) => out.push_str("{sa_handler=SIG_IGN, ...}"),
            Some(handler) => put(out, format_args!("{{sa_handler={handler:#x}, ...}}")),
            None => address(out, at),
        }
    }
}

/// What a call returned: a number, or an address if it is one.
pub(super) fn result(row: Option<&SystemCall>, value: u64) -> String {
    let gives_address = [abi::__NR_mmap, abi::__NR_brk, abi::__NR_mremap, abi::__NR_shmat];
    match row {
        Some(row) if gives_address.contains(&row.number.into()) => alloc::format!("{value:#x}"),
        _ => alloc::format!("{}", value as i64),
    }
}

pub(super) fn signal(out: &mut String, number: u64) {
    match names::signal(number) {
        Some(name) => out.push_str(name),
        None => put(out, format_args!("SIGRT_{}", number.wrapping_sub(32))),
    }
}

fn put(out: &mut String, arguments: core::fmt::Arguments<'_>) {
    out.write_fmt(arguments).expect("a string takes everything");
}

fn number(out: &mut String, value: i64) {
    put(out, format_args!("{value}"));
}

fn mode(out: &mut String, value: u64) {
    put(out, format_args!("0{:03o}", value as u32));
}

fn address(out: &mut String, value: u64) {
    match value {
        0 => out.push_str("NULL"),
        value => put(out, format_args!("{value:#x}")),
    }
}

fn one(out: &mut String, names: Names, value: u64) {
    match names.iter().find(|(known, _)| *known == value) {
        Some((_, name)) => out.push_str(name),
        None => put(out, format_args!("{value:#x}")),
    }
}

/// Names of the bits that are set, and the other bits as a number.
fn flags(out: &mut String, names: Names, value: u64) {
    match names.iter().find(|(known, _)| *known == value) {
        Some((_, name)) => out.push_str(name),
        None if value == 0 => out.push('0'),
        None => {
            let before = out.len();
            more(out, names, value);
            // The first has nothing before it.
            out.remove(before);
        }
    }
}

/// As [`flags`], behind others; nothing if none is set. Names of several bits come before those of one.
fn more(out: &mut String, names: Names, value: u64) {
    let mut left = value;
    let mut sorted: Vec<_> = names.iter().filter(|(bits, _)| *bits != 0).collect();
    sorted.sort_by_key(|(bits, _)| core::cmp::Reverse(bits.count_ones()));
    let mut found: Vec<_> = Vec::new();
    for (bits, name) in sorted {
        if left & bits == *bits {
            left &= !bits;
            found.push((*bits, *name));
        }
    }
    found.sort_unstable();
    found.iter().for_each(|(_, name)| put(out, format_args!("|{name}")));
    if left != 0 {
        put(out, format_args!("|{left:#x}"));
    }
}

fn event(out: &mut String, bytes: &[u8]) {
    let events = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let data = bytes[4..12].iter().rev().fold(0_u64, |data, byte| data << 8 | u64::from(*byte));
    out.push_str("{events=");
    flags(out, names::EVENTS, events.into());
    put(out, format_args!(", data={data:#x}}}"));
}

fn polled(out: &mut String, bytes: &[u8]) {
    let descriptor = i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let [wanted, found] = [[bytes[4], bytes[5]], [bytes[6], bytes[7]]].map(u16::from_le_bytes);
    put(out, format_args!("{{fd={descriptor}, events="));
    flags(out, names::POLL, wanted.into());
    if found != 0 {
        out.push_str(", revents=");
        flags(out, names::POLL, found.into());
    }
    out.push('}');
}

/// A string of C's.
fn quote(out: &mut String, bytes: &[u8]) {
    out.push('"');
    for (index, byte) in bytes.iter().enumerate() {
        let digit_follows = bytes.get(index + 1).is_some_and(u8::is_ascii_digit);
        match byte {
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            b'"' | b'\\' => {
                out.push('\\');
                out.push(char::from(*byte));
            }
            0x20..=0x7e => out.push(char::from(*byte)),
            byte if digit_follows => put(out, format_args!("\\{byte:03o}")),
            byte => put(out, format_args!("\\{byte:o}")),
        }
    }
    out.push('"');
}
