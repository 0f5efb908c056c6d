/* RTEMS's interface for producing and fetching event records (rtems/record.h), on Kymo's recorder. For code that uses
 * that interface and is to be recorded on another system. Names, arguments and records are RTEMS's. See kymo_items.h.
 *
 * Differences from RTEMS:
 * - rtems_record_prepare() masks nothing; the added items enter the ring in rtems_record_commit(), with the timestamp
 *   of that call, up to sixteen items at once.
 * - rtems_record_exit_2() records results, where RTEMS's macro records arguments.
 * - An rtems_record_item is not packed on a 64-bit machine.
 * - On Linux a process has no interrupts: rtems_record_interrupt_disable() only records (it blocks neither signals nor
 *   other threads), and the fetch functions return the calling thread's items.
 * - rtems_record_fetch() and rtems_record_drain() (as in RTEMS until 2024) count every item that they lose. They do not
 *   exist on bare-metal AArch64, where each CPU drains its own ring (kymo_items_drain()).
 * - rtems_record_dump() and the record server do not exist: the host receives the items with the rest of the trace, and
 *   RTEMS's own client receives them by kymo_rtems_stream.h.
 */
#ifndef KYMO_RTEMS_H
#define KYMO_RTEMS_H

#include "kymo_items.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ events, items */

/* Names of ten, and of a hundred, consecutive user events. */
#define KYMO_RTEMS_TEN(n)                                                                         \
	RTEMS_RECORD_USER_##n##0, RTEMS_RECORD_USER_##n##1, RTEMS_RECORD_USER_##n##2,             \
		RTEMS_RECORD_USER_##n##3, RTEMS_RECORD_USER_##n##4, RTEMS_RECORD_USER_##n##5,     \
		RTEMS_RECORD_USER_##n##6, RTEMS_RECORD_USER_##n##7, RTEMS_RECORD_USER_##n##8,     \
		RTEMS_RECORD_USER_##n##9
#define KYMO_RTEMS_NINETY(n)                                                                      \
	KYMO_RTEMS_TEN(n##1), KYMO_RTEMS_TEN(n##2), KYMO_RTEMS_TEN(n##3), KYMO_RTEMS_TEN(n##4),   \
		KYMO_RTEMS_TEN(n##5), KYMO_RTEMS_TEN(n##6), KYMO_RTEMS_TEN(n##7),                 \
		KYMO_RTEMS_TEN(n##8), KYMO_RTEMS_TEN(n##9)
#define KYMO_RTEMS_HUNDRED(n) KYMO_RTEMS_TEN(n##0), KYMO_RTEMS_NINETY(n)

typedef enum rtems_record_event {
#define KYMO_RTEMS_ID(name, id) RTEMS_RECORD_##name = id,
	KYMO_ITEM_IDS(KYMO_RTEMS_ID)
#undef KYMO_RTEMS_ID
	KYMO_RTEMS_BEFORE_USER = KYMO_ITEM_USER_0 - 1,
	KYMO_RTEMS_TEN(),
	KYMO_RTEMS_NINETY(),
	KYMO_RTEMS_HUNDRED(1),
	KYMO_RTEMS_HUNDRED(2),
	KYMO_RTEMS_HUNDRED(3),
	KYMO_RTEMS_HUNDRED(4),
	KYMO_RTEMS_TEN(50),
	RTEMS_RECORD_USER_510,
	RTEMS_RECORD_USER_511
} rtems_record_event;

#define RTEMS_RECORD_LAST RTEMS_RECORD_USER_511
#define RTEMS_RECORD_USER(index) (RTEMS_RECORD_USER_0 + (index))

/* Layout of rtems_record_item.event in a fetched item. */
#define RTEMS_RECORD_EVENT_BITS 10
#define RTEMS_RECORD_TIME_BITS 22
#define RTEMS_RECORD_TIME_EVENT(time, event) (((time) << RTEMS_RECORD_EVENT_BITS) | (event))
#define RTEMS_RECORD_GET_TIME(time_event) ((time_event) >> RTEMS_RECORD_EVENT_BITS)
#define RTEMS_RECORD_GET_EVENT(time_event) ((time_event) & ((1U << RTEMS_RECORD_EVENT_BITS) - 1U))

typedef unsigned long rtems_record_data;

/* Same memory layout as kymo_item_t. */
typedef struct rtems_record_item {
	uint32_t event;
	rtems_record_data data;
} rtems_record_item;

/* ------------------------------------------------------------------ producers */

#define rtems_record_produce kymo_produce
#define rtems_record_produce_2 kymo_produce_2
#define rtems_record_produce_critical kymo_produce_critical
#define rtems_record_produce_2_critical kymo_produce_2_critical

KYMO_SYSTEM void rtems_record_produce_n(const rtems_record_item *items, size_t n)
{
	kymo_produce_n((const kymo_item_t *)items, n);
}
KYMO_SYSTEM void rtems_record_produce_n_critical(const rtems_record_item *items, size_t n)
{
	kymo_produce_n_critical((const kymo_item_t *)items, n);
}

/* Group of items that is assembled one by one. */
typedef struct rtems_record_context {
	size_t count;
	rtems_record_item items[16];
} rtems_record_context;

KYMO_SYSTEM void rtems_record_prepare(rtems_record_context *context)
{
	context->count = 0;
}
/* A seventeenth item first commits the sixteen before it, and begins a new group. */
KYMO_SYSTEM void rtems_record_add(rtems_record_context *context, rtems_record_event event,
				  rtems_record_data data)
{
	if (context->count == sizeof(context->items) / sizeof(context->items[0])) {
		rtems_record_produce_n(context->items, context->count);
		context->count = 0;
	}
	context->items[context->count].event = event;
	context->items[context->count].data = data;
	context->count++;
}
KYMO_SYSTEM void rtems_record_commit(rtems_record_context *context)
{
	rtems_record_produce_n(context->items, context->count);
}
/* RTEMS's second argument is the processor; it is ignored here. */
#define rtems_record_prepare_critical(context, cpu_self) rtems_record_prepare(context)
KYMO_SYSTEM void rtems_record_commit_critical(rtems_record_context *context)
{
	rtems_record_produce_n_critical(context->items, context->count);
}

/* ------------------------------------------------------------------ places, calls */

#define rtems_record_line() kymo_line()
#define rtems_record_line_2(event, data) kymo_line_2(event, data)
#define rtems_record_line_3(event_0, data_0, event_1, data_1)                                     \
	kymo_line_3(event_0, data_0, event_1, data_1)
#define rtems_record_line_arg(d0) kymo_line_args(d0)
#define rtems_record_line_arg_2(d0, d1) kymo_line_args(d0, d1)
#define rtems_record_line_arg_3(d0, d1, d2) kymo_line_args(d0, d1, d2)
#define rtems_record_line_arg_4(d0, d1, d2, d3) kymo_line_args(d0, d1, d2, d3)
#define rtems_record_line_arg_5(d0, d1, d2, d3, d4) kymo_line_args(d0, d1, d2, d3, d4)
#define rtems_record_line_arg_6(d0, d1, d2, d3, d4, d5) kymo_line_args(d0, d1, d2, d3, d4, d5)
#define rtems_record_line_arg_7(d0, d1, d2, d3, d4, d5, d6)                                       \
	kymo_line_args(d0, d1, d2, d3, d4, d5, d6)
#define rtems_record_line_arg_8(d0, d1, d2, d3, d4, d5, d6, d7)                                   \
	kymo_line_args(d0, d1, d2, d3, d4, d5, d6, d7)
#define rtems_record_line_arg_9(d0, d1, d2, d3, d4, d5, d6, d7, d8)                               \
	kymo_line_args(d0, d1, d2, d3, d4, d5, d6, d7, d8)
#define rtems_record_line_arg_10(d0, d1, d2, d3, d4, d5, d6, d7, d8, d9)                          \
	kymo_line_args(d0, d1, d2, d3, d4, d5, d6, d7, d8, d9)

/* CALLER and LINE, followed by the arguments. */
#define rtems_record_caller() kymo_caller()
#define rtems_record_caller_3(event, data) kymo_caller_3(event, data)
#define rtems_record_caller_4(event_0, data_0, event_1, data_1)                                   \
	kymo_caller_4(event_0, data_0, event_1, data_1)
#define rtems_record_caller_arg(d0) kymo_caller_args(d0)
#define rtems_record_caller_arg_2(d0, d1) kymo_caller_args(d0, d1)
#define rtems_record_caller_arg_3(d0, d1, d2) kymo_caller_args(d0, d1, d2)
#define rtems_record_caller_arg_4(d0, d1, d2, d3) kymo_caller_args(d0, d1, d2, d3)
#define rtems_record_caller_arg_5(d0, d1, d2, d3, d4) kymo_caller_args(d0, d1, d2, d3, d4)
#define rtems_record_caller_arg_6(d0, d1, d2, d3, d4, d5) kymo_caller_args(d0, d1, d2, d3, d4, d5)
#define rtems_record_caller_arg_7(d0, d1, d2, d3, d4, d5, d6)                                     \
	kymo_caller_args(d0, d1, d2, d3, d4, d5, d6)
#define rtems_record_caller_arg_8(d0, d1, d2, d3, d4, d5, d6, d7)                                 \
	kymo_caller_args(d0, d1, d2, d3, d4, d5, d6, d7)
#define rtems_record_caller_arg_9(d0, d1, d2, d3, d4, d5, d6, d7, d8)                             \
	kymo_caller_args(d0, d1, d2, d3, d4, d5, d6, d7, d8)
#define rtems_record_caller_arg_10(d0, d1, d2, d3, d4, d5, d6, d7, d8, d9)                        \
	kymo_caller_args(d0, d1, d2, d3, d4, d5, d6, d7, d8, d9)

#define rtems_record_entry(event) kymo_entry(event)
#define rtems_record_entry_1(event, d0) kymo_entry_args(event, d0)
#define rtems_record_entry_2(event, d0, d1) kymo_entry_args(event, d0, d1)
#define rtems_record_entry_3(event, d0, d1, d2) kymo_entry_args(event, d0, d1, d2)
#define rtems_record_entry_4(event, d0, d1, d2, d3) kymo_entry_args(event, d0, d1, d2, d3)
#define rtems_record_entry_5(event, d0, d1, d2, d3, d4) kymo_entry_args(event, d0, d1, d2, d3, d4)
#define rtems_record_entry_6(event, d0, d1, d2, d3, d4, d5)                                       \
	kymo_entry_args(event, d0, d1, d2, d3, d4, d5)
#define rtems_record_entry_7(event, d0, d1, d2, d3, d4, d5, d6)                                   \
	kymo_entry_args(event, d0, d1, d2, d3, d4, d5, d6)
#define rtems_record_entry_8(event, d0, d1, d2, d3, d4, d5, d6, d7)                               \
	kymo_entry_args(event, d0, d1, d2, d3, d4, d5, d6, d7)
#define rtems_record_entry_9(event, d0, d1, d2, d3, d4, d5, d6, d7, d8)                           \
	kymo_entry_args(event, d0, d1, d2, d3, d4, d5, d6, d7, d8)
#define rtems_record_entry_10(event, d0, d1, d2, d3, d4, d5, d6, d7, d8, d9)                      \
	kymo_entry_args(event, d0, d1, d2, d3, d4, d5, d6, d7, d8, d9)

#define rtems_record_exit(event) kymo_exit(event)
#define rtems_record_exit_1(event, d0) kymo_exit_args(event, d0)
#define rtems_record_exit_2(event, d0, d1) kymo_exit_args(event, d0, d1)
#define rtems_record_exit_3(event, d0, d1, d2) kymo_exit_args(event, d0, d1, d2)
#define rtems_record_exit_4(event, d0, d1, d2, d3) kymo_exit_args(event, d0, d1, d2, d3)
#define rtems_record_exit_5(event, d0, d1, d2, d3, d4) kymo_exit_args(event, d0, d1, d2, d3, d4)
#define rtems_record_exit_6(event, d0, d1, d2, d3, d4, d5)                                        \
	kymo_exit_args(event, d0, d1, d2, d3, d4, d5)
#define rtems_record_exit_7(event, d0, d1, d2, d3, d4, d5, d6)                                    \
	kymo_exit_args(event, d0, d1, d2, d3, d4, d5, d6)
#define rtems_record_exit_8(event, d0, d1, d2, d3, d4, d5, d6, d7)                                \
	kymo_exit_args(event, d0, d1, d2, d3, d4, d5, d6, d7)
#define rtems_record_exit_9(event, d0, d1, d2, d3, d4, d5, d6, d7, d8)                            \
	kymo_exit_args(event, d0, d1, d2, d3, d4, d5, d6, d7, d8)
#define rtems_record_exit_10(event, d0, d1, d2, d3, d4, d5, d6, d7, d8, d9)                       \
	kymo_exit_args(event, d0, d1, d2, d3, d4, d5, d6, d7, d8, d9)

/* ------------------------------------------------------------------ interrupts */

/* Keeps the function out of line, so that its return address is the place of the call. */
#define KYMO_RTEMS_CALLED static KYMO_NO_INSTRUMENT __attribute__((noinline, unused))

/* Masks interrupts and records ISR_DISABLE with the place of the call. Returns the previous level. */
KYMO_RTEMS_CALLED uint32_t rtems_record_interrupt_disable(void)
{
	uint32_t level;

#if defined(KYMO_LINUX)
	level = 0;
#elif defined(__arm__)
	__asm__ volatile("mrs %0, PRIMASK\n\tcpsid i" : "=r"(level)::"memory");
#elif defined(__aarch64__)
	uintptr_t daif;
	__asm__ volatile("mrs %0, daif\n\tmsr daifset, #3" : "=r"(daif)::"memory");
	level = (uint32_t)daif;
#elif defined(__riscv)
	uintptr_t mstatus;
	__asm__ volatile("csrrci %0, mstatus, 8" : "=r"(mstatus)::"memory");
	level = mstatus & 8;
#else
#error "interrupts can't be masked here"
#endif
	kymo_produce_critical(KYMO_ITEM_ISR_DISABLE, KYMO_CALLER);
	return level;
}

/* Records ISR_ENABLE with the place of the call and restores the level that rtems_record_interrupt_disable()
 * returned. */
KYMO_RTEMS_CALLED void rtems_record_interrupt_enable(uint32_t level)
{
	kymo_produce_critical(KYMO_ITEM_ISR_ENABLE, KYMO_CALLER);
#if defined(__arm__) && !defined(KYMO_LINUX)
	__asm__ volatile("msr PRIMASK, %0" ::"r"(level) : "memory");
#elif defined(__aarch64__) && !defined(KYMO_LINUX)
	__asm__ volatile("msr daif, %0" ::"r"((uintptr_t)level) : "memory");
#elif defined(__riscv) && !defined(KYMO_LINUX)
	__asm__ volatile("csrs mstatus, %0" ::"r"((uintptr_t)level) : "memory");
#else
	(void)level;
#endif
}

/* ------------------------------------------------------------------ reading */

#if !defined(__aarch64__) || defined(KYMO_LINUX)
/* Position of fetches and drains: one per program (on Linux per thread), as in RTEMS. */
#ifdef KYMO_LINUX
__attribute__((weak)) __thread kymo_items_cursor_t kymo_rtems_cursor;
#else
__attribute__((weak)) kymo_items_cursor_t kymo_rtems_cursor;
#endif

typedef struct rtems_record_fetch_control {
	rtems_record_item *fetched_items;
	size_t fetched_count;
	struct {
		rtems_record_item *storage_items;
		size_t storage_item_count;
	} internal;
} rtems_record_fetch_control;

typedef enum rtems_record_fetch_status {
	RTEMS_RECORD_FETCH_DONE,
	RTEMS_RECORD_FETCH_CONTINUE,
	RTEMS_RECORD_FETCH_INVALID_ITEM_COUNT
} rtems_record_fetch_status;

/* Returns a number of items with which one fetch returns everything that the ring holds. */
#ifdef KYMO_LINUX
extern const uint32_t kymo_items_packets __attribute__((weak));
#endif
KYMO_SYSTEM size_t rtems_record_get_item_count_for_fetch(void)
{
#ifdef KYMO_LINUX
	size_t packets = &kymo_items_packets != NULL ? kymo_items_packets : 64;
#else
	size_t packets = kymo_items.packets;
#endif
	return packets * KYMO_ITEMS_AT_ONCE + 2;
}

/* Sets the memory for fetches: `count` items at `items`, at least 3. */
KYMO_SYSTEM void rtems_record_fetch_initialize(rtems_record_fetch_control *control,
					       rtems_record_item *items, size_t count)
{
	control->fetched_items = NULL;
	control->fetched_count = 0;
	control->internal.storage_items = items;
	control->internal.storage_item_count = count;
}

/* Fetches the next items: PROCESSOR, PER_CPU_OVERFLOW with the number of lost items (if any), then items in order, with
 * their timestamps. CONTINUE means that there are more. The memory may have any size, and other contexts may continue
 * to produce: every item is fetched once or counted as lost once. */
KYMO_RTEMS_CALLED rtems_record_fetch_status rtems_record_fetch(rtems_record_fetch_control *control)
{
	rtems_record_item *items = control->internal.storage_items;
	size_t count = control->internal.storage_item_count;
	size_t begin = 2, end = 2;
	uint32_t lost = 0;
	kymo_items_cursor_t before;
	kymo_drained_t drained;

	control->fetched_items = NULL;
	control->fetched_count = 0;
	if (count < begin + 1)
		return RTEMS_RECORD_FETCH_INVALID_ITEM_COUNT;
	do {
		kymo_timed_item_t some[8];
		size_t room = count - end < 8 ? count - end : 8;

		before = kymo_rtems_cursor;
		drained = kymo_items_drain(&kymo_rtems_cursor, some, room);
		if (drained.lost != 0 && end > 2) {
			/* A fetch reports its loss before all of its items, but this loss is after these items: leave
			 * it to the next fetch. */
			kymo_rtems_cursor = before;
			drained.more = true;
			break;
		}
		lost += drained.lost;
		for (size_t n = 0; n < drained.count; n++, end++) {
			uint32_t time = (uint32_t)some[n].time;

			items[end].event = RTEMS_RECORD_TIME_EVENT(time, (uint32_t)some[n].id);
			items[end].data = some[n].data;
		}
	} while (drained.more && end < count);
	if (lost != 0) {
		items[--begin].event = RTEMS_RECORD_PER_CPU_OVERFLOW;
		items[begin].data = lost;
	}
	items[--begin].event = RTEMS_RECORD_PROCESSOR;
	items[begin].data = 0;
	control->fetched_items = items + begin;
	control->fetched_count = end - begin;
	return drained.more ? RTEMS_RECORD_FETCH_CONTINUE : RTEMS_RECORD_FETCH_DONE;
}

typedef void (*rtems_record_drain_visitor)(const rtems_record_item *items, size_t count, void *arg);

/* Calls the visitor with all items produced since the last call, in pieces of the form that a fetch returns. */
KYMO_RTEMS_CALLED void rtems_record_drain(rtems_record_drain_visitor visitor, void *arg)
{
	rtems_record_item items[32];
	rtems_record_fetch_control control;
	rtems_record_fetch_status status;

	rtems_record_fetch_initialize(&control, items, sizeof items / sizeof items[0]);
	do {
		status = rtems_record_fetch(&control);
		if (control.fetched_count > 1)
			visitor(control.fetched_items, control.fetched_count, arg);
	} while (status == RTEMS_RECORD_FETCH_CONTINUE);
}

#endif

#ifdef __cplusplus
}
#endif

#endif
