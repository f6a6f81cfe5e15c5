//! What is counted, and how it is told.

use crate::VERSION;
use crate::server::Server;
use crate::store::Losses;
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use core::fmt;
use nom_port::buffer::Buffer;

/// Counters of a server; the names are those that `stats` sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "memcached's doc/protocol.txt describes each")]
pub struct Stats {
    pub total_connections: u64,
    pub rejected_connections: u64,
    pub cmd_get: u64,
    pub cmd_set: u64,
    pub cmd_flush: u64,
    pub cmd_touch: u64,
    pub cmd_meta: u64,
    pub get_hits: u64,
    pub get_misses: u64,
    pub delete_misses: u64,
    pub delete_hits: u64,
    pub incr_misses: u64,
    pub incr_hits: u64,
    pub decr_misses: u64,
    pub decr_hits: u64,
    pub cas_misses: u64,
    pub cas_hits: u64,
    pub cas_badval: u64,
    pub touch_hits: u64,
    pub touch_misses: u64,
    pub store_too_large: u64,
    pub store_no_memory: u64,
    pub bytes_read: u64,
    /// Counted by whoever sends.
    pub bytes_written: u64,
    /// Connections closed, and datagrams dropped, because they broke the protocol.
    pub protocol_errors: u64,
}

/// Takes a name and a value.
type Emit<'a> = &'a mut dyn FnMut(&str, &str);

/// Sets all counters to zero.
pub(crate) fn reset<B: Buffer>(server: &mut Server<B>) {
    server.stats = Stats::default();
    server.store.losses = Losses::default();
    server.store.stored = 0;
}

/// Tells every counter of a group, the general ones if it has no name; `false` if there is no such group.
pub(crate) fn each<B: Buffer>(server: &mut Server<B>, group: &[u8], emit: Emit<'_>) -> bool {
    match group {
        b"" => general(server, emit),
        b"settings" => settings(server, emit),
        b"items" => items(server, emit),
        b"slabs" => slabs(server, emit),
        b"sizes" => sizes(server, emit),
        b"conns" => conns(server, emit),
        b"reset" => reset(server),
        _ => return false,
    }
    true
}

fn tell(emit: Emit<'_>, name: &str, value: impl fmt::Display) {
    emit(name, &value.to_string());
}

fn general<B: Buffer>(server: &Server<B>, emit: Emit<'_>) {
    let Server { stats, store, options, .. } = server;
    tell(emit, "pid", 1);
    tell(emit, "uptime", server.uptime());
    tell(emit, "time", server.unix());
    tell(emit, "version", VERSION);
    tell(emit, "pointer_size", usize::BITS);
    tell(emit, "max_connections", options.connections);
    tell(emit, "curr_connections", server.connections);
    for (name, value) in stats.named() {
        tell(emit, name, value);
    }
    tell(emit, "get_expired", store.losses.expired);
    tell(emit, "get_flushed", store.losses.flushed);
    tell(emit, "limit_maxbytes", store.limit);
    tell(emit, "accepting_conns", u8::from(server.connections < options.connections));
    tell(emit, "threads", options.threads);
    tell(emit, "bytes", store.used());
    tell(emit, "curr_items", store.len());
    tell(emit, "total_items", store.stored);
    tell(emit, "evictions", store.losses.evictions);
    tell(emit, "reclaimed", store.losses.reclaimed);
}

impl Stats {
    fn named(&self) -> [(&'static str, u64); 25] {
        [
            ("total_connections", self.total_connections),
            ("rejected_connections", self.rejected_connections),
            ("cmd_get", self.cmd_get),
            ("cmd_set", self.cmd_set),
            ("cmd_flush", self.cmd_flush),
            ("cmd_touch", self.cmd_touch),
            ("cmd_meta", self.cmd_meta),
            ("get_hits", self.get_hits),
            ("get_misses", self.get_misses),
            ("delete_misses", self.delete_misses),
            ("delete_hits", self.delete_hits),
            ("incr_misses", self.incr_misses),
            ("incr_hits", self.incr_hits),
            ("decr_misses", self.decr_misses),
            ("decr_hits", self.decr_hits),
            ("cas_misses", self.cas_misses),
            ("cas_hits", self.cas_hits),
            ("cas_badval", self.cas_badval),
            ("touch_hits", self.touch_hits),
            ("touch_misses", self.touch_misses),
            ("store_too_large", self.store_too_large),
            ("store_no_memory", self.store_no_memory),
            ("bytes_read", self.bytes_read),
            ("bytes_written", self.bytes_written),
            ("protocol_errors", self.protocol_errors),
        ]
    }
}

fn settings<B: Buffer>(server: &Server<B>, emit: Emit<'_>) {
    let options = &server.options;
    tell(emit, "maxbytes", options.memory);
    tell(emit, "maxconns", options.connections);
    tell(emit, "tcpport", options.tcp_port);
    tell(emit, "udpport", options.udp_port);
    match options.address {
        Some(address) => tell(emit, "inter", address),
        None => tell(emit, "inter", "NULL"),
    }
    tell(emit, "verbosity", options.verbosity);
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

/// There are no slab classes: memory is bounded by size. What is held is shown as one class.
fn items<B: Buffer>(server: &Server<B>, emit: Emit<'_>) {
    let store = &server.store;
    let Some(oldest) = store.items().next() else { return };
    tell(emit, "items:1:number", store.len());
    tell(emit, "items:1:age", store.now() - oldest.used);
    tell(emit, "items:1:mem_requested", store.used());
    tell(emit, "items:1:evicted", store.losses.evictions);
    tell(emit, "items:1:outofmemory", server.stats.store_no_memory);
    tell(emit, "items:1:reclaimed", store.losses.reclaimed);
}

fn slabs<B: Buffer>(server: &Server<B>, emit: Emit<'_>) {
    let (store, stats) = (&server.store, &server.stats);
    if store.len() > 0 {
        tell(emit, "1:used_chunks", store.len());
        tell(emit, "1:mem_requested", store.used());
        tell(emit, "1:get_hits", stats.get_hits);
        tell(emit, "1:cmd_set", stats.cmd_set);
        tell(emit, "1:delete_hits", stats.delete_hits);
        tell(emit, "1:incr_hits", stats.incr_hits);
        tell(emit, "1:decr_hits", stats.decr_hits);
        tell(emit, "1:cas_hits", stats.cas_hits);
        tell(emit, "1:cas_badval", stats.cas_badval);
        tell(emit, "1:touch_hits", stats.touch_hits);
    }
    tell(emit, "active_slabs", u8::from(store.len() > 0));
    tell(emit, "total_malloced", store.used());
}

/// Items by what they cost, in steps of 32 bytes, as memcached's `stats sizes`.
fn sizes<B: Buffer>(server: &Server<B>, emit: Emit<'_>) {
    const STEP: usize = 32;
    let mut counts = BTreeMap::new();
    for item in server.store.items() {
        *counts.entry(item.cost().next_multiple_of(STEP)).or_insert(0u64) += 1;
    }
    for (size, count) in counts {
        tell(emit, &size.to_string(), count);
    }
}

fn conns<B: Buffer>(server: &Server<B>, emit: Emit<'_>) {
    tell(emit, "curr_connections", server.connections);
    tell(emit, "max_connections", server.options.connections);
}
