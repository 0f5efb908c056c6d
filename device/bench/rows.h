/* Rows of the table. A row is a function; the code that runs outside of it, from each of its calls until the return, is
 * counted (xtask/src/bench). */
#ifndef ROWS_H
#define ROWS_H

#include "machine.h"

#define ROW(name) \
	void row_##name(void); \
	__attribute__((noinline, used, section(".text.row_" #name))) void row_##name(void)

/* Number of calls of its subject in a row. */
#define TIMES 16

/* Compiler barrier: every call remains a call, also the last one. */
#define STAY __asm__ volatile("" ::: "memory")

/* Prints how many bytes an event of a row takes: `bytes NAME TOTAL COUNT`. */
INLINE void rows_say(const char *name, uint32_t total, uint32_t count)
{
	static const char begin[] = "bytes ";
	uint32_t numbers[2] = { total, count };

	for (const char *c = begin; *c != 0; c++)
		machine_put(*c);
	for (; *name != 0; name++)
		machine_put(*name);
	for (int n = 0; n < 2; n++) {
		machine_put(' ');
		for (int shift = 28; shift >= 0; shift -= 4)
			machine_put("0123456789abcdef"[numbers[n] >> shift & 15]);
	}
	machine_put('\n');
}

#endif
