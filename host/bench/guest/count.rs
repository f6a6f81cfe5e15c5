//! A plugin of QEMU's translator that counts the instructions that a guest executes, in a file that is
//! shared with whoever maps or reads it: eight bytes, little-endian.
//!
//! Each translated block adds its length to the counter when it is entered; a block that an exception
//! leaves early counts whole. With one virtual processor the counter is exact but for that.
//!
//! `nom bench` compiles it with plain `rustc`; it is not a package of the workspace. Interface: QEMU,
//! `include/qemu/qemu-plugin.h`, version 1.
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// The version of the interface that this plugin speaks.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = 1;

/// Where the count is.
static COUNTER: AtomicPtr<u64> = AtomicPtr::new(std::ptr::null_mut());

/// `QEMU_PLUGIN_INLINE_ADD_U64`.
const ADD: c_int = 0;

type Id = u64;
type Block = *mut c_void;

unsafe extern "C" {
    fn qemu_plugin_register_vcpu_tb_trans_cb(id: Id, callback: extern "C" fn(Id, Block));
    fn qemu_plugin_register_vcpu_tb_exec_inline(block: Block, operation: c_int, at: *mut u64, value: u64);
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
        Ok(counter) => COUNTER.store(counter, Relaxed),
        Err(error) => {
            eprintln!("count: {path}: {error}");
            return 1;
        }
    }
    // SAFETY: the plugin stays loaded as long as the guest runs.
    unsafe { qemu_plugin_register_vcpu_tb_trans_cb(id, translated) };
    0
}

/// Maps a new file of one counter for the rest of the process.
fn map(path: &str) -> std::io::Result<*mut u64> {
    const READ_WRITE: c_int = 3;
    const SHARED: c_int = 1;
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
    file.set_len(8)?;
    // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
    let at = unsafe { mmap(std::ptr::null_mut(), 8, READ_WRITE, SHARED, file.as_raw_fd(), 0) };
    if at as isize == -1 { Err(std::io::Error::last_os_error()) } else { Ok(at.cast()) }
}

/// Makes a block that was translated count itself.
extern "C" fn translated(_id: Id, block: Block) {
    // SAFETY: QEMU passes a block that lives through this call; the counter is mapped for ever.
    unsafe {
        let instructions = qemu_plugin_tb_n_insns(block) as u64;
        qemu_plugin_register_vcpu_tb_exec_inline(block, ADD, COUNTER.load(Relaxed), instructions);
    }
}
