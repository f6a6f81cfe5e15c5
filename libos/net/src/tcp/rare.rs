//! What a connection has when something is amiss, or while it ends: in a box that nearly none has.

use super::connection::{Connection, PeerTimeouts};
use super::forward::Forward;
use super::pace::Pace;
use super::segment::Segment;
use super::sequence::Seq;
use super::undo::Reduction;
use crate::buffer::Buffer;
use crate::time::{Instant, sooner};
use alloc::boxed::Box;
use core::ops::Deref;

/// All of it. A connection that has no box has [`Rare::NOTHING`].
#[derive(Debug)]
pub struct Rare {
    /// Duplicate acknowledgements in a row.
    pub duplicates: u32,
    /// The end of what was sent when a loss was found: recovery is over once it is acknowledged.
    pub point: Option<Seq>,
    /// Whether the first lost segment has not yet been sent again: it goes whatever is in flight.
    pub is_first_due: bool,
    /// No new recovery before this is acknowledged: duplicates up to here may be of our own making.
    pub not_before: Option<Seq>,
    /// Whether the last timeout came too early, as far as it is known.
    pub forward: Forward,
    /// The last reduction of the congestion window, while it may yet turn out to have been wrong.
    pub reduction: Option<Box<Reduction>>,
    /// The end of the last segment, sent again so that the peer says what it has (RFC 8985 section 7.3).
    pub probed: Option<Seq>,
    /// The patience with what is overtaken grows no more before this is acknowledged.
    pub reported: Option<Seq>,
    /// What came although it was there already, to be said once (RFC 2883).
    pub twice: Option<(Seq, Seq)>,
    /// Sequence number of the peer's FIN, if it came too early.
    pub fin: Option<Seq>,
    /// The reset that answers a segment which fits no handshake.
    pub refusal: Option<Segment>,
    /// No challenge acknowledgement before this (RFC 5961 section 7, each connection for itself, as a limit
    /// for all of them would tell strangers about it: CVE-2016-5696).
    pub no_challenge_before: Option<Instant>,
    /// When to ask whether a closed window is still closed.
    pub persist: Option<Instant>,
    /// The end of our patience with the peer of a connection that nobody here wants: in FIN-WAIT-2, and while
    /// it has no room for what is left.
    pub linger: Option<Instant>,
    /// When the next burst may go.
    pub pace: Pace,
    /// How long it waits for a peer that says nothing.
    pub peer_timeouts: PeerTimeouts,
    /// Since when nothing is acknowledged, while retransmissions go.
    pub silent_since: Option<Instant>,
}

impl Rare {
    const NOTHING: Rare = Rare {
        duplicates: 0,
        point: None,
        is_first_due: false,
        not_before: None,
        forward: Forward::No,
        reduction: None,
        probed: None,
        reported: None,
        twice: None,
        fin: None,
        refusal: None,
        no_challenge_before: None,
        persist: None,
        linger: None,
        pace: Pace::IDLE,
        peer_timeouts: PeerTimeouts::USUAL,
        silent_since: None,
    };

    /// Whether nothing of it says anything any more, of a connection whose oldest byte in flight is `una`.
    fn is_nothing(&self, una: Seq, now: Instant) -> bool {
        if self.peer_timeouts != PeerTimeouts::USUAL {
            return false;
        }
        let is_recovering = self.duplicates > 0
            || self.point.is_some()
            || self.is_first_due
            || self.not_before.is_some()
            || self.forward != Forward::No
            || self.reduction.is_some()
            || self.probed.is_some()
            || self.reported.is_some_and(|reported| una.before(reported));
        let is_said = self.twice.is_none() && self.fin.is_none() && self.refusal.is_none();
        let is_waiting = self.persist.is_some()
            || self.linger.is_some()
            || !self.pace.is_over(now)
            || self.no_challenge_before.is_some_and(|until| now < until);
        !is_recovering && is_said && !is_waiting
    }
}

/// What all have who have no box.
static NOTHING: Rare = Rare::NOTHING;

/// The box, if there is one. It is read as if there always were.
#[derive(Debug, Default)]
pub struct RareBox(Option<Box<Rare>>);

impl RareBox {
    /// The box, to put something into it.
    pub fn make(&mut self) -> &mut Rare {
        self.0.get_or_insert_with(|| Box::new(Rare::NOTHING))
    }

    /// The box, if there is one: to take something out of it.
    #[inline]
    pub fn some(&mut self) -> Option<&mut Rare> {
        self.0.as_deref_mut()
    }

    /// Whether no loss is mended, or suspected, and no FIN has come too early.
    #[inline]
    pub fn is_plain(&self) -> bool {
        let of = |rare: &Rare| rare.duplicates == 0 && rare.point.is_none() && rare.fin.is_none();
        self.0.as_deref().is_none_or(of)
    }

    /// Whether it has nothing that a segment would have to say.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        let of = |rare: &Rare| rare.twice.is_none() && rare.refusal.is_none();
        self.0.as_deref().is_none_or(of)
    }

    /// The first of its deadlines.
    #[inline]
    pub fn first(&self) -> Option<Instant> {
        let of = |rare: &Rare| sooner(sooner(rare.persist, rare.linger), rare.pace.until);
        self.0.as_deref().and_then(of)
    }
}

impl Deref for RareBox {
    type Target = Rare;

    #[inline]
    fn deref(&self) -> &Rare {
        self.0.as_deref().unwrap_or(&NOTHING)
    }
}

impl<B: Buffer> Connection<B> {
    /// When time will do something.
    #[inline]
    pub fn first_deadline(&self) -> Option<Instant> {
        sooner(self.deadlines.first(), self.rare.first())
    }

    /// Gives the box back if nothing is in it.
    #[inline]
    pub fn tidy(&mut self, now: Instant) {
        if self.rare.0.as_deref().is_some_and(|rare| rare.is_nothing(self.send.una, now)) {
            self.rare.0 = None;
        }
    }
}
