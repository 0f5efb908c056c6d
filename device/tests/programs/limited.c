// The size of files is limited, by who starts the program or by itself, while it records.

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

__attribute__((noinline)) void work(void)
{
	for (volatile int i = 0; i < 1000; i++) {}
}

static void *worker(void *unused)
{
	work();
	return unused;
}

int main(int count, char **words)
{
	if (count > 1) {
		struct rlimit limit = {strtoul(words[1], NULL, 0), RLIM_INFINITY};
		setrlimit(RLIMIT_FSIZE, &limit);
	}
	pthread_t thread;
	pthread_create(&thread, NULL, worker, NULL);
	pthread_join(thread, NULL);
	puts("alive");
	return 0;
}
