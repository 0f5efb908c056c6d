/* Records programs whose functions begin with no-ops (-fpatchable-function-entry): while nothing is to be recorded they
 * run these, and nothing else; a command, a trigger or KYMO_ON=1 turns them into calls of the recorder. For x86-64 and
 * AArch64 under Linux, GCC and Clang:
 *
 *     gcc -fpatchable-function-entry=7,5 ... (x86-64)      gcc -fpatchable-function-entry=2 ... (AArch64)
 *
 * Compile this file and pg.c without that option, and link both together with libkymo.a. A shared library needs its
 * own copy of this file only. For exits it uses pg.c, with the limits that are described there.
 *
 * On x86-64 the compiler places five no-ops before a function's entry and two at it. The five become a call of
 * kymo_patched when the program starts, which nothing executes yet. The two become a jump back to that call, and
 * no-ops again. Both bytes are stored one after the other, and each state in between is an instruction that does
 * nothing at a function's entry: the jump's distance alone is "stc" or "cmc". So other threads may run the function
 * meanwhile.
 *
 * On AArch64 the first of two no-ops becomes "mov x9, x30" when the program starts (x9 is free there), and the second
 * one a call. Processors may run such an instruction while it is replaced (Arm ARM B2.2.5). */
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <unwind.h>

#include "kymo.h"

#if !defined(__linux__) || !(defined(__x86_64__) || defined(__aarch64__))
#error "for x86-64 and AArch64 under Linux"
#endif

/* Number of functions whose entries are not as this file expects, or out of reach of a call; they are not recorded. */
volatile uint32_t kymo_patchable_refused __attribute__((visibility("hidden")));

void kymo_patched(void) __attribute__((visibility("hidden")));

/* The addresses of the no-ops, which the linker collects. */
extern uint8_t *const first[] __asm__("__start___patchable_function_entries")
	__attribute__((weak, visibility("hidden")));
extern uint8_t *const last[] __asm__("__stop___patchable_function_entries")
	__attribute__((weak, visibility("hidden")));

/* Whether hooks are needed, whether they are called (-1: unknown), and whether a context is changing that. */
static int wanted, applied;
static bool busy;

/* Makes the pages of all functions writable, or executable only. */
KYMO_NO_INSTRUMENT static bool open_code(bool writable)
{
	uintptr_t low = UINTPTR_MAX, high = 0, page = (uintptr_t)sysconf(_SC_PAGESIZE);
	for (uint8_t *const *site = first; site < last; site++) {
		uintptr_t at = (uintptr_t)*site;
		low = at < low ? at : low;
		high = at > high ? at : high;
	}
	low &= ~(page - 1);
	int access = PROT_READ | PROT_EXEC | (writable ? PROT_WRITE : 0);
#if defined(__ARM_FEATURE_BTI_DEFAULT) && defined(PROT_BTI)
	access |= PROT_BTI;
#endif
	return mprotect((void *)low, high + 16 - low, access) == 0;
}

/* Makes all processors that run this process see the code as it is now. */
KYMO_NO_INSTRUMENT static void synchronize(void)
{
#ifdef __NR_membarrier
	syscall(__NR_membarrier, 1 << 5 /* private expedited, processor state included */, 0, 0);
#endif
}

#if defined(__x86_64__)
#define OPTION "-fpatchable-function-entry=7,5"
enum { NOPS_AT_ENTRY = 2 };
#else
#define OPTION "-fpatchable-function-entry=2"
enum { NOPS_AT_ENTRY = 8 };
#endif

/* Whether the function at `at` begins there, as far as unwind tables tell: other numbers of no-ops before a function's
 * entry look the same. */
KYMO_NO_INSTRUMENT static bool begins_at(uint8_t *at)
{
	/* It looks for the instruction before a return address. */
	uint8_t *begin = _Unwind_FindEnclosingFunction(at + NOPS_AT_ENTRY + 1);

	return begin == NULL || begin == at;
}

/* Allows synchronize(). Older kernels than 4.16 don't have it: there a processor sees changed code after the next
 * interrupt at the latest. */
KYMO_NO_INSTRUMENT static void prepare(void)
{
#ifdef __NR_membarrier
	syscall(__NR_membarrier, 1 << 6 /* register for it */, 0, 0);
#endif
}

#if defined(__x86_64__)
enum { BEFORE = 5, JUMP = 0xeb, NOP = 0x90, PREFIX = 0x66, CALL = 0xe8, ENDBR = 4 };

static const uint8_t endbr[ENDBR] = {0xf3, 0x0f, 0x1e, 0xfa};

/* The two bytes at the entry of the function whose no-ops begin at `site`. */
KYMO_NO_INSTRUMENT static volatile uint8_t *entry(uint8_t *site)
{
	uint8_t *at = site + BEFORE;
	return __builtin_memcmp(at, endbr, ENDBR) == 0 ? at + ENDBR : at;
}

/* The jump's distance, which only depends on whether the function begins with endbr64. */
KYMO_NO_INSTRUMENT static uint8_t distance(uint8_t *site)
{
	return (uint8_t)(site - (uint8_t *)(entry(site) + 2));
}

/* Whether the call before the function's entry has been prepared. */
KYMO_NO_INSTRUMENT static bool is_prepared(uint8_t *site)
{
	return *site == CALL;
}

KYMO_NO_INSTRUMENT static void prepare_site(uint8_t *site)
{
	volatile uint8_t *at = entry(site);
	int64_t far = (uint8_t *)(uintptr_t)kymo_patched - (site + BEFORE);
	bool fits = far == (int32_t)far && begins_at(site + BEFORE) && (at[0] == NOP || at[0] == PREFIX) && at[1] == NOP;
	for (int n = 0; n < BEFORE; n++)
		fits = fits && site[n] == NOP;
	if (!fits) {
		kymo_patchable_refused++;
		return;
	}
	int32_t offset = (int32_t)far;
	__builtin_memcpy(site + 1, &offset, sizeof offset);
	*site = CALL;
}

/* Replaces one of the two bytes of each function's entry. (Clang's no-op has two bytes, of which 0x66 is a prefix.) */
KYMO_NO_INSTRUMENT static void change(bool call, int byte)
{
	for (uint8_t *const *site = first; site < last; site++) {
		if (!is_prepared(*site))
			continue;
		volatile uint8_t *at = entry(*site);
		if (byte == 1)
			at[1] = call ? distance(*site) : NOP;
		else
			at[0] = call ? JUMP : NOP;
	}
	synchronize();
}

KYMO_NO_INSTRUMENT static void change_all(bool call)
{
	change(call, call ? 1 : 0);
	change(call, call ? 0 : 1);
}

#define SAVE                                                                                                           \
	"pushq %rax\n pushq %rdi\n pushq %rsi\n pushq %rdx\n pushq %rcx\n pushq %r8\n pushq %r9\n pushq %r10\n"         \
	"movq %rsp, %r11\n subq $144, %rsp\n andq $-16, %rsp\n movq %r11, 128(%rsp)\n"                                  \
	"movups %xmm0, (%rsp)\n movups %xmm1, 16(%rsp)\n movups %xmm2, 32(%rsp)\n movups %xmm3, 48(%rsp)\n"             \
	"movups %xmm4, 64(%rsp)\n movups %xmm5, 80(%rsp)\n movups %xmm6, 96(%rsp)\n movups %xmm7, 112(%rsp)\n"
#define RESTORE                                                                                                        \
	"movups (%rsp), %xmm0\n movups 16(%rsp), %xmm1\n movups 32(%rsp), %xmm2\n movups 48(%rsp), %xmm3\n"             \
	"movups 64(%rsp), %xmm4\n movups 80(%rsp), %xmm5\n movups 96(%rsp), %xmm6\n movups 112(%rsp), %xmm7\n"          \
	"movq 128(%rsp), %rsp\n popq %r10\n popq %r9\n popq %r8\n popq %rcx\n popq %rdx\n popq %rsi\n popq %rdi\n"      \
	"popq %rax\n"

/* Called before the function's entry: the return address is the function, and that of its caller lies behind it. It
 * returns behind the jump. */
__asm__(".pushsection .text\n"
	".globl kymo_patched\n .type kymo_patched,@function\n"
	"kymo_patched:\n" SAVE
	"movq 64(%r11), %rdi\n movq 72(%r11), %rsi\n leaq 80(%r11), %rdx\n call kymo_pg_enter@PLT\n"
	"movq 128(%rsp), %r11\n movq %rax, 72(%r11)\n"
	"movq 64(%r11), %rdi\n addq $2, %rdi\n cmpl $0xfa1e0ff3, -2(%rdi)\n jne 1f\n addq $4, %rdi\n"
	"1: movq %rdi, 64(%r11)\n" RESTORE "ret\n"
	".size kymo_patched, .-kymo_patched\n"
	".popsection\n");

#else
enum { WORD = 4, REACH = 1 << 27 };
static const uint32_t nop = 0xd503201f, keep_return = 0xaa1e03e9 /* mov x9, x30 */, call_here = 0x94000000;

/* The instruction at `site` plus `n` words. */
KYMO_NO_INSTRUMENT static volatile uint32_t *word(uint8_t *site, int n)
{
	return (volatile uint32_t *)(uintptr_t)(site + n * WORD);
}

KYMO_NO_INSTRUMENT static void store(uint8_t *site, int n, uint32_t instruction)
{
	*word(site, n) = instruction;
	__builtin___clear_cache((char *)site + n * WORD, (char *)site + (n + 1) * WORD);
}

KYMO_NO_INSTRUMENT static void prepare_site(uint8_t *site)
{
	int64_t far = (uint8_t *)(uintptr_t)kymo_patched - (site + WORD);
	bool begins = begins_at(site) || begins_at(site - WORD);
	if (!begins || *word(site, 0) != nop || *word(site, 1) != nop || far < -REACH || far >= REACH)
		kymo_patchable_refused++;
	else
		store(site, 0, keep_return);
}

KYMO_NO_INSTRUMENT static void change_all(bool call)
{
	for (uint8_t *const *site = first; site < last; site++) {
		int64_t far = (uint8_t *)(uintptr_t)kymo_patched - (*site + WORD);
		uint32_t instruction = call ? call_here | ((uint32_t)(far / WORD) & 0x3ffffff) : nop;
		if (*word(*site, 0) == keep_return)
			store(*site, 1, instruction);
	}
	synchronize();
}

/* Called at the function's entry, with the return address of its caller in x9. Arguments are in x0 to x8, q0 to q7. The
 * function may begin with a landing pad (bti c, or paciasp, which belongs behind the call). */
__asm__(".pushsection .text\n"
	".globl kymo_patched\n .type kymo_patched,%function\n"
	"kymo_patched:\n"
	"stp x29, x30, [sp, #-16]!\n stp x8, x9, [sp, #-16]!\n stp x6, x7, [sp, #-16]!\n stp x4, x5, [sp, #-16]!\n"
	"stp x2, x3, [sp, #-16]!\n stp x0, x1, [sp, #-16]!\n"
	"stp q6, q7, [sp, #-32]!\n stp q4, q5, [sp, #-32]!\n stp q2, q3, [sp, #-32]!\n stp q0, q1, [sp, #-32]!\n"
	"sub x0, x30, #8\n ldr w1, [x0, #-4]\n mov w2, #0x245f\n movk w2, #0xd503, lsl #16\n cmp w1, w2\n bne 1f\n"
	"sub x0, x0, #4\n 1: mov x1, x9\n add x2, sp, #225\n bl kymo_pg_enter\n mov x10, x0\n"
	"ldp q0, q1, [sp], #32\n ldp q2, q3, [sp], #32\n ldp q4, q5, [sp], #32\n ldp q6, q7, [sp], #32\n"
	"ldp x0, x1, [sp], #16\n ldp x2, x3, [sp], #16\n ldp x4, x5, [sp], #16\n ldp x6, x7, [sp], #16\n"
	"ldp x8, x9, [sp], #16\n ldp x29, x11, [sp], #16\n mov x30, x10\n ret x11\n"
	".size kymo_patched, .-kymo_patched\n"
	".popsection\n");
#endif

/* Says on stderr what it could not do, without stdio: this may run in a signal handler. */
KYMO_NO_INSTRUMENT static void say(const char *text)
{
	if (write(2, text, __builtin_strlen(text)) < 0)
		return;
}

/* Makes the functions call the recorder, or not. If several contexts call it at once, the first one
 * applies the last request. */
KYMO_NO_INSTRUMENT static void follow(bool needed)
{
	int before = errno;

	__atomic_store_n(&wanted, needed, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&wanted, __ATOMIC_SEQ_CST) != __atomic_load_n(&applied, __ATOMIC_SEQ_CST)) {
		if (__atomic_exchange_n(&busy, true, __ATOMIC_SEQ_CST))
			break;
		bool call = __atomic_load_n(&wanted, __ATOMIC_SEQ_CST);
		bool done = open_code(true);
		if (done) {
			change_all(call);
			open_code(false);
			__atomic_store_n(&applied, call, __ATOMIC_SEQ_CST);
		} else {
			say(call ? "kymo: cannot make the code of functions writable: their calls are not recorded\n"
				 : "kymo: cannot make the code of functions writable: their hooks stay on\n");
		}
		__atomic_store_n(&busy, false, __ATOMIC_SEQ_CST);
		if (!done)
			break;
	}
	errno = before;
}

/* In the child of a fork, after the recorder's handler. Another thread of the parent may have been changing the code,
 * which is then half changed, or may have turned recording on or off without having called follow() yet. */
KYMO_NO_INSTRUMENT static void follow_in_child(void)
{
	if (busy)
		applied = -1;
	busy = false;
	kymo_unfollow(follow);
	kymo_follow(follow);
}

/* After the recorder's constructor, and before the program's own. */
__attribute__((constructor(102))) KYMO_NO_INSTRUMENT static void begin(void)
{
	if (&first[0] == &last[0])
		return say("kymo: no function was compiled with -fpatchable-function-entry\n");
	prepare();
	if (open_code(true)) {
		for (uint8_t *const *site = first; site < last; site++)
			prepare_site(*site);
		open_code(false);
		synchronize();
	} else {
		return say("kymo: cannot make the code of functions writable: their calls are not recorded\n");
	}
	pthread_atfork(NULL, NULL, follow_in_child);
	if (kymo_patchable_refused != 0)
		say("kymo: some functions have other no-ops at their entries than " OPTION " makes, and are not recorded: compile "
		    "with that option\n");
	if (!kymo_follow(follow))
		say("kymo: too many libraries have patchable entries: hooks of this one stay on\n");
}

__attribute__((destructor(102))) KYMO_NO_INSTRUMENT static void end(void)
{
	kymo_unfollow(follow);
}
