/* Program whose traces the analysis bench reads: rounds of the demonstration's Lua script in one
 * thread, without signals, so that each round makes the same calls.
 *
 *     program ROUNDS
 *
 * Linked with libkymo.a it saves its recording to KYMO_OUTPUT. With -DPLAIN it is built without
 * Kymo, and uftrace provides the hooks.
 */
#include <stdlib.h>

#include "kymo.h"
#include "program.h"

#ifdef PLAIN
void kymo_named_marker(const char *name, uint32_t value)
{
	(void)name;
	(void)value;
}
#else
const kymo_config_t kymo_config = {
	.version = KYMO_CONFIG_VERSION,
	/* Record from the first call on, without losses. */
	.flags = KYMO_START_ON | KYMO_FIXED,
	.buffer_size = 64u * 1024u * 1024u,
	.packet_size = 4096,
	.metadata_size = 1024,
	.slot_count = 1024,
	.shadow_stacks = 2,
	.shadow_depth = 128,
	.text_base = KYMO_TEXT_BASE,
};
#endif

int main(int count, char **words)
{
	int rounds = count > 1 ? atoi(words[1]) : 1;
	for (int number = 1; number <= rounds; number++)
		program_round("bench", (uint32_t)number);
	return 0;
}
