//! System calls: one line each, then what memory and cores need.

use crate::applications::report::REPORT_BYTES;
use crate::contexts::Grant;
use crate::frames::{BLOCK_FRAMES, Colour, Owner, Pages, Search};
use crate::ids::{AppId, CoreId};
use crate::kernel::Kernel;
use crate::machine::{Frame, Level, Machine};
use crate::paging::Caching;
use crate::space::{Bounds, Mapping, PAGES_MAX, UserAddr};
use core::sync::atomic::Ordering::Relaxed;
use nom_abi::board::ApplicationState;
use nom_abi::error::{Error, Result, encode};
use nom_abi::image::flag;
use nom_abi::memory::ANY_COLOUR;
use nom_abi::syscall::{EXIT_BACKTRACE, Segment, Syscall, arguments::*};
use nom_abi::upcall::Registers;
use nom_abi::{PageSize, Protection};

/// Most bytes that one `console_write` takes; it writes the first of them.
const CONSOLE_BYTES_MAX: u64 = 4096;
/// Frames that are zeroed at a time: nobody waits longer for the kernel's lock.
const ZEROED_AT_ONCE: u64 = 16;
/// Frames at which a search for free ones looks at a time, for the same reason.
const LOOKS_AT_ONCE: u64 = 4 * BLOCK_FRAMES;
/// Calls that may wait for a device or the remapping unit. They are looked at apart.
pub(crate) const WAITING: u32 = {
    use Syscall::{DeviceAcquire, DeviceRelease, InterruptBind, MemoryGrant, MemoryRelease};
    MemoryGrant.bit() | MemoryRelease.bit() | DeviceAcquire.bit() | DeviceRelease.bit() | InterruptBind.bit()
};
/// A call is long from here on: units answer in microseconds.
const LONG_NS: u64 = 1_000_000;
/// Bytes of the instruction `syscall`.
const SYSCALL_BYTES: u64 = 2;

/// Who makes a system call.
pub(crate) struct Caller<'a> {
    /// The core on which it runs.
    pub core: CoreId,
    /// The application.
    pub app: AppId,
    /// Its registers, at the border.
    pub registers: &'a mut Registers,
}

/// How a call answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// With a value, in the registers at the border.
    Value(u64),
    /// Not yet: the application makes the call again, so that others may have lock and core in between.
    Unfinished,
    /// Not through these registers: they are another computation's now, or nobody's.
    Elsewhere,
}

impl Reply {
    /// That what was asked is done.
    pub const DONE: Reply = Reply::Value(0);
}

type Handler<'m, M> = fn(&mut Kernel<'m, M>, Caller<'_>, [u64; 6]) -> Result<Reply>;

macro_rules! define_handlers {
    ($($(#[doc = $doc:literal])+ $number:literal $variant:ident $name:ident($($argument:ident),*))+) => {
        /// What carries out each system call, by its number: a function each, with a frame of its own.
        const HANDLERS: &'m [Handler<'m, M>] =
            &[$(|kernel, caller, registers| kernel.$name(caller, $variant::from(registers))),+];
    };
}

impl<'m, M: Machine + 'm> Kernel<'m, M> {
    nom_abi::for_each_syscall!(define_handlers);

    /// Carries out the system call in `registers`. Returns whether they are still those of the call, so that
    /// its answer goes back the fast way.
    pub fn syscall(&mut self, core: CoreId, registers: &mut Registers) -> bool {
        let Some(app) = self.cores[core].current() else {
            return false; // It ended on another core while this one was on its way here.
        };
        let words = [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9];
        let number = registers.rax;
        let handler = Self::HANDLERS.get(number as usize).ok_or(Error::UnknownSyscall);
        let reply = handler.and_then(|handle| match self.applications[app].may_call(number) {
            true => handle(self, Caller { core, app, registers }, words),
            false => self.wait(Caller { core, app, registers }, words, handle),
        });
        let result = match reply {
            Ok(Reply::Elsewhere) => return false,
            Ok(Reply::Unfinished) => {
                registers.rip -= SYSCALL_BYTES;
                return true;
            }
            Ok(Reply::Value(value)) => Ok(value),
            Err(error) => Err(error),
        };
        (registers.rax, registers.rdx) = encode(result);
        true
    }

    /// Carries out a call, if it is allowed, that may wait for a device or the remapping unit, while others
    /// wait for the lock. Who has a device and had them wait for long waits as long before the next.
    #[cold]
    fn wait(&mut self, caller: Caller<'_>, of: [u64; 6], handle: &Handler<'m, M>) -> Result<Reply> {
        let (app, number, begin) = (caller.app, caller.registers.rax, self.machine.now_ns());
        if self.record(app).calls & WAITING & 1 << number == 0 {
            return self.refuse(app, number);
        }
        if begin < *self.applications[app].rests_until_ns() {
            return Ok(Reply::Unfinished);
        }
        let reply = handle(self, caller, of);
        let now = self.machine.now_ns();
        if now - begin > LONG_NS && self.devices.is_reached(app) {
            *self.applications[app].rests_until_ns() = now + (now - begin);
        }
        reply
    }

    /// Counts a call that the manifest does not allow, and says so ever more seldom.
    #[cold]
    fn refuse(&mut self, app: AppId, number: u64) -> Result<Reply> {
        let count = self.usage[app].refused.fetch_add(1, Relaxed).wrapping_add(1);
        if count.is_power_of_two() {
            let (record, call) = (self.record(app), Syscall::ALL.get(number as usize));
            let (name, call) = (crate::bundle::name(&record), call.map_or("", |call| call.name));
            let text =
                format_args!("{name} may not call {call}: see `calls` in its manifest; number {count}");
            self.machine.log(Level::Warn, text);
        }
        Err(Error::NotPermitted)
    }

    fn exit(&mut self, Caller { core, app, registers }: Caller<'_>, Exit { status }: Exit) -> Result<Reply> {
        if status & EXIT_BACKTRACE != 0 && self.may_say(app, REPORT_BYTES) {
            self.backtrace(app, core, registers);
        }
        self.end_application(app, ApplicationState::Exited, status as u8);
        Ok(Reply::Elsewhere)
    }

    fn console_write(&mut self, Caller { core, app, .. }: Caller<'_>, asked: ConsoleWrite) -> Result<Reply> {
        let ConsoleWrite { address, length } = asked;
        if length > CONSOLE_BYTES_MAX {
            return Err(Error::InvalidArgument);
        }
        let (space, address) = (self.space_of(core, app)?, UserAddr::pointer(address)?);
        let mut buffer = [0; 256];
        let count = buffer.len().min(length as usize);
        let bytes = &mut buffer[..count];
        space.read_user(&self.machine, address, bytes)?;
        if self.may_say(app, count as u64) {
            self.machine.write_console(bytes);
        }
        Ok(Reply::Value(count as u64))
    }

    fn memory_grant(&mut self, Caller { core, app, .. }: Caller<'_>, asked: MemoryGrant) -> Result<Reply> {
        if let Some(grant) = self.context(core, app).unfinished().take() {
            let reply = self.go_on_granting(core, app, grant);
            if reply != Ok(Reply::Unfinished) {
                self.disturb(core); // It can be told again what came meanwhile.
            }
            return reply;
        }
        let MemoryGrant { page_size, count, colour } = asked;
        let size = PageSize::from_code(page_size)?;
        let count_of_colours = u64::from(self.board.machine.colours.load(Relaxed));
        let colour = (colour != ANY_COLOUR).then_some(Colour { index: colour, count: count_of_colours });
        frames_of(size, count)?;
        let search = Search::new(size, count, colour)?;
        self.go_on_granting(core, app, Grant { search, frame: None, zeroed: 0 })
    }

    /// Looks for memory, then zeroes it, piece by piece, and behind the last lets the application have it.
    fn go_on_granting(&mut self, core: CoreId, app: AppId, mut grant: Grant) -> Result<Reply> {
        let (program, grants) = (Owner::program(app), Owner::grants(app));
        if grant.frame.is_none() {
            if grant.search.wanted() > self.allowance(app) {
                return Err(Error::OverMemoryCap);
            }
            if grant.search.wanted() > self.frames.free() && self.take_back() {
                *self.context(core, app).unfinished() = Some(grant);
                return Ok(Reply::Unfinished);
            }
            grant.frame = self.frames.allocate_piece(program, &mut grant.search, LOOKS_AT_ONCE)?;
            self.publish_memory(app); // Others may publish what is free before the last piece.
        }
        let Search { size, count, .. } = grant.search;
        if let Some(frame) = grant.frame {
            let piece = ZEROED_AT_ONCE.min(grant.search.wanted() - grant.zeroed);
            self.machine.zero_frames(frame + grant.zeroed, piece);
            grant.zeroed += piece;
        }
        let is_done = grant.zeroed == grant.search.wanted();
        let Some(frame) = grant.frame.filter(|_| is_done) else {
            *self.context(core, app).unfinished() = Some(grant);
            return Ok(Reply::Unfinished);
        };
        let pages = Pages { frame, size, count };
        self.frames.pass_on(program, grants, pages)?;
        if self.iommu(app, |iommu, by| iommu.map(by, app, pages)).is_err() {
            self.release_grant(app, pages)?;
            return Err(Error::OutOfMemory);
        }
        self.publish_memory(app);
        Ok(Reply::Value(frame.number()))
    }

    fn memory_release(&mut self, Caller { app, .. }: Caller<'_>, asked: MemoryRelease) -> Result<Reply> {
        let MemoryRelease { frame, page_size, count } = asked;
        let size = PageSize::from_code(page_size)?;
        frames_of(size, count)?;
        self.release_grant(app, Pages { frame: Frame::new(frame), size, count })?;
        self.publish_memory(app);
        Ok(Reply::DONE)
    }

    /// Takes a grant back, also from the application's devices. The kernel's lock is held, so nobody can be
    /// given the frames before the devices have lost them.
    fn release_grant(&mut self, app: AppId, pages: Pages) -> Result<()> {
        let Pages { frame, size, count } = pages;
        self.frames.release(Owner::grants(app), frame, size, count)?;
        if let Err(error) = self.devices.iommu.unmap(&mut self.machine, app, pages) {
            // A device may still reach them: nobody gets them any more.
            self.frames.claim(Owner::KERNEL, frame, count * size.frames())?;
            self.machine.log(Level::Error, format_args!("frames lost, the IOMMU keeps them: {error:?}"));
        }
        Ok(())
    }

    /// What an application asks to be allowed: code that it made only if its manifest says so. Without, what
    /// is executable is its image, which nobody can write by any other address either.
    fn protection(&self, app: AppId, code: u64) -> Result<Protection> {
        let protection = Protection::from_code(code)?;
        let makes_code = self.record(app).flags & flag::MAKES_CODE != 0;
        if protection.executable() && !makes_code { Err(Error::NotPermitted) } else { Ok(protection) }
    }

    fn memory_map(&mut self, Caller { core, app, .. }: Caller<'_>, asked: MemoryMap) -> Result<Reply> {
        let MemoryMap { address, frame, page_size, count, protection } = asked;
        let (size, frame) = (PageSize::from_code(page_size)?, Frame::new(frame));
        let protection = self.protection(app, protection)?;
        let mapping = Mapping { address, frame, size, count, protection, caching: Caching::WriteBack };
        Bounds::APPLICATION.pages(address, size, count)?;
        frames_of(size, count)?;
        let space = self.space_of(core, app)?;
        self.frames.reference(Owner::grants(app), frame, size, count)?;
        if let Err(error) = self.map_pages(app, space, Bounds::APPLICATION, &mapping) {
            self.frames.dereference(frame, size, count);
            return Err(error);
        }
        self.publish_memory(app);
        Ok(Reply::DONE)
    }

    fn memory_protect(&mut self, Caller { core, app, .. }: Caller<'_>, of: MemoryProtect) -> Result<Reply> {
        let MemoryProtect { address, length, protection } = of;
        let protection = self.protection(app, protection)?;
        let space = self.space_of(core, app)?;
        space.protect(&mut self.machine, Bounds::APPLICATION.bytes(address, length)?, protection)?;
        self.for_spaces_in_use(app, |machine, root| machine.flush_space(root, address, length));
        Ok(Reply::DONE)
    }

    fn memory_unmap(&mut self, Caller { core, app, .. }: Caller<'_>, asked: MemoryUnmap) -> Result<Reply> {
        let MemoryUnmap { address, length } = asked;
        let space = self.space_of(core, app)?;
        let range = Bounds::APPLICATION.bytes(address, length)?;
        space.unmap(&mut self.means(app, Owner::tables), range, |frames, leaf| {
            if leaf.caching == Caching::WriteBack {
                frames.dereference(leaf.frame, leaf.size, 1);
            }
        })?;
        self.share(app, space, address, length);
        self.for_spaces_in_use(app, |machine, root| machine.flush_space(root, address, length));
        self.publish_memory(app);
        Ok(Reply::DONE)
    }

    fn segment_base(&mut self, _: Caller<'_>, asked: SegmentBase) -> Result<Reply> {
        let SegmentBase { segment, address } = asked;
        if address >= nom_abi::layout::USER_END {
            return Err(Error::OutsideUserSpace);
        }
        let segment = Segment::from_number(segment).ok_or(Error::InvalidArgument)?;
        self.machine.set_segment_base(segment, address);
        Ok(Reply::DONE)
    }
}

/// The frames of so many pages. Errors: InvalidArgument (more than one call may concern).
fn frames_of(size: PageSize, count: u64) -> Result<u64> {
    let frames = (count <= PAGES_MAX).then(|| count * size.frames());
    frames.filter(|frames| *frames <= PageSize::Huge.frames()).ok_or(Error::InvalidArgument)
}
