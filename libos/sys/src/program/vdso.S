// What programs call in place of system calls that only read the clock; `vdso.rs` includes this.
//
// Position-independent: it is copied into an image of its own, behind the words that begin it, of which the
// first is set there. It reads the bulletin board where the library has it, and so has the clock's present
// rate, too. Functions have the C convention, and keep to the stack pointer that they find: callers may have
// little stack.
    .section .rodata.nom_vdso, "a", @progbits
    .balign 16
    .global nom_vdso_start
nom_vdso_start:
nom_vdso_clock:
    .quad 0                     // address of the board's clock
    .long nom_vdso_clock_gettime - nom_vdso_start
    .long nom_vdso_gettimeofday - nom_vdso_start
    .long nom_vdso_time - nom_vdso_start
    .long nom_vdso_clock_getres - nom_vdso_start
    .long nom_vdso_getcpu - nom_vdso_start
nom_vdso_processors:
    .long 1                     // how many programs see

    // RDX, R10 = seconds since boot, and since 1970; RCX = nanoseconds within both. R8 = the clock. Uses RAX,
    // R9, R11.
    .macro NOM_VDSO_NOW
    mov r8, [rip + nom_vdso_clock]
1:  mov r9d, [r8 + {sequence}]
    // No earlier than whatever the program read before.
    lfence
    rdtsc
    shl rdx, 32
    or rax, rdx
    sub rax, [r8 + {tsc_base}]
    mul qword ptr [r8 + {multiplier}]
    mov r10, [r8 + {unix_start}]
    test r9d, 1
    jnz 2f
    cmp r9d, [r8 + {sequence}]
    je 3f
2:  pause
    jmp 1b
3:  shrd rax, rdx, 32
    mov rcx, rax
    shr rax, 9                  // a second is 1,953,125 times 2^9 ns; division by multiplication
    movabs r11, {per_second}
    mul r11
    shr rdx, {per_second_shift}
    imul rax, rdx, 1000000000
    sub rcx, rax
    add r10, rdx
    .endm

    // int clock_gettime(clockid_t, struct timespec *)
    .balign 16
nom_vdso_clock_gettime:
    cmp edi, 31
    ja 9f
    mov eax, {clocks}
    bt eax, edi
    jnc 9f
    NOM_VDSO_NOW
    mov eax, {clocks_of_day}
    bt eax, edi
    cmovc rdx, r10
    mov [rsi], rdx
    mov [rsi + 8], rcx
    xor eax, eax
    ret
9:  mov eax, {nr_clock_gettime}
    syscall
    ret

    // int gettimeofday(struct timeval *, struct timezone *)
    .balign 16
nom_vdso_gettimeofday:
    test rdi, rdi
    jz 8f
    NOM_VDSO_NOW
    mov [rdi], r10
    mov eax, ecx
    mov ecx, 1000
    xor edx, edx
    div ecx
    mov [rdi + 8], rax
8:  test rsi, rsi
    jz 7f
    mov qword ptr [rsi], 0
7:  xor eax, eax
    ret

    // time_t time(time_t *)
    .balign 16
nom_vdso_time:
    NOM_VDSO_NOW
    mov rax, r10
    test rdi, rdi
    jz 6f
    mov [rdi], rax
6:  ret

    // int clock_getres(clockid_t, struct timespec *)
    .balign 16
nom_vdso_clock_getres:
    cmp edi, 31
    ja 5f
    mov eax, {clocks}
    bt eax, edi
    jnc 5f
    xor eax, eax
    test rsi, rsi
    jz 4f
    mov [rsi], rax
    mov qword ptr [rsi + 8], 1
4:  ret
5:  mov eax, {nr_clock_getres}
    syscall
    ret

    // int getcpu(unsigned *, unsigned *, void *)
    .balign 16
nom_vdso_getcpu:
    cmp dword ptr [rip + nom_vdso_processors], 1
    ja 3f
    xor eax, eax
    test rdi, rdi
    jz 1f
    mov [rdi], eax
1:  test rsi, rsi
    jz 2f
    mov [rsi], eax
2:  ret
3:  mov eax, {nr_getcpu}
    syscall
    ret
    .global nom_vdso_end
nom_vdso_end:
    .text
