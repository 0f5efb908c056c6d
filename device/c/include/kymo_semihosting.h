/* Transport to a file on the machine of the debugger, or of QEMU (-semihosting). For Arm's A and M profiles and RISC-V.
 *
 *     static kymo_transport_t file = {.write = kymo_semihosting_write};
 *
 *     file.context = kymo_semihosting_open("dump.txt", 8);
 *
 * Each write stops the processor until the debugger has executed it (milliseconds on a board); without a debugger it
 * faults or hangs. Meant for dumps and for QEMU. ":tt" is the debugger's console. */
#ifndef KYMO_SEMIHOSTING_H
#define KYMO_SEMIHOSTING_H

#include "kymo_transport.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KYMO_SEMIHOSTING_OPEN = 1, KYMO_SEMIHOSTING_CLOSE = 2, KYMO_SEMIHOSTING_WRITE = 5 };

/* Requests `operation` of the debugger, with these arguments. (Tests replace it.) */
KYMO_TRANSPORT_FUNCTION intptr_t kymo_semihosting(uintptr_t operation, const uintptr_t *numbers)
{
#if defined(KYMO_SEMIHOSTING_REQUEST)
	return KYMO_SEMIHOSTING_REQUEST(operation, numbers);
#elif defined(__riscv)
	register uintptr_t a0 __asm__("a0") = operation;
	register const uintptr_t *a1 __asm__("a1") = numbers;
	/* Semihosting requires these three uncompressed instructions, on one page. */
	__asm__ volatile(".option push\n\t.option norvc\n\t.balign 16\n\tslli x0, x0, 0x1f\n\tebreak\n\tsrai x0, x0, 7\n\t.option pop"
			 : "+r"(a0)
			 : "r"(a1)
			 : "memory");
	return (intptr_t)a0;
#elif defined(__aarch64__)
	register uintptr_t x0 __asm__("x0") = operation;
	register const uintptr_t *x1 __asm__("x1") = numbers;
	__asm__ volatile("hlt #0xF000" : "+r"(x0) : "r"(x1) : "memory");
	return (intptr_t)x0;
#else
	register uintptr_t r0 __asm__("r0") = operation;
	register const uintptr_t *r1 __asm__("r1") = numbers;
#if defined(__ARM_ARCH_PROFILE) && __ARM_ARCH_PROFILE == 'M'
	__asm__ volatile("bkpt #0xAB" : "+r"(r0) : "r"(r1) : "memory");
#elif defined(__thumb__)
	__asm__ volatile("svc #0xAB" : "+r"(r0) : "r"(r1) : "lr", "memory");
#else
	__asm__ volatile("svc #0x123456" : "+r"(r0) : "r"(r1) : "lr", "memory");
#endif
	return (intptr_t)r0;
#endif
}

/* Creates or truncates a file whose name has `length` bytes. Returns the `context` of a transport. (If the file cannot
 * be opened, the transport accepts nothing.) */
KYMO_TRANSPORT_FUNCTION void *kymo_semihosting_open(const char *path, size_t length)
{
	const uintptr_t numbers[] = {(uintptr_t)path, 5 /* "wb" */, length};
	return (void *)kymo_semihosting(KYMO_SEMIHOSTING_OPEN, numbers);
}

KYMO_TRANSPORT_FUNCTION void kymo_semihosting_close(void *context)
{
	const uintptr_t numbers[] = {(uintptr_t)context};
	kymo_semihosting(KYMO_SEMIHOSTING_CLOSE, numbers);
}

KYMO_TRANSPORT_FUNCTION int32_t kymo_semihosting_write(void *context, const uint8_t *bytes, uint32_t count)
{
	if ((intptr_t)context < 0)
		return KYMO_TRANSPORT_GONE;
	const uintptr_t numbers[] = {(uintptr_t)context, (uintptr_t)bytes, count};
	/* The operation returns the number of bytes that were not written. */
	intptr_t left = kymo_semihosting(KYMO_SEMIHOSTING_WRITE, numbers);
	if (left < 0 || (uintptr_t)left >= count)
		return count == 0 ? 0 : KYMO_TRANSPORT_GONE;
	return (int32_t)(count - (uint32_t)left);
}

#ifdef __cplusplus
}
#endif

#endif
