/* Program with known calls: two threads, each `leaf` 1000 times within `branch` 10 times,
 * `recurse` to a depth of 20, a named marker, and a signal in the main thread. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>

#include "kymo.h"

const kymo_config_t kymo_config = {
	.version = KYMO_CONFIG_VERSION,
	.flags = KYMO_START_ON | KYMO_FIXED,
	.buffer_size = 1024u * 1024u,
	.packet_size = 4096,
	.metadata_size = 1024,
	.text_base = KYMO_TEXT_BASE,
};

static volatile int sum;

void leaf(void)
{
	sum++;
}

void branch(void)
{
	for (int i = 0; i < 100; i++) {
		leaf();
	}
}

int recurse(int depth)
{
	return depth > 1 ? 1 + recurse(depth - 1) : 1;
}

static void handler(int number)
{
	kymo_isr_enter((uint16_t)number);
	leaf();
	kymo_isr_exit((uint16_t)number);
}

static void *work(void *argument)
{
	(void)argument;
	for (int i = 0; i < 10; i++) {
		branch();
	}
	sum += recurse(20);
	return NULL;
}

int main(void)
{
	pthread_t thread;

	signal(SIGUSR1, handler);
	pthread_create(&thread, NULL, work, NULL);
	work(NULL);
	raise(SIGUSR1);
	kymo_named_marker("half", 42);
	pthread_join(thread, NULL);
	return 0;
}
