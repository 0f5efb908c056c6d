/* Calls that do not return, or return out of order, more of them than -pg has frames for: left by longjmp, by children
 * of vfork, and coroutines whose stacks lie above and below each other. Prints each function's address and number of
 * calls. With an argument: one recursion of that depth. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#ifdef __clang__
#define APART __attribute__((noinline))
#else
#define APART __attribute__((noinline, noclone))
#endif

enum { ROUNDS = 400, COROUTINES = 3, STEPS = 40 };

static jmp_buf place;
static volatile int always = 1;

APART void leaf(void)
{
	__asm__ volatile("");
}

APART void jump(int n)
{
	char room[64];

	__asm__ volatile("" : : "r"(room) : "memory");
	if (n > 0)
		jump(n - 1);
	else if (always)
		longjmp(place, 1);
	__asm__ volatile("");
}

/* The frames that it leaves lie elsewhere from round to round. */
APART void shifted(int n)
{
	char *room = __builtin_alloca(16 * (unsigned)(n % 20) + 16);

	__asm__ volatile("" : : "r"(room) : "memory");
	jump(3);
}

APART void inner(void)
{
	_exit(0);
}

APART void child(void)
{
	inner();
	__asm__ volatile("");
}

APART void parent(void)
{
	__asm__ volatile("");
}

static ucontext_t first, contexts[COROUTINES];
static char stacks[COROUTINES][1 << 16];

APART void step(int from)
{
	leaf();
	swapcontext(&contexts[from], &contexts[(from + 1) % COROUTINES]);
	leaf();
}

APART void coroutine(int n)
{
	for (int i = 0; i < STEPS; i++)
		step(n);
	__asm__ volatile("");
}

APART void switch_stacks(void)
{
	for (int n = 0; n < COROUTINES; n++) {
		getcontext(&contexts[n]);
		contexts[n].uc_stack.ss_sp = stacks[n];
		contexts[n].uc_stack.ss_size = sizeof stacks[n];
		contexts[n].uc_link = n + 1 < COROUTINES ? &contexts[n + 1] : &first;
		makecontext(&contexts[n], (void (*)(void))coroutine, 1, n);
	}
	swapcontext(&first, &contexts[0]);
}

APART int deep(int n)
{
	__asm__ volatile("" : "+r"(n));
	int all = n == 0 ? 0 : deep(n - 1) + 1;
	__asm__ volatile("" : "+r"(all));
	return all;
}

int main(int count, char **words)
{
	if (count > 1) {
		int depth = atoi(words[1]);

		if (deep(depth - 1) != depth - 1)
			return 1;
		printf("deep %p %d\n", (void *)deep, depth);
		return 0;
	}
	for (volatile int n = 0; n < ROUNDS; n++) {
		if (setjmp(place) == 0)
			jump(3);
		if (setjmp(place) == 0)
			shifted(n);
	}
	for (volatile int n = 0; n < ROUNDS; n++) {
		pid_t process = vfork();
		int status;

		if (process == 0)
			child();
		if (waitpid(process, &status, 0) != process || status != 0)
			return 2;
		parent();
	}
	switch_stacks();
	/* All frames are free again: as deep as this can be recorded. */
	if (deep(199) != 199)
		return 3;
	printf("jump %p %d\n", (void *)jump, 8 * ROUNDS);
	printf("shifted %p %d\n", (void *)shifted, ROUNDS);
	printf("child %p %d\n", (void *)child, ROUNDS);
	printf("inner %p %d\n", (void *)inner, ROUNDS);
	printf("parent %p %d\n", (void *)parent, ROUNDS);
	printf("coroutine %p %d\n", (void *)coroutine, COROUTINES);
	printf("step %p %d\n", (void *)step, COROUTINES * STEPS);
	printf("leaf %p %d\n", (void *)leaf, 2 * COROUTINES * STEPS);
	printf("deep %p 200\n", (void *)deep);
	return 0;
}
