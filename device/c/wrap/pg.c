/* Records programs that are compiled with -pg, for gprof or ftrace, instead of -finstrument-functions: link this file,
 * compiled without -pg, together with libkymo.a. For x86-64 Linux (with or without -mfentry), AArch64 Linux (GCC,
 * without pointer authentication), and Cortex-M3 and larger.
 *
 * The compiler calls mcount, _mcount, __fentry__ or __gnu_mcount_nc at a function's entry, and nothing at its exit. So
 * this file replaces the function's return address, and keeps the original on a stack of its own; the function returns
 * here, and from here to its caller. That breaks code which inspects return addresses: C++ exceptions, and debuggers'
 * backtraces.
 *
 * Calls abandoned by longjmp are detected at the next return of a function further out. Calls deeper than KYMO_PG_DEPTH
 * are not recorded, and counted in kymo_pg_too_deep.
 *
 * On a Cortex-M with threads, compile this file with -DKYMO_PG_THREADS=N, and define kymo_pg_thread(), which returns
 * the running thread, from 0 to N - 1; in a handler, the interrupted thread. Link a program for Linux without -pg, or
 * it also profiles itself. */
#include "kymo.h"

#ifndef KYMO_PG_DEPTH
#define KYMO_PG_DEPTH 256
#endif

typedef struct kymo_pg_stack {
	uint32_t depth;
	struct kymo_pg_frame {
		uintptr_t function;
		uintptr_t back;  /* the original return address */
		uintptr_t place; /* the stack pointer after the return; on AArch64 the frame pointer after it */
	} frames[KYMO_PG_DEPTH];
} kymo_pg_stack_t;

volatile uint32_t kymo_pg_too_deep;

#if defined(__linux__)
static __thread kymo_pg_stack_t stack;
#define CURRENT (&stack)
#elif defined(KYMO_PG_THREADS)
static kymo_pg_stack_t stacks[KYMO_PG_THREADS];
uint32_t kymo_pg_thread(void);
#define CURRENT (&stacks[kymo_pg_thread()])
#else
static kymo_pg_stack_t stack;
#define CURRENT (&stack)
#endif

void kymo_pg_return(void);
uintptr_t kymo_pg_enter(uintptr_t function, uintptr_t back, uintptr_t place);
uintptr_t kymo_pg_exit(uintptr_t place);

/* Records the entry of a function that returns to `back`, and returns the address that replaces `back`. (Interrupt
 * handlers in between restore `depth` to its value before.) */
__attribute__((used)) KYMO_NO_INSTRUMENT uintptr_t kymo_pg_enter(uintptr_t function, uintptr_t back, uintptr_t place)
{
	kymo_pg_stack_t *of = CURRENT;
	uint32_t depth = of->depth;
	if (depth >= KYMO_PG_DEPTH) {
		kymo_pg_too_deep++;
		return back;
	}
	*(volatile uint32_t *)&of->depth = depth + 1;
	__asm__ volatile("" ::: "memory");
	of->frames[depth].function = function;
	of->frames[depth].back = back;
	of->frames[depth].place = place;
	__cyg_profile_func_enter((void *)function, (void *)back);
	return (uintptr_t)kymo_pg_return;
}

/* Records the exit of a function that returned with its stack pointer at `place`, and returns its original return
 * address. */
__attribute__((used)) KYMO_NO_INSTRUMENT uintptr_t kymo_pg_exit(uintptr_t place)
{
	kymo_pg_stack_t *of = CURRENT;
	uint32_t at = of->depth;
	/* longjmp abandoned the frames above. Without the frame the return address is lost. */
	do {
		if (at == 0)
			__builtin_trap();
		at--;
	} while (of->frames[at].place != place);
	uintptr_t back = of->frames[at].back;
	__cyg_profile_func_exit((void *)of->frames[at].function, (void *)back);
	__asm__ volatile("" ::: "memory");
	*(volatile uint32_t *)&of->depth = at;
	return back;
}

#if defined(__x86_64__)
/* Registers that may hold arguments: in the kernel's order, and eight of SSE. */
#define KYMO_PG_SAVE                                                                                                   \
	"pushq %rax\n pushq %rdi\n pushq %rsi\n pushq %rdx\n pushq %rcx\n pushq %r8\n pushq %r9\n pushq %r10\n"         \
	"movq %rsp, %r11\n subq $144, %rsp\n andq $-16, %rsp\n movq %r11, 128(%rsp)\n"                                  \
	"movups %xmm0, (%rsp)\n movups %xmm1, 16(%rsp)\n movups %xmm2, 32(%rsp)\n movups %xmm3, 48(%rsp)\n"             \
	"movups %xmm4, 64(%rsp)\n movups %xmm5, 80(%rsp)\n movups %xmm6, 96(%rsp)\n movups %xmm7, 112(%rsp)\n"
#define KYMO_PG_RESTORE                                                                                                \
	"movups (%rsp), %xmm0\n movups 16(%rsp), %xmm1\n movups 32(%rsp), %xmm2\n movups 48(%rsp), %xmm3\n"             \
	"movups 64(%rsp), %xmm4\n movups 80(%rsp), %xmm5\n movups 96(%rsp), %xmm6\n movups 112(%rsp), %xmm7\n"          \
	"movq 128(%rsp), %rsp\n popq %r10\n popq %r9\n popq %r8\n popq %rcx\n popq %rdx\n popq %rsi\n popq %rdi\n"      \
	"popq %rax\n"

__asm__(".pushsection .text\n"
	/* Called at the start of the function, after endbr64 at most. */
	".globl __fentry__\n .type __fentry__,@function\n"
	"__fentry__:\n" KYMO_PG_SAVE
	/* The call has five bytes, or six: with a prefix, or through a table. */
	"movq 64(%r11), %rdi\n subq $5, %rdi\n"
	"cmpb $0xe8, (%rdi)\n jne 1f\n cmpb $0x67, -1(%rdi)\n jne 2f\n 1: subq $1, %rdi\n"
	"2: cmpl $0xfa1e0ff3, -4(%rdi)\n jne 3f\n subq $4, %rdi\n 3:\n"
	"movq 72(%r11), %rsi\n leaq 80(%r11), %rdx\n call kymo_pg_enter\n"
	"movq 128(%rsp), %r11\n movq %rax, 72(%r11)\n" KYMO_PG_RESTORE "ret\n"
	".size __fentry__, .-__fentry__\n"
	/* Called within the function, which then has a frame pointer. */
	".globl mcount\n .type mcount,@function\n"
	"mcount:\n" KYMO_PG_SAVE
	"movq 64(%r11), %rdi\n movq 8(%rbp), %rsi\n leaq 16(%rbp), %rdx\n call kymo_pg_enter\n"
	"movq %rax, 8(%rbp)\n" KYMO_PG_RESTORE "ret\n"
	".size mcount, .-mcount\n"
	/* Registers that may hold results. */
	".globl kymo_pg_return\n .type kymo_pg_return,@function\n"
	"kymo_pg_return:\n"
	"subq $8, %rsp\n pushq %rax\n pushq %rdx\n movq %rsp, %r11\n subq $48, %rsp\n andq $-16, %rsp\n"
	"movq %r11, 32(%rsp)\n movups %xmm0, (%rsp)\n movups %xmm1, 16(%rsp)\n"
	"leaq 24(%r11), %rdi\n call kymo_pg_exit\n"
	"movups (%rsp), %xmm0\n movups 16(%rsp), %xmm1\n movq 32(%rsp), %rsp\n movq %rax, 16(%rsp)\n"
	"popq %rdx\n popq %rax\n ret\n"
	".size kymo_pg_return, .-kymo_pg_return\n"
	".popsection\n");

#elif defined(__aarch64__)
/* Called after the prologue, like any function: x29 points to the saved frame pointer of the caller and the return
 * address. The caller's frame pointer is restored when the function returns, so it identifies the frame. Results are in
 * x0, x1, q0 to q3. */
__asm__(".pushsection .text\n"
	".globl _mcount\n .type _mcount,%function\n"
	"_mcount:\n"
	"stp x29, x30, [sp, #-16]!\n sub x0, x30, #4\n ldp x2, x1, [x29]\n bl kymo_pg_enter\n"
	"ldp x29, x30, [sp], #16\n str x0, [x29, #8]\n ret\n"
	".size _mcount, .-_mcount\n"
	".globl kymo_pg_return\n .type kymo_pg_return,%function\n"
	"kymo_pg_return:\n"
	"stp x0, x1, [sp, #-16]!\n stp q0, q1, [sp, #-32]!\n stp q2, q3, [sp, #-32]!\n"
	"mov x0, x29\n bl kymo_pg_exit\n mov x30, x0\n"
	"ldp q2, q3, [sp], #32\n ldp q0, q1, [sp], #32\n ldp x0, x1, [sp], #16\n ret\n"
	".size kymo_pg_return, .-kymo_pg_return\n"
	".popsection\n");

#elif defined(__ARM_ARCH_PROFILE) && __ARM_ARCH_PROFILE == 'M' && __ARM_ARCH >= 7
/* Decodes what the function did before it called __gnu_mcount_nc: registers that it pushed, and stack that it reserved.
 * `at` points to the push of LR for that call, and `sp` is the stack pointer at that point; both are set to their
 * values at the function's start. Returns the address where the function saved LR; NULL if it did not. */
KYMO_NO_INSTRUMENT static uintptr_t *before(const uint16_t **at, uintptr_t *sp, uintptr_t back)
{
	const uint16_t *code = *at;
	uintptr_t top = *sp;
	for (;;) {
		uint16_t last = code[-1], first = code[-2];
		uint32_t size = 1, pushed = 0;
		if ((last & 0xff80) == 0xb080) { /* sub sp, #n */
			top += (last & 0x7f) * 4u;
		} else if ((last & 0xff00) == 0xaf00) { /* add r7, sp, #n */
		} else if ((last & 0xfe00) == 0xb400) { /* push {r0-r7, lr} */
			pushed = (last & 0xff) | (uint32_t)(last & 0x100) << 6;
		} else if (first == 0xe92d) { /* push.w {r0-r12, lr} */
			pushed = last;
			size = 2;
		} else if (first == 0xf84d && last == 0xed04) { /* str lr, [sp, #-4]! */
			pushed = 1u << 14;
			size = 2;
		} else if ((first & 0xffbf) == 0xed2d && (last & 0xf00) == 0xb00) { /* vpush */
			top += (last & 0xff) * 4u;
			size = 2;
		} else if ((first & 0xfbff) == 0xf1ad && (last & 0x8f00) == 0x0d00 && (last & 0x7000) != 0) {
			/* sub.w sp, sp, #n: eight bits of which the highest is set, rotated. */
			uint32_t turn = (first & 0x400u) >> 6 | (last & 0x7000u) >> 11 | (last & 0x80u) >> 7;
			uint32_t bits = 0x80u | (last & 0x7fu);
			top += turn < 8 ? 0 : bits >> turn | bits << (32 - turn);
			size = 2;
		} else if ((first & 0xfbff) == 0xf2ad && (last & 0x8f00) == 0x0d00) { /* subw sp, sp, #n */
			top += (first & 0x400u) << 1 | (last & 0x7000u) >> 4 | (last & 0xffu);
			size = 2;
		} else {
			return NULL;
		}
		code -= size;
		if ((pushed >> 14 & 1) == 0) {
			top += 4u * (uint32_t)__builtin_popcount(pushed);
			continue;
		}
		uintptr_t *kept = (uintptr_t *)top + __builtin_popcount(pushed & 0x3fff);
		/* The bytes may have been data before the function instead of code. */
		if (*kept != back)
			return NULL;
		*sp = (uintptr_t)(kept + 1);
		/* The pushed arguments of a variadic function. */
		if ((code[-1] & 0xfff0) == 0xb400 && (code[-1] & 8) != 0) {
			code--;
			*sp += 4u * (uint32_t)__builtin_popcount(*code & 0xf);
		}
		*at = code;
		return kept;
	}
}

/* Handles the entry of a function that has pushed LR, which is `back`, for this call. Returns the address to store in
 * its place. */
__attribute__((used)) KYMO_NO_INSTRUMENT static uintptr_t enter(uintptr_t at, uintptr_t back, uintptr_t sp)
{
	const uint16_t *code = (const uint16_t *)at;
	uintptr_t *kept = before(&code, &sp, back);
	uintptr_t to = kymo_pg_enter((uintptr_t)code | 1, back, sp);
	if (kept == NULL)
		return to;
	*kept = to;
	return back;
}

/* Called six bytes after the push of LR, which it pops. */
__asm__(".pushsection .text\n .syntax unified\n .thumb\n .balign 4\n"
	".globl __gnu_mcount_nc\n .type __gnu_mcount_nc,%function\n .thumb_func\n"
	"__gnu_mcount_nc:\n"
	"push {r0-r3, lr}\n subs r0, lr, #7\n ldr r1, [sp, #20]\n add r2, sp, #24\n bl enter\n"
	"str r0, [sp, #20]\n pop {r0-r3, ip}\n pop {lr}\n bx ip\n"
	".size __gnu_mcount_nc, .-__gnu_mcount_nc\n"
	".globl kymo_pg_return\n .type kymo_pg_return,%function\n .thumb_func\n"
	"kymo_pg_return:\n"
	"push {r0-r3}\n add r0, sp, #16\n bl kymo_pg_exit\n mov lr, r0\n pop {r0-r3}\n bx lr\n"
	".size kymo_pg_return, .-kymo_pg_return\n"
	".popsection\n");
#else
#error "not for this processor yet"
#endif
