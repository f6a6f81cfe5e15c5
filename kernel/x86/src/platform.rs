//! The machine that the pure kernel runs on.

use crate::area::CoreArea;
use crate::memory::Physical;
use crate::{apic, area, clock, control, cpu, mapping, serial, shootdown, vector_state};
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use nom_kernel_pure::ids::CoreId;
use nom_kernel_pure::machine::{Frame, Level, Machine, PhysAddr, Reflection, Segment};

/// All of the machine: its memory and registers, and what processors do.
pub type Platform = Physical;

/// State of the generator behind [`Machine::random`] where there is no RDRAND.
static RANDOM: AtomicU64 = AtomicU64::new(1);

/// Methods that do what a function of another module does.
macro_rules! delegate {
    ($($name:ident($($argument:ident: $type:ty),+) $to:path;)+) => { $(
        fn $name(&mut self, $($argument: $type),+) {
            $to($($argument),+);
        }
    )+ };
}

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
            let mut word = RANDOM.load(Relaxed) ^ cpu::rdtsc();
            word ^= word >> 12;
            word ^= word << 25;
            word ^= word >> 27;
            RANDOM.store(word, Relaxed);
            word.wrapping_mul(0x2545_f491_4f6c_dd1d)
        })
    }

    fn apic_id(&self, core: CoreId) -> u32 {
        shootdown::apic_id(core)
    }

    fn kick(&mut self, core: CoreId) {
        if core != CoreArea::core() {
            apic::kick(shootdown::apic_id(core));
        }
    }

    fn set_timer(&mut self, deadline_ns: u64) {
        apic::set_timer(clock::tsc_at(deadline_ns));
    }

    fn load_space(&mut self, root: Option<PhysAddr>) {
        shootdown::load(root.unwrap_or(mapping::kernel_root()));
    }

    fn leave_space(&mut self, root: PhysAddr) {
        shootdown::ask(root, 0, 0);
    }

    delegate! {
        flush_space(root: PhysAddr, address: u64, length: u64) shootdown::ask;
        reset_state(frame: Frame) vector_state::reset;
        save_state(frame: Frame) vector_state::save;
        load_state(frame: Frame) vector_state::load;
        set_segment_base(segment: Segment, address: u64) vector_state::set_segment_base;
        reflect(reflection: Option<Reflection>) area::reflect;
        write_console(bytes: &[u8]) serial::write;
        log(level: Level, text: fmt::Arguments<'_>) serial::log;
        control(line: fmt::Arguments<'_>) control::control;
    }
}
