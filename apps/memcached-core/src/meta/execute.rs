//! What the meta commands do, and how they answer.

use super::{Command, DecodedKey, Request};
use crate::server::Server;
use crate::shard::{Mode, Outcome, Shard, Sum, Update};
use crate::slab::Index;
use crate::store::{Facts, Item, Marks};
use crate::text::{NON_NUMERIC, OUT_OF_MEMORY, send_line};
use crate::value::Incoming;
use base64ct::{Base64, Encoding};
use core::fmt::Write;
use lock_api::RawMutex;
use nom_port::buffer::{Buffer, Sink};

/// Carries out a command that has no value.
pub(crate) fn execute<B: Buffer, R: RawMutex>(
    server: &Server<B, R>,
    request: &Request<'_>,
    sink: &mut impl Sink<B>,
) {
    let execute = match request.command {
        Command::Noop => return send_line(sink, "MN"),
        Command::Debug => debug,
        Command::Get => get,
        Command::Delete => delete,
        Command::Arithmetic => arithmetic,
        Command::Set => unreachable!("the connection completes a command that has a value"),
    };
    let key = request.key();
    let mut shard = server.shard(key.bytes());
    if request.command == Command::Get {
        server.tell_sought(&mut shard, key.bytes());
    }
    execute(&mut shard, request, &key, sink);
}

/// What `ms` stores.
fn update_of<'k, B: Buffer>(shard: &Shard<B>, request: &Request<'_>, key: &'k [u8]) -> Update<'k> {
    let flags = &request.flags;
    Update {
        key,
        mode: request.set_mode().unwrap_or(Mode::Set),
        facts: Facts {
            flags: flags.client_flags,
            expires: flags.exptime.map_or(0, |exptime| shard.second(exptime)),
            marks: Marks { key_binary: flags.key_binary, ..Marks::default() },
        },
        cas: flags.cas.unwrap_or(0),
    }
}

/// Whether the value of `ms` may be as long as it says. If not, the item goes.
pub(crate) fn admit<B: Buffer, R: RawMutex>(
    server: &Server<B, R>,
    request: &Request<'_>,
) -> Result<(), &'static str> {
    let key = request.key();
    if server.fits(key.bytes(), request.flags.client_flags, request.len) {
        return Ok(());
    }
    server.shard(key.bytes()).refuse(key.bytes(), true);
    Err("SERVER_ERROR object too large for cache")
}

/// Stores the value of `ms` and answers.
pub(crate) fn complete<B: Buffer, R: RawMutex>(
    server: &Server<B, R>,
    request: &Request<'_>,
    value: Incoming<'_, B>,
    sink: &mut impl Sink<B>,
) {
    let key = request.key();
    let mut shard = server.shard(key.bytes());
    let update = update_of(&shard, request, key.bytes());
    let (status, cas) = match server.update(&mut shard, &update, value) {
        Outcome::Done(_) if request.flags.quiet => return,
        Outcome::Done(cas) => ("HD", cas),
        Outcome::Refused => ("NS", 0),
        Outcome::Exists => ("EX", 0),
        Outcome::NotFound => ("NF", 0),
        Outcome::OutOfMemory => {
            shard.forget(key.bytes());
            return send_line(sink, OUT_OF_MEMORY);
        }
    };
    sink.copy(status.as_bytes());
    for word in request.words.clone() {
        match word[0] {
            b'c' => {
                sink.copy(b" c");
                send_digits(cas, sink);
            }
            _ => repeat(request, word, &key, sink),
        }
    }
    sink.copy(b"\r\n");
}

/// Sends back a flag that only identifies the request.
fn repeat<B: Buffer>(request: &Request<'_>, word: &[u8], key: &DecodedKey, sink: &mut impl Sink<B>) {
    match word[0] {
        b'O' => {
            sink.copy(b" ");
            sink.copy(word);
        }
        b'k' => send_key(key.bytes(), request.flags.key_binary, sink),
        _ => {}
    }
}

fn repeat_all<B: Buffer>(request: &Request<'_>, key: &DecodedKey, sink: &mut impl Sink<B>) {
    request.words.clone().for_each(|word| repeat(request, word, key, sink));
    sink.copy(b"\r\n");
}

fn send_key<B: Buffer>(key: &[u8], binary: bool, sink: &mut impl Sink<B>) {
    sink.copy(b" k");
    match binary {
        false => sink.copy(key),
        true => {
            send_base64(key, sink);
            sink.copy(b" b");
        }
    }
}

fn send_base64<B: Buffer>(key: &[u8], sink: &mut impl Sink<B>) {
    let mut place = [0; 4 * crate::KEY_MAX.div_ceil(3)];
    let encoded = Base64::encode(key, &mut place).expect("the place is for the longest key");
    sink.copy(encoded.as_bytes());
}

fn send_digits<B: Buffer>(number: u64, sink: &mut impl Sink<B>) {
    let mut digits = itoa::Buffer::new();
    sink.copy(digits.format(number).as_bytes());
}

fn send_ttl<B: Buffer>(item: &Item<B>, now: u32, sink: &mut impl Sink<B>) {
    match item.expires {
        0 => sink.copy(b" t-1"),
        expires => {
            sink.copy(b" t");
            send_digits(u64::from(expires.wrapping_sub(now)), sink);
        }
    }
}

fn get<B: Buffer>(shard: &mut Shard<B>, request: &Request<'_>, key: &DecodedKey, sink: &mut impl Sink<B>) {
    let found = shard.look_up(key.bytes());
    let touches = request.flags.exptime.is_some();
    count_get(shard, touches, found.is_some() || request.flags.vivify.is_some());
    let created = found.is_none();
    let found = found.or_else(|| vivify(shard, request, key));
    let Some(index) = found else {
        if !request.flags.quiet {
            sink.copy(b"EN");
            repeat_all(request, key, sink);
        }
        return;
    };
    if request.flags.value {
        sink.copy(b"VA ");
        send_digits(shard.item(index).len() as u64, sink);
    } else {
        sink.copy(b"HD");
    }
    let mut won = created;
    for word in request.words.clone() {
        match word[0] {
            b'T' => set_ttl(shard, request.flags.exptime, index),
            b'N' if created => set_ttl(shard, request.flags.vivify, index),
            b'R' => won |= !created && is_due(shard, request, index),
            _ => send_fact(shard, index, word, sink),
        }
    }
    send_token(shard.store.item_mut(index), won, sink);
    sink.copy(b"\r\n");
    if request.flags.value {
        shard.item(index).send(sink);
        sink.copy(b"\r\n");
    }
    if !request.flags.no_bump {
        shard.bump(index);
    }
}

fn count_get<B: Buffer>(shard: &mut Shard<B>, touches: bool, hit: bool) {
    let stats = &mut shard.stats;
    let (commands, hits, misses) = match touches {
        true => (&mut stats.cmd_touch, &mut stats.touch_hits, &mut stats.touch_misses),
        false => (&mut stats.cmd_get, &mut stats.get_hits, &mut stats.get_misses),
    };
    *commands += 1;
    *(if hit { hits } else { misses }) += 1;
}

/// Puts an empty item where there is none, for the client to fill.
fn vivify<B: Buffer>(shard: &mut Shard<B>, request: &Request<'_>, key: &DecodedKey) -> Option<Index> {
    let expires = shard.second(request.flags.vivify?);
    let key = shard.store.key(key.bytes());
    let facts = Facts { expires, ..Facts::default() };
    shard.store.put(&key, None, facts, Incoming::Copy(&[])).ok()
}

/// Whether the item expires so soon that a client should replace it, and no other was told to.
fn is_due<B: Buffer>(shard: &Shard<B>, request: &Request<'_>, index: Index) -> bool {
    let item = shard.item(index);
    let limit = request.flags.recache.map_or(0, |recache| shard.second(recache));
    !item.marks.token_sent && item.expires != 0 && item.expires < limit
}

/// Sends what a flag of `mg` asks for.
fn send_fact<B: Buffer>(shard: &Shard<B>, index: Index, word: &[u8], sink: &mut impl Sink<B>) {
    let item = shard.item(index);
    let number = match word[0] {
        b's' => item.len() as u64,
        b'c' => item.cas,
        b'f' => u64::from(item.flags),
        b'l' => u64::from(shard.store.now() - item.used),
        b'h' => u64::from(item.marks.fetched),
        b't' => return send_ttl(item, shard.store.now(), sink),
        b'k' => return send_key(item.key(), item.marks.key_binary, sink),
        b'O' => {
            sink.copy(b" ");
            return sink.copy(word);
        }
        _ => return,
    };
    sink.copy(b" ");
    sink.copy(&word[..1]);
    send_digits(number, sink);
}

/// Says whose turn it is to replace an item: `W` yours, `Z` another's, `X` it is stale.
fn send_token<B: Buffer>(item: &mut Item<B>, mut won: bool, sink: &mut impl Sink<B>) {
    if item.marks.token_sent {
        sink.copy(b" Z");
    }
    if item.marks.stale {
        sink.copy(b" X");
        won |= !item.marks.token_sent;
    }
    if won {
        sink.copy(b" W");
        item.marks.token_sent = true;
    }
}

fn delete<B: Buffer>(shard: &mut Shard<B>, request: &Request<'_>, key: &DecodedKey, sink: &mut impl Sink<B>) {
    let flags = &request.flags;
    let outcome = match (shard.peek(key.bytes()), flags.cas) {
        (Some(index), Some(cas)) if shard.item(index).cas != cas => Outcome::Exists,
        (Some(index), _) if flags.invalidate => {
            invalidate(shard, request, index);
            Outcome::Done(0)
        }
        _ => shard.delete(key.bytes(), 0),
    };
    let status = match outcome {
        Outcome::Done(_) if flags.quiet => return,
        Outcome::Done(_) => "HD",
        Outcome::Exists => {
            shard.stats.delete_misses += 1;
            "EX"
        }
        _ => "NF",
    };
    sink.copy(status.as_bytes());
    repeat_all(request, key, sink);
}

/// Marks an item as stale, so that the next client that fetches it replaces it.
fn invalidate<B: Buffer>(shard: &mut Shard<B>, request: &Request<'_>, index: Index) {
    let expires = request.flags.exptime.map(|exptime| shard.second(exptime));
    let cas = shard.store.next_cas();
    let item = shard.store.item_mut(index);
    item.expires = expires.unwrap_or(item.expires);
    item.marks.stale = true;
    item.marks.token_sent = false;
    item.cas = cas;
}

fn arithmetic<B: Buffer>(
    shard: &mut Shard<B>,
    request: &Request<'_>,
    key: &DecodedKey,
    sink: &mut impl Sink<B>,
) {
    let flags = &request.flags;
    let increment = request.increments().unwrap_or(true);
    let mut sum = shard.sum(key.bytes(), increment, flags.delta.unwrap_or(1), flags.cas.unwrap_or(0));
    let mut created = false;
    if matches!(sum, Sum::NotFound) && flags.vivify.is_some() {
        sum = shard.put_number(key.bytes(), 0, flags.initial);
        created = true;
    }
    let status = match sum {
        Sum::Done { index, .. } if flags.quiet && !created => {
            return if flags.exptime.is_some() {
                set_ttl(shard, flags.exptime, index)
            };
        }
        Sum::Done { value, index } => return send_sum(shard, request, key, (value, index, created), sink),
        Sum::NotFound => "NF",
        Sum::CasMismatch => "EX",
        Sum::NonNumeric => return send_line(sink, NON_NUMERIC),
        Sum::OutOfMemory => return send_line(sink, "SERVER_ERROR out of memory"),
    };
    sink.copy(status.as_bytes());
    repeat_all(request, key, sink);
}

fn set_ttl<B: Buffer>(shard: &mut Shard<B>, exptime: Option<i64>, index: Index) {
    shard.store.item_mut(index).expires = exptime.map_or(0, |exptime| shard.second(exptime));
}

fn send_sum<B: Buffer>(
    shard: &mut Shard<B>,
    request: &Request<'_>,
    key: &DecodedKey,
    (value, index, created): (u64, Index, bool),
    sink: &mut impl Sink<B>,
) {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(value).as_bytes();
    match request.flags.value {
        true => {
            sink.copy(b"VA ");
            send_digits(digits.len() as u64, sink);
        }
        false => sink.copy(b"HD"),
    }
    for word in request.words.clone() {
        match word[0] {
            b'c' => {
                sink.copy(b" c");
                send_digits(shard.item(index).cas, sink);
            }
            b't' => send_ttl(shard.item(index), shard.store.now(), sink),
            b'T' => set_ttl(shard, request.flags.exptime, index),
            b'N' if created => set_ttl(shard, request.flags.vivify, index),
            _ => repeat(request, word, key, sink),
        }
    }
    sink.copy(b"\r\n");
    if request.flags.value {
        sink.copy(digits);
        sink.copy(b"\r\n");
    }
}

/// A line of `me`, which is for people.
struct Line<'a, B, S> {
    sink: &'a mut S,
    buffers: core::marker::PhantomData<B>,
}

impl<B: Buffer, S: Sink<B>> Write for Line<'_, B, S> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        self.sink.copy(text.as_bytes());
        Ok(())
    }
}

fn debug<B: Buffer>(shard: &mut Shard<B>, _: &Request<'_>, key: &DecodedKey, sink: &mut impl Sink<B>) {
    shard.stats.cmd_meta += 1;
    let Some(index) = shard.peek(key.bytes()) else { return send_line(sink, "EN") };
    let (item, now) = (shard.item(index), i64::from(shard.store.now()));
    sink.copy(b"ME ");
    match item.marks.key_binary {
        true => send_base64(item.key(), sink),
        false => sink.copy(item.key()),
    }
    let expires = if item.expires == 0 { -1 } else { now - i64::from(item.expires) };
    let fetched = if item.marks.fetched { "yes" } else { "no" };
    let (unused, cas, cost) = (now - i64::from(item.used), item.cas, item.cost());
    let mut line = Line { sink, buffers: core::marker::PhantomData };
    let written = write!(line, " exp={expires} la={unused} cas={cas} fetch={fetched} cls=1 size={cost}\r\n");
    written.expect("a sink takes everything");
}
