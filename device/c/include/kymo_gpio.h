/* Transport over one GPIO pin: a UART transmitter in software (8 data bits, no parity, 1 stop bit). Any serial adapter
 * or logic analyser receives it. It needs no memory and no peripheral, and takes ten bit times per byte.
 *
 *     KYMO_GPIO_WRITER(pin_write, GPIO_OUT = (high) ? PIN : 0, wait_until_the_next_bit());
 *     static kymo_transport_t pin = {.write = pin_write, .lock = mask, .unlock = unmask};
 *
 * The first statement sets the pin to `high`. The second waits for the next bit edge, which it derives from a timer or
 * from a count of instructions. An interrupt in between lengthens a bit: mask interrupts (`lock`, which
 * kymo_transport_emit() uses), or choose bits so long that the delay does not matter. The pin must be high at first. */
#ifndef KYMO_GPIO_H
#define KYMO_GPIO_H

#include "kymo_transport.h"

#define KYMO_GPIO_WRITER(name_, set_pin_, wait_)                                                   \
	KYMO_TRANSPORT_FUNCTION int32_t name_(void *context_, const uint8_t *bytes_, uint32_t count_) \
	{                                                                                          \
		(void)context_;                                                                    \
		for (uint32_t n_ = 0; n_ < count_; n_++) {                                         \
			/* Lowest bit first: start (0), the byte, stop (1). */                     \
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
