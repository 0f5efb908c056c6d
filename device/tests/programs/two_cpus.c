/* Does not compile for a 32-bit processor, whose library is for one. */
#include "kymo.h"

const kymo_config_t kymo_config = {
	.version = KYMO_CONFIG_VERSION,
	.cpu_count = 2,
};
