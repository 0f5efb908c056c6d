#define _GNU_SOURCE
#include <kymo.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <pthread.h>
#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1U << 31)
#endif
volatile long leafs, handled;
__attribute__((noinline)) void leaf(void) { leafs++; }
__attribute__((noinline)) void in_handler(void) { handled++; }
KYMO_NO_INSTRUMENT static void handler(int s) { (void)s; in_handler(); }
static int flag;
KYMO_NO_INSTRUMENT static void *thread(void *p)
{
	/* The signal stack lies above this thread's. */
	stack_t ss = {0}; ss.ss_sp = p; ss.ss_size = 1 << 16; ss.ss_flags = flag;
	if (sigaltstack(&ss, NULL)) perror("sigaltstack");
	sigset_t s; sigemptyset(&s); sigaddset(&s, SIGALRM); pthread_sigmask(SIG_UNBLOCK, &s, NULL);
	while (handled < 1000) { leaf(); for (volatile int i = 0; i < 20; i++) {} }
	pthread_sigmask(SIG_BLOCK, &s, NULL);
	return NULL;
}
KYMO_NO_INSTRUMENT int main(int argc, char **argv)
{
	flag = argc > 1 && !strcmp(argv[1], "autodisarm") ? (int)SS_AUTODISARM : 0;
	sigset_t s; sigemptyset(&s); sigaddset(&s, SIGALRM); sigprocmask(SIG_BLOCK, &s, NULL);
	char *both = mmap(NULL, 2 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct sigaction sa = {0}; sa.sa_handler = handler; sa.sa_flags = SA_ONSTACK; sigaction(SIGALRM, &sa, NULL);
	struct itimerval it = {{0, 50}, {0, 50}}; 
	pthread_attr_t a; pthread_attr_init(&a); pthread_attr_setstack(&a, both, 1 << 20);
	pthread_t t; pthread_create(&t, &a, thread, both + (1 << 20));
	setitimer(ITIMER_REAL, &it, NULL);
	pthread_join(t, NULL);
	printf("leaf %ld handler %ld\n", leafs, handled);
	return 0;
}
