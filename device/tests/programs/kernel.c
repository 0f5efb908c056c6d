/* Calls every hook of kymo_hooks.h once, for any back end. */
#include "kymo_hooks.h"

/* Is not to be called where no back end wants what it counts. */
int evaluated;

static uintptr_t object(uintptr_t number)
{
	evaluated++;
	return number;
}

void kernel(void)
{
	KYMO_HOOK_THREAD_CREATED(object(8));
	KYMO_HOOK_THREAD_NAME(8, 3, "worker");
	KYMO_HOOK_THREAD_READY(object(8));
	KYMO_HOOK_THREAD_SWITCHED_IN(8);
	KYMO_HOOK_ISR_ENTER(15);
	KYMO_HOOK_ISR_EXIT(15);
	KYMO_HOOK_ISR_ENTER(16);
	KYMO_HOOK_ISR_EXIT_TO_SCHEDULER(16);
	KYMO_HOOK_TIMER_ENTER(12);
	KYMO_HOOK_TIMER_EXIT(12);
	KYMO_HOOK_MEMORY_ALLOC(1, 64, 24);
	KYMO_HOOK_MEMORY_FREE(1, 64);
	KYMO_HOOK_INTERRUPTS_MASKED();
	KYMO_HOOK_INTERRUPTS_UNMASKED();
	KYMO_HOOK_LOCK_WAIT(1);
	KYMO_HOOK_LOCK_TAKEN(1);
	KYMO_HOOK_LOCK_RELEASED(1);
	KYMO_HOOK_SEMAPHORE_INIT(object(2), 20);
	KYMO_HOOK_SEMAPHORE_TAKE(2, 21);
	KYMO_HOOK_SEMAPHORE_TAKEN(2, 22);
	KYMO_HOOK_SEMAPHORE_GIVE(2);
	KYMO_HOOK_MUTEX_INIT(3);
	KYMO_HOOK_MUTEX_LOCK(3, 31);
	KYMO_HOOK_MUTEX_LOCKED(3, 32);
	KYMO_HOOK_MUTEX_UNLOCK(3);
	KYMO_HOOK_QUEUE_INIT(4, 40);
	KYMO_HOOK_QUEUE_PUT(4, 41);
	KYMO_HOOK_QUEUE_PUT_DONE(4, 42);
	KYMO_HOOK_QUEUE_GET(4, 43);
	KYMO_HOOK_QUEUE_GOT(4, 44);
	KYMO_HOOK_TIMER_START(5, 50);
	KYMO_HOOK_TIMER_STOP(5);
	KYMO_HOOK_SYSCALL_ENTER(6);
	KYMO_HOOK_SYSCALL_EXIT(6, 60);
	KYMO_HOOK_PACKET_SEND(7, 70);
	KYMO_HOOK_PACKET_RECEIVE(7, 71);
	KYMO_HOOK_USER(8, 80);
	KYMO_HOOK_THREAD_BLOCKED(8, 2);
	KYMO_HOOK_THREAD_SWITCHED_OUT(8);
	KYMO_HOOK_THREAD_ENDED(8);
	KYMO_HOOK_IDLE();
}

#if defined(KYMO_HOOKS_SYSVIEW)
#include <stdio.h>

static FILE *file;

static uint32_t clock_of_mine(void)
{
	static uint32_t ticks;
	return ticks++;
}

static bool write_to_file(const uint8_t *bytes, size_t count)
{
	return fwrite(bytes, 1, count, file) == count;
}

static const kymo_sysview_module_t modules[] = {KYMO_HOOKS_MODULE};

const kymo_sysview_config_t kymo_sysview_config = {
	.clock_hz = 1000000,
	.cpu_hz = 1000000,
	.modules = modules,
	.module_count = 1,
	.clock = clock_of_mine,
	.write = write_to_file,
};

int main(int count, char **words)
{
	file = count == 2 ? fopen(words[1], "wb") : NULL;
	if (file == NULL || !kymo_sysview_start())
		return 1;
	kernel();
	kymo_sysview_stop();
	return fclose(file);
}
#elif defined(KYMO_HOOKS_KYMO)
int main(void)
{
	kymo_on();
	kernel();
	kymo_off();
	return evaluated == 3 ? 0 : 1;
}
#elif defined(KYMO_HOOKS_FILE)
int main(void)
{
	kernel();
	return evaluated == 1 ? 0 : 1;
}
#endif
