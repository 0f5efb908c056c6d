/* Items of every kind, in a known order; items of the wrapped allocator; a drain that counts. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kymo_rtems.h>

KYMO_ITEMS(16);

const kymo_config_t kymo_config = {.version = KYMO_CONFIG_VERSION, .flags = KYMO_START_ON};

static int failures;

#define CHECK(condition)                                                                          \
	do {                                                                                      \
		if (!(condition)) {                                                               \
			printf("line %d: %s\n", __LINE__, #condition);                            \
			failures = 1;                                                             \
		}                                                                                 \
	} while (0)

/* Every producer of RTEMS's that says where it is called, with the arguments that it has there. */
__attribute__((noinline)) static int function(int a, int b)
{
	rtems_record_entry(RTEMS_RECORD_USER_0);
	rtems_record_entry_1(RTEMS_RECORD_USER_9, 1);
	rtems_record_entry_2(RTEMS_RECORD_USER_10, (rtems_record_data)a, (rtems_record_data)b);
	rtems_record_entry_3(RTEMS_RECORD_USER_11, 1, 2, 3);
	rtems_record_entry_4(RTEMS_RECORD_USER_12, 1, 2, 3, 4);
	rtems_record_entry_5(RTEMS_RECORD_USER_13, 1, 2, 3, 4, 5);
	rtems_record_entry_6(RTEMS_RECORD_USER_14, 1, 2, 3, 4, 5, 6);
	rtems_record_entry_7(RTEMS_RECORD_USER_15, 1, 2, 3, 4, 5, 6, 7);
	rtems_record_entry_8(RTEMS_RECORD_USER_16, 1, 2, 3, 4, 5, 6, 7, 8);
	rtems_record_entry_9(RTEMS_RECORD_USER_17, 1, 2, 3, 4, 5, 6, 7, 8, 9);
	rtems_record_entry_10(RTEMS_RECORD_USER_18, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10);
	int result = a + b;
	rtems_record_caller();
	rtems_record_caller_3(RTEMS_RECORD_USER_99, 30);
	rtems_record_caller_4(RTEMS_RECORD_USER_100, 40, RTEMS_RECORD_USER_101, 50);
	rtems_record_caller_arg(1);
	rtems_record_caller_arg_2(1, 2);
	rtems_record_caller_arg_3(1, 2, 3);
	rtems_record_caller_arg_4(1, 2, 3, 4);
	rtems_record_caller_arg_5(1, 2, 3, 4, 5);
	rtems_record_caller_arg_6(1, 2, 3, 4, 5, 6);
	rtems_record_caller_arg_7(1, 2, 3, 4, 5, 6, 7);
	rtems_record_caller_arg_8(1, 2, 3, 4, 5, 6, 7, 8);
	rtems_record_caller_arg_9(1, 2, 3, 4, 5, 6, 7, 8, 9);
	rtems_record_caller_arg_10(1, 2, 3, 4, 5, 6, 7, 8, 9, 10);
	rtems_record_exit(RTEMS_RECORD_USER_499);
	rtems_record_exit_1(RTEMS_RECORD_USER_500, (rtems_record_data)result);
	rtems_record_exit_2(RTEMS_RECORD_USER_501, 1, 2);
	rtems_record_exit_3(RTEMS_RECORD_USER_502, 1, 2, 3);
	rtems_record_exit_4(RTEMS_RECORD_USER_503, 1, 2, 3, 4);
	rtems_record_exit_5(RTEMS_RECORD_USER_504, 1, 2, 3, 4, 5);
	rtems_record_exit_6(RTEMS_RECORD_USER_505, 1, 2, 3, 4, 5, 6);
	rtems_record_exit_7(RTEMS_RECORD_USER_506, 1, 2, 3, 4, 5, 6, 7);
	rtems_record_exit_8(RTEMS_RECORD_USER_507, 1, 2, 3, 4, 5, 6, 7, 8);
	rtems_record_exit_9(RTEMS_RECORD_USER_508, 1, 2, 3, 4, 5, 6, 7, 8, 9);
	rtems_record_exit_10(RTEMS_RECORD_USER_509, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10);
	return result;
}

__attribute__((noinline)) static void places(void)
{
	rtems_record_line();
	rtems_record_line_2(RTEMS_RECORD_USER(3), 30);
	rtems_record_line_3(RTEMS_RECORD_USER(4), 40, RTEMS_RECORD_USER(5), 50);
	rtems_record_line_arg(1);
	rtems_record_line_arg_2(1, 2);
	rtems_record_line_arg_3(1, 2, 3);
	rtems_record_line_arg_4(1, 2, 3, 4);
	rtems_record_line_arg_5(1, 2, 3, 4, 5);
	rtems_record_line_arg_6(1, 2, 3, 4, 5, 6);
	rtems_record_line_arg_7(1, 2, 3, 4, 5, 6, 7);
	rtems_record_line_arg_8(1, 2, 3, 4, 5, 6, 7, 8);
	rtems_record_line_arg_9(1, 2, 3, 4, 5, 6, 7, 8, 9);
	rtems_record_line_arg_10(1, 2, 3, 4, 5, 6, 7, 8, 9, 10);
}

__attribute__((noinline)) static void system_events(void)
{
	static const uint8_t block[11] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
	static const uintptr_t registers[3] = {0xA, 0xB, 0xC};
	uint32_t level = rtems_record_interrupt_disable();
	rtems_record_interrupt_enable(level);
	kymo_interrupt_entry(9);
	kymo_interrupt_exit(9);
	kymo_lock_acquire_entry((void *)0x10);
	kymo_lock_acquire_exit((void *)0x10);
	kymo_lock_release((void *)0x10);
	kymo_zone_alloc((void *)0x20, (void *)0x21);
	kymo_zone_free((void *)0x20, (void *)0x21);
	kymo_network(KYMO_ITEM_UDP_INPUT, (void *)0x30, 1500);
	kymo_target("x86", NULL, "a board", NULL, NULL);
	kymo_memory(block, sizeof block);
	kymo_registers(registers, sizeof registers);
}

/* Also what comes in pieces: 40 words. */
static void large_block(void)
{
	static uintptr_t block[40];
	for (size_t i = 0; i < 40; i++)
		block[i] = i;
	kymo_memory(block, sizeof block);
}

static void groups(void)
{
	rtems_record_context context;
	const rtems_record_item items[] = {{RTEMS_RECORD_USER(8), 1}, {RTEMS_RECORD_USER(9), 2}};
	rtems_record_produce(RTEMS_RECORD_USER_6, 60);
	rtems_record_produce_2(RTEMS_RECORD_USER_6, 61, RTEMS_RECORD_USER_7, 70);
	rtems_record_produce_n(items, 2);
	rtems_record_produce_n(items, 0);
	rtems_record_prepare(&context);
	for (uintptr_t i = 0; i < 18; i++)
		rtems_record_add(&context, RTEMS_RECORD_USER(10), i);
	rtems_record_commit(&context);
	rtems_record_prepare_critical(&context, NULL);
	rtems_record_add(&context, RTEMS_RECORD_USER_511, 11);
	rtems_record_commit_critical(&context);
}

__attribute__((noinline)) static void allocate(void)
{
	char *memory = malloc(100);
	memory = realloc(memory, 200);
	free(memory);
	memory = calloc(3, 7);
	free(memory);
	memory = aligned_alloc(64, 128);
	free(memory);
	void *pointer = NULL;
	CHECK(posix_memalign(&pointer, 256, 512) == 0);
	CHECK(((uintptr_t)pointer & 255) == 0);
	free(pointer);
}

/* More than the ring holds, read with a small buffer meanwhile: every item is given or counted. */
static void drain(void)
{
	kymo_items_cursor_t cursor = {0};
	kymo_timed_item_t items[7];
	kymo_drained_t drained;
	uintptr_t got = 0, lost = 0, next = 0;
	uint64_t time = 0;
	do {
		drained = kymo_items_drain(&cursor, items, 7);
		lost += drained.lost;
	} while (drained.more);
	CHECK(lost == 0);
	lost = 0;
	for (uintptr_t data = 0; data < 100000; data++) {
		kymo_produce(KYMO_ITEM_USER(20), data);
		/* At first the reader keeps up, later it does not. */
		if (data % (data < 50000 ? 5 : 5000) != 0)
			continue;
		drained = kymo_items_drain(&cursor, items, 7);
		lost += drained.lost;
		got += drained.count;
		for (size_t i = 0; i < drained.count; i++) {
			CHECK(items[i].id == KYMO_ITEM_USER(20));
			CHECK(items[i].data >= next && items[i].time >= time);
			CHECK(lost != 0 || items[i].data == next);
			next = items[i].data + 1;
			time = items[i].time;
		}
	}
	CHECK(lost > 0);
	do {
		drained = kymo_items_drain(&cursor, items, 7);
		lost += drained.lost;
		got += drained.count;
	} while (drained.more);
	CHECK(got + lost == 100000);
}

/* What fetches and drains of RTEMS's give: numbers from 0 on, or how many are missing. */
typedef struct seen {
	uintptr_t items, lost, next;
	uint32_t last;
	size_t pauses;
} seen_t;

static void look(const rtems_record_item *items, size_t count, void *arg)
{
	seen_t *seen = arg;
	CHECK(count > 0 && items->event == RTEMS_RECORD_PROCESSOR && items->data == 0);
	for (size_t n = 1; n < count; n++) {
		uint32_t time = RTEMS_RECORD_GET_TIME(items[n].event);
		if (items[n].event == RTEMS_RECORD_PER_CPU_OVERFLOW) {
			CHECK(n == 1);
			seen->lost += items[n].data;
			continue;
		}
		CHECK(RTEMS_RECORD_GET_EVENT(items[n].event) == RTEMS_RECORD_USER_21);
		/* What is missing stands in front of what comes behind it. */
		CHECK(items[n].data == seen->items + seen->lost);
		/* Times go on, and begin again at 2^22: where they seem to go back, this thread was kept from
		 * going on for half of that. */
		seen->pauses += ((time - seen->last) & 0x3FFFFF) >= 0x200000;
		seen->last = time;
		seen->next = items[n].data + 1;
		seen->items++;
	}
}

static void drain_as_rtems(void)
{
	rtems_record_item buffer[11];
	rtems_record_fetch_control control;
	rtems_record_fetch_status status;
	seen_t before = {0}, seen = {0};

	rtems_record_fetch_initialize(&control, buffer, 2);
	CHECK(rtems_record_fetch(&control) == RTEMS_RECORD_FETCH_INVALID_ITEM_COUNT);
	/* What was produced until now is not looked at. */
	rtems_record_fetch_initialize(&control, buffer, 11);
	do {
		status = rtems_record_fetch(&control);
		before.items += control.fetched_count;
		CHECK(control.fetched_count <= 11);
	} while (status == RTEMS_RECORD_FETCH_CONTINUE);
	CHECK(status == RTEMS_RECORD_FETCH_DONE && before.items > 100);
	for (uintptr_t data = 0; data < 50; data++)
		rtems_record_produce(RTEMS_RECORD_USER_21, data);
	do {
		status = rtems_record_fetch(&control);
		look(control.fetched_items, control.fetched_count, &seen);
	} while (status == RTEMS_RECORD_FETCH_CONTINUE);
	CHECK(seen.items == 50 && seen.lost == 0);
	for (uintptr_t data = 50; data < 100; data++)
		rtems_record_produce(RTEMS_RECORD_USER_21, data);
	rtems_record_drain(look, &seen);
	CHECK(seen.items == 100 && seen.lost == 0);
	/* More than the ring holds. */
	for (uintptr_t data = 100; data < 20100; data++)
		rtems_record_produce(RTEMS_RECORD_USER_21, data);
	rtems_record_drain(look, &seen);
	CHECK(seen.lost > 1000 && seen.items + seen.lost == 20100 && seen.next == 20100);
	/* The same into a buffer that has room for all. */
	static rtems_record_item large[16 * KYMO_ITEMS_AT_ONCE + 2];
	CHECK(rtems_record_get_item_count_for_fetch() == sizeof large / sizeof large[0]);
	for (uintptr_t data = 20100; data < 40100; data++)
		rtems_record_produce(RTEMS_RECORD_USER_21, data);
	rtems_record_fetch_initialize(&control, large, sizeof large / sizeof large[0]);
	CHECK(rtems_record_fetch(&control) == RTEMS_RECORD_FETCH_DONE);
	look(control.fetched_items, control.fetched_count, &seen);
	CHECK(control.fetched_count > 3000 && seen.items + seen.lost == 40100);
	CHECK(seen.pauses < seen.items / 10);
}

static void handler(int signal)
{
	kymo_produce(KYMO_ITEM_USER(30), (uintptr_t)signal);
}

/* Handlers that come while items are produced, and threads. */
static void *thread(void *argument)
{
	for (uintptr_t i = 0; i < 500; i++) {
		kymo_produce_2(KYMO_ITEM_USER(31), i, KYMO_ITEM_USER(32), (uintptr_t)argument);
		if (i % 50 == 0)
			raise(SIGUSR1);
	}
	return NULL;
}

int main(int count, char **paths)
{
	CHECK(count == 3);
	printf("main %zu\n", (size_t)main);
	CHECK(function(3, 4) == 7);
	places();
	system_events();
	large_block();
	groups();
	allocate();
	CHECK(kymo_save(paths[1]) == 0);
	drain();
	drain_as_rtems();
	kymo_clear();
	signal(SIGUSR1, handler);
	pthread_t threads[3];
	for (uintptr_t i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, thread, (void *)i);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	CHECK(kymo_save(paths[2]) == 0);
	return failures;
}
