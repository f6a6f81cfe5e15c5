//! A machine for tests: hardware that remembers, time that moves when told, everything said kept as text.

mod processor;

use super::{Kernel, Next, Parts};
use crate::acpi::Tables;
use crate::applications::Application;
use crate::bundle::BundleView;
use crate::contexts::Context;
use crate::cores::Core;
use crate::fakes::{ECAM, FakeMachine as Hardware};
use crate::frames::{BlockInfo, FrameInfo, Frames, Owner};
use crate::ids::CoreId;
use crate::iommu::Iommu;
use crate::machine::{Frame, Level, Machine, PhysAddr, PhysicalMemory, Reflection, Registers, Segment};
use crate::means::Means;
use crate::pci::Pci;
use crate::testing::{app, on};
use core::cell::Cell;
use core::fmt;
use nom_abi::board::{ApplicationState, BOARD_BYTES, Board, Usage};
use nom_abi::image::{
    self, ApplicationRecord, Bundle, ChannelRecord, DeviceSelector, Run, SegmentRecord, flag,
};
use nom_abi::memory::FRAME_BYTES;
use nom_abi::syscall::Syscall;
use nom_abi::upcall::Registers as UserRegisters;
use processor::Processor;
use std::collections::BTreeSet;
use std::string::String;
use std::vec::Vec;
use zerocopy::{FromZeros, IntoBytes};

/// Frames of memory that a fake machine has.
pub const FRAMES: u64 = 4096;
/// Cycles in a nanosecond.
const CYCLES_PER_NS: u64 = 2;
/// The vector state that a computation begins with. It is not zero, as the processor's own is not (SDM volume
/// 1, section 8.1.5: the x87 control word is 37FH), so that a frame of zeroes is noticed, too.
pub const INITIAL_VECTOR: u64 = 0x37f;
const KERNEL_ROOT: u64 = 1;
const BOARD_FRAME: u64 = 2;
const USAGE_FRAME: u64 = 32;
const BUNDLE_FRAME: u64 = 64;

/// The machine.
pub struct FakeMachine {
    /// Memory full of rubbish, PCI functions, and at most one remapping unit.
    pub hardware: Hardware,
    /// What each core remembers.
    pub processors: Vec<Processor>,
    /// The core that is in the kernel.
    pub core: usize,
    /// Cores that were asked into the kernel.
    pub kicked: BTreeSet<usize>,
    /// Board time.
    pub now_ns: u64,
    /// Time that it takes to read or write a register of a device, or to look at the clock.
    pub register_ns: u64,
    /// Time that went by so while the clock was looked at.
    looked_ns: Cell<u64>,
    seed: u64,
    /// Deadline of the timer that was last set.
    pub timer: Option<u64>,
    /// Everything that was logged, written or told.
    pub said: String,
}

impl FakeMachine {
    fn new(hardware: Hardware, cores: usize) -> FakeMachine {
        FakeMachine {
            hardware,
            processors: (0..cores).map(|_| Processor::default()).collect(),
            core: 0,
            kicked: BTreeSet::new(),
            now_ns: 1_000,
            register_ns: 0,
            looked_ns: Cell::new(0),
            seed: 7,
            timer: None,
            said: String::new(),
        }
    }

    /// A word of physical memory.
    pub fn memory_word(&self, address: u64) -> u64 {
        self.read(PhysAddr::new(address))
    }

    fn processor(&mut self) -> &mut Processor {
        &mut self.processors[self.core]
    }
}

impl PhysicalMemory for FakeMachine {
    fn read(&self, address: PhysAddr) -> u64 {
        self.hardware.read(address)
    }
    fn write(&mut self, address: PhysAddr, value: u64) {
        self.hardware.write(address, value);
    }
    fn read_bytes(&self, address: PhysAddr, bytes: &mut [u8]) {
        self.hardware.read_bytes(address, bytes);
    }
    fn write_bytes(&mut self, address: PhysAddr, bytes: &[u8]) {
        self.hardware.write_bytes(address, bytes);
    }
    fn zero_frames(&mut self, frame: Frame, count: u64) {
        self.hardware.zero_frames(frame, count);
    }
}

macro_rules! forward_registers {
    ($($read:ident $write:ident $type:ty;)+) => {
        impl Registers for FakeMachine {
            $(
                fn $read(&mut self, address: u64) -> $type {
                    self.now_ns += self.register_ns;
                    self.hardware.$read(address)
                }
                fn $write(&mut self, address: u64, value: $type) {
                    self.now_ns += self.register_ns;
                    self.hardware.$write(address, value);
                }
            )+
            fn now_ns(&self) -> u64 {
                self.looked_ns.set(self.looked_ns.get() + self.register_ns);
                self.now_ns + self.looked_ns.get()
            }
        }
    };
}
forward_registers! { read8 write8 u8; read16 write16 u16; read32 write32 u32; read64 write64 u64; }

impl Machine for FakeMachine {
    fn cycles(&self) -> u64 {
        (self.now_ns + self.looked_ns.get()) * CYCLES_PER_NS
    }
    fn span_cycles(&self, nanoseconds: u64) -> u64 {
        nanoseconds * CYCLES_PER_NS
    }
    fn span_ns(&self, cycles: u64) -> u64 {
        cycles / CYCLES_PER_NS
    }
    fn random(&mut self) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.seed >> 16
    }
    fn apic_id(&self, core: CoreId) -> u32 {
        core.index() as u32
    }
    fn kick(&mut self, core: CoreId) {
        self.kicked.insert(core.index());
    }
    fn set_timer(&mut self, deadline_ns: u64) {
        self.timer = Some(deadline_ns);
    }
    fn load_space(&mut self, root: Option<PhysAddr>) {
        self.processor().load(root);
    }
    fn flush_space(&mut self, root: PhysAddr, address: u64, length: u64) {
        let concerned = self.processors.iter_mut().filter(|it| it.root == Some(root));
        concerned.for_each(|it| it.forget_pages(address, length));
    }
    fn leave_space(&mut self, root: PhysAddr) {
        self.processors.iter_mut().filter(|it| it.root == Some(root)).for_each(|it| it.load(None));
    }
    fn reset_state(&mut self, frame: Frame) {
        for (offset, word) in [(0, INITIAL_VECTOR), (8, 0), (16, 0)] {
            self.write(PhysAddr::of_frame(frame) + offset, word);
        }
    }
    fn save_state(&mut self, frame: Frame) {
        let Processor { vector, bases: [thread, core], .. } = *self.processor();
        for (offset, word) in [(0, vector), (8, thread), (16, core)] {
            self.write(PhysAddr::of_frame(frame) + offset, word);
        }
    }
    fn load_state(&mut self, frame: Frame) {
        let [vector, thread, core] = [0, 8, 16].map(|offset| self.read(PhysAddr::of_frame(frame) + offset));
        let processor = self.processor();
        (processor.vector, processor.bases) = (vector, [thread, core]);
    }
    fn set_segment_base(&mut self, segment: Segment, address: u64) {
        self.processor().bases[segment as usize] = address;
    }
    fn reflect(&mut self, reflection: Option<Reflection>) {
        self.processor().reflection = reflection;
    }
    fn write_console(&mut self, bytes: &[u8]) {
        self.said.push_str(&String::from_utf8_lossy(bytes));
    }
    fn log(&mut self, _: Level, text: fmt::Arguments<'_>) {
        self.control(text);
    }
    fn control(&mut self, line: fmt::Arguments<'_>) {
        self.said.push_str(&std::format!("{line}\n"));
    }
}

/// An application for a fake bundle.
#[derive(Clone, Copy)]
pub struct Program {
    pub name: &'static str,
    pub weight: u32,
    pub cores_max: u32,
    pub frames_max: u64,
    pub manages: u64,
    pub flags: u32,
    /// PCI device identifier of what it may acquire, or 0.
    pub drives: u16,
    /// System calls that it may make, one bit each.
    pub calls: u32,
}

impl Program {
    /// One that is started at boot, with one core and 256 frames.
    pub fn named(name: &'static str) -> Program {
        let flags = flag::AUTOSTART;
        let calls = Syscall::EVERY;
        Program { name, weight: 100, cores_max: 1, frames_max: 256, manages: 0, flags, drives: 0, calls }
    }
}

/// A bundle with one code page and two data pages for each program, and a channel between each pair in
/// `channels`.
fn bundle(programs: &[Program], channels: &[[u32; 2]]) -> Vec<u8> {
    let tables = size_of::<Bundle>() + programs.len() * (128 + 2 * 32 + 8) + channels.len() * 16;
    let contents = tables.next_multiple_of(4096) as u32;
    let mut header = Bundle::new_zeroed();
    header.magic = image::MAGIC;
    header.version = nom_abi::VERSION;
    header.bytes = contents + 12288;
    let mut bytes = Vec::new();
    let run = |offset: usize, count: usize| Run { offset: offset as u32, count: count as u32 };
    let after_applications = size_of::<Bundle>() + programs.len() * 128;
    let after_channels = after_applications + channels.len() * 16;
    header.applications = run(size_of::<Bundle>(), programs.len());
    header.channels = run(after_applications, channels.len());
    bytes.extend_from_slice(header.as_bytes());
    for (index, program) in programs.iter().enumerate() {
        let mut record = ApplicationRecord::new_zeroed();
        record.name[..program.name.len()].copy_from_slice(program.name.as_bytes());
        (record.entry, record.image_bytes, record.stack_bytes) = (0x10, 0x4000, 0x8000);
        (record.frames_max, record.manages) = (program.frames_max, program.manages);
        (record.cores_max, record.weight, record.flags) = (program.cores_max, program.weight, program.flags);
        record.calls = program.calls;
        record.segments = run(after_channels + index * 64, 2);
        record.devices = run(after_channels + programs.len() * 64 + index * 8, (program.drives != 0).into());
        bytes.extend_from_slice(record.as_bytes());
    }
    for ends in channels {
        bytes.extend_from_slice(ChannelRecord { ends: *ends, bytes: 8192 }.as_bytes());
    }
    for _ in programs {
        for (address, memory_bytes, file_bytes, protection) in
            [(0, 0x1000, 4096, 5), (0x1000, 0x3000, 8192, 3)]
        {
            let file_offset = contents + address as u32;
            let segment =
                SegmentRecord { address, memory_bytes, file_offset, file_bytes, protection, reserved: 0 };
            bytes.extend_from_slice(segment.as_bytes());
        }
    }
    for program in programs {
        let selector = DeviceSelector { vendor: 0xffff, device: program.drives, class: 0xff_ffff };
        bytes.extend_from_slice(selector.as_bytes());
    }
    bytes.resize(contents as usize + 8192, 0xcc);
    bytes.resize(header.bytes as usize, 0xdd);
    bytes
}

/// A kernel on a fake machine, and the registers at each core's border.
pub struct World {
    pub kernel: Kernel<'static, FakeMachine>,
    pub borders: Vec<UserRegisters>,
    /// What each core did last.
    pub next: Vec<Next>,
}

impl World {
    /// Boots. Everything is leaked: tests are short.
    pub fn boot(cores: usize, programs: &[Program], channels: &[[u32; 2]]) -> World {
        World::boot_on(Hardware::new(), &Tables::default(), cores, programs, channels)
    }

    /// As [`World::boot`], on a machine with devices, of which firmware says `tables`.
    pub fn boot_on(
        hardware: Hardware,
        tables: &Tables,
        cores: usize,
        programs: &[Program],
        channels: &[[u32; 2]],
    ) -> World {
        let bytes: &'static [u8] = Vec::leak(bundle(programs, channels));
        let bundle = BundleView::parse(bytes).expect("a valid bundle");
        let blocks = Vec::leak(std::vec![BlockInfo::RESERVED; Frames::blocks_for(FRAMES) as usize]);
        let metadata: &'static mut [FrameInfo] =
            Vec::leak((0..blocks.len() * 512).map(|_| FrameInfo::default()).collect());
        let mut frames = Frames::new(blocks, metadata);
        frames.add_free(BUNDLE_FRAME + bytes.len() as u64 / FRAME_BYTES + 1..FRAMES);
        let mut machine = FakeMachine::new(hardware, cores);
        let pci = std::boxed::Box::leak(std::boxed::Box::new(Pci::none()));
        pci.enumerate(&mut machine, ECAM, FRAMES * FRAME_BYTES);
        let iommu = Iommu::start(&mut Means::of_kernel(&mut machine, &mut frames), tables, pci);
        let board: &'static Board = std::boxed::Box::leak(std::boxed::Box::new(Board::new_zeroed()));
        assert!(BOARD_FRAME + (BOARD_BYTES as u64) / FRAME_BYTES <= USAGE_FRAME);
        assert!(BUNDLE_FRAME > USAGE_FRAME + programs.len() as u64);
        board.machine.colours.store(16, core::sync::atomic::Ordering::Relaxed);
        let mut kernel = Kernel::new(Parts {
            machine,
            frames,
            board,
            board_frame: Frame::new(BOARD_FRAME),
            usage: Vec::leak((0..=programs.len()).map(|_| Usage::new_zeroed()).collect()),
            usage_frame: Frame::new(USAGE_FRAME),
            bundle,
            bundle_frame: Frame::new(BUNDLE_FRAME),
            applications: Vec::leak(std::vec![Application::default(); programs.len()]),
            cores: Vec::leak(std::vec![Core::default(); cores]),
            contexts: Vec::leak(std::vec![Context::default(); cores * programs.len()]),
            pci,
            iommu: iommu.expect("the remapping unit starts"),
            kernel_root: PhysAddr::of_frame(Frame::new(KERNEL_ROOT)),
        });
        kernel.start_applications();
        let mut world = World {
            kernel,
            borders: std::vec![UserRegisters::default(); cores],
            next: std::vec![Next::Halt; cores],
        };
        (0..cores).for_each(|core| world.settle(core, false));
        world
    }

    /// Ends an application, and takes all back that it had.
    pub fn end(&mut self, application: usize, state: ApplicationState) {
        self.kernel.end_application(app(application), state, 137);
        while self.kernel.take_back() {}
    }

    /// Lets a core leave the kernel.
    pub fn settle(&mut self, core: usize, after_syscall: bool) {
        self.kernel.machine.core = core;
        let next = self.kernel.next(on(core), &mut self.borders[core], after_syscall);
        self.next[core] = next;
        if next == Next::Halt && self.kernel.takes_back() {
            self.settle(core, false);
        }
    }

    /// The application on a core makes a system call, again until it is finished; the answer if it is still
    /// there to get one.
    pub fn call(
        &mut self,
        core: usize,
        call: Syscall,
        arguments: &[u64],
    ) -> Option<nom_abi::error::Result<u64>> {
        let begin = self.borders[core].rip;
        loop {
            let answer = self.call_once(core, call, arguments);
            if self.borders[core].rip.wrapping_add(2) != begin {
                return answer;
            }
            self.borders[core].rip = begin;
        }
    }

    /// As [`World::call`], once: unfinished, the instruction pointer is on `syscall` again.
    pub fn call_once(
        &mut self,
        core: usize,
        call: Syscall,
        arguments: &[u64],
    ) -> Option<nom_abi::error::Result<u64>> {
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        self.kernel.machine.core = core;
        let registers = &mut self.borders[core];
        registers.rax = call as u64;
        [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9] = all;
        let answered = self.kernel.syscall(on(core), registers);
        let answer = nom_abi::error::decode(registers.rax, registers.rdx);
        self.settle(core, answered);
        answered.then_some(answer)
    }

    /// What the application that a core runs reaches at an address: the physical address.
    pub fn touch(&mut self, core: usize, address: u64, write: bool) -> Option<u64> {
        let machine = &mut self.kernel.machine;
        machine.processors[core].touch(&machine.hardware.memory, address, write)
    }

    /// Time passes; the timer fires on every core at its deadline.
    pub fn pass(&mut self, core: usize, nanoseconds: u64) {
        let end = self.kernel.machine.now_ns + nanoseconds;
        while let Some(deadline) = self.kernel.machine.timer.filter(|deadline| *deadline <= end) {
            self.kernel.machine.now_ns = self.kernel.machine.now_ns.max(deadline);
            self.kernel.machine.timer = None; // It fires once.
            self.kernel.timer(on(core));
            self.settle(core, false);
        }
        self.kernel.machine.now_ns = end;
        self.settle(core, false);
    }

    /// Everything that an application holds: grants, program, page tables, and those of its devices.
    pub fn held(&self, application: usize) -> [u64; 4] {
        let owners = [Owner::grants, Owner::program, Owner::tables, Owner::dma];
        owners.map(|owner| self.kernel.frames.held(owner(app(application))))
    }
}
