/* Writes memory into a file on the machine that runs the emulator: semihosting. */
#ifndef FILE_H
#define FILE_H

#include <stddef.h>
#include <stdint.h>

KYMO_NO_INSTRUMENT static inline uint32_t semihosting(uint32_t operation, const void *arguments)
{
	register uint32_t r0 __asm__("r0") = operation;
	register const void *r1 __asm__("r1") = arguments;

	__asm__ volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
	return r0;
}

KYMO_NO_INSTRUMENT static inline void write_file(const char *name, const void *bytes, size_t count)
{
	size_t length = 0;

	while (name[length] != 0)
		length++;
	/* SYS_OPEN for writing, binary; SYS_WRITE; SYS_CLOSE. */
	uint32_t open[3] = { (uint32_t)name, 5, length };
	uint32_t handle = semihosting(1, open);
	uint32_t write[3] = { handle, (uint32_t)bytes, count };
	semihosting(5, write);
	semihosting(2, &handle);
}

#endif
