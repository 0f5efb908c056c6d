/* Program whose calls have known lengths: the test runs it where an instruction takes 64 ns of
 * virtual time. It records, and answers the host. */
#include "kymo.h"
#include "kymo_control.h"

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define UART_DATA REGISTER(0x40004000)
#define UART_STATE REGISTER(0x40004004)
#define UART_CTRL REGISTER(0x40004008)
#define UART_BAUDDIV REGISTER(0x40004010)
#define SYST_CSR REGISTER(0xE000E010)
#define SYST_RVR REGISTER(0xE000E014)
#define SYST_CVR REGISTER(0xE000E018)
#define AIRCR REGISTER(0xE000ED0C)
#define FPGA_COUNTER ((const volatile uint32_t *)0x40028018)

#define CLOCK_HZ 25000000

KYMO_NO_INSTRUMENT static void send(const uint8_t *bytes, size_t count)
{
	while (count-- > 0) {
		while (UART_STATE & 1) {
		}
		UART_DATA = *bytes++;
	}
}

KYMO_NO_INSTRUMENT static void reboot(void)
{
	AIRCR = 0x05FA0004;
	for (;;) {
	}
}

/* Two instructions per round. */
#define SPIN(rounds_)                                                                             \
	do {                                                                                      \
		uint32_t left_ = (rounds_);                                                       \
		__asm__ volatile("1: subs %0, #1\n\tbne 1b" : "+r"(left_) : : "cc");              \
	} while (0)

__attribute__((noinline)) void spin(uint32_t rounds)
{
	SPIN(rounds);
}

__attribute__((noinline)) void tiny(void)
{
	__asm__ volatile("");
}

/* Its callees take most of its time, and none of them is long enough to be recorded. */
__attribute__((noinline)) void many(void)
{
	for (int i = 0; i < 1000; i++)
		tiny();
	SPIN(1000);
}

__attribute__((noinline)) void deep(int levels)
{
	SPIN(500);
	if (levels > 1)
		deep(levels - 1);
	__asm__ volatile("");
}

__attribute__((noinline)) void stop_here(void)
{
	__asm__ volatile("");
}

__attribute__((noinline)) void outer(void)
{
	static uint32_t rounds;
	spin(3000);
	spin(10);
	many();
	kymo_marker(++rounds);
	stop_here();
	__asm__ volatile("svc #0");
}

void all(void)
{
	for (uint32_t rounds = 1; rounds <= 4096; rounds *= 2)
		spin(rounds);
	many();
	deep(40);
	outer();
}

__attribute__((noinline)) void small_step(void)
{
	SPIN(4000);
}

__attribute__((noinline)) void large_step(void)
{
	SPIN(40000);
}

/* Repeats the same calls. */
__attribute__((noinline)) void steps(void)
{
	for (int i = 0; i < 24; i++) {
		small_step();
		if (i % 8 == 0)
			large_step();
	}
}

/* An interpreter: most calls are short, and follow each other as closely as possible. */
__attribute__((noinline)) int leaf(int n)
{
	__asm__ volatile("" : "+r"(n));
	return n * 3 + 1;
}

__attribute__((noinline)) int add(int left, int right)
{
	return leaf(left) + leaf(right);
}

__attribute__((noinline)) int evaluate(int depth)
{
	if (depth == 0)
		return leaf(depth);
	return add(evaluate(depth - 1), evaluate(depth - 1));
}

__attribute__((noinline)) void interpret(void)
{
	static uint32_t rounds;
	evaluate(5);
	if (rounds++ % 4 == 0)
		large_step();
}

/* Blocks of data: short calls between longer ones, and pauses. */
__attribute__((noinline)) uint32_t get(uint32_t n)
{
	SPIN(12);
	return n;
}

__attribute__((noinline)) void put(uint32_t n)
{
	SPIN(25 + n);
}

__attribute__((noinline)) void hash(void)
{
	SPIN(600);
}

__attribute__((noinline)) void block(void)
{
	for (uint32_t i = 0; i < 16; i++) {
		uint32_t n = get(i);
		hash();
		put(n);
	}
}

__attribute__((noinline)) void compress(void)
{
	static uint32_t rounds;
	for (int i = 0; i < 4; i++)
		block();
	SPIN(rounds++ % 8 == 0 ? 220000 : 20000);
}

/* Two threads with a queue between them, and markers. */
__attribute__((noinline)) void lock(void)
{
	SPIN(20);
}

__attribute__((noinline)) void unlock(void)
{
	SPIN(15);
}

__attribute__((noinline)) void queue_put(void)
{
	lock();
	SPIN(60);
	unlock();
}

__attribute__((noinline)) void queue_get(void)
{
	lock();
	SPIN(80);
	unlock();
}

__attribute__((noinline)) void sample(void)
{
	SPIN(700);
}

__attribute__((noinline)) void transmit(void)
{
	SPIN(9000);
	queue_get();
}

__attribute__((noinline)) void threads(void)
{
	static uint32_t rounds, random = 1;
	random = random * 1664525 + 1013904223;
	kymo_switch(1 + rounds % 2);
	queue_put();
	if (random >> 30 != 0)
		sample();
	if (rounds % 16 == 0)
		transmit();
	SPIN((random >> 16 & 255) * 20 + 1);
	kymo_marker(rounds++);
}

__attribute__((section(".noinit"))) static kymo_retained_t retained;
__attribute__((section(".noinit"))) static kymo_duration_retained_t duration_retained;

/* Simulates RAM that does not keep its contents over a reset, by changing a bit of each structure. */
KYMO_NO_INSTRUMENT static void damage(void)
{
	*(volatile uint8_t *)&retained ^= 2;
	*(volatile uint8_t *)&duration_retained ^= 2;
}

/* Never returns, so its call is open in every dump. */
__attribute__((noinline)) static void serve(void)
{
	void (*goes_on)(void) = NULL;
	for (int marks = 0;;) {
		if (goes_on)
			goes_on();
		if (UART_STATE & 2) {
			uint8_t byte = (uint8_t)UART_DATA;
			/* No frame of the link contains so many in a row. */
			if (marks >= 5 && byte != '!')
				goes_on = byte == '+' ? steps : byte == '*' ? interpret
						   : byte == '/' ? compress : byte == '=' ? threads : goes_on;
			marks = byte == '!' || byte == '#' || byte == '+' || byte == '*' || byte == '/' || byte == '=' ? marks + 1 : 0;
			kymo_link_receive(byte);
			kymo_link_poll();
			if (marks == 6 && (byte == '!' || byte == '#')) {
				byte == '!' ? all() : damage();
				send((const uint8_t *)"\ndone\n", 6);
			}
		}
	}
}

/* Calls of a handler are on the stack of the interrupted context. */
KYMO_NO_INSTRUMENT void tick(void)
{
	kymo_tick();
#ifdef CONTROL
	kymo_control_poll();
#endif
}

#ifdef CONTROL
KYMO_CONTROL;
#endif

/* A second exception. */
KYMO_NO_INSTRUMENT void svc(void)
{
	kymo_isr_enter(11);
	kymo_isr_exit(11);
}

static uint64_t buffer[65536 / 8], names[256 / 8];
__attribute__((section(".noinit"))) static uint8_t filter[KYMO_DURATION_FILTER(64 * 1024)];

KYMO_DURATION(2, 24, .threshold = 2500, .flags = KYMO_DURATION_ON, .filter = filter,
	      .filter_size = sizeof filter, .retained = &duration_retained);

const kymo_config_t kymo_config = {
	.version = KYMO_CONFIG_VERSION,
	.flags = KYMO_START_ON,
	.buffer = buffer,
	.buffer_size = sizeof buffer,
	.packet_size = 1024,
	.metadata = names,
	.metadata_size = sizeof names,
	.retained = &retained,
	.counter = FPGA_COUNTER,
	.clock_hz = CLOCK_HZ,
	.tick_hz = 100,
	.send = send,
	.reboot = reboot,
};

KYMO_NO_INSTRUMENT static void run(void)
{
	UART_BAUDDIV = 16;
	UART_CTRL = 3;
	SYST_RVR = CLOCK_HZ / 100 - 1;
	SYST_CVR = 0;
	SYST_CSR = 7;
	serve();
}

extern uint64_t data_start[], data_end[], data_image[], bss_start[], bss_end[], stack_top[];

KYMO_NO_INSTRUMENT void reset(void)
{
	for (uint64_t *to = data_start, *from = data_image; to < data_end;)
		*to++ = *from++;
	for (volatile uint64_t *to = bss_start; to < bss_end;)
		*to++ = 0;
	run();
}

KYMO_NO_INSTRUMENT static void fault(void)
{
	static const uint8_t message[] = "fault\r\n";
	send(message, sizeof message - 1);
	for (;;) {
	}
}

__attribute__((section(".vectors"), used)) static void (*const vectors[16])(void) = {
	(void (*)(void))stack_top, reset, fault, fault, fault, fault, fault, 0,
	0, 0, 0, svc, fault, 0, fault, tick,
};
