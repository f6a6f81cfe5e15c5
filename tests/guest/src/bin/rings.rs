//! Every way that the architecture has into ring 0, tried from ring 3: each ends where it began.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use nom_app::alloc::format;
use nom_app::alloc::vec::Vec;
use nom_app::{args, println};
use nom_guest_tests::workshop::{Outcome, Workshop, own_selector};
use nom_guest_tests::{Check, expect, expect_that, run};

nom_app::main!(main);

const DEBUG: u64 = 1;
const UNDEFINED: u64 = 6;
const PROTECTION: u64 = 13;
const PAGE_FAULT: u64 = 14;

const DIRECTION: u64 = 1 << 10;
const IO_PRIVILEGE: u64 = 3 << 12;
const NESTED_TASK: u64 = 1 << 14;
const VIRTUAL_8086: u64 = 1 << 17;
const ALIGNMENT_CHECK: u64 = 1 << 18;

fn main() -> u8 {
    let rounds: u32 = args().next().and_then(|word| word.parse().ok()).unwrap_or(1);
    (0..rounds).map(|_| round()).max().unwrap_or(0)
}

fn round() -> u8 {
    run(&[
        ("segments", segments),
        ("far-calls", far_calls),
        ("system-calls", system_calls),
        ("software-interrupts", software_interrupts),
        ("privileged-instructions", privileged),
        ("instructions-of-units-that-are-off", units_that_are_off),
        ("states-that-are-nobodys", foreign_states),
        ("returns-to-more-privilege", returns),
        ("flags", flags),
        ("stale-stacks", stale_stacks),
    ])
}

fn attempt(code: &[u8]) -> Result<Outcome, nom_guest_tests::Failure> {
    Ok(Workshop::open()?.attempt(own_selector(), code)?)
}

/// No selector but the program's own leads to code: none to 32-bit code, whose SYSCALL goes elsewhere.
fn segments() -> Check {
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    let workshop = Workshop::open()?;
    for selector in (0..256).map(|index| index << 2) {
        // As ring 0 and as ring 3, in the global and the local table.
        for selector in [selector, selector | 3] {
            let outcome = workshop.attempt(selector, &SYSCALL)?;
            let is_own = selector | 3 == own_selector();
            let expected = if is_own { UNDEFINED } else { PROTECTION };
            expect(&format!("the exception of segment {selector:#x}"), outcome.vector, expected)?;
        }
    }
    Ok(())
}

/// Far calls and jumps, through whatever gates there might be.
fn far_calls() -> Check {
    for selector in (0..256_u16).map(|index| index << 2 | 3).filter(|selector| *selector != own_selector()) {
        for operation in [0x18, 0x28] {
            // `call [rip + 2]` or `jmp [rip + 2]`, `ud2`, the far pointer.
            let mut code = Vec::from([0xff, operation | 5, 2, 0, 0, 0, 0x0f, 0x0b, 0, 0, 0, 0x10]);
            code.extend(selector.to_le_bytes());
            let outcome = attempt(&code)?;
            expect(
                &format!("the exception of {selector:#x}"),
                (outcome.vector, outcome.offset),
                (PROTECTION, 0),
            )?;
        }
    }
    Ok(())
}

fn system_calls() -> Check {
    let unknown_call = [0xb8, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x05];
    expect("where SYSCALL comes back", attempt(&unknown_call)?.offset, 7)?;
    let outcome = attempt(&[0x0f, 0x34])?;
    println!("sysenter vector={}", outcome.vector);
    expect("where SYSENTER stops", outcome.offset, 0)?;
    expect_that("SYSENTER is refused", [UNDEFINED, PROTECTION].contains(&outcome.vector))?;
    // SYSEXIT and both SYSRETs.
    for code in [&[0x0f, 0x35][..], &[0x0f, 0x07], &[0x48, 0x0f, 0x07]] {
        let vector = attempt(code)?.vector;
        expect_that("a return from ring 0 is refused", [UNDEFINED, PROTECTION].contains(&vector))?;
    }
    Ok(())
}

/// `int n` reaches no gate; INT3 and INTO neither; INT1 is this program's own debug exception.
fn software_interrupts() -> Check {
    for vector in 0..=255_u8 {
        let outcome = attempt(&[0xcd, vector])?;
        expect(&format!("int {vector}"), (outcome.vector, outcome.offset), (PROTECTION, 0))?;
        expect("that the error is about the interrupt table", outcome.code & 2, 2)?;
    }
    expect("int3", attempt(&[0xcc])?.vector, PROTECTION)?;
    expect("into", attempt(&[0xce])?.vector, UNDEFINED)?;
    let outcome = attempt(&[0xf1])?;
    let ends = [(DEBUG, 1), (UNDEFINED, 0)]; // QEMU's translator does not know it.
    expect_that("int1 is a debug exception", ends.contains(&(outcome.vector, outcome.offset)))
}

fn privileged() -> Check {
    let instructions: [(&str, &[u8]); 22] = [
        ("hlt", &[0xf4]),
        ("cli", &[0xfa]),
        ("sti", &[0xfb]),
        ("in", &[0xec]),
        ("out", &[0xee]),
        ("clts", &[0x0f, 0x06]),
        ("invd", &[0x0f, 0x08]),
        ("wbinvd", &[0x0f, 0x09]),
        ("rdmsr", &[0x0f, 0x32]),
        ("wrmsr", &[0x0f, 0x30]),
        ("mov from cr0", &[0x0f, 0x20, 0xc0]),
        ("mov to cr4", &[0x0f, 0x22, 0xe0]),
        ("mov from dr7", &[0x0f, 0x21, 0xf8]),
        ("mov to dr7", &[0x0f, 0x23, 0xf8]),
        ("swapgs", &[0x0f, 0x01, 0xf8]),
        ("xsetbv", &[0x0f, 0x01, 0xd1]),
        ("lldt", &[0x0f, 0x00, 0xd0]),
        ("ltr", &[0x0f, 0x00, 0xd8]),
        ("lgdt", &[0x0f, 0x01, 0x14, 0x24]),
        ("lidt", &[0x0f, 0x01, 0x1c, 0x24]),
        ("lmsw", &[0x0f, 0x01, 0xf0]),
        ("invlpg", &[0x0f, 0x01, 0x3c, 0x24]),
    ];
    for (name, code) in instructions {
        let outcome = attempt(code)?;
        expect(name, (outcome.vector, outcome.offset), (PROTECTION, 0))?;
    }
    // UMIP: where the kernel's tables are is nobody's business.
    let readers: [(&str, &[u8]); 5] = [
        ("sgdt", &[0x0f, 0x01, 0x04, 0x24]),
        ("sidt", &[0x0f, 0x01, 0x0c, 0x24]),
        ("sldt", &[0x0f, 0x00, 0xc0]),
        ("str", &[0x0f, 0x00, 0xc8]),
        ("smsw", &[0x0f, 0x01, 0xe0]),
    ];
    for (name, code) in readers {
        expect(name, attempt(code)?.vector, PROTECTION)?;
    }
    // CLAC and STAC have no use in ring 3.
    for code in [&[0x0f, 0x01, 0xca], &[0x0f, 0x01, 0xcb]] {
        expect("clac or stac", attempt(code)?.vector, UNDEFINED)?;
    }
    Ok(())
}

/// What belongs to units that the kernel leaves off (protection keys, shadow stacks, user interrupts, virtual
/// machines, enclaves), or to ring 0.
fn units_that_are_off() -> Check {
    let instructions: [(&str, &[u8]); 30] = [
        ("rdpkru", &[0x31, 0xc9, 0x0f, 0x01, 0xee]),
        ("wrpkru", &[0x31, 0xc0, 0x31, 0xc9, 0x31, 0xd2, 0x0f, 0x01, 0xef]),
        ("xsaves", &[0x48, 0x0f, 0xc7, 0x2c, 0x24]),
        ("xrstors", &[0x48, 0x0f, 0xc7, 0x1c, 0x24]),
        ("rdpmc", &[0x0f, 0x33]),
        ("mov from cr8", &[0x44, 0x0f, 0x20, 0xc0]),
        ("mov to cr3", &[0x0f, 0x22, 0xd8]),
        ("mov from dr0", &[0x0f, 0x21, 0xc0]),
        ("mov to dr6", &[0x0f, 0x23, 0xf0]),
        ("invpcid", &[0x66, 0x0f, 0x38, 0x82, 0x04, 0x24]),
        ("wbnoinvd", &[0xf3, 0x0f, 0x09]),
        ("monitor", &[0x0f, 0x01, 0xc8]),
        ("mwait", &[0x0f, 0x01, 0xc9]),
        ("rsm", &[0x0f, 0xaa]),
        ("getsec", &[0x0f, 0x37]),
        ("encls", &[0x0f, 0x01, 0xcf]),
        ("pconfig", &[0x0f, 0x01, 0xc5]),
        ("vmcall", &[0x0f, 0x01, 0xc1]),
        ("vmlaunch", &[0x0f, 0x01, 0xc2]),
        ("vmxon", &[0xf3, 0x0f, 0xc7, 0x34, 0x24]),
        ("vmrun", &[0x0f, 0x01, 0xd8]),
        ("vmmcall", &[0x0f, 0x01, 0xd9]),
        ("vmload", &[0x0f, 0x01, 0xda]),
        ("stgi", &[0x0f, 0x01, 0xdc]),
        ("clgi", &[0x0f, 0x01, 0xdd]),
        ("skinit", &[0x0f, 0x01, 0xde]),
        ("setssbsy", &[0xf3, 0x0f, 0x01, 0xe8]),
        ("wrss", &[0x48, 0x0f, 0x38, 0xf6, 0x04, 0x24]),
        ("uiret", &[0xf3, 0x0f, 0x01, 0xec]),
        ("senduipi", &[0xf3, 0x0f, 0xc7, 0xf0]),
    ];
    for (name, code) in instructions {
        // A hypervisor may refuse its calls by an answer: then it is the undefined opcode behind.
        let outcome = attempt(code)?;
        let is_refused = [UNDEFINED, PROTECTION].contains(&outcome.vector);
        expect_that(&format!("{name} is refused: {outcome:x?}"), is_refused)?;
        let reads = ["rdpkru", "xsaves", "rdpmc", "mov from cr8", "mov from dr0"];
        let is_at_it = outcome.offset < code.len() as u64;
        expect_that(&format!("{name} does not pass"), is_at_it || !reads.contains(&name))?;
    }
    Ok(())
}

/// XRSTOR loads what the kernel turned on: no keys, nothing of ring 0's, no form but the standard one.
fn foreign_states() -> Check {
    const AREA: usize = 0x100;
    const HEADER: usize = AREA + 512;
    // lea rdi, [rip + area]; mov eax, -1; mov edx, -1; xrstor [rdi]; ud2
    let code = [
        [0x48, 0x8d, 0x3d, 0xf9, 0, 0, 0].as_slice(),
        &[0xb8, 0xff, 0xff, 0xff, 0xff, 0xba, 0xff, 0xff, 0xff, 0xff],
        &[0x0f, 0xae, 0x2f, 0x0f, 0x0b],
    ]
    .concat();
    let xrstor = 17;
    let states = [
        ("none", 0, 0, 0, (UNDEFINED, xrstor + 3)),
        ("the tracer's", 1 << 8, 0, 0, (PROTECTION, xrstor)),
        ("protection keys", 1 << 9, 0, 0, (PROTECTION, xrstor)),
        ("shadow stacks of ring 3", 1 << 11, 0, 0, (PROTECTION, xrstor)),
        ("shadow stacks of ring 0", 1 << 12, 0, 0, (PROTECTION, xrstor)),
        ("tiles", 1 << 18, 0, 0, (PROTECTION, xrstor)),
        ("what is not defined", 1 << 62, 0, 0, (PROTECTION, xrstor)),
        ("a compact form", 0, 1_u64 << 63, 0, (PROTECTION, xrstor)),
        ("a header with more in it", 0, 0, 1, (PROTECTION, xrstor)),
    ];
    for (name, components, form, more, expected) in states {
        let mut page = code.clone();
        page.resize(HEADER + 64, 0);
        page[AREA..AREA + 2].copy_from_slice(&0x37f_u16.to_le_bytes());
        page[AREA + 24..AREA + 28].copy_from_slice(&0x1f80_u32.to_le_bytes());
        for (place, word) in [components, form, more].into_iter().enumerate() {
            page[HEADER + 8 * place..HEADER + 8 * place + 8].copy_from_slice(&word.to_le_bytes());
        }
        let outcome = attempt(&page)?;
        expect(&format!("what comes of {name}"), (outcome.vector, outcome.offset), expected)?;
    }
    Ok(())
}

/// Far returns, segments of ring 0, and a return from an interrupt that was none, with flags of ring 0.
/// QEMU's translator reads the stack of both returns as ring 0 would, which SMAP makes a page fault.
fn returns() -> Check {
    for selector in (0..8_u8).map(|index| index << 3) {
        for ring in (0..4).filter(|ring| u16::from(selector | ring) != own_selector()) {
            // push selector; push 0; a far return of 64 bits.
            let outcome = attempt(&[0x6a, selector | ring, 0x6a, 0, 0x48, 0xcb])?;
            let is_refused = [PROTECTION, PAGE_FAULT].contains(&outcome.vector) && outcome.offset == 4;
            expect_that(&format!("a return to {selector:#x} is refused: {outcome:x?}"), is_refused)?;
        }
    }
    // mov eax, the kernel's data segment; mov ss, eax.
    expect("a stack of ring 0", attempt(&[0xb8, 0x10, 0, 0, 0, 0x8e, 0xd0])?.vector, PROTECTION)?;
    for flags in [IO_PRIVILEGE, 1 << 19, 1 << 20, IO_PRIVILEGE | ALIGNMENT_CHECK] {
        // mov rax, rsp; push ss, rsp, flags, cs; lea rax, what follows; push it; iretq.
        let mut code = Vec::from([0x48, 0x89, 0xe0, 0x8c, 0xd1, 0x51, 0x50, 0x68]);
        code.extend((flags as u32 | 2).to_le_bytes());
        code.extend([0x8c, 0xc9, 0x51, 0x48, 0x8d, 0x05, 3, 0, 0, 0, 0x50, 0x48, 0xcf]);
        let outcome = attempt(&code)?;
        let (behind, at_it) = (code.len() as u64, code.len() as u64 - 2);
        let ends = [(UNDEFINED, behind), (PAGE_FAULT, at_it)];
        expect_that("it goes on in ring 3", ends.contains(&(outcome.vector, outcome.offset)))?;
        expect("flags of ring 0", outcome.flags & (IO_PRIVILEGE | VIRTUAL_8086 | 3 << 19), 0)?;
        expect("whether interrupts are on", outcome.flags & 1 << 9, 1 << 9)?;
    }
    Ok(())
}

/// Flags that an application sets stay its own, and those that it may not have it never gets.
fn flags() -> Check {
    let workshop = Workshop::open()?;
    let forbidden = IO_PRIVILEGE | VIRTUAL_8086;
    for flags in
        [IO_PRIVILEGE, NESTED_TASK, ALIGNMENT_CHECK, DIRECTION, DIRECTION | ALIGNMENT_CHECK, VIRTUAL_8086]
    {
        for code in [&[0x90][..], &[0xb8, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x05], &[0xcd, 0x20]] {
            let outcome = workshop.attempt_with_flags(own_selector(), code, flags)?;
            expect("flags of ring 0", outcome.flags & forbidden, 0)?;
        }
        // With I/O privilege this would succeed.
        let outcome = workshop.attempt_with_flags(own_selector(), &[0xfa], flags)?;
        expect("the exception of cli", outcome.vector, PROTECTION)?;
    }
    Ok(())
}

/// Loading SS holds debug exceptions back for one instruction, which may be the one that enters the kernel:
/// whatever comes late is not taken on the application's stack.
fn stale_stacks() -> Check {
    let workshop = Workshop::open()?;
    // pushfq; or [rsp], the trap flag; popfq.
    let single_step = [0x9c, 0x81, 0x0c, 0x24, 0x00, 0x01, 0x00, 0x00, 0x9d];
    for entry in [&[0x0f, 0x05][..], &[0xcd, 0x80], &[0xcc], &[0xf1], &[0x0f, 0x0b], &[0x0f, 0x34]] {
        for before in [&[][..], &single_step] {
            // mov eax, ss; whether stepping; mov ss, eax; then the entry.
            let code = [&[0x8c, 0xd0], before, &[0x8e, 0xd0], entry].concat();
            let outcome = workshop.attempt(own_selector(), &code)?;
            expect_that("the exception is one of the program's", outcome.offset <= code.len() as u64 + 2)?;
        }
    }
    // A base of GS as the kernel's own would be: the kernel looks at where it came from, not at GS.
    for base in [0xffff_8000_0000_0000_u64, 0xffff_ffff_8020_0000, 0] {
        let mut code = Vec::from([0x48, 0xb8]); // mov rax, base; wrgsbase rax
        code.extend(base.to_le_bytes());
        code.extend([0xf3, 0x48, 0x0f, 0xae, 0xd8]);
        let before = code.len() as u64;
        for entry in [&[0xcc][..], &[0xf1], &[0x0f, 0x0b]] {
            let code = [&code[..], entry].concat();
            let outcome = workshop.attempt(own_selector(), &code)?;
            expect_that("the exception is behind the base", (before..=before + 1).contains(&outcome.offset))?;
        }
    }
    Ok(())
}
