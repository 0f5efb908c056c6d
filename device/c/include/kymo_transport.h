/* Transports: byte pipes between a target and the host.
 *
 * A transport is one structure of function pointers. kymo_rtt.h, kymo_fifo.h, kymo_dma.h, kymo_gpio.h, kymo_itm.h,
 * kymo_semihosting.h and kymo_posix.h define the functions for the devices in their names. For a USB stack or any other
 * byte pipe define `write`, and `read` if the pipe is bidirectional:
 *
 *     KYMO_NO_INSTRUMENT static int32_t usb_write(void *unused, const uint8_t *bytes, uint32_t count)
 *     {
 *             (void)unused;
 *             if (!tud_cdc_connected())
 *                     return KYMO_TRANSPORT_GONE;
 *             uint32_t some = tud_cdc_write(bytes, count);
 *             tud_cdc_write_flush();
 *             return (int32_t)some;
 *     }
 *
 *     static kymo_transport_t usb = {.write = usb_write, .read = usb_read, .patience = 100000};
 *
 * Kymo's link may wait: use kymo_transport_send() for kymo_config.send, and kymo_transport_receive() where you poll.
 * SystemView's stream and events of your own must not wait: use kymo_transport_emit().
 *
 * The structure counts the bytes that could not be sent. All functions are static: those that are not called take no
 * space. */
#ifndef KYMO_TRANSPORT_H
#define KYMO_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KYMO_TRANSPORT_FUNCTION __attribute__((unused, no_instrument_function)) static

/* Result of `write` and `read` when the other end is not connected. */
#define KYMO_TRANSPORT_GONE (-1)

typedef struct kymo_transport {
	/* Takes as many of the bytes as there is room for, from the first on, and returns their number: 0 if there is
	 * no room now. Does not wait for the other end. */
	int32_t (*write)(void *context, const uint8_t *bytes, uint32_t count);
	/* Returns how many bytes `write` would take now, or KYMO_TRANSPORT_GONE. NULL: `write` takes all bytes, or
	 * none. */
	int32_t (*room)(void *context);
	/* Returns up to `count` bytes that have arrived, and their number. NULL: the transport only sends. */
	int32_t (*read)(void *context, uint8_t *bytes, uint32_t count);
	/* Exclude other writers (threads and interrupt handlers) while an event is written. unlock() receives the
	 * result of lock(). NULL: there is one writer, or the caller excludes the others. */
	uintptr_t (*lock)(void);
	void (*unlock)(uintptr_t was);
	/* Returns an event's timestamp; called after lock(), so that timestamps in the stream never decrease. NULL: the
	 * caller supplies the timestamp. */
	uint32_t (*clock)(void);
	/* Argument of write, room and read. */
	void *context;
	/* Number of consecutive attempts of kymo_transport_send() before it drops the rest. 0: it does not wait. */
	uint32_t patience;
	/* Losses: number of calls of send and emit that lost bytes, and number of bytes. */
	uint32_t lost_writes, lost_bytes;
} kymo_transport_t;

/* Sends all of the bytes, waiting for room. Returns false, and drops the rest, if the other end is gone or has taken
 * nothing in `patience` attempts. For one caller at a time. */
KYMO_TRANSPORT_FUNCTION bool kymo_transport_send(kymo_transport_t *transport, const uint8_t *bytes, size_t count)
{
	for (uint32_t looks = 0; count > 0;) {
		uint32_t most = count < INT32_MAX ? (uint32_t)count : INT32_MAX;
		int32_t some = transport->write(transport->context, bytes, most);
		if (some > 0) {
			bytes += some;
			count -= (uint32_t)some;
			looks = 0;
		} else if (some < 0 || looks++ >= transport->patience) {
			transport->lost_writes++;
			transport->lost_bytes += (uint32_t)count;
			return false;
		}
	}
	return true;
}

/* Sends a whole event without waiting, or drops it if there is no room; lock() excludes other writers. If there is
 * room, stores the timestamp in `*stamp`, a field of the event, before sending. NULL: the event has a timestamp
 * already, or none. Callable from any context that lock() excludes. */
KYMO_TRANSPORT_FUNCTION bool kymo_transport_emit(kymo_transport_t *transport, const void *event, uint32_t count, uint32_t *stamp)
{
	uintptr_t was = transport->lock != NULL ? transport->lock() : 0;
	bool sent = transport->room == NULL || transport->room(transport->context) >= (int32_t)count;
	if (sent) {
		if (stamp != NULL && transport->clock != NULL)
			*stamp = transport->clock();
		sent = transport->write(transport->context, (const uint8_t *)event, count) == (int32_t)count;
	}
	if (!sent) {
		transport->lost_writes++;
		transport->lost_bytes += count;
	}
	if (transport->unlock != NULL)
		transport->unlock(was);
	return sent;
}

/* Passes all bytes that have arrived to `take`: kymo_link_receive() or kymo_sysview_receive(). */
KYMO_TRANSPORT_FUNCTION void kymo_transport_receive(kymo_transport_t *transport, void (*take)(uint8_t byte))
{
	uint8_t bytes[32];
	for (int32_t count; (count = transport->read(transport->context, bytes, sizeof bytes)) > 0;)
		for (int32_t n = 0; n < count; n++)
			take(bytes[n]);
}

#ifdef __cplusplus
}
#endif

#endif
