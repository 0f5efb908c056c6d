/* Items whose place is in r9, recorded in main and in a handler that strikes it, and handed over to the
 * trace. Then a host may talk. */
#define KYMO_R9_COUNTER 0x40028018
#define KYMO_R9_ITEMS 64
#include <kymo_items.h>
#include <kymo_r9.h>

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define UART_DATA REGISTER(0x40004000)
#define UART_STATE REGISTER(0x40004004)
#define UART_CTRL REGISTER(0x40004008)
#define UART_BAUDDIV REGISTER(0x40004010)
#define SYST_CSR REGISTER(0xE000E010)
#define SYST_RVR REGISTER(0xE000E014)
#define SYST_CVR REGISTER(0xE000E018)

#define CLOCK_HZ 25000000
#define TICKS 50

KYMO_ITEMS(16);
KYMO_R9_RING;

static void send(const uint8_t *bytes, size_t count)
{
	while (count-- > 0) {
		while (UART_STATE & 1) {
		}
		UART_DATA = *bytes++;
	}
}

static uint64_t buffer[1024 / 8];

const kymo_config_t kymo_config = {
	.version = KYMO_CONFIG_VERSION,
	.flags = KYMO_START_ON,
	.buffer = buffer,
	.buffer_size = sizeof buffer,
	.packet_size = 512,
	.counter = (const volatile uint32_t *)KYMO_R9_COUNTER,
	.clock_hz = CLOCK_HZ,
	.send = send,
};

static volatile uint32_t ticked;

static void tick(void)
{
	kymo_r9_produce(KYMO_ITEM_USER(1), ticked++);
}

static void run(void)
{
	kymo_r9_reader_t reader = { 0 };
	uint32_t mine = 0;

	UART_BAUDDIV = 16;
	UART_CTRL = 3;
	kymo_r9_start();
	SYST_RVR = 2500;
	SYST_CVR = 0;
	SYST_CSR = 7;
	while (ticked < TICKS) {
		kymo_r9_produce(KYMO_ITEM_USER(0), mine++);
		kymo_r9_hand_over(&reader);
	}
	/* From here on the library runs with interrupts, and may use r9. */
	SYST_CSR = 0;
	kymo_r9_hand_over(&reader);
	/* More than the ring holds. */
	for (uint32_t n = 0; n < 2 * KYMO_R9_ITEMS; n++)
		kymo_r9_produce(KYMO_ITEM_USER(2), n);
	kymo_r9_hand_over(&reader);
	for (;;) {
		if (UART_STATE & 2) {
			kymo_link_receive((uint8_t)UART_DATA);
			kymo_link_poll();
		}
	}
}

extern uint64_t data_start[], data_end[], data_image[], bss_start[], bss_end[], stack_top[];

void reset(void);
void reset(void)
{
	for (uint64_t *to = data_start, *from = data_image; to < data_end;)
		*to++ = *from++;
	for (volatile uint64_t *to = bss_start; to < bss_end;)
		*to++ = 0;
	run();
}

static void fault(void)
{
	for (;;) {
	}
}

__attribute__((section(".vectors"), used)) static void (*const vectors[])(void) = {
	(void (*)(void))stack_top, reset, fault, fault, fault, fault, fault, 0, 0, 0, 0,
	fault, fault, 0, fault, tick,
};
