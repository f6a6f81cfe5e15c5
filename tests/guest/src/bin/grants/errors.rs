//! Wrong arguments, one row each.

use core::sync::atomic::Ordering::Relaxed;
use nom_app::alloc::format;
use nom_app::memory::{Grant, Region};
use nom_app::{Error, PageSize, Protection, application, applications, board};
use nom_guest_tests::{Check, expect};
use nom_sys::abi::Syscall::{self, *};
use nom_sys::abi::layout::{APPLICATION_END, KERNEL_IMAGE, USER_END};

const SMALL: u64 = PageSize::Small as u64;
const LARGE: u64 = PageSize::Large as u64;
const READ: u64 = Protection::Read as u64;
const WRITE: u64 = Protection::ReadWrite as u64;
const ANY: u64 = u64::MAX;
const MAX_PAGE: u64 = u64::MAX - 4095;

/// What the rows refer to.
struct Scene {
    /// A granted page that is mapped, a word of which is 77.
    frame: u64,
    mapped: Region,
    /// Two granted pages that are not mapped, on a 2 MiB boundary only by chance.
    spare: Grant,
    /// Addresses without a mapping.
    empty: Region,
}

/// What an error must leave alone.
#[derive(Debug, PartialEq)]
struct Held {
    free: u64,
    own: u64,
    word: u64,
    cores: u32,
}

pub fn errors_change_nothing() -> Check {
    let (grant, spare) = (Grant::new(PageSize::Small, 1)?, Grant::new(PageSize::Small, 2)?);
    let mapped = Region::reserve(4096, PageSize::Small)?;
    mapped.map(0, &grant, Protection::ReadWrite)?;
    mapped.words()[0].store(77, Relaxed);
    let empty = Region::reserve(2 << 20, PageSize::Large)?;
    let scene = Scene { frame: grant.frame(), mapped, spare, empty };
    memory_rows(&scene).into_iter().chain(other_rows(&scene)).try_for_each(|row| check(&scene, row))
}

type Row = (Syscall, [u64; 5], Error);

fn check(scene: &Scene, (call, arguments, error): Row) -> Check {
    let [a, b, c, d, e] = arguments;
    let before = held(scene);
    // SAFETY: the call is refused. Were it not, the check fails before anything relies on what it changed.
    let answer = unsafe { nom_sys::raw::call(call as u64, [a, b, c, d, e, 0]) };
    let name = format!("{call:?}({a:#x}, {b:#x}, {c:#x}, {d:#x}, {e:#x})");
    expect(&name, answer, Err(error))?;
    expect(&format!("what is held after {name}"), held(scene), before)
}

fn held(scene: &Scene) -> Held {
    let own = applications::usage(application());
    Held {
        free: board().machine.frames_free.load(Relaxed),
        own: own.frames.load(Relaxed),
        word: scene.mapped.words()[0].load(Relaxed),
        cores: own.cores.load(Relaxed),
    }
}

fn memory_rows(scene: &Scene) -> [Row; 44] {
    let Scene { frame, .. } = *scene;
    let (at, spare, empty) = (scene.mapped.address(), scene.spare.frame(), scene.empty.address());
    [
        (MemoryGrant, [3, 1, ANY, 0, 0], Error::InvalidArgument),
        (MemoryGrant, [u64::MAX, 1, ANY, 0, 0], Error::InvalidArgument),
        (MemoryGrant, [SMALL, 0, ANY, 0, 0], Error::InvalidArgument),
        (MemoryGrant, [LARGE, u64::MAX, ANY, 0, 0], Error::InvalidArgument),
        (MemoryGrant, [PageSize::Huge as u64, 2, ANY, 0, 0], Error::InvalidArgument),
        (MemoryGrant, [SMALL, 513, ANY, 0, 0], Error::InvalidArgument),
        (MemoryGrant, [SMALL, 2, 0, 0, 0], Error::InvalidArgument),
        (MemoryGrant, [LARGE, 1, 0, 0, 0], Error::InvalidArgument),
        (MemoryGrant, [SMALL, 1, 1 << 40, 0, 0], Error::InvalidArgument),
        (MemoryRelease, [spare, 3, 1, 0, 0], Error::InvalidArgument),
        (MemoryRelease, [spare, SMALL, 0, 0, 0], Error::InvalidArgument),
        (MemoryRelease, [spare | 1, LARGE, 1, 0, 0], Error::Misaligned),
        (MemoryRelease, [512, LARGE, u64::MAX, 0, 0], Error::InvalidArgument),
        (MemoryRelease, [spare, SMALL, u64::MAX, 0, 0], Error::InvalidArgument),
        (MemoryRelease, [0, SMALL, 1, 0, 0], Error::NotGranted),
        (MemoryRelease, [1 << 50, SMALL, 1, 0, 0], Error::NotGranted),
        (MemoryRelease, [256, SMALL, 1, 0, 0], Error::NotGranted),
        (MemoryRelease, [frame, SMALL, 1, 0, 0], Error::StillMapped),
        (MemoryMap, [empty, spare, 3, 1, READ], Error::InvalidArgument),
        (MemoryMap, [empty, spare, SMALL, 0, READ], Error::InvalidArgument),
        (MemoryMap, [empty, spare, SMALL, 1, 2], Error::InvalidArgument),
        (MemoryMap, [empty, spare, SMALL, 1, 8], Error::InvalidArgument),
        (MemoryMap, [empty, spare, SMALL, 1, 7], Error::WriteExecute),
        (MemoryMap, [empty, spare, SMALL, 1, 6], Error::WriteExecute),
        (MemoryMap, [empty + 1, spare, SMALL, 1, READ], Error::Misaligned),
        (MemoryMap, [empty + 4096, 512, LARGE, 1, READ], Error::Misaligned),
        (MemoryMap, [0, spare, SMALL, 1, READ], Error::OutsideUserSpace),
        (MemoryMap, [APPLICATION_END, spare, SMALL, 1, READ], Error::OutsideUserSpace),
        (MemoryMap, [APPLICATION_END - 4096, spare, SMALL, 2, READ], Error::OutsideUserSpace),
        (MemoryMap, [KERNEL_IMAGE, spare, SMALL, 1, READ], Error::OutsideUserSpace),
        (MemoryMap, [empty, spare, SMALL, u64::MAX, READ], Error::Overflow),
        (MemoryMap, [empty, 256, SMALL, 1, READ], Error::NotGranted),
        (MemoryMap, [empty, 1 << 40, SMALL, 1, READ], Error::NotGranted),
        (MemoryMap, [empty, spare, SMALL, 3, READ], Error::NotGranted),
        (MemoryMap, [at, spare, SMALL, 1, READ], Error::AlreadyMapped),
        (MemoryProtect, [at + 8, 4096, READ, 0, 0], Error::Misaligned),
        (MemoryProtect, [at, 4095, READ, 0, 0], Error::Misaligned),
        (MemoryProtect, [at, 0, READ, 0, 0], Error::InvalidArgument),
        (MemoryProtect, [at, 4096, 7, 0, 0], Error::WriteExecute),
        (MemoryProtect, [at, 8192, READ, 0, 0], Error::NotMapped),
        (MemoryProtect, [nom_sys::start::info().board, 4096, WRITE, 0, 0], Error::OutsideUserSpace),
        (MemoryUnmap, [empty, 4096, 0, 0, 0], Error::NotMapped),
        (MemoryUnmap, [at, MAX_PAGE, 0, 0, 0], Error::Overflow),
        (MemoryUnmap, [nom_sys::start::info().image_base, 4096, 0, 0, 0], Error::OutsideUserSpace),
    ]
}

fn other_rows(scene: &Scene) -> [Row; 31] {
    let (at, empty) = (scene.mapped.address(), scene.empty.address());
    let board = nom_sys::start::info().board;
    [
        (ConsoleWrite, [at, 4097, 0, 0, 0], Error::InvalidArgument),
        (ConsoleWrite, [0, 1, 0, 0, 0], Error::BadPointer),
        (ConsoleWrite, [empty, 1, 0, 0, 0], Error::BadPointer),
        (ConsoleWrite, [at + 4000, 97, 0, 0, 0], Error::BadPointer),
        (ConsoleWrite, [KERNEL_IMAGE + (1 << 20), 16, 0, 0, 0], Error::BadPointer),
        (ConsoleWrite, [u64::MAX - 7, 16, 0, 0, 0], Error::BadPointer),
        (UpcallRegister, [KERNEL_IMAGE, at + 4096, 0, 0, 0], Error::OutsideUserSpace),
        (UpcallRegister, [at, KERNEL_IMAGE, 0, 0, 0], Error::OutsideUserSpace),
        (UpcallRegister, [at, at + 8, 0, 0, 0], Error::Misaligned),
        (UpcallReturn, [at, 0, 0, 0, 0], Error::WrongContext),
        (CoreAcquire, [KERNEL_IMAGE, at, 0, 0, 0], Error::OutsideUserSpace),
        (CoreAcquire, [at, USER_END + 4096, 0, 0, 0], Error::OutsideUserSpace),
        (CoreRelease, [0, 0, 0, 0, 0], Error::LastCore),
        (CoreWait, [0, 0, 0, 0, 0], Error::BadPointer),
        (CoreWait, [0, board, 0, 0, 0], Error::BadPointer),
        (CoreWait, [0, at + 4072, 0, 0, 0], Error::BadPointer),
        (DeviceAcquire, [64, 0, 0, 0, 0], Error::NoDevice),
        (DeviceAcquire, [u64::MAX, 0, 0, 0, 0], Error::NoDevice),
        (DeviceRelease, [63, 0, 0, 0, 0], Error::NoDevice),
        (DeviceMap, [63, 0, 0, empty, 4096], Error::NoDevice),
        (DeviceConfigRead, [63, 0, 0, 0, 0], Error::NoDevice),
        (InterruptBind, [63, 0, 0, 0, 0], Error::NoDevice),
        (ChannelNotify, [0, 0, 0, 0, 0], Error::NoChannel),
        (ChannelNotify, [u64::MAX, 0, 0, 0, 0], Error::NoChannel),
        (ApplicationStart, [63, 0, 0, 0, 0], Error::NoApplication),
        (ApplicationKill, [0, 0, 0, 0, 0], Error::NotPermitted),
        (SegmentBase, [0, KERNEL_IMAGE, 0, 0, 0], Error::OutsideUserSpace),
        (SegmentBase, [1, u64::MAX, 0, 0, 0], Error::OutsideUserSpace),
        (SegmentBase, [2, 0, 0, 0, 0], Error::InvalidArgument),
        (CoreNotify, [63, 0, 0, 0, 0], Error::NoCore),
        (CoreNotify, [u64::MAX, 0, 0, 0, 0], Error::NoCore),
    ]
}
