/* A program for a Cortex-M3 that dies twice: each time its fault handler writes the recording to the UART, between
 * lines of its own, and resets. SILENT: the handler resets at once, and the next start writes the recording that RAM
 * still holds. DAMAGE: the newest packet was overwritten before that. SEMIHOSTING: the recording goes to a file of the
 * debugger. */
#include "kymo.h"
#ifdef SEMIHOSTING
#include "kymo_semihosting.h"
#endif

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define UART_DATA REGISTER(0x40004000)
#define UART_STATE REGISTER(0x40004004)
#define UART_CTRL REGISTER(0x40004008)
#define UART_BAUDDIV REGISTER(0x40004010)
#define SYST_CSR REGISTER(0xE000E010)
#define SYST_RVR REGISTER(0xE000E014)
#define SYST_CVR REGISTER(0xE000E018)
#define AIRCR REGISTER(0xE000ED0C)

#define PLAIN KYMO_NO_INSTRUMENT

PLAIN static void put(const char *text, size_t length)
{
	while (length-- > 0) {
		while (UART_STATE & 1) {
		}
		UART_DATA = (uint8_t)*text++;
	}
}

PLAIN static void say(const char *text)
{
	size_t length = 0;
	while (text[length] != 0)
		length++;
	put(text, length);
}

#ifdef SEMIHOSTING
static kymo_transport_t file;

PLAIN static void put_file(const char *text, size_t length)
{
	kymo_transport_send(&file, (const uint8_t *)text, length);
}

PLAIN static void dump(void)
{
	file.write = kymo_semihosting_write;
	file.context = kymo_semihosting_open("dump.txt", 8);
	bool dumped = kymo_dump_text(put_file);
	kymo_semihosting_close(file.context);
	/* Nothing goes to a file that is closed, or to one that cannot be opened. */
	put_file("lost", 4);
	file.context = kymo_semihosting_open("no/such/folder", 14);
	put_file("lost too", 8);
	say(dumped && file.lost_writes == 2 && file.lost_bytes == 12 ? "file\r\n" : "no file\r\n");
}
#endif

/* Survives the reset, which tells one life from another. */
static uint32_t lives[2] __attribute__((section(".noinit")));

KYMO_CONFIG(KYMO_START_ON, 8, 512, 256, .clock_hz = 25000000, .tick_hz = 100);

__attribute__((noinline)) static int leaf(int n)
{
	__asm__ volatile("" : "+r"(n));
	return n + 1;
}

PLAIN void tick(void)
{
	kymo_isr_enter(15);
	kymo_tick();
	kymo_isr_exit(15);
}

__attribute__((noinline)) static void dying(void)
{
	/* More than the buffer holds; the last one is recorded just before the end. */
	for (uint32_t n = 1; n <= 3000; n++) {
		leaf(0);
		kymo_marker(lives[1] * 10000 + n);
	}
	__asm__ volatile("udf #0");
}

extern uint64_t data_start[], data_end[], data_image[], bss_start[], bss_end[], stack_top[];

PLAIN void reset(void)
{
	UART_BAUDDIV = 16;
	UART_CTRL = 3;
#ifdef SILENT
#ifdef DAMAGE
	/* The newest packet's first word, wherever it is. */
	for (size_t at = 0; at < sizeof kymo_buffer_memory; at += 512)
		*(volatile uint32_t *)((uintptr_t)kymo_buffer_memory + at) ^= 0x10;
#endif
	say("reset\r\n");
	if (!kymo_dump_survivors(put))
		say("nothing\r\n");
#endif
	for (uint64_t *to = data_start, *from = data_image; to < data_end;)
		*to++ = *from++;
	for (volatile uint64_t *to = bss_start; to < bss_end;)
		*to++ = 0;
	if (lives[0] != 0x4C495645) {
		lives[0] = 0x4C495645;
		lives[1] = 0;
	}
	lives[1]++;
	SYST_RVR = 250000 - 1;
	SYST_CVR = 0;
	SYST_CSR = 7;
	kymo_isr_name(15, "SysTick");
#ifdef SILENT
	if (lives[1] == 3) {
		say("the end\r\n");
		for (;;) {
		}
	}
#endif
	say(lives[1] == 1 ? "first life\r\n" : "another life\r\n");
	dying();
}

PLAIN static void fault(void)
{
#ifdef SILENT
	AIRCR = 0x05FA0004;
	for (;;) {
	}
#endif
	say("HARD FAULT");
#ifdef SEMIHOSTING
	dump();
#else
	if (!kymo_dump_text(put))
		say("nothing\r\n");
#endif
	if (lives[1] < 2) {
		say("reset\r\n");
		AIRCR = 0x05FA0004;
	} else {
		lives[0] = 0;
		say("the end\r\n");
	}
	for (;;) {
	}
}

__attribute__((section(".vectors"), used)) static void (*const vectors[16])(void) = {
	(void (*)(void))stack_top, reset, fault, fault, fault, fault, fault, 0,
	0, 0, 0, fault, fault, 0, fault, tick,
};
