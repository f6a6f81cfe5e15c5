//! System calls of code that is not nom's: they come to the library, with every register as it was, and
//! nobody gets anywhere else by them.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use nom_app::alloc::boxed::Box;
use nom_app::alloc::vec;
use nom_app::alloc::vec::Vec;
use nom_app::{Protection, args, exit, println, time};
use nom_guest_tests::border::smuggled_call;
use nom_guest_tests::{Check, expect, expect_that, run};
use nom_sys::Error;
use nom_sys::abi::layout::{APPLICATION_END, USER_END};
use nom_sys::abi::syscall::Syscall;
use nom_sys::abi::upcall::Registers;
use nom_sys::program::memory::{self, LOW, PageRun};
use nom_sys::program::{ProgramContext, ProgramSpace, Trap};

nom_app::main!(main);

/// Where the program's code is, and its data.
const CODE: u64 = LOW.start + 0x10_0000;
const DATA: u64 = CODE + 0x1_0000;
const ABSENT: u64 = DATA + 0x1_0000;
/// `mov eax, 39; syscall; ud2`.
const CALL: [u8; 9] = [0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0x0f, 0x0b];
/// `syscall; jmp` back to it.
const LOOP: [u8; 4] = [0x0f, 0x05, 0xeb, 0xfc];
/// `mov [rdi], al; syscall`.
const STORE: [u8; 4] = [0x88, 0x07, 0x0f, 0x05];
/// `mov rax, fs:[0]; syscall`.
const LOAD_THREAD: [u8; 11] = [0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0, 0x0f, 0x05];
/// Direction, alignment check, carry, and what is always set.
const FLAGS: u64 = 1 << 10 | 1 << 18 | 1 | 0x202;

fn main() -> u8 {
    match args().next().unwrap_or_default() {
        "unregistered" => run(&[
            ("who-may-not-make-code-reflects-nothing", refused),
            ("who-may-not-make-code-has-one-space", refused_spaces),
        ]),
        "astray" => astray(),
        _ => run(&[
            ("bad-places-are-refused", bad_places),
            ("registers-are-as-they-were", registers),
            ("vector-registers-are-as-they-were", vectors),
            ("faults-come-back", faults),
            ("threads-have-their-own", threads),
            ("own-calls-go-to-the-kernel", own_calls),
            ("spaces-are-apart-but-for-the-library", spaces),
            ("spaces-of-nobodys-are-refused", bad_spaces),
            ("what-it-costs", cost),
            ("what-a-switch-costs", cost_of_switch),
        ]),
    }
}

/// Puts code where a program is.
fn put(code: &[u8]) -> Result<PageRun, nom_guest_tests::Failure> {
    let page = PageRun::add(CODE, 1)?;
    memory::write(CODE, code);
    page.protect(Protection::ReadExecute)?;
    Ok(page)
}

fn bad_places() -> Check {
    let call = |entry, word| smuggled_call2(entry, word);
    expect("the entry of the kernel", call(1 << 63, DATA), Err(Error::OutsideUserSpace))?;
    expect("an entry that is no address", call(1 << 47, DATA), Err(Error::OutsideUserSpace))?;
    expect("the end of user space", call(USER_END, DATA), Err(Error::OutsideUserSpace))?;
    expect("a word of nobody's", call(CODE, DATA), Err(Error::BadPointer))?;
    expect("a word of the kernel's", call(CODE, 1 << 63), Err(Error::BadPointer))?;
    let board = core::ptr::from_ref(nom_app::board()) as u64;
    expect("a word of the board", call(CODE, board), Err(Error::BadPointer))?;
    let page = PageRun::add(DATA, 1)?;
    expect("a word across two", call(CODE, DATA + 4), Err(Error::Misaligned))?;
    page.protect(Protection::Read)?;
    expect("a word that is not to be written", call(CODE, DATA), Err(Error::BadPointer))?;
    page.remove()?;
    Ok(())
}

fn smuggled_call2(entry: u64, word: u64) -> Result<u64, Error> {
    nom_guest_tests::border::call_with_two(Syscall::SyscallReflect as u64, entry, word)
}

fn refused() -> Check {
    expect("what is answered", smuggled_call2(CODE, DATA), Err(Error::NotPermitted))
}

fn registers() -> Check {
    nom_sys::program::start()?;
    let page = put(&CALL)?;
    let data = PageRun::add(DATA, 1)?;
    memory::write(DATA, &[0x5a; 4096]);
    let number = |n: u64| n * 0x0101_0101_0101_0101;
    let begin = Registers {
        rbx: number(1),
        rcx: number(2),
        rdx: number(3),
        rsi: number(4),
        rdi: number(5),
        rbp: number(6),
        r8: number(7),
        r9: number(8),
        r10: number(9),
        r12: number(10),
        r13: number(11),
        r14: number(12),
        r15: number(13),
        rax: 0,
        r11: 0,
        // Small, at an odd address: what is below it is the program's, too.
        rsp: DATA + 129,
        rip: CODE,
        rflags: FLAGS,
    };
    let mut context = ProgramContext::new(begin);
    for round in 0..3 {
        let trap = context.run();
        expect("why it stopped", trap, Trap::Syscall)?;
        let now = *context.registers();
        let behind = CODE + 7;
        let expected = Registers { rax: 39, rcx: behind, r11: FLAGS, rip: behind, ..begin };
        expect("its registers", now, expected)?;
        expect("the exception behind", context.run(), Trap::Exception { vector: 6, code: 0 })?;
        expect("its registers there", *context.registers(), expected)?;
        *context.registers_mut() = begin;
        println!("round {round}");
    }
    let mut stack = [0; 4096];
    memory::read(DATA, &mut stack);
    expect_that("nothing wrote to its stack", stack.iter().all(|byte| *byte == 0x5a))?;
    page.remove()?;
    data.remove()?;
    Ok(())
}

fn vectors() -> Check {
    let page = put(&LOOP)?;
    let begin = Registers { rip: CODE, rsp: DATA, ..Registers::default() };
    let mut contexts = [ProgramContext::new(begin), ProgramContext::new(begin)];
    for (number, context) in contexts.iter_mut().enumerate() {
        let mut area = context.vector_area();
        // XMM registers, and whatever else the area has behind its header, which says that all is there.
        area[160..416].fill(0x10 + number as u8);
        if area.len() > 576 {
            area[512..520].fill(0xff);
            area[576..832].fill(0x20 + number as u8);
        }
        context.set_vector_area(&area);
    }
    let areas: [_; 2] = [contexts[0].vector_area(), contexts[1].vector_area()];
    for round in 0..6 {
        let number = round % 2;
        expect("why it stopped", contexts[number].run(), Trap::Syscall)?;
        // The library uses some itself.
        core::hint::black_box((0..64).map(|n| n as f64 * 1.5).sum::<f64>());
        let area = contexts[number].vector_area();
        expect_that("SSE registers", area[160..416] == areas[number][160..416])?;
        let rest = area.len().min(832);
        expect_that("further registers", area.len() <= 576 || area[576..rest] == areas[number][576..rest])?;
    }
    page.remove()?;
    Ok(())
}

fn faults() -> Check {
    let page = put(&STORE)?;
    let mut context =
        ProgramContext::new(Registers { rip: CODE, rdi: ABSENT, rax: 7, ..Registers::default() });
    // A write of ring 3 to what is not there.
    expect("why it stopped", context.run(), Trap::PageFault { address: ABSENT, code: 0b110 })?;
    let absent = PageRun::add(ABSENT, 1)?;
    expect("why it stopped then", context.run(), Trap::Syscall)?;
    let mut byte = [0];
    memory::read(ABSENT, &mut byte);
    expect("what it wrote", byte[0], 7)?;
    absent.remove()?;
    page.remove()?;
    context.registers_mut().rip = CODE;
    // An instruction fetch of what is not there any more.
    expect("why it stopped at last", context.run(), Trap::PageFault { address: CODE, code: 0b10100 })
}

fn threads() -> Check {
    let (page, data) = (put(&LOAD_THREAD)?, PageRun::add(DATA, 1)?);
    let begin = Registers { rip: CODE, ..Registers::default() };
    let mut contexts = [ProgramContext::new(begin), ProgramContext::new(begin)];
    for (number, context) in contexts.iter_mut().enumerate() {
        let at = DATA + 64 * number as u64;
        memory::write(at, &(100 + number as u64).to_le_bytes());
        context.set_thread_pointer(at);
    }
    for round in 0..6 {
        let context = &mut contexts[round % 2];
        expect("why it stopped", context.run(), Trap::Syscall)?;
        expect("what its FS leads to", context.registers().rax, 100 + (round % 2) as u64)?;
        context.registers_mut().rip = CODE;
    }
    let copy: Box<ProgramContext> = contexts[1].duplicate();
    expect("the base of a copy", copy.thread_pointer(), DATA + 64)?;
    page.remove()?;
    data.remove()?;
    Ok(())
}

/// The library's own calls are the kernel's, before and after a program ran.
fn own_calls() -> Check {
    expect("a call of the library's", smuggled_call(u64::MAX, 0), Err(Error::UnknownSyscall))
}

fn cost() -> Check {
    const ROUNDS: u64 = 1000;
    let page = put(&LOOP)?;
    let mut context = ProgramContext::new(Registers { rip: CODE, ..Registers::default() });
    expect("why it stopped", context.run(), Trap::Syscall)?;
    let begin = time::cycles();
    for _ in 0..ROUNDS {
        context.run();
    }
    println!("figure name=program_call cycles={}", (time::cycles() - begin) / ROUNDS);
    page.remove()?;
    Ok(())
}

fn refused_spaces() -> Check {
    expect("a further space", smuggled_call(Syscall::SpaceCreate as u64, 0), Err(Error::NotPermitted))?;
    expect("the first", smuggled_call(Syscall::SpaceSwitch as u64, 0), Err(Error::InvalidArgument))
}

/// Two programs at the same addresses, each in a space of its own; what the library has meanwhile, all have.
fn spaces() -> Check {
    let places = [ProgramSpace::new()?, ProgramSpace::new()?];
    let mut frames = [0; 2];
    let (mut code, mut kept) = (Vec::new(), Vec::new());
    let begin = Registers { rip: CODE, rdi: DATA, ..Registers::default() };
    for (number, place) in places.iter().enumerate() {
        place.enter();
        code.push(put(&STORE)?);
        let mut context = ProgramContext::new(Registers { rax: 10 + number as u64, ..begin });
        let absent = Trap::PageFault { address: DATA, code: 0b110 };
        expect("what the other has", context.run(), absent)?;
        frames[number] = PageRun::add(DATA, 1)?.frame;
        expect("why it stopped", context.run(), Trap::Syscall)?;
        // So much that the library maps more, in the space that the core happens to be in.
        kept.push(vec![number as u8 + 1; 4 << 20]);
    }
    for (number, place) in places.iter().enumerate().rev() {
        place.enter();
        let mut byte = [0];
        memory::read(DATA, &mut byte);
        expect("what its program wrote", byte[0], 10 + number as u8)?;
        let is_whole = (1..3).zip(&kept).all(|(byte, all)| all.iter().all(|it| *it == byte));
        expect_that("all that the library has", is_whole)?;
    }
    // One frame in both; and nobody gives it back who is not the last.
    places[1].enter();
    let guest = PageRun { address: ABSENT, frame: frames[0], count: 1 };
    guest.map(Protection::Read)?;
    let mut byte = [0];
    memory::read(ABSENT, &mut byte);
    expect("what the other wrote", byte[0], 10)?;
    let release = smuggled_release(frames[0]);
    expect("to give back what is mapped elsewhere", release, Err(Error::StillMapped))?;
    guest.unmap()?;
    for (number, place) in places.iter().enumerate() {
        place.enter();
        PageRun { address: DATA, frame: frames[number], count: 1 }.remove()?;
        code[number].remove()?;
    }
    drop(kept);
    drop(places);
    let last = ProgramSpace::new()?;
    last.enter();
    let mut context = ProgramContext::new(begin);
    expect("what is in a new one", context.run(), Trap::PageFault { address: CODE, code: 0b10100 })
}

fn smuggled_release(frame: u64) -> Result<u64, Error> {
    nom_guest_tests::border::call_with_three(Syscall::MemoryRelease as u64, [frame, 0, 1])
}

fn bad_spaces() -> Check {
    let call = |call: Syscall, space| smuggled_call(call as u64, space);
    for number in [500, 511, 512, 1 << 32, u64::MAX] {
        expect("a space that is not", call(Syscall::SpaceSwitch, number), Err(Error::InvalidArgument))?;
        expect("its end", call(Syscall::SpaceEnd, number), Err(Error::InvalidArgument))?;
    }
    expect("the end of the first", call(Syscall::SpaceEnd, 0), Err(Error::InvalidArgument))?;
    let space = call(Syscall::SpaceCreate, 0)?;
    call(Syscall::SpaceSwitch, space)?;
    expect("the end of the own", call(Syscall::SpaceEnd, space), Err(Error::WrongState))?;
    call(Syscall::SpaceSwitch, 0)?;
    expect("its end", call(Syscall::SpaceEnd, space), Ok(0))?;
    expect("its end again", call(Syscall::SpaceEnd, space), Err(Error::InvalidArgument))
}

fn cost_of_switch() -> Check {
    const ROUNDS: u64 = 1000;
    let places = [ProgramSpace::new()?, ProgramSpace::new()?];
    let begin = time::cycles();
    for _ in 0..ROUNDS {
        places.iter().for_each(ProgramSpace::enter);
    }
    println!("figure name=space_switch cycles={}", (time::cycles() - begin) / (2 * ROUNDS));
    Ok(())
}

/// Goes on at places where there is nothing, and at the end of what programs may have: this application alone
/// ends.
fn astray() -> u8 {
    let _ = nom_sys::program::start();
    let last = APPLICATION_END - 4096;
    let Ok(page) = PageRun::add(last, 1) else { return 1 };
    // `syscall` as the last thing below the windows: the address behind it is in a window, so it is the
    // kernel's, and goes on where there is no code.
    memory::write(last + 4094, &[0x0f, 0x05]);
    if page.protect(Protection::ReadExecute).is_err() {
        return 2;
    }
    let mut context =
        ProgramContext::new(Registers { rip: last + 4094, rax: u64::MAX, ..Registers::default() });
    let trap = context.run();
    println!("astray: {trap:?}");
    exit(3)
}
