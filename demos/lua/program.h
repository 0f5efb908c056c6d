/* The demonstration program: the same on every target.
 *
 * A target starts two threads that run rounds of a Lua script, and calls program_sample() from a
 * timer interrupt (or a signal handler). The first round of the first thread goes through a
 * function of its own, program_first_round(): the default trigger and stopper, so that a trace
 * taken without any choice shows exactly that round, and what ran beside it.
 */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <stdint.h>

/* Runs the script once in a new Lua state, for the thread called `who`. */
void program_round(const char *who, uint32_t number);

/* program_round(who, 1): what is recorded by default. */
void program_first_round(const char *who);

/* The work of the timer interrupt: takes a sample of a signal and filters it. Neither allocates
 * nor waits. */
void program_sample(void);

/* The numbers of rounds finished and of samples taken so far. */
uint32_t program_rounds(void);
uint32_t program_samples(void);

#endif
