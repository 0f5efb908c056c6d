/* Checks that kymo_rtems.h has the ids of kymo_item_ids.h. */
#include <stdio.h>

#include <kymo_rtems.h>

#define PRINT(name, id)                                                                           \
	printf("%s %d\n", #name, KYMO_ITEM_##name);                                               \
	_Static_assert((int)KYMO_ITEM_##name == (int)RTEMS_RECORD_##name, #name);

_Static_assert(KYMO_ITEM_TIME == 511, "as in the recorder");
_Static_assert(KYMO_ITEM_USER(511) == KYMO_ITEM_LAST, "512 of them");

int main(void)
{
	KYMO_ITEM_IDS(PRINT)
	printf("ring %zu\ncursor %zu\ntimed %zu\ndrained %zu\nitem %zu\n", sizeof(kymo_ring_t),
	       sizeof(kymo_items_cursor_t), sizeof(kymo_timed_item_t), sizeof(kymo_drained_t),
	       sizeof(kymo_item_t));
	return 0;
}
