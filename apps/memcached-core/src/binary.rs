//! The binary protocol: a header of 24 bytes, extras, key, value. Described in memcached's
//! `doc/protocol-binary.xml`; numbers are big-endian.

use crate::server::Server;
use crate::shard::{Mode, Outcome, Shard, Sum, Update};
use crate::slab::Index;
use crate::store::Facts;
use crate::value::Incoming;
use crate::{KEY_MAX, VERSION, stats};
use lock_api::RawMutex;
use nom_port::buffer::{Asked, Buffer, Sink};

/// First byte of a request.
pub(crate) const MAGIC: u8 = 0x80;
const MAGIC_REPLY: u8 = 0x81;

/// Bytes of a header.
pub(crate) const HEADER_LEN: usize = 24;

/// An expiry time that asks not to make a number where there is none.
const DO_NOT_CREATE: u32 = u32::MAX;

/// What a command does, its quiet form aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Get { key: bool },
    Update(Mode),
    Delete,
    Arithmetic { increment: bool },
    Quit,
    Flush,
    Noop,
    Version,
    Stat,
    Touch,
    GetAndTouch { key: bool },
}

/// The commands. SASL's are not among them, as in a memcached that was started without it.
fn decode(opcode: u8) -> Option<(Action, bool)> {
    let loud = |action| Some((action, false));
    let quiet = |action| Some((action, true));
    match opcode {
        0x00 => loud(Action::Get { key: false }),
        0x01 => loud(Action::Update(Mode::Set)),
        0x02 => loud(Action::Update(Mode::Add)),
        0x03 => loud(Action::Update(Mode::Replace)),
        0x04 => loud(Action::Delete),
        0x05 => loud(Action::Arithmetic { increment: true }),
        0x06 => loud(Action::Arithmetic { increment: false }),
        0x07 => loud(Action::Quit),
        0x08 => loud(Action::Flush),
        0x09 => quiet(Action::Get { key: false }),
        0x0a => loud(Action::Noop),
        0x0b => loud(Action::Version),
        0x0c => loud(Action::Get { key: true }),
        0x0d => quiet(Action::Get { key: true }),
        0x0e => loud(Action::Update(Mode::Append)),
        0x0f => loud(Action::Update(Mode::Prepend)),
        0x10 => loud(Action::Stat),
        0x11 => quiet(Action::Update(Mode::Set)),
        0x12 => quiet(Action::Update(Mode::Add)),
        0x13 => quiet(Action::Update(Mode::Replace)),
        0x14 => quiet(Action::Delete),
        0x15 => quiet(Action::Arithmetic { increment: true }),
        0x16 => quiet(Action::Arithmetic { increment: false }),
        0x17 => quiet(Action::Quit),
        0x18 => quiet(Action::Flush),
        0x19 => quiet(Action::Update(Mode::Append)),
        0x1a => quiet(Action::Update(Mode::Prepend)),
        0x1c => loud(Action::Touch),
        0x1d => loud(Action::GetAndTouch { key: false }),
        0x1e => quiet(Action::GetAndTouch { key: false }),
        0x23 => loud(Action::GetAndTouch { key: true }),
        0x24 => quiet(Action::GetAndTouch { key: true }),
        _ => None,
    }
}

/// Status of a reply, with the text that goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    NotFound = 0x01,
    Exists = 0x02,
    TooLarge = 0x03,
    Invalid = 0x04,
    NotStored = 0x05,
    NonNumeric = 0x06,
    Unknown = 0x81,
    OutOfMemory = 0x82,
}

impl Status {
    fn text(self) -> &'static str {
        match self {
            Status::NotFound => "Not found",
            Status::Exists => "Data exists for key.",
            Status::TooLarge => "Too large.",
            Status::Invalid => "Invalid arguments",
            Status::NotStored => "Not stored.",
            Status::NonNumeric => "Non-numeric server-side value for incr or decr",
            Status::Unknown => "Unknown command",
            Status::OutOfMemory => "Out of memory allocating item",
        }
    }
}

/// The header of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    magic: u8,
    opcode: u8,
    key_len: u16,
    extras_len: u8,
    body_len: u32,
    opaque: [u8; 4],
    cas: u64,
}

/// What follows the head of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The next request.
    Done,
    /// The value of this one: so many bytes.
    Value(usize),
    /// Bytes to skip.
    Skip(usize),
    /// The client is done.
    Close,
    /// What follows cannot be told.
    Broken,
}

impl Header {
    /// The header at the front of `bytes`, if it is there whole.
    #[inline]
    pub(crate) fn parse(bytes: &[u8]) -> Option<Header> {
        let bytes: &[u8; HEADER_LEN] = bytes.first_chunk()?;
        let [magic, opcode, k0, k1, extras_len, _, _, _, b0, b1, b2, b3, o0, o1, o2, o3, ..] = *bytes;
        let cas = bytes.last_chunk().map_or(0, |cas| u64::from_be_bytes(*cas));
        Some(Header {
            magic,
            opcode,
            key_len: u16::from_be_bytes([k0, k1]),
            extras_len,
            body_len: u32::from_be_bytes([b0, b1, b2, b3]),
            opaque: [o0, o1, o2, o3],
            cas,
        })
    }

    /// Bytes of header, extras and key; of the header alone if the rest makes no sense.
    #[inline]
    pub(crate) fn head_len(&self) -> usize {
        if self.is_sound() { HEADER_LEN + self.extras() + self.key() } else { HEADER_LEN }
    }

    fn is_sound(&self) -> bool {
        self.magic == MAGIC && self.key() <= KEY_MAX && self.key() + self.extras() <= self.body()
    }

    fn key(&self) -> usize {
        usize::from(self.key_len)
    }

    fn extras(&self) -> usize {
        usize::from(self.extras_len)
    }

    fn body(&self) -> usize {
        self.body_len as usize
    }

    /// Bytes of the value.
    fn value(&self) -> usize {
        self.body() - self.key() - self.extras()
    }

    fn suits(&self, action: Action) -> bool {
        let (extras, key, value) = (self.extras(), self.key() > 0, self.value() > 0);
        match action {
            Action::Get { .. } | Action::Delete => extras == 0 && key && !value,
            Action::Update(Mode::Append | Mode::Prepend) => extras == 0 && key,
            Action::Update(_) => extras == 8 && key,
            Action::Arithmetic { .. } => extras == 20 && key && !value,
            Action::Quit | Action::Noop | Action::Version => self.body() == 0,
            Action::Flush => (extras == 0 || extras == 4) && !key && !value,
            Action::Stat => extras == 0,
            Action::Touch | Action::GetAndTouch { .. } => extras == 4 && key,
        }
    }

    /// The header of a reply.
    #[inline]
    fn reply(&self, status: u16, lens: (usize, usize, usize), cas: u64) -> [u8; HEADER_LEN] {
        let (extras, key, value) = lens;
        let body = (extras + key + value) as u32;
        let mut header = [0; HEADER_LEN];
        header[0] = MAGIC_REPLY;
        header[1] = self.opcode;
        header[2..4].copy_from_slice(&(key as u16).to_be_bytes());
        header[4] = extras as u8;
        header[6..8].copy_from_slice(&status.to_be_bytes());
        header[8..12].copy_from_slice(&body.to_be_bytes());
        header[12..16].copy_from_slice(&self.opaque);
        header[16..24].copy_from_slice(&cas.to_be_bytes());
        header
    }

    fn send<B: Buffer>(&self, status: u16, lens: (usize, usize, usize), cas: u64, sink: &mut impl Sink<B>) {
        sink.copy(&self.reply(status, lens, cas));
    }

    fn send_error<B: Buffer>(&self, status: Status, sink: &mut impl Sink<B>) {
        let text = status.text();
        self.send(status as u16, (0, 0, text.len()), 0, sink);
        sink.copy(text.as_bytes());
    }

    fn send_done<B: Buffer>(&self, quiet: bool, cas: u64, sink: &mut impl Sink<B>) {
        if !quiet {
            self.send(0, (0, 0, 0), cas, sink);
        }
    }
}

fn word(extras: &[u8], at: usize) -> u32 {
    extras.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

fn double_word(extras: &[u8], at: usize) -> u64 {
    u64::from(word(extras, at)) << 32 | u64::from(word(extras, at + 4))
}

/// Says what a sound command is about, to who tells apart whom it is for.
#[inline]
pub(crate) fn tell<B: Buffer>(head: &[u8], sink: &mut impl Sink<B>) {
    if sink.tells_apart()
        && let Some(header) = Header::parse(head)
        && let Some(key) = head.get(HEADER_LEN + header.extras()..).filter(|key| !key.is_empty())
    {
        sink.asked(Asked::Key(key));
    }
}

/// Carries out a command that has no value; of one that has, says how long the value is.
pub(crate) fn begin<B: Buffer, R: RawMutex>(
    server: &mut Server<B, R>,
    header: &Header,
    head: &[u8],
    sink: &mut impl Sink<B>,
) -> Next {
    if !header.is_sound() {
        return refuse(header, sink);
    }
    let (extras, key) = head[HEADER_LEN..].split_at(header.extras());
    tell(head, sink);
    let Some((action, quiet)) = decode(header.opcode) else {
        header.send_error(Status::Unknown, sink);
        return skip(header);
    };
    if !header.suits(action) {
        header.send_error(Status::Invalid, sink);
        return Next::Broken;
    }
    match action {
        Action::Get { key: with_key } => {
            let mut shard = server.shard(key);
            let found = shard.fetch(key);
            server.tell_fetch(&shard, key, found);
            send_found(&shard, header, found, key, (with_key, true, quiet), sink);
        }
        Action::Touch => {
            let mut shard = server.shard(key);
            let found = shard.fetch_and_touch(key, word(extras, 0).into());
            server.tell_fetch(&shard, key, found);
            send_found(&shard, header, found, key, (false, false, quiet), sink);
        }
        Action::GetAndTouch { key: with_key } => {
            let mut shard = server.shard(key);
            let found = shard.fetch_and_touch(key, word(extras, 0).into());
            server.tell_fetch(&shard, key, found);
            send_found(&shard, header, found, key, (with_key, true, quiet), sink);
        }
        Action::Update(mode) => return admit(server, header, mode, extras, key, sink),
        Action::Delete => match server.shard(key).delete(key, header.cas) {
            Outcome::Done(_) => header.send_done(quiet, 0, sink),
            Outcome::Exists => header.send_error(Status::Exists, sink),
            _ => header.send_error(Status::NotFound, sink),
        },
        Action::Arithmetic { increment } => {
            let shard = &mut server.shard(key);
            arithmetic(shard, header, (increment, quiet), extras, key, sink);
        }
        Action::Flush => {
            server.flush(word(extras, 0).into());
            header.send_done(quiet, 0, sink);
        }
        Action::Noop => header.send_done(false, 0, sink),
        Action::Version => {
            header.send(0, (0, 0, VERSION.len()), 0, sink);
            sink.copy(VERSION.as_bytes());
        }
        Action::Stat => stat(server, header, key, sink),
        Action::Quit => {
            header.send_done(quiet, 0, sink);
            return Next::Close;
        }
    }
    skip(header)
}

fn refuse<B: Buffer>(header: &Header, sink: &mut impl Sink<B>) -> Next {
    if header.magic == MAGIC {
        let lengths_agree = header.key() + header.extras() <= header.body();
        header.send_error(if lengths_agree { Status::Invalid } else { Status::Unknown }, sink);
    }
    Next::Broken
}

/// memcached counts extras and key of an unknown command twice here; a client cannot mean that.
fn skip(header: &Header) -> Next {
    match header.value() {
        0 => Next::Done,
        len => Next::Skip(len),
    }
}

/// Sends an item or that there is none: with its key, with its value, quietly.
#[inline]
fn send_found<B: Buffer>(
    shard: &Shard<B>,
    header: &Header,
    found: Option<Index>,
    key: &[u8],
    (with_key, with_value, quiet): (bool, bool, bool),
    sink: &mut impl Sink<B>,
) {
    let sent_key = if with_key { key } else { &[] };
    let Some(index) = found else {
        return match (quiet, with_key) {
            (true, _) => {}
            (false, false) => header.send_error(Status::NotFound, sink),
            (false, true) => {
                header.send(Status::NotFound as u16, (0, key.len(), 0), 0, sink);
                sink.copy(key);
            }
        };
    };
    if quiet && !with_value {
        return;
    }
    let item = shard.item(index);
    let len = if with_value { item.len() } else { 0 };
    let mut head = [0; HEADER_LEN + 4];
    head[..HEADER_LEN].copy_from_slice(&header.reply(0, (4, sent_key.len(), len), item.cas));
    head[HEADER_LEN..].copy_from_slice(&item.flags.to_be_bytes());
    sink.copy(&head);
    if with_key {
        sink.copy(key);
    }
    if with_value {
        item.send(sink);
    }
}

fn facts<B: Buffer>(shard: &Shard<B>, mode: Mode, extras: &[u8]) -> Facts {
    match mode {
        Mode::Append | Mode::Prepend => Facts::default(),
        _ => Facts {
            flags: word(extras, 0),
            expires: shard.second(word(extras, 4).into()),
            ..Facts::default()
        },
    }
}

fn admit<B: Buffer, R: RawMutex>(
    server: &Server<B, R>,
    header: &Header,
    mode: Mode,
    extras: &[u8],
    key: &[u8],
    sink: &mut impl Sink<B>,
) -> Next {
    let flags = if matches!(mode, Mode::Append | Mode::Prepend) { 0 } else { word(extras, 0) };
    if server.fits(key, flags, header.value()) {
        return Next::Value(header.value());
    }
    server.shard(key).refuse(key, mode == Mode::Set);
    header.send_error(Status::TooLarge, sink);
    skip(header)
}

/// Stores the value of the command at whose head, which [`begin`] has seen, it came, and answers.
pub(crate) fn complete<B: Buffer, R: RawMutex>(
    server: &Server<B, R>,
    head: &[u8],
    value: Incoming<'_, B>,
    sink: &mut impl Sink<B>,
) {
    let header = Header::parse(head).expect("begin has seen the header");
    let Some((Action::Update(asked), quiet)) = decode(header.opcode) else {
        unreachable!("begin asks for a value only to store it");
    };
    let (extras, key) = head[HEADER_LEN..].split_at(header.extras());
    let extends = matches!(asked, Mode::Append | Mode::Prepend);
    let mode = if header.cas != 0 && !extends { Mode::Cas { stale_wins: false } } else { asked };
    let mut shard = server.shard(key);
    let update = Update { key, mode, facts: facts(&shard, asked, extras), cas: header.cas };
    let status = match (server.update(&mut shard, &update, value), mode) {
        (Outcome::Done(cas), _) => return header.send_done(quiet, cas, sink),
        (Outcome::Exists, _) | (Outcome::Refused, Mode::Add) => Status::Exists,
        (Outcome::NotFound, _) | (Outcome::Refused, Mode::Replace) => Status::NotFound,
        (Outcome::Refused, _) => Status::NotStored,
        (Outcome::OutOfMemory, _) => {
            if asked == Mode::Set {
                shard.forget(key);
            }
            Status::OutOfMemory
        }
    };
    header.send_error(status, sink);
}

fn arithmetic<B: Buffer>(
    shard: &mut Shard<B>,
    header: &Header,
    (increment, quiet): (bool, bool),
    extras: &[u8],
    key: &[u8],
    sink: &mut impl Sink<B>,
) {
    let (delta, initial, exptime) = (double_word(extras, 0), double_word(extras, 8), word(extras, 16));
    let mut sum = shard.sum(key, increment, delta, header.cas);
    if matches!(sum, Sum::NotFound) && exptime != DO_NOT_CREATE {
        sum = if shard.fits(key, 0, 20) {
            shard.put_number(key, shard.second(exptime.into()), initial)
        } else {
            Sum::OutOfMemory
        };
    }
    let status = match sum {
        Sum::Done { .. } if quiet => return,
        Sum::Done { value, index } => {
            header.send(0, (0, 0, 8), shard.item(index).cas, sink);
            return sink.copy(&value.to_be_bytes());
        }
        Sum::NotFound => Status::NotFound,
        Sum::CasMismatch => Status::Exists,
        Sum::NonNumeric => Status::NonNumeric,
        Sum::OutOfMemory => Status::OutOfMemory,
    };
    header.send_error(status, sink);
}

/// One reply for each counter, and one without a name for the end.
fn stat<B: Buffer, R: RawMutex>(
    server: &Server<B, R>,
    header: &Header,
    name: &[u8],
    sink: &mut impl Sink<B>,
) {
    let known = stats::each(server, name, &mut |name, value| {
        header.send(0, (0, name.len(), value.len()), 0, sink);
        sink.copy(name.as_bytes());
        sink.copy(value.as_bytes());
    });
    match known {
        true => header.send(0, (0, 0, 0), 0, sink),
        false => header.send_error(Status::NotFound, sink),
    }
}
