//! What the passing of time does to a connection (RFC 6298 section 5, RFC 9293 sections 3.8.4 and 3.8.6.1).

use super::connection::{
    Closed, Connection, Context, Effects, KeepAlive, PeerTimeouts, SmallSegments, State,
};
use crate::buffer::Buffer;
use crate::time::Instant;

impl<B: Buffer> Connection<B> {
    /// Does what is due. What is to be sent is for [`Connection::emit`] to find.
    pub fn expire(&mut self, context: &mut Context<'_>, effects: &mut Effects<B>) {
        if take_due(&mut self.deadlines.acknowledge, context.now) {
            self.receive.is_acknowledgement_due = true;
        }
        if take_due(&mut self.deadlines.loss, context.now) {
            self.loss_due(context);
        }
        if take_due(&mut self.deadlines.retransmit, context.now) {
            self.retransmit(context, effects);
        }
        if self.rare.some().is_some_and(|rare| take_due(&mut rare.persist, context.now)) {
            self.persist(context, effects);
        }
        // Whether more may go then is for `emit` to see.
        if let Some(rare) = self.rare.some() {
            take_due(&mut rare.pace.until, context.now);
        }
        if take_due(&mut self.deadlines.keep_alive, context.now) {
            self.keep_alive(context, effects);
        }
        if self.rare.some().is_some_and(|rare| take_due(&mut rare.linger, context.now)) {
            // It never said that it has no more to say, so there may have been more.
            self.leave(effects);
        }
    }

    /// Waits no longer for the peer of a connection that nobody here wants. One that did not take all that it
    /// was sent is not to believe that this was all.
    fn leave(&mut self, effects: &mut Effects<B>) {
        if self.state != State::FinWait2 {
            self.rare.make().refusal = self.abort();
        }
        self.end(Closed::TimedOut, effects);
    }

    /// Nothing was acknowledged for too long: go back to the oldest byte and begin slowly (rules 5.4 to 5.6).
    fn retransmit(&mut self, context: &mut Context<'_>, effects: &mut Effects<B>) {
        let limit = if self.is_synchronised() {
            context.settings.retries_max
        } else {
            context.settings.handshake_retries_max
        };
        if self.is_given_up(context.now).unwrap_or(self.retries >= limit) {
            return self.end(Closed::TimedOut, effects);
        }
        self.retries += 1;
        context.counters.timeouts += 1;
        self.rtt.back_off();
        self.timed = None;
        let is_known = self.rare.point.is_some();
        if self.is_synchronised() {
            self.note_timeout(is_known);
            self.suspect_timeout(is_known);
            self.cubic.timed_out(is_known);
        } else if self.retries > 1 {
            self.cubic.handshake_timed_out();
        }
        // What arrived once is not sent again, but a peer may have forgotten it (RFC 2018 section 8).
        self.recovery.flight.lose_all(self.send.una, self.retries > 1);
        self.recovery.rack.timed_out();
        self.deadlines.loss = None;
        let rare = self.rare.make();
        (rare.point, rare.duplicates, rare.is_first_due) = (None, 0, false);
        (rare.not_before, rare.probed) = (Some(self.send.max), None);
        let end = rare.peer_timeouts.user_timeout.zip(rare.silent_since).map(|(limit, since)| since + limit);
        // What is sent again is not waited for beyond that.
        self.deadlines.retransmit = end.map(|end| end.min(context.now + self.rtt.timeout()));
        self.send.next = self.send.una;
    }

    /// The window is still closed, or too small for a whole segment, or a small segment was held for long
    /// enough.
    fn persist(&mut self, context: &mut Context<'_>, effects: &mut Effects<B>) {
        if self.small_segments == SmallSegments::Held && self.send.window > 0 {
            // What was held may have gone since, with more: what comes next waits as long as any.
            self.is_small_allowed = self.send.next.before(self.send.end());
            return;
        }
        if self.is_given_up(context.now).unwrap_or(self.retries >= context.settings.retries_max) {
            return self.end(Closed::TimedOut, effects);
        }
        self.retries += 1;
        self.rtt.back_off();
        if self.send.window == 0 {
            context.counters.window_probes += 1;
            self.is_probe_due = true;
        } else {
            self.is_small_allowed = true;
        }
    }

    /// Whether what was sent went without an acknowledgement for too long, if this connection has a limit for
    /// that.
    fn is_given_up(&mut self, now: Instant) -> Option<bool> {
        let limit = self.rare.peer_timeouts.user_timeout.filter(|_| self.is_synchronised())?;
        if self.retries == 0 {
            self.rare.make().silent_since = Some(self.sent_at);
        }
        self.rare.silent_since.map(|since| now - since >= limit)
    }

    /// How long it waits for a peer that says nothing, from now on; when others ask theirs is `usual`.
    pub fn set_peer_timeouts(&mut self, timeouts: PeerTimeouts, usual: Option<KeepAlive>, now: Instant) {
        if timeouts == self.rare.peer_timeouts {
            return;
        }
        self.rare.make().peer_timeouts = timeouts;
        let due = timeouts.keep_alive.or(usual).map(|keep_alive| self.heard_at + keep_alive.idle);
        self.deadlines.keep_alive = due.map(|due| due.max(now));
    }

    /// The peer has said nothing since the timer was set, or some time since then.
    fn keep_alive(&mut self, context: &mut Context<'_>, effects: &mut Effects<B>) {
        let own = self.rare.peer_timeouts;
        let Some(settings) = own.keep_alive.or(context.settings.keep_alive) else { return };
        let quiet = context.now - self.heard_at;
        if quiet < settings.idle {
            self.deadlines.keep_alive = Some(self.heard_at + settings.idle);
            return;
        }
        let is_over = match own.user_timeout {
            Some(limit) => self.retries > 0 && quiet >= limit,
            None => self.retries >= settings.probes,
        };
        if is_over {
            return self.end(Closed::TimedOut, effects);
        }
        self.deadlines.keep_alive = Some(context.now + settings.interval);
        if self.is_synchronised() && self.send.una == self.send.max {
            self.retries += 1;
            context.counters.keep_alives += 1;
            self.is_probe_due = true;
        }
    }
}

fn take_due(deadline: &mut Option<Instant>, now: Instant) -> bool {
    deadline.take_if(|due| *due <= now).is_some()
}
