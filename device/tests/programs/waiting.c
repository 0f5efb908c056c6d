// Records something, says so, and waits until its input ends.

#include <stdio.h>

__attribute__((noinline)) void work(void)
{
	for (volatile int i = 0; i < 1000; i++) {}
}

int main(void)
{
	work();
	puts("recording");
	fflush(stdout);
	while (getchar() != EOF) {}
	work();
	return 0;
}
