/* A signal handler that saves to the file in its argument, at every instruction of a call's hooks, one after the other:
 * see `stepped.c`. Prints how often it could save, and how often its own thread was missing. The last saved file lacks
 * it. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>

#include "kymo.h"

#define UNSEEN __attribute__((no_instrument_function))
#define CALLS 100

const kymo_config_t kymo_config = {
	.version = KYMO_CONFIG_VERSION,
	.flags = KYMO_START_ON,
	.buffer_size = 64u << 10,
	.packet_size = 4096,
};

static volatile long steps, target;
static volatile int whole, missing, last;
static char **words;

__attribute__((noinline)) static void leaf(void)
{
	steps += 0;
}

UNSEEN static void handler(int signal)
{
	(void)signal;
	if (last || steps++ != target)
		return;
	if (kymo_save(words[1]) == 0)
		whole++;
	else if (errno == EBUSY)
		last = ++missing == 20;
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
	if (count < 2)
		return 1;
	words = arguments;
	struct sigaction action = {.sa_handler = handler};
	sigaction(SIGTRAP, &action, NULL);
	leaf();
	for (int i = 0; i < CALLS; i++) {
		target = i;
		steps = 0;
		stepping(1);
		leaf();
		stepping(0);
	}
	printf("whole 0 %d\nmissing 0 %d\n", whole, missing);
	return 0;
}
