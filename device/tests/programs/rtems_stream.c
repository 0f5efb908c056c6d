/* A program for a Cortex-M3 in QEMU whose UART is RTEMS's record server; with DUMP it writes the records to its
 * console. */
#include "kymo.h"
#include "kymo_rtems.h"
#include "kymo_rtems_stream.h"

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define UART_DATA REGISTER(0x40004000)
#define UART_STATE REGISTER(0x40004004)
#define UART_CTRL REGISTER(0x40004008)
#define UART_BAUDDIV REGISTER(0x40004010)
#define SYST_CSR REGISTER(0xE000E010)
#define SYST_RVR REGISTER(0xE000E014)
#define SYST_CVR REGISTER(0xE000E018)

#define PLAIN KYMO_NO_INSTRUMENT
#define CLOCK_HZ 25000000

PLAIN static void send(const void *bytes, size_t count, void *argument)
{
	const uint8_t *next = bytes;

	(void)argument;
	while (count-- > 0) {
		while (UART_STATE & 1) {
		}
		UART_DATA = *next++;
	}
}

static uint64_t buffer[2048 / 8];

const kymo_config_t kymo_config = {
	.version = KYMO_CONFIG_VERSION,
	.flags = KYMO_START_ON,
	.buffer = buffer,
	.buffer_size = sizeof buffer,
	.packet_size = 1024,
	.clock_hz = CLOCK_HZ,
	.counter = (const volatile uint32_t *)0x40028018,
	.tick_hz = 100,
};

KYMO_ITEMS(8);

PLAIN void tick(void)
{
	kymo_tick();
}

extern uint64_t data_start[], data_end[], data_image[], bss_start[], bss_end[], stack_top[];

PLAIN void reset(void)
{
#ifndef DUMP
	static kymo_rtems_stream_t stream;
#endif
	uint32_t round = 0;

	for (uint64_t *to = data_start, *from = data_image; to < data_end;)
		*to++ = *from++;
	for (volatile uint64_t *to = bss_start; to < bss_end;)
		*to++ = 0;
	UART_BAUDDIV = 16;
	UART_CTRL = 3;
	SYST_RVR = 250000 - 1;
	SYST_CVR = 0;
	SYST_CSR = 7;
#ifdef DUMP
	for (; round < 700; round++)
		rtems_record_produce(RTEMS_RECORD_USER(3), round);
	send("fatal: an assertion\n", 20, NULL);
	kymo_rtems_dump_base64(send, NULL, CLOCK_HZ);
	send("halted\n", 7, NULL);
	for (;;) {
	}
#else
	kymo_rtems_stream_begin(&stream, send, NULL, CLOCK_HZ);
	kymo_rtems_stream_thread(&stream, 0x0a010001, "a thread of work");
	for (;; round++) {
		rtems_record_produce(RTEMS_RECORD_USER(3), round);
		if (round % 100 == 99)
			rtems_record_produce_2(RTEMS_RECORD_THREAD_SWITCH_OUT, 0x09010001,
					       RTEMS_RECORD_THREAD_SWITCH_IN, 0x0a010001);
		while (kymo_rtems_stream_go_on(&stream)) {
		}
	}
#endif
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
