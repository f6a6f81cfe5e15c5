//! Server-sent events (HTML Living Standard, section 9.2.6), read in any pieces.

use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

/// Most bytes of a line, and of an event's data.
pub const BYTES_MAX: usize = 64 << 10;

/// What a stream of events is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// An event.
    Event {
        /// Its type; `message`, if it does not say.
        name: String,
        /// Its data. What was not UTF-8 in it reads as the replacement character.
        data: String,
    },
    /// A comment: the server is alive.
    Comment,
}

/// A line or an event without end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it sends an event of more than {BYTES_MAX} bytes")]
pub struct TooLong;

/// A stream of events.
#[derive(Debug, Default)]
pub struct Events {
    line: Vec<u8>,
    name: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// The last line ended with a carriage return, of which a line feed may be a part.
    after_return: bool,
    has_begun: bool,
}

impl Events {
    /// The next item, whose bytes are taken off `input`; `None` if more are needed.
    ///
    /// # Errors
    /// [`TooLong`]; what follows means nothing.
    pub fn next(&mut self, input: &mut &[u8]) -> Result<Option<Item>, TooLong> {
        while let Some(first) = input.first() {
            if mem::take(&mut self.after_return) && *first == b'\n' {
                *input = &input[1..];
                continue;
            }
            let end = input.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let part = &input[..end.unwrap_or(input.len())];
            if self.line.len() + part.len() > BYTES_MAX {
                return Err(TooLong);
            }
            self.line.extend_from_slice(part);
            let Some(end) = end else {
                *input = &[];
                return Ok(None);
            };
            self.after_return = input[end] == b'\r';
            *input = &input[end + 1..];
            let line = mem::take(&mut self.line);
            let item = self.line(&line)?;
            // Kept for its memory.
            self.line = line;
            self.line.clear();
            if item.is_some() {
                return Ok(item);
            }
        }
        Ok(None)
    }

    fn line(&mut self, mut line: &[u8]) -> Result<Option<Item>, TooLong> {
        if !mem::replace(&mut self.has_begun, true) {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.is_empty() {
            return Ok(self.dispatch());
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let (field, value) = line.split_at(colon.unwrap_or(line.len()));
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"" => return Ok(Some(Item::Comment)),
            b"event" => self.name = value.to_vec(),
            b"data" => {
                if self.data.len() + value.len() >= BYTES_MAX {
                    return Err(TooLong);
                }
                if mem::replace(&mut self.has_data, true) {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
            }
            // The id would be for a server that repeats what was missed; this one begins with what holds.
            _ => {}
        }
        Ok(None)
    }

    fn dispatch(&mut self) -> Option<Item> {
        let (name, data) = (mem::take(&mut self.name), mem::take(&mut self.data));
        if !mem::take(&mut self.has_data) {
            return None;
        }
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let name = if name.is_empty() { "message".into() } else { text(name) };
        Some(Item::Event { name, data: text(data) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &[u8], piece: usize) -> Result<Vec<Item>, TooLong> {
        let (mut events, mut items) = (Events::default(), Vec::new());
        for mut input in text.chunks(piece) {
            while let Some(item) = events.next(&mut input)? {
                items.push(item);
            }
        }
        Ok(items)
    }

    fn event(name: &str, data: &str) -> Item {
        Item::Event { name: name.into(), data: data.into() }
    }

    #[test]
    fn every_way_to_write_an_event_is_read_in_any_pieces() {
        let text = "\u{feff}event: prices\ndata: {\"a\":1}\nid: 7\n\n\
            :\n\ndata:one\rdata: two\r\rdata\r\n\r\nevent: nothing\r\n\r\nretry: 5\nunknown\n: comment\n\
            data:  spaced \n\ndata: never dispatched\n";
        let expected = [
            event("prices", "{\"a\":1}"),
            Item::Comment,
            event("message", "one\ntwo"),
            event("message", ""),
            Item::Comment,
            event("message", " spaced "),
        ];
        for piece in 1..text.len() {
            assert_eq!(read(text.as_bytes(), piece).as_deref(), Ok(&expected[..]), "{piece}");
        }
    }

    #[test]
    fn nothing_grows_without_end() {
        assert_eq!(read(&vec![b'a'; BYTES_MAX + 1], 1000), Err(TooLong));
        assert_eq!(read(&b"data: 1234567890\n".repeat(BYTES_MAX / 10), 1000), Err(TooLong));
        assert_eq!(read(&b"event: 1234567890\n".repeat(BYTES_MAX / 10), 1000), Ok(vec![]));
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter_and_nothing_makes_it_panic(
            text in "(data|event|:| |\n|\r|\r\n|x|\u{e4}|id){0,60}",
            noise in prop::collection::vec(any::<u8>(), 0..100),
            piece in 1usize..20,
        ) {
            for text in [text.as_bytes(), &noise] {
                prop_assert_eq!(read(text, piece), read(text, 1000));
            }
        }
    }
}
