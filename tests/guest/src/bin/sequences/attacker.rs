//! What an attacker does: calls that build on what earlier ones gave it, and attempts that once succeeded.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use fastrand::Rng;
use nom_app::{PageSize, cores, time};
use nom_guest_tests::workshop::{Workshop, own_selector};
use nom_sys::abi::Syscall::{self, *};
use nom_sys::abi::memory::ANY_COLOUR;
use nom_sys::raw;

/// Frames and how many were granted with them; both cores take from and put into the same places.
static FRAMES: [(AtomicU64, AtomicU64); 16] = [const { (AtomicU64::new(0), AtomicU64::new(1)) }; 16];
/// Where a sleep may put its events.
static EVENTS: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];

/// Where it maps: pages from here on, the last of them in the next 2 MiB, far from what the runtime places.
const PLACES: u64 = 0x5000_0000_0000 - 8 * 4096;
const PLACES_COUNT: u64 = 16;
/// Registers of a device, behind them.
const REGISTERS: u64 = PLACES + (1 << 30);
/// Steps of each core.
const STEPS: u32 = 4_000;
/// How far ahead a sleep's deadline is.
const SLEEP_NS: u64 = 30_000;

/// Code that once led into ring 0, or made trouble there.
const CODE: [&[u8]; 12] = [
    &[0x0f, 0x05],                                     // syscall with whatever is in RAX
    &[0x0f, 0x34],                                     // sysenter
    &[0x0f, 0x07],                                     // sysret
    &[0xcd, 0x80],                                     // int 0x80
    &[0xcd, 0x02],                                     // int 2
    &[0xf1],                                           // int1
    &[0xcc],                                           // int3
    &[0xfa],                                           // cli
    &[0xf4],                                           // hlt
    &[0x0f, 0x01, 0xf8],                               // swapgs
    &[0xfd, 0xcd, 0x03],                               // std; int 3
    &[0x9c, 0x81, 0x0c, 0x24, 0, 1, 0, 0, 0x9d, 0x90], // the trap flag
];

/// Does what follows from a seed until it is done, or its manager has had enough. In `told` it counts the
/// calls that it made, and those that succeeded.
pub fn attack(seed: u64, told: &'static [AtomicU64; 2]) -> u8 {
    let workshop = Workshop::open().ok();
    let other = cores::acquire(move || go(seed.rotate_left(32), told, None));
    go(seed, told, workshop.as_ref());
    drop(other);
    0
}

fn go(seed: u64, told: &'static [AtomicU64; 2], workshop: Option<&Workshop>) {
    let mut core = Core { random: Rng::with_seed(seed), told };
    for _ in 0..STEPS {
        if core.random.u32(0..64) == 0
            && let Some(workshop) = workshop
        {
            let selector = if core.random.bool() { own_selector() } else { core.random.u16(..) };
            let flags = 1_u64 << core.random.u32(8..22) & !(1 << 9);
            let _ = workshop.attempt_with_flags(selector, CODE[core.random.usize(0..CODE.len())], flags);
        }
        core.step();
    }
}

struct Core {
    random: Rng,
    told: &'static [AtomicU64; 2],
}

impl Core {
    fn step(&mut self) {
        match self.random.u32(0..100) {
            0..14 => self.grant(),
            14..24 => self.release(),
            24..42 => self.map(),
            42..52 => self.unmap(),
            52..58 => self.protect(),
            58..64 => self.touch(),
            64..70 => self.sleep(),
            70..82 => self.device(),
            82..88 => self.cores(),
            88..94 => self.others(),
            94..98 => self.call(CoreYield, [0; 5]),
            _ => self.anything(),
        };
    }

    fn call(&mut self, call: Syscall, [a, b, c, d, e]: [u64; 5]) {
        self.answer(call, [a, b, c, d, e]);
    }

    fn answer(&mut self, call: Syscall, [a, b, c, d, e]: [u64; 5]) -> Option<u64> {
        // SAFETY: the addresses and frames are the attacker's own, to which Rust refers by nothing; what else
        // the calls change the kernel leaves to this program, which may end badly.
        let answer = unsafe { raw::call(call as u64, [a, b, c, d, e, 0]) };
        self.told[0].fetch_add(1, Relaxed);
        self.told[1].fetch_add(answer.is_ok().into(), Relaxed);
        answer.ok()
    }

    /// A value that is likely to be right, now and then one beside it.
    fn near(&mut self, value: u64) -> u64 {
        match self.random.u32(0..24) {
            0 => value.wrapping_add(1),
            1 => value.wrapping_sub(1),
            2 => value ^ 1 << self.random.u32(0..64),
            _ => value,
        }
    }

    fn frame(&mut self) -> (u64, u64) {
        let place = &FRAMES[self.random.usize(0..FRAMES.len())];
        (self.near(place.0.load(Relaxed)), self.near(place.1.load(Relaxed)))
    }

    fn place(&mut self) -> u64 {
        let page = self.random.u64(0..PLACES_COUNT);
        self.near(PLACES + page * 4096)
    }

    fn grant(&mut self) {
        let count = [1, 1, 2, 3, 8, 700, 1 << 16][self.random.usize(0..7)];
        let size = u64::from(self.random.u32(0..16) == 0);
        let colour = if self.random.u32(0..8) == 0 { self.random.u64(0..16) } else { ANY_COLOUR };
        if let Some(frame) = self.answer(MemoryGrant, [size, count, colour, 0, 0]) {
            let place = &FRAMES[self.random.usize(0..FRAMES.len())];
            place.0.store(frame, Relaxed);
            place.1.store(count, Relaxed);
        }
    }

    fn release(&mut self) {
        let (frame, count) = self.frame();
        self.call(MemoryRelease, [frame, 0, count, 0, 0]);
    }

    fn map(&mut self) {
        let ((frame, count), address) = (self.frame(), self.place());
        let (protection, most) = ([1, 3, 3, 5, 7][self.random.usize(0..5)], self.random.u64(1..6));
        self.call(MemoryMap, [address, frame, 0, count.min(most), protection]);
    }

    fn unmap(&mut self) {
        let (address, pages) = (self.place(), self.random.u64(1..4));
        let length = self.near(pages * 4096);
        self.call(MemoryUnmap, [address, length, 0, 0, 0]);
    }

    fn protect(&mut self) {
        let (address, pages) = (self.place(), self.random.u64(1..4));
        let protection = self.random.u64(0..8);
        self.call(MemoryProtect, [address, pages * 4096, protection, 0, 0]);
    }

    /// Maps a page and has the kernel write to it, and read it, while the other core may take it away.
    fn touch(&mut self) {
        let address = self.place();
        let deadline = time::now_ns() + self.random.u64(0..SLEEP_NS);
        self.call(CoreWait, [deadline, address, 0, 0, 0]);
        // What is not the kernel's own text to print is refused; a page of zeros says nothing.
        self.call(ConsoleWrite, [address, 0, 0, 0, 0]);
        self.call(UpcallReturn, [address, 0, 0, 0, 0]);
    }

    fn sleep(&mut self) {
        const FAR: [u64; 3] = [u64::MAX, 1 << 63, u64::MAX / 3];
        let near = time::now_ns() + self.random.u64(0..SLEEP_NS);
        // A sleep without end is ended by the other core, or by the manager.
        let deadline = if self.random.u32(0..400) == 0 { FAR[self.random.usize(0..3)] } else { near };
        self.call(CoreWait, [deadline, EVENTS.as_ptr() as u64, 0, 0, 0]);
    }

    fn device(&mut self) {
        let (device, vector) = (self.random.u64(0..3), self.random.u64(0..3));
        let (bit, masked, place) = (self.random.u64(0..70), self.random.u64(0..3), self.random.u64(0..16));
        match self.random.u32(0..8) {
            0..2 => self.call(DeviceAcquire, [device, 0, 0, 0, 0]),
            2 => self.call(DeviceRelease, [device, 0, 0, 0, 0]),
            3..5 => {
                let (bar, page) = (self.random.u64(0..7), self.random.u64(0..5));
                self.call(DeviceMap, [device, bar, page * 4096, REGISTERS + place * 4096, 4096]);
            }
            5 => self.call(InterruptBind, [device, vector, bit, 0, 0]),
            6 => self.call(InterruptMask, [device, vector, masked, 0, 0]),
            _ => self.call(MemoryUnmap, [REGISTERS + place * 4096, 4096, 0, 0, 0]),
        }
    }

    /// Cores come and go: the work of a new one ends at once, or in a place where there is no code.
    fn cores(&mut self) {
        let number = self.random.u64(0..4);
        match self.random.u32(0..4) {
            0 => drop(cores::acquire(|| {})),
            1 if self.random.u32(0..16) == 0 => {
                let (entry, stack) = (self.place(), self.place() & !15);
                self.call(CoreAcquire, [entry, stack, 0, number, 0]);
            }
            _ => self.call(CoreNotify, [number, 0, 0, 0, 0]),
        }
    }

    fn others(&mut self) {
        let number = self.random.u64(0..4);
        match self.random.u32(0..4) {
            0 => self.call(ApplicationStart, [number, 0, 0, 0, 0]),
            1 => self.call(ApplicationKill, [number, 0, 0, 0, 0]),
            _ => self.call(ChannelNotify, [number, 0, 0, 0, 0]),
        }
    }

    /// Any call but those that end the sequence or its core, with anything.
    fn anything(&mut self) {
        let number = self.random.u64(0..Syscall::ALL.len() as u64 + 2);
        let ends = [Exit, CoreRelease, CoreWait, UpcallRegister, SegmentBase, ConsoleWrite];
        if ends.iter().any(|call| *call as u64 == number) && self.random.u32(0..32) != 0 {
            return;
        }
        let mut any = || match self.random.u32(0..4) {
            0 => self.random.u64(..) >> self.random.u32(0..64),
            1 => PLACES + self.random.u64(0..PLACES_COUNT) * PageSize::Small.bytes(),
            2 => FRAMES[self.random.usize(0..FRAMES.len())].0.load(Relaxed),
            _ => self.random.u64(0..8),
        };
        let arguments = [(); 6].map(|()| any());
        // SAFETY: as in `answer`.
        let _ = unsafe { raw::call(number, arguments) };
    }
}
