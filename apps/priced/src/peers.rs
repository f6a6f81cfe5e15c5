//! The applications that have a channel.

use core::sync::atomic::Ordering::Relaxed;
use nom_app::alloc::format;
use nom_app::alloc::string::String;
use nom_app::alloc::vec::Vec;
use nom_app::channels::{self, Channel};
use nom_app::ipc::{self, Consumer, Producer, RingError};
use nom_app::{applications, time};
use nom_priced_core::{Announcement, BadReport, Daemon, Gathering, Held, Status, status};

/// Bytes of a frame of memory.
const FRAME_BYTES: u64 = 4096;
/// Longest message that an application may send.
const MESSAGE_MAX: usize = 256;
/// Most reports that are read from one application before everything else is looked at again.
const REPORTS_MAX: usize = 64;

/// The applications that have a channel.
pub struct Peers {
    machine: &'static str,
    peers: Vec<Peer>,
}

struct Peer {
    channel: Channel,
    name: String,
    producer: Producer<'static>,
    consumer: Consumer<'static>,
    activities: Gathering,
}

impl Peers {
    /// Opens every channel of this application. One that is broken is left out.
    pub fn open(machine: &'static str, daemon: &mut Daemon) -> Peers {
        let mut peers = Vec::new();
        for channel in channels::all() {
            let name = name(channel.peer);
            match ipc::open(channel.words, channel.end) {
                Ok((producer, consumer)) => {
                    let activities = Gathering::default();
                    peers.push(Peer { channel, name, producer, consumer, activities });
                }
                Err(why) => daemon.say(time::now_ns(), &format!("the channel to {name} is broken: {why:?}")),
            }
        }
        Peers { machine, peers }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.peers.len()
    }

    /// Tells everybody that prices have changed. Who has not taken earlier announcements out of a full ring
    /// finds the prices on the board when it does.
    pub fn announce(&mut self, announcement: &Announcement) {
        for peer in &mut self.peers {
            let is_full = peer.producer.push(&nom_priced_core::message(announcement)).is_err();
            if !is_full && peer.producer.take_notify_request() {
                // The channel is there as long as this program.
                let _ = peer.channel.notify();
            }
        }
    }

    /// Passes reports on.
    pub fn listen(&mut self, now_ns: u64, daemon: &mut Daemon) {
        let machine = self.machine;
        self.peers.retain_mut(|peer| match peer.listen(now_ns, machine, daemon) {
            Ok(()) => true,
            Err(why) => {
                daemon.say(now_ns, &format!("the channel to {} is broken: {why:?}", peer.name));
                false
            }
        });
    }

    /// Whether nobody has said anything, and whoever does will end this program's sleep.
    pub fn may_sleep(&self) -> bool {
        self.peers.iter().all(|peer| peer.consumer.prepare_wait())
    }
}

impl Peer {
    fn listen(&mut self, now_ns: u64, machine: &str, daemon: &mut Daemon) -> Result<(), RingError> {
        let mut buffer = [0; MESSAGE_MAX];
        for _ in 0..REPORTS_MAX {
            let Some(length) = self.consumer.pop(&mut buffer)? else { return Ok(()) };
            let message = &buffer[..length];
            match self.activities.take(message).and_then(|is_activity| match is_activity {
                true => Ok(None),
                false => self.status(message, machine).map(Some),
            }) {
                Ok(None) => {}
                Ok(Some(status)) => daemon.report(status),
                Err(why) => daemon.say(now_ns, &format!("{} reports nonsense: {why}", self.name)),
            }
        }
        Ok(())
    }

    /// What the provider is told.
    fn status(&self, message: &[u8], machine: &str) -> Result<Status, BadReport> {
        let usage = applications::usage(self.channel.peer);
        let (cores, frames) = (usage.cores.load(Relaxed), usage.frames.load(Relaxed));
        let (machine_cores, machine_frames) = applications::held_by_all();
        let held = Held {
            cores,
            memory_bytes: frames * FRAME_BYTES,
            machine_cores,
            machine_memory_bytes: machine_frames * FRAME_BYTES,
        };
        let activities = self.activities.whole();
        Ok(Status { activities, ..status(message, machine, &self.name, held)? })
    }
}

/// The name of an application, as the bundle has it.
fn name(application: usize) -> String {
    let bytes = applications::entry(application).name_bytes();
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
