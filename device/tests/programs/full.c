/* A buffer that keeps the oldest events becomes full: later events are lost, and each is counted once. Writes the
 * recorder's own status into a file. */
#include "kymo.h"

#include "file.h"
#include "strike.h"

static uint64_t buffer[2048 / 8];
static uint8_t reply[512];
static size_t replied;

KYMO_NO_INSTRUMENT static void send(const uint8_t *bytes, size_t count)
{
	for (size_t n = 0; n < count && replied < sizeof reply; n++)
		reply[replied++] = bytes[n];
}

const kymo_config_t kymo_config = {
	.version = KYMO_CONFIG_VERSION,
	.flags = KYMO_START_ON | KYMO_FIXED,
	.buffer = buffer,
	.buffer_size = sizeof buffer,
	.packet_size = 512,
	.counter = (const uint32_t *)BOARD_COUNTER,
	.clock_hz = 25000000,
	.send = send,
};

KYMO_NO_INSTRUMENT void preempt_low(void)
{
}

KYMO_NO_INSTRUMENT void preempt_high(void)
{
}

KYMO_NO_INSTRUMENT void run(void)
{
	/* Five events each time. */
	for (uint32_t n = 0; n < ROUNDS; n++) {
		kymo_marker(n);
		kymo_named_marker("round", n);
		kymo_isr_enter(20);
		kymo_isr_exit(20);
		kymo_switched_in(0x20000000 + n % 2 * 64);
	}
	for (const char *at = "status\n"; *at != 0; at++)
		kymo_link_receive((uint8_t)*at);
	kymo_link_poll();
	write_file("status.txt", reply, replied);
	write_file("trace.bin", buffer, sizeof buffer);
}
