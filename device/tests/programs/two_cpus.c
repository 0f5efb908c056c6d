/* Must not compile for a 32-bit processor, whose library supports one CPU. */
#include "kymo.h"

const kymo_config_t kymo_config = {
	.version = KYMO_CONFIG_VERSION,
	.cpu_count = 2,
};
