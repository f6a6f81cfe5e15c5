/* The gate of NMI while the other processors are asked: stores their registers and goes back. */
    .text
    .global selfcheck_nmi
    .type selfcheck_nmi, @function
selfcheck_nmi:
    pushq %rax
    pushq %rcx
    pushq %rdx
    pushq %rsi
    pushq %rdi
    pushq %r8
    pushq %r9
    pushq %r10
    pushq %r11
    pushq %rbp
    movq %rsp, %rbp
    andq $-16, %rsp
    call {snapshot}
    movq %rbp, %rsp
    popq %rbp
    popq %r11
    popq %r10
    popq %r9
    popq %r8
    popq %rdi
    popq %rsi
    popq %rdx
    popq %rcx
    popq %rax
    iretq
    .size selfcheck_nmi, . - selfcheck_nmi
