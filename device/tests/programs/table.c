/* Compares the profile table with the trace of the same run: both are written into files. Functions call each other and
 * themselves, and two interrupts preempt anywhere; the handlers call the same functions as the thread. The higher
 * interrupt is recorded as such; the lower one only with TOLD, otherwise it is just a function. */
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

/* The truth, by the emulator's count of instructions: it is what the counter shows. How long the outermost calls
 * took with all that interrupted them; and how long the handlers that interrupted them, from where one says that it
 * begins to where it says that it ends. How often another one came between that and this look at it. */
static uint32_t outer, handlers, nested, unseen;
static volatile uint32_t in_call, active;

KYMO_NO_INSTRUMENT static inline uint32_t now(void)
{
	return REGISTER(BOARD_COUNTER);
}

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

#ifdef TIMES
__attribute__((noinline)) void turns(uint32_t times)
{
	while (times-- != 0)
		branch(20);
}
#endif

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

/* Both handlers take longer than it is to the next preempt: that these preempted meanwhile is forgotten, or
 * nobody else would ever go on. */
KYMO_NO_INSTRUMENT void preempt_low(void)
{
	uint32_t before = nested, begin, end;

	active = 1;
#ifdef TOLD
	kymo_isr_enter(15);
#endif
	begin = (uint32_t)kymo_hot[0];
	unseen += nested != before;
	low();
	before = nested;
#ifdef TOLD
	kymo_isr_exit(15);
#endif
	end = (uint32_t)kymo_hot[0];
	unseen += nested != before;
	active = 0;
	if (in_call)
		handlers += end - begin;
	REGISTER(0xE000ED04) = 1 << 25; /* ICSR: PENDSTCLR */
}

KYMO_NO_INSTRUMENT void preempt_high(void)
{
	uint32_t begin;

	kymo_isr_enter(24);
	begin = (uint32_t)kymo_hot[0];
	high();
	kymo_isr_exit(24);
	if (active)
		nested++;
	else if (in_call)
		handlers += (uint32_t)kymo_hot[0] - begin;
	TIMER_CLEAR = 1;
	REGISTER(0xE000E280) = 1 << 8; /* NVIC_ICPR0 */
}

KYMO_NO_INSTRUMENT void run(void)
{
	kymo_isr_enter(15);
	kymo_isr_exit(15);
	strike_begin();
	for (uint32_t n = 0; n < ROUNDS; n++) {
		uint32_t before = now();

		in_call = 1;
#ifdef TIMES
		turns(TIMES);
#else
		branch(20);
#endif
		in_call = 0;
		outer += now() - before;
	}
	strike_end();
	kymo_disable();
	say_number("low", lows);
	say_number("high", highs);
	say_number("nested", nested);
	say_number("outer", outer);
	say_number("handlers", handlers);
	say_number("unseen", unseen);
	say_number("last", (uint32_t)kymo_hot[0]);
	say_number("at", (uint32_t)(kymo_hot[1] - (uintptr_t)buffer));
	write_file("trace.bin", buffer, sizeof buffer);
	write_file("table.bin", slots, sizeof slots);
}
