//! How much may be sent while a loss is mended (proportional rate reduction, RFC 9937, before it RFC 6937):
//! so much of what arrives as the window is to become of what it was, rather than nothing for a while and
//! then as much as arrives. Where more was lost than that, as much as arrives, or a segment more where
//! nothing else is lost: what the window has room for, sent in one burst, would overflow the queue that has
//! just overflowed. A burst as at the beginning of a connection is allowed to whoever has little in flight.

use super::connection::Connection;
use crate::buffer::Buffer;

/// Segments that may go without anything having arrived: as many as at a beginning (RFC 6928).
const BURST: u32 = 10;

/// What came and went since the loss was found, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Proportion {
    /// What was in flight then (RecoverFS).
    flight: u32,
    delivered: u32,
    sent: u32,
    /// What may go now.
    room: u32,
}

impl Proportion {
    /// Before anything came of `flight` bytes.
    pub fn new(flight: u32) -> Proportion {
        Proportion { flight: flight.max(1), delivered: 0, sent: 0, room: 0 }
    }

    /// `delivered` more bytes have arrived, so that `pipe` are on their way, of at most `target`. `is_sound`
    /// if nothing else was found lost.
    fn heard(&mut self, delivered: u32, (pipe, target): (u32, u32), mss: u32, is_sound: bool) {
        self.delivered = self.delivered.saturating_add(delivered);
        self.room = if pipe > target {
            let part = u64::from(self.delivered) * u64::from(target);
            let due = part.div_ceil(u64::from(self.flight));
            u32::try_from(due.saturating_sub(self.sent.into())).unwrap_or(u32::MAX)
        } else {
            let arrived = self.delivered.saturating_sub(self.sent).max(delivered);
            let growth = if is_sound { mss } else { 0 };
            let first = (BURST * mss).saturating_sub(self.sent);
            (arrived + growth).max(first).min(target - pipe)
        };
    }

    fn sent(&mut self, len: u32) {
        self.sent = self.sent.saturating_add(len);
        self.room = self.room.saturating_sub(len);
    }
}

impl<B: Buffer> Connection<B> {
    /// What of the congestion window may be sent now.
    pub(super) fn congestion_room(&self) -> u32 {
        match &self.rare.reduction {
            Some(reduction) if self.is_mending() => reduction.proportion.room,
            _ => self.cubic.window().saturating_sub(self.pipe()),
        }
    }

    /// `delivered` bytes are known to have arrived by an acknowledgement; `is_sound` if it is of nothing else
    /// lost.
    pub(super) fn note_delivered(&mut self, delivered: u32, is_sound: bool) {
        let (pipe, target) = (self.pipe(), self.cubic.window());
        let mss = self.send.mss;
        let rare = self.rare.some().filter(|rare| rare.point.is_some());
        if let Some(reduction) = rare.and_then(|rare| rare.reduction.as_mut()) {
            reduction.proportion.heard(delivered, (pipe, target), mss, is_sound);
        }
    }

    /// So many bytes go while a loss is mended, or at any other time.
    pub(super) fn note_sent_of_room(&mut self, len: u32) {
        if let Some(reduction) = self.rare.some().and_then(|rare| rare.reduction.as_mut()) {
            reduction.proportion.sent(len);
        }
    }

    /// Without selective acknowledgements what has arrived is not known well enough.
    fn is_mending(&self) -> bool {
        self.is_sack && self.rare.point.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1000;

    #[test]
    fn the_window_shrinks_by_what_arrives() {
        // One of a hundred is lost, and seventy are to be in flight when the others have arrived.
        let (mut proportion, mut pipe) = (Proportion::new(100 * MSS), 99 * MSS);
        let mut steps = 0_u32;
        for number in 1..=99 {
            pipe -= MSS;
            proportion.heard(MSS, (pipe, 70 * MSS), MSS, true);
            while proportion.room >= MSS {
                proportion.sent(MSS);
                pipe += MSS;
                steps += 1;
            }
            let due = number * 70 / 100;
            assert!(steps.abs_diff(due) <= 1, "{steps} of {due} have gone for {number}");
        }
        assert!(pipe.abs_diff(70 * MSS) <= MSS, "{pipe}");
    }

    #[test]
    fn where_most_was_lost_there_is_no_burst() {
        let mut proportion = Proportion::new(100 * MSS);
        proportion.heard(MSS, (20 * MSS, 70 * MSS), MSS, false);
        assert_eq!(proportion.room, BURST * MSS, "fifty would have room in the window");
        proportion.sent(BURST * MSS);
        proportion.heard(MSS, (29 * MSS, 70 * MSS), MSS, false);
        assert_eq!(proportion.room, MSS, "as much as arrives");
        proportion.sent(MSS);
        proportion.heard(MSS, (29 * MSS, 70 * MSS), MSS, true);
        assert_eq!(proportion.room, 2 * MSS, "and a segment more where nothing else is lost");
        proportion.heard(2 * MSS, (69 * MSS, 70 * MSS), MSS, true);
        assert_eq!(proportion.room, MSS, "no more than the window");
    }
}
