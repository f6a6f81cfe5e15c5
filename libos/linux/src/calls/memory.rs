//! ProcessMemory: mmap(2), munmap(2), mprotect(2), mremap(2), madvise(2), brk(2).

use crate::call::Call;
use crate::descriptors::Mappable;
use crate::descriptors::calls::{get, with_vfs};
use crate::memory::{
    Backing, FilePart, LargeUse, MappedRegion, OnFork, PAGE, Rights, SharedPart, Sharing, Touch, Where,
};
use crate::table::SystemCall;
use linux_raw_sys::general as abi;
use nom_fs::{Durable, Errno};

/// These calls.
pub const ROWS: &[SystemCall] = &[
    SystemCall::partial(
        abi::__NR_mmap,
        "mmap",
        &["address", "length", "protection", "flags", "descriptor", "offset"],
        map,
        "a file that is cut stays as it was where it is mapped shared; memory that may be written and \
         executed is one of both at a time",
    ),
    SystemCall::complete(abi::__NR_munmap, "munmap", &["address", "length"], unmap),
    SystemCall::complete(abi::__NR_mprotect, "mprotect", &["address", "length", "protection"], protect),
    SystemCall::complete(
        abi::__NR_mremap,
        "mremap",
        &["address", "old_length", "new_length", "flags", "new_address"],
        remap,
    ),
    SystemCall::partial(
        abi::__NR_madvise,
        "madvise",
        &["address", "length", "advice"],
        advise,
        "MADV_DONTNEED and MADV_FREE forget, MADV_HUGEPAGE and MADV_NOHUGEPAGE, MADV_DONTFORK and \
         MADV_WIPEONFORK and MADV_POPULATE_READ and MADV_POPULATE_WRITE are heeded, MADV_REMOVE and \
         MADV_COLLAPSE are refused, other advice changes nothing",
    ),
    SystemCall::complete(abi::__NR_brk, "brk", &["end"], set_break),
    SystemCall::partial(
        abi::__NR_mlock,
        "mlock",
        &["address", "length"],
        lock,
        "nothing is ever swapped out",
    ),
    SystemCall::partial(abi::__NR_mlock2, "mlock2", &["address", "length", "flags"], lock, "as mlock"),
    SystemCall::partial(abi::__NR_munlock, "munlock", &["address", "length"], lock, "as mlock"),
    SystemCall::partial(abi::__NR_mlockall, "mlockall", &["flags"], lock_all, "as mlock"),
    SystemCall::partial(
        abi::__NR_munlockall,
        "munlockall",
        &[],
        |call| {
            call.memory().is_locked.set(false);
            Ok(0)
        },
        "as mlock",
    ),
    SystemCall::partial(
        abi::__NR_msync,
        "msync",
        &["address", "length", "flags"],
        sync,
        "what is written asynchronously is written at once",
    ),
    SystemCall::partial(
        abi::__NR_mincore,
        "mincore",
        &["address", "length", "pages"],
        in_core,
        "says that all of a file is there",
    ),
];

/// Flags that whoever asks for those that it does not know to be refused may give: not `MAP_SYNC`, by which a
/// write would be on the disk at once.
const KNOWN: u32 = abi::MAP_TYPE
    | abi::MAP_FIXED
    | abi::MAP_ANONYMOUS
    | abi::MAP_32BIT
    | abi::MAP_ABOVE4G
    | abi::MAP_GROWSDOWN
    | abi::MAP_DENYWRITE
    | abi::MAP_EXECUTABLE
    | abi::MAP_LOCKED
    | abi::MAP_NORESERVE
    | abi::MAP_POPULATE
    | abi::MAP_NONBLOCK
    | abi::MAP_STACK
    | abi::MAP_HUGETLB
    | abi::MAP_HUGE_2MB
    | abi::MAP_HUGE_1GB
    | abi::MAP_UNINITIALIZED;

fn map(call: &Call<'_>) -> Result<u64, Errno> {
    let [address, length, protection, flags, descriptor, offset] = call.arguments;
    let flags = flags as u32;
    if length == 0 || !offset.is_multiple_of(PAGE) {
        return Err(Errno::EINVAL);
    }
    let sharing = match flags & abi::MAP_TYPE {
        abi::MAP_PRIVATE => Sharing::Private,
        abi::MAP_SHARED | abi::MAP_SHARED_VALIDATE => Sharing::Shared,
        _ => return Err(Errno::EINVAL),
    };
    let is_validated = flags & abi::MAP_TYPE == abi::MAP_SHARED_VALIDATE;
    if is_validated && flags & abi::MAP_ANONYMOUS != 0 {
        return Err(Errno::EINVAL);
    }
    if is_validated && flags & !KNOWN != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if flags & abi::MAP_HUGETLB != 0 {
        return Err(Errno::ENOMEM);
    }
    let backing = if flags & abi::MAP_ANONYMOUS != 0 {
        Backing::Zero
    } else {
        match call.process().mappable(call, descriptor as i32)? {
            Mappable::Zeros => Backing::Zero,
            Mappable::File(node) if sharing == Sharing::Shared => {
                let writes = protection as u32 & abi::PROT_WRITE != 0;
                let may_write = get(call, descriptor as i32)?.check_write().is_ok();
                let is_sealed = !with_vfs(call, |vfs, _| vfs.may_map_to_write(node.node));
                if writes && (!may_write || is_sealed) {
                    return Err(if may_write { Errno::EPERM } else { Errno::EACCES });
                }
                let may_write = may_write && !is_sealed;
                let pages = call.family().mapped.pages(&node, || call.memory().keeper());
                Backing::Shared(SharedPart { pages, offset, may_write })
            }
            Mappable::File(contents) => Backing::File(FilePart { contents, offset, bytes: u64::MAX }),
        }
    };
    let place = match (flags & abi::MAP_FIXED_NOREPLACE != 0, flags & abi::MAP_FIXED != 0) {
        (true, _) => Where::AtIfFree(address),
        (_, true) => Where::At(address),
        _ if flags & abi::MAP_32BIT != 0 => Where::Low(address),
        _ => Where::Near(address),
    };
    check_limit(call, length)?;
    let rights = Rights::from_bits(protection as u32);
    let region = MappedRegion { sharing, backing, ..MappedRegion::zeros(rights) };
    let at = call.memory().map(place, length, region)?;
    if flags & abi::MAP_POPULATE != 0 && rights != Rights::NONE {
        // What is behind a file's end, or has no memory, comes when it is touched, or does not.
        let _ = call.memory().reach(at, length, Touch::Read);
    }
    Ok(at)
}

fn unmap(call: &Call<'_>) -> Result<u64, Errno> {
    let [address, length, ..] = call.arguments;
    call.memory().unmap(address, length).map(|()| 0)
}

fn protect(call: &Call<'_>) -> Result<u64, Errno> {
    let [address, length, protection, ..] = call.arguments;
    call.memory().protect(address, length, Rights::from_bits(protection as u32)).map(|()| 0)
}

fn remap(call: &Call<'_>) -> Result<u64, Errno> {
    let [address, old, new, flags, to, _] = call.arguments;
    let flags = flags as u32;
    if flags & !(abi::MREMAP_MAYMOVE | abi::MREMAP_FIXED | abi::MREMAP_DONTUNMAP) != 0 {
        return Err(Errno::EINVAL);
    }
    let stays = flags & abi::MREMAP_DONTUNMAP != 0;
    let to = match (flags & abi::MREMAP_FIXED != 0, flags & abi::MREMAP_MAYMOVE != 0) {
        (true, true) => Some(Where::At(to)),
        (true, false) => return Err(Errno::EINVAL),
        (false, true) if stays && !to.is_multiple_of(PAGE) => return Err(Errno::EINVAL),
        (false, true) => Some(Where::Near(if stays { to } else { 0 })),
        (false, false) => None,
    };
    if stays {
        let to = to.filter(|_| old == new).ok_or(Errno::EINVAL)?;
        check_limit(call, new)?;
        return call.memory().empty(address, old, to);
    }
    check_limit(call, new.saturating_sub(old))?;
    call.memory().remap(address, old, new, to)
}

fn advise(call: &Call<'_>) -> Result<u64, Errno> {
    let [address, length, advice, ..] = call.arguments;
    if !address.is_multiple_of(PAGE) {
        return Err(Errno::EINVAL);
    }
    match advice as u32 {
        abi::MADV_DONTNEED | abi::MADV_DONTNEED_LOCKED | abi::MADV_FREE => {
            call.memory().forget(address, length)?
        }
        abi::MADV_HUGEPAGE => call.memory().use_large(address, length, LargeUse::Everywhere)?,
        abi::MADV_NOHUGEPAGE => call.memory().use_large(address, length, LargeUse::Nowhere)?,
        abi::MADV_DONTFORK => call.memory().set_on_fork(address, length, OnFork::Leave)?,
        abi::MADV_WIPEONFORK => call.memory().set_on_fork(address, length, OnFork::Wipe)?,
        abi::MADV_DOFORK | abi::MADV_KEEPONFORK => {
            call.memory().set_on_fork(address, length, OnFork::Keep)?;
        }
        abi::MADV_POPULATE_READ => populate(call, Touch::Read)?,
        abi::MADV_POPULATE_WRITE => populate(call, Touch::Write)?,
        advice if IGNORED.contains(&advice) => return lock(call),
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

/// Advice that changes nothing that a program could see; what it is about must be mapped.
const IGNORED: &[u32] = &[
    abi::MADV_NORMAL,
    abi::MADV_RANDOM,
    abi::MADV_SEQUENTIAL,
    abi::MADV_WILLNEED,
    abi::MADV_COLD,
    abi::MADV_PAGEOUT,
    abi::MADV_MERGEABLE,
    abi::MADV_UNMERGEABLE,
    abi::MADV_DONTDUMP,
    abi::MADV_DODUMP,
];

/// Brings all pages of a range as if they were touched.
fn populate(call: &Call<'_>, touch: Touch) -> Result<(), Errno> {
    let [address, length, ..] = call.arguments;
    lock(call)?;
    call.memory().reach(address, length, touch)
}

/// Whether so many more bytes may be mapped (`RLIMIT_AS`).
fn check_limit(call: &Call<'_>, more: u64) -> Result<(), Errno> {
    let limit = call.process().limits.borrow().address_space();
    if limit != u64::MAX && call.memory().bytes().0.saturating_add(more) > limit {
        return Err(Errno::ENOMEM);
    }
    Ok(())
}

fn set_break(call: &Call<'_>) -> Result<u64, Errno> {
    // As brk(2): what cannot be stays as it is, and is told.
    let now = call.memory().set_heap_end(0);
    if check_limit(call, call.arguments[0].saturating_sub(now)).is_err() {
        return Ok(now);
    }
    Ok(call.memory().set_heap_end(call.arguments[0]))
}

/// What must be mapped, and nothing else.
fn lock(call: &Call<'_>) -> Result<u64, Errno> {
    let [address, length, ..] = call.arguments;
    let start = address - address % PAGE;
    let end = address.checked_add(length).and_then(|end| end.checked_next_multiple_of(PAGE));
    if call.memory().is_mapped(start..end.ok_or(Errno::EINVAL)?) { Ok(0) } else { Err(Errno::ENOMEM) }
}

/// Writes what processes wrote to files that they have mapped shared; with `MS_SYNC` it is on the disk then.
fn sync(call: &Call<'_>) -> Result<u64, Errno> {
    let [address, length, flags, ..] = call.arguments;
    let flags = flags as u32;
    let is_both = flags & abi::MS_SYNC != 0 && flags & abi::MS_ASYNC != 0;
    if !address.is_multiple_of(PAGE)
        || is_both
        || flags & !(abi::MS_SYNC | abi::MS_ASYNC | abi::MS_INVALIDATE) != 0
    {
        return Err(Errno::EINVAL);
    }
    if flags & abi::MS_INVALIDATE != 0 && call.memory().is_locked.get() {
        return Err(Errno::EBUSY);
    }
    let end = address.checked_add(length).and_then(|end| end.checked_next_multiple_of(PAGE));
    let files = call.memory().write_back(address..end.ok_or(Errno::ENOMEM)?)?;
    let nodes = files.iter().filter_map(|pages| pages.file()?.node());
    for node in nodes.filter(|_| flags & abi::MS_SYNC != 0) {
        with_vfs(call, |vfs, _| vfs.sync(node, Durable::Data))?;
    }
    Ok(0)
}

fn lock_all(call: &Call<'_>) -> Result<u64, Errno> {
    const WHAT: u32 = abi::MCL_CURRENT | abi::MCL_FUTURE;
    let flags = call.arguments[0] as u32;
    if flags & WHAT == 0 || flags & !(WHAT | abi::MCL_ONFAULT) != 0 {
        return Err(Errno::EINVAL);
    }
    call.memory().is_locked.set(true);
    Ok(0)
}

fn in_core(call: &Call<'_>) -> Result<u64, Errno> {
    let [address, length, pages, ..] = call.arguments;
    if !address.is_multiple_of(PAGE) {
        return Err(Errno::EINVAL);
    }
    lock(call)?;
    for page in 0..length.div_ceil(PAGE) {
        let is_there = call.memory().is_resident(address + page * PAGE);
        call.memory().write(pages + page, &[is_there.into()])?;
    }
    Ok(0)
}
