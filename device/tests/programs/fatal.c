/* A program for a Cortex-M3 that dies twice: each time its fault handler writes the recording to the UART, between
 * lines of its own, and resets.
 * SILENT: the handler resets at once, and the next start writes the recording that RAM still holds.
 * DAMAGE: the newest packet's header was overwritten before that.
 * INVERT: one word of each packet was inverted before that.
 * SWEEP: after that the program changes the words of the buffer one at a time, and counts what a dump says of that.
 * SUMS: packets have checksums.
 * LONG_CALLS: duration mode.
 * LINES: the fault handler also writes the recording as lines that a person can read.
 * SEMIHOSTING: the recording goes to a file of the debugger. */
#include "kymo.h"
#ifdef SEMIHOSTING
#include "kymo_semihosting.h"
#endif
#ifdef SUMS
#include "kymo_sums.h"
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
#ifdef SUMS
KYMO_SUMS(8);
#endif
#ifdef LONG_CALLS
KYMO_DURATION(2, 8, .flags = KYMO_DURATION_ON);
#endif

#ifdef SWEEP
/* The end of the last dump, without its beginning and in a memory of its own. */
static char end_text[200] __attribute__((section(".noinit")));
static size_t end_length __attribute__((section(".noinit")));

PLAIN static void keep_end(const char *text, size_t length)
{
	static const char begin[] = "*** kymo dump ends:";
	for (size_t at = 0; begin[at] != 0; at++)
		if (at >= length || text[at] != begin[at])
			return;
	end_length = length < sizeof end_text ? length : sizeof end_text;
	for (size_t at = 0; at < end_length; at++)
		end_text[at] = text[at];
}

/* The number after a word of the end; 16 for hexadecimal ones. */
PLAIN static uint32_t value(const char *name, uint32_t base)
{
	for (size_t at = 0; at < end_length; at++) {
		size_t same = 0;
		while (name[same] != 0 && at + same < end_length && end_text[at + same] == name[same])
			same++;
		if (name[same] != 0)
			continue;
		uint32_t number = 0;
		for (at += same; at < end_length; at++) {
			char digit = end_text[at];
			if (digit >= '0' && digit <= '9')
				number = number * base + (uint32_t)(digit - '0');
			else if (base == 16 && digit >= 'a' && digit <= 'f')
				number = number * base + (uint32_t)(digit - 'a' + 10);
			else
				break;
		}
		return number;
	}
	return 0xFFFFFFFF;
}

PLAIN static void say_number(const char *name, uint32_t number)
{
	char digits[12];
	size_t at = sizeof digits;
	digits[--at] = 0;
	do {
		digits[--at] = (char)('0' + number % 10);
		number /= 10;
	} while (number != 0);
	say(name);
	say(digits + at);
}

extern const uintptr_t kymo_hot[];

/* Changes that a dump refuses, those in the newest packet, which the dump marks, those in closed ones that it marks,
 * and those that it believes. */
static uint32_t refused __attribute__((section(".noinit")));
static uint32_t newest __attribute__((section(".noinit")));
static uint32_t marked __attribute__((section(".noinit")));
static uint32_t believed __attribute__((section(".noinit")));

PLAIN static void sweep(void)
{
	static const uint32_t changes[] = {0xFFFFFFFF, 1, 0x100, 0x80000000, 0x00810000};
	refused = newest = marked = believed = 0;
	uintptr_t memory = (uintptr_t)kymo_buffer_memory;
	uintptr_t open = (kymo_hot[1] - memory - 1) / 512;
	end_length = 0;
	kymo_dump_survivors(keep_end);
	if (value("refused=", 10) != 0)
		say("damaged before\r\n");
	say_number("verified=", value("verified=", 10));
	say_number(" unverified=", value("unverified=", 10));
	uint32_t crc = value("crc=", 16);
	for (size_t at = 0; at < sizeof kymo_buffer_memory; at += 4) {
		volatile uint32_t *word = (volatile uint32_t *)(memory + at);
		uint32_t change = changes[at / 4 % 5];
		*word ^= change;
		end_length = 0;
		bool dumped = kymo_dump_survivors(keep_end);
		*word ^= change;
		if (!dumped || value("refused=", 10) != 0)
			refused++;
		else if (value("crc=", 16) == crc)
			continue;
		else if (at / 512 == open)
			newest++;
		else if (value("unverified=", 10) > 1)
			marked++;
		else
			believed++;
	}
	say_number(" refused=", refused);
	say_number(" newest=", newest);
	say_number(" marked=", marked);
	say_number(" believed=", believed);
	say("\r\n");
}
#endif

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
#ifdef INVERT
	for (size_t at = 300; at < sizeof kymo_buffer_memory; at += 512)
		*(volatile uint32_t *)((uintptr_t)kymo_buffer_memory + at) ^= 0xFFFFFFFF;
#endif
	say("reset\r\n");
	if (!kymo_dump_survivors(put))
		say("nothing\r\n");
#ifdef SWEEP
	else
		sweep();
#endif
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
#ifdef LINES
	if (!kymo_dump_lines(put))
		say("nothing\r\n");
#endif
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
