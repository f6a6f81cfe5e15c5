//! Makes system calls at random, with arguments at random or near an edge. Whatever becomes of it, the
//! kernel and the other applications stay.
//!
//! Arguments: how many calls; then, to repeat a run, the seed that it printed.
#![no_std]
#![no_main]

use fastrand::Rng;
use nom_app::memory::Grant;
use nom_app::{PageSize, args, board, println, seed, time};
use nom_sys::abi::layout::{APPLICATION_END, DEVICE_MAP, DIRECT_MAP, KERNEL_IMAGE, USER_END, USER_START};
use nom_sys::abi::{Syscall, memory::ANY_COLOUR};
use nom_sys::{raw, start};

nom_app::main!(main);

/// How far ahead a deadline may be, so that sleeping does not take all the time.
const SLEEP_NS_MAX: u64 = 20_000;

fn main() {
    let mut words = args();
    let calls: u64 = words.next().and_then(|word| word.parse().ok()).unwrap_or(1000);
    let random = u64::from_le_bytes(*seed().first_chunk().unwrap_or(&[0; 8]));
    let seed = words.next().and_then(|word| word.parse().ok()).unwrap_or(random);
    println!(
        "fuzz seed={seed} processors={}",
        board().machine.cores.load(core::sync::atomic::Ordering::Relaxed)
    );
    let mut fuzzer =
        Fuzzer { random: Rng::with_seed(seed), frames: [0; 16], addresses: [0; 16], events: [0; 6] };
    fuzzer.learn();
    for _ in 0..calls {
        fuzzer.step();
    }
    println!("fuzz done");
}

/// Nothing in here may need the thread pointer or the heap, which the calls may take away.
struct Fuzzer {
    random: Rng,
    /// Frames that were granted, for arguments that hit.
    frames: [u64; 16],
    /// Addresses at which something may be mapped.
    addresses: [u64; 16],
    /// Where a sleep may put its events.
    events: [u64; 6],
}

impl Fuzzer {
    /// Collects values that mean something.
    fn learn(&mut self) {
        let info = start::info();
        let base = USER_START + (self.random.u64(..) % APPLICATION_END / 2) / (1 << 30) * (1 << 30);
        self.addresses = core::array::from_fn(|number| match number {
            0 => info.image_base,
            1 => info.stack_base,
            2 => info.board,
            3 => core::ptr::from_ref(info) as u64,
            4 => info.channel[0].address,
            _ => base + (1 << (number + 8)) * 4096,
        });
        for frame in &mut self.frames {
            let grant = Grant::new(PageSize::Small, 2);
            *frame = grant.as_ref().map_or(0, Grant::frame);
            core::mem::forget(grant);
        }
    }

    fn step(&mut self) {
        let number = match self.random.u32(0..64) {
            0 => self.random.u64(..),
            1 => Syscall::ALL.len() as u64 + self.random.u64(0..4),
            _ => self.random.u64(1..Syscall::ALL.len() as u64),
        };
        let mut arguments = [(); 6].map(|()| self.argument());
        self.tame(number, &mut arguments);
        // SAFETY: what the calls change is only what the kernel leaves to this program, and it ends badly
        // if that was needed: that is what its manager expects.
        if let (Ok(value), true) =
            (unsafe { raw::call(number, arguments) }, number == Syscall::MemoryGrant as u64)
        {
            let place = self.random.usize(0..self.frames.len());
            self.frames[place] = value;
        }
    }

    fn argument(&mut self) -> u64 {
        const EDGES: [u64; 20] = [
            0,
            1,
            2,
            3,
            5,
            64,
            512,
            4096,
            PageSize::Large.bytes(),
            PageSize::Huge.bytes(),
            USER_START,
            APPLICATION_END,
            USER_END,
            0x8000_0000_0000,
            DIRECT_MAP,
            DEVICE_MAP,
            KERNEL_IMAGE,
            ANY_COLOUR,
            u64::MAX - 4095,
            1 << 63,
        ];
        let random = &mut self.random;
        let value = match random.u32(0..10) {
            0..3 => EDGES[random.usize(0..EDGES.len())],
            3..5 => self.frames[random.usize(0..16)],
            5..8 => self.addresses[random.usize(0..16)] + random.u64(0..8) * 4096,
            8 => random.u64(0..8),
            _ => random.u64(..) >> random.u32(0..64),
        };
        match random.u32(0..8) {
            0 => value.wrapping_add(1),
            1 => value.wrapping_sub(1),
            2 => value ^ 1 << random.u32(0..64),
            _ => value,
        }
    }

    /// Keeps the run going, and the console readable.
    fn tame(&mut self, number: u64, arguments: &mut [u64; 6]) {
        if number == Syscall::ConsoleWrite as u64 && arguments[1] <= 4096 {
            arguments[0] = DIRECT_MAP.wrapping_add(arguments[0]);
        }
        if number == Syscall::CoreWait as u64 {
            arguments[0] = arguments[0].min(time::now_ns() + SLEEP_NS_MAX);
            if self.random.bool() {
                arguments[1] = &raw mut self.events as u64;
            }
        }
    }
}
