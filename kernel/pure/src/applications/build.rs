//! How an application starts: its address space is filled from the bundle, so many pages at a time, and
//! others have the kernel in between. It holds no core until all is there.

use super::Application;
use crate::cores::beginning;
use crate::frames::Owner;
use crate::ids::{AppId, CoreId};
use crate::kernel::Kernel;
use crate::machine::{Frame, Level, Machine};
use crate::paging::{Caching, KERNEL_HALF};
use crate::space::{Bounds, Mapping, Space, UserAddr};
use core::sync::atomic::Ordering::Relaxed;
use nom_abi::board::{ApplicationState, BOARD_BYTES, PRICES_OFFSET, usage_address};
use nom_abi::error::{Error, Result};
use nom_abi::image::{ApplicationRecord, flag};
use nom_abi::layout::{
    APPLICATIONS_MAX, BOARD_WINDOW, CHANNEL_STRIDE, CHANNEL_WINDOW, CHANNELS_MAX, IMAGE_WINDOW,
    PLACEMENT_ALIGN, STACK_WINDOW, START_WINDOW, WINDOW_BYTES,
};
use nom_abi::memory::FRAME_BYTES;
use nom_abi::start::{self, START_BYTES_MAX, Start, Strings};
use nom_abi::{PageSize, Protection};
use zerocopy::{FromZeros, IntoBytes};

/// Pages that are filled or shown at a time.
pub(crate) const PAGES_AT_A_TIME: u64 = 16;

/// Where the parts of an application are placed, at random.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Placement {
    pub(super) image: u64,
    stack: u64,
    start: u64,
    board: u64,
    channels: u64,
}

/// What is in a part of an application's address space.
enum Contents<'b> {
    /// Frames that stay the kernel's, from this one on.
    Shown(Frame),
    /// Memory of its own: a copy of this, then zeroes.
    Own(&'b [u8]),
}

/// A part of an application's address space: where, how many bytes, what, and what it may do there.
type Part<'b> = (u64, u64, Contents<'b>, Protection);

/// Bytes of the start page and the strings behind it.
fn start_bytes(record: &ApplicationRecord) -> u64 {
    let strings = u64::from(record.arguments.count) + u64::from(record.environment.count);
    (size_of::<Start>() as u64 + strings).next_multiple_of(FRAME_BYTES)
}

impl<'m, M: Machine> Kernel<'m, M> {
    /// Starts an application that is not running. Errors: those of [`Kernel::go_on_starting`].
    pub fn start(&mut self, app: AppId) -> Result<()> {
        while !self.go_on_starting(app, None)? {}
        Ok(())
    }

    /// Builds the next piece of an application that is not running, and starts it behind the last; returns
    /// whether it did. Errors: WrongState (it runs, or a device may still reach what it was granted when it
    /// ran last), OutOfMemory, OverMemoryCap; nothing of it is left then.
    pub(crate) fn go_on_starting(&mut self, app: AppId, starter: Option<AppId>) -> Result<bool> {
        let record = self.record(app);
        let Application { space, cores, .. } = self.applications[app];
        if cores != 0 || space.is_none() && self.devices.is_reached(app) {
            return Err(Error::WrongState);
        }
        let begun = if space.is_none() { self.begin_building(app, starter, &record) } else { Ok(()) };
        let built = begun.and_then(|()| self.build_piece(app, &record));
        self.publish_memory(app);
        if built.is_err() {
            self.leave(app);
            self.disturb(CoreId::FIRST); // No core of its own looks.
        }
        if built != Ok(true) {
            return built;
        }
        self.applications[app].starter = None;
        self.board.applications[app].starts.fetch_add(1, Relaxed);
        self.publish_application(app, ApplicationState::Running, 0);
        let name = crate::bundle::name(&record);
        let base = self.applications[app].place.image;
        self.machine.log(Level::Info, format_args!("{name} starts"));
        self.machine.control(format_args!("started app={name} base={base:#x}"));
        self.tell_peers(app);
        built
    }

    fn begin_building(&mut self, app: AppId, by: Option<AppId>, record: &ApplicationRecord) -> Result<()> {
        let mut at = |window: u64, bytes: u64| window + placed(bytes, self.machine.random());
        let place = Placement {
            image: at(IMAGE_WINDOW, record.image_bytes),
            stack: at(STACK_WINDOW, record.stack_bytes),
            start: at(START_WINDOW, START_BYTES_MAX as u64),
            board: at(BOARD_WINDOW, usage_address(0, APPLICATIONS_MAX)),
            channels: at(CHANNEL_WINDOW, CHANNEL_STRIDE * CHANNELS_MAX as u64),
        };
        let (kernel_root, calls) = (self.kernel_root, record.calls & !crate::syscalls::WAITING);
        let means = &mut self.means(app, Owner::tables);
        let space = Space::new(means, kernel_root, |entry| *entry >= KERNEL_HALF)?;
        self.applications[app] =
            Application { space: Some(space), place, starter: by, calls, ..Application::default() };
        if record.flags & flag::MAKES_CODE != 0 {
            let family = self.means(app, Owner::tables).take(1)?;
            self.machine.write(family, space.root().word());
            self.applications[app].family = Some(family);
        }
        Ok(())
    }

    /// What an application finds in its address space: its segments, of which those that it cannot write are
    /// shown where they lie in the bundle, its stack, its start page, the board and its channels.
    fn parts(&self, app: AppId, of: &ApplicationRecord) -> impl Iterator<Item = Part<'m>> + use<'m, M> {
        use Contents::{Own, Shown};
        use Protection::{Read, ReadWrite};
        let (bundle, bundle_frame, place) = (self.bundle, self.bundle_frame, self.applications[app].place);
        let segments = bundle.segments(of).flat_map(move |segment| {
            let allowed = Protection::from_code(segment.protection.into()).unwrap_or(Protection::None);
            let (address, contents) = (place.image + segment.address, bundle.contents(&segment));
            let (shown, copied) = match allowed.writable() {
                true => (0, contents),
                false => ((contents.len() as u64).next_multiple_of(FRAME_BYTES), &[][..]),
            };
            let frame = bundle_frame + u64::from(segment.file_offset) / FRAME_BYTES;
            let rest = segment.memory_bytes - shown;
            [(address, shown, Shown(frame), allowed), (address + shown, rest, Own(copied), allowed)]
        });
        let (board, prices) = (self.board_frame, PRICES_OFFSET as u64);
        let (shows, prices_bytes) = (Shown(board + prices / FRAME_BYTES), BOARD_BYTES as u64 - prices);
        let publishes = if of.flags & flag::PUBLISHES_PRICES != 0 { ReadWrite } else { Read };
        let once = [
            (place.stack, of.stack_bytes, Own(&[]), ReadWrite),
            (place.start, start_bytes(of), Own(&[]), ReadWrite),
            (place.board, prices, Shown(board), Read),
            (place.board + prices, prices_bytes, shows, publishes),
        ];
        let seen = app.bit() | of.manages | if of.flags & flag::MONITORS != 0 { u64::MAX } else { 0 };
        let (usage_frame, nobody) = (self.usage_frame, self.applications.len());
        let usages = self.all_applications().map(move |other| {
            let frame = usage_frame + if seen & other.bit() != 0 { other.index() } else { nobody } as u64;
            (usage_address(place.board, other.index()), FRAME_BYTES, Shown(frame), Read)
        });
        let frames = self.channel_frames;
        let channels = self.channels_of(app).enumerate().map(move |(number, channel)| {
            let address = place.channels + CHANNEL_STRIDE * number as u64;
            (address, channel.bytes, Shown(frames[channel.index]), ReadWrite)
        });
        segments.chain(once).chain(usages).chain(channels)
    }

    /// Builds the next pages. Returns whether those were the last, and the application has a core.
    fn build_piece(&mut self, app: AppId, record: &ApplicationRecord) -> Result<bool> {
        let (mut number, mut done) = self.applications[app].progress;
        let mut left = PAGES_AT_A_TIME;
        for (address, bytes, contents, protection) in self.parts(app, record).skip(number) {
            while (done as u64) < bytes {
                if left == 0 {
                    self.applications[app].progress = (number, done);
                    return Ok(false);
                }
                let (frame, count) = match contents {
                    Contents::Shown(first) => {
                        let offset = done as u64 / FRAME_BYTES;
                        (first + offset, left.min(bytes.div_ceil(FRAME_BYTES) - offset))
                    }
                    Contents::Own(copied) => {
                        let page = self.means(app, Owner::program).take(1)?;
                        let rest = copied.get(done..).unwrap_or_default();
                        self.machine.write_bytes(page, &rest[..rest.len().min(FRAME_BYTES as usize)]);
                        (page.frame(), 1)
                    }
                };
                let (address, size) = (address + done as u64, PageSize::Small);
                let of = Mapping { address, frame, size, count, protection, caching: Caching::WriteBack };
                let space = self.applications[app].space()?;
                self.map_pages(app, space, Bounds::USER, &of)?;
                (left, done) = (left - count, done + (count * FRAME_BYTES) as usize);
            }
            (number, done) = (number + 1, 0);
        }
        self.write_start_page(app, record)?;
        let place = self.applications[app].place;
        let stack_top = place.stack + record.stack_bytes;
        let (entry, stack_top) = (UserAddr::code(place.image + record.entry)?, UserAddr::stack(stack_top)?);
        let registers = beginning(entry, stack_top, place.start);
        let core = self.least_loaded(!0).ok_or(Error::NoCore)?;
        self.begin_context(core, app, registers)?;
        Ok(true)
    }

    /// Maps pages, charging page tables to the application.
    pub(crate) fn map_pages(&mut self, app: AppId, space: Space, bounds: Bounds, of: &Mapping) -> Result<()> {
        space.map(&mut self.means(app, Owner::tables), bounds, of)?;
        self.share(app, space, of.address, of.count * of.size.bytes());
        Ok(())
    }

    #[inline(never)] // Its large frame is gone before the rest is done.
    fn write_start_page(&mut self, app: AppId, record: &ApplicationRecord) -> Result<()> {
        let Application { space, place, .. } = self.applications[app];
        let space = space.ok_or(Error::WrongState)?;
        let arguments = self.bundle.run(record.arguments);
        let environment = self.bundle.run(record.environment);
        let header = size_of::<Start>() as u32;
        let mut page = Start::new_zeroed();
        (page.magic, page.version, page.board) = (start::MAGIC, nom_abi::VERSION, place.board);
        page.application = app.index() as u32;
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
        let mut next = place.start;
        for part in [page.as_bytes(), arguments, environment] {
            space.write_user(&mut self.machine, UserAddr::pointer(next)?, part)?;
            next += part.len() as u64;
        }
        let pages = place.start..place.start + start_bytes(record);
        space.protect(&mut self.machine, pages, Protection::Read)
    }
}

/// Where `bytes`, at most a window without its guards, begin in their window.
pub(crate) fn placed(bytes: u64, random: u64) -> u64 {
    let room = WINDOW_BYTES - bytes.next_multiple_of(PLACEMENT_ALIGN) - 2 * PLACEMENT_ALIGN;
    PLACEMENT_ALIGN + random % (room / PLACEMENT_ALIGN + 1) * PLACEMENT_ALIGN
}
