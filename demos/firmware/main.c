/* The demonstration firmware: two threads that run Lua, a third for Kymo's link, a timer interrupt.
 *
 * This file has the parts that a project adds to be traced: the configuration, a few names, and
 * functions to send and receive bytes. Not instrumented, because Kymo calls it.
 */
#include <stdio.h>

#include "board.h"
#include "kymo.h"
#include "program.h"
#include "scheduler.h"
#include "uart.h"

#ifdef NAIVE
#include "naive.h"
#endif

/* ------------------------------------------------------------------ Kymo's configuration */

/* A round of both threads takes about half a MB. */
#define BUFFER_BYTES (1536u * 1024u)
#define PACKET_BYTES 4096u
#ifndef LEAN
#define SLOTS 1024u
#define SHADOW_STACKS 5u /* two Lua threads, link, idle, and the interrupts */
#define SHADOW_DEPTH 96u
#endif

static uint64_t buffer[BUFFER_BYTES / 8];
static uint64_t metadata[1024 / 8];
#ifndef LEAN
static kymo_slot_t slots[SLOTS];
static kymo_frame_t frames[SHADOW_STACKS * SHADOW_DEPTH];
#endif
__attribute__((section(".noinit"))) static kymo_retained_t retained;

extern const char build_id_note[];

#ifndef LEAN
static uint32_t read_clock(void)
{
	return ~DUAL_TIMER_VALUE;
}
#endif

static uintptr_t current_thread(void)
{
	return (uintptr_t)scheduler_current();
}

static void reboot(void)
{
	SCB_AIRCR = SCB_AIRCR_RESET;
	for (;;)
		;
}

#ifndef LEAN
static const kymo_promotion_t promotions[] = {
	{.function = scheduler_switched_out, .kind = KYMO_PROMOTE_SWITCHED_OUT},
	{.function = scheduler_switched_in, .kind = KYMO_PROMOTE_SWITCHED_IN},
};
#endif

const kymo_config_t kymo_config = {
	.version = KYMO_CONFIG_VERSION,
	.buffer = buffer,
	.buffer_size = sizeof buffer,
	.packet_size = PACKET_BYTES,
	.metadata = metadata,
	.metadata_size = sizeof metadata,
#ifndef LEAN
	.slots = slots,
	.slot_count = SLOTS,
	.frames = frames,
	.shadow_stacks = SHADOW_STACKS,
	.shadow_depth = SHADOW_DEPTH,
	.promotions = promotions,
	.promotion_count = sizeof promotions / sizeof *promotions,
	.clock = read_clock,
	.clock_bits = 32,
#else
	/* Calls alone, and a counter that hooks read themselves: the fast hooks. */
	.counter = &FPGA_COUNTER,
#endif
	.trigger = (void (*)(void))program_first_round,
	.stopper = (void (*)(void))program_first_round,
	.retained = &retained,
	.text_base = KYMO_TEXT_BASE,
	.function_shift = 4, /* see firmware.ld */
	.clock_hz = CLOCK_HZ,
	.tick_hz = TICK_HZ,
	.current_thread = current_thread,
	.send = uart_send,
	.reboot = reboot,
	.build_id_note = build_id_note,
};

#ifdef DURATION
/* Duration mode, which the host turns on: a shadow stack for each thread, and a filter for 256 KiB of text. */
__attribute__((section(".noinit"))) static kymo_duration_retained_t duration_retained;
__attribute__((section(".noinit"))) static uint8_t filter[KYMO_DURATION_FILTER(256 * 1024)];

KYMO_DURATION(4, 96, .filter = filter, .filter_size = sizeof filter, .retained = &duration_retained);
#endif

/* ------------------------------------------------------------------ interrupts */

static struct thread lua_a, lua_b, link_thread;

void systick_interrupt(void)
{
	kymo_isr_enter(EXCEPTION_SYSTICK);
	kymo_tick();
	if (kymo_link_pending())
		scheduler_wake(&link_thread);
	scheduler_tick();
	kymo_isr_exit(EXCEPTION_SYSTICK);
}

void timer_interrupt(void)
{
	kymo_isr_enter(EXCEPTION_IRQ(IRQ_TIMER));
	TIMER_INTERRUPT = 1;
	program_sample();
	kymo_isr_exit(EXCEPTION_IRQ(IRQ_TIMER));
}

void uart_interrupt(void)
{
	kymo_isr_enter(EXCEPTION_IRQ(IRQ_UART_RX));
	UART_INTERRUPT = UART_INTERRUPT_RX;
	while (UART_STATE & UART_STATE_RX_FULL)
		kymo_link_receive((uint8_t)UART_DATA);
	scheduler_wake(&link_thread);
	kymo_isr_exit(EXCEPTION_IRQ(IRQ_UART_RX));
}

/* ------------------------------------------------------------------ threads */

/* Between rounds a thread sleeps for half a second, so that there are times without any
 * activity. */
#define PAUSE_TICKS (TICK_HZ / 2)

static void run_lua_a(void *argument)
{
	(void)argument;
	program_first_round("lua-a");
#ifdef NAIVE
	naive_save();
#endif
	printf("demo: the first round is done\n");
	for (uint32_t number = 2;; number++) {
		scheduler_sleep(PAUSE_TICKS);
		program_round("lua-a", number);
	}
}

static void run_lua_b(void *argument)
{
	(void)argument;
	for (uint32_t number = 1;; number++) {
		program_round("lua-b", number);
		scheduler_sleep(PAUSE_TICKS);
	}
}

/* Answers the host. A thread of its own, because answering takes as long as sending does; it sleeps
 * until a byte arrives, or a stream has something to send. (If the host is gone, kymo_tick() ends
 * what was going on.) */
static void run_link(void *argument)
{
	(void)argument;
	for (;;) {
		if (!kymo_link_pending())
			scheduler_wait();
		kymo_link_poll();
	}
}

int main(void)
{
	static uint64_t stack_a[6144], stack_b[6144], stack_link[512];

	scheduler_add(&link_thread, "link", run_link, NULL, stack_link, sizeof stack_link);
	scheduler_add(&lua_b, "lua-b", run_lua_b, NULL, stack_b, sizeof stack_b);
	scheduler_add(&lua_a, "lua-a", run_lua_a, NULL, stack_a, sizeof stack_a);
	kymo_thread_name(current_thread(), "idle");
	kymo_thread_name((uintptr_t)&lua_a, lua_a.name);
	kymo_thread_name((uintptr_t)&lua_b, lua_b.name);
	kymo_thread_name((uintptr_t)&link_thread, link_thread.name);
	kymo_isr_name(EXCEPTION_SYSTICK, "SysTick");
	kymo_isr_name(EXCEPTION_IRQ(IRQ_TIMER), "timer");
	kymo_isr_name(EXCEPTION_IRQ(IRQ_UART_RX), "UART");

	uart_start();
	DUAL_TIMER_LOAD = UINT32_MAX;
	DUAL_TIMER_CONTROL = DUAL_TIMER_CONTROL_ON | DUAL_TIMER_CONTROL_32_BITS;
	/* 700 Hz: not synchronous to the tick, so that it interrupts at all positions. */
	TIMER_RELOAD = CLOCK_HZ / 700 - 1;
	TIMER_VALUE = CLOCK_HZ / 700 - 1;
	TIMER_CONTROL = TIMER_CONTROL_ON | TIMER_CONTROL_INTERRUPT;
	NVIC_PRIORITY(IRQ_TIMER) = 0x40;
	NVIC_PRIORITY(IRQ_UART_RX) = 0x60;
	NVIC_ENABLE = 1u << IRQ_TIMER | 1u << IRQ_UART_RX;

	scheduler_start();
	for (;;)
		__asm__ volatile("wfi");
}
