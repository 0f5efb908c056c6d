/* Difficult cases for -pg on Linux: arguments and results in all registers, recursion, tail calls, jumps, threads.
 * Prints each function's address and number of calls. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "kymo.h"

#define CHECK(holds_)                                                                 \
	do {                                                                          \
		if (!(holds_)) {                                                      \
			printf("%s:%d: %s\n", __FILE__, __LINE__, #holds_);           \
			exit(1);                                                      \
		}                                                                     \
	} while (0)

#ifdef __clang__
#define APART __attribute__((noinline))
#else
#define APART __attribute__((noinline, noclone))
#endif

APART double many(int a, long b, char c, short d, unsigned e, void *f, double g, double h, float i, double j, double k, double l,
		  double m, double n, int o)
{
	CHECK(a == 1 && b == 2 && c == 3 && d == 4 && e == 5 && f == NULL && o == 7);
	return g + h + i + j + k + l + m + n;
}

struct pair {
	long first, second;
};
struct mixed {
	double first, second;
};

APART struct pair pair(long n)
{
	__asm__ volatile("");
	return (struct pair){n, n + 1};
}

APART struct mixed mixed(double n)
{
	__asm__ volatile("");
	return (struct mixed){n, n + 1};
}

APART long double precise(long double n)
{
	__asm__ volatile("");
	return n * 3;
}

APART long sum(int count, ...)
{
	va_list list;
	va_start(list, count);
	double all = 0;
	for (int n = 0; n < count; n++)
		all += va_arg(list, double);
	va_end(list);
	return (long)all;
}

APART int recurse(int depth)
{
	__asm__ volatile("" : "+r"(depth));
	int all = depth == 0 ? 0 : recurse(depth - 1) + 1;
	__asm__ volatile("" : "+r"(all));
	return all;
}

APART int last(int n)
{
	__asm__ volatile("" : "+r"(n));
	return n + 1;
}

/* GCC makes a jump of this call. */
APART int tail(int n)
{
	__asm__ volatile("" : "+r"(n));
	return last(n * 2);
}

static jmp_buf place;
static volatile int always = 1;

APART void jump(int n)
{
	__asm__ volatile("" : "+r"(n));
	if (n > 0)
		jump(n - 1);
	else if (always)
		longjmp(place, 1);
	__asm__ volatile("");
}

APART int land(int n)
{
	if (setjmp(place) == 0)
		jump(n);
	return n;
}

APART void *thread(void *unused)
{
	for (int n = 0; n < 1000; n++)
		last(n);
	return unused;
}

int main(void)
{
	for (int n = 0; n < 100; n++) {
		CHECK(many(1, 2, 3, 4, 5, NULL, 1, 2, 3, 4, 5, 6, 7, 8, 7) == 36);
		CHECK(pair(n).first == n && pair(n).second == n + 1);
		CHECK(mixed(n).first == n && mixed(n).second == n + 1);
		CHECK(precise(n) == 3.0L * n);
		CHECK(sum(3, 1.0, 2.0, 3.0) == 6);
		CHECK(recurse(9) == 9);
		CHECK(tail(n) == 2 * n + 1);
		CHECK(land(4) == 4);
	}
	pthread_t threads[2];
	for (int n = 0; n < 2; n++)
		CHECK(pthread_create(&threads[n], NULL, thread, NULL) == 0);
	for (int n = 0; n < 2; n++)
		CHECK(pthread_join(threads[n], NULL) == 0);
	const struct {
		const char *name;
		void *function;
		int calls;
	} functions[] = {
		{"main", (void *)main, 1},       {"many", (void *)many, 100},      {"pair", (void *)pair, 200},
		{"mixed", (void *)mixed, 200},   {"precise", (void *)precise, 100}, {"sum", (void *)sum, 100},
		{"recurse", (void *)recurse, 1000}, {"last", (void *)last, 2100},  {"tail", (void *)tail, 100},
		{"jump", (void *)jump, 500},     {"land", (void *)land, 100},      {"thread", (void *)thread, 2},
	};
	for (size_t n = 0; n < sizeof functions / sizeof functions[0]; n++)
		printf("%s %p %d\n", functions[n].name, functions[n].function, functions[n].calls);
	return 0;
}
