/* A signal at every instruction of the hooks, one after the other: the processor traps after each instruction, and the
 * trap's handler makes calls of its own, once in each call of `leaf`, one instruction later each time. Prints the
 * calls, as `everything.c` does. */
#include <signal.h>
#include <stdio.h>

#include "kymo.h"

#define UNSEEN __attribute__((no_instrument_function))
/* Packets are small, so that many signals preempt where one ends and the next begins. */
#define CALLS 400
#define LATEST 1500

const kymo_config_t kymo_config = {
	.version = KYMO_CONFIG_VERSION,
	.flags = KYMO_START_ON | KYMO_FIXED,
	.buffer_size = 4u << 20,
	.packet_size = 512,
	.text_base = KYMO_TEXT_BASE,
};

static volatile int leaf_calls, struck_calls;
static volatile long steps, target, most;

__attribute__((noinline)) static void leaf(void)
{
	leaf_calls++;
}

__attribute__((noinline)) static void struck(void)
{
	struck_calls++;
}

UNSEEN static void handler(int signal)
{
	if (steps++ != target)
		return;
	kymo_isr_enter((uint16_t)signal);
	struck();
	kymo_isr_exit((uint16_t)signal);
}

/* The trap flag: the processor traps after each instruction that begins with it set. */
UNSEEN static inline void stepping(int on)
{
	unsigned long flags;
	__asm__ volatile("pushfq; popq %0" : "=r"(flags));
	flags = on ? flags | 0x100 : flags & ~0x100ul;
	__asm__ volatile("pushq %0; popfq" : : "r"(flags) : "cc", "memory");
}

UNSEEN int main(void)
{
	struct sigaction action = {.sa_handler = handler};
	sigaction(SIGTRAP, &action, NULL);
	leaf();
	for (int i = 0; i < CALLS; i++) {
		/* Most calls take few instructions: those are all preempted. */
		target = i % 3 == 0 ? i * (LATEST / CALLS) : i / 3 * 2 % 128 + i % 3 - 1;
		steps = 0;
		stepping(1);
		leaf();
		stepping(0);
		if (steps > most)
			most = steps;
	}
	printf("leaf %p %d\n", (void *)leaf, leaf_calls);
	printf("struck %p %d\n", (void *)struck, struck_calls);
	printf("steps 0 %ld\n", most);
	return 0;
}
