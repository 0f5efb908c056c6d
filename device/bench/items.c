/* Rows of items: with interrupts masked, in a ring for one interrupt level, and with the general producer. */
#include "kymo_items.h"

#include "machine.h"
#include "rows.h"

#define PACKET_BYTES 1024

static uint64_t buffer[2 * PACKET_BYTES / 8];

KYMO_ITEMS(3);
#if !defined(__linux__)
KYMO_RING(level, 256, 2);
#endif

int main(void);

const kymo_config_t kymo_config = {
	.version = KYMO_CONFIG_VERSION,
	.flags = KYMO_START_ON,
	.buffer = buffer,
	.buffer_size = sizeof buffer,
	.packet_size = PACKET_BYTES,
	.text_base = KYMO_TEXT_BASE,
#if defined(MACHINE_COUNTER)
	.counter = MACHINE_COUNTER,
#endif
#if !defined(__linux__)
	.clock_hz = 25000000,
#endif
};

/* More items than a packet holds, so that the producer begins another one. */
#define FULL (KYMO_ITEMS_AT_ONCE + 8)

#define CALLS(name, count, call) \
	ROW(name) \
	{ \
		for (unsigned i = 0; i < (count); i++) { \
			call; \
			STAY; \
		} \
	}

CALLS(produce, TIMES, kymo_produce(KYMO_ITEM_USER(1), i))
CALLS(produce_packet, FULL, kymo_produce(KYMO_ITEM_USER(1), i))

#if defined(__linux__)

/* Rings belong to threads on Linux: the program cannot see how far they are filled. */
static void rings(void)
{
}

static void produce(void)
{
	row_produce();
}

#else

CALLS(put, TIMES, kymo_ring_put(&kymo_items, KYMO_ITEM_USER(1), i))
CALLS(put_packet, FULL, kymo_ring_put(&kymo_items, KYMO_ITEM_USER(1), i))

/* Runs a row whose items are all in one packet, and prints their size. */
#define RUN(name, ring) \
	do { \
		const uint8_t *before = (ring).at; \
		row_##name(); \
		rows_say(#name, (uint32_t)((ring).at - before), TIMES); \
	} while (0)

static void rings(void)
{
	/* The first item of each row begins a packet. */
	kymo_ring_put(&kymo_items, KYMO_ITEM_USER(0), 0);
	RUN(put, kymo_items);
	row_put_packet();
}

static void produce(void)
{
	RUN(produce, kymo_items);
}

#endif

int main(void)
{
	machine_start();
	rings();
	kymo_produce(KYMO_ITEM_USER(0), 0);
	produce();
	row_produce_packet();
	machine_stop();
	return 0;
}
