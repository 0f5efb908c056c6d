/* The smallest program for a Cortex-M3 with a link: no library, the processor's own clock (QEMU has no DWT_CYCCNT, so
 * SysTick), a polled UART. `!` on the UART makes it work. */
#include "kymo.h"

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define UART_DATA REGISTER(0x40004000)
#define UART_STATE REGISTER(0x40004004)
#define UART_CTRL REGISTER(0x40004008)
#define UART_BAUDDIV REGISTER(0x40004010)
#define SYST_CSR REGISTER(0xE000E010)
#define SYST_RVR REGISTER(0xE000E014)
#define SYST_CVR REGISTER(0xE000E018)
#define AIRCR REGISTER(0xE000ED0C)

#define CLOCK_HZ 25000000
#define TICK_HZ 100

KYMO_NO_INSTRUMENT static void send(const uint8_t *bytes, size_t count)
{
	while (count-- > 0) {
		while (UART_STATE & 1) {
		}
		UART_DATA = *bytes++;
	}
}

KYMO_NO_INSTRUMENT static void reboot(void)
{
	AIRCR = 0x05FA0004;
	for (;;) {
	}
}

__attribute__((noinline)) static int leaf(int n)
{
	__asm__ volatile("" : "+r"(n));
	return n + 1;
}

/* Runs before .data is copied: its hooks must do nothing. */
__attribute__((noinline)) void early(void)
{
	leaf(0);
}

#ifdef TICK_ALONE
static volatile uint32_t ticks;

KYMO_NO_INSTRUMENT void tick(void)
{
	ticks++;
	kymo_tick();
}

/* Lasts for ten periods of the timer that is the clock, and nothing but its interrupt reads that meanwhile. */
void work(void)
{
	for (uint32_t end = ticks + 10; ticks != end;)
		;
}
#else
void work(void)
{
	for (int i = 0; i < 100; i++)
		leaf(i);
}

void tick(void)
{
	kymo_isr_enter(15);
	kymo_tick();
	leaf(1);
	kymo_isr_exit(15);
}
#endif

static uint64_t buffer[8192 / 8], names[256 / 8];
static kymo_slot_t slots[16];
static kymo_frame_t frames[2 * 8];
static kymo_retained_t retained __attribute__((section(".noinit")));

const kymo_config_t kymo_config = {
	.version = KYMO_CONFIG_VERSION,
	.buffer = buffer,
	.buffer_size = sizeof buffer,
	.packet_size = 512,
	.metadata = names,
	.metadata_size = sizeof names,
	.slots = slots,
	.slot_count = 16,
	.frames = frames,
	.shadow_stacks = 2,
	.shadow_depth = 8,
	.trigger = work,
	.stopper = work,
	.retained = &retained,
	.clock_hz = CLOCK_HZ,
	.tick_hz = TICK_HZ,
#ifdef COUNTER
	.counter = COUNTER,
#endif
	.send = send,
	.reboot = reboot,
};

KYMO_NO_INSTRUMENT static void run(void)
{
	UART_BAUDDIV = 16;
	UART_CTRL = 3;
#ifndef TICK_ALONE
	/* Before SysTick runs there is no clock: this is not recorded. */
	work();
#endif
	SYST_RVR = CLOCK_HZ / TICK_HZ - 1;
	SYST_CVR = 0;
	SYST_CSR = 7;
	kymo_isr_name(15, "SysTick");
	for (;;) {
		/* As a thread does that a receiving interrupt wakes: polls when a byte came. */
		if (UART_STATE & 2) {
			uint8_t byte = (uint8_t)UART_DATA;
			kymo_link_receive(byte);
			if (byte == '!')
				work();
			kymo_link_poll();
		}
	}
}

extern uint64_t data_start[], data_end[], data_image[], bss_start[], bss_end[], stack_top[];

KYMO_NO_INSTRUMENT void reset(void)
{
	early();
	for (uint64_t *to = data_start, *from = data_image; to < data_end;)
		*to++ = *from++;
	for (volatile uint64_t *to = bss_start; to < bss_end;)
		*to++ = 0;
	run();
}

KYMO_NO_INSTRUMENT static void fault(void)
{
	static const uint8_t message[] = "fault\r\n";
	send(message, sizeof message - 1);
	for (;;) {
	}
}

__attribute__((section(".vectors"), used)) static void (*const vectors[16])(void) = {
	(void (*)(void))stack_top, reset, fault, fault, fault, fault, fault, 0,
	0, 0, 0, fault, fault, 0, fault, tick,
};
