/* The table of functions against the trace of the same run: both are written into files. Functions call
 * each other, also themselves, and two interrupts strike anywhere; the handlers call what the thread
 * calls. The higher one says that it is an interrupt; the lower one does with TOLD, and is no more than a
 * function without. */
#include "kymo.h"

#include "file.h"
#include "strike.h"

#ifndef ROUNDS
#define ROUNDS 1000
#endif

#define PACKET_BYTES 4096

static uint64_t buffer[2048 * PACKET_BYTES / 8] __attribute__((section(".psram")));
static kymo_slot_t slots[64];
static kymo_frame_t frames[2 * 64];

extern const uint8_t text_start[];
extern const volatile uintptr_t kymo_hot[];

const kymo_config_t kymo_config = {
	.version = KYMO_CONFIG_VERSION,
	.flags = KYMO_START_ON,
	.buffer = buffer,
	.buffer_size = sizeof buffer,
	.packet_size = PACKET_BYTES,
	.slots = slots,
	.slot_count = 64,
	.frames = frames,
	.shadow_stacks = 2,
	.shadow_depth = 64,
	.text_base = text_start,
	.counter = (const uint32_t *)BOARD_COUNTER,
	.clock_hz = 25000000,
};

static uint32_t lows, highs;

KYMO_NO_INSTRUMENT static uint32_t random(void)
{
	static uint64_t state = 88172645463325252u;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 32);
}

__attribute__((noinline)) void shared(void)
{
	__asm__ volatile("");
}

__attribute__((noinline)) void again(uint32_t depth)
{
	shared();
	if (depth != 0)
		again(depth - 1);
}

__attribute__((noinline)) void branch(uint32_t depth)
{
	uint32_t chance = random();

	shared();
	if (depth != 0 && chance % 4 == 0)
		branch(depth - 1);
	if (chance % 8 < 3)
		again(chance / 8 % 3);
}

__attribute__((noinline)) void low(void)
{
	lows++;
	again(1);
}

__attribute__((noinline)) void high(void)
{
	highs++;
	shared();
}

/* Both handlers take longer than it is to the next strike: that these struck meanwhile is forgotten, or
 * nobody else would ever go on. */
KYMO_NO_INSTRUMENT void strike_low(void)
{
#ifdef TOLD
	kymo_isr_enter(15);
#endif
	low();
#ifdef TOLD
	kymo_isr_exit(15);
#endif
	REGISTER(0xE000ED04) = 1 << 25; /* ICSR: PENDSTCLR */
}

KYMO_NO_INSTRUMENT void strike_high(void)
{
	kymo_isr_enter(24);
	high();
	kymo_isr_exit(24);
	TIMER_CLEAR = 1;
	REGISTER(0xE000E280) = 1 << 8; /* NVIC_ICPR0 */
}

KYMO_NO_INSTRUMENT void run(void)
{
	kymo_isr_enter(15);
	kymo_isr_exit(15);
	strike_begin();
	for (uint32_t n = 0; n < ROUNDS; n++)
		branch(20);
	strike_end();
	kymo_disable();
	say_number("low", lows);
	say_number("high", highs);
	say_number("last", (uint32_t)kymo_hot[0]);
	say_number("at", (uint32_t)(kymo_hot[1] - (uintptr_t)buffer));
	write_file("trace.bin", buffer, sizeof buffer);
	write_file("table.bin", slots, sizeof slots);
}
