//! The network between hosts: one switch, and a link from it to each host with faults of its own.

use crate::random::Random;

/// What a link does to the frames on it, in each direction. Rates are in a million frames.
#[derive(Clone, Copy, Debug, Default)]
pub struct Link {
    /// Time from end to end, in nanoseconds.
    pub delay_ns: u64,
    /// Bits a second; 0 is without limit.
    pub bandwidth: u64,
    /// Longest that frames wait for the link before they are dropped, in nanoseconds; only with a bandwidth.
    pub queue_ns: u64,
    /// Frames lost.
    pub loss: u64,
    /// Frames that overtake or are overtaken.
    pub reorder: u64,
    /// By how much, at most, in nanoseconds.
    pub reorder_ns: u64,
    /// Frames that arrive twice.
    pub duplicate: u64,
    /// Frames of which a byte is changed.
    pub corrupt: u64,
    /// Frames cut short.
    pub truncate: u64,
}

impl Link {
    /// A link that does no harm, 100 us long.
    pub fn sound() -> Link {
        Link { delay_ns: 100_000, ..Link::default() }
    }

    /// A link of any kind.
    pub fn any(random: &mut Random) -> Link {
        let mut rate = |most: u64| if random.happens(500_000) { random.within(0..most) } else { 0 };
        let (loss, reorder, duplicate) = (rate(30_000), rate(100_000), rate(30_000));
        let (corrupt, truncate) = (rate(20_000), rate(5_000));
        let bandwidth = random.choose(&[0, 1_000_000_000, 100_000_000, 20_000_000]);
        Link {
            delay_ns: random.choose(&[1_000, 20_000, 100_000, 1_000_000, 15_000_000]),
            bandwidth,
            queue_ns: random.choose(&[5_000_000, 20_000_000, 100_000_000]),
            loss,
            reorder,
            reorder_ns: random.choose(&[50_000, 1_000_000, 20_000_000]),
            duplicate,
            corrupt,
            truncate,
        }
    }
}

/// One direction of a link.
#[derive(Debug)]
pub struct Way {
    link: Link,
    random: Random,
    /// When the frames that are on it are through.
    busy_until_ns: u64,
}

impl Way {
    /// A way on which nothing is.
    pub fn new(link: Link, random: Random) -> Way {
        Way { link, random, busy_until_ns: 0 }
    }

    /// Heals the link of all faults.
    pub fn heal(&mut self) {
        self.link = Link { delay_ns: self.link.delay_ns, ..Link::default() };
    }

    /// When the copies of a frame that sets out at `now_ns` arrive, and in which condition; none if lost.
    /// `Err` if the queue is full.
    pub fn carry(&mut self, now_ns: u64, mut frame: Vec<u8>) -> Result<Vec<(u64, Vec<u8>)>, Vec<u8>> {
        let Some(through_ns) = self.pass(now_ns, frame.len()) else { return Err(frame) };
        if self.random.happens(self.link.loss) || !self.damage(&mut frame) {
            return Ok(Vec::new());
        }
        let copies = if self.random.happens(self.link.duplicate) { 2 } else { 1 };
        let arrivals = (0..copies).map(|_| {
            let is_late = self.random.happens(self.link.reorder);
            let late_ns = if is_late { self.random.within(0..self.link.reorder_ns.max(1)) } else { 0 };
            through_ns + self.link.delay_ns + late_ns
        });
        let arrivals: Vec<u64> = arrivals.collect();
        Ok(arrivals.into_iter().map(|at_ns| (at_ns, frame.clone())).collect())
    }

    /// When a frame has passed the sender's end.
    fn pass(&mut self, now_ns: u64, len: usize) -> Option<u64> {
        if self.link.bandwidth == 0 {
            return Some(now_ns);
        }
        let start_ns = self.busy_until_ns.max(now_ns);
        if start_ns - now_ns > self.link.queue_ns {
            return None;
        }
        // 24 bytes of preamble, check sequence and gap go with each frame (IEEE 802.3).
        let bits = 8 * (len as u64 + 24);
        self.busy_until_ns = start_ns + bits * 1_000_000_000 / self.link.bandwidth;
        Some(self.busy_until_ns)
    }

    /// Damages a frame at times; `false` if the Ethernet check sequence would find it. Nothing else guards
    /// the Ethernet header and ARP, so damage to them is loss.
    fn damage(&mut self, frame: &mut Vec<u8>) -> bool {
        const ETHERNET: u64 = 14;
        let is_corrupt = self.random.happens(self.link.corrupt);
        let is_short = self.random.happens(self.link.truncate);
        if !is_corrupt && !is_short {
            return true;
        }
        let len = frame.len() as u64;
        if frame[12..14] == [8, 6] || len <= ETHERNET {
            return false;
        }
        if is_corrupt {
            let at = self.random.within(ETHERNET..len) as usize;
            frame[at] ^= self.random.within(1..256) as u8;
        }
        if is_short {
            frame.truncate(self.random.within(ETHERNET..len) as usize);
        }
        true
    }
}
