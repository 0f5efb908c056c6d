/* RTEMS's shapes: see rtems.c. */
#ifndef RTEMS_SHAPES_H
#define RTEMS_SHAPES_H

#include <stdint.h>

/* 2018, one processor. */
void rtems_up_produce(uint32_t event, unsigned long data);

/* Several processors. */
void rtems_smp_produce(uint32_t event, unsigned long data);

/* The bytes of an event. */
extern const uint32_t rtems_item_bytes;

#endif
