/* Items on a Cortex-M3 with newlib: a wrapped allocator, separate rings for an interrupt and for a producer that writes
 * into the ring itself, interrupts masked by RTEMS's functions. Afterwards it serves a host. */
#include <stdlib.h>

#include <kymo_rtems.h>

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define UART_DATA REGISTER(0x40004000)
#define UART_STATE REGISTER(0x40004004)
#define UART_CTRL REGISTER(0x40004008)
#define UART_BAUDDIV REGISTER(0x40004010)
#define SYST_CSR REGISTER(0xE000E010)
#define SYST_RVR REGISTER(0xE000E014)
#define SYST_CVR REGISTER(0xE000E018)
#define COUNTER REGISTER(0x40028018)

#define CLOCK_HZ 25000000
#define TICK_HZ 100

KYMO_ITEMS(4);
KYMO_RING(ticks, 256, 2);
KYMO_RING(by_hand, 512, 4);

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
	.counter = (const volatile uint32_t *)0x40028018,
	.clock_hz = CLOCK_HZ,
	.tick_hz = TICK_HZ,
	.send = send,
};

/* What newlib asks for. */
void *_sbrk(ptrdiff_t more);
void *_sbrk(ptrdiff_t more)
{
	static uint64_t heap[8192 / 8];
	static size_t used;
	void *block = (uint8_t *)heap + used;
	if (used + more > sizeof heap)
		return (void *)-1;
	used += more;
	return block;
}

static volatile uint32_t ticked;

static void tick(void)
{
	kymo_tick();
	if (ticked < 20) {
		const kymo_item_t items[] = {{KYMO_ITEM_USER(1), ticked}, {KYMO_ITEM_USER(2), ticked}};
		kymo_ring_produce(&ticks, items, 2);
		ticked++;
	}
}

/* As assembly does it. */
static void put(uint32_t id, uint32_t data)
{
	uint32_t *at = (uint32_t *)by_hand.at;
	at[0] = COUNTER << 10 | id;
	at[1] = data;
	by_hand.at = (uint8_t *)(at + 2);
	if ((uintptr_t)by_hand.at % KYMO_ITEM_PACKET == 0)
		kymo_item_landed(&by_hand);
}

static uint32_t masked(void)
{
	uint32_t is;
	__asm__ volatile("mrs %0, PRIMASK" : "=r"(is)::"memory");
	return is;
}

/* Masked twice; each gives back what was. */
static void mask(void)
{
	uint32_t seen[5];
	uint32_t outer = rtems_record_interrupt_disable();
	seen[0] = outer;
	seen[1] = masked();
	uint32_t inner = rtems_record_interrupt_disable();
	seen[2] = inner;
	rtems_record_interrupt_enable(inner);
	seen[3] = masked();
	rtems_record_interrupt_enable(outer);
	seen[4] = masked();
	for (uintptr_t n = 0; n < 5; n++)
		kymo_produce(KYMO_ITEM_USER(10) + n, seen[n]);
}

__attribute__((noinline)) static void allocate(void)
{
	char *memory = malloc(100);
	memory = realloc(memory, 200);
	free(memory);
	memory = calloc(3, 7);
	free(memory);
}

static void run(void)
{
	UART_BAUDDIV = 16;
	UART_CTRL = 3;
	SYST_RVR = CLOCK_HZ / TICK_HZ - 1;
	SYST_CVR = 0;
	SYST_CSR = 7;
	mask();
	allocate();
	for (uint32_t n = 0; n < 300; n++)
		put(KYMO_ITEM_USER(3), n);
	while (ticked < 20) {
	}
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
	static const uint8_t message[] = "fault\r\n";
	send(message, sizeof message - 1);
	for (;;) {
	}
}

__attribute__((section(".vectors"), used)) static void (*const vectors[16])(void) = {
	(void (*)(void))stack_top, reset, fault, fault, fault, fault, fault, 0,
	0, 0, 0, fault, fault, 0, fault, tick,
};
