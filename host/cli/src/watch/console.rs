//! What the machine wrote, as lines that can do nothing to the terminal they are shown on.

use std::collections::VecDeque;

/// Lines that are kept.
const LINES: usize = 500;
/// Characters of a line that are kept.
const WIDTH: usize = 400;

/// The last lines of a console.
#[derive(Clone, Debug, Default)]
pub struct Console {
    lines: VecDeque<String>,
    /// What came since the last line's end: bytes, since a character may come in two parts.
    open: Vec<u8>,
}

impl Console {
    /// Takes in what was written.
    pub fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            match byte {
                b'\n' => self.end_line(),
                _ if self.open.len() < 4 * WIDTH => self.open.push(byte),
                _ => {}
            }
        }
    }

    fn end_line(&mut self) {
        self.lines.push_back(readable(&self.open));
        self.open.clear();
        if self.lines.len() > LINES {
            self.lines.pop_front();
        }
    }

    /// The last `count` lines, an unfinished one too.
    pub fn last(&self, count: usize) -> Vec<String> {
        let open = (!self.open.is_empty()).then(|| readable(&self.open));
        let all: Vec<String> = self.lines.iter().cloned().chain(open).collect();
        all[all.len().saturating_sub(count)..].to_vec()
    }
}

/// The text of a line: tabs as spaces, no sequence that steers a terminal.
fn readable(bytes: &[u8]) -> String {
    let mut text = String::new();
    let line = String::from_utf8_lossy(bytes);
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            '\t' => text.push_str("    "),
            '\x1b' => skip_sequence(&mut characters),
            _ if character.is_control() => {}
            _ => text.push(character),
        }
    }
    text.chars().take(WIDTH).collect()
}

/// Passes over the rest of an escape sequence: CSI up to its final byte (ECMA-48, section 5.4), of any other
/// one character.
fn skip_sequence(characters: &mut std::str::Chars<'_>) {
    if characters.next() == Some('[') {
        characters.find(|character| ('@'..='~').contains(character));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_in_any_pieces() {
        let mut console = Console::default();
        for piece in ["one\ntw", "o\r\n", "gr\u{fc}n"] {
            let (first, second) = piece.as_bytes().split_at(piece.len() / 2);
            console.write(first);
            console.write(second);
        }
        assert_eq!(console.last(10), ["one", "two", "gr\u{fc}n"]);
        assert_eq!(console.last(1), ["gr\u{fc}n"]);
    }

    #[test]
    fn nothing_steers_the_terminal() {
        let mut console = Console::default();
        console.write(b"a\x1b[31mred\x1b[0m\x07\x1b]b\tc\xff\n");
        assert_eq!(console.last(1), ["aredb    c\u{fffd}"]);
    }

    #[test]
    fn a_console_is_bounded() {
        let mut console = Console::default();
        console.write(&vec![b'x'; 1 << 16]);
        assert_eq!(console.last(1)[0].len(), WIDTH);
        (0..2 * LINES).for_each(|_| console.write(b"\n"));
        assert_eq!(console.last(usize::MAX).len(), LINES);
    }
}
