/* Records programs that are compiled with -pg, for gprof or ftrace, instead of -finstrument-functions: link this file,
 * compiled without -pg, together with libkymo.a. For x86-64 Linux (with or without -mfentry), AArch64 Linux (GCC,
 * without pointer authentication), and Cortex-M3 and larger.
 *
 * The compiler calls mcount, _mcount, __fentry__ or __gnu_mcount_nc at a function's entry, and nothing at its exit. So
 * this file replaces the function's return address, and keeps the original on a stack of its own; the function returns
 * here, and from here to its caller. That breaks code which inspects return addresses: C++ exceptions, and debuggers'
 * backtraces. Coroutines may switch stacks within a thread; a call that returns in another thread than it began in ends
 * the program, because its return address is unknown there.
 *
 * Frames of calls abandoned by longjmp, or by a child of vfork, are removed when a call overwrites their return address.
 * (On a Cortex-M also when a function further out returns.) Calls deeper than KYMO_PG_DEPTH are not recorded, and
 * counted as lost.
 *
 * On a Cortex-M with threads, compile this file with -DKYMO_PG_THREADS=N, and define kymo_pg_thread(), which returns
 * the running thread, from 0 to N - 1; in a handler, the interrupted thread. Link a program for Linux without -pg, or
 * it also profiles itself. */
#if defined(__linux__)
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#endif

#include "kymo.h"

#ifndef KYMO_PG_DEPTH
#define KYMO_PG_DEPTH 256
#endif

/* Frames are free where `place` is FREE. A new one is above all others as a rule; a handler, or a coroutine that it
 * switches to, may take and release frames at any time, so a frame belongs to the context that has stored TAKEN there. */
enum { FREE = 0, TAKEN = 2 };

typedef struct kymo_pg_stack {
	uint32_t depth; /* where to look first: the number of the highest frame in use plus 1, as a rule */
	bool mixed;     /* whether frames may be abandoned, or of several stacks: places are not in order */
	uint32_t pause; /* calls that are too deep until frames are looked through again */
	struct kymo_pg_frame {
		uintptr_t function;
		uintptr_t back;  /* the original return address */
		uintptr_t place; /* the stack pointer after the return; see AArch64 below */
	} frames[KYMO_PG_DEPTH];
} kymo_pg_stack_t;

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

/* libkymo_minimal.a has no count of losses. */
#pragma weak kymo_lost

void kymo_pg_return(void);
uintptr_t kymo_pg_enter(uintptr_t function, uintptr_t back, uintptr_t place);
#if defined(__aarch64__)
uintptr_t kymo_pg_exit(uintptr_t frame, uintptr_t place);
#else
uintptr_t kymo_pg_exit(uintptr_t place);
#endif

KYMO_NO_INSTRUMENT static uintptr_t place_of(kymo_pg_stack_t *of, uint32_t at)
{
	return __atomic_load_n(&of->frames[at].place, __ATOMIC_RELAXED);
}

KYMO_NO_INSTRUMENT static void release(kymo_pg_stack_t *of, uint32_t at)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	__atomic_store_n(&of->frames[at].place, FREE, __ATOMIC_RELAXED);
}

/* Corrects `depth` after frames were released. */
KYMO_NO_INSTRUMENT static void lower(kymo_pg_stack_t *of)
{
	uint32_t depth = __atomic_load_n(&of->depth, __ATOMIC_RELAXED);

	while (depth > 0 && place_of(of, depth - 1) == FREE)
		depth--;
	__atomic_store_n(&of->depth, depth, __ATOMIC_RELAXED);
}

/* Takes a frame, if it is free. */
KYMO_NO_INSTRUMENT static inline bool take_one(kymo_pg_stack_t *of, uint32_t at)
{
	uintptr_t none = FREE;

	return place_of(of, at) == FREE && __atomic_compare_exchange_n(&of->frames[at].place, &none, TAKEN, false,
								       __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/* Takes the first free frame from `at` on; returns KYMO_PG_DEPTH or more if there is none. */
KYMO_NO_INSTRUMENT static uint32_t take(kymo_pg_stack_t *of, uint32_t at)
{
	while (at < KYMO_PG_DEPTH && !take_one(of, at))
		at++;
	return at;
}

/* Removes frames with this place: the return address of a new call has overwritten theirs. Frames of other places may
 * belong to other stacks of this thread (coroutines, signal handlers). */
KYMO_NO_INSTRUMENT static void overwrite(kymo_pg_stack_t *of, uintptr_t place, uint32_t end)
{
	/* The stack grows downward: callers lie above. */
	uintptr_t above = UINTPTR_MAX;

	of->mixed = false;
	for (uint32_t at = 0; at < end; at++) {
		uintptr_t found = place_of(of, at);

		if (found == place)
			release(of, at);
		else if (found != FREE) {
			if (found > above || found < place)
				of->mixed = true;
			above = found;
		}
	}
	lower(of);
}

#if defined(__linux__) && defined(__x86_64__)
/* Removes frames whose return addresses are not on their stacks any more, or whose stacks are gone. */
KYMO_NO_INSTRUMENT static void look_through(kymo_pg_stack_t *of)
{
	int before = errno;

	for (uint32_t at = 0; at < KYMO_PG_DEPTH; at++) {
		uintptr_t place = place_of(of, at), found = 0;
		struct iovec to = {&found, sizeof found}, from = {(void *)(place - sizeof found), sizeof found};

		if (place == FREE || place == TAKEN)
			continue;
		long count = syscall(SYS_process_vm_readv, (long)getpid(), &to, 1L, &from, 1L, 0L);
		/* A function that is being entered still has its own. */
		bool is_there = found == (uintptr_t)kymo_pg_return || found == of->frames[at].back;
		if (count == (long)sizeof found ? !is_there : errno == EFAULT)
			release(of, at);
	}
	lower(of);
	errno = before;
}
#else
KYMO_NO_INSTRUMENT static void look_through(kymo_pg_stack_t *of)
{
	(void)of;
}
#endif

/* Returns the number of the newest frame below `end` with this place, or with `other`; `end` if there is none. */
KYMO_NO_INSTRUMENT static uint32_t find(kymo_pg_stack_t *of, uint32_t end, uintptr_t place, uintptr_t other)
{
	for (uint32_t at = end; at > 0; at--) {
		uintptr_t found = place_of(of, at - 1);

		if (found == place || found == other)
			return at - 1;
	}
	return end;
}

/* Takes a frame when all are in use, if some are abandoned. */
KYMO_NO_INSTRUMENT __attribute__((noinline, cold)) static uint32_t take_abandoned(kymo_pg_stack_t *of, uint32_t from)
{
	if (of->pause > 0) {
		of->pause--;
		return KYMO_PG_DEPTH;
	}
	look_through(of);
	uint32_t at = take(of, from);
	of->pause = at >= KYMO_PG_DEPTH ? 1000 : 0;
	return at;
}

/* Takes a frame for a call from `back`; returns KYMO_PG_DEPTH or more if there is none. */
KYMO_NO_INSTRUMENT __attribute__((noinline)) static uint32_t take_for(kymo_pg_stack_t *of, uintptr_t back, uintptr_t place)
{
	uint32_t depth = __atomic_load_n(&of->depth, __ATOMIC_RELAXED), from = depth;

	if (back == (uintptr_t)kymo_pg_return) {
		/* The caller called this function last of all, by a jump, and its return address is this function's, too: the
		 * new frame must lie above that of the caller, which has the same place. */
		if (of->mixed)
			from = find(of, depth, place, place) + 1;
	} else if (depth > 0 && (of->mixed || place_of(of, depth - 1) <= place)) {
		overwrite(of, place, depth);
		from = of->mixed ? 0 : of->depth;
	}
	/* On AArch64 makecontext's functions have no frame pointer to return to. */
	uint32_t at = place == FREE ? KYMO_PG_DEPTH : take(of, from);
	if (at >= KYMO_PG_DEPTH && place != FREE)
		at = take_abandoned(of, from);
	return at;
}

/* Records the entry of a function that returns to `back`, and returns the address that replaces `back`. */
__attribute__((used)) KYMO_NO_INSTRUMENT uintptr_t kymo_pg_enter(uintptr_t function, uintptr_t back, uintptr_t place)
{
	kymo_pg_stack_t *of = CURRENT;
	uint32_t at = __atomic_load_n(&of->depth, __ATOMIC_RELAXED);

	/* As a rule the caller has the frame below, at a higher place. */
	if (of->mixed || at == 0 || at >= KYMO_PG_DEPTH || place_of(of, at - 1) <= place || place == FREE ||
	    !take_one(of, at))
		at = take_for(of, back, place);
	if (at >= KYMO_PG_DEPTH) {
		if (kymo_lost != NULL)
			kymo_lost(2);
		return back;
	}
	of->frames[at].function = function;
	of->frames[at].back = back;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	__atomic_store_n(&of->frames[at].place, place, __ATOMIC_RELAXED);
	if (__atomic_load_n(&of->depth, __ATOMIC_RELAXED) <= at)
		__atomic_store_n(&of->depth, at + 1, __ATOMIC_RELAXED);
	__cyg_profile_func_enter((void *)function, (void *)back);
	return (uintptr_t)kymo_pg_return;
}

/* Ends the program: the return address of the function that has returned is not known. */
KYMO_NO_INSTRUMENT __attribute__((noreturn, noinline, cold)) static void give_up(void)
{
#if defined(__linux__)
	static const char text[] =
		"kymo: a function has returned in another thread than it was called in, and its return address is unknown\n"
		"kymo: record coroutines that move between threads with -finstrument-functions\n";

	if (write(2, text, sizeof text - 1) >= 0)
		abort();
	abort();
#else
	__builtin_trap();
#endif
}

/* Records the exit of a function that returned with its stack pointer at `place`, and returns its original return
 * address. */
#if defined(__aarch64__)
__attribute__((used)) KYMO_NO_INSTRUMENT uintptr_t kymo_pg_exit(uintptr_t frame, uintptr_t place)
{
	uintptr_t other = place | 1;
	place = frame == FREE ? other : frame;
#else
__attribute__((used)) KYMO_NO_INSTRUMENT uintptr_t kymo_pg_exit(uintptr_t place)
{
	uintptr_t other = place;
#endif
	kymo_pg_stack_t *of = CURRENT;
	uint32_t depth = __atomic_load_n(&of->depth, __ATOMIC_RELAXED);
	uint32_t at = depth - 1;

	if (depth == 0 || (place_of(of, at) != place && place_of(of, at) != other)) {
		of->mixed = true;
		at = find(of, KYMO_PG_DEPTH, place, other);
		if (at == KYMO_PG_DEPTH)
			give_up();
	}
	uintptr_t back = of->frames[at].back;
	__cyg_profile_func_exit((void *)of->frames[at].function, (void *)back);
#if !defined(__linux__)
	/* No coroutines here: longjmp abandoned the frames above. */
	for (uint32_t above = at + 1; above < depth; above++)
		release(of, above);
#endif
	release(of, at);
	if (at + 1 == depth && (at == 0 || place_of(of, at - 1) != FREE))
		__atomic_store_n(&of->depth, at, __ATOMIC_RELAXED);
	else
		lower(of);
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
 * address. The caller's frame pointer is restored when the function returns, so it identifies the frame: it is `place`.
 * (Of a function with patchable entries, which may have no frame pointer, the stack pointer plus 1 is.) Results are in
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
	"mov x0, x29\n add x1, sp, #80\n bl kymo_pg_exit\n mov x30, x0\n"
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
