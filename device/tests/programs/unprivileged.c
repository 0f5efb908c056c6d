/* A thread that becomes unprivileged, before the recorder is set up (EARLY) or after. It cannot mask interrupts, so the
 * recorder refuses its events. */
#include "kymo.h"

#include "strike.h"

static uint64_t buffer[1024 / 8];

const kymo_config_t kymo_config = {
	.version = KYMO_CONFIG_VERSION,
	.flags = KYMO_START_ON,
	.buffer = buffer,
	.buffer_size = sizeof buffer,
	.packet_size = 256,
	.counter = (const volatile uint32_t *)0x40028018,
	.clock_hz = 168000000,
};

#ifndef MARKERS
#define MARKERS 400
#endif

static volatile uint32_t done;

KYMO_NO_INSTRUMENT static void result(void)
{
	uintptr_t value = 1;
	const char *status = kymo_status(&value);

	say_number("set_up", status == NULL);
	say_number("unprivileged", status != NULL && status[0] == 'u' && status[2] == 'p');
	say_number("value", (uint32_t)value);
	say("end\n");
	stop();
}

KYMO_NO_INSTRUMENT void preempt_low(void)
{
	if (done)
		result();
}

KYMO_NO_INSTRUMENT void preempt_high(void)
{
}

void run(void)
{
#ifndef EARLY
	kymo_marker(0);
#endif
	strike_begin();
#ifdef UNPRIVILEGED
	__asm__ volatile("mrs r0, CONTROL\n\torr r0, #1\n\tmsr CONTROL, r0\n\tisb" ::: "r0");
#endif
	for (uint32_t n = 0; n < MARKERS; n++)
		kymo_marker(n);
	done = 1;
	for (;;) {
	}
}
