/* Items whose place is in a register: six instructions for an event, five where it is inlined, and
 * interrupts are never masked.
 *
 * The next item's address lives in r9, everywhere and always. One store with write-back reserves the
 * place and fills it, so that an interrupt comes before or after it, never in between; the processor
 * does not save r9 at an exception, so the handler goes on where the interrupted code was, and that
 * goes on behind what the handler recorded.
 *
 * When this may be used:
 *   - Everything that runs is built so that it leaves r9 alone: C with -ffixed-r9, Rust with
 *     -C target-feature=+reserve-r9 (and -Z build-std, as the libraries that come with the compiler
 *     are not), the C library too. Code that keeps something in r9 for a moment, and is interrupted
 *     then, makes the handler write there.
 *   - Nothing brings back an old r9: a context switch that saves and restores r9 must be changed.
 *     Bare metal, RTIC and embassy need nothing.
 *   - Armv7-M or later. (STRD is taken up again from its beginning after an interrupt.)
 *   - kymo_r9_settle() is called at least once while KYMO_R9_ITEMS items are recorded: from a timer
 *     for instance.
 * Where any of this does not hold, take the rings of kymo_items.h, which assembly fills in 12
 * instructions with interrupts masked, or in 9 without that, if each level of interrupts has one.
 *
 * This ring is the program's own: no host reads it, and no dump has it. To have its items in the trace,
 * include kymo_items.h before this file and call kymo_r9_hand_over() in a timer's handler or the idle
 * loop: they keep their order, have the time at which they were handed over, and a second item
 * (KYMO_R9_TIME) says the counter's when they were recorded (22 bits). libkymo.a need not leave r9 alone
 * for that, as interrupts are masked while it runs; elsewhere it must, as all code.
 *
 * An item is what RTEMS records: 22 bits of time over 10 bits of id (1 to 1023; 0 stands for no item),
 * and a word of data. A handler that strikes between the reading of the time and the store has the
 * later time and the earlier place: differences of times have a sign.
 *
 * One file of the program says KYMO_R9_RING; it may define KYMO_R9_COUNTER before it includes this.
 */
#ifndef KYMO_R9_H
#define KYMO_R9_H

#include <stddef.h>
#include <stdint.h>

/* The register that counts the time, upwards: DWT_CYCCNT. */
#ifndef KYMO_R9_COUNTER
#define KYMO_R9_COUNTER 0xE0001004
#endif

/* How many items are kept: a power of two. */
#ifndef KYMO_R9_ITEMS
#define KYMO_R9_ITEMS 512
#endif

/* How many handlers may be nested. */
#define KYMO_R9_LEVELS 16

#define KYMO_R9_BYTES (8 * KYMO_R9_ITEMS)

typedef struct kymo_r9_item {
	uint32_t head; /* id in the low 10 bits, time in the upper 22 */
	uint32_t data;
} kymo_r9_item_t;

/* The ring lies at a multiple of twice its size, so that the bit behind it in r9 says that it is
 * full. A handler that comes just then, before that bit is cleared, writes behind the end. */
typedef struct kymo_r9_ring {
	kymo_r9_item_t items[KYMO_R9_ITEMS];
	kymo_r9_item_t behind[KYMO_R9_LEVELS];
} kymo_r9_ring_t;

extern kymo_r9_ring_t kymo_r9_ring;

#define KYMO_R9_RING \
	kymo_r9_ring_t kymo_r9_ring __attribute__((aligned(2 * KYMO_R9_BYTES)))

/* Where a reader stands; all zero at first. */
typedef struct kymo_r9_reader {
	uint32_t next;
} kymo_r9_reader_t;

/* To be called before anything is recorded, and before interrupts come: start-up code. Forgets all. */
static inline void kymo_r9_start(void)
{
	for (size_t n = 0; n < KYMO_R9_ITEMS; n++)
		kymo_r9_ring.items[n].head = 0;
	for (size_t n = 0; n < KYMO_R9_LEVELS; n++)
		kymo_r9_ring.behind[n].head = 0;
	__asm__ volatile("mov r9, %0" ::"r"(kymo_r9_ring.items) : "memory");
}

/* Records an item: five instructions, if id and data are in registers. */
static inline __attribute__((always_inline)) void kymo_r9_produce(uint32_t id, uint32_t data)
{
	uint32_t head = *(volatile uint32_t *)KYMO_R9_COUNTER << 10 | id;

	__asm__ volatile("strd %0, %1, [r9], #8\n\tbic r9, r9, %2" ::"r"(head), "r"(data),
			 "i"(KYMO_R9_BYTES)
			 : "memory");
}

/* Brings what was written behind the end to where it belongs. */
static inline void kymo_r9_settle(void)
{
	uint32_t was;

	__asm__ volatile("mrs %0, PRIMASK\n\tcpsid i" : "=r"(was)::"memory");
	for (size_t n = 0; n < KYMO_R9_LEVELS; n++) {
		if (kymo_r9_ring.behind[n].head != 0) {
			kymo_r9_ring.items[n] = kymo_r9_ring.behind[n];
			kymo_r9_ring.behind[n].head = 0;
		}
	}
	__asm__ volatile("msr PRIMASK, %0" ::"r"(was) : "memory");
}

/* Takes the next item out, in the order in which they were recorded: 1; 0 if there is none; -1 if the
 * ring has come round and items are lost (the next call goes on with the oldest that is left). Runs
 * on the same processor as who records. */
static inline int kymo_r9_take(kymo_r9_reader_t *reader, kymo_r9_item_t *item)
{
	volatile kymo_r9_item_t *items = kymo_r9_ring.items;
	uint32_t was, next;
	int result = 0;

	kymo_r9_settle();
	__asm__ volatile("mrs %0, PRIMASK\n\tcpsid i" : "=r"(was)::"memory");
	/* What was taken out last is empty unless it has been written again: then so may be the next. */
	if (items[(reader->next - 1) % KYMO_R9_ITEMS].head != 0) {
		__asm__ volatile("mov %0, r9" : "=r"(next));
		next = (next - (uint32_t)kymo_r9_ring.items) / 8 % KYMO_R9_ITEMS;
		items[next].head = 0;
		result = -1;
	} else {
		next = reader->next;
		item->head = items[next].head;
		item->data = items[next].data;
		items[next].head = 0;
		result = item->head != 0;
	}
	if (result != 0)
		reader->next = (next + 1) % KYMO_R9_ITEMS;
	__asm__ volatile("msr PRIMASK, %0" ::"r"(was) : "memory");
	return result;
}

#ifdef KYMO_ITEMS_H
/* The id of the item that says when the one before it was recorded. */
#ifndef KYMO_R9_TIME
#define KYMO_R9_TIME KYMO_ITEM_USER(511)
#endif

/* Hands what the ring holds over to the trace, in order. Where the ring has come round the trace says so
 * with PER_CPU_OVERFLOW, whose data is 0: how many are lost is not known. */
static inline void kymo_r9_hand_over(kymo_r9_reader_t *reader)
{
	kymo_r9_item_t item;
	uint32_t was;
	int result;

	while ((result = kymo_r9_take(reader, &item)) != 0) {
		/* What is called may use r9, and gives it back as it was. */
		__asm__ volatile("mrs %0, PRIMASK\n\tcpsid i" : "=r"(was)::"memory");
		if (result < 0)
			kymo_produce_critical(KYMO_ITEM_PER_CPU_OVERFLOW, 0);
		else
			kymo_produce_2_critical(item.head & 1023, item.data, KYMO_R9_TIME,
						item.head >> 10);
		__asm__ volatile("msr PRIMASK, %0" ::"r"(was) : "memory");
	}
}
#endif

#endif
