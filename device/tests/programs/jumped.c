/* A signal at every instruction of the hooks, one after the other, whose handler leaves by siglongjmp: see `stepped.c`.
 * In between there are undisturbed calls of `after`, and of `deep` farther down the stack. Prints the calls, and how
 * often a handler jumped; saves to the file in its argument. */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>

#include "kymo.h"

#define UNSEEN __attribute__((no_instrument_function))
/* Packets are small, so that many signals preempt where one ends and the next begins. */
#define CALLS 900
#define LATEST 1500

#ifndef PACKETS
#define PACKETS 8192
#endif

const kymo_config_t kymo_config = {
	.version = KYMO_CONFIG_VERSION,
	.flags = KYMO_START_ON,
	.buffer_size = PACKETS * 128,
	.packet_size = 128,
	.text_base = KYMO_TEXT_BASE,
};

static volatile int after_calls, leaf_calls, deep_calls, jumps;
static volatile long steps, target;
static sigjmp_buf before;

__attribute__((noinline)) static void leaf(void)
{
	leaf_calls++;
}

__attribute__((noinline)) static void after(void)
{
	after_calls++;
}

__attribute__((noinline)) static void deep(volatile char *room)
{
	volatile char more[2000];
	more[0] = room[0] = 1;
	deep_calls++;
}

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

UNSEEN int main(int count, char **arguments)
{
	struct sigaction action = {.sa_handler = handler};
	sigaction(SIGTRAP, &action, NULL);
	if (count < 2)
		return 1;
	after();
	for (volatile int i = 0; i < CALLS; i++) {
		target = i % 3 == 0 ? i * (LATEST / 3) / CALLS * 3 : i / 3 * 2 % 128 + i % 3 - 1;
		steps = 0;
		if (sigsetjmp(before, 1) == 0) {
			stepping(1);
			leaf();
			stepping(0);
		}
		if (i % 5 == 0) {
			char room[1];
			deep(room);
		}
		for (int n = 0; n <= i % 7; n++)
			after();
	}
	if (kymo_save(arguments[1]) != 0)
		return 2;
	printf("leaf %p %d\n", (void *)leaf, leaf_calls);
	printf("after %p %d\n", (void *)after, after_calls);
	printf("deep %p %d\n", (void *)deep, deep_calls);
	printf("jumps 0 %d\n", jumps);
	return 0;
}
