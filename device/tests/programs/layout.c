/* Prints the offsets of all fields in the structures of kymo.h. */
#include <stdio.h>

#include "kymo.h"

#define SIZE(type) printf("%s %zu\n", #type, sizeof(type))
#define FIELD(field) printf("%s %zu\n", #field, offsetof(kymo_config_t, field))

int main(void)
{
	SIZE(kymo_config_t);
	SIZE(kymo_slot_t);
	SIZE(kymo_frame_t);
	SIZE(kymo_promotion_t);
	SIZE(kymo_retained_t);
	SIZE(kymo_duration_t);
	SIZE(kymo_duration_retained_t);
	SIZE(kymo_duration_rule_t);
	FIELD(version);
	FIELD(flags);
	FIELD(buffer);
	FIELD(buffer_size);
	FIELD(packet_size);
	FIELD(metadata);
	FIELD(metadata_size);
	FIELD(slots);
	FIELD(slot_count);
	FIELD(frames);
	FIELD(shadow_stacks);
	FIELD(shadow_depth);
	FIELD(promotions);
	FIELD(promotion_count);
	FIELD(trigger);
	FIELD(stopper);
	FIELD(retained);
	FIELD(text_base);
	FIELD(function_shift);
	FIELD(counter);
	FIELD(clock);
	FIELD(clock_hz);
	FIELD(clock_bits);
	FIELD(tick_hz);
	FIELD(current_thread);
	FIELD(send);
	FIELD(reboot);
	FIELD(build_id_note);
	FIELD(cpu_count);
	return 0;
}
