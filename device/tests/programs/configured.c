/* Programs with correct and with wrong configurations, by KYMO_CONFIG or by hand, and what kymo_status() reports. */
#include <stdio.h>

#include "kymo.h"

#ifdef BY_HAND
const kymo_config_t kymo_config = {
	.version = KYMO_CONFIG_VERSION,
	.packet_size = 500,
};
#else
KYMO_TABLE(64, STACKS, 32);
KYMO_CONFIG(KYMO_START_ON, PACKETS, PACKET_SIZE, 1024, KYMO_WITH_TABLE, .clock_hz = 64000000);
#endif

#if defined(__linux__)
int main(void)
{
	uintptr_t value = 0;
	const char *status = kymo_status(&value);

	printf("%s %u\n", status != NULL ? status : "good", (unsigned)value);
	return 0;
}
#endif
