/* From the PVH entry (Xen "x86/HVM direct boot ABI": 32-bit protected mode, flat segments, paging off,
 * EBX = physical address of the start info) to the kernel's entry, in the same state. The first instruction
 * reads the time-stamp counter, from which boot time counts; the kernel finds it in EDI:ESI.
 */
    .section .text.entry, "ax", @progbits
    .global pvh_entry
    .type pvh_entry, @function
pvh_entry:
    rdtsc
    cld
    movl $stack_top, %esp
    movl %eax, %esi
    movl %edx, %edi
    xorl %ebp, %ebp
    pushl %ebx
    call {unpack}               /* keeps EBX, ESI and EDI, as System V has it */
    jmp *%eax

    .section .bss.stack, "aw", @nobits
    .balign 16
    .skip 32768
stack_top:
