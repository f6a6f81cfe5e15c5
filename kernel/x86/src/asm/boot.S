// From the PVH entry to the first line of Rust.
//
// PVH (Xen "x86/HVM direct boot ABI"): 32-bit protected mode, flat segments, paging off, interrupts off,
// EBX = physical address of the start info. We build just enough paging to run in the top 2 GiB: the first
// GiB of physical memory identity-mapped, at DIRECT_MAP and where the image was moved to, with 2 MiB pages,
// writable.
// `mapping.rs` replaces all of it; the processors started later pass through the identity half of it once.
//
// The loader enters here, in the state in which the machine's monitor entered it; EDI:ESI is the time-stamp
// counter at its first instruction, from which boot time counts.
    .section .note.pvh, "a", @note
    .balign 4
    .long 4, 4, 18              /* name size, descriptor size, XEN_ELFNOTE_PHYS32_ENTRY */
    .asciz "Xen"
    .long pvh_entry - {kernel_image}

    .section .text.boot, "ax", @progbits
    .code32
    .global pvh_entry
    .type pvh_entry, @function
pvh_entry:
    movl %esi, (boot_tsc - {kernel_image})
    movl %edi, (boot_tsc - {kernel_image} + 4)
    cld
    movl $(boot_stack_top - {kernel_image}), %esp
    movl %ebx, %ebp

    // Page directory: 512 entries of 2 MiB, present, writable.
    movl $(boot_directory - {kernel_image}), %edi
    movl $0x83, %eax
    movl $512, %ecx
1:  movl %eax, (%edi)
    addl $0x200000, %eax
    addl $8, %edi
    loop 1b
    movl $(boot_directory - {kernel_image} + 3), %eax
    movl %eax, (boot_pointers_low - {kernel_image})
    // The same from where the loader has moved the image to: 8 bytes of the directory for each 2 MiB. What is
    // beyond its end is at its beginning, so that boot takes as long wherever that is.
    movl (boot_image - {kernel_image}), %edi
    subl $(kernel_start - {kernel_image} + 0x80000000), %edi
    shrl $18, %edi
    movl $(boot_directory_high - {kernel_image}), %edx
    movl $0x83, %eax
    movl $512, %ecx
1:  movl %eax, (%edx,%edi)
    addl $0x200000, %eax
    addl $8, %edi
    andl $4095, %edi
    loop 1b
    movl $(boot_directory_high - {kernel_image} + 3), %eax
    movl %eax, (boot_pointers_high - {kernel_image} + 510 * 8)
    movl $(boot_pointers_low - {kernel_image} + 3), %eax
    movl %eax, (boot_root - {kernel_image})
    movl %eax, (boot_root - {kernel_image} + 256 * 8)
    movl $(boot_pointers_high - {kernel_image} + 3), %eax
    movl %eax, (boot_root - {kernel_image} + 511 * 8)

    call enter_long_mode_32
    ljmp $0x08, $(boot_long - {kernel_image})

// Paging and long mode on, with `boot_root`. Used by the first processor and by the trampoline.
enter_long_mode_32:
    movl %cr4, %eax
    orl $0x620, %eax            /* PAE, OSFXSR, OSXMMEXCPT */
    movl %eax, %cr4
    movl $(boot_root - {kernel_image}), %eax
    movl %eax, %cr3
    movl $0xc0000080, %ecx      /* EFER: LME, NXE, SCE */
    rdmsr
    orl $0x901, %eax
    wrmsr
    movl %cr0, %eax
    andl $0x9ffffff3, %eax      /* caches on; EM and TS off: vector instructions belong to applications */
    orl $0x80010022, %eax       /* PG, WP, NE, MP */
    movl %eax, %cr0
    lgdtl (boot_gdt_pointer - {kernel_image})
    ret

    .code64
boot_long:
    movabsq $boot_high, %rax
    jmp *%rax
boot_high:
    movl $0x10, %eax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    xorl %eax, %eax
    movw %ax, %fs
    movw %ax, %gs
    movq $boot_stack_top, %rsp
    movl %ebp, %edi             /* start info */
    xorl %ebp, %ebp             /* end of the frame-pointer chain */
    call {rust_entry}
    ud2

// Trampoline of the other processors: copied to a page below 1 MiB, entered in real mode with CS = page.
    .code16
    .global trampoline_start
trampoline_start:
    cli
    xorw %ax, %ax
    movw %ax, %ds
    lgdtl %cs:(trampoline_gdt_pointer - trampoline_start)
    movl %cr0, %eax
    orl $1, %eax
    movl %eax, %cr0
    ljmpl $0x18, $(trampoline_32 - {kernel_image})
    .balign 8
trampoline_gdt_pointer:
    .word boot_gdt_end - boot_gdt - 1
    .long boot_gdt - {kernel_image}
    .global trampoline_end
trampoline_end:

    .code32
trampoline_32:
    movl $0x10, %eax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    // A ticket is both the core's number and the index of its stack.
    movl $1, %ebx
    lock xaddl %ebx, ({cores_started} - {kernel_image})
    movl $(trampoline_stack_top - {kernel_image}), %esp
    // The call below pushes one identical word for every processor, so sharing this stack is harmless.
    call enter_long_mode_32
    ljmp $0x08, $(trampoline_64 - {kernel_image})
    .code64
trampoline_64:
    movabsq $trampoline_high, %rax
    jmp *%rax
trampoline_high:
    movq {kernel_root}(%rip), %rax
    movq %rax, %cr3
    movl %ebx, %edi
    movq {stack_tops}(,%rdi,8), %rsp
    xorl %ebp, %ebp
    call {rust_core_entry}
    ud2
    .size pvh_entry, . - pvh_entry

    .section .rodata
    .balign 8
boot_gdt:
    .quad 0
    .quad 0x00af9a000000ffff    /* 0x08: 64-bit code */
    .quad 0x00cf92000000ffff    /* 0x10: data */
    .quad 0x00cf9a000000ffff    /* 0x18: 32-bit code */
boot_gdt_end:
    .balign 4
boot_gdt_pointer:
    .word boot_gdt_end - boot_gdt - 1
    .long boot_gdt - {kernel_image}

    .balign 8
boot_image:         .quad kernel_start

    .section .bss
    .balign 4096
boot_root:          .skip 4096
boot_pointers_low:  .skip 4096
boot_pointers_high: .skip 4096
boot_directory:     .skip 4096
boot_directory_high: .skip 4096
    .global boot_stack
boot_stack:         .skip 131072
    .global boot_stack_top
boot_stack_top:
    .skip 64
trampoline_stack_top:
    .balign 8
    .global boot_tsc
boot_tsc:           .skip 8
