/* Saves repeatedly while threads record and signals preempt them. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/time.h>
#include <time.h>

#include "kymo.h"

const kymo_config_t kymo_config = {
	.version = KYMO_CONFIG_VERSION,
	.flags = KYMO_START_ON,
	.buffer_size = 32 << 10,
	.packet_size = 1024,
};

static atomic_bool stop;

__attribute__((noinline)) static int leaf(int n)
{
	return n + 1;
}

static void handler(int signal)
{
	kymo_isr_enter((uint16_t)signal);
	leaf(signal);
	kymo_isr_exit((uint16_t)signal);
}

static void *thread(void *nothing)
{
	int n = 0;
	while (!stop)
		n = leaf(n);
	return nothing;
}

int main(int argc, char **argv)
{
	(void)argc;
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
	sigaction(SIGALRM, &action, NULL);
	struct itimerval often = {{0, 50}, {0, 50}};
	setitimer(ITIMER_REAL, &often, NULL);
	pthread_t threads[3];
	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, thread, NULL);
	int result = 0;
	for (int i = 0; i < 20; i++) {
		char path[4096];
		snprintf(path, sizeof path, "%s.%d", argv[1], i);
		if (kymo_save(path) != 0) {
			perror(path);
			result = 1;
		}
		struct timespec short_while = {0, 3000000};
		nanosleep(&short_while, NULL);
	}
	stop = true;
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	return result;
}
