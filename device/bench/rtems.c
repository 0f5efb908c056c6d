/* Producers of events as in RTEMS's event recording (ticket 3665), rewritten from its description: an item consists of
 * a word with 22 bits of time above 10 bits of event, and a word of data, in a ring of which only the head is written.
 * The shape of 2018 is for one processor. The newer one, for several, finds its processor's ring and advances the head
 * by an atomic read-modify-write. `cargo xtask bench recorder` shows the overhead of both next to Kymo's. */
#include "rtems.h"

#include <stdatomic.h>

#include "machine.h"

#define ITEMS 64
#define EVENT_BITS 10

struct item {
	uint32_t time_event;
	unsigned long data;
} __attribute__((packed)); /* 8 bytes, or 12 */

const uint32_t rtems_item_bytes = sizeof(struct item);

struct ring {
	atomic_uint head;
	unsigned tail;
	unsigned mask;
	struct item items[ITEMS];
};

static struct ring single = { .mask = ITEMS - 1 };

__attribute__((noinline)) void rtems_up_produce(uint32_t event, unsigned long data)
{
	__typeof__(machine_mask()) was = machine_mask();
	uint32_t now = machine_counter() << EVENT_BITS;
	unsigned head = atomic_load_explicit(&single.head, memory_order_relaxed);
	struct item *item = &single.items[head & single.mask];

	item->time_event = now | event;
	item->data = data;
	atomic_store_explicit(&single.head, head + 1, memory_order_release);
	machine_unmask(was);
}

/* Armv6-M has no atomic read-modify-write. */
#if !defined(__ARM_ARCH_6M__)

#define CPUS 4

static struct ring rings[CPUS] = { { .mask = ITEMS - 1 } };
static struct ring *const ring_of[CPUS] = { &rings[0], &rings[1], &rings[2], &rings[3] };

/* Returns the current processor: a load, as from a per-CPU area. */
static volatile uint32_t this_cpu;

__attribute__((noinline)) void rtems_smp_produce(uint32_t event, unsigned long data)
{
	__typeof__(machine_mask()) was = machine_mask();
	uint32_t now = machine_counter() << EVENT_BITS;
	struct ring *ring = ring_of[this_cpu];
	unsigned head = atomic_fetch_add_explicit(&ring->head, 0, memory_order_acquire);
	struct item *item = &ring->items[head & ring->mask];

	item->time_event = now | event;
	item->data = data;
	atomic_store_explicit(&ring->head, head + 1, memory_order_release);
	machine_unmask(was);
}

#endif
