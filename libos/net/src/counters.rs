//! What the stack did, and why it dropped what it dropped.

/// Makes the structure and its listing from one table, so that no counter can be missing from a report.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts since the stack began. Every frame that the stack drops raises exactly one `dropped_*`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Every counter with its name, in a fixed order.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Frames given to the stack.
    frames_received,
    /// Packets handed to the device; a packet that the device segments counts once.
    packets_sent,
    /// Frames too short, or of lengths that contradict each other.
    dropped_malformed,
    /// Frames for another Ethernet address.
    dropped_other_host,
    /// Frames of a protocol above Ethernet or IP that the stack does not speak.
    dropped_protocol,
    /// IPv6 packets with an extension header or an option that is refused.
    dropped_extension,
    /// Packets for an IP address that is not ours.
    dropped_other_address,
    /// Packets from an address that cannot send: broadcast, multicast, loopback or nobody.
    dropped_source,
    /// Datagrams that did not fit into a packet, and went in fragments.
    packets_fragmented,
    /// Packets that came as fragments and are whole.
    packets_reassembled,
    /// Fragments of IP packets that came twice, overlap, are too many, or had to make room for newer ones.
    dropped_fragment,
    /// Fragments whose packet was not whole in time.
    dropped_fragment_expired,
    /// Packets whose checksum does not fit.
    dropped_checksum,
    /// ICMP messages of a kind that needs no answer.
    dropped_icmp,
    /// UDP datagrams for a port that nobody bound.
    dropped_udp_port,
    /// Segments for a port that nobody listens on, or for a connection that is gone: answered by RST.
    dropped_tcp_port,
    /// RST segments for no connection.
    dropped_tcp_stray_reset,
    /// Connections refused, by RST, because the table of connections is full, or their peer's share of it.
    dropped_tcp_table_full,
    /// Segments that asked for a connection, or ended its handshake, while the application had no room for
    /// it: left without an answer.
    dropped_tcp_queue_full,
    /// Segments outside the receive window.
    dropped_tcp_window,
    /// Segments older than the last timestamp (PAWS).
    dropped_tcp_timestamp,
    /// RST segments at a sequence number that is not exactly the next (RFC 5961): challenged.
    dropped_tcp_reset,
    /// SYN segments inside a connection (RFC 5961): challenged.
    dropped_tcp_syn,
    /// Acknowledgements of what was never sent, or of a window long past.
    dropped_tcp_acknowledgement,
    /// Segments out of order that found the reassembly queue of their flow, or the memory for all of them,
    /// full.
    dropped_tcp_reassembly,
    /// Segments whose flags fit no state.
    dropped_tcp_flags,
    /// ARP packets that say nothing about us or about whom we asked.
    dropped_arp,
    /// Outgoing packets dropped because too many wait for an Ethernet address.
    dropped_arp_queue,
    /// Outgoing packets dropped because nobody answered for their next hop.
    dropped_unreachable,
    /// Outgoing packets dropped because the ring was full.
    dropped_ring,
    /// Challenge acknowledgements not sent because one just was (RFC 5961 section 7).
    challenges_limited,
    /// SYN-ACKs sent as cookies because too many connections were half open.
    cookies_sent,
    /// Connections opened by a cookie that came back.
    cookies_accepted,
    /// Flows that send smaller segments because a router said so.
    segments_shortened,
    /// Connections opened, either side.
    connections_opened,
    /// Segments sent again.
    retransmissions,
    /// Expiries of the retransmission timer.
    timeouts,
    /// Last segments sent again because nothing was heard for two round trips (RFC 8985).
    tail_probes,
    /// Segments that a peer says came twice (RFC 2883).
    duplicates_reported,
    /// Losses found by duplicate or selective acknowledgements, or by time.
    fast_retransmits,
    /// Reductions of the congestion window that were undone, as nothing had been lost (RFC 4015, 3708).
    reductions_undone,
    /// Receive windows that became larger, as their bytes were taken faster.
    receive_windows_grown,
    /// Receive windows that were cut for want of memory.
    receive_windows_short,
    /// Sends that were refused for want of memory, though their connection's queue could hold more.
    send_queues_short,
    /// Probes of a zero window.
    window_probes,
    /// Keep-alive probes.
    keep_alives,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_is_listed_once_by_name() {
        let counters = Counters { dropped_fragment: 7, ..Counters::default() };
        let raised: Vec<_> = counters.iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(raised, [("dropped_fragment", 7)]);
        assert_eq!(counters.iter().count() * 8, size_of::<Counters>());
    }
}
