//! Applications: built from the bundle, ended without a trace.

use crate::console::Bucket;
use crate::contexts::{Context, State};
use crate::cores::beginning;
use crate::frames::Owner;
use crate::ids::{AppId, CoreId};
use crate::kernel::Kernel;
use crate::machine::{Level, Machine, PhysAddr};
use crate::means::Means;
use crate::paging::{Caching, KERNEL_HALF};
use crate::space::{Bounds, Mapping, Space};
use core::sync::atomic::Ordering::Relaxed;
use nom_abi::board::{ApplicationState, BOARD_BYTES, PRICES_OFFSET, usage_address};
use nom_abi::error::{Error, Result};
use nom_abi::image::{ApplicationRecord, SegmentRecord, flag};
use nom_abi::layout::{
    APPLICATIONS_MAX, BOARD_WINDOW, CHANNEL_STRIDE, CHANNEL_WINDOW, IMAGE_WINDOW, PLACEMENT_ALIGN,
    STACK_WINDOW, START_WINDOW, WINDOW_BYTES,
};
use nom_abi::memory::FRAME_BYTES;
use nom_abi::start::{self, START_BYTES_MAX, Start, Strings};
use nom_abi::upcall::{Registers, Upcall};
use nom_abi::{PageSize, Protection};
use zerocopy::{FromZeros, IntoBytes};

/// Blocks of single frames that are taken back at a time.
const BLOCKS_AT_A_TIME: usize = 4;

/// Status of a machine that cannot start an application.
pub const CANNOT_START_STATUS: u8 = 126;

/// Status of an application that was ended because the machine is to end: as a shell shows SIGTERM.
pub const SHUT_DOWN_STATUS: u8 = 143;

/// An application of the bundle.
#[derive(Clone, Copy, Debug, Default)]
pub struct Application {
    /// Its first address space, while it runs.
    pub(crate) space: Option<Space>,
    /// What names all of them, if it may have several.
    pub(crate) family: Option<PhysAddr>,
    /// Cores that it holds, one bit each.
    pub(crate) cores: u64,
    /// Where its image was placed.
    pub(crate) image_base: u64,
    /// Whether it ends by itself when the machine is to end.
    pub(crate) handles_shutdown: bool,
    /// DMA of its devices that was blocked since it started.
    pub(crate) blocked: u32,
    /// How far it is taken back what it had, if it ended: the step, and where that goes on.
    leaving: (usize, usize),
    /// How often it may interrupt those at the other ends of its channels.
    pub(crate) messages: Bucket,
    /// System calls that it may make, one bit each.
    pub(crate) calls: u32,
}

impl Application {
    /// The core on which it is told what concerns no core in particular.
    pub(crate) fn first_core(&self) -> Option<CoreId> {
        (self.cores != 0).then(|| CoreId::new(self.cores.trailing_zeros() as usize))
    }
}

/// Where the parts of an application are placed, at random.
struct Placement {
    image: u64,
    stack: u64,
    start: u64,
    board: u64,
    channels: u64,
}

impl<'m, M: Machine> Kernel<'m, M> {
    pub(crate) fn record(&self, app: AppId) -> ApplicationRecord {
        self.bundle.application(app.index()).expect("an application of the bundle")
    }

    /// Frames charged to an application.
    pub(crate) fn charged(&self, app: AppId) -> u64 {
        let owners = [Owner::grants, Owner::program, Owner::tables, Owner::dma];
        owners.into_iter().map(|owner| self.frames.held(owner(app))).sum()
    }

    /// Frames that an application may still be charged.
    pub(crate) fn allowance(&self, app: AppId) -> u64 {
        self.record(app).frames_max.saturating_sub(self.charged(app))
    }

    /// Memory for which an application pays, as far as it may.
    pub(crate) fn means(&mut self, app: AppId, owner: fn(AppId) -> Owner) -> Means<'_, 'm, M> {
        let (owner, at_most) = (owner(app), self.allowance(app));
        Means { machine: &mut self.machine, frames: &mut self.frames, owner, at_most }
    }

    /// Starts an application that is not running. Errors: WrongState (it runs, or a device may still reach
    /// what it was granted when it ran last), OutOfMemory, OverMemoryCap; nothing of it is left then.
    pub fn start(&mut self, app: AppId) -> Result<()> {
        let record = self.record(app);
        if !self.is_startable(app) {
            return Err(Error::WrongState);
        }
        let built = self.build(app, &record);
        if built.is_err() {
            self.leave(app);
            self.disturb(CoreId::FIRST); // No core of its own looks.
            return built;
        }
        let entry = &self.board.applications[app];
        entry.starts.fetch_add(1, Relaxed);
        self.publish_application(app, ApplicationState::Running, 0);
        let name = crate::bundle::name(&record);
        let base = self.applications[app].image_base;
        self.machine.log(Level::Info, format_args!("{name} starts"));
        self.machine.control(format_args!("started app={name} base={base:#x}"));
        self.tell_peers(app);
        Ok(())
    }

    /// Whether it does not run, and nothing of what it was is left.
    pub(crate) fn is_startable(&self, app: AppId) -> bool {
        self.applications[app].space.is_none() && !self.devices.is_reached(app)
    }

    fn build(&mut self, app: AppId, record: &ApplicationRecord) -> Result<()> {
        let place = self.place(record);
        let kernel_root = self.kernel_root;
        let by = &mut self.means(app, Owner::tables);
        let space = Space::new(by, kernel_root, |entry| *entry >= KERNEL_HALF)?;
        self.applications[app] = Application {
            space: Some(space),
            image_base: place.image,
            calls: record.calls,
            ..Application::default()
        };
        if record.flags & flag::MAKES_CODE != 0 {
            let family = self.means(app, Owner::tables).take(1)?;
            self.machine.write(family, space.root().word());
            self.applications[app].family = Some(family);
        }
        let bundle = self.bundle;
        for segment in bundle.segments(record) {
            self.build_segment(app, space, place.image + segment.address, &segment)?;
        }
        self.fill(app, place.stack, record.stack_bytes, Protection::ReadWrite)?;
        self.build_start_page(app, record, &place)?;
        self.build_shared(app, record, &place)?;
        let stack_top = place.stack + record.stack_bytes;
        let registers = beginning(place.image + record.entry, stack_top, place.start);
        let core = self.least_loaded(!0).ok_or(Error::NoCore)?;
        self.begin_context(core, app, registers)
    }

    fn place(&mut self, record: &ApplicationRecord) -> Placement {
        let mut at = |window: u64, bytes: u64| window + placed(bytes, self.machine.random());
        Placement {
            image: at(IMAGE_WINDOW, record.image_bytes),
            stack: at(STACK_WINDOW, record.stack_bytes),
            start: at(START_WINDOW, START_BYTES_MAX as u64),
            board: at(BOARD_WINDOW, usage_address(0, APPLICATIONS_MAX)),
            channels: at(CHANNEL_WINDOW, CHANNEL_STRIDE * nom_abi::layout::CHANNELS_MAX as u64),
        }
    }

    /// Maps frames that stay the kernel's.
    fn show(&mut self, app: AppId, address: u64, frame: u64, bytes: u64, allowed: Protection) -> Result<()> {
        let (count, protection) = (bytes.div_ceil(FRAME_BYTES), allowed);
        let mapping =
            Mapping { address, frame, size: PageSize::Small, count, protection, caching: Caching::WriteBack };
        let space = self.applications[app].space.ok_or(Error::WrongState)?;
        self.map_pages(app, space, Bounds::USER, &mapping)
    }

    /// Maps pages, charging page tables to the application.
    pub(crate) fn map_pages(&mut self, app: AppId, space: Space, bounds: Bounds, of: &Mapping) -> Result<()> {
        space.map(&mut self.means(app, Owner::tables), bounds, of)?;
        self.share(app, space, of.address, of.count * of.size.bytes());
        Ok(())
    }

    /// Gives an application `bytes` of zeroed memory of its own at `address`.
    fn fill(&mut self, app: AppId, address: u64, bytes: u64, protection: Protection) -> Result<()> {
        for offset in (0..bytes).step_by(FRAME_BYTES as usize) {
            let frame = self.means(app, Owner::program).take(1)?.frame();
            self.show(app, address + offset, frame, FRAME_BYTES, protection)?;
        }
        Ok(())
    }

    /// Read-only segments are mapped where they lie in the bundle, others are copied.
    fn build_segment(&mut self, app: AppId, space: Space, address: u64, of: &SegmentRecord) -> Result<()> {
        let protection = Protection::from_code(of.protection.into())?;
        let contents = self.bundle.contents(of);
        if protection.writable() {
            self.fill(app, address, of.memory_bytes, protection)?;
            return space.write_user(&mut self.machine, address, contents);
        }
        let shown = (contents.len() as u64).next_multiple_of(FRAME_BYTES);
        if shown > 0 {
            let frame = self.bundle_frame + u64::from(of.file_offset) / FRAME_BYTES;
            self.show(app, address, frame, shown, protection)?;
        }
        self.fill(app, address + shown, of.memory_bytes - shown, protection)
    }

    #[inline(never)] // Its large frame is gone before the rest is built.
    fn build_start_page(&mut self, app: AppId, record: &ApplicationRecord, place: &Placement) -> Result<()> {
        let space = self.applications[app].space.ok_or(Error::WrongState)?;
        let arguments = self.bundle.run(record.arguments);
        let environment = self.bundle.run(record.environment);
        let header = size_of::<Start>() as u32;
        let mut page = Start::new_zeroed();
        page.magic = start::MAGIC;
        page.version = nom_abi::VERSION;
        page.application = app.index() as u32;
        page.board = place.board;
        (page.image_base, page.image_bytes) = (place.image, record.image_bytes);
        (page.stack_base, page.stack_bytes) = (place.stack, record.stack_bytes);
        (page.frames_max, page.cores_max, page.flags) = (record.frames_max, record.cores_max, record.flags);
        page.arguments = Strings { offset: header, bytes: arguments.len() as u32 };
        page.environment =
            Strings { offset: header + arguments.len() as u32, bytes: environment.len() as u32 };
        for word in page.seed.as_chunks_mut::<8>().0 {
            *word = self.machine.random().to_le_bytes();
        }
        for (channel, entry) in self.channels_of(app).zip(&mut page.channel) {
            *entry = start::Channel {
                address: place.channels + CHANNEL_STRIDE * u64::from(page.channels),
                bytes: channel.bytes,
                peer: channel.peer.index() as u32,
                end: channel.end as u32,
            };
            page.channels += 1;
        }
        let parts = [page.as_bytes(), arguments, environment];
        let total = parts.iter().map(|part| part.len() as u64).sum::<u64>().next_multiple_of(FRAME_BYTES);
        self.fill(app, place.start, total, Protection::ReadWrite)?;
        let mut next = place.start;
        for part in parts {
            space.write_user(&mut self.machine, next, part)?;
            next += part.len() as u64;
        }
        space.protect(&mut self.machine, place.start..place.start + total, Protection::Read)
    }

    fn build_shared(&mut self, app: AppId, record: &ApplicationRecord, place: &Placement) -> Result<()> {
        let (frame, prices) = (self.board_frame, PRICES_OFFSET as u64);
        let publishes = record.flags & flag::PUBLISHES_PRICES != 0;
        let protection = if publishes { Protection::ReadWrite } else { Protection::Read };
        let bytes = BOARD_BYTES as u64 - prices;
        self.show(app, place.board, frame, prices, Protection::Read)?;
        self.show(app, place.board + prices, frame + prices / FRAME_BYTES, bytes, protection)?;
        for other in self.all_applications() {
            let is_shown =
                other == app || record.manages & other.bit() != 0 || record.flags & flag::MONITORS != 0;
            let nobody = self.applications.len();
            let frame = self.usage_frame + if is_shown { other.index() } else { nobody } as u64;
            self.show(app, usage_address(place.board, other.index()), frame, FRAME_BYTES, Protection::Read)?;
        }
        for (number, channel) in self.channels_of(app).enumerate() {
            let frame = self.channel_frames[channel.index];
            let address = place.channels + CHANNEL_STRIDE * number as u64;
            self.show(app, address, frame, channel.bytes, Protection::ReadWrite)?;
        }
        Ok(())
    }

    /// The core with the least weight on it among those in `candidates`.
    pub(crate) fn least_loaded(&self, candidates: u64) -> Option<CoreId> {
        let load = |core: &CoreId| {
            let holders = self.all_applications().filter(|app| self.cores[*core].queue.contains(*app));
            holders.map(|app| self.record(app).weight).sum::<u32>()
        };
        self.all_cores().filter(|core| candidates & core.bit() != 0).min_by_key(load)
    }

    /// Makes an application hold a core and begin there. `rsi` becomes the core's number. Errors:
    /// OutOfMemory, OverMemoryCap.
    pub(crate) fn begin_context(&mut self, core: CoreId, app: AppId, mut registers: Registers) -> Result<()> {
        let frame = self.means(app, Owner::program).take(1)?.frame();
        self.machine.reset_state(frame);
        registers.rsi = core.index() as u64;
        *self.context(core, app) = Context::begin(registers, self.applications[app].space, frame);
        self.applications[app].cores |= core.bit();
        let weight = self.record(app).weight;
        self.account(core);
        self.cores[core].queue.insert(app, weight);
        self.cores[core].queue.wake(app);
        self.publish_cores(app);
        self.disturb(core);
        Ok(())
    }

    /// Takes a core from an application and frees what it held for it.
    pub(crate) fn end_context(&mut self, core: CoreId, app: AppId) {
        self.account(core);
        self.cores[core].queue.remove(app);
        self.end_reflection(core, app);
        let frame = self.context(core, app).state_frame;
        *self.context(core, app) = Context { state: State::Absent, ..Context::default() };
        let this = &mut self.cores[core];
        this.current = this.current.filter(|current| *current != app);
        this.loaded = this.loaded.filter(|loaded| *loaded != app);
        self.applications[app].cores &= !core.bit();
        self.frames
            .release(Owner::program(app), frame, PageSize::Small, 1)
            .expect("a context holds its state's frame");
        self.publish_cores(app);
        self.disturb(core);
    }

    /// Ends an application: nobody runs it any more when this returns, and all it held is free.
    pub(crate) fn end_application(&mut self, app: AppId, state: ApplicationState, status: u8) {
        let tsc = self.machine.cycles();
        let Some(_) = self.applications[app].space else { return };
        self.for_spaces_in_use(app, M::leave_space);
        for core in self.all_cores() {
            if self.applications[app].cores & core.bit() != 0 {
                self.end_context(core, app);
            }
        }
        self.leave(app);
        self.publish_application(app, state, status);
        let record = self.record(app);
        let name = crate::bundle::name(&record);
        let word = if state == ApplicationState::Exited { "exited" } else { "faulted" };
        self.machine.log(Level::Info, format_args!("{name} {word} with status {status}"));
        self.machine.control(format_args!("{word} app={name} status={status} tsc={tsc}"));
        let is_shutting_down = self.board.machine.shutdown_ns.load(Relaxed) != 0;
        if record.flags & flag::ESSENTIAL != 0 && !is_shutting_down {
            self.ending.get_or_insert(status);
        }
        self.tell_peers(app);
        self.end_if_idle();
    }

    /// The machine is to end: those who handle that are told, once, and the others end.
    pub fn shut_down(&mut self) {
        let asked = &self.board.machine.shutdown_ns;
        if asked.load(Relaxed) != 0 {
            return;
        }
        asked.store(self.machine.now_ns().max(1), Relaxed);
        self.machine.log(Level::Info, format_args!("the machine is asked to end"));
        for app in self.all_applications() {
            if self.applications[app].handles_shutdown {
                self.tell(app, Upcall::Shutdown, |_| {});
            } else {
                self.end_application(app, ApplicationState::Exited, SHUT_DOWN_STATUS);
            }
        }
    }

    /// What an application had is taken back from here on, in pieces, by whichever core looks next.
    fn leave(&mut self, app: AppId) {
        self.applications[app] = Application::default();
        self.leaving |= app.bit();
    }

    /// Whether there is something to take back: then a core that is to halt asks again instead, and others
    /// have the lock in between.
    pub fn takes_back(&self) -> bool {
        self.leaving != 0
    }

    /// Takes back a piece of what an application had that ended: a device, or frames of a few blocks. Returns
    /// whether there was any.
    #[inline(never)]
    pub(crate) fn take_back(&mut self) -> bool {
        let Some(app) = self.all_applications().find(|app| self.leaving & app.bit() != 0) else {
            return false;
        };
        let (mut step, from) = self.applications[app].leaving;
        // What a device may still reach is given to nobody.
        let end = if step > 2 && self.devices.is_reached(app) { 3 } else { 5 };
        let next = match step {
            0 => self.release_device(app, from),
            1..5 if step < end => {
                let owners = [Owner::program, Owner::tables, Owner::dma, Owner::grants];
                self.frames.release_some(owners[step - 1](app), from, BLOCKS_AT_A_TIME)
            }
            _ => {
                self.leaving &= !app.bit();
                self.publish_memory(app);
                None
            }
        };
        step += usize::from(next.is_none());
        self.applications[app].leaving = (step, next.unwrap_or(0));
        true
    }

    /// With nobody left to run, the machine ends with the status of the bundle's first application.
    pub(crate) fn end_if_idle(&mut self) {
        if self.applications.iter().all(|app| app.space.is_none()) {
            let status = self.board.applications[0].status.load(Relaxed) as u8;
            self.ending.get_or_insert(status);
        }
    }

    fn tell_peers(&mut self, app: AppId) {
        for channel in self.channels_of(app) {
            self.tell(channel.peer, Upcall::PeerChanged, |_| {});
        }
    }
}

/// Where `bytes`, at most a window without its guards, begin in their window.
pub(crate) fn placed(bytes: u64, random: u64) -> u64 {
    let room = WINDOW_BYTES - bytes.next_multiple_of(PLACEMENT_ALIGN) - 2 * PLACEMENT_ALIGN;
    PLACEMENT_ALIGN + random % (room / PLACEMENT_ALIGN + 1) * PLACEMENT_ALIGN
}
