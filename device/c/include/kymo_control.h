/* Control of the recorder by plain memory writes: a debugger reads and drives recording without the firmware's link.
 *
 *     KYMO_CONTROL;                      once, outside of functions
 *
 *     void tick_handler(void)
 *     {
 *             kymo_tick();
 *             kymo_control_poll();
 *     }
 *
 * The structure is at the ELF symbol kymo_control. To change something, write the fields of `wanted`, then the bits of
 * what is to change to `request`. The next poll applies that, sets `request` to 0, and stores in `refused` the bits that it
 * could not apply. `now` and the counts behind it are what holds since the last poll. With GDB:
 *
 *     set var kymo_control.wanted.trigger = (unsigned long)&parse
 *     set var kymo_control.wanted.recording = 0
 *     set var kymo_control.request = 8 | 2
 *     continue
 *
 * Settings of duration mode are in kymo_duration, conditions of trigger and stopper in kymo_conditions (kymo.h). With
 * several processors (AArch64) one structure is for all; any of them may poll. Not on Linux. A program without this structure contains none of its code. */
#ifndef KYMO_CONTROL_H
#define KYMO_CONTROL_H

#include "kymo.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KYMO_CONTROL_MAGIC 0x4B794374u
#define KYMO_CONTROL_VERSION 1u

/* kymo_control.request and kymo_control.refused */
#define KYMO_CONTROL_ENABLED 1u
#define KYMO_CONTROL_RECORDING 2u
#define KYMO_CONTROL_MODE 4u /* also drops all events; refused while a record is being filled or a host reads */
#define KYMO_CONTROL_TRIGGER 8u
#define KYMO_CONTROL_STOPPER 16u
#define KYMO_CONTROL_ONCE 32u
#define KYMO_CONTROL_CLEAR 64u /* drops all events; refused as a new mode is */

/* mode */
#define KYMO_CONTROL_OVERWRITE 0u /* a full buffer keeps the newest events */
#define KYMO_CONTROL_FIXED 1u     /* ... the oldest */
#define KYMO_CONTROL_STREAM 2u    /* the host takes packets out */

typedef struct kymo_control_values {
	volatile uint32_t enabled;   /* 0: nothing is recorded, whatever the rest says */
	volatile uint32_t recording; /* 0: off, until the trigger is entered */
	volatile uint32_t mode;
	volatile uint32_t once; /* not 0: the trigger turns recording on only once */
	/* Addresses of functions, with or without Thumb's lowest bit; 0: none. They are only compared with those of
	 * the functions that are called: an address at which none begins is taken, and never acts. */
	volatile uintptr_t trigger, stopper;
} kymo_control_values_t;

typedef struct kymo_control {
	uint32_t magic, version, size; /* KYMO_CONTROL_MAGIC, KYMO_CONTROL_VERSION, bytes of this structure */
	volatile uint32_t request;     /* written last; 0 once it is applied */
	volatile uint32_t refused;     /* of the last request */
	volatile uint32_t applied;     /* number of requests so far */
	kymo_control_values_t wanted;
	kymo_control_values_t now;
	/* Packets and bytes recorded since events were cleared, overwritten ones too; events that found no room. */
	volatile uint32_t packets, bytes, lost;
	/* Hooks called from inside a hook; times at which the clock is uncertain. */
	volatile uint32_t hooks_refused, clock_gaps;
	volatile uint32_t setup_error; /* not 0: kymo_status() says what is wrong */
} kymo_control_t;

extern kymo_control_t kymo_control;

#define KYMO_CONTROL                                                                              \
	kymo_control_t kymo_control = {                                                           \
		.magic = KYMO_CONTROL_MAGIC, .version = KYMO_CONTROL_VERSION, .size = sizeof(kymo_control_t)}

/* Applies a request, and stores the state. Callable from any context, one at a time; for one structure. Does nothing while
 * another processor polls, or executes commands of the link: the next poll does. */
void kymo_control_apply(kymo_control_t *control);

KYMO_NO_INSTRUMENT static inline void kymo_control_poll(void)
{
	kymo_control_apply(&kymo_control);
}

#ifdef __cplusplus
}
#endif

#endif
