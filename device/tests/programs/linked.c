/* A program with a link over standard input and output. */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <unistd.h>

#include "kymo.h"
#include "kymo_items.h"

KYMO_NO_INSTRUMENT static void send(const uint8_t *bytes, size_t count)
{
	while (count > 0) {
		ssize_t written = write(1, bytes, count);
		if (written <= 0)
			_exit(1);
		bytes += written;
		count -= (size_t)written;
	}
}

static int leaf(int n)
{
	return n + 1;
}

void work(void)
{
	volatile int sum = 0;
	for (int i = 0; i < 100; i++)
		sum += leaf(i);
}

void quiet(void)
{
	leaf(0);
}

static sem_t reserved;

/* A record that nobody finishes, by a thread that lives, or does not. */
static void *reserve(void *lives)
{
	leaf(0);
	kymo_reserve(8);
	leaf(0);
	sem_post(&reserved);
	while (lives)
		pause();
	return lives;
}

/* Calls without end. */
static void *busy(void *unused)
{
	for (volatile int i = 0;; i++)
		leaf(i);
	return unused;
}

static const kymo_promotion_t promotions[] = {{quiet, KYMO_PROMOTE_NOTHING, 0}};

const kymo_config_t kymo_config = {
	.version = KYMO_CONFIG_VERSION,
	.buffer_size = 1 << 20,
	.packet_size = 1024,
	.slot_count = 64,
	.shadow_stacks = 2,
	.shadow_depth = 32,
	.promotions = promotions,
	.promotion_count = 1,
	.trigger = work,
	.stopper = work,
	.send = send,
};

int main(void)
{
	unsigned items = 0;
	int frame = 0;
	char byte;
	while (read(0, &byte, 1) == 1) {
		kymo_link_receive((uint8_t)byte);
		kymo_link_poll();
		/* What stands between two zeros tells the recorder something, not this program. */
		if (byte == 0)
			frame = !frame;
		if (frame)
			continue;
		if (byte == '!') {
			work();
			quiet();
		}
		if (byte == '~') { /* longer than the recorder waits for a host */
			sleep(6);
			work();
		}
		if (byte == '#') /* an item each: how many there have been */
			kymo_produce(KYMO_ITEM_USER(0), items++);
		pthread_t thread;
		if (byte == '%' || byte == '^') {
			pthread_create(&thread, NULL, reserve, byte == '%' ? &reserved : NULL);
			sem_wait(&reserved);
			if (byte == '^')
				pthread_join(thread, NULL);
		}
		if (byte == '@')
			pthread_create(&thread, NULL, busy, NULL);
	}
	return 0;
}
