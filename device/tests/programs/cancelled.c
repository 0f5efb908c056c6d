// Threads are cancelled in their first hooks: what is recorded is no cancellation point.

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#define NO __attribute__((no_instrument_function))
#define THREADS 50

static volatile int done, started;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

__attribute__((noinline)) void work(void)
{
	for (volatile int i = 0; i < 1000; i++) {}
	done++;
}

NO static void *worker(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&mutex);
	started = 1;
	while (started != 2) {}
	work();
	pthread_mutex_unlock(&mutex);
	return NULL;
}

NO int main(void)
{
	for (int i = 0; i < THREADS; i++) {
		pthread_t thread;
		void *result;
		started = 0;
		pthread_create(&thread, NULL, worker, NULL);
		while (!started) {}
		pthread_cancel(thread);
		started = 2;
		pthread_join(thread, &result);
		// What the thread holds is free again, or this hangs.
		alarm(20);
		pthread_mutex_lock(&mutex);
		pthread_mutex_unlock(&mutex);
	}
	printf("done %d of %d\n", done, THREADS);
	return done != THREADS;
}
