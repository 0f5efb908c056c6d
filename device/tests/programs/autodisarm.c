/* Calls that signals preempt, whose handlers run on an alternate stack above the interrupted one. Prints the calls.
 * The first argument says where the alternate stack is: `above` a thread's stack, in a `local` array of the function
 * below all others, or above a `coroutine`'s. The second is `plain`, or `autodisarm`: the kernel then doesn't report
 * the alternate stack while a handler runs on it. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>

#include "kymo.h"

#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1U << 31)
#endif
#define UNSEEN __attribute__((no_instrument_function))
#define STACK (1 << 20)
#define ALTERNATE (1 << 16)

static volatile long leafs, handled;
static int flag;
static char *both;
static ucontext_t back, coroutine;

__attribute__((noinline)) void leaf(void)
{
	leafs++;
}

__attribute__((noinline)) void in_handler(void)
{
	handled++;
}

UNSEEN static void handler(int signal)
{
	(void)signal;
	in_handler();
}

UNSEEN static void work(void)
{
	while (handled < 3000) {
		leaf();
		for (volatile int i = 0; i < 20; i++) {}
	}
}

/* Has the signal in the calling thread alone, on this stack. */
UNSEEN static void preempted(char *alternate, void (*run)(void))
{
	stack_t stack = {.ss_sp = alternate, .ss_size = ALTERNATE, .ss_flags = flag};
	struct itimerval often = {{0, 50}, {0, 50}}, never = {{0, 0}, {0, 0}};
	sigset_t signals;
	sigemptyset(&signals);
	sigaddset(&signals, SIGALRM);
	if (sigaltstack(&stack, NULL) != 0)
		perror("sigaltstack");
	setitimer(ITIMER_REAL, &often, NULL);
	pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
	run();
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	setitimer(ITIMER_REAL, &never, NULL);
}

UNSEEN static void in_coroutine(void)
{
	getcontext(&coroutine);
	coroutine.uc_stack.ss_sp = both;
	coroutine.uc_stack.ss_size = STACK;
	coroutine.uc_link = &back;
	makecontext(&coroutine, work, 0);
	swapcontext(&back, &coroutine);
}

UNSEEN static void *thread(void *run)
{
	preempted(both + STACK, run);
	return NULL;
}

UNSEEN int main(int count, char **arguments)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
	sigset_t signals;
	pthread_attr_t attributes;
	pthread_t other;
	if (count != 3)
		return 1;
	flag = strcmp(arguments[2], "autodisarm") == 0 ? (int)SS_AUTODISARM : 0;
	sigemptyset(&signals);
	sigaddset(&signals, SIGALRM);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	sigaction(SIGALRM, &action, NULL);
	both = mmap(NULL, 2 * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_attr_init(&attributes);
	if (strcmp(arguments[1], "local") == 0) {
		char alternate[ALTERNATE];
		preempted(alternate, work);
	} else if (strcmp(arguments[1], "above") == 0) {
		pthread_attr_setstack(&attributes, both, STACK);
		pthread_create(&other, &attributes, thread, (void *)work);
		pthread_join(other, NULL);
	} else {
		pthread_create(&other, &attributes, thread, (void *)in_coroutine);
		pthread_join(other, NULL);
	}
	printf("leaf %ld handler %ld\n", leafs, handled);
	return 0;
}
