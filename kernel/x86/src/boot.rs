//! From the first line of Rust to the first application: the steps that `kernel/src/main.rs` lists.

use crate::area::CoreArea;
use crate::calendar;
use crate::mapping::{self, Early, STACK_BYTES};
use crate::memory::Physical;
use crate::platform::Platform;
use crate::serial::log;
use crate::smp::{CORES_STARTED, STACK_TOPS, TRAMPOLINE};
use crate::start_info::{Region, StartInfo};
use crate::{
    apic, backtrace, clock, control, cpu, entry, power, serial, shootdown, smp, tables, vector_state,
};
use core::arch::global_asm;
use core::sync::atomic::Ordering::Relaxed;
use nom_abi::board::{BOARD_BYTES, Board, ClockSource, DmaProtection, Usage};
use nom_abi::layout::{CORES_MAX, KERNEL_IMAGE, KERNEL_LOAD};
use nom_abi::memory::FRAME_BYTES;
use nom_kernel_pure::acpi::Tables;
use nom_kernel_pure::applications::Application;
use nom_kernel_pure::bundle::BundleView;
use nom_kernel_pure::clock::Rate;
use nom_kernel_pure::contexts::Context;
use nom_kernel_pure::cores::Core;
use nom_kernel_pure::frames::{BlockInfo, FrameInfo, Frames};
use nom_kernel_pure::ids::CoreId;
use nom_kernel_pure::iommu::Iommu;
use nom_kernel_pure::kernel::{Kernel, Parts};
use nom_kernel_pure::machine::{Level, PhysAddr, PhysicalMemory};
use nom_kernel_pure::means::Means;
use nom_kernel_pure::pci::Pci;

unsafe extern "Rust" {
    /// `kernel/src/main.rs`.
    fn kernel_main(boot: Boot) -> !;
}

global_asm!(
    include_str!("asm/boot.S"),
    kernel_image = const KERNEL_IMAGE,
    rust_entry = sym boot_entry,
    rust_core_entry = sym core_entry,
    cores_started = sym CORES_STARTED,
    stack_tops = sym STACK_TOPS,
    kernel_root = sym mapping::KERNEL_ROOT,
    options(att_syntax),
);

/// What boot has found out so far; each step adds to it.
pub struct Boot {
    memory: Physical,
    info: StartInfo,
    features: cpu::Features,
    early: Early,
    bundle: &'static [u8],
    firmware: Tables,
    clock: Option<(ClockSource, Rate)>,
    cores: usize,
}

extern "C" fn boot_entry(start_info: PhysAddr) -> ! {
    serial::init();
    control::init();
    // SAFETY: the first and only value until `into_kernel` passes it on.
    let memory = unsafe { Physical::new() };
    let Some(info) = StartInfo::read(&memory, start_info) else {
        panic!("the loader gave no PVH start info with a memory map (version 1)");
    };
    let boot = Boot {
        memory,
        info,
        features: cpu::Features::read(),
        early: Early::new(0, 0),
        bundle: &[],
        firmware: Tables::default(),
        clock: None,
        cores: 1,
    };
    // SAFETY: `kernel/src/main.rs` defines it with this type.
    unsafe { kernel_main(boot) }
}

impl Boot {
    /// Obeys the kernel command line.
    pub fn read_command_line(&mut self) {
        if let Some(level) = self.info.options("log").next() {
            serial::set_level(level);
        }
        let has_secrets = cpu::rdrand().is_some() || self.info.options("seed").any(|seed| seed == "public");
        assert!(
            has_secrets,
            "no RDRAND, so no secrets: choose a processor with it, or boot with `seed=public`"
        );
    }

    /// Finds the bundle behind the kernel image, and the memory behind the bundle.
    pub fn find_bundle(&mut self) {
        let start = mapping::image_end();
        let length = self.memory.read(start + 8) >> 32;
        let is_bundle = self.memory.read(start) == nom_abi::image::MAGIC;
        let has_it = |region: &&Region| region.usable && (region.start..region.end).contains(&start.word());
        let region = self.info.regions.iter().find(has_it);
        let end = region.map_or(0, |region| region.end.min(1 << 30));
        assert!(
            is_bundle && start.word() + length <= end,
            "no bundle behind the kernel at {start:?}: build the image with `nom build`"
        );
        // SAFETY: these frames are never given to the allocator, so nobody writes them.
        self.bundle = unsafe { Physical::constant(start, length) };
        self.early = Early::new(start.word() + length, end);
    }

    /// Leaves the boot page tables for the kernel's own: W^X, no execute, guards, the bundle read-only.
    pub fn map_memory(&mut self) {
        let constant_end = mapping::image_end() + self.bundle.len() as u64;
        self.features.enable();
        mapping::build(&mut self.memory, &mut self.early, &self.info, constant_end, self.features.huge_pages);
        // SAFETY: as in `find_bundle`; it is where the direct map now has it.
        self.bundle = unsafe { Physical::constant(mapping::image_end(), self.bundle.len() as u64) };
    }

    /// Loads descriptor tables, so that from here on a fault is reported.
    pub fn load_tables(&mut self) {
        tables::init_gates();
        self.prepare_core(0);
        load_core(0, &self.features);
    }

    /// Maps a core's stacks.
    fn prepare_core(&mut self, core: usize) {
        let slot = 4 * core as u64;
        for index in 1..=3 {
            mapping::map_stack(&mut self.memory, &mut self.early, slot + index, FRAME_BYTES);
        }
        let top = mapping::map_stack(&mut self.memory, &mut self.early, slot, STACK_BYTES);
        STACK_TOPS[core].store(top, Relaxed);
    }

    /// Reads what firmware says about processors, PCI and remapping units.
    pub fn read_firmware_tables(&mut self) {
        self.firmware = Tables::read(&self.memory, self.info.rsdp, self.info.low_end());
    }

    /// Calibrates the time-stamp counter, then the local APIC's timer.
    pub fn start_clock(&mut self) {
        let page = self.early.take(FRAME_BYTES);
        self.clock = Some(clock::calibrate(&mut self.memory, page));
        apic::choose(&self.features);
        apic::init();
        apic::calibrate();
        shootdown::register(CoreId::FIRST);
    }

    /// Starts the other processors; they wait for the kernel.
    pub fn start_cores(&mut self) {
        let own = apic::id();
        let processors = self.firmware.processors;
        let others = processors.iter().copied().filter(|id| *id != own).take(CORES_MAX - 1);
        let count = others.clone().count();
        if count == 0 {
            return;
        }
        for core in 1..=count {
            self.prepare_core(core);
        }
        self.cores = smp::start(&mut self.memory, others);
        if self.cores <= count {
            log(Level::Warn, format_args!("{} of {} processors started", self.cores, count + 1));
        }
    }

    /// Puts the kernel together. What is left of memory is for applications.
    pub fn into_kernel(mut self) -> &'static mut Kernel<'static, Platform> {
        let bundle = BundleView::parse(self.bundle)
            .unwrap_or_else(|error| panic!("the bundle cannot be used: {error}"));
        *backtrace::SYMBOLS.wait() = bundle.kernel_symbols();
        let applications = bundle.applications().len();
        let end_frame = self.info.high_end() / FRAME_BYTES;
        let blocks = Frames::blocks_for(end_frame) as usize;
        let block_table = self.table(blocks, || BlockInfo::RESERVED);
        let frame_table = self.untouched_table(blocks * 512);
        let board_address = self.early.take(BOARD_BYTES as u64);
        // SAFETY: the frames are the board's for good; all zeros is an empty board.
        let board: &'static Board = unsafe { &Physical::table::<Board>(board_address, 1)[0] };
        let usage_address = self.early.take(((applications + 1) * size_of::<Usage>()) as u64);
        // SAFETY: as above.
        let usage = unsafe { Physical::table::<Usage>(usage_address, applications + 1) };
        let application_table = self.table(applications, Application::default);
        let core_table = self.table(self.cores, Core::default);
        let context_table = self.table(self.cores * applications, Context::default);
        let pci = &mut self.table(1, Pci::none)[0];
        if let Some(ecam) = self.firmware.ecam {
            pci.enumerate(&mut self.memory, ecam, self.info.low_end());
        }
        for device in self.info.options("virtio_mmio.device") {
            let added = pci.add_mmio(&mut self.memory, device, &self.firmware, self.info.low_end());
            if let Err(error) = added {
                log(Level::Warn, format_args!("virtio_mmio.device={device}: {error}"));
            }
        }
        let place = self.early.take(size_of::<Kernel<'static, Platform>>() as u64);
        self.publish_clock(board);
        let mut frames = Frames::new(block_table, frame_table);
        self.give_memory(&mut frames);
        let means = &mut Means::of_kernel(&mut self.memory, &mut frames);
        let mut iommu = Iommu::start(means, &self.firmware, pci)
            .unwrap_or_else(|error| panic!("the IOMMU cannot be used: {error:?}"));
        power::init(&mut self.memory, &self.firmware, &mut iommu, apic::id());
        if power::forged_interrupts_pass(&mut self.memory, &self.firmware, apic::id()) {
            iommu.trust_interrupts();
        }
        if matches!(iommu.protection(), DmaProtection::VirtioIommu | DmaProtection::IntelVtdMemory) {
            log(Level::Warn, format_args!("devices: confined memory, trusted interrupts"));
        }
        let kernel = Kernel::new(Parts {
            machine: self.memory,
            frames,
            board,
            board_frame: board_address.frame(),
            usage,
            usage_frame: usage_address.frame(),
            bundle,
            bundle_frame: mapping::image_end().frame(),
            applications: application_table,
            cores: core_table,
            contexts: context_table,
            pci,
            iommu,
            kernel_root: mapping::kernel_root(),
        });
        // SAFETY: `Early` hands memory out once.
        unsafe { Physical::place(place, kernel) }
    }

    /// Early memory for `count` values, each made by `make`.
    fn table<T>(&mut self, count: usize, make: impl Fn() -> T) -> &'static mut [T] {
        let address = self.early.take((size_of::<T>() * count) as u64);
        // SAFETY: `Early` hands memory out once.
        unsafe { Physical::table_with(address, count, make) }
    }

    /// Early memory for what is kept about single frames, as it is.
    fn untouched_table(&mut self, count: usize) -> &'static mut [FrameInfo] {
        let address = self.early.take((size_of::<FrameInfo>() * count) as u64);
        // SAFETY: `Early` hands memory out once, and any bits are a `FrameInfo`, which is a plain integer.
        unsafe { Physical::untouched(address, count) }
    }

    fn publish_clock(&self, board: &Board) {
        let Some((source, rate)) = self.clock else { return };
        board.clock.sequence.write(|| {
            board.clock.source.store(source as u32, Relaxed);
            board.clock.tsc_base.store(clock::boot(), Relaxed);
            let since_start = clock::now_ns() / 1_000_000_000;
            let now = calendar::seconds().unwrap_or(since_start);
            board.clock.unix_start.store(now.saturating_sub(since_start), Relaxed);
            board.clock.multiplier.store(rate.multiplier(), Relaxed);
            board.clock.tsc_hz.store(rate.hz(), Relaxed);
        });
        board.machine.colours.store(cpu::cache_colours(), Relaxed);
        board.machine.unmitigated.store(cpu::hazards().0, Relaxed);
    }

    /// Gives the allocator all usable memory but what boot took, the trampoline and the first page.
    fn give_memory(&self, frames: &mut Frames<'static>) {
        let mut taken =
            [(0, FRAME_BYTES), (TRAMPOLINE, TRAMPOLINE + FRAME_BYTES), (KERNEL_LOAD, self.early.next())];
        taken.sort_unstable();
        for region in self.info.regions.iter().filter(|region| region.usable) {
            let mut start = region.start.next_multiple_of(FRAME_BYTES);
            let end = region.end & !(FRAME_BYTES - 1);
            for (from, to) in taken.into_iter().chain([(end, end)]) {
                let until = from.clamp(start, end.max(start));
                frames.add_free(start / FRAME_BYTES..until / FRAME_BYTES);
                start = start.max(to.min(end));
            }
        }
    }
}

/// What every core does for itself. Its stacks must be mapped.
fn load_core(core: usize, features: &cpu::Features) {
    let top = STACK_TOPS[core].load(Relaxed);
    let own = [1, 2, 3].map(|index| mapping::stack_top(4 * core as u64 + index));
    CoreArea::install(CoreId::new(core), top);
    tables::load(core, top, own);
    vector_state::init(features);
}

/// A processor that was started arrives here, on its own stack, with the kernel's page tables.
extern "C" fn core_entry(core: u64) -> ! {
    let features = cpu::Features::read();
    features.enable();
    load_core(core as usize, &features);
    apic::init();
    shootdown::register(CoreId::new(core as usize));
    smp::ready();
    smp::wait_for_kernel();
    entry::begin()
}

/// Gives every core to the kernel. The applications that it has been told to start begin.
pub fn enter(kernel: &'static mut Kernel<'static, Platform>) -> ! {
    entry::install(kernel);
    smp::release();
    entry::begin()
}
