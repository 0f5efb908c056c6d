/* The scheduler: see scheduler.h. Not instrumented, because a function that begins in one thread
 * and ends in another would be no call of either. */
#include "scheduler.h"

#include "board.h"

/* What the processor itself stacks when an exception begins (Armv7-M, B1.5.6). */
struct exception_frame {
	uint32_t r0, r1, r2, r3, r12, lr, pc, xpsr;
};

/* "Return to thread mode, use the process stack." */
#define EXCEPTION_RETURN 0xFFFFFFFDu
#define XPSR_THUMB 0x01000000u

/* r4 to r11 and the exception's return value, which scheduler_switch() stacks. */
#define SAVED_WORDS 9

static struct thread idle = {.name = "idle", .next = &idle};
static struct thread *current = &idle;
static volatile uint32_t ticks;
static uint32_t slice;
static uint32_t locks;
static volatile bool switch_wanted;

static void request_switch(void)
{
	SCB_ICSR = SCB_ICSR_PEND_SWITCH;
	__asm__ volatile("dsb\n\tisb" ::: "memory");
}

void scheduler_add(struct thread *thread, const char *name, void (*entry)(void *), void *argument,
		   uint64_t *stack, size_t stack_bytes)
{
	uint32_t *top = (uint32_t *)(stack + stack_bytes / sizeof *stack);
	struct exception_frame *frame = (struct exception_frame *)top - 1;
	*frame = (struct exception_frame){
		.r0 = (uint32_t)argument,
		.pc = (uint32_t)entry & ~1u,
		.xpsr = XPSR_THUMB,
	};
	uint32_t *saved = (uint32_t *)frame - SAVED_WORDS;
	saved[SAVED_WORDS - 1] = EXCEPTION_RETURN;
	thread->stack_pointer = saved;
	thread->name = name;
	_REENT_INIT_PTR(&thread->reent);
	thread->next = idle.next;
	idle.next = thread;
}

void scheduler_start(void)
{
	_REENT_INIT_PTR(&idle.reent);
	_impure_ptr = &idle.reent;
	/* This thread goes on with the stack that it has, as process stack; interrupts get the
	 * top of a fresh one. */
	static uint64_t interrupt_stack[1024];
	__asm__ volatile("mrs r0, msp\n\t"
			 "msr psp, r0\n\t"
			 "movs r0, #2\n\t"
			 "msr control, r0\n\t"
			 "isb\n\t"
			 "msr msp, %0\n\t"
			 :
			 : "r"(interrupt_stack + 1024)
			 : "r0", "memory");
	SCB_PRIORITY(EXCEPTION_SWITCH) = 0xE0;
	SCB_PRIORITY(EXCEPTION_SYSTICK) = 0x80;
	SYSTICK_RELOAD = CLOCK_HZ / TICK_HZ - 1;
	SYSTICK_VALUE = 0;
	SYSTICK_CONTROL = SYSTICK_CONTROL_ON;
	request_switch(); /* now, not at the first tick */
}

struct thread *scheduler_current(void)
{
	return current;
}

/* Whether a thread could run. The idle thread always can, but only does when no other can. */
static bool ready(struct thread *thread)
{
	if (thread->sleeping && (int32_t)(ticks - thread->wake_at) >= 0)
		thread->sleeping = false;
	return !thread->sleeping && !thread->waiting;
}

static struct thread *choose(void)
{
	for (struct thread *thread = current->next; thread != current; thread = thread->next)
		if (thread != &idle && ready(thread))
			return thread;
	return current != &idle && ready(current) ? current : &idle;
}

/* Takes the stack pointer of the thread that ran, returns that of the one to run. */
__attribute__((used)) static uint32_t *switch_threads(uint32_t *stack_pointer)
{
	if (locks > 0) {
		switch_wanted = true;
		return stack_pointer;
	}
	slice = 0;
	struct thread *next = choose();
	if (next != current) {
		scheduler_switched_out();
		current->stack_pointer = stack_pointer;
		current = next;
		_impure_ptr = &next->reent;
		scheduler_switched_in();
		stack_pointer = next->stack_pointer;
	}
	return stack_pointer;
}

__attribute__((naked)) void scheduler_switch(void)
{
	__asm__ volatile("mrs r0, psp\n\t"
			 "stmdb r0!, {r4-r11, lr}\n\t"
			 "bl switch_threads\n\t"
			 "ldmia r0!, {r4-r11, lr}\n\t"
			 "msr psp, r0\n\t"
			 "bx lr\n\t");
}

void scheduler_tick(void)
{
	ticks = ticks + 1;
	if (++slice >= SLICE_TICKS || current == &idle)
		request_switch();
}

void scheduler_sleep(uint32_t count)
{
	current->wake_at = ticks + count;
	current->sleeping = true;
	request_switch();
}

void scheduler_wait(void)
{
	__asm__ volatile("cpsid i" ::: "memory");
	if (current->wake_kept)
		current->wake_kept = false;
	else
		current->waiting = true;
	__asm__ volatile("cpsie i" ::: "memory");
	if (current->waiting)
		request_switch();
}

void scheduler_wake(struct thread *thread)
{
	/* From an interrupt handler, which a thread's scheduler_wait() does not cut in two. */
	if (thread->waiting)
		thread->waiting = false;
	else
		thread->wake_kept = true;
	request_switch();
}

void scheduler_lock(void)
{
	locks++;
	__asm__ volatile("" ::: "memory");
}

void scheduler_unlock(void)
{
	__asm__ volatile("" ::: "memory");
	if (--locks == 0 && switch_wanted) {
		switch_wanted = false;
		request_switch();
	}
}
