//! Memory that is kept free for whoever needs some next, and who gives back when it is short: the shrinker of
//! applications (OSv, section 3).
//!
//! What is least useful goes first: buffers that nobody uses, then what the service has least use for, as it
//! knows itself ([`Service::shrink`](nom_service::Service::shrink)). When nobody has anything to give, who
//! asks for a connection is refused: whoever is connected is served.

use nom_port::buffer::Buffers;
use nom_service::Service;

/// How often it is looked for what is free while something happens: a core cannot receive as much as the
/// reserve meanwhile.
const LOOK_NS: u64 = 100_000;

/// Buffers that stay though nobody uses them: what is received into next.
pub(crate) const KEPT_BYTES: usize = 512 << 10;

/// How many times what is wanted the service gives for nothing to come of it: memory goes back in blocks, of
/// each of which all must be unused.
const PATIENCE: u64 = 4;

/// Rounds of giving back at a time while less than half of the reserve is free: a core that has waited for
/// its processor receives for long at once.
const ROUNDS: u32 = 4;

/// The part of the reserve below which nobody new is let in.
const LAST_PART: u64 = 8;

/// Tells what memory nobody uses.
#[derive(Clone, Copy, Debug)]
pub struct Free {
    /// Bytes that the program may still take, for anything.
    pub obtainable: fn() -> u64,
    /// Bytes that its heap has taken and nobody uses: good for whoever connects, but not for buffers, and
    /// often not for large tables.
    pub idle: fn() -> u64,
}

/// Watches what is free.
#[derive(Debug)]
pub(crate) struct Reserve {
    free: Free,
    /// Bytes that are to be free.
    wanted: u64,
    look_ns: u64,
    /// What was obtainable when somebody was asked last, if it has been too little ever since.
    asked: Option<u64>,
    /// Bytes that were given since anything came of it. Who gives back what only he can use again, such as
    /// his heap's, is not asked for ever more.
    vain: u64,
    is_used_up: bool,
}

impl Reserve {
    /// Sees to it that `wanted` bytes are free, as `free` tells.
    pub fn new(free: Free, wanted: u64) -> Reserve {
        Reserve { free, wanted, look_ns: 0, asked: None, vain: 0, is_used_up: false }
    }

    /// Whether nobody has anything to give any more.
    pub fn is_used_up(&self) -> bool {
        self.is_used_up
    }

    /// Looks for what is free, if it is time to, and has others give back what is missing. Returns when to
    /// look again though nothing happens: while something is missing that may yet come.
    pub fn look<M: Buffers>(
        &mut self,
        now_ns: u64,
        memory: &mut M,
        service: &mut impl Service<M::Buffer>,
    ) -> Option<u64> {
        if now_ns < self.look_ns {
            return self.asked.map(|_| self.look_ns);
        }
        self.look_ns = now_ns + LOOK_NS;
        let free = (self.free.obtainable)();
        if free >= self.wanted {
            (self.asked, self.is_used_up) = (None, false);
            return None;
        }
        self.reclaim(memory, service)
    }

    #[cold]
    fn reclaim<M: Buffers>(&mut self, memory: &mut M, service: &mut impl Service<M::Buffer>) -> Option<u64> {
        let mut moved = 0;
        for _ in 0..ROUNDS {
            moved += self.round(memory, service);
            if (self.free.obtainable)() >= self.wanted / 2 {
                break;
            }
        }
        (moved > 0).then_some(self.look_ns)
    }

    /// Has others give back once. Returns the bytes that came of it, or will.
    fn round<M: Buffers>(&mut self, memory: &mut M, service: &mut impl Service<M::Buffer>) -> u64 {
        let free = (self.free.obtainable)();
        let came = memory.trim(KEPT_BYTES).released_bytes as u64;
        let missing = self.wanted.saturating_sub(free + came);
        let has_changed = self.asked.is_none_or(|asked| asked != free);
        let unused = free + came + (self.free.idle)();
        if came > 0 || self.asked.is_some_and(|asked| asked < free) {
            self.vain = 0;
        }
        let helps = has_changed || self.vain < PATIENCE * self.wanted || unused < self.wanted;
        let given = if missing > 0 && helps { service.shrink(missing) } else { 0 };
        self.vain += given;
        self.asked = Some(free);
        self.is_used_up = unused + given < self.wanted / LAST_PART;
        came + given
    }
}
