/* A program that is compiled with -pg for a Cortex-M4, with interrupts between any two instructions, whose handlers are
 * profiled too. It defines its own hooks, which check that every exit matches the newest entry. */
#include "kymo.h"

/* A hook takes longer than preempt.h thinks. */
#define STRIKE_LOW 300
#define STRIKE_LOW_RANGE 2048
#define STRIKE_HIGH 600
#define STRIKE_HIGH_RANGE 4096
#include "strike.h"

void __gnu_mcount_nc(void);
uint32_t kymo_pg_thread(void);

#define APART __attribute__((noinline))

static volatile uint32_t wrong, lows, highs, entered, depth, most;
static uintptr_t functions[64];

KYMO_NO_INSTRUMENT void __cyg_profile_func_enter(void *function, void *call_site)
{
	(void)call_site;
	uint32_t at = depth;
	depth = at + 1;
	functions[at] = (uintptr_t)function;
	/* Handlers count too. */
	__asm__ volatile("cpsid i" ::: "memory");
	entered++;
	__asm__ volatile("cpsie i" ::: "memory");
	if (at + 1 > most)
		most = at + 1;
}

KYMO_NO_INSTRUMENT void __cyg_profile_func_exit(void *function, void *call_site)
{
	(void)call_site;
	if (depth == 0 || functions[depth - 1] != (uintptr_t)function)
		wrong++;
	depth = depth - 1;
}

/* Two stacks, in turns. */
static volatile uint32_t thread;

KYMO_NO_INSTRUMENT uint32_t kymo_pg_thread(void)
{
	return thread;
}

APART uint64_t wide(uint32_t a, uint32_t b, uint32_t c, uint32_t d, uint32_t e, uint32_t f)
{
	if (a != 1 || b != 2 || c != 3 || d != 4 || e != 5 || f != 6)
		wrong++;
	return 0x123456789ABCDEF0;
}

APART uint32_t last(uint32_t n)
{
	__asm__ volatile("" : "+r"(n));
	return n + 1;
}

APART uint32_t tail(uint32_t n)
{
	__asm__ volatile("" : "+r"(n));
	return last(n * 2);
}

APART uint32_t recurse(uint32_t n)
{
	uint32_t all = n == 0 ? 0 : recurse(n - 1) + 1;
	__asm__ volatile("" : "+r"(all));
	return all;
}

/* Functions that keep much on the stack, and take any number of arguments. */
APART uint32_t large(uint32_t n)
{
	volatile uint32_t many[300];
	for (uint32_t at = 0; at < 300; at++)
		many[at] = n + at;
	return last(many[299]) - many[0];
}

APART uint32_t medium(uint32_t n)
{
	volatile uint32_t many[20];
	for (uint32_t at = 0; at < 20; at++)
		many[at] = n + at;
	return last(many[19]) - many[0];
}

APART uint32_t sum(uint32_t count, ...)
{
	uint32_t all = 0;
	__builtin_va_list list;
	__builtin_va_start(list, count);
	while (count-- > 0)
		all += last(__builtin_va_arg(list, uint32_t));
	__builtin_va_end(list);
	return all;
}

APART void preempt_low(void)
{
	last(0);
	lows++;
}

APART void preempt_high(void)
{
	tail(0);
	highs++;
}

/* Hooks are told where functions begin: the frame above is the call that ended last. */
#define IS_TOLD(function_) (functions[depth] == (uintptr_t)(function_))

APART static void places(void)
{
	last(0);
	wrong += !IS_TOLD(last);
	recurse(0);
	wrong += !IS_TOLD(recurse);
	tail(0);
	wrong += !IS_TOLD(tail);
	wide(1, 2, 3, 4, 5, 6);
	wrong += !IS_TOLD(wide);
	large(1);
	wrong += !IS_TOLD(large);
	medium(1);
	wrong += !IS_TOLD(medium);
	sum(2, 1, 2);
	wrong += !IS_TOLD(sum);
}

void run(void)
{
	places();
	strike_watch((uintptr_t)__gnu_mcount_nc, (uintptr_t)__gnu_mcount_nc + 4096);
	strike_begin();
	for (uint32_t n = 0; n < 1000; n++) {
		thread = n % 2;
		if (wide(1, 2, 3, 4, 5, 6) != 0x123456789ABCDEF0 || tail(n) != 2 * n + 1 || recurse(9) != 9 ||
		    large(n) != 300 || medium(n) != 20 || sum(5, 1, 2, 3, 4, 5) != 20)
			wrong++;
	}
	strike_end();
	thread = 0;
	say_number("wrong", wrong);
	say_number("lows", lows);
	say_number("highs", highs);
	say_number("entered", entered);
	say_number("depth", depth);
	say_number("most", most);
	strike_seen();
}
