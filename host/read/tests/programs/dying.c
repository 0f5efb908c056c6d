/* Makes a known number of calls in two threads; then the process ends without a normal exit. */
#define _GNU_SOURCE
#include <kymo.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define CALLS 3000

static volatile int sink;
static volatile int ready;
static volatile int stop;

__attribute__((noinline)) void leaf(void) { sink++; }
__attribute__((noinline)) void work(void) { for (int i = 0; i < CALLS; i++) leaf(); }

KYMO_NO_INSTRUMENT static void *thread(void *p)
{
	(void)p;
	prctl(PR_SET_NAME, "the worker");
	work();
	ready = 1;
	while (!stop) usleep(1000);
	return NULL;
}

KYMO_NO_INSTRUMENT int main(int argc, char **argv)
{
	setbuf(stdout, NULL);
	const char *how = argc > 1 ? argv[1] : "exit";
	if (!strcmp(how, "nothing")) return 0;
	if (!strcmp(how, "after-exec")) {
		leaf();
		leaf();
		_exit(0);
	}
	if (!strcmp(how, "tree")) {
		/* Four children: one ends by _exit, one exits, one records nothing, and one calls exec. */
		leaf();
		pid_t child = fork();
		if (child == 0) { work(); _exit(0); }
		waitpid(child, NULL, 0);
		printf("%d\n", (int)child);
		child = fork();
		if (child == 0) { leaf(); exit(0); }
		waitpid(child, NULL, 0);
		printf("%d\n", (int)child);
		child = fork();
		if (child == 0) exit(0);
		waitpid(child, NULL, 0);
		printf("%d\n", (int)child);
		child = fork();
		if (child == 0) { execl("/proc/self/exe", argv[0], "after-exec", NULL); _exit(9); }
		waitpid(child, NULL, 0);
		printf("%d\n", (int)child);
		leaf();
		return 0;
	}
	pthread_t worker;
	pthread_create(&worker, NULL, thread, NULL);
	while (!ready) usleep(1000);
	work();
	kymo_marker(7);
	if (!strcmp(how, "kill")) raise(SIGKILL);
	if (!strcmp(how, "segv")) *(volatile int *)8 = 1;
	if (!strcmp(how, "abort")) abort();
	if (!strcmp(how, "term")) raise(SIGTERM);
	if (!strcmp(how, "_exit")) _exit(0);
	if (!strcmp(how, "exec")) execl("/proc/self/exe", argv[0], "after-exec", NULL);
	if (!strcmp(how, "running")) return 0;
	stop = 1;
	pthread_join(worker, NULL);
	return 0;
}
