/* Start-up code from reset to main(). Not instrumented: RAM is not initialized yet. */
#include <stddef.h>
#include <stdint.h>

#include "scheduler.h"
#include "uart.h"

extern uint32_t data_start[], data_end[], bss_start[], bss_end[], stack_top[];
extern const uint32_t data_image[];
extern void (*const __init_array_start[])(void);
extern void (*const __init_array_end[])(void);

int main(void);
void reset(void);
void systick_interrupt(void);
void timer_interrupt(void);
void uart_interrupt(void);

void reset(void)
{
	const uint32_t *from = data_image;
	for (uint32_t *to = data_start; to < data_end; to++)
		*to = *from++;
	for (uint32_t *to = bss_start; to < bss_end; to++)
		*to = 0;
	/* From here on Kymo records, constructors included. */
	for (void (*const *constructor)(void) = __init_array_start; constructor < __init_array_end;
	     constructor++)
		(*constructor)();
	main();
	for (;;)
		;
}

/* Any exception without a handler: prints a message and stops, so that a debugger finds the
 * unchanged state of the machine. */
static void fault(void)
{
	static const char message[] = "demo: fault, stopped\n";
	uart_send((const uint8_t *)message, sizeof message - 1);
	for (;;)
		;
}

__attribute__((section(".vectors"), used)) static const void *const vectors[16 + 16] = {
	stack_top, reset, fault, fault, fault, fault, fault, NULL, NULL, NULL, NULL, fault, fault,
	NULL, scheduler_switch, systick_interrupt,
	/* IRQ 0 to 15 */
	uart_interrupt, fault, fault, fault, fault, fault, fault, fault,
	timer_interrupt, fault, fault, fault, fault, fault, fault, fault,
};
