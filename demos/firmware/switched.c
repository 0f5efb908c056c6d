/* Functions that the scheduler calls at each switch. In a larger scheduler they would keep
 * statistics, or move a stack limit; here they are empty, which is sufficient for Kymo: they are
 * instrumented, and kymo_config.promotions converts their entries to thread switches. In the lean
 * variant, which has no promotions, they record the switch themselves. */
#include "scheduler.h"

#ifdef LEAN
#include "kymo.h"
#endif

__attribute__((noinline)) void scheduler_switched_out(void)
{
	__asm__ volatile("");
#ifdef LEAN
	kymo_switched_out((uintptr_t)scheduler_current());
#endif
}

__attribute__((noinline)) void scheduler_switched_in(void)
{
	__asm__ volatile("");
#ifdef LEAN
	kymo_switched_in((uintptr_t)scheduler_current());
#endif
}
