/* Transport through the ITM of a Cortex-M3 or larger: bytes leave by the SWO pin, without memory or interrupt, and a
 * debug probe passes them to the host. `context` is the stimulus port:
 *
 *     static kymo_transport_t swo = {.write = kymo_itm_write, .context = KYMO_ITM_PORT(0), .patience = 100000};
 *
 * The debugger configures ITM and SWO, and enables the port. Until then the transport reports KYMO_TRANSPORT_GONE, and
 * an event costs the reads of two registers. Each port may have one writer at a time. The ITM usually buffers one word:
 * to send events of your own whole, use kymo_transport_send() with a lock around it, or keep an event within four
 * bytes. */
#ifndef KYMO_ITM_H
#define KYMO_ITM_H

#include "kymo_transport.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KYMO_ITM_PORT(number_) ((void *)(uintptr_t)(number_))

#define KYMO_ITM_STIMULUS(port_) (4u * (uint32_t)(port_))
#define KYMO_ITM_ENABLED 0xE00u /* TER: one bit per port */
#define KYMO_ITM_CONTROL 0xE80u /* TCR: bit 0 is ITMENA */

/* Access to registers by their offsets; a simulation defines these three. */
#ifndef KYMO_ITM_READ
#define KYMO_ITM_BASE 0xE0000000u
#define KYMO_ITM_READ(offset_) (*(volatile uint32_t *)(KYMO_ITM_BASE + (offset_)))
#define KYMO_ITM_WRITE_WORD(offset_, value_) (*(volatile uint32_t *)(KYMO_ITM_BASE + (offset_)) = (value_))
#define KYMO_ITM_WRITE_BYTE(offset_, value_) (*(volatile uint8_t *)(KYMO_ITM_BASE + (offset_)) = (value_))
#endif

KYMO_TRANSPORT_FUNCTION int32_t kymo_itm_write(void *context, const uint8_t *bytes, uint32_t count)
{
	uint32_t port = (uint32_t)(uintptr_t)context;
	if ((KYMO_ITM_READ(KYMO_ITM_CONTROL) & 1) == 0 || (KYMO_ITM_READ(KYMO_ITM_ENABLED) >> port & 1) == 0)
		return KYMO_TRANSPORT_GONE;
	uint32_t done = 0;
	/* A stimulus port reads as 1 when it accepts a write. */
	while (done < count && (KYMO_ITM_READ(KYMO_ITM_STIMULUS(port)) & 1) != 0) {
		uint32_t word;
		if (count - done >= sizeof word) {
			memcpy(&word, bytes + done, sizeof word);
			KYMO_ITM_WRITE_WORD(KYMO_ITM_STIMULUS(port), word);
			done += sizeof word;
		} else {
			KYMO_ITM_WRITE_BYTE(KYMO_ITM_STIMULUS(port), bytes[done]);
			done++;
		}
	}
	return (int32_t)done;
}

#ifdef __cplusplus
}
#endif

#endif
