/* A ring of items while interrupts that preempt anywhere call kymo_tick(), as kymo.h requires, and turn recording off
 * and on. Every lost item must be counted, and every item must have its timestamp. */
#include <kymo_items.h>

#include "strike.h"

KYMO_ITEMS(8);

static uint64_t buffer[1024 / 8];

const kymo_config_t kymo_config = {
	.version = KYMO_CONFIG_VERSION,
	.flags = KYMO_START_ON,
	.buffer = buffer,
	.buffer_size = sizeof buffer,
	.packet_size = 512,
	.counter = (const volatile uint32_t *)0x40028018,
	.clock_hz = 168000000,
};

KYMO_NO_INSTRUMENT void preempt_low(void)
{
	static uint32_t preempts;

	kymo_tick();
	if (++preempts % 64 == 0) {
		kymo_off();
		kymo_on();
	}
}

KYMO_NO_INSTRUMENT void preempt_high(void)
{
}

static kymo_items_cursor_t cursor;
static uint32_t next, unsaid, backward;
static uint64_t last;

static uint32_t drain(void)
{
	kymo_timed_item_t out[64];
	kymo_drained_t drained;
	uint32_t lost = 0;

	do {
		drained = kymo_items_drain(&cursor, out, 64);
		lost += drained.lost;
		for (size_t i = 0; i < drained.count; i++) {
			if (out[i].data - next > drained.lost)
				unsaid++;
			drained.lost = 0;
			next = out[i].data + 1;
			backward += out[i].time < last;
			last = out[i].time;
		}
	} while (drained.more);
	return lost;
}

void run(void)
{
	uint32_t lost = 0;

	strike_begin();
	for (uint32_t n = 0; n < RECORDS; n++) {
		kymo_ring_put(&kymo_items, KYMO_ITEM_USER(3), n);
		if (n % 50 == 49) {
			strike_end();
			lost += drain();
			strike_begin();
		}
	}
	strike_end();
	say_number("produced", RECORDS);
	say_number("next", next);
	say_number("lost", lost);
	say_number("unsaid", unsaid);
	say_number("backward", backward);
}
