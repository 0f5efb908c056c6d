/* All of glibc's kinds of jumps, out of calls that are a few levels deep. */
#include <setjmp.h>
#include <stdio.h>

#include "kymo.h"

static jmp_buf plain;
static sigjmp_buf with_signals;

__attribute__((noinline)) void deep(int level, int kind)
{
	if (level > 0) {
		deep(level - 1, kind);
		__asm__ volatile("");
	} else if (kind == 0) {
		longjmp(plain, 5);
	} else {
		siglongjmp(with_signals, 6);
	}
}

__attribute__((noinline)) int catches(int kind)
{
	volatile int kept = kind + 40;
	int result = kind == 0 ? setjmp(plain) : sigsetjmp(with_signals, 1);
	if (result == 0)
		deep(3, kind);
	return result * 100 + kept;
}

__attribute__((noinline)) void after(void)
{
	__asm__ volatile("");
}

int main(void)
{
	for (int kind = 0; kind < 2; kind++) {
		printf("%d\n", catches(kind));
		after();
	}
	return 0;
}
