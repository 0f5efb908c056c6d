/* Processor-specific code of the rows: reads a counter, masks interrupts, sends a character, ends the program. All of
 * it is inlined, so that the counts are those of a port of the same code. */
#ifndef MACHINE_H
#define MACHINE_H

#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))

#if defined(__arm__)

/* FPGAIO's counter on QEMU's mps2 boards, which counts up at 25 MHz. (DWT_CYCCNT does not count there. Reading this
 * counter takes the same instructions: an address is loaded and a register read.) */
#define MACHINE_COUNTER ((const uint32_t *)0x40028018)

INLINE void machine_start(void)
{
	*(volatile uint32_t *)0x40004010 = 16; /* the divider of the UART */
	*(volatile uint32_t *)0x40004008 = 1; /* enable the transmitter */
}

INLINE uint32_t machine_counter(void)
{
	return *(const volatile uint32_t *)MACHINE_COUNTER;
}

INLINE uint32_t machine_mask(void)
{
	uint32_t was;
	__asm__ volatile("mrs %0, PRIMASK\n\tcpsid i" : "=r"(was)::"memory");
	return was;
}

INLINE void machine_unmask(uint32_t was)
{
	__asm__ volatile("msr PRIMASK, %0" ::"r"(was) : "memory");
}

/* The first UART, which never waits in QEMU. */
INLINE void machine_put(char c)
{
	*(volatile uint32_t *)0x40004000 = (uint8_t)c;
}

/* Semihosting: SYS_EXIT, ADP_Stopped_ApplicationExit. */
INLINE void machine_stop(void)
{
	register uint32_t operation __asm__("r0") = 0x18;
	register uint32_t reason __asm__("r1") = 0x20026;
	__asm__ volatile("bkpt 0xAB" ::"r"(operation), "r"(reason) : "memory");
}

#elif defined(__riscv)

INLINE void machine_start(void)
{
}

INLINE uint32_t machine_counter(void)
{
	uint32_t now;
	__asm__ volatile("csrr %0, mcycle" : "=r"(now));
	return now;
}

INLINE uint32_t machine_mask(void)
{
	uint32_t was;
	__asm__ volatile("csrrci %0, mstatus, 8" : "=r"(was)::"memory");
	return was & 8;
}

INLINE void machine_unmask(uint32_t was)
{
	__asm__ volatile("csrs mstatus, %0" ::"r"(was) : "memory");
}

INLINE void machine_put(char c)
{
	*(volatile uint8_t *)0x10000000 = (uint8_t)c;
}

/* Test finisher of QEMU's virt board. */
INLINE void machine_stop(void)
{
	*(volatile uint32_t *)0x100000 = 0x5555;
}

#elif defined(__aarch64__)

INLINE void machine_start(void)
{
}

INLINE uint32_t machine_counter(void)
{
	uint64_t now;
	__asm__ volatile("mrs %0, CNTVCT_EL0" : "=r"(now));
	return (uint32_t)now;
}

INLINE uint64_t machine_mask(void)
{
	uint64_t was;
	__asm__ volatile("mrs %0, DAIF\n\tmsr DAIFSet, #2" : "=r"(was)::"memory");
	return was;
}

INLINE void machine_unmask(uint64_t was)
{
	__asm__ volatile("msr DAIF, %0" ::"r"(was) : "memory");
}

INLINE void machine_put(char c)
{
	*(volatile uint32_t *)0x9000000 = (uint8_t)c;
}

/* PSCI: SYSTEM_OFF. */
INLINE void machine_stop(void)
{
	register uint64_t function __asm__("x0") = 0x84000008;
	__asm__ volatile("hvc #0" ::"r"(function) : "memory");
}

#elif defined(__x86_64__)

#include <stdio.h>
#include <stdlib.h>

INLINE void machine_start(void)
{
}

INLINE uint32_t machine_counter(void)
{
	return (uint32_t)__builtin_ia32_rdtsc();
}

/* A Linux program masks no interrupts. */
INLINE uint32_t machine_mask(void)
{
	return 0;
}

INLINE void machine_unmask(uint32_t was)
{
	(void)was;
}

INLINE void machine_put(char c)
{
	putchar(c);
}

INLINE void machine_stop(void)
{
	exit(0);
}

#else
#error "which processor?"
#endif

#endif
