/* Transport that queues bytes in a ring until an interrupt handler or a thread takes them. For a UART whose transmitter
 * interrupts when it is empty, or any device that is fed byte by byte.
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
 * One writer and one reader at a time; neither waits for the other. */
#ifndef KYMO_FIFO_H
#define KYMO_FIFO_H

#include "kymo_ring.h"
#include "kymo_transport.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kymo_fifo {
	kymo_rtt_channel_t ring;
	/* Starts the reader; called after bytes were queued. NULL: the reader needs no start. */
	void (*start)(void);
} kymo_fifo_t;

/* Initializes a FIFO in this memory, which holds size_ - 1 bytes. */
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

/* Takes the next byte; -1 if there is none. */
KYMO_TRANSPORT_FUNCTION int kymo_fifo_next(kymo_fifo_t *fifo)
{
	return kymo_rtt_read(&fifo->ring);
}

#ifdef __cplusplus
}
#endif

#endif
