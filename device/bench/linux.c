/* Measures the overhead of a recorded call on this machine, compared with its lower bound: reading the counter and
 * storing 16 bytes, at entry and at exit.
 *
 * Rounds of the two alternate, and the fastest round of each counts, because other load can only make a round slower.
 * Prints `NAME TENTHS_OF_NANOSECONDS` for a call's two hooks including their calls, minus the time of the surrounding
 * loop. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kymo.h"

#define BUFFER (1u << 20)
#define CALLS 20000

/* With OTHER_TRACER the functions are instrumented for a tracer that uses the compiler's support. */
#ifndef OTHER_TRACER

const kymo_config_t kymo_config = {
	.version = KYMO_CONFIG_VERSION,
	.flags = KYMO_START_ON,
	.buffer_size = BUFFER,
	.packet_size = 4096,
	.text_base = KYMO_TEXT_BASE,
};

void __cyg_profile_func_enter(void *function, void *call_site);
void __cyg_profile_func_exit(void *function, void *call_site);

static inline uint64_t counter(void)
{
#if defined(__x86_64__)
	uint32_t low, high;
	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
	return (uint64_t)high << 32 | low;
#elif defined(__aarch64__)
	uint64_t value;
	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(value));
	return value;
#else
#error "which counter?"
#endif
}

/* The lower bound: nothing is checked, nothing is safe, and nothing could read the records. (Not static: the compiler
 * would omit stores that nothing reads.) */
struct {
	uint64_t time;
	uint64_t function;
} floor_records[BUFFER / 16];
uint32_t floor_next;

__attribute__((noipa)) static void floor_hook(void *function, void *call_site)
{
	(void)call_site;
	uint32_t next = floor_next;
	floor_records[next].time = counter();
	floor_records[next].function = (uint64_t)(uintptr_t)function;
	floor_next = (next + 1) % (BUFFER / 16);
}

__attribute__((noipa)) static void nothing_hook(void *function, void *call_site)
{
	__asm__ volatile("" : : "r"(function), "r"(call_site));
}

/* Two functions, so that successive calls are not always of the same one. */
#define CALLEES(name, enter, exit) \
	__attribute__((noinline)) static void name##_a(void) \
	{ \
		enter((void *)name##_a, __builtin_return_address(0)); \
		__asm__ volatile(""); \
		exit((void *)name##_a, __builtin_return_address(0)); \
	} \
	__attribute__((noinline)) static void name##_b(void) \
	{ \
		enter((void *)name##_b, __builtin_return_address(0)); \
		__asm__ volatile(""); \
		exit((void *)name##_b, __builtin_return_address(0)); \
	} \
	static void name##_round(void) \
	{ \
		for (int i = 0; i < CALLS / 2; i++) { \
			name##_a(); \
			name##_b(); \
		} \
	}

CALLEES(nothing, nothing_hook, nothing_hook)
CALLEES(floor, floor_hook, floor_hook)
CALLEES(kymo, __cyg_profile_func_enter, __cyg_profile_func_exit)

#define WAYS \
	{"nothing", nothing_round, UINT64_MAX}, {"floor", floor_round, UINT64_MAX}, \
	{"kymo", kymo_round, UINT64_MAX},

#else

#define UNSEEN __attribute__((no_instrument_function))

__attribute__((noipa)) static void other_a(void)
{
	__asm__ volatile("");
}

__attribute__((noipa)) static void other_b(void)
{
	__asm__ volatile("");
}

UNSEEN static void other_round(void)
{
	for (int i = 0; i < CALLS / 2; i++) {
		other_a();
		other_b();
	}
}

#define WAYS {"other", other_round, UINT64_MAX},

#endif
#ifndef UNSEEN
#define UNSEEN
#endif

UNSEEN static uint64_t nanoseconds(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC_RAW, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

struct way {
	const char *name;
	void (*round)(void);
	uint64_t best;
};

UNSEEN int main(int argc, char **argv)
{
	struct way ways[] = {
		WAYS
	};
	int rounds = argc > 1 ? atoi(argv[1]) : 100;
	for (int i = 0; i < rounds; i++) {
		for (size_t w = 0; w < sizeof(ways) / sizeof(ways[0]); w++) {
			uint64_t start = nanoseconds();
			ways[w].round();
			uint64_t took = nanoseconds() - start;
			if (took < ways[w].best)
				ways[w].best = took;
		}
	}
	for (size_t w = 0; w < sizeof(ways) / sizeof(ways[0]); w++)
		printf("%s %llu\n", ways[w].name,
		       (unsigned long long)(ways[w].best * 10 / CALLS));
	return 0;
}
