//! What is counted, and how it is told.

use crate::VERSION;
use crate::classes::Classes;
use crate::detail::Details;
use crate::server::Server;
use crate::store::Losses;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use lock_api::RawMutex;
use nom_port::buffer::Buffer;

macro_rules! stats {
    ($($(#[doc = $doc:literal])? $name:ident)+) => {
        /// Counters of a server; the names are those that `stats` sends.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[allow(missing_docs, reason = "memcached's doc/protocol.txt describes each")]
        pub struct Stats { $($(#[doc = $doc])? pub $name: u64,)+ }

        impl Stats {
            fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),+].into_iter()
            }

            /// Adds what was counted elsewhere.
            pub(crate) fn add(&mut self, other: &Stats) {
                $(self.$name = self.$name.wrapping_add(other.$name);)+
            }

            /// Takes away what was counted before.
            pub(crate) fn subtract(&mut self, other: &Stats) {
                $(self.$name = self.$name.wrapping_sub(other.$name);)+
            }
        }
    };
}

stats! {
    total_connections
    rejected_connections
    cmd_get
    cmd_set
    cmd_flush
    cmd_touch
    cmd_meta
    get_hits
    get_misses
    delete_misses
    delete_hits
    incr_misses
    incr_hits
    decr_misses
    decr_hits
    cas_misses
    cas_hits
    cas_badval
    touch_hits
    touch_misses
    store_too_large
    store_no_memory
    bytes_read
    bytes_written
    /// Connections closed, and datagrams dropped, because they broke the protocol.
    protocol_errors
}

/// A counter that one core changes and all read.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Adds, as the only core that does: a load and a store are enough.
    #[inline]
    pub fn add(&self, number: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(number), Relaxed);
    }
}

/// What a core counts that concerns no key; what does is counted in the key's shard.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Counts {
    pub total_connections: Count,
    pub rejected_connections: Count,
    pub cmd_flush: Count,
    pub bytes_read: Count,
    pub bytes_written: Count,
    pub protocol_errors: Count,
}

impl Counts {
    pub fn add_to(&self, stats: &mut Stats) {
        let Counts { total_connections, rejected_connections, cmd_flush, .. } = self;
        let counted = |count: &Count| count.0.load(Relaxed);
        stats.add(&Stats {
            total_connections: counted(total_connections),
            rejected_connections: counted(rejected_connections),
            cmd_flush: counted(cmd_flush),
            bytes_read: counted(&self.bytes_read),
            bytes_written: counted(&self.bytes_written),
            protocol_errors: counted(&self.protocol_errors),
            ..Stats::default()
        });
    }
}

/// The items of all shards, in numbers.
#[derive(Default)]
struct Sum {
    losses: Losses,
    classes: Classes,
    used: usize,
    len: usize,
    stored: u64,
    unix: u64,
    uptime: u64,
    /// Seconds since the least recently used item was.
    age: Option<u32>,
}

impl Sum {
    fn of<B: Buffer, R: RawMutex>(server: &Server<B, R>) -> Sum {
        let mut sum = Sum::default();
        for shard in server.shards() {
            let store = &shard.store;
            sum.losses.add(&store.losses);
            sum.classes.add(&store.classes);
            sum.used += store.used();
            sum.len += store.len();
            sum.stored += store.stored;
            (sum.unix, sum.uptime) = (shard.unix(), shard.uptime());
            sum.age = sum.age.max(store.items().next().map(|oldest| store.now() - oldest.used));
        }
        sum
    }
}

/// Bytes of a block of the driver's memory.
const BLOCK: usize = 2 << 20;

/// Takes a name and a value.
type Emit<'a> = &'a mut dyn FnMut(&str, &str);

/// Sets all counters to zero.
pub(crate) fn reset<B: Buffer, R: RawMutex>(server: &Server<B, R>) {
    for mut shard in server.shards() {
        shard.stats = Stats::default();
        shard.store.losses = Losses::default();
        shard.store.classes.forget();
        shard.store.stored = 0;
        shard.details.clear();
    }
    let counted = server.counted();
    server.shared().ledger.lock().forgotten = counted;
}

/// Tells every counter of a group, the general ones if it has no name; `false` if there is no such group.
pub(crate) fn each<B: Buffer, R: RawMutex>(server: &Server<B, R>, group: &[u8], emit: Emit<'_>) -> bool {
    match group {
        b"" => general(server, emit),
        b"settings" => settings(server, emit),
        b"items" => items(server, emit),
        b"slabs" => slabs(server, emit),
        b"sizes" => sizes(server, emit),
        b"conns" => conns(server, emit),
        b"reset" => reset(server),
        b"detail on" | b"detail off" => set_detail(server, group == b"detail on"),
        b"detail dump" => emit("detailed", &detail(server)),
        _ => return false,
    }
    true
}

/// Begins or ends to count commands by the prefixes of their keys.
pub(crate) fn set_detail<B: Buffer, R: RawMutex>(server: &Server<B, R>, is_on: bool) {
    server.shards().for_each(|mut shard| shard.details.is_on = is_on);
}

/// What was counted by prefix.
pub(crate) fn detail<B: Buffer, R: RawMutex>(server: &Server<B, R>) -> String {
    let mut sum = Details::default();
    server.shards().for_each(|shard| sum.add_all(&shard.details));
    let mut text = String::new();
    for (prefix, [get, hit, set, delete]) in sum.iter() {
        let prefix = String::from_utf8_lossy(prefix);
        text += &format!("PREFIX {prefix} get {get} hit {hit} set {set} del {delete}\r\n");
    }
    text + "END\r\n"
}

fn tell(emit: Emit<'_>, name: &str, value: impl fmt::Display) {
    tell_any(emit, name, &value);
}

#[inline(never)]
fn tell_any(emit: Emit<'_>, name: &str, value: &dyn fmt::Display) {
    emit(name, &format!("{value}"));
}

fn general<B: Buffer, R: RawMutex>(server: &Server<B, R>, emit: Emit<'_>) {
    let (sum, options) = (Sum::of(server), &server.shared().options);
    tell(emit, "pid", 1);
    tell(emit, "uptime", sum.uptime);
    tell(emit, "time", sum.unix);
    tell(emit, "version", VERSION);
    tell(emit, "pointer_size", usize::BITS);
    tell(emit, "max_connections", options.connections);
    tell(emit, "curr_connections", server.connections());
    for (name, value) in server.stats().named() {
        tell(emit, name, value);
    }
    tell(emit, "get_expired", sum.losses.expired);
    tell(emit, "get_flushed", sum.losses.flushed);
    tell(emit, "limit_maxbytes", server.limit());
    if let Some(free) = Some(server.shared().free.load(Relaxed)).filter(|free| *free < u64::MAX) {
        tell(emit, "nom_free_bytes", free);
    }
    tell(emit, "accepting_conns", u8::from(server.connections() < options.connections));
    tell(emit, "threads", options.threads);
    tell(emit, "bytes", sum.used);
    tell(emit, "curr_items", sum.len);
    tell(emit, "total_items", sum.stored);
    tell(emit, "evictions", sum.losses.evictions);
    tell(emit, "reclaimed", sum.losses.reclaimed);
}

fn settings<B: Buffer, R: RawMutex>(server: &Server<B, R>, emit: Emit<'_>) {
    let options = &server.shared().options;
    tell(emit, "maxbytes", server.limit());
    tell(emit, "maxconns", options.connections);
    tell(emit, "tcpport", options.tcp_port);
    tell(emit, "udpport", options.udp_port);
    match options.address {
        Some(address) => tell(emit, "inter", address),
        None => tell(emit, "inter", "NULL"),
    }
    tell(emit, "verbosity", server.shared().verbosity.load(Relaxed));
    tell(emit, "evictions", "on");
    tell(emit, "domain_socket", "NULL");
    tell(emit, "shutdown_command", "no");
    tell(emit, "num_threads", options.threads);
    tell(emit, "cas_enabled", "yes");
    tell(emit, "binding_protocol", "auto-negotiate");
    tell(emit, "auth_enabled_sasl", "no");
    tell(emit, "auth_enabled_ascii", "no");
    tell(emit, "item_size_max", options.item_max);
    tell(emit, "flush_enabled", "yes");
    tell(emit, "dump_enabled", "no");
    tell(emit, "hash_algorithm", "foldhash");
    tell(emit, "lru_segmented", "no");
}

/// Items by memcached's size classes. There is one list of what was used when, so there is one age.
fn items<B: Buffer, R: RawMutex>(server: &Server<B, R>, emit: Emit<'_>) {
    let sum = Sum::of(server);
    for (number, _, class) in sum.classes.iter() {
        let facts = [
            ("number", class.number),
            ("age", sum.age.filter(|_| class.number > 0).unwrap_or_default().into()),
            ("mem_requested", class.bytes),
            ("evicted", class.evicted),
            ("outofmemory", class.outofmemory),
            ("reclaimed", class.reclaimed),
        ];
        for (name, value) in facts {
            tell(emit, &format!("items:{number}:{name}"), value);
        }
    }
}

fn slabs<B: Buffer, R: RawMutex>(server: &Server<B, R>, emit: Emit<'_>) {
    let sum = Sum::of(server);
    let mut active = 0;
    for (number, chunk, class) in sum.classes.iter().filter(|(_, _, class)| class.number > 0) {
        active += 1;
        let facts =
            [("chunk_size", chunk.into()), ("used_chunks", class.number), ("mem_requested", class.bytes)];
        for (name, value) in facts {
            tell(emit, &format!("{number}:{name}"), value);
        }
    }
    tell(emit, "active_slabs", active);
    // Memory comes from the kernel in blocks of that size.
    tell(emit, "total_malloced", sum.used.next_multiple_of(BLOCK));
}

/// Items by what they cost, in steps of 32 bytes, as memcached's `stats sizes`.
fn sizes<B: Buffer, R: RawMutex>(server: &Server<B, R>, emit: Emit<'_>) {
    const STEP: usize = 32;
    let mut counts = Vec::<(usize, u64)>::new();
    for shard in server.shards() {
        for item in shard.store.items() {
            let size = item.cost().next_multiple_of(STEP);
            match counts.binary_search_by_key(&size, |(size, _)| *size) {
                Ok(at) => counts[at].1 += 1,
                Err(at) => counts.insert(at, (size, 1)),
            }
        }
    }
    for (size, count) in counts {
        tell(emit, &format!("{size}"), count);
    }
}

/// Clients that `stats conns` names: an answer must not take more memory than there is.
const CONNS_MAX: usize = 1000;

fn conns<B: Buffer, R: RawMutex>(server: &Server<B, R>, emit: Emit<'_>) {
    for (number, peer) in server.shared().roll.lock().newest(CONNS_MAX) {
        let family = if peer.is_ipv4() { "tcp" } else { "tcp6" };
        tell(emit, &format!("{number}:addr"), format_args!("{family}:{peer}"));
    }
}
