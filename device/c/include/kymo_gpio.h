/* A transport of one pin: bytes as a UART sends them (8 data bits, no parity, 1 stop bit), in software. Any serial adapter, or a
 * logic analyser, receives them. It takes no memory and no peripheral, and the time of ten bits for each byte.
 *
 *     KYMO_GPIO_WRITER(pin_write, GPIO_OUT = (high) ? PIN : 0, wait_until_the_next_bit());
 *     static kymo_transport_t pin = {.write = pin_write, .lock = mask, .unlock = unmask};
 *
 * The first statement sets the pin to `high`, the second waits from one edge to the next one, which it counts itself by a timer or
 * in instructions. An interrupt in between makes a bit longer: keep them off (`lock`, which kymo_transport_emit() uses), or choose
 * bits so long that it does not matter. The pin is high at first. */
#ifndef KYMO_GPIO_H
#define KYMO_GPIO_H

#include "kymo_transport.h"

#define KYMO_GPIO_WRITER(name_, set_pin_, wait_)                                                   \
	KYMO_TRANSPORT_FUNCTION int32_t name_(void *context_, const uint8_t *bytes_, uint32_t count_) \
	{                                                                                          \
		(void)context_;                                                                    \
		for (uint32_t n_ = 0; n_ < count_; n_++) {                                         \
			/* From the lowest bit: start (0), the byte, stop (1). */                  \
			uint32_t frame_ = (uint32_t)bytes_[n_] << 1 | 0x200;                       \
			for (; frame_ != 0; frame_ >>= 1) {                                        \
				const bool high = frame_ & 1;                                      \
				set_pin_;                                                          \
				wait_;                                                             \
			}                                                                          \
		}                                                                                  \
		return (int32_t)count_;                                                            \
	}                                                                                          \
	struct kymo_transport

#endif
