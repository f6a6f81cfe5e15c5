//! A plugin of QEMU's translator that counts the instructions that a guest executes and how often its
//! processors halt, in a file that is shared with whoever maps or reads it.
//!
//! The file has a slot of 64 bytes, a line of the cache, for each processor: instructions and halts, 8 bytes
//! each, little-endian. Only its own processor writes a slot, so that several count exactly. Each translated
//! block adds its length when it is entered; a block that an exception leaves early counts whole.
//!
//! `nom bench` compiles it with plain `rustc`; it is not a package of the workspace. Interface: QEMU,
//! `include/qemu/qemu-plugin.h`, version 1.
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};

/// The version of the interface that this plugin speaks.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = 1;

/// What is counted of one processor.
#[repr(C, align(64))]
struct Slot {
    instructions: AtomicU64,
    halts: AtomicU64,
}

/// Processors that are counted, at most.
const SLOTS: usize = 64;

/// Where the counts are: [`SLOTS`] of them.
static COUNTS: AtomicPtr<Slot> = AtomicPtr::new(std::ptr::null_mut());

/// `QEMU_PLUGIN_CB_NO_REGS`: the callbacks look at no register.
const NO_REGISTERS: c_int = 0;

type Id = u64;
type Block = *mut c_void;

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
    fn mmap(at: *mut c_void, bytes: usize, rights: c_int, flags: c_int, file: c_int, offset: i64)
    -> *mut c_void;
}

/// QEMU calls this once, with the plugin's arguments: `counter=PATH`.
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
    match map(path) {
        Ok(counts) => COUNTS.store(counts, Relaxed),
        Err(error) => {
            eprintln!("count: {path}: {error}");
            return 1;
        }
    }
    // SAFETY: the plugin stays loaded as long as the guest runs.
    unsafe {
        qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
        qemu_plugin_register_vcpu_idle_cb(id, halted);
    }
    0
}

/// Maps a new file of zeros for the rest of the process.
fn map(path: &str) -> std::io::Result<*mut Slot> {
    const READ_WRITE: c_int = 3;
    const SHARED: c_int = 1;
    const BYTES: usize = SLOTS * size_of::<Slot>();
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
    file.set_len(BYTES as u64)?;
    // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
    let at = unsafe { mmap(std::ptr::null_mut(), BYTES, READ_WRITE, SHARED, file.as_raw_fd(), 0) };
    if at as isize == -1 { Err(std::io::Error::last_os_error()) } else { Ok(at.cast()) }
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
    // SAFETY: QEMU passes a block that lives through this call; the callback's data is a number, no address.
    unsafe {
        let instructions = qemu_plugin_tb_n_insns(block) as *mut c_void;
        qemu_plugin_register_vcpu_tb_exec_cb(block, entered, NO_REGISTERS, instructions);
    }
}

/// A processor enters a block of so many instructions.
extern "C" fn entered(processor: c_uint, instructions: *mut c_void) {
    add(&slot(processor).instructions, instructions as u64);
}

/// A processor has nothing to do.
extern "C" fn halted(_id: Id, processor: c_uint) {
    add(&slot(processor).halts, 1);
}
