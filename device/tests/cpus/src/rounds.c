/* What the CPUs call, compiled with -finstrument-functions. */
#include <stdint.h>

#include "kymo.h"

/* The work of the timer interrupt. */
__attribute__((noinline)) uint32_t beat_step(uint32_t n)
{
	__asm__ volatile("" : "+r"(n));
	return n + 1;
}

uint32_t beat(uint32_t n)
{
	return beat_step(n) + 1;
}

/* A round: an entry, a marker, an exit. */
#define ROUND(name)                                                                                \
	void name(uint32_t n)                                                                          \
	{                                                                                              \
		kymo_marker(n);                                                                            \
	}
ROUND(round_a)
ROUND(round_b)
ROUND(round_c)
ROUND(round_d)
