/* The hooks of CONFIG_TRACING_USER: thread switches, interrupts and names of threads for Kymo's recorder.
 *
 * No header of Zephyr's is included: older versions pass the thread to the hooks of a switch, newer ones nothing, and a
 * function that takes nothing answers both. */
#include "kymo.h"
#include "kymo_zephyr.h"

void sys_trace_thread_switched_in_user(void);
void sys_trace_thread_switched_out_user(void);
void sys_trace_isr_enter_user(void);
void sys_trace_isr_exit_user(void);
void sys_trace_thread_name_set_user(void *thread);
void sys_trace_thread_abort_user(void *thread);

void sys_trace_thread_switched_in_user(void)
{
	kymo_switched_in(kymo_zephyr_thread());
}

void sys_trace_thread_switched_out_user(void)
{
	kymo_switched_out(kymo_zephyr_thread());
}

/* The number of the exception that runs: 15 is SysTick, 16 the chip's first interrupt. */
static inline uint16_t exception(void)
{
	uint32_t ipsr;

	__asm__ volatile("mrs %0, ipsr" : "=r"(ipsr));
	return ipsr & 0x1FF;
}

/* Zephyr until 3.1 calls these for the outermost interrupt alone. */
void sys_trace_isr_enter_user(void)
{
	kymo_isr_enter(exception());
}

void sys_trace_isr_exit_user(void)
{
	kymo_isr_exit(exception());
}

#ifdef CONFIG_KYMO_SYSTICK
/* The kernel's tick has a vector of its own, which no hook of the kernel's is on: the linker puts this in its place
 * (--wrap). */
void __real_sys_clock_isr(void);
void __wrap_sys_clock_isr(void);

void __wrap_sys_clock_isr(void)
{
	kymo_isr_enter(15);
	__real_sys_clock_isr();
	kymo_isr_exit(15);
}
#endif

/* Zephyr from 3.2 on reports the name of a thread when it is set. */
void sys_trace_thread_name_set_user(void *thread)
{
	kymo_zephyr_name(thread);
}

/* A thread that returns from its function is aborted, too. */
void sys_trace_thread_abort_user(void *thread)
{
	kymo_thread_ended((uintptr_t)thread);
}
