/* The board's UART 0: shared by what the program prints and by Kymo's link. */
#ifndef UART_H
#define UART_H

#include <stddef.h>
#include <stdint.h>

/* Switches it on, with an interrupt for each byte that arrives. */
void uart_start(void);

/* Sends bytes; waits until the last is in the UART. No other thread's bytes come in between. */
void uart_send(const uint8_t *bytes, size_t count);

#endif
