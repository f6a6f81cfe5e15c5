//! The text protocol: one line a command, and a second one for a value.

use crate::find::{find, find_blank};
use crate::line::{LINE, Line, SHORT_KEY, SHORT_LINE, flags_and_len};
use crate::meta;
use crate::number;
use crate::server::Server;
use crate::shard::{Mode, Outcome, Sum, Update};
use crate::store::{Facts, Item};
use crate::value::Incoming;
use crate::{KEY_MAX, VERSION, watch};
use core::sync::atomic::Ordering::Relaxed;
use lock_api::RawMutex;
use nom_port::buffer::{Asked, Buffer, Sink};

mod stats;

/// Words that memcached takes from a line at a time; only `get` and its like read on.
const WORDS_MAX: usize = 23;

/// Longest value in bytes that a command may announce.
const LEN_MAX: u64 = i32::MAX as u64 - 2;

pub(crate) const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
const BAD_EXPTIME: &str = "CLIENT_ERROR invalid exptime argument";

/// Limits of memory that `cache_memlimit` takes, as in memcached.
const MEGABYTES_MIN: u64 = 8;
const MEGABYTES_MAX: u64 = 1_000_000_000;

/// A command line.
#[derive(Debug)]
pub(crate) enum Request<'a> {
    Get { keys: Words<'a>, cas: bool, exptime: Option<i64> },
    Update { update: TextUpdate<'a>, quiet: bool },
    Delete { key: &'a [u8], quiet: bool },
    Arithmetic { key: &'a [u8], increment: bool, delta: u64, quiet: bool },
    Touch { key: &'a [u8], exptime: i64, quiet: bool },
    FlushAll { delay: i64, quiet: bool },
    Verbosity { level: u64, quiet: bool },
    MemoryLimit { megabytes: u64, quiet: bool },
    Stats { words: Words<'a> },
    Watch { wanted: u8 },
    Version,
    Quit,
    Meta(meta::Request<'a>),
}

/// A command that stores the value on the next line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextUpdate<'a> {
    pub key: &'a [u8],
    pub mode: Mode,
    pub flags: u32,
    pub exptime: i64,
    pub cas: u64,
    /// Bytes of the value.
    pub len: usize,
}

/// A line that is no command, and what to answer; nothing if the client did not want to hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub line: Option<&'static str>,
    /// Bytes of a value to skip.
    pub skip: usize,
    /// Whether the connection ends.
    pub close: bool,
}

impl Refusal {
    pub(crate) fn new(line: &'static str) -> Refusal {
        Refusal { line: Some(line), skip: 0, close: false }
    }

    fn unless(quiet: bool, line: &'static str) -> Refusal {
        Refusal { line: (!quiet).then_some(line), skip: 0, close: false }
    }
}

const ERROR: Refusal = Refusal { line: Some("ERROR"), skip: 0, close: false };

/// The words of a line, as they stand between blanks.
#[derive(Clone, Debug)]
pub(crate) struct Words<'a> {
    rest: &'a [u8],
}

impl<'a> Words<'a> {
    pub(crate) fn of(line: &'a [u8]) -> Words<'a> {
        Words { rest: line }
    }

    /// The line from the first word on, if there is one.
    #[inline]
    fn rest_of_line(&self) -> Option<&'a [u8]> {
        let blanks = self.rest.iter().position(|byte| *byte != b' ')?;
        Some(&self.rest[blanks..])
    }

    /// The only word, if there are no more.
    #[inline]
    pub(crate) fn single(&self) -> Option<&'a [u8]> {
        if !self.rest.is_empty() && find(b' ', self.rest).is_none() {
            return Some(self.rest);
        }
        let mut words = self.clone();
        words.next().filter(|_| words.next().is_none())
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        while let [b' ', rest @ ..] = self.rest {
            self.rest = rest;
        }
        if self.rest.is_empty() {
            return None;
        }
        let end = match self.rest {
            [_, b' ', ..] => 1,
            rest => find(b' ', rest).unwrap_or(rest.len()),
        };
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        Some(word)
    }
}

/// Reads a command line, given without its end.
#[inline]
pub(crate) fn parse(line: &[u8]) -> Result<Request<'_>, Refusal> {
    // These two are most of all commands: they are told without comparing names.
    match line {
        [b'g', b'e', b't', b' ', rest @ ..] => return read_get(Words::of(rest), false),
        [b's', b'e', b't', b' ', rest @ ..] => return update(Words::of(rest), Mode::Set),
        _ => {}
    }
    let mut words = Words::of(line);
    let command = words.next().unwrap_or_default();
    match command {
        b"get" => read_get(words, false),
        b"gets" => read_get(words, true),
        b"gat" => get_and_touch(words, false),
        b"gats" => get_and_touch(words, true),
        b"set" => update(words, Mode::Set),
        b"add" => update(words, Mode::Add),
        b"replace" => update(words, Mode::Replace),
        b"append" => update(words, Mode::Append),
        b"prepend" => update(words, Mode::Prepend),
        b"cas" => update(words, Mode::Cas { stale_wins: false }),
        b"delete" => delete(words),
        b"incr" => arithmetic(words, true),
        b"decr" => arithmetic(words, false),
        b"touch" => touch(words),
        b"flush_all" => flush_all(words),
        b"verbosity" => verbosity(words),
        b"cache_memlimit" => memory_limit(words),
        b"slabs" => Err(slabs(words)),
        b"stats" => Ok(Request::Stats { words }),
        b"watch" => watch(words),
        b"version" => Ok(Request::Version),
        b"quit" => Ok(Request::Quit),
        b"shutdown" => Err(Refusal::new("ERROR: shutdown not enabled")),
        [b'm', letter] => meta::parse(*letter, line, words).map(Request::Meta),
        _ => Err(unknown(command, words)),
    }
}

/// What somebody wants to hear of others.
fn watch(words: Words<'_>) -> Result<Request<'_>, Refusal> {
    let mut wanted = 0;
    for word in words {
        wanted |= match word {
            b"fetchers" => watch::FETCHERS,
            b"mutations" => watch::MUTATIONS,
            _ => return Err(ERROR),
        };
    }
    Ok(Request::Watch { wanted: if wanted == 0 { watch::FETCHERS } else { wanted } })
}

/// Items have no slab classes between which pages could be moved.
fn slabs(mut words: Words<'_>) -> Refusal {
    let line = match (words.next(), words.next(), words.next()) {
        (Some(b"reassign"), Some(_), Some(_)) => "CLIENT_ERROR slab reassignment disabled",
        (Some(b"automove"), Some(level), _) => match number::unsigned_32(level) {
            None => BAD_FORMAT,
            Some(0) => "OK",
            Some(_) => "ERROR",
        },
        _ => "ERROR",
    };
    Refusal::new(line)
}

/// A stray HTTP request ends the connection, so that no browser can be made to store its body line by line.
fn unknown(command: &[u8], words: Words<'_>) -> Refusal {
    let last = words.take(WORDS_MAX - 1).last().unwrap_or(command);
    let close = last.starts_with(b"HTTP/");
    Refusal { line: (!close).then_some("ERROR"), skip: 0, close }
}

#[inline]
fn read_get(keys: Words<'_>, cas: bool) -> Result<Request<'_>, Refusal> {
    check_keys(keys.clone())?;
    Ok(Request::Get { keys, cas, exptime: None })
}

fn get_and_touch(mut words: Words<'_>, cas: bool) -> Result<Request<'_>, Refusal> {
    let exptime = words.next().ok_or(ERROR)?;
    let exptime = number::signed(exptime).ok_or(Refusal::new(BAD_EXPTIME))?;
    if words.clone().next().is_some() {
        check_keys(words.clone())?;
    }
    Ok(Request::Get { keys: words, cas, exptime: Some(exptime) })
}

/// One key that is too long spoils them all, so they are looked at before the first is answered.
#[inline]
fn check_keys(mut keys: Words<'_>) -> Result<(), Refusal> {
    // However they are divided, none of few bytes is too long.
    if keys.rest.len() <= KEY_MAX {
        return if keys.rest.iter().any(|byte| *byte != b' ') { Ok(()) } else { Err(ERROR) };
    }
    let first = keys.next().ok_or(ERROR)?;
    match first.len() <= KEY_MAX && keys.all(|key| key.len() <= KEY_MAX) {
        true => Ok(()),
        false => Err(Refusal::new(BAD_FORMAT)),
    }
}

/// Up to `N` words, and how many there are, at most one more than `N`.
fn take<const N: usize>(words: Words<'_>) -> ([&[u8]; N], usize) {
    let mut taken = [&[][..]; N];
    let mut count = 0;
    for word in words.take(N + 1) {
        if let Some(place) = taken.get_mut(count) {
            *place = word;
        }
        count += 1;
    }
    (taken, count)
}

fn is_noreply(word: &[u8]) -> bool {
    word == b"noreply"
}

fn update(mut words: Words<'_>, mode: Mode) -> Result<Request<'_>, Refusal> {
    let mut word = || words.next().ok_or(ERROR);
    let (key, flags, exptime, length) = (word()?, word()?, word()?, word()?);
    let cas = if matches!(mode, Mode::Cas { .. }) { Some(word()?) } else { None };
    let last = words.next().or(cas).unwrap_or(length);
    if words.next().is_some() {
        return Err(ERROR);
    }
    let quiet = is_noreply(last);
    let bad = Refusal::unless(quiet, BAD_FORMAT);
    if key.len() > KEY_MAX {
        return Err(bad);
    }
    let update = TextUpdate {
        key,
        mode,
        flags: number::unsigned_32(flags).ok_or(bad)?,
        exptime: number::signed(exptime).ok_or(bad)?,
        cas: cas.map_or(Some(0), number::unsigned).ok_or(bad)?,
        len: len(length).ok_or(bad)?,
    };
    Ok(Request::Update { update, quiet })
}

/// The length of a value.
pub(crate) fn len(word: &[u8]) -> Option<usize> {
    let len = number::unsigned(word).filter(|&len| len <= LEN_MAX)?;
    Some(len as usize)
}

fn delete(words: Words<'_>) -> Result<Request<'_>, Refusal> {
    const USAGE: &str = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]";
    let (words, count) = take::<3>(words);
    if count == 0 || count > 3 {
        return Err(ERROR);
    }
    let quiet = count > 1 && is_noreply(words[count - 1]);
    let without_hold = words[1] == b"0";
    let valid = match count {
        1 => true,
        2 => without_hold || quiet,
        _ => without_hold && quiet,
    };
    match (valid, words[0].len() <= KEY_MAX) {
        (true, true) => Ok(Request::Delete { key: words[0], quiet }),
        (true, false) => Err(Refusal::unless(quiet, BAD_FORMAT)),
        (false, _) => Err(Refusal::unless(quiet, USAGE)),
    }
}

fn arithmetic(words: Words<'_>, increment: bool) -> Result<Request<'_>, Refusal> {
    let (words, count) = take::<3>(words);
    if count != 2 && count != 3 {
        return Err(ERROR);
    }
    let quiet = is_noreply(words[count - 1]);
    if words[0].len() > KEY_MAX {
        return Err(Refusal::unless(quiet, BAD_FORMAT));
    }
    let invalid = Refusal::unless(quiet, "CLIENT_ERROR invalid numeric delta argument");
    let delta = number::unsigned(words[1]).ok_or(invalid)?;
    Ok(Request::Arithmetic { key: words[0], increment, delta, quiet })
}

fn touch(words: Words<'_>) -> Result<Request<'_>, Refusal> {
    let (words, count) = take::<3>(words);
    if count != 2 && count != 3 {
        return Err(ERROR);
    }
    let quiet = is_noreply(words[count - 1]);
    if words[0].len() > KEY_MAX {
        return Err(Refusal::unless(quiet, BAD_FORMAT));
    }
    let exptime = number::signed(words[1]).ok_or(Refusal::unless(quiet, BAD_EXPTIME))?;
    Ok(Request::Touch { key: words[0], exptime, quiet })
}

fn flush_all(words: Words<'_>) -> Result<Request<'_>, Refusal> {
    let (words, count) = take::<2>(words);
    if count > 2 {
        return Err(ERROR);
    }
    let quiet = count > 0 && is_noreply(words[count - 1]);
    let delay = match count - usize::from(quiet) {
        0 => 0,
        _ => number::signed(words[0]).ok_or(Refusal::unless(quiet, BAD_EXPTIME))?,
    };
    Ok(Request::FlushAll { delay, quiet })
}

fn verbosity(words: Words<'_>) -> Result<Request<'_>, Refusal> {
    let (words, count) = take::<2>(words);
    if count != 1 && count != 2 {
        return Err(ERROR);
    }
    let quiet = is_noreply(words[count - 1]);
    let level = number::unsigned(words[0]).ok_or(Refusal::unless(quiet, BAD_FORMAT))?;
    Ok(Request::Verbosity { level, quiet })
}

fn memory_limit(words: Words<'_>) -> Result<Request<'_>, Refusal> {
    let (words, count) = take::<2>(words);
    if count != 1 && count != 2 {
        return Err(ERROR);
    }
    let quiet = is_noreply(words[count - 1]);
    let megabytes = number::unsigned(words[0]).ok_or(Refusal::unless(quiet, "ERROR"))?;
    let refused = |line| Err(Refusal::unless(quiet, line));
    match megabytes {
        0..MEGABYTES_MIN => refused("MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m"),
        MEGABYTES_MIN..=MEGABYTES_MAX => Ok(Request::MemoryLimit { megabytes, quiet }),
        _ => refused("MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes"),
    }
}

/// Says what a command is about, to who tells apart whom it is for.
#[inline]
pub(crate) fn tell<B: Buffer>(request: &Request<'_>, sink: &mut impl Sink<B>) {
    if sink.tells_apart() {
        tell_key(request, sink);
    }
}

#[inline(never)]
fn tell_key<B: Buffer>(request: &Request<'_>, sink: &mut impl Sink<B>) {
    let key = match request {
        // Up to the end of the line: nobody asks for what a key begins with and finds a blank in it.
        Request::Get { keys, .. } => keys.rest_of_line(),
        Request::Update { update, .. } => Some(update.key),
        Request::Delete { key, .. } | Request::Arithmetic { key, .. } | Request::Touch { key, .. } => {
            Some(*key)
        }
        Request::Meta(request) => return sink.asked(Asked::Key(request.key().bytes())),
        _ => None,
    };
    if let Some(key) = key {
        sink.asked(Asked::Key(key));
    }
}

/// Sends a line.
pub(crate) fn send_line<B: Buffer>(sink: &mut impl Sink<B>, line: &str) {
    sink.copy(line.as_bytes());
    sink.copy(b"\r\n");
}

fn send_unless<B: Buffer>(quiet: bool, sink: &mut impl Sink<B>, line: &str) {
    if !quiet {
        send_line(sink, line);
    }
}

/// Carries out a command that has no value. Says whether the client wants to go on.
pub(crate) fn execute<B: Buffer, R: RawMutex>(
    server: &mut Server<B, R>,
    request: &Request<'_>,
    sink: &mut impl Sink<B>,
) -> bool {
    if let Request::Get { keys, cas, exptime } = request {
        get_all(server, keys.clone(), *cas, *exptime, sink);
        return true;
    }
    execute_other(server, request, sink)
}

/// The same for what is asked seldom: whatever `sink` is, there is one function for it.
fn execute_other<B: Buffer, R: RawMutex>(
    server: &mut Server<B, R>,
    request: &Request<'_>,
    mut sink: &mut dyn Sink<B>,
) -> bool {
    let sink = &mut sink;
    match *request {
        Request::Delete { key, quiet } => {
            let deleted = server.shard(key).delete(key, 0) == Outcome::Done(0);
            send_unless(quiet, sink, if deleted { "DELETED" } else { "NOT_FOUND" });
        }
        Request::Arithmetic { key, increment, delta, quiet } => {
            let sum = server.shard(key).sum(key, increment, delta, 0);
            send_sum(sum, quiet, sink);
        }
        Request::Touch { key, exptime, quiet } => {
            let mut shard = server.shard(key);
            let found = shard.fetch_and_touch(key, exptime);
            server.tell_fetch(&shard, key, found);
            send_unless(quiet, sink, if found.is_some() { "TOUCHED" } else { "NOT_FOUND" });
        }
        Request::FlushAll { delay, quiet } => {
            server.flush(delay);
            send_unless(quiet, sink, "OK");
        }
        Request::Verbosity { level, quiet } => {
            server.shared().verbosity.store(level.min(2) as u32, Relaxed);
            send_unless(quiet, sink, "OK");
        }
        Request::MemoryLimit { megabytes, quiet } => {
            server.set_limit(usize::try_from(megabytes << 20).ok());
            send_unless(quiet, sink, "OK");
        }
        Request::Stats { ref words } => stats::send(server, words.clone(), sink),
        Request::Version => {
            sink.copy(b"VERSION ");
            send_line(sink, VERSION);
        }
        Request::Meta(ref request) => meta::execute(server, request, sink),
        Request::Quit => return false,
        Request::Get { .. } => unreachable!("the caller has carried it out"),
        Request::Update { .. } | Request::Watch { .. } => unreachable!("the connection does these"),
    }
    true
}

/// The key of a `get` of one key, short and whole at the start of what a client sent, and how many bytes that
/// command takes: what most commands are is told by one look. `None` says only that it has to be read.
#[inline]
pub(crate) fn lone_get(input: &[u8]) -> Option<(&[u8], usize)> {
    let (name, rest) = input.split_first_chunk()?;
    if name != b"get " {
        return None;
    }
    let (key, end) = rest.split_at(find_blank(rest)?);
    let is_lone = !key.is_empty() && end.first_chunk() == Some(b"\r\n");
    is_lone.then_some((key, b"get \r\n".len() + key.len()))
}

/// Answers a `get` of one key.
#[inline]
pub(crate) fn get_one<B: Buffer, R: RawMutex>(server: &Server<B, R>, key: &[u8], sink: &mut impl Sink<B>) {
    let any = get(server, key, Get::default(), sink);
    end_get(any, sink);
}

/// What a `get` asks beyond the value.
#[derive(Clone, Copy, Debug, Default)]
struct Get {
    /// With ids.
    cas: bool,
    /// To set when the item expires.
    exptime: Option<i64>,
    /// Another item was answered before.
    is_further: bool,
}

/// Answers with the item of one key, if there is one; whether there is.
#[inline]
fn get<B: Buffer, R: RawMutex>(
    server: &Server<B, R>,
    key: &[u8],
    Get { cas, exptime, is_further }: Get,
    sink: &mut impl Sink<B>,
) -> bool {
    let mut shard = server.shard(key);
    let found = match exptime {
        None => shard.fetch(key),
        Some(exptime) => shard.fetch_and_touch(key, exptime),
    };
    server.tell_fetch(&shard, key, found);
    let Some(index) = found else { return false };
    let item = shard.item(index);
    let cas = cas.then_some(item.cas);
    // The end of the value before.
    if is_further {
        sink.copy(b"\r\n");
    }
    if cas.is_none() && send_at_once(item, sink) {
        return true;
    }
    if key.len() <= SHORT_KEY {
        announce::<SHORT_LINE, B>(key, item, cas, sink);
    } else {
        announce::<LINE, B>(key, item, cas, sink);
    }
    item.send(sink);
    true
}

/// Ends the answer to a `get`.
#[inline]
fn end_get<B: Buffer>(any: bool, sink: &mut impl Sink<B>) {
    match any {
        true => sink.copy(b"\r\nEND\r\n"),
        false => sink.copy(b"END\r\n"),
    }
}

/// Answers with the items of all keys that there are.
#[inline(never)]
pub(crate) fn get_all<B: Buffer, R: RawMutex>(
    server: &Server<B, R>,
    keys: Words<'_>,
    cas: bool,
    exptime: Option<i64>,
    sink: &mut impl Sink<B>,
) {
    let mut any = false;
    for key in keys {
        any |= get(server, key, Get { cas, exptime, is_further: any }, sink);
    }
    end_get(any, sink);
}

/// Most bytes of a key that are copied without a loop.
const KEY_PIECE: usize = 16;

/// Sends an item whose value lies behind its key, and the line in front of it, as most are: put together
/// where they are sent from. Whether it is one.
#[inline]
fn send_at_once<B: Buffer>(item: &Item<B>, sink: &mut impl Sink<B>) -> bool {
    let Some((head, key_len)) = item.inline() else { return false };
    let value = &head[key_len..];
    let Some((numbers, numbers_len)) = flags_and_len(item.flags, value.len()) else { return false };
    let Some(place) = sink.room(NAME.len() + head.len() + numbers_len) else { return false };
    let (name, rest) = place.split_at_mut(NAME.len());
    name.copy_from_slice(NAME);
    // What is copied too much is written over: the value follows.
    match (head.first_chunk::<KEY_PIECE>(), rest.first_chunk_mut()) {
        (Some(from), Some(to)) if key_len <= KEY_PIECE => *to = *from,
        _ => rest[..key_len].copy_from_slice(&head[..key_len]),
    }
    let rest = &mut rest[key_len..];
    match rest.first_chunk_mut() {
        Some(to) => *to = numbers,
        None => rest[..numbers_len].copy_from_slice(&numbers[..numbers_len]),
    }
    rest[numbers_len..].copy_from_slice(value);
    true
}

/// What a line in front of a value begins with.
const NAME: &[u8; 6] = b"VALUE ";

/// Sends the line in front of a value, put together in `ROOM` bytes.
#[inline]
fn announce<const ROOM: usize, B: Buffer>(
    key: &[u8],
    item: &Item<B>,
    cas: Option<u64>,
    sink: &mut impl Sink<B>,
) {
    let mut line = Line::<ROOM>::new();
    line.push(NAME);
    line.push(key);
    line.push_number(b' ', u64::from(item.flags));
    line.push_number(b' ', item.len() as u64);
    if let Some(cas) = cas {
        line.push_number(b' ', cas);
    }
    line.push(b"\r\n");
    sink.copy(line.bytes());
}

fn send_sum<B: Buffer>(sum: Sum, quiet: bool, sink: &mut impl Sink<B>) {
    let line = match sum {
        Sum::Done { value, .. } => {
            let mut digits = itoa::Buffer::new();
            return send_unless(quiet, sink, digits.format(value));
        }
        Sum::NotFound | Sum::CasMismatch => "NOT_FOUND",
        Sum::NonNumeric => NON_NUMERIC,
        Sum::OutOfMemory => "SERVER_ERROR out of memory",
    };
    send_unless(quiet, sink, line);
}

pub(crate) const NON_NUMERIC: &str = "CLIENT_ERROR cannot increment or decrement non-numeric value";
const TOO_LARGE: &str = "SERVER_ERROR object too large for cache";
pub(crate) const OUT_OF_MEMORY: &str = "SERVER_ERROR out of memory storing object";

/// Whether the value of an update may be as long as it says. If not, the item that it was to replace goes.
pub(crate) fn admit<B: Buffer, R: RawMutex>(
    server: &Server<B, R>,
    request: &TextUpdate<'_>,
) -> Result<(), &'static str> {
    if server.fits(request.key, request.flags, request.len) {
        return Ok(());
    }
    server.shard(request.key).refuse(request.key, request.mode == Mode::Set);
    Err(TOO_LARGE)
}

/// Stores the value of an update and answers.
pub(crate) fn complete<B: Buffer, R: RawMutex>(
    server: &Server<B, R>,
    request: &TextUpdate<'_>,
    value: Incoming<'_, B>,
    quiet: bool,
    sink: &mut impl Sink<B>,
) {
    let mut shard = server.shard(request.key);
    let facts = Facts { flags: request.flags, expires: shard.second(request.exptime), ..Facts::default() };
    let update = Update { key: request.key, mode: request.mode, facts, cas: request.cas };
    let line = match server.update(&mut shard, &update, value) {
        Outcome::Done(_) => "STORED",
        Outcome::Refused => "NOT_STORED",
        Outcome::Exists => "EXISTS",
        Outcome::NotFound => "NOT_FOUND",
        Outcome::OutOfMemory => {
            if request.mode == Mode::Set {
                shard.forget(request.key);
            }
            OUT_OF_MEMORY
        }
    };
    drop(shard);
    send_unless(quiet, sink, line);
}
