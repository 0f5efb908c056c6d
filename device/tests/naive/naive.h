/* Reference recorder for comparison with Kymo's: it logs every entry and every exit uncompressed and
 * immediately, in memory that is never reused. It shares neither code nor format with Kymo, and has
 * no other purpose.
 *
 * It defines the compiler's hooks, and calls Kymo's under other names (NAIVE_KYMO_ENTER and
 * NAIVE_KYMO_EXIT: the build renames them in a copy of libkymo.a). So both see the same run.
 */
#ifndef NAIVE_H
#define NAIVE_H

#include <stdint.h>

enum naive_kind {
	NAIVE_ENTER = 0,
	NAIVE_EXIT = 1,
	NAIVE_FULL = 2, /* the log's end came before the program's: what follows is missing */
	NAIVE_INTERRUPT = 3, /* Linux: a handler begins; `function` entries of its thread's so far */
};

/* The log is an array of these in time order: on the firmware a single log, on Linux one log after
 * the other for each thread, with the entries of signal handlers in a log of their own. */
struct naive_entry {
	uint64_t function; /* as the compiler passes it to the hook */
	uint32_t thread;   /* firmware: the thread's address; Linux: its id */
	uint16_t kind;
	uint16_t interrupt; /* 0: none; firmware: the exception; Linux: the signal */
};

#ifdef __linux__
/* A signal handler begins (its number) or ends (0). Handlers don't nest. */
void naive_interrupt(uint16_t signal);

/* Writes the log to this file. When no other thread runs any more. */
void naive_save(const char *path);
#else
/* Writes the log to the file "naive.log" on the machine that emulates this one (semihosting). */
void naive_save(void);
#endif

#endif
