/* The UART: see uart.h. Not instrumented, because Kymo sends through it. */
#include "uart.h"

#include "board.h"
#include "scheduler.h"

void uart_start(void)
{
	UART_DIVIDER = 16; /* the fastest; QEMU does not model the time that a byte takes */
	UART_CONTROL = UART_CONTROL_TX | UART_CONTROL_RX | UART_CONTROL_RX_INTERRUPT;
}

/* Set while a thread is sending. */
static volatile bool busy;

/* Sends all bytes in one piece. Senders exclude one another; threads without output run while the
 * line is busy. */
void uart_send(const uint8_t *bytes, size_t count)
{
	scheduler_lock();
	while (busy) {
		scheduler_unlock();
		scheduler_sleep(1);
		scheduler_lock();
	}
	busy = true;
	scheduler_unlock();
	for (size_t i = 0; i < count; i++) {
		while (UART_STATE & UART_STATE_TX_FULL)
			;
		UART_DATA = bytes[i];
	}
	busy = false;
}
