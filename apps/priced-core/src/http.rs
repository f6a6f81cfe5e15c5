//! Answers of HTTP/1.1 (RFC 9112), as a client reads them, in any pieces.

use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

/// Most bytes of an answer's head.
const HEAD_MAX: usize = 8 << 10;
/// Most header fields.
const FIELDS_MAX: usize = 64;
/// Most bytes of a chunk's first line, extensions included, and of a trailer line.
const LINE_MAX: usize = 1024;
/// Most lines of a trailer.
const TRAILERS_MAX: u32 = 64;

/// Why an answer cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// Something else than HTTP/1.
    #[error("what it says is not HTTP")]
    NotHttp,
    /// A head without end.
    #[error("the head of its answer is longer than {HEAD_MAX} bytes")]
    HeadTooLong,
    /// A header that says how long the body is, wrongly.
    #[error("the `{0}` of its answer makes no sense")]
    Length(&'static str),
    /// A chunk without a length, or not as long as it said.
    #[error("its answer has a broken chunk")]
    Chunk,
    /// The connection ended before the answer did.
    #[error("its answer was cut off")]
    CutOff,
}

/// What the head of an answer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Status code.
    pub status: u16,
    /// Media type, in lower case and without parameters; empty if there is none.
    pub content_type: String,
    /// Whether the connection can be used for the next request.
    pub keeps_alive: bool,
}

/// A piece of an answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Its head.
    Head(Head),
    /// Bytes of its body.
    Body(&'a [u8]),
    /// Its end.
    End,
}

#[derive(Debug)]
enum State {
    Head,
    /// So many bytes are left.
    Counted(u64),
    UntilClose,
    /// A chunk's first line is to come.
    ChunkLine,
    /// So many bytes of the chunk are left.
    Chunk(u64),
    /// The end of the chunk's line is to come.
    ChunkEnd,
    /// The lines behind the last chunk; so many so far.
    Trailer(u32),
    Done,
}

/// The answer to one request.
#[derive(Debug)]
pub struct Answer {
    state: State,
    /// A head, or a line, that is not complete.
    part: Vec<u8>,
}

impl Answer {
    /// Nothing came yet.
    pub fn new() -> Answer {
        Answer { state: State::Head, part: Vec::new() }
    }

    /// The next piece of the answer, whose bytes are taken off `input`; `None` if it needs more than there
    /// are, or the answer is over.
    ///
    /// # Errors
    /// [`HttpError`]; what follows means nothing.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Piece<'a>>, HttpError> {
        loop {
            match self.state {
                State::Done => return Ok(None),
                State::Counted(0) => {
                    self.state = State::Done;
                    return Ok(Some(Piece::End));
                }
                _ if input.is_empty() => return Ok(None),
                State::Head => {
                    if let Some(head) = self.head(input)? {
                        return Ok(Some(Piece::Head(head)));
                    }
                }
                State::UntilClose => return Ok(Some(Piece::Body(mem::take(input)))),
                State::Counted(left) => {
                    let body = take(input, left);
                    self.state = State::Counted(left - body.len() as u64);
                    return Ok(Some(Piece::Body(body)));
                }
                State::Chunk(left) => {
                    let body = take(input, left);
                    let left = left - body.len() as u64;
                    self.state = if left == 0 { State::ChunkEnd } else { State::Chunk(left) };
                    return Ok(Some(Piece::Body(body)));
                }
                State::ChunkLine | State::ChunkEnd | State::Trailer(_) => {
                    if self.line(input)? && matches!(self.state, State::Done) {
                        return Ok(Some(Piece::End));
                    }
                }
            }
        }
    }

    /// The connection has ended.
    ///
    /// # Errors
    /// `CutOff`, if the answer had not.
    pub fn closed(&self) -> Result<(), HttpError> {
        match self.state {
            State::Done | State::UntilClose => Ok(()),
            _ => Err(HttpError::CutOff),
        }
    }

    /// Whether no byte of it has come.
    pub fn is_unread(&self) -> bool {
        matches!(self.state, State::Head) && self.part.is_empty()
    }

    /// Takes bytes of the head; the head once it is whole.
    fn head(&mut self, input: &mut &[u8]) -> Result<Option<Head>, HttpError> {
        let before = self.part.len();
        let taken = input.len().min(HEAD_MAX - before);
        self.part.extend_from_slice(&input[..taken]);
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut response = httparse::Response::new(&mut fields);
        match response.parse(&self.part) {
            Ok(httparse::Status::Complete(length)) => {
                let (head, state) = understand(&response)?;
                *input = &input[length - before..];
                self.part.clear();
                // What comes before the answer proper says nothing (RFC 9110 section 15.2).
                if head.status < 200 {
                    return Ok(None);
                }
                self.state = state;
                Ok(Some(head))
            }
            Ok(httparse::Status::Partial) if self.part.len() == HEAD_MAX => Err(HttpError::HeadTooLong),
            Ok(httparse::Status::Partial) => {
                *input = &input[taken..];
                Ok(None)
            }
            Err(_) => Err(HttpError::NotHttp),
        }
    }

    /// Takes bytes of a line; whether it is whole, and the state that it led to.
    fn line(&mut self, input: &mut &[u8]) -> Result<bool, HttpError> {
        let end = input.iter().position(|byte| *byte == b'\n').map(|end| end + 1);
        let (line, rest) = input.split_at(end.unwrap_or(input.len()));
        self.part.extend_from_slice(line);
        *input = rest;
        if self.part.len() > LINE_MAX {
            return Err(HttpError::Chunk);
        }
        if end.is_none() {
            return Ok(false);
        }
        let line = mem::take(&mut self.part);
        let is_empty = line == b"\r\n" || line == b"\n";
        self.state = match self.state {
            State::ChunkEnd if is_empty => State::ChunkLine,
            State::ChunkLine => match httparse::parse_chunk_size(&line) {
                Ok(httparse::Status::Complete((_, 0))) => State::Trailer(0),
                Ok(httparse::Status::Complete((_, bytes))) => State::Chunk(bytes),
                _ => return Err(HttpError::Chunk),
            },
            State::Trailer(_) if is_empty => State::Done,
            State::Trailer(lines) if lines < TRAILERS_MAX => State::Trailer(lines + 1),
            _ => return Err(HttpError::Chunk),
        };
        Ok(true)
    }
}

impl Default for Answer {
    fn default() -> Answer {
        Answer::new()
    }
}

fn take<'a>(input: &mut &'a [u8], most: u64) -> &'a [u8] {
    let (taken, rest) = input.split_at((input.len() as u64).min(most) as usize);
    *input = rest;
    taken
}

/// What a head says, and how its body comes (RFC 9112 section 6.3).
fn understand(response: &httparse::Response<'_, '_>) -> Result<(Head, State), HttpError> {
    let status = response.code.ok_or(HttpError::NotHttp)?;
    let values = |name: &'static str| {
        let fields = response.headers.iter().filter(move |field| field.name.eq_ignore_ascii_case(name));
        fields.map(|field| field.value)
    };
    let has = |name, word: &str| {
        let mut words = values(name).flat_map(|value| value.split(|byte| *byte == b','));
        words.any(|found| found.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
    };
    let media = values("content-type").next().unwrap_or_default();
    let media = media.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let content_type = String::from_utf8_lossy(media).to_ascii_lowercase();
    let state = match () {
        () if matches!(status, 204 | 304) => State::Counted(0),
        () if has("transfer-encoding", "chunked") => State::ChunkLine,
        () if values("transfer-encoding").next().is_some() => {
            return Err(HttpError::Length("Transfer-Encoding"));
        }
        () => counted(values("content-length"))?,
    };
    let is_delimited = !matches!(state, State::UntilClose);
    let keeps = if response.version == Some(1) {
        !has("connection", "close")
    } else {
        has("connection", "keep-alive")
    };
    Ok((Head { status, content_type, keeps_alive: keeps && is_delimited }, state))
}

/// A body of so many bytes; all fields, if there are several, must agree.
fn counted<'a>(mut values: impl Iterator<Item = &'a [u8]>) -> Result<State, HttpError> {
    let Some(first) = values.next() else { return Ok(State::UntilClose) };
    let digits = first.trim_ascii();
    let number = core::str::from_utf8(digits).ok().filter(|_| digits.iter().all(u8::is_ascii_digit));
    let number = number.and_then(|text| text.parse().ok());
    match number {
        Some(bytes) if values.all(|other| other.trim_ascii() == digits) => Ok(State::Counted(bytes)),
        _ => Err(HttpError::Length("Content-Length")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The head's status and type, the body, and whether it came to its end, when cut into such pieces.
    fn read(text: &[u8], cuts: &[usize]) -> Result<(Option<Head>, Vec<u8>, bool), HttpError> {
        let (mut answer, mut head, mut body, mut is_over) = (Answer::new(), None, Vec::new(), false);
        let mut rest = text;
        let mut cuts = cuts.iter().chain(core::iter::repeat(&usize::MAX));
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at((*cuts.next().expect("endless")).clamp(1, rest.len()));
            let mut input = piece;
            rest = behind;
            while let Some(piece) = answer.next(&mut input)? {
                match piece {
                    Piece::Head(found) => head = Some(found),
                    Piece::Body(bytes) => body.extend_from_slice(bytes),
                    Piece::End => is_over = true,
                }
            }
        }
        if !is_over {
            answer.closed()?;
        }
        Ok((head, body, is_over))
    }

    const COUNTED: &[u8] =
        b"HTTP/1.1 200 OK\r\nContent-Type: Application/JSON; charset=utf-8\r\nContent-Length: 4\r\n\r\nbody";
    const CHUNKED: &[u8] =
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
        3;why=not\r\nabc\r\n1\r\nd\r\n0\r\nTrailer: yes\r\n\r\n";

    #[test]
    fn a_body_is_as_long_as_its_head_says() {
        let (head, body, is_over) = read(COUNTED, &[]).expect("fine");
        let head = head.expect("a head");
        assert_eq!(
            (head.status, head.content_type.as_str(), head.keeps_alive),
            (200, "application/json", true)
        );
        assert_eq!((body.as_slice(), is_over), (&b"body"[..], true));
        assert_eq!(read(&COUNTED[..COUNTED.len() - 1], &[]), Err(HttpError::CutOff));
        let empty = b"HTTP/1.1 204 No Content\r\n\r\n";
        assert_eq!(read(empty, &[]).map(|(_, body, is_over)| (body, is_over)), Ok((vec![], true)));
    }

    #[test]
    fn chunks_are_put_together() {
        let (head, body, is_over) = read(CHUNKED, &[]).expect("fine");
        assert_eq!((head.expect("a head").status, body.as_slice(), is_over), (200, &b"abcd"[..], true));
        for half in 0..CHUNKED.len() {
            assert_eq!(read(&CHUNKED[..half], &[]), Err(HttpError::CutOff), "{half}");
        }
    }

    #[test]
    fn a_body_of_no_length_ends_with_its_connection() {
        let (head, body, is_over) = read(b"HTTP/1.0 200 OK\r\n\r\nall of this", &[]).expect("fine");
        assert!(!head.expect("a head").keeps_alive && !is_over);
        assert_eq!(body, b"all of this");
    }

    #[test]
    fn nonsense_is_told_from_answers() {
        let long = [b"HTTP/1.1 200 OK\r\nA: ".as_slice(), &vec![b'a'; HEAD_MAX]].concat();
        let head = |field: &str| format!("HTTP/1.1 200 OK\r\n{field}\r\n\r\nbody").into_bytes();
        let chunk = |chunk: &str| [&head("Transfer-Encoding: chunked")[..47], chunk.as_bytes()].concat();
        for (text, expected) in [
            (b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(), HttpError::NotHttp),
            (b"\x16\x03\x01\x02".to_vec(), HttpError::NotHttp),
            (long, HttpError::HeadTooLong),
            (head("Content-Length: -1"), HttpError::Length("Content-Length")),
            (head("Content-Length: 4\r\nContent-Length: 5"), HttpError::Length("Content-Length")),
            (head("Transfer-Encoding: gzip"), HttpError::Length("Transfer-Encoding")),
            (chunk("x\r\n"), HttpError::Chunk),
            (chunk("1\r\nab\r\n"), HttpError::Chunk),
            (chunk(&format!("1;{}", "e".repeat(LINE_MAX))), HttpError::Chunk),
            (chunk(&format!("0\r\n{}", "a: b\r\n".repeat(65))), HttpError::Chunk),
        ] {
            assert_eq!(read(&text, &[]), Err(expected), "{}", text.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(cuts in prop::collection::vec(1usize..9, 0..60), chunked in any::<bool>()) {
            let text = if chunked { CHUNKED } else { COUNTED };
            prop_assert_eq!(read(text, &cuts), read(text, &[]));
        }

        #[test]
        fn no_bytes_make_it_panic(
            text in prop::collection::vec(any::<u8>(), 0..200),
            start in 0usize..CHUNKED.len(),
            cuts in prop::collection::vec(1usize..40, 0..20),
        ) {
            let _ = read(&text, &cuts);
            let _ = read(&[&CHUNKED[..start], &text].concat(), &cuts);
            let _ = read(&[&COUNTED[..start.min(COUNTED.len())], &text].concat(), &cuts);
        }
    }
}
