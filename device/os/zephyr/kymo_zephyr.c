/* Kymo's recorder in a Zephyr application: configuration, and the link over a UART. hooks.c has the hooks of
 * CONFIG_TRACING_USER. */
#if __has_include(<zephyr/kernel.h>)
#include <zephyr/device.h>
#include <zephyr/drivers/uart.h>
#include <zephyr/init.h>
#include <zephyr/kernel.h>
#include <zephyr/sys/reboot.h>
#else
#include <device.h>
#include <drivers/uart.h>
#include <init.h>
#include <kernel.h>
#include <sys/reboot.h>
#endif
#if __has_include(<zephyr/version.h>)
#include <zephyr/version.h>
#elif __has_include(<version.h>)
#include <version.h>
#endif
#include <string.h>

#include "kymo.h"
#include "kymo_zephyr.h"

#ifdef CONFIG_SMP
#error "Kymo's library for a Cortex-M is for one processor"
#endif

/* ------------------------------------------------------------------ the recorder's configuration */

/* The UART: the board's `kymo,uart` under /chosen, or the console's, which may go on printing. */
#if DT_HAS_CHOSEN(kymo_uart)
#define LINK_UART DT_CHOSEN(kymo_uart)
#else
#define LINK_UART DT_CHOSEN(zephyr_console)
#endif

static const struct device *const uart = DEVICE_DT_GET(LINK_UART);

static void send(const uint8_t *bytes, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		uart_poll_out(uart, bytes[i]);
	}
}

uintptr_t kymo_zephyr_thread(void)
{
	return (uintptr_t)k_current_get();
}

/* Rate of the clock, in Hz, and the function that reads it: NULL for the processor's cycle counter. */
#if defined(CONFIG_KYMO_CLOCK_APPLICATION)
#define CLOCK_HZ CONFIG_KYMO_CLOCK_HZ
#define CLOCK kymo_zephyr_clock
#elif defined(CONFIG_KYMO_CLOCK_KERNEL)
#define CLOCK_HZ CONFIG_SYS_CLOCK_HW_CYCLES_PER_SEC
#define CLOCK kernel_clock
static uint32_t kernel_clock(void)
{
	return k_cycle_get_32();
}
#else
#define CLOCK_HZ CONFIG_SYS_CLOCK_HW_CYCLES_PER_SEC
#define CLOCK NULL
#endif

#ifdef CONFIG_REBOOT
static void restart(void)
{
	sys_reboot(SYS_REBOOT_COLD);
}
#endif

#ifdef CONFIG_KYMO_TABLE
KYMO_TABLE(CONFIG_KYMO_TABLE_SLOTS, CONFIG_KYMO_TABLE_STACKS, CONFIG_KYMO_TABLE_DEPTH);
#endif

static kymo_retained_t retained __attribute__((section(".noinit.kymo")));

extern const char kymo_build_id_note[];

KYMO_CONFIG((IS_ENABLED(CONFIG_KYMO_START_ON) ? KYMO_START_ON : 0) | (IS_ENABLED(CONFIG_KYMO_FIXED) ? KYMO_FIXED : 0) |
		    (IS_ENABLED(CONFIG_KYMO_STREAM) ? KYMO_STREAM : 0),
	    CONFIG_KYMO_PACKETS, CONFIG_KYMO_PACKET_SIZE, CONFIG_KYMO_METADATA_SIZE,
#ifdef CONFIG_KYMO_TABLE
	    KYMO_WITH_TABLE,
#endif
	    .retained = &retained, .text_base = (const void *)CONFIG_FLASH_BASE_ADDRESS,
	    .clock = CLOCK, .clock_bits = 32, .clock_hz = CLOCK_HZ, .tick_hz = CONFIG_KYMO_TICK_HZ,
	    .current_thread = kymo_zephyr_thread, .send = send,
#ifdef CONFIG_REBOOT
	    .reboot = restart,
#endif
	    .build_id_note = kymo_build_id_note);

/* ------------------------------------------------------------------ the link */

static K_SEM_DEFINE(received, 0, 1);

static void receive(const struct device *device, void *unused)
{
	uint8_t bytes[16];

	ARG_UNUSED(unused);
	while (uart_irq_update(device) && uart_irq_rx_ready(device)) {
		int count = uart_fifo_read(device, bytes, sizeof(bytes));

		for (int i = 0; i < count; i++) {
			kymo_link_receive(bytes[i]);
		}
		if (count <= 0) {
			break;
		}
	}
	k_sem_give(&received);
}

static void tick(struct k_timer *timer)
{
	ARG_UNUSED(timer);
	kymo_tick();
	if (kymo_link_pending()) {
		k_sem_give(&received);
	}
}

static K_TIMER_DEFINE(ticks, tick, NULL);

/* What functions at start-up take: a device until Zephyr 3.3, nothing from 3.4 on. */
#if KERNEL_VERSION_NUMBER >= 0x030400
#define START_ARGUMENTS void
#define IGNORE_ARGUMENTS
#else
#define START_ARGUMENTS const struct device *unused
#define IGNORE_ARGUMENTS ARG_UNUSED(unused)
#endif

/* Started before any thread runs: those of the application may never let that of the link run. */
static int start_ticks(START_ARGUMENTS)
{
	IGNORE_ARGUMENTS;
	k_timer_start(&ticks, K_MSEC(1000 / CONFIG_KYMO_TICK_HZ), K_MSEC(1000 / CONFIG_KYMO_TICK_HZ));
	return 0;
}

SYS_INIT(start_ticks, APPLICATION, 0);

void kymo_zephyr_name(void *thread)
{
	const char *name = k_thread_name_get(thread);

	if (name != NULL && name[0] != '\0') {
		kymo_thread_name((uintptr_t)thread, name);
	}
}

static void name_thread(const struct k_thread *thread, void *unused)
{
	ARG_UNUSED(unused);
	kymo_zephyr_name((void *)thread);
}

static void answer(void *first, void *second, void *third)
{
	ARG_UNUSED(first);
	ARG_UNUSED(second);
	ARG_UNUSED(third);
	/* All static threads and main exist by now; those that come later are named by the hook, if there is one. */
	k_thread_foreach(name_thread, NULL);
	kymo_isr_name(15, "SysTick");
#if DT_IRQ_HAS_IDX(LINK_UART, 0)
	kymo_isr_name(16 + DT_IRQ_BY_IDX(LINK_UART, 0, irq), "kymo_link");
#endif
#if DT_IRQ_HAS_IDX(LINK_UART, 1)
	kymo_isr_name(16 + DT_IRQ_BY_IDX(LINK_UART, 1, irq), "kymo_link");
#endif
	if (!device_is_ready(uart)) {
		return;
	}
	uart_irq_callback_user_data_set(uart, receive, NULL);
	uart_irq_rx_enable(uart);
	for (;;) {
		k_sem_take(&received, K_FOREVER);
		kymo_link_poll();
	}
}

K_THREAD_DEFINE(kymo_link, CONFIG_KYMO_LINK_STACK_SIZE, answer, NULL, NULL, NULL, CONFIG_KYMO_LINK_PRIORITY, 0, 0);
