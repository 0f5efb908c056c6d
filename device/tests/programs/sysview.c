/* A program for a Cortex-M3 that sends every kind of packet of SystemView's stream once: on its UART to a host that
 * requests it, or (RTT) into a ring in memory. Its clock advances by 7 with each reading, so that all timestamps are
 * known. */
#include "kymo_rtt.h"
#include "kymo_sysview.h"

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define UART_DATA REGISTER(0x40004000)
#define UART_STATE REGISTER(0x40004004)
#define UART_CTRL REGISTER(0x40004008)
#define UART_BAUDDIV REGISTER(0x40004010)

#define PLAIN __attribute__((no_instrument_function))

#ifndef GREETING
#define GREETING KYMO_SYSVIEW_RTT
#endif

static uint32_t ticks;

/* So many writes find no room. */
static uint32_t full;

PLAIN static uint32_t clock(void)
{
	return ticks += 7;
}

PLAIN static void say(const uint8_t *bytes, size_t count)
{
	while (count-- > 0) {
		while (UART_STATE & 1) {
		}
		UART_DATA = *bytes++;
	}
}

#ifdef RTT
KYMO_RTT;
static uint8_t ring[4096];
static kymo_rtt_channel_t *channel;
#endif

PLAIN static bool write(const uint8_t *bytes, size_t count)
{
	if (full > 0) {
		full--;
		return false;
	}
#ifdef RTT
	return kymo_rtt_write(channel, bytes, count);
#else
	say(bytes, count);
	return true;
#endif
}

/* Tasks have addresses in RAM. */
static uint64_t idle_task[4], worker[4], logger[4], heap[16];

#define ID(object) ((uintptr_t)(object))

PLAIN static void describe(void)
{
	kymo_sysview_task_info(ID(worker), 3, "worker");
	kymo_sysview_task_stack(ID(worker), 0x20001000, 512, 96);
	kymo_sysview_task_info(ID(logger), 1, "a name that is much longer than 32 bytes");
	kymo_sysview_name_resource(ID(heap), "heap");
	kymo_sysview_name_marker(5, "parse");
	kymo_sysview_heap_define(ID(heap), ID(heap), sizeof heap, 8);
}

static const char *const description[] = {"N=sysview.c,D=mps2-an385,C=Cortex-M3,O=none", "I#15=SysTick,I#18=UART", NULL};
static const char *const texts[] = {"M=Parser, 0 token kind=%u at=%x, 1 error", "2 end count=%u", NULL};
static const kymo_sysview_module_t modules[] = {{texts, KYMO_SYSVIEW_FIRST_EVENT}};

const kymo_sysview_config_t kymo_sysview_config = {
	.clock_hz = 1000000,
	.cpu_hz = 25000000,
	.id_base = 0x20000000,
	.id_shift = 2,
	.greeting = GREETING,
	.modules = modules,
	.module_count = 1,
	.description = description,
	.clock = clock,
	.lock = kymo_sysview_mask,
	.unlock = kymo_sysview_unmask,
	.write = write,
	.describe = describe,
};

KYMO_SYSVIEW_FUNCTIONS;

__attribute__((noinline)) int leaf(int n)
{
	__asm__ volatile("" : "+r"(n));
	return n + 1;
}

__attribute__((noinline)) int outer(int n)
{
	return leaf(n) + leaf(n + 1);
}

PLAIN static void work(void)
{
	kymo_sysview_task_create(ID(logger));
	kymo_sysview_task_start_ready(ID(worker));
	kymo_sysview_task_start_exec(ID(worker));
	outer(1);
	kymo_sysview_isr_enter(15);
	kymo_sysview_task_start_ready(ID(logger));
	kymo_sysview_isr_exit();
	kymo_sysview_isr_enter(300);
	kymo_sysview_isr_exit_to_scheduler();
	kymo_sysview_task_start_exec(ID(logger));
	ticks += 1000000;
	kymo_sysview_mark_start(5);
	kymo_sysview_mark(5);
	kymo_sysview_mark_stop(5);
	ticks += 0x80000000;
	kymo_sysview_heap_alloc(ID(heap), ID(&heap[2]), 24);
	kymo_sysview_heap_free(ID(heap), ID(&heap[2]));
	kymo_sysview_timer_enter(ID(&heap[1]));
	kymo_sysview_timer_exit();
	KYMO_SYSVIEW_PRINT(KYMO_SYSVIEW_WARNING, "%u of %u", 3, 40000);
	kymo_sysview_print_with(KYMO_SYSVIEW_LOG, "plain", NULL, 0);
	KYMO_SYSVIEW_EVENT(KYMO_SYSVIEW_FIRST_EVENT, 2, 0xFFFFFFFF);
	kymo_sysview_event(KYMO_SYSVIEW_FIRST_EVENT + 1, NULL, 0);
	kymo_sysview_end_call(KYMO_SYSVIEW_FIRST_EVENT + 1);
	kymo_sysview_end_call_with(KYMO_SYSVIEW_FIRST_EVENT, 9);
	/* Three events find no room, and the next one says so. */
	full = 3;
	for (uint32_t n = 0; n < 4; n++)
		kymo_sysview_mark(100 + n);
	kymo_sysview_task_stop_ready(ID(logger), 4);
	kymo_sysview_task_stop_exec();
	kymo_sysview_task_terminate(ID(logger));
	kymo_sysview_idle();
	(void)idle_task;
}

extern uint64_t data_start[], data_end[], data_image[], bss_start[], bss_end[], stack_top[];

PLAIN void reset(void)
{
	for (uint64_t *to = data_start, *from = data_image; to < data_end;)
		*to++ = *from++;
	for (volatile uint64_t *to = bss_start; to < bss_end;)
		*to++ = 0;
	UART_BAUDDIV = 16;
	UART_CTRL = 3;
	/* Nothing is recorded before the start. */
	work();
	full = 0;
#ifdef RTT
	kymo_rtt_init();
	channel = kymo_rtt_up(1, "SysView", ring, sizeof ring);
	kymo_sysview_start();
	work();
	say((const uint8_t *)"done\r\n", 6);
	for (;;) {
	}
#else
	bool worked = false;
	for (;;) {
		if (UART_STATE & 2)
			kymo_sysview_receive((uint8_t)UART_DATA);
		if (!kymo_sysview_pending())
			continue;
		kymo_sysview_poll();
		if (kymo_sysview_is_on() && !worked) {
			worked = true;
			work();
		}
	}
#endif
}

PLAIN static void fault(void)
{
	say((const uint8_t *)"fault\r\n", 7);
	for (;;) {
	}
}

/* The compiler may call it. */
PLAIN void *memcpy(void *to, const void *from, size_t size)
{
	for (size_t n = 0; n < size; n++)
		((volatile uint8_t *)to)[n] = ((const uint8_t *)from)[n];
	return to;
}

PLAIN void *memset(void *to, int value, size_t size)
{
	for (size_t n = 0; n < size; n++)
		((volatile uint8_t *)to)[n] = (uint8_t)value;
	return to;
}

__attribute__((section(".vectors"), used)) static void (*const vectors[16])(void) = {
	(void (*)(void))stack_top, reset, fault, fault, fault, fault, fault, 0,
	0, 0, 0, fault, fault, 0, fault, fault,
};
