/* A library with patchable entries that is loaded and unloaded while threads turn recording on and off. With -DLIBRARY
 * it is the library; the program's argument is the library's path. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "kymo.h"

#ifdef LIBRARY
int in_library(int n)
{
	__asm__ volatile("" : "+r"(n));
	return n + 1;
}
#else
static volatile int stop;

KYMO_NO_INSTRUMENT static void *toggle(void *unused)
{
	while (!stop) {
		kymo_on();
		kymo_off();
	}
	return unused;
}

/* A follower that removes itself does not wait for its own end. */
KYMO_NO_INSTRUMENT static void once(bool needed)
{
	(void)needed;
	kymo_unfollow(once);
}

int main(int count, char **words)
{
	pthread_t threads[2];
	int rounds = count > 2 ? atoi(words[2]) : 0;

	kymo_follow(once);
	for (int n = 0; n < 2; n++)
		if (pthread_create(&threads[n], NULL, toggle, NULL) != 0)
			return 1;
	for (int n = 0; n < rounds; n++) {
		void *library = dlopen(words[1], RTLD_NOW);
		int (*function)(int) = library == NULL ? NULL : (int (*)(int))dlsym(library, "in_library");

		if (function == NULL) {
			puts(dlerror());
			return 1;
		}
		if (function(n) != n + 1)
			return 2;
		dlclose(library);
	}
	stop = 1;
	for (int n = 0; n < 2; n++)
		pthread_join(threads[n], NULL);
	printf("unloaded %d\n", rounds);
	return 0;
}
#endif
