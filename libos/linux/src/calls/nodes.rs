//! Nodes of memory: numa(7). There is one, so that what a thread asks for is checked, remembered and told.

use crate::call::Call;
use crate::table::SystemCall;
use linux_raw_sys::general as abi;
use nom_fs::Errno;

const ONE: &str = "there is one node";

/// These calls.
pub const ROWS: &[SystemCall] = &[
    SystemCall::partial(
        abi::__NR_get_mempolicy,
        "get_mempolicy",
        &["mode", "nodes", "count", "address", "flags"],
        policy,
        "no address has a policy of its own",
    ),
    SystemCall::complete(abi::__NR_set_mempolicy, "set_mempolicy", &["mode", "nodes", "count"], set_policy),
    SystemCall::partial(
        abi::__NR_mbind,
        "mbind",
        &["address", "length", "mode", "nodes", "count", "flags"],
        bind,
        "checked, and not remembered: there is one node",
    ),
    SystemCall::partial(
        abi::__NR_migrate_pages,
        "migrate_pages",
        &["process", "count", "from", "to"],
        migrate,
        ONE,
    ),
    SystemCall::partial(
        abi::__NR_move_pages,
        "move_pages",
        &["process", "count", "pages", "nodes", "status", "flags"],
        move_pages,
        "the caller's own; there is one node",
    ),
];

/// What a thread asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemoryPolicy {
    /// `MPOL_*`, with its flags.
    mode: u32,
    /// Whether the node is named.
    has_node: bool,
}

const DEFAULT: u32 = 0;
const PREFERRED: u32 = 1;
const INTERLEAVE: u32 = 3;
const LOCAL: u32 = 4;
/// The first that is no mode.
const MODES: u32 = 6;
const STATIC_NODES: u32 = 1 << 15;
const RELATIVE_NODES: u32 = 1 << 14;
const BALANCING: u32 = 1 << 13;
/// Of get_mempolicy(2).
const OF_NODE: u32 = 1;
const OF_ADDRESS: u32 = 2;
const ALLOWED: u32 = 4;
/// Most nodes that a mask may have room for: a page of bits.
const NODES_MAX: u64 = 4096 * 8;
/// Nodes that Linux could have.
const NODES_POSSIBLE: u64 = 1024;
const WORD_BITS: u64 = 64;
const PAGE: u64 = 4096;

/// Whether node 0, and whether any other, is in a mask of `count` bits, of which the last does not count.
/// Errors: EINVAL if it names more than there can be, EFAULT.
fn has_nodes(call: &Call<'_>, mask: u64, count: u64) -> Result<(bool, bool), Errno> {
    let count = count.saturating_sub(1);
    if count == 0 || mask == 0 {
        return Ok((false, false));
    }
    if count > NODES_MAX {
        return Err(Errno::EINVAL);
    }
    let (mut first, mut others) = (false, false);
    for word in 0..count.div_ceil(WORD_BITS) {
        let bits = call.memory().read_value::<u64>(mask + 8 * word)?;
        let left = count - word * WORD_BITS;
        let bits = if left < WORD_BITS { bits & ((1 << left) - 1) } else { bits };
        if bits != 0 && word >= NODES_POSSIBLE / WORD_BITS {
            return Err(Errno::EINVAL);
        }
        first |= word == 0 && bits & 1 == 1;
        others |= if word == 0 { bits > 1 } else { bits != 0 };
    }
    Ok((first, others))
}

/// A policy as it was asked for. Errors: EINVAL if it cannot be, EFAULT.
fn asked(call: &Call<'_>, mode: u32, mask: u64, count: u64) -> Result<MemoryPolicy, Errno> {
    let flags = mode & (STATIC_NODES | RELATIVE_NODES | BALANCING);
    let kind = mode & !flags;
    let both = STATIC_NODES | RELATIVE_NODES;
    const BIND: u32 = 2;
    if kind >= MODES || flags & both == both || flags & BALANCING != 0 && kind != BIND {
        return Err(Errno::EINVAL);
    }
    let (has_node, has_others) = has_nodes(call, mask, count)?;
    let is_empty = !has_node && !has_others;
    match kind {
        DEFAULT | LOCAL if !is_empty || kind == LOCAL && flags != 0 => Err(Errno::EINVAL),
        DEFAULT => Ok(MemoryPolicy::default()),
        LOCAL => Ok(MemoryPolicy { mode: LOCAL, has_node: false }),
        PREFERRED if is_empty && flags & both == 0 => Ok(MemoryPolicy { mode: LOCAL, has_node: false }),
        // Of those that it names one must be there.
        _ if !has_node => Err(Errno::EINVAL),
        _ => Ok(MemoryPolicy { mode, has_node }),
    }
}

fn set_policy(call: &Call<'_>) -> Result<u64, Errno> {
    let [_, mask, count, ..] = call.arguments;
    let policy = asked(call, call.int(0) as u32, mask, count)?;
    call.task().memory_policy.set(policy);
    Ok(0)
}

fn policy(call: &Call<'_>) -> Result<u64, Errno> {
    let [mode, mask, count, address, flags, ..] = call.arguments;
    let own = call.task().memory_policy.get();
    if mask != 0 && count < 1 {
        return Err(Errno::EINVAL);
    }
    let (told, has_node) = match flags as u32 {
        _ if flags >> 3 != 0 => return Err(Errno::EINVAL),
        ALLOWED => (DEFAULT, true),
        _ if flags as u32 & ALLOWED != 0 => return Err(Errno::EINVAL),
        by if by & OF_ADDRESS != 0 => {
            is_there(call, address).then_some(()).ok_or(Errno::EFAULT)?;
            // The node that it lies on, and the policy that it has, are the first.
            if by & OF_NODE != 0 { (0, own.has_node) } else { (own.mode, own.has_node) }
        }
        _ if address != 0 => return Err(Errno::EINVAL),
        OF_NODE if own.mode & !(STATIC_NODES | RELATIVE_NODES) == INTERLEAVE => (0, own.has_node),
        OF_NODE => return Err(Errno::EINVAL),
        _ => (own.mode, own.has_node),
    };
    if mode != 0 {
        call.memory().write_value(mode, &told)?;
    }
    if mask != 0 {
        tell(call, mask, count, has_node)?;
    }
    Ok(0)
}

/// Whether the caller has something at an address.
fn is_there(call: &Call<'_>, address: u64) -> bool {
    let page = address - address % PAGE;
    page.checked_add(PAGE).is_some_and(|end| call.memory().is_mapped(page..end))
}

/// Writes a mask of `count` bits, of which the last does not count. Errors: EINVAL if that is too much,
/// EFAULT.
fn tell(call: &Call<'_>, mask: u64, count: u64, has_node: bool) -> Result<(), Errno> {
    let words = (count - 1).div_ceil(WORD_BITS);
    if words > PAGE / 8 {
        return Err(Errno::EINVAL);
    }
    for word in 0..words {
        call.memory().write_value(mask + 8 * word, &u64::from(word == 0 && has_node))?;
    }
    Ok(())
}

fn bind(call: &Call<'_>) -> Result<u64, Errno> {
    let [address, length, mode, mask, count, flags] = call.arguments;
    const MOVE_ALL: u64 = 4;
    if flags >> 3 != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & MOVE_ALL != 0 && call.process().user() != 0 {
        return Err(Errno::EPERM);
    }
    let end = length.checked_next_multiple_of(PAGE).and_then(|length| address.checked_add(length));
    let end = end.filter(|_| address.is_multiple_of(PAGE)).ok_or(Errno::EINVAL)?;
    asked(call, mode as u32, mask, count)?;
    if end == address || call.memory().is_mapped(address..end) { Ok(0) } else { Err(Errno::EFAULT) }
}

/// Whether the first argument names the caller's own process. Errors: ESRCH, EPERM of other users'.
fn is_own_process(call: &Call<'_>) -> Result<bool, Errno> {
    let id = call.int(0) as u32;
    if id == 0 || id == call.process().id {
        return Ok(true);
    }
    let process = call.family().process(id).ok_or(Errno::ESRCH)?;
    let user = call.process().user();
    if user == 0 || user == process.user() { Ok(false) } else { Err(Errno::EPERM) }
}

fn migrate(call: &Call<'_>) -> Result<u64, Errno> {
    let [_, count, from, to, ..] = call.arguments;
    has_nodes(call, from, count)?;
    let (has_first, has_others) = has_nodes(call, to, count)?;
    is_own_process(call)?;
    // How many pages could not be moved.
    if has_others || !has_first { Err(Errno::EINVAL) } else { Ok(0) }
}

fn move_pages(call: &Call<'_>) -> Result<u64, Errno> {
    let [_, count, pages, nodes, status, flags] = call.arguments;
    const MOVES: u64 = 2 | 4;
    if flags & !MOVES != 0 {
        return Err(Errno::EINVAL);
    }
    let is_own = is_own_process(call)?;
    for place in 0..count {
        let page = call.memory().read_value::<u64>(pages + 8 * place)?;
        let node = if nodes == 0 { 0 } else { call.memory().read_value::<i32>(nodes + 4 * place)? };
        if node != 0 {
            return Err(Errno::ENODEV);
        }
        let told = if !is_own || is_there(call, page) { 0 } else { -Errno::EFAULT.code() };
        call.memory().write_value(status + 4 * place, &told)?;
    }
    Ok(0)
}
