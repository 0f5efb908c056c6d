/* Items: fixed-size records of the shape that RTEMS records.
 *
 * An item is a 10-bit id, a timestamp, and one word of data: 8 bytes (12 on a 64-bit machine). Items have rings of
 * their own, separate from the calls that the compiler's hooks record, and appear in the same trace. Ids 0 to 511 are
 * RTEMS's system events (kymo_item_ids.h); KYMO_ITEM_USER(0) to KYMO_ITEM_USER(511) are yours. kymo_rtems.h offers all
 * of this under RTEMS's own names.
 *
 * To record items:
 * 1. Write KYMO_ITEMS(8); once, outside of functions. The argument is the number of packets, at least 2, of 1 KiB each
 *    (4 KiB on a 64-bit machine). On Linux every thread that produces items gets that many.
 * 2. Call kymo_produce() and the other producers from any context, interrupt handlers included. Like all hooks they
 *    record while the gate is open (kymo_on(), KYMO_START_ON, a trigger), and count items that do not fit.
 *
 * kymo_config.flags selects what happens when a ring is full, as for the event buffer.
 *
 * None of these functions allocates memory or waits.
 *
 * On bare-metal AArch64, whose recorder supports several processors, each CPU has a ring, and KYMO_CPU_ITEMS(8, 4);
 * replaces KYMO_ITEMS: the number of CPUs, and the number of packets of each. Rings for one interrupt level
 * (kymo_ring_t) do not exist there.
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
	/* Extends the time between items that are further apart than a timestamp reaches; only the recorder produces
	 * it. The producers reject a group that contains this id, and count all of it as lost. kymo_ring_put() does not
	 * check for it: such an item corrupts the timestamps after it. */
	KYMO_ITEM_TIME = 511,
	KYMO_ITEM_USER_0 = 512,
	KYMO_ITEM_LAST = 1023
};

#define KYMO_ITEM_USER(n) (KYMO_ITEM_USER_0 + (n))

/* Does not compile for fewer than two packets: such a ring could hold nothing. */
#define KYMO_AT_LEAST_TWO(packets) ((packets) + 0 * sizeof(char[(packets) >= 2 ? 1 : -1]))

typedef struct kymo_item {
	uint32_t id; /* the low 10 bits count */
	uintptr_t data;
} kymo_item_t;

/* ------------------------------------------------------------------ rings */

#define KYMO_ITEM_SIZE (4u + sizeof(uintptr_t))
#define KYMO_ITEM_PACKET (sizeof(uintptr_t) == 4 ? 1024u : 4096u)

/* Maximum number of items that can be produced at once: the capacity of a packet. */
#define KYMO_ITEMS_AT_ONCE (sizeof(uintptr_t) == 4 ? 121u : 336u)

/* Ring of items. Producers in assembly use only `at`. With interrupts masked (at any interrupt level, because
 * kymo_tick() and the gate close the ring's packets, too) they read the counter, store the item at `at` (`id | now <<
 * 10`, data), advance `at`, and call kymo_item_landed(ring) when `at` has become a multiple of KYMO_ITEM_PACKET. They
 * need kymo_tick() at least every 2^21 ticks of the clock. The other fields are private to the recorder. */
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
/* Gives every thread that produces items a ring of this many packets (default: 64). */
#define KYMO_ITEMS(packets_)                                                                      \
	extern const uint32_t kymo_items_packets;                                                 \
	const uint32_t kymo_items_packets = (packets_)
#elif defined(__aarch64__)
/* Memory of the CPUs' rings. */
typedef struct kymo_cpu_items {
	void *memory;
	uint32_t packets; /* per CPU */
	uint32_t cpus;
} kymo_cpu_items_t;

#define KYMO_CPU_ITEMS(cpus_, packets_)                                                           \
	static uint8_t kymo_cpu_items_memory[(cpus_) * KYMO_AT_LEAST_TWO(packets_) * KYMO_ITEM_PACKET] \
		__attribute__((aligned(KYMO_ITEM_PACKET)));                                       \
	extern const kymo_cpu_items_t kymo_cpu_items;                                             \
	const kymo_cpu_items_t kymo_cpu_items = {kymo_cpu_items_memory, (packets_), (cpus_)}
#else
/* Counter that kymo_ring_put() reads, unless your linker script defines the symbol. */
#ifdef __arm__
#define KYMO_COUNTER_SYMBOL __asm__(".weak kymo_counter\n\t.set kymo_counter, 0xE0001004");
#else
#define KYMO_COUNTER_SYMBOL
#endif

/* Defines a ring. `number_` identifies its stream in the trace: 0 for the default ring; 256 times the level for the
 * ring of one interrupt level. */
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

/* The default ring, for all items that do not name another. */
#define KYMO_ITEMS(packets_) KYMO_RING(kymo_items, 0, packets_)

extern kymo_ring_t kymo_items;

/* Produces items in this ring, as kymo_produce_n() does in the default one. For example in a ring that only one
 * interrupt level uses. */
void kymo_ring_produce(kymo_ring_t *ring, const kymo_item_t *items, size_t count);

/* Produces one item on the shortest path: 12 instructions with interrupts masked on Armv7-M. It checks nothing but the
 * ring, so call kymo_tick() at least every 2^21 ticks of the clock. The clock must be the counter that it reads:
 * DWT_CYCCNT, or the address that your linker script defines (`kymo_counter = 0x40028018;`), which must then be
 * kymo_config.counter too. With another clock use the other producers: this one would give wrong timestamps to items in
 * a packet that another producer has begun; all others are counted as lost. */
void kymo_ring_put(kymo_ring_t *ring, uint32_t id, uintptr_t data);

/* Changes to the next packet; see kymo_ring_t. If called with interrupts masked, they stay masked for the whole change;
 * otherwise only for some steps of it. */
void kymo_item_landed(kymo_ring_t *ring);
#endif

/* ------------------------------------------------------------------ producers */

/* Produces one item. */
void kymo_produce(uint32_t id, uintptr_t data);

/* Produce items that share one timestamp and stay together: in one packet, with no other item between them, whatever
 * interrupts. At most KYMO_ITEMS_AT_ONCE; a larger group is not recorded, and counted. */
void kymo_produce_2(uint32_t id_0, uintptr_t data_0, uint32_t id_1, uintptr_t data_1);
void kymo_produce_n(const kymo_item_t *items, size_t count);

/* For callers that have masked interrupts already: they stay masked. */
#define kymo_produce_critical kymo_produce
#define kymo_produce_2_critical kymo_produce_2
#define kymo_produce_n_critical kymo_produce_n

/* Produces an item, followed by `count` words (at most 16, the rest is dropped) with ids from `first_id` on, all with
 * one timestamp. */
void kymo_produce_list(uint32_t id, uintptr_t data, uint32_t first_id, const uintptr_t *words,
		       size_t count);

/* ------------------------------------------------------------------ places, calls */

/* Return address of the enclosing function. */
#define KYMO_CALLER ((uintptr_t)__builtin_return_address(0))

/* Address of this place in the program. */
#define KYMO_HERE                                                                                 \
	(__extension__({                                                                          \
		__label__ kymo_here_;                                                             \
	kymo_here_:                                                                               \
		(uintptr_t)&&kymo_here_;                                                          \
	}))

/* Produces an item with `data_`, followed by the other arguments as items with ids from `first_` on. */
#define KYMO_LIST(id_, data_, first_, ...)                                                        \
	do {                                                                                      \
		const uintptr_t kymo_words_[] = {__VA_ARGS__};                                    \
		kymo_produce_list((id_), (data_), (first_), kymo_words_,                          \
				  sizeof(kymo_words_) / sizeof(uintptr_t));                       \
	} while (0)

/* LINE with this address. Followed by one or two more items, or by up to ten words as ARG_0 and so on. */
#define kymo_line() kymo_produce(KYMO_ITEM_LINE, KYMO_HERE)
#define kymo_line_2(id_1, data_1) kymo_produce_2(KYMO_ITEM_LINE, KYMO_HERE, id_1, data_1)
#define kymo_line_3(id_1, data_1, id_2, data_2)                                                   \
	KYMO_3(KYMO_ITEM_LINE, KYMO_HERE, id_1, data_1, id_2, data_2)
#define kymo_line_args(...) KYMO_LIST(KYMO_ITEM_LINE, KYMO_HERE, KYMO_ITEM_ARG_0, __VA_ARGS__)

/* CALLER with the enclosing function's return address, and LINE with this address. Followed by one or two more items,
 * or by up to ten words as ARG_0 and so on. */
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

/* Implements kymo_caller_args(). At most ten words; the rest is dropped. */
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

/* Entry to or exit from a function: the id with the function's return address, followed by up to ten arguments as ARG_0
 * and so on, or results as RETURN_0 and so on. */
#define kymo_entry(id_) kymo_produce((id_), KYMO_CALLER)
#define kymo_entry_args(id_, ...) KYMO_LIST(id_, KYMO_CALLER, KYMO_ITEM_ARG_0, __VA_ARGS__)
#define kymo_exit(id_) kymo_produce((id_), KYMO_CALLER)
#define kymo_exit_args(id_, ...) KYMO_LIST(id_, KYMO_CALLER, KYMO_ITEM_RETURN_0, __VA_ARGS__)

/* ------------------------------------------------------------------ system events */

/* The enclosing function has masked interrupts, or is about to unmask them. Records its return address. */
#define kymo_interrupt_disabled() kymo_produce_critical(KYMO_ITEM_ISR_DISABLE, KYMO_CALLER)
#define kymo_interrupt_enabling() kymo_produce_critical(KYMO_ITEM_ISR_ENABLE, KYMO_CALLER)

#define KYMO_SYSTEM static inline KYMO_NO_INSTRUMENT

/* An interrupt handler begins, or ends. (Call stacks need kymo_isr_enter().) */
KYMO_SYSTEM void kymo_interrupt_entry(uintptr_t vector)
{
	kymo_produce(KYMO_ITEM_INTERRUPT_ENTRY, vector);
}
KYMO_SYSTEM void kymo_interrupt_exit(uintptr_t vector)
{
	kymo_produce(KYMO_ITEM_INTERRUPT_EXIT, vector);
}

/* A lock is requested, acquired, released. */
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

/* Memory was allocated from a zone, or freed to it. */
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

/* A network packet is received or sent. `id` is one of KYMO_ITEM_ETHER_INPUT, ETHER_OUTPUT, IP_INPUT, IP_OUTPUT,
 * IP6_INPUT, IP6_OUTPUT, TCP_INPUT, TCP_OUTPUT, UDP_INPUT, UDP_OUTPUT; then the packet's buffer, and its length in
 * bytes. */
KYMO_SYSTEM void kymo_network(uint32_t id, const void *buffer, size_t length)
{
	kymo_produce_2(id, (uintptr_t)buffer, KYMO_ITEM_LENGTH, length);
}

/* Records a text, with one item of this id per word: KYMO_ITEM_ARCH, BSP, MULTILIB, TOOLS, VERSION_CONTROL_KEY.
 * Character k of a word is in its bits 8k to 8k + 7, on every machine. At most KYMO_ITEMS_AT_ONCE words. */
void kymo_text(uint32_t id, const char *text);

/* Describes the target; NULL omits a text. */
KYMO_SYSTEM void kymo_target(const char *arch, const char *multilib, const char *bsp,
			     const char *version, const char *tools)
{
	kymo_text(KYMO_ITEM_ARCH, arch);
	kymo_text(KYMO_ITEM_MULTILIB, multilib);
	kymo_text(KYMO_ITEM_BSP, bsp);
	kymo_text(KYMO_ITEM_VERSION_CONTROL_KEY, version);
	kymo_text(KYMO_ITEM_TOOLS, tools);
}

/* Records a block of memory: ADDRESS, LENGTH (in bytes), then its words as MEMORY, the last one padded with zeros. A
 * block of more than 16 words is recorded in several such groups, each complete and with one timestamp. */
void kymo_memory(const void *address, size_t length);

/* Records a set of saved registers: ADDRESS, LENGTH, then the registers as REGISTERS. */
void kymo_registers(const void *saved, size_t length);

/* ------------------------------------------------------------------ reading */

/* Item with a full timestamp. */
typedef struct kymo_timed_item {
	uint64_t time; /* ticks */
	uintptr_t data;
	uint16_t id;
} kymo_timed_item_t;

/* Position of a reader. All zero at first. */
typedef struct kymo_items_cursor {
	uint64_t reserved_time;
	uint32_t reserved[6];
} kymo_items_cursor_t;

typedef struct kymo_drained {
	size_t count;  /* number of items returned */
	uint32_t lost; /* number lost before them, since the last call: overwritten or not recorded */
	bool more;     /* there is more to read */
} kymo_drained_t;

/* Reads up to `count` items after `cursor`, in order, and advances the cursor, while other contexts continue to
 * produce. `items` may have any size. Every item that was produced is returned once or counted as lost once. On Linux
 * it reads the items of the calling thread.
 *
 * One call takes a bounded time. If interrupts produce items faster than this reads them, `more` may never become
 * false: limit the loop around it. */
kymo_drained_t kymo_items_drain(kymo_items_cursor_t *cursor, kymo_timed_item_t *items,
				size_t count);

#ifdef __cplusplus
}
#endif

#endif
