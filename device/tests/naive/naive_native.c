/* The naive recorder on Linux: a log for each thread, and another for its signal handlers. Signals
 * are not blocked while it writes: one may interrupt this hook or Kymo's, as in any program, so the
 * position of a handler may differ by the one event that was being written; each log by itself is
 * exact. */
#define _GNU_SOURCE
#include "naive.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

void NAIVE_KYMO_ENTER(void *function, void *call_site);
void NAIVE_KYMO_EXIT(void *function, void *call_site);

/* 16 bytes each; the system only provides what is touched. */
#define CAPACITY (4u * 1024u * 1024u)

struct log {
	struct log *next;
	uint32_t thread;
	uint32_t count;
	struct naive_entry entries[CAPACITY];
};

static _Atomic(struct log *) logs;

/* This thread's logs: its own, and that of its signal handlers. */
static _Thread_local struct log *own[2];
static _Thread_local uint16_t interrupt;

/* mmap, because malloc must not be called in a signal handler; never freed, because the log
 * outlives its thread. */
static struct log *new_log(void)
{
	struct log *log = mmap(NULL, sizeof *log, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (log == MAP_FAILED)
		abort();
	log->thread = (uint32_t)gettid();
	log->next = atomic_load(&logs);
	while (!atomic_compare_exchange_weak(&logs, &log->next, log))
		;
	return log;
}

static void log_event(uint64_t function, enum naive_kind kind)
{
	bool in_handler = interrupt != 0;
	struct log *log = own[in_handler];
	if (!log)
		log = own[in_handler] = new_log();
	if (log->count == CAPACITY)
		return;
	log->entries[log->count] = (struct naive_entry){
		.function = function,
		.thread = log->thread,
		.kind = log->count == CAPACITY - 1 ? NAIVE_FULL : kind,
		.interrupt = interrupt,
	};
	log->count++;
}

void __cyg_profile_func_enter(void *function, void *call_site)
{
	log_event((uintptr_t)function, NAIVE_ENTER);
	NAIVE_KYMO_ENTER(function, call_site);
}

void __cyg_profile_func_exit(void *function, void *call_site)
{
	log_event((uintptr_t)function, NAIVE_EXIT);
	NAIVE_KYMO_EXIT(function, call_site);
}

void naive_interrupt(uint16_t signal)
{
	interrupt = signal;
	if (signal)
		log_event(own[false] ? own[false]->count : 0, NAIVE_INTERRUPT);
}

void naive_save(const char *path)
{
	FILE *file = fopen(path, "wb");
	bool written = file;
	for (struct log *log = atomic_load(&logs); log && written; log = log->next)
		written = fwrite(log->entries, sizeof *log->entries, log->count, file) == log->count;
	if (!written || fclose(file) != 0) {
		perror(path);
		exit(1);
	}
}
