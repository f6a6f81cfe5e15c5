//! Making other cores forget translations, and leave an address space that is about to go.
//!
//! One request at a time, by the core that holds the kernel's lock. The cores it concerns are those that have
//! the address space loaded; they answer from the interrupt, or while they wait for the lock, and the asking
//! core waits for all of them: when [`ask`] returns, no core uses an old translation.
//!
//! A core that halts keeps what it has loaded, and so what it knows: mostly the same goes on there. Once it
//! is asked to forget anything it leaves the address space, so that it is disturbed once and not again.

use crate::apic;
use crate::area::CoreArea;
use crate::cpu;
use crate::{mapping, smp};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use nom_abi::{layout::CORES_MAX, memory::FRAME_BYTES};
use nom_kernel_pure::ids::CoreId;
use nom_kernel_pure::machine::PhysAddr;

/// Root that each core has loaded, or 0.
static LOADED: [AtomicU64; CORES_MAX] = [const { AtomicU64::new(0) }; CORES_MAX];
static APIC_ID: [AtomicU32; CORES_MAX] = [const { AtomicU32::new(0) }; CORES_MAX];
/// Cores that have not answered yet.
static WAITING: AtomicU64 = AtomicU64::new(0);
/// The first page that they shall forget, and how many; if that is none, they leave the address space.
static FIRST: AtomicU64 = AtomicU64::new(0);
static PAGES: AtomicU64 = AtomicU64::new(0);

/// Notes which APIC this core is.
pub fn register(core: CoreId) {
    APIC_ID[core.index()].store(apic::id(), Relaxed);
}

/// The APIC identifier of a core that registered.
pub fn apic_id(core: CoreId) -> u32 {
    APIC_ID[core.index()].load(Relaxed)
}

/// Loads an address space on this core, if it is not loaded.
pub fn load(root: PhysAddr) {
    if LOADED[CoreArea::core().index()].swap(root.word(), SeqCst) != root.word() {
        // SAFETY: roots come from `Space::new`, which copies the kernel's half, or are the kernel's own.
        unsafe { cpu::set_cr3(root) };
    }
}

/// Answers a request that concerns this core, if there is one; a core that halted leaves the address space.
#[inline(always)]
pub fn answer(has_halted: bool) {
    if WAITING.load(Acquire) != 0 {
        answer_now(has_halted);
    }
}

#[cold]
fn answer_now(has_halted: bool) {
    let bit = CoreArea::core().bit();
    if WAITING.load(Acquire) & bit != 0 {
        comply(if has_halted { 0 } else { PAGES.load(Relaxed) });
        WAITING.fetch_and(!bit, AcqRel);
    }
}

/// Forgets so many pages, or leaves the address space. One is forgotten alone, of several all that is known:
/// Linux forgets up to 33 one by one, but QEMU's translator fits its table of translations to what is in it
/// only when that is forgotten as a whole, and servers were a tenth slower with the table that was left.
fn comply(pages: u64) {
    match pages {
        0 => load(mapping::kernel_root()),
        1 => cpu::invlpg(FIRST.load(Relaxed)),
        // SAFETY: reloads what is loaded.
        _ => unsafe { cpu::set_cr3(cpu::cr3()) },
    }
}

/// Makes every core that has `root` loaded forget its translations of `length` bytes from `address` on, or,
/// if that is none, load the kernel's root instead. The caller holds the kernel's lock.
pub fn ask(root: PhysAddr, address: u64, length: u64) {
    let (me, cores) = (CoreArea::core(), CoreId::first(smp::CORES_STARTED.load(SeqCst) as usize));
    let has_loaded = |core: &CoreId| LOADED[core.index()].load(SeqCst) == root.word();
    let others = cores.clone().filter(|core| *core != me && has_loaded(core));
    let mask = others.fold(0, |mask, core| mask | core.bit());
    FIRST.store(address, Relaxed);
    PAGES.store(length.div_ceil(FRAME_BYTES), Relaxed);
    WAITING.store(mask, Release);
    cores.filter(|core| mask & core.bit() != 0).for_each(|core| apic::kick(apic_id(core)));
    if has_loaded(&me) {
        comply(PAGES.load(Relaxed));
    }
    while WAITING.load(Acquire) != 0 {
        core::hint::spin_loop();
    }
}
