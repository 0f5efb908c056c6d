/* Transports: how bytes leave a target and how they arrive, whatever carries them.
 *
 * A transport is one structure of function pointers. kymo_rtt.h, kymo_fifo.h, kymo_dma.h, kymo_gpio.h, kymo_itm.h,
 * kymo_semihosting.h and kymo_posix.h define the functions for what their names say; for a USB stack or any other byte pipe
 * write `write`, and `read` if it goes both ways:
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
 * Kymo's link, which may wait: kymo_transport_send() in kymo_config.send, kymo_transport_receive() where you poll. SystemView's
 * stream and events of your own, which may not: kymo_transport_emit().
 *
 * What could not be sent is counted in the structure. Nothing here is linked, and what is not called takes no room. */
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

/* What `write` and `read` return when nobody is at the other end. */
#define KYMO_TRANSPORT_GONE (-1)

typedef struct kymo_transport {
	/* Takes the first of these bytes, as many as there is room for, and returns how many: 0 if there is none now. It does
	 * not wait for the other end. */
	int32_t (*write)(void *context, const uint8_t *bytes, uint32_t count);
	/* How many bytes `write` would take now, or KYMO_TRANSPORT_GONE. NULL: it takes all, or none. */
	int32_t (*room)(void *context);
	/* Gives up to `count` bytes that have arrived, and returns how many. NULL: nothing arrives. */
	int32_t (*read)(void *context, uint8_t *bytes, uint32_t count);
	/* Keep other writers off while an event is written: other threads, and interrupt handlers. What lock() returns is
	 * given to unlock(). NULL: there is one writer, or its caller has done so. */
	uintptr_t (*lock)(void);
	void (*unlock)(uintptr_t was);
	/* The time of an event, read after lock(): the times in the stream never step back. NULL: the caller says it. */
	uint32_t (*clock)(void);
	/* For the functions above. */
	void *context;
	/* How many times in a row kymo_transport_send() looks for room before the rest is lost. 0: it does not wait. */
	uint32_t patience;
	/* What was lost: calls of send and emit, and their bytes. */
	uint32_t lost_writes, lost_bytes;
} kymo_transport_t;

/* Sends all of these bytes, and waits for room. False if the other end has gone, or has not taken anything for `patience`
 * looks: the rest is lost. For one caller at a time. */
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

/* Sends an event whole, or not at all if there is no room for it, without waiting; other writers are kept off by lock().
 * Where it is sent, `*stamp`, a field of it, gets the time first; NULL: it has its time, or none. From any context that lock()
 * keeps off. */
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

/* Gives all bytes that have arrived to `take`: kymo_link_receive() or kymo_sysview_receive(). */
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
