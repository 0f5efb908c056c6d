/* What Kymo's module for Zephyr shares between its files and with the application. */
#ifndef KYMO_ZEPHYR_H
#define KYMO_ZEPHYR_H

#include <stdint.h>

/* The thread that runs now: the address of its struct k_thread. */
uintptr_t kymo_zephyr_thread(void);

/* Gives the recorder the name of a thread (struct k_thread *), if it has one. */
void kymo_zephyr_name(void *thread);

/* The application's own clock (CONFIG_KYMO_CLOCK_APPLICATION): counts up at CONFIG_KYMO_CLOCK_HZ, and begins again at 0
 * after 2^32. */
uint32_t kymo_zephyr_clock(void);

#endif
