/* The work of the CPUs: ordinary C, compiled with -finstrument-functions. */
#include <stdint.h>

#ifdef KYMO_DEMO_DURATION
#include "kymo.h"

KYMO_CPU_DURATION(8, 2, 32, .flags = KYMO_DURATION_ON);
#endif

/* From Rust: takes the next of the global numbers, and records it. */
void say(void);

__attribute__((noinline)) static uint32_t fibonacci(uint32_t n)
{
	return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

__attribute__((noinline)) static uint32_t step(uint32_t n)
{
	return n % 2 ? 3 * n + 1 : n / 2;
}

__attribute__((noinline)) static uint32_t collatz(uint32_t n)
{
	uint32_t steps = 0;
	for (; n != 1; steps++)
		n = step(n);
	return steps;
}

/* One round of work, different on every CPU. */
uint32_t work(uint32_t cpu, uint32_t round)
{
	uint32_t result = collatz(round % 97 + cpu + 1);
	say();
	return result + fibonacci((round + cpu) % 6);
}

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
