/* The part of Zephyr's interface that Kymo's module uses: enough to compile it, with the kernel's own signatures. */
#ifndef STUB_KERNEL_H
#define STUB_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IS_ENABLED(option_) STUB_ENABLED(option_)
#define STUB_ENABLED(value_) STUB_TAKE(STUB_COMMA_##value_ 1, 0)
#define STUB_TAKE(first_, second_, ...) STUB_SECOND(first_, second_, 0)
#define STUB_SECOND(first_, second_, ...) second_
#define STUB_COMMA_1 0,
#define ARG_UNUSED(value_) (void)(value_)

struct k_thread;
struct k_sem {
	unsigned int count;
};
struct k_timer {
	void (*expired)(struct k_timer *timer);
};
typedef struct {
	int64_t ticks;
} k_timeout_t;
typedef struct k_thread *k_tid_t;

#define K_FOREVER ((k_timeout_t){-1})
#define K_MSEC(ms_) ((k_timeout_t){(ms_)})
#define K_SEM_DEFINE(name_, count_, limit_) struct k_sem name_ = {(count_)}
#define K_TIMER_DEFINE(name_, expired_, stopped_) struct k_timer name_ = {(expired_)}
#define K_THREAD_DEFINE(name_, stack_, entry_, first_, second_, third_, priority_, options_, delay_)                   \
	void (*const stub_entry_##name_)(void *, void *, void *) = (entry_)

k_tid_t k_current_get(void);
const char *k_thread_name_get(k_tid_t thread);
void k_thread_foreach(void (*what)(const struct k_thread *thread, void *data), void *data);
int k_sem_take(struct k_sem *sem, k_timeout_t timeout);
void k_sem_give(struct k_sem *sem);
void k_timer_start(struct k_timer *timer, k_timeout_t duration, k_timeout_t period);
uint32_t k_cycle_get_32(void);

#endif
