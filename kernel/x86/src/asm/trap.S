// Every way into the kernel from an application, and the one way back: docs/safety/kernel-x86.md goes
// through all that the architecture has.
//
// `entry.rs` includes this, behind the macros SAVE_GENERAL and LOAD_GENERAL.
// A core's registers at the border live in its `CoreArea` (found by GS while in the kernel): entry stores the
// application's general registers there, Rust works on them, and `resume` loads whatever they then hold.
// The kernel keeps no vector state and is never preempted, so one stack a core is enough.
    .text
    .macro SAVE_AFTER_SYSCALL
    movq %rsp, %gs:{rsp}
    movq %gs:{stack_top}, %rsp
    movq %rax, %gs:{rax}
    movq %rcx, %gs:{rcx}
    movq %rcx, %gs:{rip}        /* SYSCALL left the return address in RCX and RFLAGS in R11 */
    movq %r11, %gs:{r11}
    movq %r11, %gs:{rflags}
    SAVE_GENERAL
    xorl %ebp, %ebp
    .endm

    .balign 16
    .global syscall_entry
    .type syscall_entry, @function
syscall_entry:
    swapgs
    cmpq %gs:{reflected_below}, %rcx
    jb reflect
    SAVE_AFTER_SYSCALL
    call {user_syscall}
    // fall through

    // Back to the application, with what the core's area holds. SYSRET is safe because Rust never lets a
    // non-canonical RIP into the area; it is used only when RCX and R11 need not be kept.
    .global resume
resume:
    LOAD_GENERAL
    testl %eax, %eax            /* what Rust returned: 1 if RCX and R11 may be lost */
    jz 1f
    movq %gs:{rip}, %rcx
    movq %gs:{rflags}, %r11
    andl ${flags_allowed}, %r11d    /* whatever may have gone wrong: never IOPL, NT, VM */
    movq %gs:{rax}, %rax
    movq %gs:{rsp}, %rsp
    swapgs
    sysretq
1:  andq ${flags_allowed}, %gs:{rflags}
    pushq ${user_data}
    pushq %gs:{rsp}
    pushq %gs:{rflags}
    pushq ${user_code}
    pushq %gs:{rip}
    movq %gs:{rax}, %rax
    movq %gs:{rcx}, %rcx
    movq %gs:{r11}, %r11
    swapgs
    iretq
    .size syscall_entry, . - syscall_entry

    // A `syscall` of a program that was made for another kernel: on at what its application registered, which
    // finds in its word where the call was. Nothing is saved, no lock taken; every register is as it was but
    // RCX, which SYSRET goes by. The stack pointer is the one that can be borrowed: whatever comes here comes
    // on a stack of its own (NMI, #DB, #MC, #DF), for interrupts are off, and the word's memory is mapped in
    // the direct map and pinned (`kernel/pure/src/reflection.rs`).
    .balign 16
    .type reflect, @function
reflect:
    movq %rsp, %gs:{rsp}
    movq %gs:{reflected_word}, %rsp
    movq %rcx, (%rsp)
    movq %gs:{reflected_entry}, %rcx
    movq %gs:{rsp}, %rsp
    andl ${flags_allowed}, %r11d
    swapgs
    sysretq
    .size reflect, . - reflect

    // SYSCALL of 32-bit code. No descriptor leads there; if a processor comes all the same, the application
    // has raised an undefined opcode.
    .balign 16
    .global compatibility_entry
    .type compatibility_entry, @function
compatibility_entry:
    swapgs
    SAVE_AFTER_SYSCALL
    movl $6, %edi
    xorl %esi, %esi
    call {user_trap}
    jmp resume
    .size compatibility_entry, . - compatibility_entry

    // One stub a vector, 16 bytes apart: `push error code or 0; push vector; jmp trap`. A device can send any
    // vector as an interrupt, which has no error code. The processor aligns the stack to 16 bytes and pushes
    // five words, or six with an error code: so bit 3 of the stack pointer tells.
    .balign 16
    .global trap_stubs
trap_stubs:
    .set vector, 0
    .rept 256
    .balign 16
    .if vector <= 30 && ((0x60227d00 >> vector) & 1)         /* bits: exceptions that push an error code */
    testb $8, %spl
    jz 1f
    .endif
    pushq $0
1:
    pushq $vector
    .if vector == 2 || vector == 8 || vector == 18
    jmp trap_from_kernel
    .else
    jmp trap
    .endif
    .set vector, vector + 1
    .endr

    .type trap, @function
trap:
    pushq $2                    /* an interrupt gate leaves AC and DF as the application had them */
    popfq
    testb $3, 24(%rsp)          /* CS of the interrupted code: vector, error, RIP, CS */
    jz trap_from_kernel
    swapgs
    movq %rax, %gs:{rax}
    movq %rcx, %gs:{rcx}
    movq %r11, %gs:{r11}
    SAVE_GENERAL
    popq %rdi                   /* vector */
    popq %rsi                   /* error code */
    popq %gs:{rip}
    popq %rax
    popq %gs:{rflags}
    popq %gs:{rsp}
    movq %gs:{stack_top}, %rsp
    xorl %ebp, %ebp
    call {user_trap}
    jmp resume

    // In the kernel: an interrupt that ended `hlt` or a late debug exception (they return), or a bug of ours
    // (it does not). And wherever it hit, also between an entry's first instruction and `swapgs`: NMI, double
    // fault, machine check, on stacks of their own. So GS is not used here.
trap_from_kernel:
    pushq $2
    popfq
    .irp register, rax, rcx, rdx, rsi, rdi, r8, r9, r10, r11, rbp
    pushq %\register
    .endr
    movq 80(%rsp), %rdi         /* vector */
    cmpl $1, %edi
    jne 1f
    btrq $8, 112(%rsp)          /* a debug exception: no single steps in the kernel */
1:
    movq 88(%rsp), %rsi         /* error code */
    movq 96(%rsp), %rdx         /* RIP */
    movq %rbp, %rcx
    movq %rsp, %rbp
    andq $-16, %rsp
    call {kernel_trap}
    movq %rbp, %rsp
    .irp register, rbp, r11, r10, r9, r8, rdi, rsi, rdx, rcx, rax
    popq %\register
    .endr
    addq $16, %rsp
    iretq
    .size trap, . - trap

    // enter_application(sysret: bool) -> !: first entry of a core into `resume`.
    .global enter_application
enter_application:
    movl %edi, %eax
    jmp resume
