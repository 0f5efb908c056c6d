/* Kymo's recorder: items, which are events of the shape that RTEMS records.
 *
 * An item is an id of 10 bits, a time, and one word of data: 8 bytes (12 on a 64-bit machine). Items
 * go into rings of their own beside the calls that the compiler's hooks record, and appear in the
 * same trace. Ids 0 to 511 are RTEMS's system events (kymo_item_ids.h), KYMO_ITEM_USER(0) to
 * KYMO_ITEM_USER(511) yours. kymo_rtems.h has all of this under RTEMS's own names.
 *
 * To have them:
 *   1. Write KYMO_ITEMS(8); once, outside of functions: so many packets, 1 KiB each (4 KiB on a
 *      64-bit machine). At least 2. On Linux every thread that produces gets as many.
 *   2. Call kymo_produce() and the others from anywhere, interrupt handlers too. They record while
 *      the gate is open (kymo_on(), KYMO_START_ON, a trigger), as all hooks do, and count what
 *      cannot be kept.
 *
 * What happens when a ring is full is said in kymo_config.flags, as for the event buffer.
 *
 * None of these functions allocates or waits.
 *
 * On bare AArch64, whose recorder is made for several processors, each CPU has a ring, and
 * KYMO_CPU_ITEMS(8, 4); stands for KYMO_ITEMS: for so many CPUs so many packets each. There are no
 * rings of one level of interrupts there (kymo_ring_t).
 */
#ifndef KYMO_ITEMS_H
#define KYMO_ITEMS_H

#include "kymo.h"
#include "kymo_item_ids.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ ids */

enum kymo_item_id {
#define KYMO_ITEM_ID(name, id) KYMO_ITEM_##name = id,
	KYMO_ITEM_IDS(KYMO_ITEM_ID)
#undef KYMO_ITEM_ID
	/* Items are further apart than their own times reach; made by the recorder alone. What shares its time with
	 * an item of this id is counted as lost; kymo_ring_put() does not look at it, and spoils the times behind it. */
	KYMO_ITEM_TIME = 511,
	KYMO_ITEM_USER_0 = 512,
	KYMO_ITEM_LAST = 1023
};

#define KYMO_ITEM_USER(n) (KYMO_ITEM_USER_0 + (n))

/* A ring of fewer packets than two could hold nothing; here it does not compile. */
#define KYMO_AT_LEAST_TWO(packets) ((packets) + 0 * sizeof(char[(packets) >= 2 ? 1 : -1]))

typedef struct kymo_item {
	uint32_t id; /* of more than 10 bits the low ones */
	uintptr_t data;
} kymo_item_t;

/* ------------------------------------------------------------------ rings */

#define KYMO_ITEM_SIZE (4u + sizeof(uintptr_t))
#define KYMO_ITEM_PACKET (sizeof(uintptr_t) == 4 ? 1024u : 4096u)

/* So many items can be produced at once at most: what a packet holds. */
#define KYMO_ITEMS_AT_ONCE (sizeof(uintptr_t) == 4 ? 121u : 336u)

/* A ring. Producers in assembly need `at` alone: with interrupts masked (whatever level uses the ring: kymo_tick()
 * and the gate close its packets, too) read the counter, store the item there (`id | now << 10`, data), move
 * `at` behind it, and when it has become a multiple of KYMO_ITEM_PACKET call
 * kymo_item_landed(ring). They call kymo_tick() at least every 2^21 ticks of the clock. All the rest
 * is the recorder's. */
typedef struct kymo_ring {
	uint8_t *at;
	uint8_t *memory;
	uint32_t packets;
	uint16_t number;
	uint8_t reserved_state[2];
	uint32_t reserved_counts[10];
	uint8_t reserved_flags[4];
	uint32_t reserved_time[2];
	struct kymo_ring *reserved_next;
} kymo_ring_t;

#ifdef KYMO_LINUX
/* Every thread that produces gets a ring of so many packets (without this: 64). */
#define KYMO_ITEMS(packets_)                                                                      \
	extern const uint32_t kymo_items_packets;                                                 \
	const uint32_t kymo_items_packets = (packets_)
#elif defined(__aarch64__)
/* The memory of the CPUs' rings. */
typedef struct kymo_cpu_items {
	void *memory;
	uint32_t packets; /* of each CPU */
	uint32_t cpus;
} kymo_cpu_items_t;

#define KYMO_CPU_ITEMS(cpus_, packets_)                                                           \
	static uint8_t kymo_cpu_items_memory[(cpus_) * KYMO_AT_LEAST_TWO(packets_) * KYMO_ITEM_PACKET] \
		__attribute__((aligned(KYMO_ITEM_PACKET)));                                       \
	extern const kymo_cpu_items_t kymo_cpu_items;                                             \
	const kymo_cpu_items_t kymo_cpu_items = {kymo_cpu_items_memory, (packets_), (cpus_)}
#else
/* What kymo_ring_put() reads, if your linker script does not say otherwise. */
#ifdef __arm__
#define KYMO_COUNTER_SYMBOL __asm__(".weak kymo_counter\n\t.set kymo_counter, 0xE0001004");
#else
#define KYMO_COUNTER_SYMBOL
#endif

/* Defines a ring. `number_` tells its stream from others in the trace: 0 for the one of all items; for
 * a ring of one level of interrupts 256 times the level. */
#define KYMO_RING(name_, number_, packets_)                                                       \
	KYMO_COUNTER_SYMBOL                                                                       \
	static uint8_t name_##_memory[KYMO_AT_LEAST_TWO(packets_) * KYMO_ITEM_PACKET]             \
		__attribute__((aligned(KYMO_ITEM_PACKET)));                                       \
	kymo_ring_t name_ = {name_##_memory + KYMO_ITEM_PACKET - KYMO_ITEM_SIZE,                  \
			     name_##_memory,                                                      \
			     (packets_),                                                          \
			     (number_),                                                           \
			     {0},                                                                 \
			     {0},                                                                 \
			     {0},                                                                 \
			     {0},                                                                 \
			     NULL}

/* The ring of all items that don't name another. */
#define KYMO_ITEMS(packets_) KYMO_RING(kymo_items, 0, packets_)

extern kymo_ring_t kymo_items;

/* Produces into this ring as kymo_produce_n() does into that of all items: into one that only one level
 * of interrupts uses, say. */
void kymo_ring_produce(kymo_ring_t *ring, const kymo_item_t *items, size_t count);

/* One item, as fast as can be: on Armv7-M 12 instructions with interrupts masked. It looks at
 * nothing but the ring, so call kymo_tick() at least every 2^21 ticks of the clock, and let the clock
 * be the counter that it reads: DWT_CYCCNT, or what your linker script says (`kymo_counter =
 * 0x40028018;`), which must then be kymo_config.counter too. With another clock use the other producers: this
 * one would give a wrong time to items in a packet that another producer has begun; all others are counted as lost. */
void kymo_ring_put(kymo_ring_t *ring, uint32_t id, uintptr_t data);

/* See kymo_ring_t. Called with interrupts masked it leaves them so for all of a packet's change; else they are masked
 * in it for some steps only. */
void kymo_item_landed(kymo_ring_t *ring);
#endif

/* ------------------------------------------------------------------ producers */

/* One item. */
void kymo_produce(uint32_t id, uintptr_t data);

/* Items that share one time and stay together: no other item comes between them, whatever interrupts,
 * and all are in one packet. At most KYMO_ITEMS_AT_ONCE; more are not recorded, and counted. */
void kymo_produce_2(uint32_t id_0, uintptr_t data_0, uint32_t id_1, uintptr_t data_1);
void kymo_produce_n(const kymo_item_t *items, size_t count);

/* The same where the caller has masked interrupts already: they stay so. */
#define kymo_produce_critical kymo_produce
#define kymo_produce_2_critical kymo_produce_2
#define kymo_produce_n_critical kymo_produce_n

/* An item, and behind it `count` words (at most 16, the rest is left out) with the ids from
 * `first_id` on, all of one time. */
void kymo_produce_list(uint32_t id, uintptr_t data, uint32_t first_id, const uintptr_t *words,
		       size_t count);

/* ------------------------------------------------------------------ places, calls */

/* Where the calling function was called from. */
#define KYMO_CALLER ((uintptr_t)__builtin_return_address(0))

/* This place in the program. */
#define KYMO_HERE                                                                                 \
	(__extension__({                                                                          \
		__label__ kymo_here_;                                                             \
	kymo_here_:                                                                               \
		(uintptr_t)&&kymo_here_;                                                          \
	}))

/* An item with `data_`, then the other arguments as items with ids from `first_` on. */
#define KYMO_LIST(id_, data_, first_, ...)                                                        \
	do {                                                                                      \
		const uintptr_t kymo_words_[] = {__VA_ARGS__};                                    \
		kymo_produce_list((id_), (data_), (first_), kymo_words_,                          \
				  sizeof(kymo_words_) / sizeof(uintptr_t));                       \
	} while (0)

/* LINE: this place. With another item or two, or with up to ten words as ARG_0 and so on. */
#define kymo_line() kymo_produce(KYMO_ITEM_LINE, KYMO_HERE)
#define kymo_line_2(id_1, data_1) kymo_produce_2(KYMO_ITEM_LINE, KYMO_HERE, id_1, data_1)
#define kymo_line_3(id_1, data_1, id_2, data_2)                                                   \
	KYMO_3(KYMO_ITEM_LINE, KYMO_HERE, id_1, data_1, id_2, data_2)
#define kymo_line_args(...) KYMO_LIST(KYMO_ITEM_LINE, KYMO_HERE, KYMO_ITEM_ARG_0, __VA_ARGS__)

/* CALLER: where this function was called from, and LINE: this place. With another item or two, or with
 * up to ten words as ARG_0 and so on. */
#define kymo_caller()                                                                             \
	kymo_produce_2(KYMO_ITEM_CALLER, KYMO_CALLER, KYMO_ITEM_LINE, KYMO_HERE)
#define kymo_caller_3(id_2, data_2)                                                               \
	KYMO_3(KYMO_ITEM_CALLER, KYMO_CALLER, KYMO_ITEM_LINE, KYMO_HERE, id_2, data_2)
#define kymo_caller_4(id_2_, data_2_, id_3_, data_3_)                                             \
	do {                                                                                      \
		const kymo_item_t kymo_items_[] = {{KYMO_ITEM_CALLER, KYMO_CALLER},               \
						   {KYMO_ITEM_LINE, KYMO_HERE},                   \
						   {(id_2_), (data_2_)},                          \
						   {(id_3_), (data_3_)}};                         \
		kymo_produce_n(kymo_items_, 4);                                                   \
	} while (0)
#define kymo_caller_args(...)                                                                     \
	do {                                                                                      \
		const uintptr_t kymo_words_[] = {__VA_ARGS__};                                    \
		kymo_caller_list(KYMO_CALLER, KYMO_HERE, kymo_words_,                             \
				 sizeof(kymo_words_) / sizeof(uintptr_t));                        \
	} while (0)

/* What kymo_caller_args() calls: of more than ten words the rest is left out. */
static inline KYMO_NO_INSTRUMENT void kymo_caller_list(uintptr_t caller, uintptr_t line,
						       const uintptr_t *words, size_t count)
{
	kymo_item_t items[12] = {{KYMO_ITEM_CALLER, caller}, {KYMO_ITEM_LINE, line}};

	if (count > 10)
		count = 10;
	for (size_t n = 0; n < count; n++) {
		items[2 + n].id = KYMO_ITEM_ARG_0 + n;
		items[2 + n].data = words[n];
	}
	kymo_produce_n(items, 2 + count);
}

#define KYMO_3(id_0_, data_0_, id_1_, data_1_, id_2_, data_2_)                                    \
	do {                                                                                      \
		const kymo_item_t kymo_items_[] = {                                               \
			{(id_0_), (data_0_)}, {(id_1_), (data_1_)}, {(id_2_), (data_2_)}};        \
		kymo_produce_n(kymo_items_, 3);                                                   \
	} while (0)

/* A function is entered, or left: the id with the function's caller, then up to ten arguments as
 * ARG_0 and so on, or results as RETURN_0 and so on. */
#define kymo_entry(id_) kymo_produce((id_), KYMO_CALLER)
#define kymo_entry_args(id_, ...) KYMO_LIST(id_, KYMO_CALLER, KYMO_ITEM_ARG_0, __VA_ARGS__)
#define kymo_exit(id_) kymo_produce((id_), KYMO_CALLER)
#define kymo_exit_args(id_, ...) KYMO_LIST(id_, KYMO_CALLER, KYMO_ITEM_RETURN_0, __VA_ARGS__)

/* ------------------------------------------------------------------ system events */

/* Interrupts were masked, or are about to be unmasked, by the function that says so: with its
 * caller. */
#define kymo_interrupt_disabled() kymo_produce_critical(KYMO_ITEM_ISR_DISABLE, KYMO_CALLER)
#define kymo_interrupt_enabling() kymo_produce_critical(KYMO_ITEM_ISR_ENABLE, KYMO_CALLER)

#define KYMO_SYSTEM static inline KYMO_NO_INSTRUMENT

/* An interrupt handler begins, or ends. (kymo_isr_enter() tells the call stacks of it.) */
KYMO_SYSTEM void kymo_interrupt_entry(uintptr_t vector)
{
	kymo_produce(KYMO_ITEM_INTERRUPT_ENTRY, vector);
}
KYMO_SYSTEM void kymo_interrupt_exit(uintptr_t vector)
{
	kymo_produce(KYMO_ITEM_INTERRUPT_EXIT, vector);
}

/* A lock is asked for, was got, was given back. */
KYMO_SYSTEM void kymo_lock_acquire_entry(const void *lock)
{
	kymo_produce(KYMO_ITEM_ISR_LOCK_ACQUIRE_ENTRY, (uintptr_t)lock);
}
KYMO_SYSTEM void kymo_lock_acquire_exit(const void *lock)
{
	kymo_produce(KYMO_ITEM_ISR_LOCK_ACQUIRE_EXIT, (uintptr_t)lock);
}
KYMO_SYSTEM void kymo_lock_release(const void *lock)
{
	kymo_produce(KYMO_ITEM_ISR_LOCK_RELEASE, (uintptr_t)lock);
}

/* Something was taken from a zone of memory, or given back to it. */
KYMO_SYSTEM void kymo_zone_alloc(const void *zone, const void *pointer)
{
	kymo_produce_2(KYMO_ITEM_UMA_ALLOC_ZONE, (uintptr_t)zone, KYMO_ITEM_UMA_ALLOC_PTR,
		       (uintptr_t)pointer);
}
KYMO_SYSTEM void kymo_zone_free(const void *zone, const void *pointer)
{
	kymo_produce_2(KYMO_ITEM_UMA_FREE_ZONE, (uintptr_t)zone, KYMO_ITEM_UMA_FREE_PTR,
		       (uintptr_t)pointer);
}

/* A packet of the network goes in or out: one of KYMO_ITEM_ETHER_INPUT, ETHER_OUTPUT, IP_INPUT,
 * IP_OUTPUT, IP6_INPUT, IP6_OUTPUT, TCP_INPUT, TCP_OUTPUT, UDP_INPUT, UDP_OUTPUT; its buffer, and how
 * many bytes. */
KYMO_SYSTEM void kymo_network(uint32_t id, const void *buffer, size_t length)
{
	kymo_produce_2(id, (uintptr_t)buffer, KYMO_ITEM_LENGTH, length);
}

/* Text under an id that is repeated for each word of it: KYMO_ITEM_ARCH, BSP, MULTILIB, TOOLS,
 * VERSION_CONTROL_KEY. Character k of a word is in its bits 8k and up, on every machine. At most
 * KYMO_ITEMS_AT_ONCE words of it. */
void kymo_text(uint32_t id, const char *text);

/* What the program runs on; NULL leaves out. */
KYMO_SYSTEM void kymo_target(const char *arch, const char *multilib, const char *bsp,
			     const char *version, const char *tools)
{
	kymo_text(KYMO_ITEM_ARCH, arch);
	kymo_text(KYMO_ITEM_MULTILIB, multilib);
	kymo_text(KYMO_ITEM_BSP, bsp);
	kymo_text(KYMO_ITEM_VERSION_CONTROL_KEY, version);
	kymo_text(KYMO_ITEM_TOOLS, tools);
}

/* A block of memory: ADDRESS, LENGTH (in bytes), then its words as MEMORY, the last filled up with
 * zeros. A block of more than 16 words comes in several such pieces, each whole in itself and of one
 * time. */
void kymo_memory(const void *address, size_t length);

/* A set of registers as it was saved: ADDRESS, LENGTH, then the registers as REGISTERS. */
void kymo_registers(const void *saved, size_t length);

/* ------------------------------------------------------------------ reading */

/* An item with its whole time. */
typedef struct kymo_timed_item {
	uint64_t time; /* ticks */
	uintptr_t data;
	uint16_t id;
} kymo_timed_item_t;

/* How far a reader has come. All zero at first. */
typedef struct kymo_items_cursor {
	uint64_t reserved_time;
	uint32_t reserved[6];
} kymo_items_cursor_t;

typedef struct kymo_drained {
	size_t count;  /* so many items were given */
	uint32_t lost; /* so many were lost in front of them, since the last call: overwritten or not recorded */
	bool more;     /* there is more to read */
} kymo_drained_t;

/* Gives the items behind `cursor`, at most `count`, in order, and moves it behind them: while all go on
 * producing, with a buffer of any size. Every item that was produced is given once or counted as lost
 * once. On Linux those of the calling thread.
 *
 * One call takes a bounded time. Where interrupts produce faster than this reads, `more` may never be
 * false: let a loop around it end by itself. */
kymo_drained_t kymo_items_drain(kymo_items_cursor_t *cursor, kymo_timed_item_t *items,
				size_t count);

#ifdef __cplusplus
}
#endif

#endif
