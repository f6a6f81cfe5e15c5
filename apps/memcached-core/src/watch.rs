//! `watch`: lines about what clients ask for, told to those who want to read them (memcached's
//! doc/protocol.txt).
//!
//! A line is written where its command is carried out, on whatever core, into the log of each client who
//! watches; that client's core sends it on when it next looks at its clients. Who reads more slowly than is
//! written misses lines, and is told how many: nobody waits for who watches.

use crate::classes;
use crate::server::Server;
use crate::shard::{Mode, Outcome, Shard, Update};
use crate::slab::Index;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use lock_api::{Mutex, RawMutex};
use nom_port::buffer::Buffer;

/// Who looks for what: `watch fetchers`.
pub(crate) const FETCHERS: u8 = 1;
/// Who stores what: `watch mutations`.
pub(crate) const MUTATIONS: u8 = 2;

/// Clients who may watch at a time, as in memcached.
const WATCHERS_MAX: usize = 20;
/// Bytes that wait for a client who watches.
const LOG_MAX: usize = 64 << 10;

/// Who watches.
pub(crate) struct Watch<R> {
    /// What anybody wants to hear of.
    wanted: AtomicU8,
    log: Mutex<R, Log>,
}

#[derive(Debug, Default)]
struct Log {
    /// Lines written so far, by which each has a number.
    lines: u64,
    watchers: Vec<Watcher>,
}

#[derive(Debug)]
struct Watcher {
    client: u32,
    wanted: u8,
    text: String,
    /// Lines that there was no room for.
    skipped: u64,
}

impl<R: RawMutex> Default for Watch<R> {
    fn default() -> Watch<R> {
        Watch { wanted: AtomicU8::new(0), log: Mutex::default() }
    }
}

impl<R: RawMutex> Watch<R> {
    /// Whether anybody wants to hear of this.
    #[inline]
    fn wants(&self, kind: u8) -> bool {
        self.wanted.load(Relaxed) & kind != 0
    }

    /// A client wants to hear of all `wanted`; `false` if too many do.
    pub fn begin(&self, client: u32, wanted: u8) -> bool {
        let log = &mut *self.log.lock();
        if log.watchers.len() >= WATCHERS_MAX {
            return false;
        }
        log.watchers.push(Watcher { client, wanted, text: String::new(), skipped: 0 });
        self.count(log);
        true
    }

    /// A client has gone.
    pub fn end(&self, client: u32) {
        if self.wants(u8::MAX) {
            let log = &mut *self.log.lock();
            log.watchers.retain(|watcher| watcher.client != client);
            self.count(log);
        }
    }

    fn count(&self, log: &Log) {
        self.wanted.store(log.watchers.iter().fold(0, |all, watcher| all | watcher.wanted), Relaxed);
    }

    /// What a client has yet to read.
    pub fn take(&self, client: u32) -> Option<String> {
        let log = &mut *self.log.lock();
        let watcher = log.watchers.iter_mut().find(|watcher| watcher.client == client)?;
        Some(core::mem::take(&mut watcher.text)).filter(|text| !text.is_empty())
    }

    fn write(&self, kind: u8, unix: u64, line: fmt::Arguments<'_>) {
        let log = &mut *self.log.lock();
        log.lines += 1;
        for watcher in log.watchers.iter_mut().filter(|watcher| watcher.wanted & kind != 0) {
            watcher.write(log.lines, unix, line);
        }
    }
}

impl Watcher {
    fn write(&mut self, number: u64, unix: u64, line: fmt::Arguments<'_>) {
        let Watcher { text, skipped, .. } = self;
        if text.len() >= LOG_MAX {
            *skipped += 1;
            return;
        }
        if *skipped > 0 {
            let _ = writeln!(text, "skipped={skipped}");
            *skipped = 0;
        }
        // The clock of items goes by seconds.
        let _ = writeln!(text, "ts={unix}.0 gid={number} {line}");
    }
}

impl<B: Buffer, R: RawMutex> Server<B, R> {
    /// Whether anybody watches: then clients are to be looked at, as there may be news for them.
    #[inline]
    pub fn is_watched(&self) -> bool {
        self.shared().watch.wants(u8::MAX)
    }

    /// The client at hand has looked for an item.
    #[inline]
    pub(crate) fn tell_fetch(&self, shard: &Shard<B>, key: &[u8], found: Option<Index>) {
        if self.shared().watch.wants(FETCHERS) {
            self.write_fetch(shard, key, found);
        }
    }

    #[cold]
    #[inline(never)]
    fn write_fetch(&self, shard: &Shard<B>, key: &[u8], found: Option<Index>) {
        let (status, class, len) = match found.map(|index| shard.item(index)) {
            None => ("not_found", 0, 0),
            Some(item) => {
                ("found", classes::number(classes::item_len(key.len(), item.len(), item.flags)), item.len())
            }
        };
        let (key, client) = (Uri(key), self.client);
        let line =
            format_args!("type=item_get key={key} status={status} clsid={class} cfd={client} size={len}");
        self.shared().watch.write(FETCHERS, shard.unix(), line);
    }

    /// The client at hand is about to look for an item, or for the one that its own is to replace.
    #[inline]
    pub(crate) fn tell_sought(&self, shard: &mut Shard<B>, key: &[u8]) {
        if self.shared().watch.wants(FETCHERS) {
            let found = shard.peek(key);
            self.write_fetch(shard, key, found);
        }
    }

    /// The client at hand wanted to store `len` bytes.
    #[inline]
    pub(crate) fn tell_stored(&self, shard: &Shard<B>, update: &Update<'_>, len: usize, outcome: Outcome) {
        if self.shared().watch.wants(MUTATIONS) {
            self.write_stored(shard, update, len, outcome);
        }
    }

    #[cold]
    #[inline(never)]
    fn write_stored(&self, shard: &Shard<B>, update: &Update<'_>, len: usize, outcome: Outcome) {
        let status = match outcome {
            Outcome::Done(_) => "stored",
            Outcome::Refused => "not_stored",
            Outcome::Exists => "exists",
            Outcome::NotFound => "not_found",
            Outcome::OutOfMemory => "no_memory",
        };
        let command = match update.mode {
            Mode::Set => "set",
            Mode::Add => "add",
            Mode::Replace => "replace",
            Mode::Append => "append",
            Mode::Prepend => "prepend",
            Mode::Cas { .. } => "cas",
        };
        let ttl = match update.facts.expires {
            0 => 0,
            expires => expires.wrapping_sub(shard.store.now()),
        };
        let class = classes::number(classes::item_len(update.key.len(), len, update.facts.flags));
        let (key, client) = (Uri(update.key), self.client);
        self.shared().watch.write(
            MUTATIONS,
            shard.unix(),
            format_args!(
                "type=item_store key={key} status={status} cmd={command} ttl={ttl} clsid={class} \
                 cfd={client} size={len}"
            ),
        );
    }
}

/// A key as memcached's log shows it: what a URI cannot have is escaped.
struct Uri<'a>(&'a [u8]);

impl fmt::Display for Uri<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.write_char(char::from(*byte))
            }
            other => write!(out, "%{other:02X}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reads_slowly_is_told_what_is_missing() {
        let watch = Watch::<parking_lot::RawMutex>::default();
        assert!(watch.begin(7, FETCHERS) && watch.begin(8, MUTATIONS));
        let lines = 2 * LOG_MAX / 20;
        for _ in 0..lines {
            watch.write(FETCHERS, 5, format_args!("x"));
        }
        let first = watch.take(7).expect("lines");
        assert!((LOG_MAX..LOG_MAX + 100).contains(&first.len()), "{} bytes", first.len());
        let missing = lines - first.lines().count();
        watch.write(FETCHERS, 5, format_args!("y"));
        let then = watch.take(7).expect("lines");
        assert_eq!(then, format!("skipped={missing}\nts=5.0 gid={} y\n", lines + 1));
        assert_eq!((watch.take(7), watch.take(8)), (None, None));
    }

    #[test]
    fn nobody_writes_for_those_who_have_gone() {
        let watch = Watch::<parking_lot::RawMutex>::default();
        assert!((0..WATCHERS_MAX as u32).all(|client| watch.begin(client, FETCHERS)));
        assert!(!watch.begin(77, FETCHERS), "one too many");
        assert!(watch.wants(FETCHERS) && !watch.wants(MUTATIONS));
        (0..WATCHERS_MAX as u32).for_each(|client| watch.end(client));
        assert!(!watch.wants(u8::MAX));
    }

    #[test]
    fn keys_are_escaped() {
        assert_eq!(Uri(b"a-Z_0.~").to_string(), "a-Z_0.~");
        assert_eq!(Uri(b"a:b%\xff").to_string(), "a%3Ab%25%FF");
    }
}
