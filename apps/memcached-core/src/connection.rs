//! One client's stream: finds where commands and values begin and end, whatever the pieces it comes in.
//!
//! A command that lies whole in one received slice is carried out from there, its value kept there. Otherwise
//! its bytes are collected; once the value is there, the command is read again from what was collected, so
//! both ways end in the same code.

use crate::binary::{self, HEADER_LEN, Header, MAGIC};
use crate::find::find;
use crate::meta;
use crate::server::Server;
use crate::text::{self, Refusal, Request, send_line};
use crate::value::{Gather, Incoming};
use alloc::vec::Vec;
use lock_api::RawMutex;
use nom_port::buffer::{Asked, Buffer, Sink, Slice};
use nom_service::Stream;

/// Longest command line in bytes, its end not counted, unless it names many keys.
const LINE_MAX: usize = 2048;

/// Longest line of a command that names many keys. memcached has no limit there; a client must not be able to
/// make the server keep more.
const KEYS_LINE_MAX: usize = 256 << 10;

/// Memory that an idle connection may keep for commands to come.
const KEEP_MAX: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Text,
    Binary,
}

#[derive(Debug)]
enum State<B> {
    /// A command, or the rest of one, comes next.
    Command,
    /// The rest of the value of the command that was collected comes next.
    Value(Value<B>),
    /// So many bytes are of no interest.
    Skip(usize),
    /// It only hears what others do (`watch`).
    Watching,
    Closed,
}

#[derive(Debug)]
struct Value<B> {
    gather: Gather<B>,
    /// Bytes of the value to come.
    left: usize,
    /// Bytes of its end to come, of the text protocol.
    end_left: usize,
    /// Whether the end was, so far, what it must be.
    end_good: bool,
}

/// One client's stream.
#[derive(Debug)]
pub struct Connection<B> {
    protocol: Option<Protocol>,
    /// Bytes of a command that did not come whole with its value.
    command: Vec<u8>,
    state: State<B>,
    /// Commands carried out or refused, since they were last asked for.
    done: u32,
    /// Which of the server's clients it is; 0 for one of whom the server has not heard.
    number: u32,
}

impl<B: Buffer> Default for Connection<B> {
    fn default() -> Connection<B> {
        Connection::new()
    }
}

impl<B: Buffer> Connection<B> {
    /// A stream of which nothing was received. Its first byte chooses the protocol.
    pub fn new() -> Connection<B> {
        Connection::of(0)
    }

    /// The stream of a client that the server knows by a number.
    pub(crate) fn of(number: u32) -> Connection<B> {
        Connection { protocol: None, command: Vec::new(), state: State::Command, done: 0, number }
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Writes what a client that watches has yet to hear.
    pub fn news<R: RawMutex>(&mut self, server: &Server<B, R>, sink: &mut impl Sink<B>) {
        if matches!(self.state, State::Watching)
            && let Some(lines) = server.shared().watch.take(self.number)
        {
            sink.copy(lines.as_bytes());
        }
    }

    /// Bytes of memory kept of commands that have not come whole.
    pub fn held(&self) -> usize {
        let value = if let State::Value(value) = &self.state { value.gather.pinned() } else { 0 };
        self.command.capacity() + value
    }

    /// How many commands were carried out or refused since the last call.
    #[inline]
    pub fn take_done(&mut self) -> u32 {
        core::mem::take(&mut self.done)
    }

    /// Takes the next piece of the stream and writes the replies to the commands that it completes. After
    /// [`Stream::Close`] further pieces are ignored.
    pub fn receive<R: RawMutex>(
        &mut self,
        server: &mut Server<B, R>,
        mut input: Slice<B>,
        sink: &mut impl Sink<B>,
    ) -> Stream {
        server.counts.bytes_read.add(input.len() as u64);
        server.client = self.number;
        if self.protocol.is_none() {
            self.protocol =
                input.first().map(|&byte| if byte == MAGIC { Protocol::Binary } else { Protocol::Text });
        }
        while !input.is_empty() {
            let is_skipping = matches!(self.state, State::Skip(_) | State::Watching);
            let used = match &mut self.state {
                State::Command if self.protocol == Some(Protocol::Text) => self.text(server, &input, sink),
                State::Command => self.binary(server, &input, sink),
                State::Value(_) => self.value(server, &input, sink),
                State::Skip(left) => {
                    let used = input.len().min(*left);
                    *left -= used;
                    if *left == 0 {
                        self.state = State::Command;
                    }
                    used
                }
                State::Watching => input.len(),
                State::Closed => return Stream::Close,
            };
            input.advance(used);
            let is_within = is_skipping || matches!(self.state, State::Value(_)) || !self.command.is_empty();
            self.done += u32::from(!is_within);
        }
        if matches!(self.state, State::Closed) { Stream::Close } else { Stream::Open }
    }

    /// Takes a command line, or as much as there is of it, and says how many bytes that were.
    #[inline]
    fn text<R: RawMutex>(
        &mut self,
        server: &mut Server<B, R>,
        input: &Slice<B>,
        sink: &mut impl Sink<B>,
    ) -> usize {
        if self.command.is_empty()
            && let Some((key, used)) = text::lone_get(input)
        {
            if sink.tells_apart() {
                sink.asked(Asked::Key(key));
            }
            text::get_one(server, key, sink);
            return used;
        }
        let Some(end) = find(b'\n', input) else { return self.collect_line(server, input, sink) };
        if self.command.is_empty() {
            return self.line(server, &input[..end], input, end + 1, sink);
        }
        self.command.extend_from_slice(&input[..end]);
        let command = core::mem::take(&mut self.command);
        let used = self.line(server, &command, input, end + 1, sink);
        self.keep_room(command);
        used
    }

    fn collect_line<R: RawMutex>(
        &mut self,
        server: &mut Server<B, R>,
        input: &Slice<B>,
        sink: &mut impl Sink<B>,
    ) -> usize {
        self.command.extend_from_slice(input);
        if self.command.len() > line_max(&self.command) {
            self.close_long(server, sink);
        }
        input.len()
    }

    fn close_long<R: RawMutex>(&mut self, server: &mut Server<B, R>, sink: &mut impl Sink<B>) {
        send_line(sink, "CLIENT_ERROR line too long");
        self.close(server);
    }

    /// Ends the connection because of what the client sent.
    fn close<R: RawMutex>(&mut self, server: &mut Server<B, R>) {
        server.counts.protocol_errors.add(1);
        self.command = Vec::new();
        self.state = State::Closed;
    }

    /// Carries out one command line; `after` is where the input goes on behind it.
    fn line<R: RawMutex>(
        &mut self,
        server: &mut Server<B, R>,
        line: &[u8],
        input: &Slice<B>,
        after: usize,
        sink: &mut impl Sink<B>,
    ) -> usize {
        if line.len() > LINE_MAX && line.len() > line_max(line) {
            self.close_long(server, sink);
            return after;
        }
        let line = if line.len() > 1 { line.strip_suffix(b"\r").unwrap_or(line) } else { line };
        let request = match text::parse(line) {
            Ok(request) => request,
            Err(refusal) => {
                self.refuse(server, refusal, sink);
                return after;
            }
        };
        text::tell(&request, sink);
        let (len, admitted) = match &request {
            Request::Update { update, quiet } => {
                let admitted = text::admit(server, update);
                (update.len, admitted.map_err(|line| if *quiet { None } else { Some(line) }))
            }
            Request::Meta(request) if request.command == meta::Command::Set => {
                (request.len, meta::admit(server, request).map_err(Some))
            }
            Request::Get { keys, cas, exptime } => {
                text::get_all(server, keys.clone(), *cas, *exptime, sink);
                return after;
            }
            Request::Watch { wanted } => {
                self.watch(server, *wanted, sink);
                return after;
            }
            _ => {
                if !text::execute(server, &request, sink) {
                    self.state = State::Closed;
                }
                return after;
            }
        };
        if let Err(message) = admitted {
            self.refuse(server, Refusal { line: message, skip: len + 2, close: false }, sink);
            return after;
        }
        let end = after + len;
        if let Some(ends) = input.get(end..end + 2) {
            let value = (ends == b"\r\n").then(|| Incoming::of(input, after..end));
            complete_line(server, &request, value, sink);
            return end + 2;
        }
        self.command = line.to_vec();
        self.state = State::Value(Value { gather: Gather::new(), left: len, end_left: 2, end_good: true });
        after
    }

    /// From now on the client only hears of what is `wanted`.
    fn watch<R: RawMutex>(&mut self, server: &Server<B, R>, wanted: u8, sink: &mut impl Sink<B>) {
        if self.number == 0 {
            return send_line(sink, "ERROR");
        }
        if !server.shared().watch.begin(self.number, wanted) {
            return send_line(sink, "WATCHER_TOO_MANY log watcher limit reached");
        }
        self.state = State::Watching;
        send_line(sink, "OK");
    }

    fn refuse<R: RawMutex>(&mut self, server: &mut Server<B, R>, refusal: Refusal, sink: &mut impl Sink<B>) {
        if let Some(line) = refusal.line {
            send_line(sink, line);
        }
        if refusal.close {
            self.close(server);
        } else if refusal.skip > 0 {
            self.state = State::Skip(refusal.skip);
        }
    }

    /// Takes a piece of a value.
    fn value<R: RawMutex>(
        &mut self,
        server: &mut Server<B, R>,
        input: &Slice<B>,
        sink: &mut impl Sink<B>,
    ) -> usize {
        let State::Value(value) = &mut self.state else { return 0 };
        let used = value.take(input);
        if value.left > 0 || value.end_left > 0 {
            return used;
        }
        let State::Value(mut value) = core::mem::replace(&mut self.state, State::Command) else {
            return used;
        };
        let command = core::mem::take(&mut self.command);
        if self.protocol == Some(Protocol::Binary) {
            binary::tell(&command, sink);
            binary::complete(server, &command, value.gather.finish(), sink);
        } else {
            let whole = value.end_good.then(|| value.gather.finish());
            let request = text::parse(&command).expect("it was understood when it came");
            text::tell(&request, sink);
            complete_line(server, &request, whole, sink);
        }
        self.keep_room(command);
        used
    }

    /// Takes a binary command without its value, or as much as there is of it.
    fn binary<R: RawMutex>(
        &mut self,
        server: &mut Server<B, R>,
        input: &Slice<B>,
        sink: &mut impl Sink<B>,
    ) -> usize {
        if self.command.is_empty()
            && let Some(header) = Header::parse(input)
            && let Some(head) = input.get(..header.head_len())
        {
            return self.head(server, &header, head, input, head.len(), sink);
        }
        let mut used = self.collect_to(HEADER_LEN, input, 0);
        let Some(header) = Header::parse(&self.command) else { return used };
        used = self.collect_to(header.head_len(), input, used);
        if self.command.len() < header.head_len() {
            return used;
        }
        let command = core::mem::take(&mut self.command);
        let used = self.head(server, &header, &command, input, used, sink);
        self.keep_room(command);
        used
    }

    /// Collects input from `from` on until the command has `len` bytes, and says where it goes on.
    fn collect_to(&mut self, len: usize, input: &Slice<B>, from: usize) -> usize {
        let missing = len.saturating_sub(self.command.len()).min(input.len() - from);
        self.command.extend_from_slice(&input[from..from + missing]);
        from + missing
    }

    /// Carries out a binary command, or takes its value first; `after` is where the input goes on behind its
    /// head.
    fn head<R: RawMutex>(
        &mut self,
        server: &mut Server<B, R>,
        header: &Header,
        head: &[u8],
        input: &Slice<B>,
        after: usize,
        sink: &mut impl Sink<B>,
    ) -> usize {
        match binary::begin(server, header, head, sink) {
            binary::Next::Done => after,
            binary::Next::Close => {
                self.state = State::Closed;
                after
            }
            binary::Next::Broken => {
                self.close(server);
                after
            }
            binary::Next::Skip(len) => {
                self.state = State::Skip(len);
                after
            }
            binary::Next::Value(len) if input.len() - after >= len => {
                binary::complete(server, head, Incoming::of(input, after..after + len), sink);
                after + len
            }
            binary::Next::Value(len) => {
                self.command = head.to_vec();
                let gather = Gather::new();
                self.state = State::Value(Value { gather, left: len, end_left: 0, end_good: true });
                after
            }
        }
    }

    /// Keeps the memory of a command that was carried out, unless it was uncommonly long.
    fn keep_room(&mut self, mut command: Vec<u8>) {
        if self.command.is_empty() && command.capacity() <= KEEP_MAX {
            command.clear();
            self.command = command;
        }
    }
}

impl<B: Buffer> Value<B> {
    /// Takes what belongs to the value from the front of the input, and says how many bytes that were.
    fn take(&mut self, input: &Slice<B>) -> usize {
        let len = input.len().min(self.left);
        self.gather.push(input, 0..len);
        self.left -= len;
        let ends = input.len().saturating_sub(len).min(self.end_left);
        for &byte in &input[len..len + ends] {
            self.end_good &= byte == if self.end_left == 2 { b'\r' } else { b'\n' };
            self.end_left -= 1;
        }
        len + ends
    }
}

/// Stores what a command line announced, `None` if it did not end as it should.
fn complete_line<B: Buffer, R: RawMutex>(
    server: &mut Server<B, R>,
    request: &Request<'_>,
    value: Option<Incoming<'_, B>>,
    sink: &mut impl Sink<B>,
) {
    match (request, value) {
        (Request::Update { update, quiet }, Some(value)) => {
            text::complete(server, update, value, *quiet, sink)
        }
        (Request::Update { quiet: true, .. }, None) => {}
        (Request::Meta(request), Some(value)) => {
            let mut sink: &mut dyn Sink<B> = sink;
            meta::complete(server, request, value, &mut sink)
        }
        _ => send_line(sink, "CLIENT_ERROR bad data chunk"),
    }
}

fn line_max(line: &[u8]) -> usize {
    let names_keys =
        ["get ", "gets ", "gat ", "gats "].iter().any(|command| line.starts_with(command.as_bytes()));
    if names_keys { KEYS_LINE_MAX } else { LINE_MAX }
}
