//! One client's stream: finds where requests begin and end, whatever the pieces it comes in.

use crate::body::Body;
use crate::reply;
use crate::request::{self, Persistence, Request, Status};
use crate::server::Server;
use alloc::vec::Vec;
use memchr::memchr;
use nom_port::buffer::{Buffer, Sink, Slice};
use nom_service::Stream;

/// Most bytes of a head.
const HEAD_MAX: usize = 16 << 10;

/// Longest time in seconds that a request may take to come.
const REQUEST_TIME: u64 = 20;

/// Longest time in seconds that a connection may be idle.
const IDLE_TIME: u64 = 60;

#[derive(Debug)]
enum State {
    /// A head, or the rest of one, comes next.
    Head,
    /// The content of the request whose head was kept comes next.
    Body(Body),
    Closed,
}

/// One client's stream.
#[derive(Debug)]
pub struct Connection {
    state: State,
    /// Bytes of a head that has not come whole, or whose content has not.
    head: Vec<u8>,
    /// Where the last line of these begins.
    line: usize,
    /// Second at which the connection became idle or the request began, or at which the client last took
    /// something of a reply.
    since: u64,
}

impl Connection {
    /// A stream of which nothing was received. `unix` is the time in seconds since 1970.
    pub fn new(unix: u64) -> Connection {
        Connection { state: State::Head, head: Vec::new(), line: 0, since: unix }
    }

    /// Takes the next piece of the stream and writes the replies to the requests that it completes. After
    /// [`Stream::Close`] further pieces are ignored.
    pub fn receive<B: Buffer>(
        &mut self,
        server: &mut Server<B>,
        mut input: Slice<B>,
        sink: &mut impl Sink<B>,
    ) -> Stream {
        while !input.is_empty() {
            let used = match &mut self.state {
                State::Head => self.take_head(server, &input, sink),
                State::Body(body) => match body.take(&input) {
                    Ok((used, true)) => {
                        let head = core::mem::take(&mut self.head);
                        self.end_request(server, request::parse(&head), sink);
                        used
                    }
                    Ok((used, false)) => used,
                    Err(status) => self.refuse(server, status, sink),
                },
                State::Closed => return Stream::Close,
            };
            input.advance(used);
        }
        self.flow()
    }

    /// Bytes of memory kept of a request that has not come whole.
    pub fn held(&self) -> usize {
        let body = if let State::Body(body) = &self.state { body.held() } else { 0 };
        self.head.capacity() + body
    }

    /// The client has taken a part of what it was sent. The limits count from here on: a long reply to a
    /// client that reads it is no idleness, and what it asks for meanwhile may have to wait.
    pub fn progressed<B: Buffer>(&mut self, server: &Server<B>) {
        self.since = server.now;
    }

    /// Ends a connection whose client takes too long; to be called about once a second, after
    /// [`Connection::progressed`] if that is the case.
    pub fn check_time<B: Buffer>(&mut self, server: &mut Server<B>, sink: &mut impl Sink<B>) -> Stream {
        let is_idle = matches!(self.state, State::Head) && self.head.is_empty();
        let limit = if is_idle { IDLE_TIME } else { REQUEST_TIME };
        if !matches!(self.state, State::Closed) && server.now.saturating_sub(self.since) > limit {
            server.stats.timed_out += 1;
            if !is_idle {
                self.refuse(server, Status::RequestTimeout, sink);
            }
            self.state = State::Closed;
        }
        self.flow()
    }

    fn flow(&self) -> Stream {
        if matches!(self.state, State::Closed) { Stream::Close } else { Stream::Open }
    }

    /// Refuses what does not belong to a request that is understood, which ends the connection. All input is
    /// used.
    fn refuse<B: Buffer>(
        &mut self,
        server: &mut Server<B>,
        status: Status,
        sink: &mut impl Sink<B>,
    ) -> usize {
        reply::send_error(server, status, None, sink);
        self.state = State::Closed;
        self.head = Vec::new();
        0
    }

    /// Takes a head, or as much as there is of it, and says how many bytes that were.
    fn take_head<B: Buffer>(
        &mut self,
        server: &mut Server<B>,
        input: &Slice<B>,
        sink: &mut impl Sink<B>,
    ) -> usize {
        if !self.head.is_empty() {
            return self.continue_head(server, input, sink);
        }
        // Who pays may depend on what is asked for: that is read each time.
        if let Some((len, meaning)) = server.known.find(input).filter(|_| !sink.tells_apart()) {
            server.stats.requests += 1;
            reply::answer_known(server, meaning, sink);
            self.conclude(server.now, meaning.persistence);
            return len;
        }
        // Empty lines before a request are ignored (RFC 9112 section 2.2).
        let blank = input.iter().take_while(|&&byte| byte == b'\r' || byte == b'\n').count();
        let bytes = &input[blank..];
        if bytes.is_empty() {
            return blank;
        }
        self.since = server.now;
        match find_end(bytes, 0) {
            Ok(end) if end <= HEAD_MAX => {
                self.begin_request(server, &bytes[..end], sink);
                blank + end
            }
            Err(line) if bytes.len() <= HEAD_MAX => {
                self.head.extend_from_slice(bytes);
                self.line = line;
                input.len()
            }
            _ => self.refuse(server, too_long(bytes), sink),
        }
    }

    fn continue_head<B: Buffer>(
        &mut self,
        server: &mut Server<B>,
        input: &Slice<B>,
        sink: &mut impl Sink<B>,
    ) -> usize {
        let before = self.head.len();
        // One byte more than may be tells that it is too long.
        let room = (HEAD_MAX + 1).saturating_sub(before).min(input.len());
        self.head.extend_from_slice(&input[..room]);
        match find_end(&self.head, self.line) {
            Ok(end) if end <= HEAD_MAX => {
                let head = core::mem::take(&mut self.head);
                self.begin_request(server, &head[..end], sink);
                end - before
            }
            Err(line) if self.head.len() <= HEAD_MAX => {
                self.line = line;
                room
            }
            _ => {
                let status = too_long(&self.head);
                self.refuse(server, status, sink)
            }
        }
    }

    fn begin_request<B: Buffer>(&mut self, server: &mut Server<B>, head: &[u8], sink: &mut impl Sink<B>) {
        let request = request::parse(head);
        match request.and_then(|request| Body::new(request.framing)) {
            Ok(None) => {
                let file = self.end_request(server, request, sink);
                if let (Some(file), Ok(request)) = (file, request) {
                    server.known.remember(head, &request, file);
                }
            }
            Ok(Some(body)) => {
                if request.is_ok_and(|request| request.expects_continue) {
                    reply::send_continue(sink);
                }
                self.head = head.to_vec();
                self.state = State::Body(body);
            }
            Err(status) => {
                self.refuse(server, status, sink);
            }
        }
    }

    /// Answers a request; says with which file, if it found one.
    fn end_request<B: Buffer>(
        &mut self,
        server: &mut Server<B>,
        request: Result<Request<'_>, Status>,
        sink: &mut impl Sink<B>,
    ) -> Option<usize> {
        let request = match request {
            Ok(request) => request,
            Err(status) => {
                self.refuse(server, status, sink);
                return None;
            }
        };
        server.stats.requests += 1;
        let file = reply::answer(server, &request, sink);
        self.conclude(server.now, request.persistence);
        file
    }

    /// A request is answered at a time.
    fn conclude(&mut self, now: u64, persistence: Persistence) {
        self.since = now;
        self.line = 0;
        self.state = if persistence == Persistence::Close { State::Closed } else { State::Head };
    }
}

/// Where the head ends that begins at the front of `bytes`, its empty line included; else where the last line
/// begins. `line` is where a line is known to begin.
fn find_end(bytes: &[u8], mut line: usize) -> Result<usize, usize> {
    while let Some(len) = memchr(b'\n', &bytes[line..]) {
        let end = line + len + 1;
        if matches!(&bytes[line..end], b"\n" | b"\r\n") {
            return Ok(end);
        }
        line = end;
    }
    Err(line)
}

/// Whether it is the request line of a head that is too long, or its fields.
fn too_long(head: &[u8]) -> Status {
    match memchr(b'\n', &head[..head.len().min(HEAD_MAX)]) {
        None => Status::UriTooLong,
        Some(_) => Status::HeaderFieldsTooLarge,
    }
}
