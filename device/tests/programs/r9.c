/* Items whose place is in r9, recorded at three levels at once: none may be lost or damaged. */
#define KYMO_R9_COUNTER 0x40028018
#define KYMO_R9_ITEMS 64
#include "kymo_r9.h"
#include "strike.h"

#ifndef RECORDS
#define RECORDS 100000
#endif

KYMO_R9_RING;

enum { MAIN = 512, LOW, HIGH, LEVELS = 3 };

static uint32_t produced[LEVELS], taken[LEVELS], wrong, lost, early;

/* The one that is watched. (The handlers' is inlined.) */
__attribute__((noinline)) static void produce(uint32_t id, uint32_t data)
{
	kymo_r9_produce(id, data);
}

void strike_low(void)
{
	kymo_r9_produce(LOW, produced[1]++);
}

void strike_high(void)
{
	kymo_r9_produce(HIGH, produced[2]++);
}

/* Takes out what there is, and looks at every item. */
static void check(kymo_r9_reader_t *reader)
{
	static uint32_t last;
	kymo_r9_item_t item;
	int result;

	while ((result = kymo_r9_take(reader, &item)) != 0) {
		uint32_t level = (item.head & 1023) - MAIN;

		if (result < 0) {
			lost++;
			continue;
		}
		if (level >= LEVELS || item.data != taken[level])
			wrong++;
		else
			taken[level]++;
		/* Times may be swapped by an interrupt, but are near. */
		int32_t ahead = (int32_t)((item.head & ~1023u) - last) >> 10;
		if (ahead < -2000 || ahead > 20000)
			wrong++;
		early += ahead < 0;
		last = item.head & ~1023u;
	}
}

void run(void)
{
	kymo_r9_reader_t reader = { 0 };

	kymo_r9_start();
	strike_watch((uintptr_t)produce, (uintptr_t)produce + 64);
	/* The first time is not compared with anything. */
	produce(MAIN, 0);
	produced[0] = 1;
	check(&reader);
	wrong = 0;
	strike_begin();
	while (produced[0] < RECORDS) {
		for (int n = 0; n < 16; n++)
			produce(MAIN, produced[0]++);
		check(&reader);
	}
	strike_end();
	check(&reader);
	for (uint32_t level = 0; level < LEVELS; level++)
		if (taken[level] != produced[level])
			wrong++;
	say_number("records", produced[0] + produced[1] + produced[2]);
	say_number("low", produced[1]);
	say_number("high", produced[2]);
	say_number("early", early);
	say_number("wrong", wrong);
	say_number("lost", lost);
	/* What nobody takes out is lost, and told. */
	for (uint32_t n = 0; n < 3 * KYMO_R9_ITEMS; n++)
		produce(MAIN, n);
	taken[0] = 2 * KYMO_R9_ITEMS + 1;
	check(&reader);
	say_number("came_round", lost);
	say_number("wrong_then", wrong);
	say_number("last", taken[0]);
	strike_seen();
}
