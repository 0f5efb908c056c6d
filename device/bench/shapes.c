/* Rows without Kymo: an empty hook, and events of RTEMS's shapes. */
#include "machine.h"
#include "rows.h"
#include "rtems.h"

void empty_hook(const void *function, const void *call_site);
int main(void);

ROW(empty)
{
	for (int i = 0; i < TIMES; i++) {
		empty_hook((const void *)main, (const void *)main);
		STAY;
	}
}

ROW(rtems_up)
{
	for (unsigned i = 0; i < TIMES; i++) {
		rtems_up_produce(i, i);
		STAY;
	}
}

#if !defined(__ARM_ARCH_6M__)
ROW(rtems_smp)
{
	for (unsigned i = 0; i < TIMES; i++) {
		rtems_smp_produce(i, i);
		STAY;
	}
}
#endif

int main(void)
{
	machine_start();
	row_empty();
	rtems_up_produce(0, 0);
	row_rtems_up();
#if !defined(__ARM_ARCH_6M__)
	row_rtems_smp();
#endif
	rows_say("rtems_up", TIMES * rtems_item_bytes, TIMES);
	rows_say("rtems_smp", TIMES * rtems_item_bytes, TIMES);
	machine_stop();
	return 0;
}
