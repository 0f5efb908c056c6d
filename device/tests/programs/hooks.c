/* Compares the compiler's hooks record by record. Compiled with hooks in assembly and with portable ones, it writes the
 * recording into a file (trace.bin), and prints where that ends.
 *     (nothing)  instrumented functions call each other, and two interrupts preempt anywhere
 *     COMPARE    the hooks are called with all kinds of functions, after all kinds of times, and the
 *                clock is a variable: both kinds of hooks must write the same bytes
 * EVENTS: the thread records the numbers of its rounds, and interrupts record their start and end. MINIMAL: with the
 * minimal recorder, which is turned off at the end (not with COMPARE). */
#include "kymo.h"

#include "file.h"
#include "strike.h"

#ifndef ROUNDS
#define ROUNDS 1000
#endif

void __cyg_profile_func_enter(void *function, void *call_site);
void __cyg_profile_func_exit(void *function, void *call_site);

#define PACKET_BYTES 4096

#ifdef COMPARE
#define BUFFER_BYTES (256 * PACKET_BYTES)
static volatile uint32_t clock_now;
#define COUNTER ((const uint32_t *)&clock_now)
#else
#define BUFFER_BYTES (2048 * PACKET_BYTES)
#define COUNTER ((const uint32_t *)BOARD_COUNTER)
#endif

static uint64_t buffer[BUFFER_BYTES / 8] __attribute__((section(".psram")));

extern const uint8_t text_start[];
extern const volatile uintptr_t kymo_hot[];
static void never(void);

const kymo_config_t kymo_config = {
	.version = KYMO_CONFIG_VERSION,
	.flags = KYMO_START_ON,
	.buffer = buffer,
	.buffer_size = sizeof buffer,
	.packet_size = PACKET_BYTES,
	.text_base = text_start,
#ifdef COMPARE
	.function_shift = 4,
#endif
	.stopper = never,
	.counter = COUNTER,
	.clock_hz = 25000000,
};

KYMO_NO_INSTRUMENT static void never(void)
{
}

KYMO_NO_INSTRUMENT static uint32_t random(void)
{
	static uint64_t state = 88172645463325252u;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 32);
}

#ifdef COMPARE

void preempt_low(void)
{
}

void preempt_high(void)
{
}

/* A time that one form of record reaches and another does not, or about that. */
KYMO_NO_INSTRUMENT static uint32_t pause(void)
{
	static const uint8_t bits[] = { 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 16, 17, 20, 26 };
	uint32_t chosen = bits[random() % 32 < 28 ? random() % 8 : random() % sizeof bits];
	uint32_t limit = (uint32_t)1 << chosen;

	return random() % 4 == 0 ? limit - 1 + random() % 3 : random() % limit;
}

/* A function that one form of record has a number for and another does not, or none. */
KYMO_NO_INSTRUMENT static void *function(void)
{
	static const uint32_t limits[] = { 1 << 10, 1 << 16, 1 << 17, 1 << 20, 1 << 21, 1 << 22 };
	uint32_t limit = limits[random() % 32 < 28 ? random() % 3 : random() % 6];
	uint32_t offset = random() % 4 == 0 ? limit + random() % 64 - 32 : random() % limit;

	if (random() % 16 != 0)
		offset &= ~(uint32_t)15;
	return (void *)(((uintptr_t)text_start & ~(uintptr_t)1) + (offset | 1));
}

KYMO_NO_INSTRUMENT static void other(void)
{
	switch (random() % 8) {
	case 0:
		kymo_switched_in(0x20000000 + random() % 64 * 4);
		break;
	case 1:
		kymo_isr_enter(random() % 300);
		break;
	case 2:
		kymo_isr_exit(random() % 300);
		break;
	case 3:
		kymo_marker(random());
		break;
	case 4:
		kymo_disable();
		break;
	case 5:
		kymo_enable();
		break;
	case 6:
		kymo_off();
		break;
	default:
		kymo_on();
		break;
	}
}

void run(void)
{
	for (uint32_t n = 0; n < ROUNDS; n++) {
		void *called = function();

		clock_now += pause();
		if (random() % 256 == 0)
			other();
		else if (random() % 2 == 0)
			__cyg_profile_func_enter(called, called);
		else
			__cyg_profile_func_exit(called, called);
		if (n % 4096 == 0) {
			kymo_enable();
			kymo_on();
		}
	}

#else

static uint32_t lows, highs;

/* What the host knows of the program: four functions that call each other as chance will have it.
 * The symbol table tells it where they are. */
__attribute__((noinline)) void leaf(void)
{
	__asm__ volatile("");
}

__attribute__((noinline)) void branch(uint32_t depth)
{
	uint32_t chance = random();

	leaf();
	if (depth != 0 && chance % 4 == 0)
		branch(depth - 1);
	if (chance % 8 < 3)
		leaf();
}

__attribute__((noinline)) void low_leaf(void)
{
	lows++;
}

__attribute__((noinline)) void high_leaf(void)
{
	highs++;
}

#ifdef EVENTS
#define BEGIN(irq) kymo_isr_enter(irq)
#define END(irq) kymo_isr_exit(irq)
#else
#define BEGIN(irq)
#define END(irq)
#endif

void preempt_low(void)
{
	BEGIN(15);
	low_leaf();
	END(15);
}

void preempt_high(void)
{
	BEGIN(24);
	high_leaf();
	END(24);
}

void run(void)
{
	strike_watch((uintptr_t)__cyg_profile_func_enter, (uintptr_t)__cyg_profile_func_enter + 4096);
	strike_begin();
	for (uint32_t n = 0; n < ROUNDS; n++) {
#ifdef EVENTS
		kymo_marker(n);
#endif
		branch(20);
	}
	strike_end();
	say_number("low", lows);
	say_number("high", highs);

#endif

#ifdef MINIMAL
	kymo_off();
#else
	kymo_disable();
#endif
	/* The recorder's cursor: the time of the last record, and where the next one goes. */
	say_number("last", (uint32_t)kymo_hot[0]);
	say_number("at", (uint32_t)(kymo_hot[1] - (uintptr_t)buffer));
	write_file("trace.bin", buffer, sizeof buffer);
	strike_seen();
}
