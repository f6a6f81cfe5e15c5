//! A cable between two TAP devices that delays, loses, reorders, duplicates and corrupts frames, in this
//! process: it takes no module of Linux, and its dice fall as a seed says.

use super::conditions::Conditions;
use anyhow::{Context, Result};
use nom_linux_host::tap;
use nom_vmm::Namespace;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read, write};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bits a second, each way: so few that not the computer but the network is measured.
pub const RATE: u64 = 100_000_000;
/// What waits longer than that in front of the cable is dropped, as a router's queue overflows.
const QUEUE: Duration = Duration::from_millis(40);
/// How late a frame is that others overtake.
const LATE: Duration = Duration::from_millis(2);
/// Longest frame.
const FRAME_BYTES: usize = 2048;
/// The cable looks at least so often whether it is to go on.
const LOOK: Duration = Duration::from_millis(50);
/// Ethernet and IPv4 headers: what is turned stands behind them, where a checksum of TCP's guards it.
const HEADERS: usize = 34;

/// A cable; it is pulled when dropped.
#[derive(Debug)]
pub struct Cable {
    conditions: Arc<Mutex<(Conditions, u64)>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Cable {
    /// Connects the devices `ends`, each in a namespace.
    ///
    /// # Errors
    /// If one of them cannot be attached to.
    pub fn plug(ends: [(&Namespace, &str); 2]) -> Result<Cable> {
        let [left, right] = ends.map(|(namespace, device)| attach(namespace, device));
        let ends = [left?, right?];
        let conditions = Arc::new(Mutex::new((Conditions::default(), 1)));
        let is_over = Arc::new(AtomicBool::new(false));
        let mut carrier =
            Carrier { ends, flying: BTreeMap::new(), count: 0, busy: [Instant::now(); 2], random: 1 };
        let (settings, over) = (conditions.clone(), is_over.clone());
        let thread = std::thread::spawn(move || {
            let mut seed = 0;
            while !over.load(Ordering::Relaxed) {
                let (conditions, wanted) = *settings.lock().expect("nobody panics with it");
                if wanted != seed {
                    (seed, carrier.random) = (wanted, wanted);
                }
                carrier.turn(&conditions);
            }
        });
        Ok(Cable { conditions, is_over, thread: Some(thread) })
    }

    /// From now on frames fare so, the dice beginning anew with `seed`.
    pub fn set(&self, conditions: Conditions, seed: u64) {
        *self.conditions.lock().expect("nobody panics with it") = (conditions, seed.max(1));
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn attach(namespace: &Namespace, device: &str) -> Result<OwnedFd> {
    let inside = || -> Result<OwnedFd> {
        namespace.enter()?;
        tap::plug(device).context("cannot plug the cable in")
    };
    std::thread::scope(|scope| scope.spawn(inside).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

struct Carrier {
    ends: [OwnedFd; 2],
    /// Frames on their way by arrival and number, with the end where they arrive.
    flying: BTreeMap<(Instant, u64), (usize, Vec<u8>)>,
    count: u64,
    /// When each end has sent what waits there.
    busy: [Instant; 2],
    random: u64,
}

impl Carrier {
    /// Waits for something to happen, and does it.
    fn turn(&mut self, conditions: &Conditions) {
        let next = self.flying.keys().next().map(|(due, _)| *due);
        let wait = next.map_or(LOOK, |due| due.saturating_duration_since(Instant::now())).min(LOOK);
        let wait = Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) };
        let mut files = [0, 1].map(|end| PollFd::new(&self.ends[end], PollFlags::IN));
        // An interruption is a reason to look, too.
        let _ = poll(&mut files, Some(&wait));
        for from in [0, 1] {
            self.take(from, conditions);
        }
        let now = Instant::now();
        while let Some(entry) = self.flying.first_entry().filter(|entry| entry.key().0 <= now) {
            let (to, frame) = entry.remove();
            // A device that is down, or full, loses it, as cables do.
            let _ = write(&self.ends[to], &frame);
        }
    }

    fn take(&mut self, from: usize, conditions: &Conditions) {
        let mut frame = [0; FRAME_BYTES];
        loop {
            match read(&self.ends[from], &mut frame) {
                Ok(len) => self.carry(from, frame[..len].to_vec(), conditions),
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    fn carry(&mut self, from: usize, mut frame: Vec<u8>, conditions: &Conditions) {
        let now = Instant::now();
        let start = self.busy[from].max(now);
        if start - now > QUEUE {
            return;
        }
        let departure = start + Duration::from_nanos(frame.len() as u64 * 8 * 1_000_000_000 / RATE);
        self.busy[from] = departure;
        if self.happens(conditions.loss) {
            return;
        }
        let is_ip = frame.get(12..14) == Some(&[8, 0]);
        if self.happens(conditions.corrupt) && is_ip && frame.len() > HEADERS {
            let at = HEADERS + self.draw() as usize % (frame.len() - HEADERS);
            frame[at] ^= 1 << (self.draw() % 8);
        }
        let late = if self.happens(conditions.reorder) { LATE } else { Duration::ZERO };
        let due = departure + conditions.delay / 2 + late;
        for _ in 0..1 + u32::from(self.happens(conditions.duplicate)) {
            self.count += 1;
            self.flying.insert((due, self.count), (1 - from, frame.clone()));
        }
    }

    fn happens(&mut self, of_a_million: u32) -> bool {
        of_a_million > 0 && self.draw() % 1_000_000 < u64::from(of_a_million)
    }

    /// Marsaglia's xorshift64*.
    fn draw(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }
}
