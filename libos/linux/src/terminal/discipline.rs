//! The line discipline of a terminal (termios(3)): what becomes of bytes that are typed and of bytes that a
//! program writes. Policy alone: nothing here waits or knows of processes.

use super::access::Patience;
use crate::descriptors::buffer::take_first;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use linux_raw_sys::general as abi;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a line while it is edited, without its end, as on Linux (termios(3), "Canonical mode").
const LINE_MAX: usize = 4095;
/// Bytes that wait to be read, after which no more are taken.
const READY_MAX: usize = 1 << 16;
const ERASE_ONE: &[u8] = b"\x08 \x08";
/// What `VTIME` counts in.
const TENTH_NS: u64 = 100_000_000;

/// Linux's `struct termios`: how a terminal treats what goes through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct TerminalModes {
    input: u32,
    output: u32,
    control: u32,
    local: u32,
    line: u8,
    characters: [u8; 19],
}

/// Linux's `struct termio`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct OldModes {
    flags: [u16; 4],
    line: u8,
    characters: [u8; 8],
    padding: u8,
}

impl Default for TerminalModes {
    /// Those of a new pseudoterminal (`tty_std_termios` of Linux).
    fn default() -> TerminalModes {
        let mut characters = [0; 19];
        for (index, character) in [
            (abi::VINTR, 3),
            (abi::VQUIT, 28),
            (abi::VERASE, 127),
            (abi::VKILL, 21),
            (abi::VEOF, 4),
            (abi::VMIN, 1),
            (abi::VSTART, 17),
            (abi::VSTOP, 19),
            (abi::VSUSP, 26),
            (abi::VREPRINT, 18),
            (abi::VDISCARD, 15),
            (abi::VWERASE, 23),
            (abi::VLNEXT, 22),
        ] {
            characters[index as usize] = character;
        }
        let edits = abi::ICANON | abi::ECHO | abi::ECHOE | abi::ECHOK | abi::ECHOCTL | abi::ECHOKE;
        TerminalModes {
            input: abi::ICRNL | abi::IXON,
            output: abi::OPOST | abi::ONLCR,
            control: abi::B38400 | abi::CS8 | abi::CREAD,
            local: edits | abi::ISIG | abi::IEXTEN,
            line: 0,
            characters,
        }
    }
}

impl TerminalModes {
    fn takes(&self, flag: u32) -> bool {
        self.input & flag != 0
    }

    fn has(&self, flag: u32) -> bool {
        self.local & flag != 0
    }

    /// As `struct termio` has it, which is older: half of the flags, and eight characters.
    pub(super) fn old(&self) -> OldModes {
        let half = |flags: u32| flags as u16;
        let flags = [half(self.input), half(self.output), half(self.control), half(self.local)];
        let mut characters = [0; 8];
        characters.copy_from_slice(&self.characters[..8]);
        OldModes { flags, line: self.line, characters, padding: 0 }
    }

    /// With what `struct termio` has of it.
    #[must_use]
    pub(super) fn with_old(mut self, old: &OldModes) -> TerminalModes {
        let all = [&mut self.input, &mut self.output, &mut self.control, &mut self.local];
        for (flags, half) in all.into_iter().zip(old.flags) {
            *flags = *flags & !u32::from(u16::MAX) | u32::from(half);
        }
        self.line = old.line;
        self.characters[..8].copy_from_slice(&old.characters);
        self
    }

    /// Whether `byte` is this control character, which 0 turns off.
    fn is(&self, character: u32, byte: u8) -> bool {
        let set = self.characters[character as usize];
        set != 0 && set == byte
    }

    /// How many bytes a reader without lines waits for.
    fn least(&self) -> usize {
        self.characters[abi::VMIN as usize].into()
    }

    /// For how long it waits, in nanoseconds; 0 for as long as it takes.
    fn time_ns(&self) -> u64 {
        u64::from(self.characters[abi::VTIME as usize]) * TENTH_NS
    }

    /// Whether only who is in the foreground may write.
    pub fn writing_is_for_foreground(&self) -> bool {
        self.has(abi::TOSTOP)
    }

    /// Whether what was typed is forgotten when a key sends a signal.
    pub fn signals_flush(&self) -> bool {
        !self.has(abi::NOFLSH)
    }

    /// Whether `^S` and `^Q` hold output and let it go on.
    pub fn has_usual_flow(&self) -> bool {
        const START: u8 = 0x11;
        const STOP: u8 = 0x13;
        self.takes(abi::IXON) && self.is(abi::VSTOP, STOP) && self.is(abi::VSTART, START)
    }
}

/// What a typed byte means to the processes in the foreground.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeySignal {
    /// `SIGINT`.
    Interrupt,
    /// `SIGQUIT`.
    Quit,
    /// `SIGTSTP`.
    Suspend,
}

/// The state of a terminal's line.
#[derive(Debug, Default)]
pub(crate) struct LineDiscipline {
    modes: TerminalModes,
    /// What is typed of a line that can still be edited.
    line: Vec<u8>,
    /// What can be read: in canonical mode a line each, with its end if it has one; a file's end is an empty
    /// one.
    ready: VecDeque<VecDeque<u8>>,
    /// What is to be shown, as output is.
    echo: Vec<u8>,
    /// The next byte stands for itself (`VLNEXT`).
    is_quoting: bool,
    /// Output waits (`VSTOP`).
    is_held: bool,
    /// The next reader has waited long enough.
    is_due: bool,
}

impl LineDiscipline {
    /// How it treats bytes.
    pub fn modes(&self) -> TerminalModes {
        self.modes
    }

    /// Changes that. Without lines, what is typed of one can be read at once.
    pub fn set_modes(&mut self, modes: TerminalModes) {
        self.modes = modes;
        if !modes.has(abi::ICANON) && !self.line.is_empty() {
            let line = core::mem::take(&mut self.line);
            self.ready.push_back(line.into());
        }
        self.is_held &= modes.takes(abi::IXON);
    }

    /// Whether output waits.
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// Has output wait.
    pub fn hold(&mut self) {
        self.is_held = true;
    }

    /// Lets output go on.
    pub fn let_go(&mut self) {
        self.is_held = false;
    }

    /// Forgets what was typed and not read.
    pub fn forget_input(&mut self) {
        self.line.clear();
        self.ready.clear();
    }

    /// What is to be shown of what was typed since the last time, as it goes out.
    pub fn take_echo(&mut self) -> Vec<u8> {
        let echo = core::mem::take(&mut self.echo);
        self.shown(&echo)
    }

    /// Bytes as they go out.
    pub fn shown(&self, bytes: &[u8]) -> Vec<u8> {
        let does = |flag| self.modes.output & (abi::OPOST | flag) == abi::OPOST | flag;
        let mut shown = Vec::with_capacity(bytes.len());
        for byte in bytes {
            match byte {
                b'\n' if does(abi::ONLCR) => shown.extend_from_slice(b"\r\n"),
                b'\r' if does(abi::OCRNL) => shown.push(b'\n'),
                byte => shown.push(*byte),
            }
        }
        shown
    }

    /// Bytes that a reader gets at once.
    pub fn unread(&self) -> usize {
        match self.modes.has(abi::ICANON) {
            true => self.ready.front().map_or(0, VecDeque::len),
            false => self.ready.iter().map(VecDeque::len).sum(),
        }
    }

    /// Whether a reader does not wait.
    pub fn is_readable(&self) -> bool {
        match self.modes.has(abi::ICANON) {
            true => !self.ready.is_empty(),
            false if self.modes.time_ns() > 0 => self.unread() > 0,
            false => self.unread() >= self.modes.least().max(1),
        }
    }

    /// The next reader takes what there is.
    pub fn wait_no_more(&mut self) {
        self.is_due = true;
    }

    /// How long a reader waits from now on, if that is limited.
    pub fn patience(&self) -> Option<Patience> {
        let ns = Some(self.modes.time_ns()).filter(|ns| *ns > 0 && !self.modes.has(abi::ICANON))?;
        match (self.modes.least(), self.unread()) {
            (0, _) => Some(Patience::All(ns)),
            (_, 0) => None,
            _ => Some(Patience::Pause(ns)),
        }
    }

    /// Whether more is taken.
    pub fn has_room(&self) -> bool {
        self.ready.iter().map(VecDeque::len).sum::<usize>() < READY_MAX
    }

    /// Reads: at most one line in canonical mode. Nothing if there is nothing yet; 0 at a file's end.
    pub fn read(&mut self, target: &mut [u8]) -> Option<usize> {
        let is_due = core::mem::take(&mut self.is_due);
        if self.modes.has(abi::ICANON) {
            let line = self.ready.front_mut()?;
            let count = take_first(line, target);
            if line.is_empty() {
                self.ready.pop_front();
            }
            return Some(count);
        }
        let least = self.modes.least().max(usize::from(self.modes.time_ns() > 0));
        if self.unread() < least.min(target.len()) && !is_due {
            return None;
        }
        let mut count = 0;
        while let Some(bytes) = self.ready.front_mut().filter(|_| count < target.len()) {
            count += take_first(bytes, &mut target[count..]);
            if bytes.is_empty() {
                self.ready.pop_front();
            }
        }
        Some(count)
    }

    /// A byte is typed. What it means beyond the line is returned.
    pub fn type_byte(&mut self, byte: u8) -> Option<KeySignal> {
        let byte = match byte {
            b'\r' if self.modes.takes(abi::IGNCR) => return None,
            b'\r' if self.modes.takes(abi::ICRNL) => b'\n',
            b'\n' if self.modes.takes(abi::INLCR) => b'\r',
            byte if self.modes.takes(abi::ISTRIP) => byte & 0x7f,
            byte => byte,
        };
        if core::mem::take(&mut self.is_quoting) {
            self.add(byte);
            return None;
        }
        if let Some(signal) = self.signal_of(byte) {
            self.is_held = false;
            if self.modes.signals_flush() {
                self.forget_input();
                self.echo.clear();
            }
            self.show(byte);
            return Some(signal);
        }
        if self.modes.takes(abi::IXON) {
            let (starts, stops) = (self.modes.is(abi::VSTART, byte), self.modes.is(abi::VSTOP, byte));
            if starts || stops {
                self.is_held = stops && !starts;
                return None;
            }
        }
        match self.modes.has(abi::ICANON) {
            true => self.edit(byte),
            false => self.add(byte),
        }
        None
    }

    fn signal_of(&self, byte: u8) -> Option<KeySignal> {
        let keys = [
            (abi::VINTR, KeySignal::Interrupt),
            (abi::VQUIT, KeySignal::Quit),
            (abi::VSUSP, KeySignal::Suspend),
        ];
        let found = keys.into_iter().find(|(key, _)| self.modes.is(*key, byte));
        found.map(|(_, signal)| signal).filter(|_| self.modes.has(abi::ISIG))
    }

    /// A byte of a line: one that edits it, one that ends it, or one of it.
    fn edit(&mut self, byte: u8) {
        let modes = self.modes;
        let extends = modes.has(abi::IEXTEN);
        if modes.is(abi::VERASE, byte) {
            self.erase(byte, Erase::Character);
        } else if modes.is(abi::VWERASE, byte) && extends {
            self.erase(byte, Erase::Word);
        } else if modes.is(abi::VKILL, byte) {
            self.erase(byte, Erase::Line);
        } else if modes.is(abi::VLNEXT, byte) && extends {
            self.is_quoting = true;
            if modes.has(abi::ECHO) && modes.has(abi::ECHOCTL) {
                self.echo.extend_from_slice(b"^\x08");
            }
        } else if modes.is(abi::VREPRINT, byte) && extends && modes.has(abi::ECHO) {
            self.show(byte);
            self.echo.push(b'\n');
            let line = self.line.clone();
            line.into_iter().for_each(|byte| self.show(byte));
        } else if modes.is(abi::VEOF, byte) {
            self.end_line(None);
        } else if byte == b'\n' {
            if modes.has(abi::ECHO) || modes.has(abi::ECHONL) {
                self.echo.push(byte);
            }
            self.end_line(Some(byte));
        } else if modes.is(abi::VEOL, byte) || modes.is(abi::VEOL2, byte) && extends {
            self.show(byte);
            self.end_line(Some(byte));
        } else {
            self.add(byte);
        }
    }

    fn end_line(&mut self, end: Option<u8>) {
        self.line.extend(end);
        let line = core::mem::take(&mut self.line);
        self.ready.push_back(line.into());
    }

    /// A byte that stands for itself. What a line has no room for is lost, as on Linux.
    fn add(&mut self, byte: u8) {
        match self.modes.has(abi::ICANON) {
            true if self.line.len() >= LINE_MAX => return,
            true => self.line.push(byte),
            false => match self.ready.back_mut() {
                Some(bytes) if !bytes.is_empty() => bytes.push_back(byte),
                _ => self.ready.push_back([byte].into()),
            },
        }
        self.show(byte);
    }

    /// Shows a byte that was typed: control characters as a caret and a letter.
    fn show(&mut self, byte: u8) {
        if !self.modes.has(abi::ECHO) {
            return;
        }
        match is_shown_as_two(&self.modes, byte) {
            true => self.echo.extend_from_slice(&[b'^', byte ^ 0x40]),
            false => self.echo.push(byte),
        }
    }

    /// Takes the end of the line away, and from where it is shown. `key` is what asked for it.
    fn erase(&mut self, key: u8, what: Erase) {
        let modes = self.modes;
        let shows = modes.has(abi::ECHO);
        let is_visible = match what {
            Erase::Line => modes.has(abi::ECHOK) && modes.has(abi::ECHOKE) && modes.has(abi::ECHOE),
            Erase::Word | Erase::Character => modes.has(abi::ECHOE),
        };
        let kept = self.line_without(what);
        let erased = self.line.split_off(kept);
        if shows && is_visible {
            let columns = |byte: &u8| match () {
                () if modes.takes(abi::IUTF8) && is_continuation(*byte) => 0,
                () if is_shown_as_two(&modes, *byte) => 2,
                () => 1,
            };
            (0..erased.iter().map(columns).sum()).for_each(|_| self.echo.extend_from_slice(ERASE_ONE));
        } else if shows && !erased.is_empty() {
            self.show(key);
        }
        if what == Erase::Line && shows && !is_visible && modes.has(abi::ECHOK) {
            self.echo.push(b'\n');
        }
    }

    /// How many bytes of the line are left when that is taken away.
    fn line_without(&self, what: Erase) -> usize {
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let from_end = |line: &[u8], part: &dyn Fn(&u8) -> bool| {
            line.iter().rposition(|byte| !part(byte)).map_or(0, |last| last + 1)
        };
        let character = || {
            let is_part = |byte: &u8| self.modes.takes(abi::IUTF8) && is_continuation(*byte);
            from_end(&self.line, &is_part).saturating_sub(1)
        };
        match what {
            Erase::Line => 0,
            Erase::Character => character(),
            Erase::Word => {
                let word_end = from_end(&self.line, &|byte| !is_word(byte));
                from_end(&self.line[..word_end], &is_word)
            }
        }
    }
}

/// How much of a line is taken away at once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Erase {
    Character,
    Word,
    Line,
}

/// Not the first byte of a character of UTF-8.
fn is_continuation(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

fn is_shown_as_two(modes: &TerminalModes, byte: u8) -> bool {
    modes.has(abi::ECHOCTL) && byte.is_ascii_control() && byte != b'\t' && byte != b'\n'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(discipline: &mut LineDiscipline, bytes: &[u8]) -> (Vec<KeySignal>, Vec<u8>) {
        let signals = bytes.iter().filter_map(|byte| discipline.type_byte(*byte)).collect();
        (signals, discipline.take_echo())
    }

    fn read(discipline: &mut LineDiscipline, room: usize) -> Option<Vec<u8>> {
        let mut target = alloc::vec![0; room];
        discipline.read(&mut target).map(|count| target[..count].to_vec())
    }

    fn without(flags: u32) -> LineDiscipline {
        let mut discipline = LineDiscipline::default();
        let modes = discipline.modes();
        discipline.set_modes(TerminalModes { local: modes.local & !flags, ..modes });
        discipline
    }

    #[test]
    fn a_line_is_read_once_it_ends_and_one_at_a_time() {
        let mut discipline = LineDiscipline::default();
        assert_eq!(typed(&mut discipline, b"ab"), (Vec::new(), b"ab".to_vec()));
        assert!(!discipline.is_readable() && read(&mut discipline, 10).is_none());
        assert_eq!(typed(&mut discipline, b"c\rd\n").1, b"c\r\nd\r\n");
        assert_eq!(discipline.unread(), 4);
        assert_eq!(read(&mut discipline, 2).as_deref(), Some(&b"ab"[..]));
        assert_eq!(read(&mut discipline, 10).as_deref(), Some(&b"c\n"[..]));
        assert_eq!(read(&mut discipline, 10).as_deref(), Some(&b"d\n"[..]));
        assert_eq!(read(&mut discipline, 10), None);
    }

    #[test]
    fn the_end_of_a_file_is_read_as_nothing_and_ends_a_line_that_has_begun() {
        let mut discipline = LineDiscipline::default();
        assert_eq!(typed(&mut discipline, b"\x04ab\x04").1, b"ab");
        assert_eq!(read(&mut discipline, 10).as_deref(), Some(&b""[..]));
        assert_eq!(read(&mut discipline, 10).as_deref(), Some(&b"ab"[..]));
        assert!(!discipline.is_readable());
    }

    #[test]
    fn what_is_erased_is_neither_read_nor_shown() {
        let mut discipline = LineDiscipline::default();
        assert_eq!(typed(&mut discipline, b"a\x7f\x7fb").1, b"a\x08 \x08b");
        assert_eq!(typed(&mut discipline, b"\x01\x7f").1, b"^A\x08 \x08\x08 \x08");
        typed(&mut discipline, b" one two, \x17");
        assert_eq!(discipline.line, b"b one ");
        assert_eq!(typed(&mut discipline, b"\x15x\n").1.last(), Some(&b'\n'));
        assert_eq!(read(&mut discipline, 10).as_deref(), Some(&b"x\n"[..]));
        typed(&mut discipline, b"\x16\x7f\n");
        assert_eq!(read(&mut discipline, 10).as_deref(), Some(&b"\x7f\n"[..]));
    }

    #[test]
    fn a_character_of_several_bytes_is_erased_whole() {
        let mut discipline = LineDiscipline::default();
        let modes = discipline.modes();
        discipline.set_modes(TerminalModes { input: modes.input | abi::IUTF8, ..modes });
        let echo = typed(&mut discipline, "a\u{e4}\x7f".as_bytes()).1;
        assert_eq!((echo.ends_with(ERASE_ONE), discipline.line.as_slice()), (true, &b"a"[..]));
    }

    #[test]
    fn keys_send_signals_and_what_was_typed_is_forgotten() {
        let mut discipline = LineDiscipline::default();
        typed(&mut discipline, b"line\nrest");
        let (signals, echo) = typed(&mut discipline, b"\x03\x1c\x1a");
        assert_eq!(signals, [KeySignal::Interrupt, KeySignal::Quit, KeySignal::Suspend]);
        assert_eq!(echo, b"^Z", "what a flush finds unshown is not shown");
        assert!(!discipline.is_readable() && discipline.line.is_empty());
        let mut quiet = without(abi::ISIG | abi::ECHO);
        assert_eq!(typed(&mut quiet, b"\x03\n"), (Vec::new(), Vec::new()));
        assert_eq!(read(&mut quiet, 10).as_deref(), Some(&b"\x03\n"[..]));
    }

    #[test]
    fn without_lines_bytes_are_read_as_they_come() {
        let mut discipline = LineDiscipline::default();
        typed(&mut discipline, b"begun");
        let modes = discipline.modes();
        discipline.set_modes(TerminalModes { local: modes.local & !abi::ICANON, ..modes });
        assert_eq!(read(&mut discipline, 3).as_deref(), Some(&b"beg"[..]));
        typed(&mut discipline, b"\x7f\x04");
        assert_eq!(read(&mut discipline, 9).as_deref(), Some(&b"un\x7f\x04"[..]));
        assert_eq!(read(&mut discipline, 9), None);
        let mut modes = discipline.modes();
        modes.characters[abi::VMIN as usize] = 0;
        discipline.set_modes(modes);
        assert_eq!(read(&mut discipline, 9).as_deref(), Some(&b""[..]));
    }

    #[test]
    fn readers_wait_for_as_long_as_they_are_told() {
        let mut discipline = without(abi::ICANON);
        let set = |discipline: &mut LineDiscipline, least, tenths| {
            let mut modes = discipline.modes();
            modes.characters[abi::VMIN as usize] = least;
            modes.characters[abi::VTIME as usize] = tenths;
            discipline.set_modes(modes);
        };
        set(&mut discipline, 0, 2);
        assert_eq!(discipline.patience(), Some(Patience::All(2 * TENTH_NS)));
        assert_eq!(read(&mut discipline, 9), None);
        discipline.wait_no_more();
        assert_eq!(read(&mut discipline, 9).as_deref(), Some(&b""[..]));
        assert_eq!(read(&mut discipline, 9), None, "the next one waits again");
        set(&mut discipline, 3, 1);
        assert_eq!(discipline.patience(), None, "for the first byte it waits for good");
        typed(&mut discipline, b"ab");
        assert!(discipline.is_readable(), "poll(2) says so at the first byte");
        assert_eq!(discipline.patience(), Some(Patience::Pause(TENTH_NS)));
        assert_eq!(read(&mut discipline, 9), None);
        discipline.wait_no_more();
        assert_eq!(read(&mut discipline, 9).as_deref(), Some(&b"ab"[..]));
    }

    #[test]
    fn output_is_held_and_goes_on() {
        let mut discipline = LineDiscipline::default();
        typed(&mut discipline, b"\x13");
        assert!(discipline.is_held());
        typed(&mut discipline, b"\x11");
        assert!(!discipline.is_held() && !discipline.is_readable());
        assert_eq!(discipline.shown(b"a\nb\r"), b"a\r\nb\r");
    }

    #[test]
    fn a_line_that_is_too_long_still_ends() {
        let mut discipline = LineDiscipline::default();
        typed(&mut discipline, &[b'x'; LINE_MAX + 10]);
        typed(&mut discipline, b"\n");
        assert_eq!(read(&mut discipline, LINE_MAX + 10).map(|line| line.len()), Some(LINE_MAX + 1));
    }
}
