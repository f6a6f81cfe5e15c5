//! Reductions of the congestion window that were wrong: what was taken for lost was late. A peer that
//! stamps what it sends shows so by what it echoes (Eifel, RFC 3522 and 4015); one that reports
//! duplicates, by reporting all that was sent again (RFC 3708).

use super::congestion::Cubic;
use super::connection::{Connection, Context};
use super::forward::Forward;
use super::proportion::Proportion;
use super::segment::Segment;
use super::sequence::Seq;
use crate::buffer::Buffer;
use crate::time::Instant;
use alloc::boxed::Box;

/// A reduction of the congestion window.
#[derive(Debug)]
pub struct Reduction {
    /// What was known of the path before.
    before: Cubic,
    /// What was in flight then.
    flight: (Seq, Seq),
    /// Whether the timer expired, rather than others having arrived.
    is_timeout: bool,
    /// What the first segment that was then sent again was stamped with, if anything was sent again.
    stamp: Option<u32>,
    /// Bytes sent again since then, less those that the peer reported as duplicates.
    again: u32,
    /// How much may be sent while what was lost is mended.
    pub proportion: Proportion,
}

impl Reduction {
    /// One that is about to happen, with what is in flight.
    pub fn new(before: Cubic, flight: (Seq, Seq), is_timeout: bool) -> Reduction {
        let proportion = Proportion::new(flight.1.since(flight.0));
        Reduction { before, flight, is_timeout, stamp: None, again: 0, proportion }
    }
}

impl<B: Buffer> Connection<B> {
    /// The timer expires. Where losses were known nothing was wrong, and a second expiry belongs to the
    /// first.
    pub(super) fn note_timeout(&mut self, is_known: bool) {
        if is_known {
            self.rare.make().reduction = None;
        } else if self.retries == 1 {
            let flight = (self.send.una, self.send.max);
            self.rare.make().reduction = Some(Box::new(Reduction::new(self.cubic, flight, true)));
        }
    }

    /// `len` bytes go again.
    pub(super) fn note_again(&mut self, now: Instant, len: u32) {
        let stamp = self.stamp_clock(now);
        if let Some(reduction) = self.rare.some().and_then(|rare| rare.reduction.as_mut()) {
            reduction.stamp.get_or_insert(stamp);
            reduction.again = reduction.again.saturating_add(len);
        }
    }

    /// The peer says that these bytes came twice.
    pub(super) fn disprove(&mut self, range: Option<(Seq, Seq)>) {
        let Some((from, to)) = range else { return };
        let Some(reduction) = self.rare.some().and_then(|rare| rare.reduction.as_mut()) else { return };
        if reduction.flight.0.at_most(from) && to.at_most(reduction.flight.1) {
            reduction.again = reduction.again.saturating_sub(to.since(from));
        }
    }

    /// Undoes the last reduction of the congestion window if an acknowledgement shows that nothing was lost.
    pub(super) fn consider_undo(&mut self, context: &mut Context<'_>, segment: &Segment, is_advance: bool) {
        let Some(reduction) = &self.rare.reduction else { return };
        let Some(stamp) = reduction.stamp else { return };
        let has_lost = self.recovery.flight.lost() > 0 && !reduction.is_timeout;
        let is_disproved = reduction.again == 0 && !has_lost;
        // An acknowledgement of what was sent again that echoes an older stamp answers the first
        // transmission.
        let echo = segment.options.timestamps.filter(|_| self.stamps.is_some());
        let is_echo_old = is_advance && echo.is_some_and(|stamps| Seq(stamps.echo).before(Seq(stamp)));
        let is_rest_sound = || !has_lost && !self.recovery.flight.is_again_flying();
        let is_late = is_echo_old && (reduction.is_timeout || is_rest_sound());
        if is_disproved || is_late {
            self.undo(context);
        }
    }

    pub(super) fn undo(&mut self, context: &mut Context<'_>) {
        let Some(rare) = self.rare.some() else { return };
        rare.forward = Forward::No;
        let Some(reduction) = rare.reduction.take() else { return };
        context.counters.reductions_undone += 1;
        self.cubic.undo(reduction.before);
        let recovery = &mut self.recovery;
        if reduction.is_timeout {
            // Nothing goes again but what is found lost from now on.
            recovery.flight.recant(self.send.una);
            rare.not_before = None;
            self.send.next = self.send.max;
        } else {
            recovery.rack.overtaken();
        }
        if recovery.flight.lost() == 0 {
            (rare.point, rare.is_first_due) = (None, false);
        }
    }
}
