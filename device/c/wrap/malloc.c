/* Records malloc, calloc, realloc, free, aligned_alloc and posix_memalign: sizes, results, callers.
 *
 * Compile this file with the program and link with
 *     -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free
 *     -Wl,--wrap=aligned_alloc,--wrap=posix_memalign
 * or those of the options that you need. If the C library has no aligned_alloc or posix_memalign, compile with
 * -DKYMO_WRAP_NO_ALIGNED. The file is not part of libkymo.a, so that programs that wrap nothing contain none of it.
 *
 * The functions record items, as RTEMS does (kymo_items.h): an entry with the caller and the arguments, an exit with
 * the caller and the result. The recorder never allocates, so there is no recursion.
 */
#include <kymo_items.h>

#define KYMO_WRAP KYMO_NO_INSTRUMENT

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *pointer, size_t size);
void __real_free(void *pointer);
void *__real_aligned_alloc(size_t alignment, size_t size);
int __real_posix_memalign(void **pointer, size_t alignment, size_t size);

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *pointer, size_t size);
void __wrap_free(void *pointer);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
int __wrap_posix_memalign(void **pointer, size_t alignment, size_t size);

KYMO_WRAP void *__wrap_malloc(size_t size)
{
	kymo_entry_args(KYMO_ITEM_MALLOC_ENTRY, size);
	void *result = __real_malloc(size);
	kymo_exit_args(KYMO_ITEM_MALLOC_EXIT, (uintptr_t)result);
	return result;
}

KYMO_WRAP void *__wrap_calloc(size_t count, size_t size)
{
	kymo_entry_args(KYMO_ITEM_CALLOC_ENTRY, count, size);
	void *result = __real_calloc(count, size);
	kymo_exit_args(KYMO_ITEM_CALLOC_EXIT, (uintptr_t)result);
	return result;
}

KYMO_WRAP void *__wrap_realloc(void *pointer, size_t size)
{
	kymo_entry_args(KYMO_ITEM_REALLOC_ENTRY, (uintptr_t)pointer, size);
	void *result = __real_realloc(pointer, size);
	kymo_exit_args(KYMO_ITEM_REALLOC_EXIT, (uintptr_t)result);
	return result;
}

KYMO_WRAP void __wrap_free(void *pointer)
{
	kymo_entry_args(KYMO_ITEM_FREE_ENTRY, (uintptr_t)pointer);
	__real_free(pointer);
	kymo_exit(KYMO_ITEM_FREE_EXIT);
}

#ifndef KYMO_WRAP_NO_ALIGNED
KYMO_WRAP void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
	kymo_entry_args(KYMO_ITEM_ALIGNED_ALLOC_ENTRY, alignment, size);
	void *result = __real_aligned_alloc(alignment, size);
	kymo_exit_args(KYMO_ITEM_ALIGNED_ALLOC_EXIT, (uintptr_t)result);
	return result;
}

/* The results are the error number, and the address of the memory. */
KYMO_WRAP int __wrap_posix_memalign(void **pointer, size_t alignment, size_t size)
{
	kymo_entry_args(KYMO_ITEM_POSIX_MEMALIGN_ENTRY, (uintptr_t)pointer, alignment, size);
	int error = __real_posix_memalign(pointer, alignment, size);
	uintptr_t result = error == 0 ? (uintptr_t)*pointer : 0;
	kymo_exit_args(KYMO_ITEM_POSIX_MEMALIGN_EXIT, (uintptr_t)error, result);
	return error;
}
#endif
