/* A program for a Cortex-M3 in QEMU whose link is RTT's rings in memory that QEMU shares with its host: there is no
 * device, only the host's own file. */
#include "kymo.h"
#include "kymo_rtt.h"

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define SYST_CSR REGISTER(0xE000E010)
#define SYST_RVR REGISTER(0xE000E014)
#define SYST_CVR REGISTER(0xE000E018)

#define PLAIN KYMO_NO_INSTRUMENT
#define SHARED __attribute__((section(".psram")))

SHARED kymo_rtt_t _SEGGER_RTT;
SHARED static uint8_t up[512], down[64];
static kymo_rtt_channel_t *to_host, *from_host;

PLAIN static void send(const uint8_t *bytes, size_t count)
{
	kymo_rtt_send(to_host, bytes, count, 0xFFFFFFFF);
}

KYMO_CONFIG(KYMO_FIXED, 32, 1024, 256, .clock_hz = 25000000, .tick_hz = 100, .send = send);

__attribute__((noinline)) static int leaf(int n)
{
	__asm__ volatile("" : "+r"(n));
	return n + 1;
}

__attribute__((noinline)) static void work(void)
{
	for (int n = 0; n < 3000; n++)
		leaf(n);
}

PLAIN void tick(void)
{
	kymo_tick();
}

extern uint64_t data_start[], data_end[], data_image[], bss_start[], bss_end[], stack_top[];

PLAIN void reset(void)
{
	for (uint64_t *to = data_start, *from = data_image; to < data_end;)
		*to++ = *from++;
	for (volatile uint64_t *to = bss_start; to < bss_end;)
		*to++ = 0;
	SYST_RVR = 250000 - 1;
	SYST_CVR = 0;
	SYST_CSR = 7;
	kymo_on();
	work();
	kymo_off();
	/* After a reset the memory holds what it did: rings begin anew. */
	_SEGGER_RTT.id[0] = 0;
	kymo_rtt_init();
	to_host = kymo_rtt_up(1, "Kymo", up, sizeof up);
	from_host = kymo_rtt_down(1, "Kymo", down, sizeof down);
	for (;;) {
		for (int byte; (byte = kymo_rtt_read(from_host)) >= 0;)
			kymo_link_receive((uint8_t)byte);
		kymo_link_poll();
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
