/* Transport with a double buffer: one half is filled while a DMA channel or a USB endpoint sends the other.
 *
 *     static uint8_t halves[2][256];
 *     static kymo_dma_t dma = {.halves = {halves[0], halves[1]}, .size = 256, .start = start, .lock = lock, .unlock = unlock};
 *     static kymo_transport_t transport = KYMO_DMA_TRANSPORT(&dma, .patience = 100000);
 *
 *     void dma_handler(void) { kymo_dma_done(&dma); }
 *
 * The transport does not write to a half between start() and kymo_dma_done(). Whenever the channel is free, all pending
 * bytes are sent: a single event leaves at once, and many events share a transfer. */
#ifndef KYMO_DMA_H
#define KYMO_DMA_H

#include "kymo_transport.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kymo_dma {
	uint8_t *halves[2];
	uint32_t size; /* of one half, in bytes */
	/* Starts the transfer of these bytes, which do not change until kymo_dma_done(). If there is a data cache, it
	 * must write them back first. Called with the handler masked. */
	void (*start)(const uint8_t *bytes, uint32_t count);
	/* Mask and unmask the handler that calls kymo_dma_done(); NULL if the writer itself calls it. */
	uintptr_t (*lock)(void);
	void (*unlock)(uintptr_t was);
	/* Private to the transport: bytes in the half that is being filled, its index, and whether the other is being
	 * sent. */
	uint32_t filled;
	uint8_t half;
	bool busy;
} kymo_dma_t;

#define KYMO_DMA_TRANSPORT(dma_, ...) {.write = kymo_dma_write, .room = kymo_dma_room, .context = (dma_), __VA_ARGS__}

/* Starts a transfer, if none is in progress and bytes are pending. */
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

/* Ends the transfer. The channel's interrupt handler calls it. */
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
