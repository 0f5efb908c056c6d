/* Everything that happens in a program: constructors, threads, signals, longjmp, a fork. Counts its own calls, and
 * prints the counts as `NAME ADDRESS CALLS`, which the test compares with the trace. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kymo.h"

#define COUNTED(name) \
	static atomic_int name##_calls; \
	__attribute__((noinline)) static int name(int n)

static jmp_buf out;

COUNTED(leaf)
{
	leaf_calls++;
	return n;
}

COUNTED(recurse)
{
	recurse_calls++;
	return n == 0 ? leaf(0) : recurse(n - 1) + recurse(n - 1);
}

COUNTED(jump)
{
	jump_calls++;
	if (n == 0)
		longjmp(out, 1);
	return jump(n - 1) + 1;
}

COUNTED(signalled)
{
	signalled_calls++;
	return leaf(n);
}

static void handler(int signal)
{
	kymo_isr_enter((uint16_t)signal);
	signalled(signal);
	kymo_isr_exit((uint16_t)signal);
}

/* Both threads are there at one time, however busy the machine is: else the second one could go on in the
 * stream of the first. */
static pthread_barrier_t both;

static void *thread(void *name)
{
	pthread_barrier_wait(&both);
	for (int i = 0; i < 200; i++)
		recurse(6);
	return name;
}

COUNTED(early)
{
	early_calls++;
	return leaf(n);
}

__attribute__((constructor)) static void before_main(void)
{
	early(1);
}

#define PRINT(name) \
	printf(#name " %p %d\n", (void *)name, name##_calls)

int main(void)
{
	struct sigaction action = {.sa_handler = handler};
	sigaction(SIGALRM, &action, NULL);
	kymo_isr_name(SIGALRM, "alarm");
	struct itimerval often = {{0, 200}, {0, 200}};
	setitimer(ITIMER_REAL, &often, NULL);

	pthread_t threads[2];
	pthread_barrier_init(&both, NULL, 2);
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, thread, NULL);
	for (int i = 0; i < 200; i++) {
		recurse(6);
		if (setjmp(out) == 0)
			jump(5);
	}
	kymo_marker(42);
	kymo_named_marker("half", 2);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	while (signalled_calls < 3)
		recurse(3);
	struct itimerval never = {{0, 0}, {0, 0}};
	setitimer(ITIMER_REAL, &never, NULL);

	pid_t child = fork();
	if (child == 0) {
		leaf(1);
		return 0;
	}
	waitpid(child, NULL, 0);
	printf("child %d 0\n", (int)child);
	PRINT(leaf);
	PRINT(recurse);
	PRINT(jump);
	PRINT(signalled);
	PRINT(early);
	return 0;
}
