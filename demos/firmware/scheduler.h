/* A small preemptive scheduler: round robin among the threads that are ready, a time slice each.
 *
 * Switching is the work of PendSV, the interrupt of lowest priority, as is usual on this core: so
 * a switch never interrupts another handler.
 */
#ifndef SCHEDULER_H
#define SCHEDULER_H

#include <reent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TICK_HZ 1000u
#define SLICE_TICKS 5u

/* A thread. Its owner provides the memory; only the scheduler uses the fields. */
struct thread {
	uint32_t *stack_pointer; /* while another runs */
	const char *name;
	struct thread *next; /* all threads form a ring */
	uint32_t wake_at;    /* the tick at which a sleeping thread is ready again */
	volatile bool sleeping;
	volatile bool waiting;  /* until scheduler_wake() */
	volatile bool wake_kept; /* a wake that came before the wait */
	struct _reent reent;    /* the C library's errno, streams and so on */
};

/* Makes a thread that runs `entry(argument)`, which must not return. Before scheduler_start(). */
void scheduler_add(struct thread *thread, const char *name, void (*entry)(void *), void *argument,
		   uint64_t *stack, size_t stack_bytes);

/* Starts the tick and the threads; the caller continues as the idle thread, on its old stack. */
void scheduler_start(void);

/* The thread that runs now (before the start: the idle thread). */
struct thread *scheduler_current(void);

/* Sleeps for this many ticks. */
void scheduler_sleep(uint32_t ticks);

/* Waits for scheduler_wake(), which an interrupt handler may call. */
void scheduler_wait(void);
void scheduler_wake(struct thread *thread);

/* Disable and enable preemption by threads (not interrupts). They nest. Not for interrupt handlers. */
void scheduler_lock(void);
void scheduler_unlock(void);

/* The periodic tick, from SysTick's handler. */
void scheduler_tick(void);

/* PendSV's handler. */
void scheduler_switch(void);

/* Called at each switch, before and after scheduler_current() changes. Kymo is configured to
 * convert their entries to events (kymo_config.promotions). */
void scheduler_switched_out(void);
void scheduler_switched_in(void);

#endif
