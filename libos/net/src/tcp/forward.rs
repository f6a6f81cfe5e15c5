//! Timeouts that came too early, of peers that do not stamp what they send (F-RTO, RFC 5682 sections 2 and
//! 3): behind what went again new segments go, instead of further old ones. If the peer then has what was
//! sent only once, that was late, not lost. One that stamps says so sooner, by what it echoes
//! ([`super::undo`]).

use super::connection::{Connection, Context};
use super::flight::News;
use super::sequence::Seq;
use crate::buffer::Buffer;

/// How far it is found out whether a timeout came too early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Forward {
    /// It is not, or no longer.
    #[default]
    No,
    /// The first segment goes again.
    Again,
    /// The peer has that, whichever of the two came, and new ones go.
    New,
}

impl<B: Buffer> Connection<B> {
    /// The timer expires: where losses are known nothing is to be found out, nor at a second expiry.
    pub(super) fn suspect_timeout(&mut self, is_known: bool) {
        let is_first = !is_known && self.retries == 1 && self.rare.not_before.is_none();
        let is_suspected = is_first && self.stamps.is_none();
        self.rare.make().forward = if is_suspected { Forward::Again } else { Forward::No };
    }

    /// Takes what an acknowledgement says about that; `news` is what arrived by it.
    pub(super) fn look_forward(
        &mut self,
        context: &mut Context<'_>,
        news: &News,
        is_advance: bool,
        is_duplicate: bool,
    ) {
        let (una, point) = (self.send.una, self.rare.not_before);
        let is_old = |end: Seq| point.is_some_and(|point| end.at_most(point));
        match self.rare.forward {
            Forward::Again if is_advance => {
                // Where all has arrived there is nothing to find out, and nothing new finds nothing out.
                let goes_on = point.is_some_and(|point| una.before(point)) && self.has_new_segment();
                self.rare.make().forward = if goes_on { Forward::New } else { Forward::No };
                self.send.next = if goes_on { self.send.max } else { self.send.next };
            }
            // Selective ones say what has arrived, which is a sign of neither.
            Forward::Again if is_duplicate && !self.is_sack => self.rare.make().forward = Forward::No,
            Forward::New => {
                let is_late =
                    news.newest.is_some_and(|(_, end, is_again)| !is_again && (is_advance || is_old(end)));
                if is_late {
                    self.undo(context);
                } else if is_duplicate {
                    self.rare.make().forward = Forward::No;
                    self.send.next = una;
                }
            }
            Forward::No | Forward::Again => {}
        }
    }

    /// Whether there is a whole segment that was never sent, and the peer takes it.
    fn has_new_segment(&self) -> bool {
        let (max, edge) = (self.send.max, self.send.una + self.send.window);
        self.send.end().since(max).min(edge.since(max)) >= self.send.mss
    }
}
