/* One ring of items, written with kymo_ring_put() at three levels at once and read by the lowest one with a small
 * buffer. Every item must be returned once, in order, or counted as lost once, and every call must end however fast
 * interrupts write. */
#include "kymo_items.h"

#include "strike.h"

#ifndef RECORDS
#define RECORDS 10000
#endif

KYMO_ITEMS(4);

extern const uint8_t text_start[];
static uint64_t buffer[256];

const kymo_config_t kymo_config = {
	.version = KYMO_CONFIG_VERSION,
	.flags = KYMO_START_ON,
	.buffer = buffer,
	.buffer_size = sizeof buffer,
	.packet_size = 1024,
	.text_base = text_start,
	.counter = (const uint32_t *)BOARD_COUNTER,
	.clock_hz = 25000000,
};

enum { MAIN, LOW, HIGH, LEVELS };

static uint32_t produced[LEVELS], next[LEVELS], got, missing, lost, wrong, backward, stuck;

static inline void produce(uint32_t level)
{
	uint32_t n = produced[level]++;

	/* In both ways. */
	if (n % 4 == 3)
		kymo_produce(KYMO_ITEM_USER(level), n);
	else
		kymo_ring_put(&kymo_items, KYMO_ITEM_USER(level), n);
}

void preempt_low(void)
{
	produce(LOW);
}

void preempt_high(void)
{
	produce(HIGH);
	/* Times need a tick every 2^21 ticks of the clock. */
	if (produced[HIGH] % 16 == 0)
		kymo_tick();
	/* More at once than the reader gets in one call. */
	if (produced[HIGH] % 64 == 0)
		for (int n = 0; n < 20; n++)
			produce(HIGH);
}

/* Takes out what there is, in so many calls at most; whether that is all. */
static bool take(kymo_items_cursor_t *cursor, uint32_t calls)
{
	static uint64_t last;
	kymo_timed_item_t items[7];

	while (calls-- != 0) {
		kymo_drained_t drained = kymo_items_drain(cursor, items, 7);

		lost += drained.lost;
		for (size_t n = 0; n < drained.count; n++) {
			uint32_t level = items[n].id - KYMO_ITEM_USER_0;
			uint32_t data = items[n].data;

			backward += items[n].time < last;
			last = items[n].time;
			if (level >= LEVELS || data < next[level]) {
				wrong++;
				continue;
			}
			missing += data - next[level];
			next[level] = data + 1;
			got++;
		}
		if (!drained.more)
			return true;
	}
	return false;
}

void run(void)
{
	kymo_items_cursor_t cursor = { 0 };
	uint32_t late = 0;

	produce(MAIN);
	strike_watch((uintptr_t)kymo_ring_put, (uintptr_t)kymo_ring_put + 64);
	strike_begin();
	while (produced[MAIN] < RECORDS) {
		/* Now and then the reader is so late that the ring goes round. */
		uint32_t before = produced[MAIN] % 4096 < 3072 ? 8 : 700;

		for (uint32_t n = 0; n < before; n++)
			produce(MAIN);
		late += !take(&cursor, 50);
	}
	strike_end();
	stuck = !take(&cursor, 1000);
	for (uint32_t level = 0; level < LEVELS; level++)
		missing += produced[level] - next[level];
	say_number("records", produced[MAIN] + produced[LOW] + produced[HIGH]);
	say_number("low", produced[LOW]);
	say_number("high", produced[HIGH]);
	say_number("got", got);
	say_number("missing", missing);
	say_number("lost", lost);
	say_number("wrong", wrong);
	say_number("backward", backward);
	say_number("late", late);
	say_number("stuck", stuck);
	strike_seen();
}
