/* Crashes while another thread works; the signal handler saves the recording. */

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "kymo.h"

static const char *path;
static volatile int go_on = 1;

static KYMO_NO_INSTRUMENT void died(int signal)
{
	int result = kymo_save(path);

	_exit(result == 0 ? 128 + signal : 1);
}

__attribute__((noinline)) void leaf(void)
{
	__asm__ volatile("");
}

__attribute__((noinline)) void crash(int *nowhere)
{
	leaf();
	*(volatile int *)nowhere = 1;
	leaf();
}

static void *work(void *argument)
{
	while (go_on)
		leaf();
	return argument;
}

int main(void)
{
	pthread_t thread;

	path = getenv("KYMO_FILE");
	printf("%p\n", (void *)crash);
	fflush(stdout);
	signal(SIGSEGV, died);
	if (pthread_create(&thread, NULL, work, NULL) != 0)
		return 2;
	crash(NULL);
	go_on = 0;
	return 3;
}
