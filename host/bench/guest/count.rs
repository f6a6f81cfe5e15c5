//! A plugin of QEMU's translator that counts the instructions that a guest executes and how often its
//! processors halt, in a file that is shared with whoever maps or reads it.
//!
//! The file has a slot of 64 bytes, a line of the cache, for each processor: instructions and halts, 8 bytes
//! each, little-endian. Only its own processor writes a slot, so that several count exactly. Each translated
//! block adds its length when it is entered; a block that an exception leaves early counts whole.
//!
//! Behind the slots it has [`LENGTHS`] numbers of 8 bytes: how often so many instructions lay between a
//! processor's `pause` in user space and its last one. A loop that polls has one in each turn that found
//! nothing, so most of these are such turns, and the most frequent number is what one takes.
//!
//! Each block also lasts a little longer, so that a guest that polls is slower than its clients and always
//! has something to do: polling in vain costs instructions, as many as the computer has time for.
//!
//! A second file, if one is asked for, tells which instructions they were: for each translated block its
//! count, the number of its instructions, and their addresses, 8 bytes each, little-endian; bit 62 of the
//! address of an instruction that locks memory is turned over. What was translated again is there again.
//! Zeros end it.
//!
//! `nom bench` compiles it with plain `rustc`; it is not a package of the workspace. Interface: QEMU,
//! `include/qemu/qemu-plugin.h`, version 1.
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// The version of the interface that this plugin speaks.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = 1;

/// What is counted of one processor.
#[repr(C, align(64))]
struct Slot {
    instructions: AtomicU64,
    halts: AtomicU64,
    /// Instructions by the last pause.
    paused: AtomicU64,
}

/// Processors that are counted, at most.
const SLOTS: usize = 64;

/// Where the counts are: [`SLOTS`] of them.
static COUNTS: AtomicPtr<Slot> = AtomicPtr::new(std::ptr::null_mut());

/// Lengths between two pauses that are told apart; the last are longer.
const LENGTHS: usize = 4096;

/// From here on addresses are the kernel's.
const HIGHER_HALF: u64 = 1 << 63;

/// Words of the file of blocks, most of which nobody touches.
const BLOCK_WORDS: usize = 8 << 20;

/// Where the blocks are, if anybody wants to know, and how many words are taken.
static BLOCKS: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Words in front of a block's addresses: its count, and how many they are.
const BLOCK_HEAD: usize = 2;

/// Turned over in the address of an instruction that locks memory: no address has it different from bit 63.
const LOCKED: u64 = 1 << 62;

/// `QEMU_PLUGIN_CB_NO_REGS`: the callbacks look at no register.
const NO_REGISTERS: c_int = 0;

type Id = u64;
type Block = *mut c_void;
type Instruction = *mut c_void;

unsafe extern "C" {
    fn qemu_plugin_register_vcpu_tb_trans_cb(id: Id, callback: extern "C" fn(Id, Block));
    fn qemu_plugin_register_vcpu_tb_exec_cb(
        block: Block,
        callback: extern "C" fn(c_uint, *mut c_void),
        flags: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_idle_cb(id: Id, callback: extern "C" fn(Id, c_uint));
    fn qemu_plugin_tb_n_insns(block: Block) -> usize;
    fn qemu_plugin_tb_get_insn(block: Block, index: usize) -> Instruction;
    fn qemu_plugin_insn_vaddr(instruction: Instruction) -> u64;
    fn qemu_plugin_insn_data(instruction: Instruction) -> *const u8;
    fn qemu_plugin_insn_size(instruction: Instruction) -> usize;
    fn mmap(at: *mut c_void, bytes: usize, rights: c_int, flags: c_int, file: c_int, offset: i64)
    -> *mut c_void;
}

/// QEMU calls this once, with the plugin's arguments: `counter=PATH`, and `blocks=PATH` if they are wanted.
///
/// # Safety
/// `arguments` are `count` strings that end with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: Id,
    _about: *const c_void,
    count: c_int,
    arguments: *const *const c_char,
) -> c_int {
    // SAFETY: QEMU passes so many strings, if there are any.
    let argument = |index: usize| unsafe { CStr::from_ptr(*arguments.add(index)) }.to_string_lossy();
    let arguments: Vec<_> = (0..count as usize).map(argument).collect();
    let Some(path) = arguments.iter().find_map(|argument| argument.strip_prefix("counter=")) else {
        eprintln!("count: expected counter=PATH");
        return 1;
    };
    let blocks = arguments.iter().find_map(|argument| argument.strip_prefix("blocks="));
    let bytes = SLOTS * size_of::<Slot>() + LENGTHS * size_of::<u64>();
    let mapped = map(path, bytes).map_err(|error| (path, error)).and_then(|counts| {
        COUNTS.store(counts.cast(), Relaxed);
        let Some(path) = blocks else { return Ok(()) };
        let blocks = map(path, BLOCK_WORDS * size_of::<u64>()).map_err(|error| (path, error))?;
        BLOCKS.store(blocks.cast(), Relaxed);
        Ok(())
    });
    if let Err((path, error)) = mapped {
        eprintln!("count: {path}: {error}");
        return 1;
    }
    // SAFETY: the plugin stays loaded as long as the guest runs.
    unsafe {
        qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
        qemu_plugin_register_vcpu_idle_cb(id, halted);
    }
    0
}

/// Maps a new file of so many zeros for the rest of the process.
fn map(path: &str, bytes: usize) -> std::io::Result<*mut c_void> {
    const READ_WRITE: c_int = 3;
    const SHARED: c_int = 1;
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
    file.set_len(bytes as u64)?;
    // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
    let at = unsafe { mmap(std::ptr::null_mut(), bytes, READ_WRITE, SHARED, file.as_raw_fd(), 0) };
    if at as isize == -1 { Err(std::io::Error::last_os_error()) } else { Ok(at) }
}

/// The slot of a processor.
fn slot(processor: c_uint) -> &'static Slot {
    // SAFETY: so many slots are mapped for ever, and the remainder is smaller.
    unsafe { &*COUNTS.load(Relaxed).add(processor as usize % SLOTS) }
}

/// Adds to a counter that nobody else writes: cheaper than an atomic addition.
fn add(counter: &AtomicU64, value: u64) {
    counter.store(counter.load(Relaxed) + value, Relaxed);
}

/// Makes a block that was translated count itself.
extern "C" fn translated(_id: Id, block: Block) {
    // SAFETY: QEMU passes a block that lives through this call; the callback's data is a number, no address,
    // or that of words that stay mapped.
    unsafe {
        if pauses(block) {
            qemu_plugin_register_vcpu_tb_exec_cb(block, paused, NO_REGISTERS, std::ptr::null_mut());
        }
        if let Some(listed) = list(block) {
            let data = std::ptr::from_ref(listed).cast_mut().cast();
            return qemu_plugin_register_vcpu_tb_exec_cb(block, entered_listed, NO_REGISTERS, data);
        }
        let instructions = qemu_plugin_tb_n_insns(block) as *mut c_void;
        qemu_plugin_register_vcpu_tb_exec_cb(block, entered, NO_REGISTERS, instructions);
    }
}

/// Whether a block of user space pauses, which ends it.
///
/// # Safety
/// `block` lives.
unsafe fn pauses(block: Block) -> bool {
    // SAFETY: the caller's promise; instructions live as long as their block.
    unsafe {
        let Some(last) = qemu_plugin_tb_n_insns(block).checked_sub(1) else { return false };
        let instruction = qemu_plugin_tb_get_insn(block, last);
        let data = qemu_plugin_insn_data(instruction);
        let bytes = std::slice::from_raw_parts(data, qemu_plugin_insn_size(instruction));
        bytes == [0xf3, 0x90] && qemu_plugin_insn_vaddr(instruction) < HIGHER_HALF
    }
}

/// Lists a block, if anybody wants to know and there is room; returns its head.
///
/// # Safety
/// `block` lives.
unsafe fn list(block: Block) -> Option<&'static [AtomicU64; BLOCK_HEAD]> {
    let blocks = BLOCKS.load(Relaxed);
    if blocks.is_null() {
        return None;
    }
    // SAFETY: the caller's promise; instructions live as long as their block.
    unsafe {
        let count = qemu_plugin_tb_n_insns(block);
        let words = BLOCK_HEAD + count;
        let at = TAKEN.fetch_add(words, Relaxed);
        // The last word stays zero.
        if at + words >= BLOCK_WORDS {
            return None;
        }
        // SAFETY: so many words are mapped for ever, and these were given to nobody else.
        let listed = std::slice::from_raw_parts(blocks.add(at), words);
        for (index, word) in listed[BLOCK_HEAD..].iter().enumerate() {
            let instruction = qemu_plugin_tb_get_insn(block, index);
            let data = qemu_plugin_insn_data(instruction);
            let bytes = std::slice::from_raw_parts(data, qemu_plugin_insn_size(instruction));
            let mark = if is_locked(bytes) { LOCKED } else { 0 };
            word.store(qemu_plugin_insn_vaddr(instruction) ^ mark, Relaxed);
        }
        listed[1].store(count as u64, Relaxed);
        listed.first_chunk()
    }
}

/// Whether an instruction locks memory: by prefix, or because it exchanges a register with memory.
fn is_locked(instruction: &[u8]) -> bool {
    let is_prefix = |byte: &u8| matches!(byte, 0xf0 | 0xf2 | 0xf3 | 0x2e | 0x36 | 0x3e | 0x26 | 0x64..=0x67);
    let prefixes = instruction.iter().take_while(|byte| is_prefix(byte)).count();
    let (prefixes, rest) = instruction.split_at(prefixes);
    let rest = if matches!(rest.first(), Some(0x40..=0x4f)) { &rest[1..] } else { rest };
    prefixes.contains(&0xf0) || matches!(rest, [0x86 | 0x87, operands, ..] if *operands < 0xc0)
}

/// A processor enters a block of so many instructions.
extern "C" fn entered(processor: c_uint, instructions: *mut c_void) {
    std::hint::spin_loop();
    add(&slot(processor).instructions, instructions as u64);
}

/// A processor enters a block that is listed. Of several at once one may not be counted.
extern "C" fn entered_listed(processor: c_uint, listed: *mut c_void) {
    // SAFETY: it was registered with the address of words that stay mapped.
    let [count, instructions] = unsafe { &*listed.cast::<[AtomicU64; BLOCK_HEAD]>() };
    std::hint::spin_loop();
    add(count, 1);
    add(&slot(processor).instructions, instructions.load(Relaxed));
}

/// A processor enters a block that pauses; the block is counted after that.
extern "C" fn paused(processor: c_uint, _: *mut c_void) {
    let slot = slot(processor);
    let instructions = slot.instructions.load(Relaxed);
    let length = instructions - slot.paused.load(Relaxed);
    slot.paused.store(instructions, Relaxed);
    // SAFETY: so many numbers are mapped for ever behind the slots.
    let lengths = unsafe { &*COUNTS.load(Relaxed).add(SLOTS).cast::<[AtomicU64; LENGTHS]>() };
    add(&lengths[(length as usize).min(LENGTHS - 1)], 1);
}

/// A processor has nothing to do.
extern "C" fn halted(_id: Id, processor: c_uint) {
    add(&slot(processor).halts, 1);
}
