/* Functions with patchable entries: whether they hold no-ops while nothing is recorded, and calls while something is;
 * and turning them on and off while two threads run them. Prints each function's address and how often it was called
 * while recording was on. Start it with KYMO_ON=0. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kymo.h"

#define APART __attribute__((noinline))
#if defined(__x86_64__)
#define PLAIN __attribute__((patchable_function_entry(0, 0)))
#else
#define PLAIN __attribute__((patchable_function_entry(0)))
#endif

#define CHECK(holds_)                                                                 \
	do {                                                                          \
		if (!(holds_)) {                                                      \
			printf("%s:%d: %s\n", __FILE__, __LINE__, #holds_);           \
			exit(1);                                                      \
		}                                                                     \
	} while (0)

APART int inner(int n)
{
	__asm__ volatile("" : "+r"(n));
	return n + 1;
}

APART int outer(int n)
{
	int all = inner(n) + inner(n);
	__asm__ volatile("" : "+r"(all));
	return all;
}

APART int awaited(int n)
{
	__asm__ volatile("" : "+r"(n));
	return n;
}

APART int shared(int n)
{
	__asm__ volatile("" : "+r"(n));
	return n + 2;
}

/* Whether the function begins with no-ops. */
PLAIN static int is_quiet(int (*function)(int))
{
	unsigned char code[12];
	memcpy(code, (void *)function, sizeof code);
#if defined(__x86_64__)
	const unsigned char *at = memcmp(code, "\xf3\x0f\x1e\xfa", 4) == 0 ? code + 4 : code;
	return (at[0] == 0x90 || at[0] == 0x66) && at[1] == 0x90;
#else
	unsigned word;
	memcpy(&word, code + (memcmp(code, "\x5f\x24\x03\xd5", 4) == 0 ? 8 : 4), sizeof word);
	return word == 0xd503201f;
#endif
}

static volatile int stop;

PLAIN static void *run(void *rounds)
{
	while (!stop) {
		CHECK(shared(3) == 5);
		++*(unsigned long *)rounds;
	}
	return NULL;
}

PLAIN static void *toggle(void *unused)
{
	while (!stop) {
		kymo_on();
		kymo_off();
	}
	return unused;
}

/* A fork in the middle of a change leaves a child that can change its code. */
PLAIN static void fork_often(void)
{
	pthread_t thread;

	stop = 0;
	CHECK(pthread_create(&thread, NULL, toggle, NULL) == 0);
	for (int n = 0; n < 50; n++) {
		pid_t child = fork();
		int status = 1;

		if (child == 0) {
			kymo_on();
			int is_on = !is_quiet(awaited);
			kymo_off();
			_exit(!is_on || !is_quiet(awaited));
		}
		CHECK(waitpid(child, &status, 0) == child && status == 0);
	}
	stop = 1;
	CHECK(pthread_join(thread, NULL) == 0);
}

PLAIN int main(void)
{
	CHECK(is_quiet(outer) && is_quiet(inner));
	for (int n = 0; n < 10; n++)
		CHECK(outer(n) == 2 * n + 2);
	kymo_on();
	CHECK(!is_quiet(outer) && !is_quiet(inner));
	for (int n = 0; n < 100; n++)
		CHECK(outer(n) == 2 * n + 2);
	kymo_off();
	CHECK(is_quiet(outer) && is_quiet(inner));
	CHECK(outer(1) == 4);

	kymo_set_trigger((void *)awaited);
	CHECK(!is_quiet(outer));
	CHECK(outer(1) == 4 && awaited(5) == 5 && outer(1) == 4);
	kymo_set_trigger(NULL);
	kymo_off();
	CHECK(is_quiet(outer) && is_quiet(awaited));

	pthread_t threads[2];
	unsigned long rounds[2] = {0, 0};
	for (int n = 0; n < 2; n++)
		CHECK(pthread_create(&threads[n], NULL, run, &rounds[n]) == 0);
	for (int n = 0; n < 60; n++) {
		unsigned long before = ((volatile unsigned long *)rounds)[n % 2];
		if (n % 2 == 0)
			kymo_on();
		else
			kymo_off();
		while (((volatile unsigned long *)rounds)[n % 2] < before + 20) {
		}
	}
	stop = 1;
	for (int n = 0; n < 2; n++)
		CHECK(pthread_join(threads[n], NULL) == 0);
	fork_often();
	CHECK(is_quiet(outer) && is_quiet(inner) && is_quiet(shared));
	printf("outer %p 101\ninner %p 202\nawaited %p 1\n", (void *)outer, (void *)inner, (void *)awaited);
	return 0;
}
