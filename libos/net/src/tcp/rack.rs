//! Losses by time (RFC 8985): what was sent well before something that has arrived is lost, however few
//! segments came in between; and when nothing comes, the last segment is sent again before the timeout.

use super::acknowledge::DUPLICATES;
use super::connection::{Connection, Context};
use super::flight::News;
use super::segment::Segment;
use super::sequence::Seq;
use crate::buffer::Buffer;
use crate::time::Instant;
use core::time::Duration;

/// The longest that a peer delays the acknowledgement of a lone segment (section 7.2).
const PEER_DELAY: Duration = Duration::from_millis(200);
/// No probe sooner: shorter round trips differ by more than themselves.
const PROBE_MIN: Duration = Duration::from_millis(10);
/// How many recoveries a larger patience lasts (section 6.2, step 4).
const PERSIST: u8 = 16;

/// What the times of transmissions tell.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rack {
    /// When the youngest transmission that has arrived was sent, and its end.
    newest: Option<(Instant, Seq)>,
    /// How long it took, and the shortest of all, in microseconds.
    rtt_us: u32,
    rtt_min_us: u32,
    /// Quarters of the shortest round trip that what is overtaken may be late.
    quarters: u8,
    /// Recoveries for which `quarters` is kept.
    persist: u8,
    /// Whether anything was ever overtaken.
    is_reordered: bool,
    /// Whether the last segment is to go again.
    is_tail_due: bool,
}

impl Rack {
    /// Takes what an acknowledgement told (section 6.2, steps 1 to 3).
    #[inline]
    pub fn take(&mut self, now: Instant, news: &News) {
        self.is_reordered |= news.is_reordered;
        let Some((at, end, is_again)) = news.newest else { return };
        let rtt = u32::try_from(now.nanos_since(at) / 1000).unwrap_or(u32::MAX);
        if is_again && rtt < self.rtt_min_us {
            // The answer to the first transmission, not to this one.
            return;
        }
        if !is_again && (self.rtt_min_us == 0 || rtt < self.rtt_min_us) {
            self.rtt_min_us = rtt.max(1);
        }
        self.rtt_us = rtt;
        if self.newest.is_none_or(|(last, before)| last < at || last == at && before.before(end)) {
            self.newest = Some((at, end));
        }
    }

    /// The last round trip.
    #[inline]
    pub fn rtt(&self) -> Duration {
        Duration::from_micros(u64::from(self.rtt_us))
    }

    /// The same in microseconds; 0 before there is any.
    pub fn rtt_us(&self) -> u32 {
        self.rtt_us
    }

    /// Whether the last segment is to go again.
    #[inline]
    pub fn is_tail_due(&self) -> bool {
        self.is_tail_due
    }

    /// The same, and then no more.
    #[inline]
    pub fn take_tail(&mut self) -> bool {
        core::mem::take(&mut self.is_tail_due)
    }

    /// What was sent again had not been lost, but overtaken.
    pub fn overtaken(&mut self) {
        self.is_reordered = true;
    }

    /// All is sent again anyway.
    pub fn timed_out(&mut self) {
        self.is_tail_due = false;
    }

    /// How late may be what others overtook (step 4).
    fn patience(&self, is_sure: bool, smoothed: Duration) -> Duration {
        if !self.is_reordered && is_sure {
            return Duration::ZERO;
        }
        let quarter = Duration::from_micros(u64::from(self.rtt_min_us / 4));
        (quarter * u32::from(self.quarters.max(1))).min(smoothed)
    }
}

impl<B: Buffer> Connection<B> {
    /// Takes selective acknowledgements: what is new goes to `news`.
    pub(super) fn take_sack(&mut self, context: &mut Context<'_>, segment: &Segment, news: &mut News) {
        let (una, sack) = (self.send.una, &segment.options.sack);
        for &(from, to) in sack.iter().flatten() {
            self.recovery.flight.arrive(una, from, to, news);
        }
        if is_report(sack, segment.ack) {
            context.counters.duplicates_reported += 1;
            self.reported(segment.ack);
            self.disprove(sack[0]);
        }
        self.recovery.rack.take(context.now, news);
    }

    /// The peer had what was sent again: more patience, once a round trip (step 4).
    fn reported(&mut self, ack: Seq) {
        let (max, rare, rack) = (self.send.max, self.rare.make(), &mut self.recovery.rack);
        rare.probed = None;
        if rare.reported.is_none_or(|reported| reported.at_most(ack)) {
            rare.reported = Some(max);
            rack.quarters = rack.quarters.max(1).saturating_add(1);
            rack.persist = PERSIST;
        }
    }

    /// Gives up for lost what was overtaken for too long (step 5), and says how much is lost now.
    pub(super) fn detect_loss(&mut self, context: &mut Context<'_>) -> u32 {
        let recovery = &mut self.recovery;
        let Some(newest) =
            recovery.rack.newest.filter(|_| recovery.flight.arrived() > 0 || self.rare.point.is_some())
        else {
            return recovery.flight.lost();
        };
        let is_sure = self.rare.point.is_some()
            || self.rare.duplicates >= DUPLICATES
            || recovery.flight.arrived() > (DUPLICATES - 1) * self.send.mss;
        let smoothed = self.rtt.smoothed().unwrap_or(recovery.rack.rtt());
        let patience = recovery.rack.rtt() + recovery.rack.patience(is_sure, smoothed);
        let later = recovery.flight.lose(self.send.una, newest, patience, context.now);
        if later.is_some() || recovery.flight.arrived() > 0 {
            self.deadlines.loss = later;
        }
        self.recovery.flight.lost()
    }

    /// Time has come to look for losses, or to send the last segment again.
    pub(super) fn loss_due(&mut self, context: &mut Context<'_>) {
        if self.recovery.flight.arrived() == 0 && self.rare.point.is_none() {
            let is_waiting = self.send.una != self.send.max && self.rare.probed.is_none();
            if is_waiting {
                self.recovery.rack.is_tail_due = true;
                self.deadlines.retransmit = Some(context.now + self.rtt.timeout());
            }
        } else if self.detect_loss(context) > 0 && self.rare.point.is_none() && self.rare.not_before.is_none()
        {
            self.begin_recovery(context);
        }
    }

    /// When the last segment goes again, unless something is heard before (section 7.2): only where that is
    /// sooner than the timeout, and nothing else is amiss.
    #[inline]
    pub(super) fn schedule_tail(&mut self, now: Instant) {
        let flight = self.send.max.since(self.send.una);
        let recovery = &self.recovery;
        let is_plain = recovery.flight.is_plain() && self.rare.point.is_none() && self.retries == 0;
        if !self.is_sack || flight == 0 || !is_plain || self.rare.probed.is_some() {
            if is_plain {
                self.deadlines.loss = None;
            }
            return;
        }
        let Some(smoothed) = self.rtt.smoothed_ns() else { return };
        let delay = if flight <= self.send.mss { PEER_DELAY } else { Duration::ZERO };
        // Counted as numbers: it is done for each segment.
        let after_ns = (2 * smoothed + delay.as_nanos() as u64).max(PROBE_MIN.as_nanos() as u64);
        let due = now.plus_nanos(after_ns);
        self.deadlines.loss = self.deadlines.retransmit.filter(|timeout| due < *timeout).map(|_| due);
    }

    /// The last segment, sent again, is acknowledged: if that was a repair, there was a loss, which the
    /// congestion window is to know (section 7.4); and a recovery that ends makes patience older.
    #[inline]
    pub(super) fn probe_answered(&mut self, ack: Seq) {
        if self.rare.probed.is_some_and(|end| end.before(ack)) {
            self.rare.make().probed = None;
            self.cubic.lost();
        }
    }

    /// A recovery is over.
    pub(super) fn recovered(&mut self) {
        let rack = &mut self.recovery.rack;
        rack.persist = rack.persist.saturating_sub(1);
        if rack.persist == 0 {
            rack.quarters = 1;
        }
    }
}

/// Whether the first range tells of something that came twice (RFC 2883 section 4).
fn is_report(sack: &super::segment::SackRanges, ack: Seq) -> bool {
    match (sack[0], sack[1]) {
        (Some((_, to)), _) if to.at_most(ack) => true,
        (Some((from, to)), Some((first, last))) => first.at_most(from) && to.at_most(last),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::connection::{Origin, Settings, State};

    #[test]
    fn patience_lasts_for_sixteen_recoveries() {
        let origin = Origin { iss: Seq(0), stamp_offset: 0, mss: 1460, now: Instant::default() };
        let mut connection =
            Connection::<alloc::rc::Rc<[u8]>>::new(State::Established, origin, &Settings::default());
        connection.reported(Seq(0));
        let quarters = |connection: &Connection<_>| connection.recovery.rack.quarters;
        for number in 1..PERSIST {
            connection.recovered();
            assert_eq!(quarters(&connection), 2, "after {number}");
        }
        connection.recovered();
        assert_eq!(quarters(&connection), 1);
    }
}
