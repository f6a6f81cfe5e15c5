//! The machine that the pure kernel runs on.

use crate::area::CoreArea;
use crate::memory::Physical;
use crate::{apic, clock, control, cpu, mapping, serial, shootdown, vector_state};
use core::fmt;
use nom_abi::memory::FRAME_BYTES;
use nom_kernel_pure::machine::{Level, Machine, PhysicalMemory, Registers};

/// All of the machine.
pub struct Platform {
    memory: Physical,
    /// State of the generator behind [`Machine::random`] where there is no RDRAND.
    random: u64,
}

impl Platform {
    /// The machine, with all of its memory.
    pub fn new(memory: Physical) -> Platform {
        Platform { memory, random: cpu::rdtsc() | 1 }
    }
}

impl PhysicalMemory for Platform {
    #[inline(always)]
    fn read(&self, address: u64) -> u64 {
        self.memory.read(address)
    }
    fn write(&mut self, address: u64, value: u64) {
        self.memory.write(address, value);
    }
    fn read_bytes(&self, address: u64, bytes: &mut [u8]) {
        self.memory.read_bytes(address, bytes);
    }
    fn write_bytes(&mut self, address: u64, bytes: &[u8]) {
        self.memory.write_bytes(address, bytes);
    }
    fn copy(&mut self, from: u64, to: u64, length: u64) {
        self.memory.copy(from, to, length);
    }
    fn zero_frames(&mut self, frame: u64, count: u64) {
        self.memory.zero_frames(frame, count);
    }
}

macro_rules! forward_registers {
    ($($read:ident $write:ident $type:ty;)+) => {
        impl Registers for Platform {
            $(
                fn $read(&mut self, address: u64) -> $type {
                    self.memory.$read(address)
                }
                fn $write(&mut self, address: u64, value: $type) {
                    self.memory.$write(address, value);
                }
            )+
            fn now_ns(&self) -> u64 {
                clock::now_ns()
            }
        }
    };
}
forward_registers! { read8 write8 u8; read16 write16 u16; read32 write32 u32; read64 write64 u64; }

impl Machine for Platform {
    fn cycles(&self) -> u64 {
        cpu::rdtsc()
    }

    fn span_cycles(&self, nanoseconds: u64) -> u64 {
        clock::cycles_in(nanoseconds)
    }

    fn span_ns(&self, cycles: u64) -> u64 {
        clock::span_ns(cycles)
    }

    /// RDRAND; else xorshift64* (Vigna 2016) over the time-stamp counter, which places things apart but keeps
    /// no secret: only on machines that were told so (`seed=public`).
    fn random(&mut self) -> u64 {
        cpu::rdrand().unwrap_or_else(|| {
            self.random ^= cpu::rdtsc();
            self.random ^= self.random >> 12;
            self.random ^= self.random << 25;
            self.random ^= self.random >> 27;
            self.random.wrapping_mul(0x2545_f491_4f6c_dd1d)
        })
    }

    fn apic_id(&self, core: usize) -> u32 {
        shootdown::apic_id(core)
    }

    fn kick(&mut self, core: usize) {
        if core != CoreArea::core() {
            apic::kick(shootdown::apic_id(core));
        }
    }

    fn set_timer(&mut self, deadline_ns: Option<u64>) {
        apic::set_timer(deadline_ns.map(clock::tsc_at));
    }

    fn load_space(&mut self, root: Option<u64>) {
        shootdown::load(root.map_or(mapping::kernel_root(), |frame| frame * FRAME_BYTES));
    }

    fn flush_space(&mut self, root: u64) {
        shootdown::ask(root * FRAME_BYTES, false);
    }

    fn leave_space(&mut self, root: u64) {
        shootdown::ask(root * FRAME_BYTES, true);
    }

    fn reset_state(&mut self, frame: u64) {
        vector_state::reset(frame);
    }

    fn save_state(&mut self, frame: u64) {
        vector_state::save(frame);
    }

    fn load_state(&mut self, frame: u64) {
        vector_state::load(frame);
    }

    fn set_thread_pointer(&mut self, address: u64) {
        vector_state::set_thread_pointer(address);
    }

    fn write_console(&mut self, bytes: &[u8]) {
        serial::write(bytes);
    }

    fn log(&mut self, level: Level, text: fmt::Arguments<'_>) {
        serial::log(level, text);
    }

    fn control(&mut self, line: fmt::Arguments<'_>) {
        control::control(line);
    }
}
