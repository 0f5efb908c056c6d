/* A signal handler that leaves a hook by siglongjmp, from deep calls to shallow ones, and the calls that follow. Prints
 * the calls of each kind, and how often a handler jumped; saves to the file in its argument. */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>

#include "kymo.h"

#define UNSEEN __attribute__((no_instrument_function))
#define ROUNDS 500
#define DEPTH 40

const kymo_config_t kymo_config = {
	.version = KYMO_CONFIG_VERSION,
	.flags = KYMO_START_ON,
	.buffer_size = 8 << 20,
	.text_base = KYMO_TEXT_BASE,
};

static volatile int few_calls, many_calls, again_calls, deep_calls, leaf_calls, jumps;
static volatile long steps, target;
static sigjmp_buf before;

UNSEEN static void handler(int signal)
{
	if (steps++ != target)
		return;
	jumps++;
	siglongjmp(before, signal);
}

UNSEEN static inline void stepping(int on)
{
	unsigned long flags;
	__asm__ volatile("pushfq; popq %0" : "=r"(flags));
	flags = on ? flags | 0x100 : flags & ~0x100ul;
	__asm__ volatile("pushq %0; popfq" : : "r"(flags) : "cc", "memory");
}

__attribute__((noinline)) static void leaf(void)
{
	leaf_calls++;
}

__attribute__((noinline)) static void few(void)
{
	few_calls++;
}

__attribute__((noinline)) static void many(void)
{
	many_calls++;
}

__attribute__((noinline)) static void again(void)
{
	again_calls++;
}

__attribute__((noinline)) static void deep(int depth, int strike)
{
	deep_calls++;
	if (depth > 0)
		deep(depth - 1, strike);
	else if (strike) {
		stepping(1);
		leaf();
		stepping(0);
	}
	__asm__ volatile("");
}

UNSEEN int main(int count, char **arguments)
{
	struct sigaction action = {.sa_handler = handler};
	sigaction(SIGTRAP, &action, NULL);
	if (count < 2)
		return 1;
	deep(DEPTH, 0);
	for (volatile int i = 0; i < ROUNDS; i++) {
		target = i % 120;
		steps = 0;
		if (sigsetjmp(before, 1) == 0)
			deep(DEPTH, 1);
		/* Fewer than are kept until it is certain that the hook was left. */
		for (int n = 0; n < 10; n++)
			few();
		if (i % 5 == 0)
			for (int n = 0; n < 500; n++)
				many();
		/* Certain from here on. */
		deep(DEPTH, 0);
		again();
	}
	if (kymo_save(arguments[1]) != 0)
		return 2;
	printf("few %p %d\n", (void *)few, few_calls);
	printf("many %p %d\n", (void *)many, many_calls);
	printf("again %p %d\n", (void *)again, again_calls);
	printf("deep %p %d\n", (void *)deep, deep_calls);
	printf("leaf %p %d\n", (void *)leaf, leaf_calls);
	printf("jumps 0 %d\n", jumps);
	return 0;
}
