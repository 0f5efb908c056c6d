/* C interface of libkymo_sysview.a, a recorder that sends SEGGER SystemView's stream.
 *
 * SystemView's application, `kymo` and other readers of that stream show threads, interrupts, timers, heaps, markers,
 * prints, events of your own, and functions. The library needs neither libkymo.a nor SEGGER's sources.
 *
 * 1. Define one `kymo_sysview_config` (below; fields that an initializer omits are 0).
 * 2. Call the functions below when the events occur, or let kymo_hooks.h with KYMO_HOOKS_SYSVIEW call them.
 * 3. Call kymo_sysview_receive() for each byte that arrives (an interrupt handler may), and kymo_sysview_poll() from a
 *    context that may block. If the host sends nothing, call only kymo_sysview_start().
 *
 * An event takes up to 120 bytes of stack (a text 300), and excludes other contexts while its bytes are passed to
 * `write`. Nothing is allocated. Events that `write` has no room for are counted and reported to the host.
 *
 * Timestamps have 32 bits: the clock must not wrap around between two events. All addresses are sent as 32 bits.
 */
#ifndef KYMO_SYSVIEW_H
#define KYMO_SYSVIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ configuration */

/* Greeting that begins a connection. */
enum kymo_sysview_greeting {
	KYMO_SYSVIEW_RTT = 0,    /* none: the connection begins with the stream */
	KYMO_SYSVIEW_SERIAL = 1, /* four bytes each way */
	KYMO_SYSVIEW_TCP = 2     /* 32 bytes each way; call kymo_sysview_connected() for each connection. Port 19111 */
};

/* First id for events of your own. */
#define KYMO_SYSVIEW_FIRST_EVENT 576u

/* Module: a group of events of your own. */
typedef struct kymo_sysview_module {
	/* "M=Name, 0 event a=%u b=%x, 1 other", at most 128 bytes; more events in more texts, without M=. NULL ends the
	 * list. */
	const char *const *texts;
	uint32_t first_event; /* id of event 0: KYMO_SYSVIEW_FIRST_EVENT or more */
} kymo_sysview_module_t;

typedef struct kymo_sysview_config {
	uint32_t clock_hz; /* of `clock` */
	uint32_t cpu_hz;   /* of the processor */
	/* Ids of tasks, timers, resources and heap blocks are (address - id_base) >> id_shift. Set id_base to the start
	 * of RAM, and id_shift to the number of low bits that are 0 in all of these addresses (usually 2). 0 and 0:
	 * addresses unchanged. */
	uint32_t id_base;
	uint32_t id_shift;
	uint32_t greeting; /* enum kymo_sysview_greeting */
	uint32_t module_count;
	const kymo_sysview_module_t *modules;
	/* Description of the system, in texts of at most 128 bytes: "N=application,D=device,C=core,O=system",
	 * "I#15=SysTick,I#31=UART". NULL ends the list. */
	const char *const *description;
	/* Counts up, and wraps at 2^32. */
	uint32_t (*clock)(void);
	/* Exclude other threads and interrupt handlers. unlock() receives the result of lock(). */
	uintptr_t (*lock)(void);
	void (*unlock)(uintptr_t was);
	/* Takes all bytes and returns true, or takes none and returns false. Called between lock() and unlock(). */
	bool (*write)(const uint8_t *bytes, size_t count);
	/* Calls kymo_sysview_task_info(), kymo_sysview_name_marker() and so on for all existing objects. NULL: none. */
	void (*describe)(void);
} kymo_sysview_config_t;

/* The program defines it. The functions in it must not be instrumented. */
extern const kymo_sysview_config_t kymo_sysview_config;

#if defined(__ARM_ARCH_PROFILE) && __ARM_ARCH_PROFILE == 'M'
/* `lock` and `unlock` for a Cortex-M: they mask and restore its interrupts. */
__attribute__((unused, no_instrument_function)) static uintptr_t kymo_sysview_mask(void)
{
	uintptr_t was;
	__asm__ volatile("mrs %0, PRIMASK\n\tcpsid i" : "=r"(was)::"memory");
	return was;
}

__attribute__((unused, no_instrument_function)) static void kymo_sysview_unmask(uintptr_t was)
{
	__asm__ volatile("msr PRIMASK, %0" ::"r"(was) : "memory");
}
#endif

/* ------------------------------------------------------------------ recording */

/* Start and stop a recording; a host does so with commands. kymo_sysview_start() returns false if `write` has no room
 * for the start of the stream. */
bool kymo_sysview_start(void);
void kymo_sysview_stop(void);
bool kymo_sysview_is_on(void);

/* Number of events lost since the start. */
uint32_t kymo_sysview_dropped(void);

/* A connection begins; take a byte that arrived; return whether kymo_sysview_poll() has work; do that work. */
void kymo_sysview_connected(void);
void kymo_sysview_receive(uint8_t byte);
bool kymo_sysview_pending(void);
void kymo_sysview_poll(void);

/* ------------------------------------------------------------------ events */

/* An interrupt handler begins and ends; `irq` is the architecture's number (Cortex-M: 15 = SysTick, 16 = IRQ 0). The
 * third function: the handler ends in the scheduler. */
void kymo_sysview_isr_enter(uint32_t irq);
void kymo_sysview_isr_exit(void);
void kymo_sysview_isr_exit_to_scheduler(void);

/* Tasks, identified by their address. For the idle task call kymo_sysview_idle(). */
void kymo_sysview_idle(void);
void kymo_sysview_task_create(uintptr_t task);
void kymo_sysview_task_info(uintptr_t task, uint32_t priority, const char *name);
void kymo_sysview_task_stack(uintptr_t task, uintptr_t base, uint32_t size, uint32_t usage);
void kymo_sysview_task_start_exec(uintptr_t task);
void kymo_sysview_task_stop_exec(void);
void kymo_sysview_task_start_ready(uintptr_t task);
void kymo_sysview_task_stop_ready(uintptr_t task, uint32_t cause);
void kymo_sysview_task_terminate(uintptr_t task);

/* The callback of a software timer begins and ends. */
void kymo_sysview_timer_enter(uintptr_t timer);
void kymo_sysview_timer_exit(void);

/* User-defined intervals, and markers. */
void kymo_sysview_mark_start(uint32_t id);
void kymo_sysview_mark_stop(uint32_t id);
void kymo_sysview_mark(uint32_t id);
void kymo_sysview_name_marker(uint32_t id, const char *name);

/* Names of resources (timers, semaphores, queues), and heaps. */
void kymo_sysview_name_resource(uintptr_t resource, const char *name);
void kymo_sysview_heap_define(uintptr_t heap, uintptr_t base, uint32_t size, uint32_t metadata);
void kymo_sysview_heap_alloc(uintptr_t heap, uintptr_t block, uint32_t size);
void kymo_sysview_heap_free(uintptr_t heap, uintptr_t block);

/* Function entries and exits. Write KYMO_SYSVIEW_FUNCTIONS; once, outside of functions, to record the functions that
 * are compiled with -finstrument-functions. (Not in a program that links libkymo.a, which defines the same hooks.) */
void kymo_sysview_function_enter(uintptr_t function, uintptr_t call_site);
void kymo_sysview_function_exit(uintptr_t function, uintptr_t call_site);

#define KYMO_SYSVIEW_FUNCTIONS                                                                    \
	__attribute__((no_instrument_function)) void __cyg_profile_func_enter(void *function,    \
									      void *call_site)   \
	{                                                                                         \
		kymo_sysview_function_enter((uintptr_t)function, (uintptr_t)call_site);          \
	}                                                                                         \
	__attribute__((no_instrument_function)) void __cyg_profile_func_exit(void *function,     \
									     void *call_site)    \
	{                                                                                         \
		kymo_sysview_function_exit((uintptr_t)function, (uintptr_t)call_site);           \
	}                                                                                         \
	KYMO_SYSVIEW_END

/* Prints a text with %u, %d, %x for at most 10 numbers, which the host formats. */
enum kymo_sysview_level {
	KYMO_SYSVIEW_LOG = 0,
	KYMO_SYSVIEW_WARNING = 1,
	KYMO_SYSVIEW_ERROR = 2
};
void kymo_sysview_print_with(uint32_t level, const char *format, const uint32_t *numbers, uint32_t count);

/* Record an event of your own, with at most 10 numbers, and the return of the call that the event began. */
void kymo_sysview_event(uint32_t id, const uint32_t *numbers, uint32_t count);
void kymo_sysview_end_call(uint32_t id);
void kymo_sysview_end_call_with(uint32_t id, uint32_t value);

/* Take the numbers as arguments: KYMO_SYSVIEW_PRINT(KYMO_SYSVIEW_LOG, "%u of %u", 3, 4). At least one number. */
#define KYMO_SYSVIEW_PRINT(level_, format_, ...)                                                  \
	__extension__({                                                                           \
		const uint32_t numbers_[] = {__VA_ARGS__};                                        \
		kymo_sysview_print_with((level_), (format_), numbers_,                            \
					sizeof numbers_ / sizeof numbers_[0]);                    \
	})
#define KYMO_SYSVIEW_EVENT(id_, ...)                                                              \
	__extension__({                                                                           \
		const uint32_t numbers_[] = {__VA_ARGS__};                                        \
		kymo_sysview_event((id_), numbers_, sizeof numbers_ / sizeof numbers_[0]);        \
	})

#ifdef __cplusplus
#define KYMO_SYSVIEW_END static_assert(true, "")
}
#else
#define KYMO_SYSVIEW_END _Static_assert(1, "")
#endif

#endif
