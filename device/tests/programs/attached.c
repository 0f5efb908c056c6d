/* Signals preempt threads while the recorder allocates their memory: the handlers' calls must be recorded all the same.
 * Prints the number of calls. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kymo.h"

enum { THREADS = 16 };

const kymo_config_t kymo_config = {
	.version = KYMO_CONFIG_VERSION,
	.flags = KYMO_START_ON,
	.buffer_size = 32 << 10,
	.packet_size = 1024,
};

static atomic_int calls, preempts;
static atomic_bool ready;

__attribute__((noinline)) static int leaf(int n)
{
	atomic_fetch_add(&calls, 1);
	return n + 1;
}

KYMO_NO_INSTRUMENT static void handler(int signal)
{
	atomic_fetch_add(&preempts, 1);
	leaf(signal);
}

/* In place of the C library's, which the recorder would call. */
KYMO_NO_INSTRUMENT void *mmap(void *at, size_t length, int protection, int flags, int file, off_t offset)
{
	if (ready)
		raise(SIGUSR1);
	return (void *)syscall(SYS_mmap, at, length, protection, flags, file, offset);
}

KYMO_NO_INSTRUMENT static void *thread(void *nothing)
{
	leaf(0);
	return nothing;
}

KYMO_NO_INSTRUMENT int main(void)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
	sigaction(SIGUSR1, &action, NULL);
	leaf(0);
	ready = true;
	for (int i = 0; i < THREADS; i++) {
		pthread_t other;
		pthread_create(&other, NULL, thread, NULL);
		pthread_join(other, NULL);
	}
	ready = false;
	printf("%d %d\n", calls, preempts);
	return preempts >= THREADS ? 0 : 1;
}
