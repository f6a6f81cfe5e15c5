//! Content of requests, which a file server has no use for: found, limited, and forgotten.

use crate::request::{Framing, Status};
use alloc::vec::Vec;
use memchr::memchr;

/// Most bytes of content.
pub const BODY_MAX: u64 = 1 << 20;

/// Most bytes of a line between chunks, and of all lines behind them.
const LINE_MAX: usize = 256;
const TRAILER_MAX: usize = 4096;

/// Content on its way.
#[derive(Debug)]
pub struct Body {
    part: Part,
    /// Bytes of content in chunks so far.
    total: u64,
    /// A line that has not come whole.
    line: Vec<u8>,
    /// Bytes of lines behind the last chunk.
    trailer: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// So many bytes, and no more.
    Rest(u64),
    ChunkSize,
    Chunk(u64),
    ChunkEnd,
    Trailer,
    Done,
}

impl Body {
    /// The content of a request; `None` if there is none.
    pub fn new(framing: Framing) -> Result<Option<Body>, Status> {
        let part = match framing {
            Framing::Empty => return Ok(None),
            Framing::Length(length) if length > BODY_MAX => return Err(Status::ContentTooLarge),
            Framing::Length(length) => Part::Rest(length),
            Framing::Chunked => Part::ChunkSize,
        };
        Ok(Some(Body { part, total: 0, line: Vec::new(), trailer: 0 }))
    }

    /// Takes what belongs to the content from the front of the input: how many bytes, and whether that is the
    /// end.
    pub fn take(&mut self, input: &[u8]) -> Result<(usize, bool), Status> {
        let mut used = 0;
        while used < input.len() && self.part != Part::Done {
            used += match self.part {
                Part::Rest(left) => self.skip(&input[used..], left, Part::Rest, Part::Done),
                Part::Chunk(left) => self.skip(&input[used..], left, Part::Chunk, Part::ChunkEnd),
                _ => self.take_line(&input[used..])?,
            };
        }
        Ok((used, self.part == Part::Done))
    }

    /// Bytes of memory kept of a line that has not come whole.
    pub fn held(&self) -> usize {
        self.line.capacity()
    }

    fn skip(&mut self, input: &[u8], left: u64, more: fn(u64) -> Part, end: Part) -> usize {
        let used = left.min(input.len() as u64);
        self.part = if used == left { end } else { more(left - used) };
        used as usize
    }

    fn take_line(&mut self, input: &[u8]) -> Result<usize, Status> {
        let used = memchr(b'\n', input).map_or(input.len(), |end| end + 1);
        self.line.extend_from_slice(&input[..used]);
        if self.line.len() > LINE_MAX {
            return Err(Status::BadRequest);
        }
        if self.line.ends_with(b"\n") {
            let line = core::mem::take(&mut self.line);
            self.end_line(&line)?;
        }
        Ok(used)
    }

    fn end_line(&mut self, line: &[u8]) -> Result<(), Status> {
        let is_empty = line.trim_ascii_end().is_empty();
        self.part = match self.part {
            Part::ChunkSize => self.begin_chunk(line)?,
            Part::ChunkEnd if is_empty => Part::ChunkSize,
            Part::ChunkEnd => return Err(Status::BadRequest),
            _ if is_empty => Part::Done,
            _ => {
                self.trailer += line.len();
                if self.trailer > TRAILER_MAX {
                    return Err(Status::HeaderFieldsTooLarge);
                }
                Part::Trailer
            }
        };
        Ok(())
    }

    fn begin_chunk(&mut self, line: &[u8]) -> Result<Part, Status> {
        match httparse::parse_chunk_size(line) {
            Ok(httparse::Status::Complete((_, 0))) => Ok(Part::Trailer),
            Ok(httparse::Status::Complete((_, size))) => {
                self.total = self.total.saturating_add(size);
                if self.total > BODY_MAX {
                    return Err(Status::ContentTooLarge);
                }
                Ok(Part::Chunk(size))
            }
            _ => Err(Status::BadRequest),
        }
    }
}
