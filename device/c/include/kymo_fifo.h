/* A transport whose bytes wait in a ring until an interrupt handler, or a thread, takes them: a UART whose transmitter
 * interrupts when it is empty, or anything that is fed byte by byte.
 *
 *     static uint8_t bytes[256];
 *     static kymo_fifo_t uart = KYMO_FIFO(bytes, sizeof bytes, uart_interrupt_on);
 *     static kymo_transport_t transport = KYMO_FIFO_TRANSPORT(&uart, .patience = 100000);
 *
 *     void uart_handler(void)
 *     {
 *             int byte = kymo_fifo_next(&uart);
 *             if (byte >= 0)
 *                     UART_DATA = (uint8_t)byte;
 *             else
 *                     uart_interrupt_off();
 *     }
 *
 * One writer at a time, and one that takes; neither waits for the other. */
#ifndef KYMO_FIFO_H
#define KYMO_FIFO_H

#include "kymo_ring.h"
#include "kymo_transport.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kymo_fifo {
	kymo_rtt_channel_t ring;
	/* Has the bytes taken; called when some were put in. NULL: they are taken without. */
	void (*start)(void);
} kymo_fifo_t;

/* A FIFO in these bytes, of which it holds one less. */
#define KYMO_FIFO(memory_, size_, start_) {{NULL, (memory_), (size_), 0, 0, 0}, (start_)}

#define KYMO_FIFO_TRANSPORT(fifo_, ...) {.write = kymo_fifo_write, .room = kymo_fifo_room, .context = (fifo_), __VA_ARGS__}

KYMO_TRANSPORT_FUNCTION int32_t kymo_fifo_room(void *context)
{
	return (int32_t)kymo_rtt_room(&((kymo_fifo_t *)context)->ring);
}

KYMO_TRANSPORT_FUNCTION int32_t kymo_fifo_write(void *context, const uint8_t *bytes, uint32_t count)
{
	kymo_fifo_t *fifo = (kymo_fifo_t *)context;
	uint32_t room = kymo_rtt_room(&fifo->ring);
	uint32_t some = count < room ? count : room;
	kymo_rtt_put(&fifo->ring, bytes, some);
	if (some > 0 && fifo->start != NULL)
		fifo->start();
	return (int32_t)some;
}

/* The next byte to go; -1 if there is none. */
KYMO_TRANSPORT_FUNCTION int kymo_fifo_next(kymo_fifo_t *fifo)
{
	return kymo_rtt_read(&fifo->ring);
}

#ifdef __cplusplus
}
#endif

#endif
