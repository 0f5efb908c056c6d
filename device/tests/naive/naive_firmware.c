/* The naive recorder on the firmware: one log for all threads and interrupts, because on one
 * processor all events have one order. Interrupts are masked while it and Kymo's hook write an event,
 * so that no event can come between the two. */
#include "naive.h"

#include <stddef.h>

#include "scheduler.h"

void NAIVE_KYMO_ENTER(void *function, void *call_site);
void NAIVE_KYMO_EXIT(void *function, void *call_site);

/* 16 bytes each in the board's 16 MB of further RAM. */
#define CAPACITY (1024u * 1024u)

__attribute__((section(".psram"))) static struct naive_entry entries[CAPACITY];
static uint32_t count;

static uint32_t mask_interrupts(void)
{
	uint32_t before;
	__asm__ volatile("mrs %0, primask\n\tcpsid i" : "=r"(before)::"memory");
	return before;
}

static void restore_interrupts(uint32_t before)
{
	__asm__ volatile("msr primask, %0" ::"r"(before) : "memory");
}

static void log_event(void *function, enum naive_kind kind)
{
	if (count == CAPACITY)
		return;
	uint32_t exception;
	__asm__ volatile("mrs %0, ipsr" : "=r"(exception));
	entries[count] = (struct naive_entry){
		.function = (uintptr_t)function,
		.thread = (uint32_t)scheduler_current(),
		.kind = count == CAPACITY - 1 ? NAIVE_FULL : kind,
		.interrupt = (uint16_t)exception,
	};
	count++;
}

void __cyg_profile_func_enter(void *function, void *call_site)
{
	uint32_t before = mask_interrupts();
	log_event(function, NAIVE_ENTER);
	NAIVE_KYMO_ENTER(function, call_site);
	restore_interrupts(before);
}

void __cyg_profile_func_exit(void *function, void *call_site)
{
	uint32_t before = mask_interrupts();
	log_event(function, NAIVE_EXIT);
	NAIVE_KYMO_EXIT(function, call_site);
	restore_interrupts(before);
}

/* Arm's "Semihosting for AArch32 and AArch64": operations take a block of words. */
#define SYS_OPEN 0x01u
#define SYS_CLOSE 0x02u
#define SYS_WRITE 0x05u
#define MODE_WRITE_BINARY 5u

static uint32_t semihosting(uint32_t operation, const uint32_t *block)
{
	register uint32_t r0 __asm__("r0") = operation;
	register const uint32_t *r1 __asm__("r1") = block;
	__asm__ volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
	return r0;
}

void naive_save(void)
{
	static const char name[] = "naive.log";
	uint32_t before = mask_interrupts();
	uint32_t open[] = {(uint32_t)name, MODE_WRITE_BINARY, sizeof name - 1};
	uint32_t file = semihosting(SYS_OPEN, open);
	uint32_t write[] = {file, (uint32_t)entries, count * sizeof *entries};
	semihosting(SYS_WRITE, write);
	semihosting(SYS_CLOSE, &file);
	restore_interrupts(before);
}
