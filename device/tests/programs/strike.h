/* Two interrupts that preempt anywhere: SysTick and, above it, timer 0 of QEMU's mps2 boards, each after a time that
 * varies. The emulator executes instruction by instruction and counts time in instructions (-singlestep -icount), so in
 * time they come between any two instructions; strike_seen() records between which. */
#ifndef STRIKE_H
#define STRIKE_H

#include <stddef.h>
#include <stdint.h>

#ifndef KYMO_NO_INSTRUMENT
#define KYMO_NO_INSTRUMENT __attribute__((no_instrument_function))
#endif

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define TIMER_CONTROL REGISTER(0x40000000)
#define TIMER_VALUE REGISTER(0x40000004)
#define TIMER_RELOAD REGISTER(0x40000008)
#define TIMER_CLEAR REGISTER(0x4000000C)
#define UART_DATA REGISTER(0x40004000)
#define UART_STATE REGISTER(0x40004004)
#define UART_CTRL REGISTER(0x40004008)
#define UART_BAUDDIV REGISTER(0x40004010)
#define SYST_CSR REGISTER(0xE000E010)
#define SYST_RVR REGISTER(0xE000E014)
#define SYST_CVR REGISTER(0xE000E018)
#define ICSR REGISTER(0xE000ED04)
#define NVIC_ISER0 REGISTER(0xE000E100)
#define SHPR3 REGISTER(0xE000ED20)

/* The clock: FPGAIO's counter, which counts up at 25 MHz. */
#define BOARD_COUNTER 0x40028018

/* When they preempt again: after so many ticks of 25 MHz, and up to so many more. */
#ifndef STRIKE_LOW
#define STRIKE_LOW 40
#define STRIKE_LOW_RANGE 512
#define STRIKE_HIGH 300
#define STRIKE_HIGH_RANGE 2048
#endif

/* What the handlers do. */
void preempt_low(void);
void preempt_high(void);

static uint32_t strike_random = 12345;

KYMO_NO_INSTRUMENT static inline uint32_t strike_next(void)
{
	/* Nobody minds if two contexts get the same number. */
	uint32_t next = strike_random * 1664525 + 1013904223;

	strike_random = next;
	return next >> 16;
}

/* Where interrupts preempted: a bit for each half-word of the code that is looked at. */
static uintptr_t strike_from, strike_to;
static uint32_t strike_map[64];

KYMO_NO_INSTRUMENT static inline void strike_note(const uint32_t *frame)
{
	uintptr_t pc = frame[6];

	if (pc >= strike_from && pc < strike_to)
		strike_map[(pc - strike_from) / 64] |= 1u << ((pc - strike_from) / 2 % 32);
}

/* Notes from here on where in [from, to) interrupts preempt. */
KYMO_NO_INSTRUMENT static inline void strike_watch(uintptr_t from, uintptr_t to)
{
	strike_from = from & ~(uintptr_t)1;
	strike_to = to & ~(uintptr_t)1;
}

__attribute__((used)) KYMO_NO_INSTRUMENT static void strike_systick(const uint32_t *frame)
{
	strike_note(frame);
	preempt_low();
	/* So many ticks from now on: always enough that what was interrupted goes on. */
	SYST_RVR = STRIKE_LOW + strike_next() % STRIKE_LOW_RANGE;
	SYST_CVR = 0;
#ifdef STRIKE_FORGETS
	/* What it does takes longer than that, and else it would preempt again at once, for ever. */
	ICSR = 1 << 25;
#endif
}

__attribute__((used)) KYMO_NO_INSTRUMENT static void strike_timer(const uint32_t *frame)
{
	strike_note(frame);
	TIMER_CLEAR = 1;
	preempt_high();
	TIMER_RELOAD = STRIKE_HIGH + strike_next() % STRIKE_HIGH_RANGE;
	TIMER_VALUE = TIMER_RELOAD;
}

__attribute__((naked, used)) KYMO_NO_INSTRUMENT static void strike_systick_entry(void)
{
	__asm__ volatile("mov r0, sp\n\tldr r1, =strike_systick\n\tbx r1\n\t.ltorg");
}

__attribute__((naked, used)) KYMO_NO_INSTRUMENT static void strike_timer_entry(void)
{
	__asm__ volatile("mov r0, sp\n\tldr r1, =strike_timer\n\tbx r1\n\t.ltorg");
}

KYMO_NO_INSTRUMENT static inline void strike_begin(void)
{
	SHPR3 = 0xC0000000; /* SysTick below everything else */
	SYST_RVR = 200;
	SYST_CVR = 0;
	SYST_CSR = 7;
	TIMER_RELOAD = 1000;
	TIMER_VALUE = 1000;
	TIMER_CONTROL = 9;
	NVIC_ISER0 = 1 << 8;
}

KYMO_NO_INSTRUMENT static inline void strike_end(void)
{
	SYST_CSR = 0;
	TIMER_CONTROL = 0;
	__asm__ volatile("dsb\n\tisb" ::: "memory");
}

KYMO_NO_INSTRUMENT static inline void say(const char *text)
{
	for (; *text != 0; text++) {
		while (UART_STATE & 1) {
		}
		UART_DATA = (uint8_t)*text;
	}
}

KYMO_NO_INSTRUMENT static inline void say_number(const char *name, uint32_t number)
{
	char digits[12];
	char *first = &digits[11];

	*first = 0;
	do {
		*--first = (char)('0' + number % 10);
		number /= 10;
	} while (number != 0);
	say(name);
	say(" ");
	say(first);
	say("\n");
}

/* Between which instructions of the code that was watched interrupts preempted: offsets. */
KYMO_NO_INSTRUMENT static inline void strike_seen(void)
{
	for (uint32_t n = 0; n < 64 * 32; n++)
		if (strike_map[n / 32] >> n % 32 & 1)
			say_number("struck", n * 2);
}

/* Ends the program: semihosting, ADP_Stopped_ApplicationExit. */
KYMO_NO_INSTRUMENT static inline void stop(void)
{
	register uint32_t operation __asm__("r0") = 0x18;
	register uint32_t reason __asm__("r1") = 0x20026;

	__asm__ volatile("bkpt 0xAB" ::"r"(operation), "r"(reason) : "memory");
}

extern uint64_t data_start[], data_end[], data_image[], bss_start[], bss_end[], stack_top[];

void run(void);
void reset(void);

KYMO_NO_INSTRUMENT static inline void uart_begin(void)
{
	UART_BAUDDIV = 16;
	UART_CTRL = 1;
}

KYMO_NO_INSTRUMENT void reset(void)
{
	for (uint64_t *to = data_start, *from = data_image; to < data_end;)
		*to++ = *from++;
	for (volatile uint64_t *to = bss_start; to < bss_end;)
		*to++ = 0;
	uart_begin();
	run();
	say("end\n");
	stop();
}

KYMO_NO_INSTRUMENT static void fault(void)
{
	uart_begin();
	say("fault\n");
	stop();
}

__attribute__((section(".vectors"), used)) static void (*const vectors[16 + 9])(void) = {
	(void (*)(void))stack_top, reset, fault, fault, fault, fault, fault, 0,
	0, 0, 0, fault, fault, 0, fault, strike_systick_entry,
	fault, fault, fault, fault, fault, fault, fault, fault, strike_timer_entry,
};

#endif
