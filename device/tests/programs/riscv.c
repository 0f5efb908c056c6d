/* The smallest program for a RISC-V hart with a link: no library, the hart's own cycle counter, machine timer
 * interrupts, a polled UART. `!` on the UART makes it work, `^` makes it jump out of three calls. (QEMU's machine
 * `virt`, which runs it in machine mode.) */
#include "kymo.h"

#define BYTE(address) (*(volatile uint8_t *)(address))
#define WORD(address) (*(volatile uint32_t *)(address))
#define UART_DATA BYTE(0x10000000)
#define UART_STATE BYTE(0x10000005)
#define MTIMECMP(half) WORD(0x02004000 + 4 * (half))
#define MTIME(half) WORD(0x0200BFF8 + 4 * (half))
#define TEST_DEVICE WORD(0x00100000)

#define MTIME_HZ 10000000
#define TICK_HZ 100
#define TIMER_IRQ 7 /* mcause of the machine timer's interrupt */

KYMO_NO_INSTRUMENT static void send(const uint8_t *bytes, size_t count)
{
	while (count-- > 0) {
		while (!(UART_STATE & 0x20)) {
		}
		UART_DATA = *bytes++;
	}
}

KYMO_NO_INSTRUMENT static void reboot(void)
{
	TEST_DEVICE = 0x7777;
	for (;;) {
	}
}

__attribute__((noinline)) static int leaf(int n)
{
	__asm__ volatile("" : "+r"(n));
	return n + 1;
}

void work(void)
{
	for (int i = 0; i < 100; i++)
		leaf(i);
}

/* What a C library would have: riscv_jumps.S. */
typedef uint32_t jmp_buf[14];
int setjmp(jmp_buf buffer) __attribute__((returns_twice));
void longjmp(jmp_buf buffer, int value);
static jmp_buf back;

__attribute__((noinline)) static int down(int n)
{
	if (n > 0)
		return down(n - 1) + 1;
	longjmp(back, 1);
	return 0;
}

int jump(void)
{
	if (setjmp(back) == 0)
		down(2);
	return leaf(5);
}

/* The timer's next interrupt, a period from now. */
KYMO_NO_INSTRUMENT static void set_timer(void)
{
	uint32_t low = MTIME(0), next = low + MTIME_HZ / TICK_HZ;
	MTIMECMP(1) = 0xFFFFFFFF;
	MTIMECMP(0) = next;
	MTIMECMP(1) = MTIME(1) + (next < low);
}

__attribute__((interrupt("machine"), aligned(4))) void trap(void)
{
	kymo_isr_enter(TIMER_IRQ);
	kymo_tick();
	leaf(1);
	set_timer();
	kymo_isr_exit(TIMER_IRQ);
}

static uint64_t buffer[8192 / 8], names[1024 / 8];
static kymo_slot_t slots[16];
static kymo_frame_t frames[2 * 8];
static kymo_retained_t retained __attribute__((section(".noinit")));
extern const char text_start[];

const kymo_config_t kymo_config = {
	.version = KYMO_CONFIG_VERSION,
	.buffer = buffer,
	.buffer_size = sizeof buffer,
	.packet_size = 512,
	.metadata = names,
	.metadata_size = sizeof names,
	.slots = slots,
	.slot_count = 16,
	.frames = frames,
	.shadow_stacks = 2,
	.shadow_depth = 8,
	.trigger = work,
	.stopper = work,
	.retained = &retained,
	.text_base = text_start,
	.clock_hz = 1000000000, /* as QEMU counts, with -icount */
	.tick_hz = TICK_HZ,
	.send = send,
	.reboot = reboot,
};

extern uint64_t data_start[], data_end[], data_image[], bss_start[], bss_end[];

KYMO_NO_INSTRUMENT void run(void)
{
	for (uint64_t *to = data_start, *from = data_image; to < data_end;)
		*to++ = *from++;
	for (volatile uint64_t *to = bss_start; to < bss_end;)
		*to++ = 0;
	__asm__ volatile("csrw mtvec, %0" : : "r"(trap));
	set_timer();
	__asm__ volatile("csrw mie, %0" : : "r"(1 << TIMER_IRQ));
	__asm__ volatile("csrsi mstatus, 8");
	kymo_isr_name(TIMER_IRQ, "timer");
	for (;;) {
		if (UART_STATE & 1) {
			uint8_t byte = UART_DATA;
			kymo_link_receive(byte);
			if (byte == '!')
				work();
			if (byte == '^')
				jump();
			kymo_link_poll();
		}
	}
}

__asm__(".pushsection .start, \"ax\"\n"
	".globl start\n"
	"start: la sp, stack_top\n"
	"j run\n"
	".popsection");
