/* A recorder that sends SEGGER SystemView's stream: the C interface of libkymo_sysview.a.
 *
 * SystemView's application, `kymo` and whatever else reads that stream show threads, interrupts, timers, heaps, markers,
 * prints, events of your own, and functions. Needs neither libkymo.a nor SEGGER's sources.
 *
 *   1. Define one `kymo_sysview_config` (below; what an initializer leaves out is 0).
 *   2. Call the functions below where things happen, or kymo_hooks.h with KYMO_HOOKS_SYSVIEW does.
 *   3. Call kymo_sysview_receive() for each byte that arrives (an interrupt handler may), and kymo_sysview_poll() from a
 *      place that may take its time; or kymo_sysview_start() alone, where no host says anything.
 *
 * An event takes up to 120 bytes of stack (a text 300), and keeps others off while its bytes are handed to `write`. Nothing is
 * allocated. Events that `write` has no room for are counted and reported to the host.
 *
 * Times are of 32 bits: between two events the clock must not go round. All addresses are sent as 32 bits.
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

/* How a connection begins. */
enum kymo_sysview_greeting {
	KYMO_SYSVIEW_RTT = 0,    /* with the stream */
	KYMO_SYSVIEW_SERIAL = 1, /* with four bytes each way */
	KYMO_SYSVIEW_TCP = 2     /* with 32 bytes each way; call kymo_sysview_connected() for each connection. Port 19111 */
};

/* The first id for events of your own. */
#define KYMO_SYSVIEW_FIRST_EVENT 576u

/* A module: a group of events of your own. */
typedef struct kymo_sysview_module {
	/* "M=Name, 0 event a=%u b=%x, 1 other", at most 128 bytes; more events in more texts, without M=. Ends with NULL. */
	const char *const *texts;
	uint32_t first_event; /* the id of event 0: KYMO_SYSVIEW_FIRST_EVENT or more */
} kymo_sysview_module_t;

typedef struct kymo_sysview_config {
	uint32_t clock_hz; /* of `clock` */
	uint32_t cpu_hz;   /* of the processor */
	/* Ids of tasks, timers, resources and heap blocks are (address - id_base) >> id_shift: give the start of RAM, and the
	 * bits that are 0 in all of these addresses (2 as a rule). 0 and 0: addresses as they are. */
	uint32_t id_base;
	uint32_t id_shift;
	uint32_t greeting; /* enum kymo_sysview_greeting */
	uint32_t module_count;
	const kymo_sysview_module_t *modules;
	/* The system, texts of at most 128 bytes: "N=application,D=device,C=core,O=system", "I#15=SysTick,I#31=UART". Ends with
	 * NULL. */
	const char *const *description;
	/* Counts up, and begins again at 0 after 2^32. */
	uint32_t (*clock)(void);
	/* Keep others off: from other threads and interrupt handlers. What lock() returns is given back to unlock(). */
	uintptr_t (*lock)(void);
	void (*unlock)(uintptr_t was);
	/* Takes all bytes, or none and says so. Called between lock() and unlock(). */
	bool (*write)(const uint8_t *bytes, size_t count);
	/* Calls kymo_sysview_task_info(), kymo_sysview_name_marker() and so on for all that there is. NULL: nothing. */
	void (*describe)(void);
} kymo_sysview_config_t;

/* You define this one. The functions that it names must not be instrumented. */
extern const kymo_sysview_config_t kymo_sysview_config;

#if defined(__ARM_ARCH_PROFILE) && __ARM_ARCH_PROFILE == 'M'
/* `lock` and `unlock` of a Cortex-M: they mask its interrupts. */
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

/* Begin and end a recording; a host does so with commands. False: `write` has no room for the beginning. */
bool kymo_sysview_start(void);
void kymo_sysview_stop(void);
bool kymo_sysview_is_on(void);

/* Events since the start that were not stored. */
uint32_t kymo_sysview_dropped(void);

/* A connection begins; a byte arrived; whether there is something to do; do it. */
void kymo_sysview_connected(void);
void kymo_sysview_receive(uint8_t byte);
bool kymo_sysview_pending(void);
void kymo_sysview_poll(void);

/* ------------------------------------------------------------------ events */

/* An interrupt handler begins and ends; `irq` as the architecture counts (Cortex-M: 15 = SysTick, 16 = IRQ 0). The third: it
 * ends in the scheduler. */
void kymo_sysview_isr_enter(uint32_t irq);
void kymo_sysview_isr_exit(void);
void kymo_sysview_isr_exit_to_scheduler(void);

/* Tasks, by an address that tells them apart. The idle task is kymo_sysview_idle(). */
void kymo_sysview_idle(void);
void kymo_sysview_task_create(uintptr_t task);
void kymo_sysview_task_info(uintptr_t task, uint32_t priority, const char *name);
void kymo_sysview_task_stack(uintptr_t task, uintptr_t base, uint32_t size, uint32_t usage);
void kymo_sysview_task_start_exec(uintptr_t task);
void kymo_sysview_task_stop_exec(void);
void kymo_sysview_task_start_ready(uintptr_t task);
void kymo_sysview_task_stop_ready(uintptr_t task, uint32_t cause);
void kymo_sysview_task_terminate(uintptr_t task);

/* The function of a software timer. */
void kymo_sysview_timer_enter(uintptr_t timer);
void kymo_sysview_timer_exit(void);

/* User events with a beginning and an end, and markers. */
void kymo_sysview_mark_start(uint32_t id);
void kymo_sysview_mark_stop(uint32_t id);
void kymo_sysview_mark(uint32_t id);
void kymo_sysview_name_marker(uint32_t id, const char *name);

/* Timers, semaphores, queues, heaps. */
void kymo_sysview_name_resource(uintptr_t resource, const char *name);
void kymo_sysview_heap_define(uintptr_t heap, uintptr_t base, uint32_t size, uint32_t metadata);
void kymo_sysview_heap_alloc(uintptr_t heap, uintptr_t block, uint32_t size);
void kymo_sysview_heap_free(uintptr_t heap, uintptr_t block);

/* Functions. KYMO_SYSVIEW_FUNCTIONS; once, outside of functions, records those that are compiled with
 * -finstrument-functions. (Not in a program that links libkymo.a, whose hooks these are.) */
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

/* A program says something: a text with %u, %d, %x for at most 10 numbers, which the host puts together. */
enum kymo_sysview_level {
	KYMO_SYSVIEW_LOG = 0,
	KYMO_SYSVIEW_WARNING = 1,
	KYMO_SYSVIEW_ERROR = 2
};
void kymo_sysview_print_with(uint32_t level, const char *format, const uint32_t *numbers, uint32_t count);

/* An event of your own, with at most 10 numbers; and that the call which it began returns. */
void kymo_sysview_event(uint32_t id, const uint32_t *numbers, uint32_t count);
void kymo_sysview_end_call(uint32_t id);
void kymo_sysview_end_call_with(uint32_t id, uint32_t value);

/* The same with the numbers as arguments: KYMO_SYSVIEW_PRINT(KYMO_SYSVIEW_LOG, "%u of %u", 3, 4). There must be one. */
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
