/* A sensor is sampled by a timer, filtered by one thread and reported by another. */
#if __has_include(<zephyr/kernel.h>)
#include <zephyr/kernel.h>
#else
#include <kernel.h>
#endif

#include "kymo.h"
#include "kymo_zephyr.h"

K_MSGQ_DEFINE(samples, sizeof(uint32_t), 16, 4);
K_MSGQ_DEFINE(averages, sizeof(uint32_t), 4, 4);

static uint32_t noise = 1;

static uint32_t sample(void)
{
	noise = noise * 1103515245u + 12345u;
	return noise >> 20;
}

static void sampled(struct k_timer *timer)
{
	uint32_t value = sample();

	ARG_UNUSED(timer);
	k_msgq_put(&samples, &value, K_NO_WAIT);
}

K_TIMER_DEFINE(sampler, sampled, NULL);

static uint32_t median(uint32_t *values, int count)
{
	for (int i = 1; i < count; i++) {
		for (int k = i; k > 0 && values[k - 1] > values[k]; k--) {
			uint32_t swapped = values[k];

			values[k] = values[k - 1];
			values[k - 1] = swapped;
		}
	}
	return values[count / 2];
}

static uint32_t next_average(void)
{
	uint32_t values[8];

	for (int i = 0; i < 8; i++) {
		k_msgq_get(&samples, &values[i], K_FOREVER);
	}
	return median(values, 8);
}

static void filter(void *first, void *second, void *third)
{
	k_timer_start(&sampler, K_MSEC(5), K_MSEC(5));
	for (;;) {
		uint32_t average = next_average();

		k_msgq_put(&averages, &average, K_FOREVER);
	}
}

static void print(uint32_t average)
{
	kymo_named_marker("average", average);
	printk("average %u\n", average);
}

static void report(void *first, void *second, void *third)
{
	for (;;) {
		uint32_t average;

		k_msgq_get(&averages, &average, K_FOREVER);
		print(average);
	}
}

K_THREAD_DEFINE(filtering, 1024, filter, NULL, NULL, NULL, 5, 0, 0);
K_THREAD_DEFINE(reporting, 1024, report, NULL, NULL, NULL, 7, 0, 0);

#ifdef CONFIG_KYMO_CLOCK_APPLICATION
/* Timer 1 of the board's dual timer, of 32 bits, which counts down from 2^32 - 1 at 25 MHz. */
#define DUAL_TIMER ((volatile uint32_t *)0x40002000)

KYMO_NO_INSTRUMENT uint32_t kymo_zephyr_clock(void)
{
	enum { LOAD, VALUE, CONTROL };

	if (DUAL_TIMER[CONTROL] != 0xC2) {
		DUAL_TIMER[LOAD] = UINT32_MAX;
		DUAL_TIMER[CONTROL] = 0xC2; /* enabled, periodic, 32 bits */
	}
	return ~DUAL_TIMER[VALUE];
}
#endif
