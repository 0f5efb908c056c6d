/* As many threads as the second argument requests, which exit after one packet each. Saves their recordings to the file
 * in the first argument, and streams them; the program is its own host. The test counts the instructions of `save_all`
 * and `stream_all` from outside. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kymo.h"

static unsigned pieces;
static int over;

/* Pieces are frames; answers are lines, as the questions are. */
static void take(const uint8_t *bytes, size_t count)
{
	static const char end[] = "kymo stream: sending=0";
	if (bytes[0] == 0)
		pieces++;
	else if (count >= sizeof(end) && memcmp(bytes, end, sizeof(end) - 1) == 0)
		over = 1;
}

const kymo_config_t kymo_config = {
	.version = KYMO_CONFIG_VERSION,
	.flags = KYMO_STREAM | KYMO_START_ON,
	.buffer_size = 512,
	.packet_size = 256,
	.send = take,
};

static void *once(void *number)
{
	kymo_marker((uint32_t)(uintptr_t)number);
	return NULL;
}

static void live(unsigned threads)
{
	for (uintptr_t i = 0; i < threads; i++) {
		pthread_t thread;
		if (pthread_create(&thread, NULL, once, (void *)i) != 0)
			exit(2);
		pthread_join(thread, NULL);
	}
}

static void say(const char *line)
{
	while (*line)
		kymo_link_receive((uint8_t)*line++);
	kymo_link_poll();
}

__attribute__((noinline)) static void save_all(const char *path)
{
	if (kymo_save(path) != 0)
		exit(3);
}

__attribute__((noinline)) static void stream_all(unsigned threads)
{
	char line[32];
	say("stream on 0\r");
	while (!over) {
		snprintf(line, sizeof(line), "ack %u\r", pieces);
		say(line);
		say("stream off\r");
	}
	if (pieces < threads)
		exit(4);
}

int main(int count, char **arguments)
{
	if (count < 3)
		return 1;
	unsigned threads = (unsigned)atoi(arguments[2]);
	live(threads);
	save_all(arguments[1]);
	stream_all(threads);
	return 0;
}
