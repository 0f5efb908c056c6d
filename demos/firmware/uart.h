/* The board's UART 0: shared by the program's output and Kymo's link. */
#ifndef UART_H
#define UART_H

#include <stddef.h>
#include <stdint.h>

/* Enables it, with an interrupt for each received byte. */
void uart_start(void);

/* Sends bytes without bytes of other threads in between; waits until the last is in the UART. */
void uart_send(const uint8_t *bytes, size_t count);

#endif
