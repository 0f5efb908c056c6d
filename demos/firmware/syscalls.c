/* Operating system functions for newlib. Not instrumented. */
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/times.h>
#include <unistd.h>

#include "scheduler.h"
#include "uart.h"

extern char heap_start[], heap_end[];

/* Memory for malloc. */
void *_sbrk(ptrdiff_t increment)
{
	static char *end = heap_start;
	if (increment > heap_end - end || increment < heap_start - end) {
		errno = ENOMEM;
		return (void *)-1;
	}
	char *old = end;
	end += increment;
	return old;
}

/* Lock of the heap, which all threads share: disables preemption, because malloc is short. */
void __malloc_lock(struct _reent *reent)
{
	(void)reent;
	scheduler_lock();
}

void __malloc_unlock(struct _reent *reent)
{
	(void)reent;
	scheduler_unlock();
}

/* Standard output and standard error are the UART. */
int _write(int file, const char *bytes, size_t count)
{
	if (file != STDOUT_FILENO && file != STDERR_FILENO) {
		errno = EBADF;
		return -1;
	}
	uart_send((const uint8_t *)bytes, count);
	return (int)count;
}

/* A terminal, so that newlib keeps lines together and sends each at its end. */
int _fstat(int file, struct stat *status)
{
	(void)file;
	status->st_mode = S_IFCHR;
	return 0;
}

int _isatty(int file)
{
	(void)file;
	return 1;
}

/* There are no files and no processes. */
int _read(int file, char *bytes, size_t count)
{
	(void)file, (void)bytes, (void)count;
	return 0;
}

int _open(const char *path, int flags, int mode)
{
	(void)path, (void)flags, (void)mode;
	errno = ENOENT;
	return -1;
}

int _close(int file)
{
	(void)file;
	errno = EBADF;
	return -1;
}

off_t _lseek(int file, off_t offset, int whence)
{
	(void)file, (void)offset, (void)whence;
	errno = ESPIPE;
	return -1;
}

/* There is no calendar; Lua takes the time for random numbers, which had better repeat. */
int _gettimeofday(struct timeval *now, void *zone)
{
	(void)zone;
	*now = (struct timeval){0};
	return 0;
}

clock_t _times(struct tms *times)
{
	(void)times;
	errno = ENOSYS;
	return (clock_t)-1;
}

int _getpid(void)
{
	return 1;
}

int _kill(int process, int signal)
{
	(void)process, (void)signal;
	errno = EINVAL;
	return -1;
}

void _exit(int status)
{
	(void)status;
	for (;;)
		;
}
