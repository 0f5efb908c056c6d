/* Threads that end, a packet each: what it takes, in processor time, to save and to stream what few of them
 * left, and many. The program is its own host. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kymo.h"

enum { FEW = 1500, MANY = 6000, TIMES = 3 };

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

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
	return (double)time.tv_sec * 1e3 + (double)time.tv_nsec * 1e-6;
}

static void *once(void *number)
{
	kymo_marker((uint32_t)(uintptr_t)number);
	return NULL;
}

static void live(unsigned from, unsigned to)
{
	for (uintptr_t i = from; i < to; i++) {
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

/* The least of some times. */
static double save(const char *path)
{
	double least = 1e9;
	for (int i = 0; i < TIMES; i++) {
		double begin = now();
		if (kymo_save(path) != 0)
			exit(3);
		double took = now() - begin;
		if (took < least)
			least = took;
	}
	return least;
}

static double stream(unsigned threads)
{
	double begin = now();
	char line[32];
	pieces = 0;
	over = 0;
	say("stream on 0\r");
	while (!over) {
		snprintf(line, sizeof(line), "ack %u\r", pieces);
		say(line);
		say("stream off\r");
	}
	if (pieces < threads)
		exit(4);
	return now() - begin;
}

int main(int count, char **arguments)
{
	if (count < 2)
		return 1;
	live(0, FEW);
	double saved = save(arguments[1]);
	double streamed = stream(FEW);
	live(FEW, MANY);
	printf("saved %f %f\n", saved, save(arguments[1]));
	printf("streamed %f %f\n", streamed, stream(MANY - FEW));
	return 0;
}
