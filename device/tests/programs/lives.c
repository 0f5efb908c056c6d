/* Short-lived threads, a few at a time, with a marker, calls and items each. Saves or streams the recording to the file
 * in its argument, as its own host, and prints the memory used, in KiB. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kymo.h"
#include "kymo_items.h"

#ifndef THREADS
#define THREADS 3000
#endif
#ifndef MODE
#define MODE 0
#endif
#ifndef PACKETS
#define PACKETS 4
#endif

enum { AT_ONCE = 3 };

static FILE *file;
static uint32_t pieces;

/* Pieces are frames; answers are lines, as the questions are. */
static int over;

static void take(const uint8_t *bytes, size_t count)
{
	static const char end[] = "kymo stream: sending=0";
	if (bytes[0] == 0) {
		pieces++;
		fwrite(bytes, 1, count, file);
	} else if (count >= sizeof(end) && memcmp(bytes, end, sizeof(end) - 1) == 0) {
		over = 1;
	}
}

const kymo_config_t kymo_config = {
	.version = KYMO_CONFIG_VERSION,
	.flags = MODE | KYMO_START_ON,
	.buffer_size = PACKETS * 512,
	.packet_size = 512,
	.send = take,
};

KYMO_ITEMS(2);
#ifdef ENDED
KYMO_ENDED_THREADS(ENDED);
#endif

__attribute__((noinline)) static void work(volatile uint32_t *sum)
{
	*sum += 1;
}

static void *once(void *number)
{
	volatile uint32_t sum = 0;
	kymo_marker((uint32_t)(uintptr_t)number);
	work(&sum);
	if ((uintptr_t)number % 3 == 0) {
		kymo_produce(KYMO_ITEM_USER(0), (uintptr_t)number);
		/* Nobody else's. */
		kymo_items_cursor_t cursor = {0};
		kymo_timed_item_t items[2];
		kymo_drained_t drained = kymo_items_drain(&cursor, items, 2);
		if (drained.count != 1 || drained.lost != 0 || items[0].data != (uintptr_t)number)
			_exit(4);
	}
	/* Leaves its calls open. */
	pthread_exit(NULL);
}

static void say(const char *line)
{
	while (*line)
		kymo_link_receive((uint8_t)*line++);
	kymo_link_poll();
}

static void acknowledge(void)
{
	char line[32];
	snprintf(line, sizeof(line), "ack %u\r", pieces);
	say(line);
}

static long memory(void)
{
	long kib = 0;
	char line[256];
	FILE *status = fopen("/proc/self/status", "r");
	while (status != NULL && fgets(line, sizeof(line), status) != NULL)
		if (strncmp(line, "VmRSS:", 6) == 0)
			kib = atol(line + 6);
	if (status != NULL)
		fclose(status);
	return kib;
}

int main(int count, char **arguments)
{
	if (count < 2 || (file = fopen(arguments[1], "w")) == NULL)
		return 1;
	if (MODE == KYMO_STREAM)
		say("stream on 1\r");
	long before = memory();
	for (uintptr_t i = 0; i < THREADS; i += AT_ONCE) {
		pthread_t threads[AT_ONCE];
		for (uintptr_t n = 0; n < AT_ONCE; n++)
			if (pthread_create(&threads[n], NULL, once, (void *)(i + n)) != 0)
				return 2;
		for (int n = 0; n < AT_ONCE; n++)
			pthread_join(threads[n], NULL);
		if (MODE == KYMO_STREAM)
			acknowledge();
	}
	printf("%ld\n", memory() - before);
	while (MODE == KYMO_STREAM && !over) {
		acknowledge();
		say("stream off\r");
	}
	fclose(file);
	return MODE == KYMO_STREAM || kymo_save(arguments[1]) == 0 ? 0 : 3;
}
