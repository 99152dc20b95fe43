#include "fiber.h"

#include <stdint.h>

#if defined(__x86_64__) || defined(__aarch64__)

static void **aligned_end(char *stack, size_t bytes)
{
    return reinterpret_cast<void **>(reinterpret_cast<uintptr_t>(stack + bytes) & ~uintptr_t{15});
}

#endif

#if defined(__x86_64__)

/* A jump instead of a return keeps the processor's return-address predictor in step. */
asm(R"(
    .text
    .globl fiber_switch
    .hidden fiber_switch
    .type fiber_switch, @function
fiber_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    popq %rcx
    jmp *%rcx
    .size fiber_switch, .-fiber_switch
)");

void *fiber_prepare(char *stack, size_t bytes, void (*entry)())
{
    /* At a function's first instruction the stack pointer is 8 bytes past a multiple of 16. */
    void **top = aligned_end(stack, bytes);
    *--top = nullptr; /* return address of entry: none */
    *--top = reinterpret_cast<void *>(entry);
    for (int saved = 0; saved < 6; ++saved) {
        *--top = nullptr;
    }
    return top;
}

#elif defined(__aarch64__)

asm(R"(
    .text
    .globl fiber_switch
    .hidden fiber_switch
    .type fiber_switch, %function
fiber_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    br x30
    .size fiber_switch, .-fiber_switch
)");

void *fiber_prepare(char *stack, size_t bytes, void (*entry)())
{
    void **top = aligned_end(stack, bytes) - 20;
    for (int saved = 0; saved < 20; ++saved) {
        top[saved] = nullptr;
    }
    top[11] = reinterpret_cast<void *>(entry); /* x30 */
    return top;
}

#else

/* Other architectures use the C library's contexts: correct, with a system call for each switch. */
#include <ucontext.h>

#include <new>

extern "C" void fiber_switch(void **from, void *to)
{
    ucontext_t here;
    *from = &here;
    swapcontext(&here, static_cast<ucontext_t *>(to));
}

void *fiber_prepare(char *stack, size_t bytes, void (*entry)())
{
    /* At the low end of the memory, because the stack grows down from the high end. */
    ucontext_t *const context = new (stack) ucontext_t;
    constexpr size_t context_bytes = (sizeof(ucontext_t) + 63) & ~size_t{63};
    getcontext(context);
    context->uc_stack.ss_sp = stack + context_bytes;
    context->uc_stack.ss_size = bytes - context_bytes;
    context->uc_link = nullptr;
    makecontext(context, entry, 0);
    return context;
}

#endif
