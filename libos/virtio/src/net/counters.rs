//! What a queue pair counts.

nom_port::counters! {
    /// Frames received.
    received_frames,
    /// Bytes of them.
    received_bytes,
    /// Times that new frames were found: their number per time is the device's batch.
    received_batches,
    /// Frames queued for sending.
    sent_frames,
    /// Bytes of them.
    sent_bytes,
    /// Frames whose slices were listed in a table of their own.
    sent_indirect,
    /// Frames of more slices than a chain may have, which were copied together.
    sent_copied,
    /// Times that frames were shown to the device.
    sent_batches,
    /// Notifications about frames to send.
    kicks,
    /// Notifications about frames to send that the device did not want.
    kicks_suppressed,
    /// Times that buffers were shown to the device.
    refills,
    /// Buffers of them.
    refilled_buffers,
    /// Notifications about buffers.
    refill_kicks,
    /// Notifications about buffers that the device did not want.
    refill_kicks_suppressed,
    /// Interrupts that were asked for and came due.
    interrupts,
    /// Switches from polling to interrupts.
    switches_to_interrupts,
    /// Switches from interrupts to polling.
    switches_to_polling,
    /// Switches to interrupts that were taken back because a frame came in the meantime.
    switches_raced,
    /// Frames given back to the stack because the ring was full.
    ring_full,
    /// Refills that found no memory: the application keeps too much.
    starved,
    /// Received frames dropped: shorter than an Ethernet header.
    dropped_short,
    /// Received frames dropped: said to fill more buffers than came, or none.
    dropped_incomplete,
    /// Received buffers said to hold more than they can; the rest is cut off.
    cut_overlong,
    /// Frames not sent: longer than any device takes, or empty.
    refused_length,
    /// Frames not sent: they need what the device does not offer.
    refused_offload,
    /// Chains that the device used under an identifier that no chain can have.
    error_identifier_out_of_range,
    /// Chains that the device used though it did not have them.
    error_identifier_not_lent,
    /// Queues given up because the device used more chains than it had.
    error_overrun,
    /// Resets of the device by this pair, which found it broken.
    resets,
    /// Chains that the device had when it was reset: frames not sent, buffers not filled.
    reset_chains,
}
