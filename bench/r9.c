/* Items whose place is in a register. */
#define KYMO_R9_COUNTER 0x40028018
#define KYMO_R9_ITEMS 64
#include "kymo_r9.h"
#include "rows.h"

KYMO_R9_RING;

int main(void);

__attribute__((noinline)) static void produce(uint32_t id, uint32_t data)
{
	kymo_r9_produce(id, data);
}

ROW(produce_r9)
{
	for (unsigned i = 1; i <= TIMES; i++) {
		produce(i, i);
		STAY;
	}
}

int main(void)
{
	machine_start();
	kymo_r9_start();
	row_produce_r9();
	rows_say("produce_r9", TIMES * sizeof(kymo_r9_item_t), TIMES);
	machine_stop();
	return 0;
}
