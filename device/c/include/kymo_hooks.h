/* Kernel hooks: threads, interrupts, locks, semaphores, mutexes, queues, timers, idle time, system calls, memory,
 * network packets, and user events.
 *
 * A kernel, its port or a driver calls these macros when the events occur. A back end determines what they do:
 *
 *     KYMO_HOOKS_KYMO     libkymo.a records them: threads and interrupts as such, the rest as named markers
 *     KYMO_HOOKS_SYSVIEW  libkymo_sysview.a sends them to SystemView
 *     KYMO_HOOKS_FILE     your own: the name of a header, in quotes, that defines the macros which it needs
 *
 * Define one of them for the compiler (-DKYMO_HOOKS_KYMO). Without a back end, and for each macro that your header does
 * not define, the hooks compile to nothing: no instruction, and the arguments are not evaluated.
 *
 * Most hooks expand to three macros, for events with no, one or two numbers. Your header can define these to receive
 * all of them, or define single hooks:
 *
 *     KYMO_HOOK_EVENT0(NUMBER, event)
 *     KYMO_HOOK_EVENT1(NUMBER, event, name, value)
 *     KYMO_HOOK_EVENT2(NUMBER, event, name, value, second_name, second_value)
 *
 * NUMBER identifies the event; `event` and the names are identifiers, for use as strings (#event).
 *
 * Threads and other objects are identified by a unique number: their address. */
#ifndef KYMO_HOOKS_H
#define KYMO_HOOKS_H

#include <stdint.h>

/* Hooks that are one event each, with no, one or two numbers: X1(NUMBER, event, name). */
#define KYMO_HOOK_EVENTS(X0, X1, X2)                 \
	X0(0, interrupts_masked)                     \
	X0(1, interrupts_unmasked)                   \
	X1(2, lock_wait, lock)                       \
	X1(3, lock_taken, lock)                      \
	X1(4, lock_released, lock)                   \
	X2(5, semaphore_init, semaphore, count)      \
	X2(6, semaphore_take, semaphore, timeout)    \
	X2(7, semaphore_taken, semaphore, result)    \
	X1(8, semaphore_give, semaphore)             \
	X1(9, mutex_init, mutex)                     \
	X2(10, mutex_lock, mutex, timeout)           \
	X2(11, mutex_locked, mutex, result)          \
	X1(12, mutex_unlock, mutex)                  \
	X2(13, queue_init, queue, size)              \
	X2(14, queue_put, queue, timeout)            \
	X2(15, queue_put_done, queue, result)        \
	X2(16, queue_get, queue, timeout)            \
	X2(17, queue_got, queue, result)             \
	X2(18, timer_start, timer, period)           \
	X1(19, timer_stop, timer)                    \
	X1(20, syscall_enter, number)                \
	X2(21, syscall_exit, number, result)         \
	X2(22, packet_send, interface, size)         \
	X2(23, packet_receive, interface, size)      \
	X2(24, user, id, value)

/* ------------------------------------------------------------------ back ends */

#if defined(KYMO_HOOKS_FILE)
#include KYMO_HOOKS_FILE

#elif defined(KYMO_HOOKS_KYMO)
#include "kymo.h"

/* The second of two numbers is a marker of its own, with its own name. (In the recording a name is an address in the
 * program, no larger than a number.) */
#define KYMO_HOOK_EVENT0(number_, event_) kymo_named_marker(#event_, 0)
#define KYMO_HOOK_EVENT1(number_, event_, name_, value_) kymo_named_marker(#event_, (uint32_t)(value_))
#define KYMO_HOOK_EVENT2(number_, event_, name_, value_, second_name_, second_)                   \
	(kymo_named_marker(#event_, (uint32_t)(value_)),                                          \
	 kymo_named_marker(#event_ " " #second_name_, (uint32_t)(second_)))
#define KYMO_HOOK_THREAD_CREATED(thread_) kymo_named_marker("thread_created", (uint32_t)(thread_))
#define KYMO_HOOK_THREAD_NAME(thread_, priority_, name_) kymo_hook_thread_name((thread_), (uint32_t)(priority_), (name_))
#define KYMO_HOOK_THREAD_READY(thread_) kymo_named_marker("thread_ready", (uint32_t)(thread_))
#define KYMO_HOOK_THREAD_BLOCKED(thread_, cause_)                                                 \
	(kymo_named_marker("thread_blocked", (uint32_t)(thread_)),                                \
	 kymo_named_marker("thread_blocked cause", (uint32_t)(cause_)))
#define KYMO_HOOK_THREAD_SWITCHED_IN(thread_) kymo_switched_in(thread_)
#define KYMO_HOOK_THREAD_SWITCHED_OUT(thread_) kymo_switched_out(thread_)
#define KYMO_HOOK_THREAD_ENDED(thread_) kymo_thread_ended(thread_)
#define KYMO_HOOK_ISR_ENTER(irq_) kymo_isr_enter(irq_)
#define KYMO_HOOK_ISR_EXIT(irq_) kymo_isr_exit(irq_)
#define KYMO_HOOK_IDLE() kymo_named_marker("idle", 0)
#define KYMO_HOOK_TIMER_ENTER(timer_) kymo_named_marker("timer_enter", (uint32_t)(timer_))
#define KYMO_HOOK_TIMER_EXIT(timer_) kymo_named_marker("timer_exit", (uint32_t)(timer_))
#define KYMO_HOOK_MEMORY_ALLOC(heap_, block_, size_)                                              \
	(kymo_named_marker("memory_alloc", (uint32_t)(block_)),                                   \
	 kymo_named_marker("memory_alloc size", (uint32_t)(size_)),                               \
	 kymo_named_marker("memory_alloc heap", (uint32_t)(heap_)))
#define KYMO_HOOK_MEMORY_FREE(heap_, block_)                                                      \
	(kymo_named_marker("memory_free", (uint32_t)(block_)), kymo_named_marker("memory_free heap", (uint32_t)(heap_)))

__attribute__((unused, no_instrument_function)) static void kymo_hook_thread_name(uintptr_t thread, uint32_t priority,
										  const char *name)
{
	kymo_thread_name(thread, name);
	kymo_named_marker("thread_priority", (uint32_t)thread);
	kymo_named_marker("thread_priority priority", priority);
}

#elif defined(KYMO_HOOKS_SYSVIEW)
#include "kymo_sysview.h"

/* Module of these events: an element for the list in kymo_sysview_config.modules. (C only.) It takes 1.2 KB of the ring
 * at the start of a recording. */
#define KYMO_HOOKS_FIRST_EVENT 514u
#define KYMO_HOOKS_TEXT0(number_, event_) #number_ " " #event_,
#define KYMO_HOOKS_TEXT1(number_, event_, name_) #number_ " " #event_ " " #name_ "=%x",
#define KYMO_HOOKS_TEXT2(number_, event_, name_, second_) #number_ " " #event_ " " #name_ "=%x " #second_ "=%u",
#define KYMO_HOOKS_MODULE                                                                              \
	{(const char *const[]){"M=Kernel",                                                             \
			       KYMO_HOOK_EVENTS(KYMO_HOOKS_TEXT0, KYMO_HOOKS_TEXT1, KYMO_HOOKS_TEXT2) NULL}, \
	 KYMO_HOOKS_FIRST_EVENT}

#define KYMO_HOOK_EVENT0(number_, event_) kymo_sysview_event(KYMO_HOOKS_FIRST_EVENT + (number_), NULL, 0)
#define KYMO_HOOK_EVENT1(number_, event_, name_, value_) \
	KYMO_SYSVIEW_EVENT(KYMO_HOOKS_FIRST_EVENT + (number_), (uint32_t)(value_))
#define KYMO_HOOK_EVENT2(number_, event_, name_, value_, second_name_, second_) \
	KYMO_SYSVIEW_EVENT(KYMO_HOOKS_FIRST_EVENT + (number_), (uint32_t)(value_), (uint32_t)(second_))
#define KYMO_HOOK_THREAD_CREATED(thread_) kymo_sysview_task_create(thread_)
#define KYMO_HOOK_THREAD_NAME(thread_, priority_, name_) kymo_sysview_task_info((thread_), (priority_), (name_))
#define KYMO_HOOK_THREAD_READY(thread_) kymo_sysview_task_start_ready(thread_)
#define KYMO_HOOK_THREAD_BLOCKED(thread_, cause_) kymo_sysview_task_stop_ready((thread_), (cause_))
#define KYMO_HOOK_THREAD_SWITCHED_IN(thread_) kymo_sysview_task_start_exec(thread_)
#define KYMO_HOOK_THREAD_SWITCHED_OUT(thread_) kymo_sysview_task_stop_exec()
#define KYMO_HOOK_THREAD_ENDED(thread_) kymo_sysview_task_terminate(thread_)
#define KYMO_HOOK_ISR_ENTER(irq_) kymo_sysview_isr_enter(irq_)
#define KYMO_HOOK_ISR_EXIT(irq_) kymo_sysview_isr_exit()
#define KYMO_HOOK_ISR_EXIT_TO_SCHEDULER(irq_) kymo_sysview_isr_exit_to_scheduler()
#define KYMO_HOOK_IDLE() kymo_sysview_idle()
#define KYMO_HOOK_TIMER_ENTER(timer_) kymo_sysview_timer_enter(timer_)
#define KYMO_HOOK_TIMER_EXIT(timer_) kymo_sysview_timer_exit()
#define KYMO_HOOK_MEMORY_ALLOC(heap_, block_, size_) kymo_sysview_heap_alloc((heap_), (block_), (uint32_t)(size_))
#define KYMO_HOOK_MEMORY_FREE(heap_, block_) kymo_sysview_heap_free((heap_), (block_))
#endif

/* ------------------------------------------------------------------ hooks without a back end */

/* Compiles to no instruction and causes no warning about unused values, but the arguments must be valid. */
#define KYMO_HOOK_NOTHING(first_, second_, third_) \
	((void)sizeof(first_), (void)sizeof(second_), (void)sizeof(third_))

#ifndef KYMO_HOOK_EVENT0
#define KYMO_HOOK_EVENT0(number_, event_) ((void)0)
#endif
#ifndef KYMO_HOOK_EVENT1
#define KYMO_HOOK_EVENT1(number_, event_, name_, value_) KYMO_HOOK_NOTHING(value_, 0, 0)
#endif
#ifndef KYMO_HOOK_EVENT2
#define KYMO_HOOK_EVENT2(number_, event_, name_, value_, second_name_, second_) KYMO_HOOK_NOTHING(value_, second_, 0)
#endif

/* ------------------------------------------------------------------ threads */

/* In this order: a thread was created; has a name and a priority; is ready; is blocked (the kernel's own number of the
 * cause); gets the processor; loses the processor; has ended. */
#ifndef KYMO_HOOK_THREAD_CREATED
#define KYMO_HOOK_THREAD_CREATED(thread_) KYMO_HOOK_NOTHING(thread_, 0, 0)
#endif
#ifndef KYMO_HOOK_THREAD_NAME
#define KYMO_HOOK_THREAD_NAME(thread_, priority_, name_) KYMO_HOOK_NOTHING(thread_, priority_, name_)
#endif
#ifndef KYMO_HOOK_THREAD_READY
#define KYMO_HOOK_THREAD_READY(thread_) KYMO_HOOK_NOTHING(thread_, 0, 0)
#endif
#ifndef KYMO_HOOK_THREAD_BLOCKED
#define KYMO_HOOK_THREAD_BLOCKED(thread_, cause_) KYMO_HOOK_NOTHING(thread_, cause_, 0)
#endif
#ifndef KYMO_HOOK_THREAD_SWITCHED_IN
#define KYMO_HOOK_THREAD_SWITCHED_IN(thread_) KYMO_HOOK_NOTHING(thread_, 0, 0)
#endif
#ifndef KYMO_HOOK_THREAD_SWITCHED_OUT
#define KYMO_HOOK_THREAD_SWITCHED_OUT(thread_) KYMO_HOOK_NOTHING(thread_, 0, 0)
#endif
#ifndef KYMO_HOOK_THREAD_ENDED
#define KYMO_HOOK_THREAD_ENDED(thread_) KYMO_HOOK_NOTHING(thread_, 0, 0)
#endif

/* No thread runs. */
#ifndef KYMO_HOOK_IDLE
#define KYMO_HOOK_IDLE() ((void)0)
#endif

/* ------------------------------------------------------------------ interrupts */

/* An interrupt handler begins; ends; ends in the scheduler. `irq` is the architecture's number. */
#ifndef KYMO_HOOK_ISR_ENTER
#define KYMO_HOOK_ISR_ENTER(irq_) KYMO_HOOK_NOTHING(irq_, 0, 0)
#endif
#ifndef KYMO_HOOK_ISR_EXIT
#define KYMO_HOOK_ISR_EXIT(irq_) KYMO_HOOK_NOTHING(irq_, 0, 0)
#endif
#ifndef KYMO_HOOK_ISR_EXIT_TO_SCHEDULER
#define KYMO_HOOK_ISR_EXIT_TO_SCHEDULER(irq_) KYMO_HOOK_ISR_EXIT(irq_)
#endif

/* The program masks and unmasks interrupts. */
#ifndef KYMO_HOOK_INTERRUPTS_MASKED
#define KYMO_HOOK_INTERRUPTS_MASKED() KYMO_HOOK_EVENT0(0, interrupts_masked)
#endif
#ifndef KYMO_HOOK_INTERRUPTS_UNMASKED
#define KYMO_HOOK_INTERRUPTS_UNMASKED() KYMO_HOOK_EVENT0(1, interrupts_unmasked)
#endif

/* ------------------------------------------------------------------ locks, semaphores, mutexes, queues */

/* A spin lock is waited for, acquired, released. */
#ifndef KYMO_HOOK_LOCK_WAIT
#define KYMO_HOOK_LOCK_WAIT(lock_) KYMO_HOOK_EVENT1(2, lock_wait, lock, lock_)
#endif
#ifndef KYMO_HOOK_LOCK_TAKEN
#define KYMO_HOOK_LOCK_TAKEN(lock_) KYMO_HOOK_EVENT1(3, lock_taken, lock, lock_)
#endif
#ifndef KYMO_HOOK_LOCK_RELEASED
#define KYMO_HOOK_LOCK_RELEASED(lock_) KYMO_HOOK_EVENT1(4, lock_released, lock, lock_)
#endif

/* A call that may wait has two hooks: one with its timeout when it begins, one with its result when it returns. */
#ifndef KYMO_HOOK_SEMAPHORE_INIT
#define KYMO_HOOK_SEMAPHORE_INIT(semaphore_, count_) \
	KYMO_HOOK_EVENT2(5, semaphore_init, semaphore, semaphore_, count, count_)
#endif
#ifndef KYMO_HOOK_SEMAPHORE_TAKE
#define KYMO_HOOK_SEMAPHORE_TAKE(semaphore_, timeout_) \
	KYMO_HOOK_EVENT2(6, semaphore_take, semaphore, semaphore_, timeout, timeout_)
#endif
#ifndef KYMO_HOOK_SEMAPHORE_TAKEN
#define KYMO_HOOK_SEMAPHORE_TAKEN(semaphore_, result_) \
	KYMO_HOOK_EVENT2(7, semaphore_taken, semaphore, semaphore_, result, result_)
#endif
#ifndef KYMO_HOOK_SEMAPHORE_GIVE
#define KYMO_HOOK_SEMAPHORE_GIVE(semaphore_) KYMO_HOOK_EVENT1(8, semaphore_give, semaphore, semaphore_)
#endif
#ifndef KYMO_HOOK_MUTEX_INIT
#define KYMO_HOOK_MUTEX_INIT(mutex_) KYMO_HOOK_EVENT1(9, mutex_init, mutex, mutex_)
#endif
#ifndef KYMO_HOOK_MUTEX_LOCK
#define KYMO_HOOK_MUTEX_LOCK(mutex_, timeout_) KYMO_HOOK_EVENT2(10, mutex_lock, mutex, mutex_, timeout, timeout_)
#endif
#ifndef KYMO_HOOK_MUTEX_LOCKED
#define KYMO_HOOK_MUTEX_LOCKED(mutex_, result_) KYMO_HOOK_EVENT2(11, mutex_locked, mutex, mutex_, result, result_)
#endif
#ifndef KYMO_HOOK_MUTEX_UNLOCK
#define KYMO_HOOK_MUTEX_UNLOCK(mutex_) KYMO_HOOK_EVENT1(12, mutex_unlock, mutex, mutex_)
#endif
#ifndef KYMO_HOOK_QUEUE_INIT
#define KYMO_HOOK_QUEUE_INIT(queue_, size_) KYMO_HOOK_EVENT2(13, queue_init, queue, queue_, size, size_)
#endif
#ifndef KYMO_HOOK_QUEUE_PUT
#define KYMO_HOOK_QUEUE_PUT(queue_, timeout_) KYMO_HOOK_EVENT2(14, queue_put, queue, queue_, timeout, timeout_)
#endif
#ifndef KYMO_HOOK_QUEUE_PUT_DONE
#define KYMO_HOOK_QUEUE_PUT_DONE(queue_, result_) KYMO_HOOK_EVENT2(15, queue_put_done, queue, queue_, result, result_)
#endif
#ifndef KYMO_HOOK_QUEUE_GET
#define KYMO_HOOK_QUEUE_GET(queue_, timeout_) KYMO_HOOK_EVENT2(16, queue_get, queue, queue_, timeout, timeout_)
#endif
#ifndef KYMO_HOOK_QUEUE_GOT
#define KYMO_HOOK_QUEUE_GOT(queue_, result_) KYMO_HOOK_EVENT2(17, queue_got, queue, queue_, result, result_)
#endif

/* ------------------------------------------------------------------ timers */

/* A software timer is started, stopped; its callback begins, ends. */
#ifndef KYMO_HOOK_TIMER_START
#define KYMO_HOOK_TIMER_START(timer_, period_) KYMO_HOOK_EVENT2(18, timer_start, timer, timer_, period, period_)
#endif
#ifndef KYMO_HOOK_TIMER_STOP
#define KYMO_HOOK_TIMER_STOP(timer_) KYMO_HOOK_EVENT1(19, timer_stop, timer, timer_)
#endif
#ifndef KYMO_HOOK_TIMER_ENTER
#define KYMO_HOOK_TIMER_ENTER(timer_) KYMO_HOOK_NOTHING(timer_, 0, 0)
#endif
#ifndef KYMO_HOOK_TIMER_EXIT
#define KYMO_HOOK_TIMER_EXIT(timer_) KYMO_HOOK_NOTHING(timer_, 0, 0)
#endif

/* ------------------------------------------------------------------ system calls, memory, network, user */

#ifndef KYMO_HOOK_SYSCALL_ENTER
#define KYMO_HOOK_SYSCALL_ENTER(number_) KYMO_HOOK_EVENT1(20, syscall_enter, number, number_)
#endif
#ifndef KYMO_HOOK_SYSCALL_EXIT
#define KYMO_HOOK_SYSCALL_EXIT(number_, result_) \
	KYMO_HOOK_EVENT2(21, syscall_exit, number, number_, result, result_)
#endif
#ifndef KYMO_HOOK_MEMORY_ALLOC
#define KYMO_HOOK_MEMORY_ALLOC(heap_, block_, size_) KYMO_HOOK_NOTHING(heap_, block_, size_)
#endif
#ifndef KYMO_HOOK_MEMORY_FREE
#define KYMO_HOOK_MEMORY_FREE(heap_, block_) KYMO_HOOK_NOTHING(heap_, block_, 0)
#endif
#ifndef KYMO_HOOK_PACKET_SEND
#define KYMO_HOOK_PACKET_SEND(interface_, size_) \
	KYMO_HOOK_EVENT2(22, packet_send, interface, interface_, size, size_)
#endif
#ifndef KYMO_HOOK_PACKET_RECEIVE
#define KYMO_HOOK_PACKET_RECEIVE(interface_, size_) \
	KYMO_HOOK_EVENT2(23, packet_receive, interface, interface_, size, size_)
#endif
#ifndef KYMO_HOOK_USER
#define KYMO_HOOK_USER(id_, value_) KYMO_HOOK_EVENT2(24, user, id, id_, value, value_)
#endif

#endif
