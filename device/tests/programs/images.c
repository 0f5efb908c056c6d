/* A program for a Cortex-M3 that records consecutive numbers as markers, from its main loop and from a timer's handler,
 * and notes each after it is recorded: a reader of its memory at any instant knows which markers must be there. */
#include "kymo.h"

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define SYST_CSR REGISTER(0xE000E010)
#define SYST_RVR REGISTER(0xE000E014)
#define SYST_CVR REGISTER(0xE000E018)

#define PLAIN KYMO_NO_INSTRUMENT

KYMO_CONFIG(KYMO_START_ON, 8, 1024, 256, .clock_hz = 25000000, .tick_hz = 2000);

/* The last number of each that is recorded. */
volatile uint32_t marked, marked_by_timer;

__attribute__((noinline)) static int leaf(int n)
{
	__asm__ volatile("" : "+r"(n));
	return n + 1;
}

__attribute__((noinline)) static int caller(int n)
{
	return leaf(n) + leaf(n + 1);
}

void tick(void)
{
	kymo_isr_enter(15);
	kymo_tick();
	uint32_t next = marked_by_timer + 1;
	kymo_marker(0x80000000u | next);
	marked_by_timer = next;
	kymo_isr_exit(15);
}

extern uint64_t data_start[], data_end[], data_image[], bss_start[], bss_end[], stack_top[];

PLAIN void reset(void)
{
	for (uint64_t *to = data_start, *from = data_image; to < data_end;)
		*to++ = *from++;
	for (volatile uint64_t *to = bss_start; to < bss_end;)
		*to++ = 0;
	SYST_RVR = 25000000 / 2000 - 1;
	SYST_CVR = 0;
	SYST_CSR = 7;
	for (;;) {
		uint32_t next = marked + 1;
		kymo_marker(next);
		marked = next;
		caller((int)next);
	}
}

PLAIN static void fault(void)
{
	for (;;) {
	}
}

__attribute__((section(".vectors"), used)) static void (*const vectors[16])(void) = {
	(void (*)(void))stack_top, reset, fault, fault, fault, fault, fault, 0,
	0, 0, 0, fault, fault, 0, fault, tick,
};
