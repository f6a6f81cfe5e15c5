//! Computations on stacks of their own, and the switch from one to another: the one place of this crate
//! with `unsafe` code (docs/safety/libos-rt.md).
//!
//! Of a computation that does not run, everything is on its stack, on top of it where it goes on, and its
//! stack pointer is here. The control bits of MXCSR and of the x87 unit would have to be kept, too; but no
//! Rust code may change them, so all computations have the same.
#![allow(unsafe_code)]

use alloc::boxed::Box;
use alloc::rc::Rc;
use core::arch::naked_asm;
use core::cell::Cell;
use core::fmt;
use core::mem;
use core::num::NonZeroUsize;
use core::ptr;
use corosensei::stack::Stack;

/// The stack pointer of a computation that runs, or that has ended: nobody can go on there.
const NOWHERE: usize = 0;

/// Words on the stack of a computation that has yet to begin: six registers and where it does so, as
/// [`switch`] finds them, and itself, as [`start`] does; then two words, of which the first stands where the
/// return address of its caller would, if there was one. So the stack pointer is a multiple of 16 where
/// `start` calls.
const FRAME_WORDS: usize = 10;

/// A computation with a stack of its own.
pub(crate) struct Coroutine {
    /// Where it goes on, unless it runs or stands aside.
    stack_pointer: Cell<usize>,
    /// Where it goes on if it stands aside.
    aside: Cell<usize>,
    /// What it does, until it begins.
    main: Cell<Option<Box<dyn FnOnce()>>>,
    has_ended: Cell<bool>,
    /// Nothing for who runs on the stack of its caller.
    own: Option<Own>,
}

struct Own {
    stack: Box<dyn Stack>,
    /// Who goes on when it has ended.
    home: Rc<Coroutine>,
}

/// Where a computation goes on, which counts as running from when this was taken.
#[derive(Debug)]
pub(crate) struct Resumption(NonZeroUsize);

impl Coroutine {
    /// Whoever runs at present, on whatever stack.
    pub fn here() -> Rc<Coroutine> {
        Rc::new(Coroutine {
            stack_pointer: Cell::new(NOWHERE),
            aside: Cell::new(NOWHERE),
            main: Cell::new(None),
            has_ended: Cell::new(false),
            own: None,
        })
    }

    /// Does `main` on `stack` as soon as it is switched to, and then goes on with `home`.
    pub fn new(stack: Box<dyn Stack>, home: Rc<Coroutine>, main: impl FnOnce() + 'static) -> Rc<Coroutine> {
        let base = stack.base().get();
        let coroutine = Rc::new(Coroutine {
            stack_pointer: Cell::new(base - FRAME_WORDS * size_of::<usize>()),
            aside: Cell::new(NOWHERE),
            main: Cell::new(Some(Box::new(main))),
            has_ended: Cell::new(false),
            own: Some(Own { stack, home }),
        });
        let itself = Rc::as_ptr(&coroutine).expose_provenance();
        let frame = [0, 0, 0, 0, 0, 0, start as *const () as usize, itself, 0, 0];
        let place = ptr::with_exposed_provenance_mut::<[usize; FRAME_WORDS]>(coroutine.stack_pointer.get());
        // SAFETY: `Stack` promises at least MIN_STACK_SIZE bytes below an aligned base, writable and nobody
        // else's (condition 1).
        unsafe { place.write(frame) };
        coroutine
    }

    /// Where it goes on; it is to go on next. Nothing if it runs, stands aside, or has ended.
    #[inline]
    pub fn resumption(&self) -> Option<Resumption> {
        NonZeroUsize::new(self.stack_pointer.replace(NOWHERE)).map(Resumption)
    }

    /// Whether it runs, or has ended.
    pub fn is_running(&self) -> bool {
        self.stack_pointer.get() == NOWHERE && !self.is_aside()
    }

    /// Whether it stands aside.
    pub fn is_aside(&self) -> bool {
        self.aside.get() != NOWHERE
    }

    /// From now on others can go on with it, if it stood aside; whether it did.
    pub fn come_back(&self) -> bool {
        let aside = self.aside.replace(NOWHERE);
        if aside != NOWHERE {
            self.stack_pointer.set(aside);
        }
        aside != NOWHERE
    }

    /// Goes on with another one; returns when somebody goes on with this one, which is the one that runs.
    ///
    /// # Panics
    /// If this one does not run.
    #[inline]
    pub fn switch_to(&self, other: Resumption) {
        assert!(self.stack_pointer.get() == NOWHERE, "only who runs can make way");
        // SAFETY: the other's stack is as it left it, and nobody else can go on there (conditions 2 and 3);
        // this one's pointer is stored where `resumption` finds it.
        unsafe { switch(self.stack_pointer.as_ptr(), other.0.get()) }
    }

    /// The same, and stands aside: nobody goes on with this one until somebody has it come back. Who switches
    /// need not ask for any other sign that it is not to.
    ///
    /// # Panics
    /// If this one does not run.
    pub fn step_aside_for(&self, other: Resumption) {
        assert!(self.is_running(), "only who runs can make way");
        // SAFETY: as in `switch_to`; this one's pointer is stored where `come_back` finds it.
        unsafe { switch(self.aside.as_ptr(), other.0.get()) }
    }

    /// The stack, if nothing is on it, for the next.
    pub fn into_stack(mut self) -> Option<Box<dyn Stack>> {
        self.take_stack()
    }

    fn take_stack(&mut self) -> Option<Box<dyn Stack>> {
        let Own { stack, .. } = self.own.take()?;
        let has_begun = self.main.get_mut().is_none();
        if has_begun && !self.has_ended.get() {
            // Others may point to what lies there, which nothing drops: it stays for good.
            mem::forget(stack);
            return None;
        }
        Some(stack)
    }
}

impl Drop for Coroutine {
    fn drop(&mut self) {
        drop(self.take_stack());
    }
}

impl fmt::Debug for Coroutine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Coroutine").field("has_ended", &self.has_ended).finish_non_exhaustive()
    }
}

/// Stores the stack pointer in `from`, and goes on at `to`. A function of its own, so that whoever switches
/// as the last thing that it does jumps here, and keeps no register that is kept here.
///
/// # Safety
/// On top of the stack `to` is the frame of one who switched away, or of one who has yet to begin, and
/// nobody else goes on there.
#[unsafe(naked)]
unsafe extern "sysv64" fn switch(from: *mut usize, to: usize) {
    // What the calling convention has a function keep (condition 4).
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov [rdi], rsp",
        "mov rsp, rsi",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

/// Where a coroutine begins, with itself on top of its stack. The chain of frames ends here.
///
/// # Safety
/// Only [`switch`] may enter here, by the frame that [`Coroutine::new`] wrote.
#[unsafe(naked)]
unsafe extern "sysv64" fn start() {
    naked_asm!("pop rdi", "xor ebp, ebp", "call {begin}", "ud2", begin = sym begin)
}

/// # Safety
/// `coroutine` is the one that runs, on its own stack, for the first time.
unsafe extern "sysv64" fn begin(coroutine: *const Coroutine) {
    // SAFETY: who switched here has it, and keeps it until it has ended (condition 2).
    let coroutine = unsafe { &*coroutine };
    let main = coroutine.main.take().expect("it begins once");
    main();
    coroutine.has_ended.set(true);
    let home = &coroutine.own.as_ref().expect("it runs on a stack of its own").home;
    let resumption = home.resumption().expect("who is at home waits");
    let mut nowhere = NOWHERE;
    // SAFETY: as in `switch_to`; what is stored here is never looked at, so nobody goes on here.
    unsafe { switch(&raw mut nowhere, resumption.0.get()) }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use corosensei::stack::DefaultStack;
    use std::cell::RefCell;

    fn stack() -> Box<dyn Stack> {
        Box::new(DefaultStack::new(16 * 1024).expect("there is memory"))
    }

    #[test]
    fn two_take_turns_and_keep_their_registers() {
        let (home, trace) = (Coroutine::here(), Rc::new(RefCell::new(Vec::new())));
        let (back, log) = (home.clone(), trace.clone());
        let itself = Rc::new(Cell::new(None::<Rc<Coroutine>>));
        let own = itself.clone();
        let coroutine = Coroutine::new(stack(), home.clone(), move || {
            let own = own.take().expect("it was put there");
            let values: [u64; 12] = std::array::from_fn(|n| std::hint::black_box(n as u64));
            for round in 0..3 {
                log.borrow_mut().push((round, values.iter().sum::<u64>()));
                own.switch_to(back.resumption().expect("it waits"));
            }
        });
        itself.set(Some(coroutine.clone()));
        for round in 0..3 {
            assert!(!coroutine.has_ended.get());
            let mine: [u64; 12] = std::array::from_fn(|n| std::hint::black_box(n as u64 * round));
            home.switch_to(coroutine.resumption().expect("it waits"));
            assert_eq!(mine.iter().sum::<u64>(), 66 * round);
        }
        home.switch_to(coroutine.resumption().expect("it waits"));
        assert!(coroutine.has_ended.get());
        assert_eq!(trace.take(), [(0, 66), (1, 66), (2, 66)]);
        let coroutine = Rc::into_inner(coroutine).expect("it dropped what it had");
        assert!(coroutine.into_stack().is_some());
    }

    #[test]
    fn who_has_ended_or_runs_is_not_gone_on_with() {
        let home = Coroutine::here();
        let coroutine = Coroutine::new(stack(), home.clone(), || ());
        assert!(home.resumption().is_none(), "it runs");
        let first = coroutine.resumption().expect("it waits");
        assert!(coroutine.resumption().is_none(), "it goes on already");
        home.switch_to(first);
        assert!(coroutine.resumption().is_none(), "it has ended");
    }

    #[test]
    fn who_stands_aside_is_not_gone_on_with_before_it_comes_back() {
        let (home, itself) = (Coroutine::here(), Rc::new(Cell::new(None::<Rc<Coroutine>>)));
        let (own, back) = (itself.clone(), home.clone());
        let coroutine = Coroutine::new(stack(), home.clone(), move || {
            let own = own.take().expect("it was put there");
            own.step_aside_for(back.resumption().expect("it waits"));
        });
        itself.set(Some(coroutine.clone()));
        assert!(!coroutine.come_back(), "it does not stand aside");
        home.switch_to(coroutine.resumption().expect("it waits"));
        assert!(coroutine.is_aside() && !coroutine.is_running());
        assert!(coroutine.resumption().is_none(), "it stands aside");
        assert!(coroutine.come_back() && !coroutine.come_back());
        home.switch_to(coroutine.resumption().expect("it came back"));
        assert!(coroutine.has_ended.get());
    }

    #[test]
    fn what_never_began_is_dropped_and_what_never_ended_is_not() {
        let (home, token) = (Coroutine::here(), Rc::new(()));
        let (fresh, begun, back) = (token.clone(), token.clone(), home.clone());
        drop(Coroutine::new(stack(), home.clone(), move || drop(fresh)));
        assert_eq!(Rc::strong_count(&token), 2);
        let itself = Rc::new(Cell::new(None::<Rc<Coroutine>>));
        let own = itself.clone();
        let coroutine = Coroutine::new(stack(), home.clone(), move || {
            let own = own.take().expect("it was put there");
            own.switch_to(back.resumption().expect("it waits"));
            drop(begun);
        });
        itself.set(Some(coroutine.clone()));
        home.switch_to(coroutine.resumption().expect("it waits"));
        drop(coroutine);
        assert_eq!(Rc::strong_count(&token), 2, "it lies on a stack that stays");
    }
}
