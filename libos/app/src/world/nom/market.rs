//! What a server that earns needs of the machine: posted prices, what it holds, and `priced` to report to.

use core::sync::atomic::Ordering::Relaxed;
use nom_earn::{ActivityReport, Audience, Held, Report, Solvency};
use nom_economy::prices::Refusal;
use nom_rt::poller::{Poller, Progress};
use nom_sys::abi::board::Prices;
use nom_sys::abi::ipc::{self, Consumer, Producer};
use nom_sys::abi::memory::FRAME_BYTES;
use nom_sys::abi::priced::{Announcement, NAME};
use nom_sys::channels::{self, Channel};
use nom_sys::{applications, println, start};
use zerocopy::IntoBytes;

/// Where prices are posted.
pub(crate) type Board = &'static Prices;

pub(crate) fn board() -> Board {
    &start::board().prices
}

/// What the board says that this application holds.
pub(crate) fn held() -> Held {
    let own = applications::own();
    Held { cores: own.cores.load(Relaxed), memory_bytes: own.frames.load(Relaxed) * FRAME_BYTES }
}

/// The sending end of the channel to `priced`, if it runs in this machine.
pub(crate) struct Voice(Option<(Channel, Producer<'static>)>);

/// Both ends of the channel to `priced`. The second is a poller that an announcement wakes the core with, so
/// that a sleeping server looks at the board.
pub(crate) fn priced() -> (Voice, Option<Ear>) {
    let Some(channel) = applications::find(NAME).and_then(channels::to).ok() else {
        return (Voice(None), None);
    };
    match ipc::open(channel.words, channel.end) {
        Ok((producer, consumer)) => (Voice(Some((channel, producer))), Some(Ear(Some(consumer)))),
        Err(why) => {
            println!("the channel to {NAME} is broken, nothing is reported: {why:?}");
            (Voice(None), None)
        }
    }
}

impl Voice {
    fn say(&mut self, message: &[u8]) {
        let Some((channel, producer)) = &mut self.0 else { return };
        if producer.push(message).is_ok() && producer.take_notify_request() {
            // The channel is there as long as this program.
            let _ = channel.notify();
        }
    }
}

impl Audience for Voice {
    /// A full ring loses the report: `priced` has fallen behind, and the next one has the sums.
    fn report(&mut self, report: &Report, solvency: &Solvency) {
        let mut message = [0; size_of::<Report>() + size_of::<Solvency>()];
        let (head, tail) = message.split_at_mut(size_of::<Report>());
        head.copy_from_slice(report.as_bytes());
        tail.copy_from_slice(solvency.as_bytes());
        self.say(&message);
    }

    fn activities(&mut self, activities: &[ActivityReport]) {
        activities.iter().for_each(|own| self.say(own.as_bytes()));
    }

    fn refused(&mut self, refusal: &Refusal) {
        println!("{refusal}; the last good one holds");
    }
}

/// The receiving end, until something comes out of it that cannot be.
pub(crate) struct Ear(Option<Consumer<'static>>);

impl Poller for Ear {
    /// Takes announcements out; what they announce stands on the board.
    fn poll(&mut self, _: u64) -> Progress {
        let mut announcement = [0; size_of::<Announcement>()];
        while let Some(consumer) = &mut self.0 {
            match consumer.pop(&mut announcement) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                // The board still says the prices, and is looked at with every request.
                Err(_) => self.0 = None,
            }
        }
        Progress::default()
    }

    fn arm(&mut self) -> bool {
        self.0.as_ref().is_none_or(Consumer::prepare_wait)
    }

    fn disarm(&mut self) {}
}
