//! Upcalls: the kernel's way to call the program.
//!
//! The kernel enters [`trampoline`] on the core's upcall stack with an `UpcallFrame`. The trampoline saves
//! the vector registers, which the kernel leaves as they were, calls the handler that was registered, and
//! goes back to the interrupted computation.

use crate::memory::Pages;
use crate::{local, raw};
use core::arch::naked_asm;
use core::sync::atomic::Ordering::Relaxed;
use nom_abi::error::Result;
use nom_abi::upcall::{Events, Registers, UpcallFrame};
use nom_abi::{PageSize, Syscall};

/// Bytes of an upcall stack, of which the kernel's frame and the vector registers take 704.
const STACK_BYTES: u64 = 16 * 1024;
/// Bytes of the area that `fxsave64` writes.
const VECTOR_BYTES: usize = 512;

/// What runs on an upcall, between any two instructions of the program on the same core.
///
/// It may make system calls and use atomics. It must not wait for what the interrupted computation has
/// to do: it takes locks by `try_lock` only, and does not allocate.
pub type Handler = fn(&mut Delivery);

/// One upcall: what happened, and where the program was.
#[derive(Debug)]
#[repr(transparent)]
pub struct Delivery(UpcallFrame);

impl Delivery {
    /// What happened.
    pub fn events(&self) -> &Events {
        &self.0.events
    }

    /// The interrupted computation's registers.
    pub fn registers(&self) -> &Registers {
        &self.0.registers
    }

    /// The registers with which the computation goes on.
    ///
    /// # Safety
    /// It goes on with what is left here, so that must be a state that the compiler's code can be in.
    pub unsafe fn registers_mut(&mut self) -> &mut Registers {
        &mut self.0.registers
    }
}

/// Registers the handler of this core, with a stack of its own; replaces an earlier one.
///
/// # Errors
/// As for the memory of the stack.
pub fn register(handler: Handler) -> Result<()> {
    let local = local::current();
    let first = local.handler.swap(handler as *mut (), Relaxed).is_null();
    if first && let Err(error) = register_stack() {
        local.handler.store(core::ptr::null_mut(), Relaxed);
        return Err(error);
    }
    Ok(())
}

/// Registers a handler of this core if there is none.
///
/// # Errors
/// As for [`register`].
#[cfg(target_os = "none")]
pub(crate) fn register_if_none(handler: Handler) -> Result<()> {
    if local::current().handler.load(Relaxed).is_null() { register(handler) } else { Ok(()) }
}

fn register_stack() -> Result<()> {
    let stack = Pages::new(PageSize::Small, STACK_BYTES / PageSize::Small.bytes())?;
    register_on(&stack)?;
    // SAFETY: this is the core that the block belongs to, and handlers do not register handlers: an upcall
    // in between finds the stack registered already.
    unsafe { *local::current().upcall_stack.get() = Some(stack) };
    Ok(())
}

fn register_on(stack: &Pages) -> Result<()> {
    let top = stack.address() + stack.len() as u64;
    // SAFETY: `trampoline` is made for the kernel's way to enter it; the stack is used for nothing else, and
    // the core's block keeps it until the core is released.
    unsafe { raw::upcall_register(trampoline as *const () as u64, top) }?;
    Ok(())
}

/// No handler runs on this core from now on.
pub(crate) fn suspend() {
    // SAFETY: upcalls wait; no memory is concerned. The call cannot fail without an entry.
    let _ = unsafe { raw::upcall_register(0, 0) };
}

/// The handler that this core had before [`suspend`], if it had one, runs again. Not from a handler.
pub(crate) fn go_on() {
    // SAFETY: this is the core that the block belongs to, outside of its handler (condition 5).
    if let Some(stack) = unsafe { &*local::current().upcall_stack.get() } {
        register_on(stack).expect("the kernel took the same before");
    }
}

/// Where the kernel enters: `rdi` points to the `UpcallFrame` at the top of the upcall stack.
///
/// # Safety
/// Only the kernel may enter here.
#[unsafe(naked)]
unsafe extern "C" fn trampoline() {
    naked_asm!(
        "mov rbx, rdi",
        "lea rsp, [rdi - {vector_bytes}]",
        "and rsp, -16",
        "fxsave64 [rsp]",
        "cld",
        "xor ebp, ebp",
        "call {dispatch}",
        "fxrstor64 [rsp]",
        "mov rdi, rbx",
        "mov eax, {upcall_return}",
        crate::raw::note_call!(),
        "syscall",
        "ud2",
        vector_bytes = const VECTOR_BYTES,
        dispatch = sym dispatch,
        noted = const Syscall::UpcallReturn as u8,
        upcall_return = const Syscall::UpcallReturn as u32,
    )
}

/// # Safety
/// `frame` is the frame of the upcall that this core is in.
unsafe extern "C" fn dispatch(frame: *mut Delivery) {
    // SAFETY: the kernel wrote the frame for this upcall, and nothing else knows of it.
    let delivery = unsafe { &mut *frame };
    // The core's block is asked for anew each time: to keep it over a call takes more instructions.
    local::current().kept.note(delivery.events());
    #[cfg(target_os = "none")]
    {
        crate::program::intercept(&mut delivery.0);
        if delivery.events().pending == 0 {
            return;
        }
    }
    let local = local::current();
    let handler = local.handler.load(Relaxed);
    // SAFETY: `register` alone stores a pointer there, that of a `Handler`, before the kernel can deliver.
    let handler: Handler = unsafe { core::mem::transmute(handler) };
    local.enter_handler();
    handler(delivery);
    local::current().leave_handler();
}
