/* C part of a program for a Cortex-M3 whose recorder is configured in Rust: start-up, SysTick, a UART. */
#include "kymo.h"

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define UART_DATA REGISTER(0x40004000)
#define UART_STATE REGISTER(0x40004004)

void work(void);

void board_send(const uint8_t *bytes, size_t count)
{
	while (count-- > 0) {
		while (UART_STATE & 1) {
		}
		UART_DATA = *bytes++;
	}
}

void tick(void)
{
	kymo_tick();
}

extern uint64_t data_start[], data_end[], data_image[], bss_start[], bss_end[], stack_top[];

void reset(void)
{
	for (uint64_t *to = data_start, *from = data_image; to < data_end;)
		*to++ = *from++;
	for (volatile uint64_t *to = bss_start; to < bss_end;)
		*to++ = 0;
	REGISTER(0x40004010) = 16;
	REGISTER(0x40004008) = 3;
	REGISTER(0xE000E014) = 25000000 / 100 - 1;
	REGISTER(0xE000E018) = 0;
	REGISTER(0xE000E010) = 7;
	work();
	for (;;) {
		if (UART_STATE & 2) {
			kymo_link_receive((uint8_t)UART_DATA);
			kymo_link_poll();
		}
	}
}

__attribute__((section(".vectors"), used)) void (*const vectors[16])(void) = {
	(void (*)(void))stack_top, reset, [15] = tick,
};
