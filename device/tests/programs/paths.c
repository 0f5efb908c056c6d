/* The same calls in every run, on all paths through a hook: records near and far from the previous one, packets that
 * end, recursion, exits whose entries are in another packet, the gate closed and opened, trigger and stopper. Prints
 * the address of `main`. */
#include <stdio.h>
#include <time.h>

#include "kymo.h"

#define UNSEEN __attribute__((no_instrument_function))

const kymo_config_t kymo_config = {
	.version = KYMO_CONFIG_VERSION,
	.flags = KYMO_START_ON | KYMO_FIXED,
	.buffer_size = 4u << 20,
	.packet_size = 512,
	.text_base = KYMO_TEXT_BASE,
};

static volatile unsigned sum, seed = 1;

UNSEEN static unsigned next(void)
{
	seed = seed * 1664525u + 1013904223u;
	return seed >> 16;
}

UNSEEN static void wait(long nanoseconds)
{
	struct timespec time = {.tv_nsec = nanoseconds};
	nanosleep(&time, NULL);
}

__attribute__((noinline)) static void leaf(void)
{
	sum++;
}

__attribute__((noinline)) static void deep(unsigned depth)
{
	if (depth == 0)
		leaf();
	else
		deep(depth - 1);
	sum++;
}

__attribute__((noinline)) static void hidden(void)
{
	kymo_disable();
	leaf();
	kymo_enable();
	leaf();
}

__attribute__((noinline)) static void last(void)
{
	leaf();
}

int main(void)
{
	printf("main %p 0\n", (void *)main);
	for (int i = 0; i < 1000; i++) {
		switch (next() % 8) {
		case 0:
			deep(next() % 100);
			break;
		case 1:
			hidden();
			break;
		case 2:
			/* Beyond a short exit, a short entry, the time of a long exit. */
			if (next() % 8 == 0)
				wait(20000L << next() % 4 * 3);
			break;
		case 3:
			kymo_marker(i);
			break;
		case 4:
			kymo_set_stopper((void *)last);
			kymo_set_trigger((void *)leaf);
			last();
			hidden();
			kymo_set_stopper(NULL);
			break;
		default:
			leaf();
		}
	}
	return 0;
}
