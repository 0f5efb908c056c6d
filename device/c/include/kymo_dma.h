/* A transport that hands over memory: one half of a buffer is filled while a DMA channel, or a USB endpoint, sends the other.
 *
 *     static uint8_t halves[2][256];
 *     static kymo_dma_t dma = {.halves = {halves[0], halves[1]}, .size = 256, .start = start, .lock = lock, .unlock = unlock};
 *     static kymo_transport_t transport = KYMO_DMA_TRANSPORT(&dma, .patience = 100000);
 *
 *     void dma_handler(void) { kymo_dma_done(&dma); }
 *
 * A half is not written to from start() to kymo_dma_done(). Whatever is there when the channel becomes free is sent, so that single
 * events leave at once and many leave in few transfers. */
#ifndef KYMO_DMA_H
#define KYMO_DMA_H

#include "kymo_transport.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kymo_dma {
	uint8_t *halves[2];
	uint32_t size; /* of a half */
	/* Begins to send these bytes, which stay as they are until kymo_dma_done(). Where there is a data cache it writes them
	 * back first. Called with the handler kept off. */
	void (*start)(const uint8_t *bytes, uint32_t count);
	/* Keep off the handler that calls kymo_dma_done(); NULL if the writer calls that itself. */
	uintptr_t (*lock)(void);
	void (*unlock)(uintptr_t was);
	/* The transport's own: bytes in the half that is filled, which one that is, whether the other is being sent. */
	uint32_t filled;
	uint8_t half;
	bool busy;
} kymo_dma_t;

#define KYMO_DMA_TRANSPORT(dma_, ...) {.write = kymo_dma_write, .room = kymo_dma_room, .context = (dma_), __VA_ARGS__}

/* Begins a transfer, if there is none and there is something to send. */
KYMO_TRANSPORT_FUNCTION void kymo_dma_go_on(kymo_dma_t *dma)
{
	if (dma->busy || dma->filled == 0)
		return;
	const uint8_t *bytes = dma->halves[dma->half];
	uint32_t count = dma->filled;
	dma->busy = true;
	dma->half ^= 1;
	dma->filled = 0;
	dma->start(bytes, count);
}

KYMO_TRANSPORT_FUNCTION uintptr_t kymo_dma_lock(const kymo_dma_t *dma)
{
	return dma->lock != NULL ? dma->lock() : 0;
}

KYMO_TRANSPORT_FUNCTION void kymo_dma_unlock(const kymo_dma_t *dma, uintptr_t was)
{
	if (dma->unlock != NULL)
		dma->unlock(was);
}

KYMO_TRANSPORT_FUNCTION int32_t kymo_dma_room(void *context)
{
	const kymo_dma_t *dma = (const kymo_dma_t *)context;
	uintptr_t was = kymo_dma_lock(dma);
	int32_t room = (int32_t)(dma->size - dma->filled);
	kymo_dma_unlock(dma, was);
	return room;
}

KYMO_TRANSPORT_FUNCTION int32_t kymo_dma_write(void *context, const uint8_t *bytes, uint32_t count)
{
	kymo_dma_t *dma = (kymo_dma_t *)context;
	uintptr_t was = kymo_dma_lock(dma);
	uint32_t room = dma->size - dma->filled;
	uint32_t some = count < room ? count : room;
	memcpy(dma->halves[dma->half] + dma->filled, bytes, some);
	dma->filled += some;
	kymo_dma_go_on(dma);
	kymo_dma_unlock(dma, was);
	return (int32_t)some;
}

/* The transfer has ended: for the channel's interrupt handler. */
KYMO_TRANSPORT_FUNCTION void kymo_dma_done(kymo_dma_t *dma)
{
	uintptr_t was = kymo_dma_lock(dma);
	dma->busy = false;
	kymo_dma_go_on(dma);
	kymo_dma_unlock(dma, was);
}

#ifdef __cplusplus
}
#endif

#endif
