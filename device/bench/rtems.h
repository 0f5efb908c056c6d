/* Events of RTEMS's shapes: see rtems.c. */
#ifndef RTEMS_SHAPES_H
#define RTEMS_SHAPES_H

#include <stdint.h>

/* The shape of 2018, for one processor. */
void rtems_up_produce(uint32_t event, unsigned long data);

/* The shape for several processors. */
void rtems_smp_produce(uint32_t event, unsigned long data);

/* Size of an event in bytes. */
extern const uint32_t rtems_item_bytes;

#endif
