/* RTT's rings, for one writer and one reader. Each moves only its own index, so that neither waits for the other. Used
 * by kymo_rtt.h and kymo_fifo.h. */
#ifndef KYMO_RING_H
#define KYMO_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KYMO_RTT_FUNCTION __attribute__((unused, no_instrument_function)) static

typedef struct kymo_rtt_channel {
	const char *name;
	uint8_t *memory;
	uint32_t size;
	uint32_t write; /* index of the next byte to write; `read` is the reader's index */
	uint32_t read;
	uint32_t flags; /* 0: data that does not fit is dropped */
} kymo_rtt_channel_t;

/* Number of bytes that can be written now; 0 if the reader's index is out of range. */
KYMO_RTT_FUNCTION uint32_t kymo_rtt_room(const kymo_rtt_channel_t *channel)
{
	uint32_t read = __atomic_load_n(&channel->read, __ATOMIC_ACQUIRE);
	uint32_t write = channel->write;
	if (read >= channel->size)
		return 0;
	return read > write ? read - write - 1 : channel->size - 1 - (write - read);
}

/* Writes `count` bytes. The caller has checked that there is room. */
KYMO_RTT_FUNCTION void kymo_rtt_put(kymo_rtt_channel_t *channel, const uint8_t *bytes, uint32_t count)
{
	uint32_t write = channel->write, behind = channel->size - write;
	uint32_t first = count < behind ? count : behind;
	memcpy(channel->memory + write, bytes, first);
	memcpy(channel->memory, bytes + first, count - first);
	write = count < behind ? write + count : count - behind;
	/* The bytes must be visible before the index is. */
	__atomic_store_n(&channel->write, write, __ATOMIC_RELEASE);
}

/* Writes all of the bytes, or none if they do not fit. */
KYMO_RTT_FUNCTION bool kymo_rtt_write(kymo_rtt_channel_t *channel, const uint8_t *bytes, size_t count)
{
	if (count > kymo_rtt_room(channel))
		return false;
	kymo_rtt_put(channel, bytes, (uint32_t)count);
	return true;
}

/* Reads the next byte; -1 if there is none. */
KYMO_RTT_FUNCTION int kymo_rtt_read(kymo_rtt_channel_t *channel)
{
	uint32_t write = __atomic_load_n(&channel->write, __ATOMIC_ACQUIRE), read = channel->read;
	if (read == write || read >= channel->size)
		return -1;
	int byte = channel->memory[read];
	__atomic_store_n(&channel->read, read + 1 == channel->size ? 0 : read + 1, __ATOMIC_RELEASE);
	return byte;
}

#ifdef __cplusplus
}
#endif

#endif
