/* A thread that gets no memory for its recording: its errno, and its later events. Also invalid names. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/resource.h>

#include "kymo.h"
#include "kymo_items.h"

const kymo_config_t kymo_config = {
	.version = KYMO_CONFIG_VERSION,
	.flags = KYMO_START_ON,
	.buffer_size = 64 << 20,
};

static int wrong;

__attribute__((noinline)) static int work(int i)
{
	__asm__ volatile("");
	return i + 1;
}

KYMO_NO_INSTRUMENT static void expect(const char *what, int found, int expected)
{
	if (found != expected) {
		printf("%s: %d, expected %d\n", what, found, expected);
		wrong = 1;
	}
}

KYMO_NO_INSTRUMENT static void *poor(void *unused)
{
	errno = 42;
	work(1);
	expect("errno after a call", errno, 42);
	kymo_marker(2);
	expect("errno after a marker", errno, 42);
	kymo_produce(KYMO_ITEM_USER(0), 1);
	expect("errno after an item", errno, 42);
	expect("a reserved record", kymo_reserve(8) != NULL, 0);
	expect("errno after that", errno, 42);
	/* More events than there are numbers of streams. */
	for (int i = 0; i < 70000; i++)
		kymo_marker(2);
	return unused;
}

KYMO_NO_INSTRUMENT static void *rich(void *unused)
{
	kymo_marker(3);
	return unused;
}

KYMO_NO_INSTRUMENT int main(int count, char **arguments)
{
	if (count < 2)
		return 1;
	kymo_thread_name(1, NULL);
	kymo_isr_name(1, NULL);
	errno = 0;
	expect("kymo_save(NULL)", kymo_save(NULL), -1);
	expect("its errno", errno, EFAULT);
	kymo_marker(1);

	struct rlimit before, little = {.rlim_cur = 100 << 20};
	pthread_attr_t small;
	pthread_t thread;
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 1 << 16);
	getrlimit(RLIMIT_AS, &before);
	little.rlim_max = before.rlim_max;
	setrlimit(RLIMIT_AS, &little);
	expect("a thread", pthread_create(&thread, &small, poor, NULL), 0);
	pthread_join(thread, NULL);
	setrlimit(RLIMIT_AS, &before);
	pthread_create(&thread, &small, rich, NULL);
	pthread_join(thread, NULL);
	expect("kymo_save", kymo_save(arguments[1]), 0);
	return wrong;
}
