/* Trigger and stopper with conditions that are written to the symbol kymo_conditions, as by a debugger. */
#include "kymo.h"

static void work(void);
static void leaf(void);

const kymo_config_t kymo_config = {
	.version = KYMO_CONFIG_VERSION,
	.flags = KYMO_FIXED,
	.buffer_size = 1u << 20,
	.packet_size = 4096,
	.text_base = KYMO_TEXT_BASE,
	.trigger = work,
	.stopper = leaf,
};

static unsigned number;

__attribute__((noinline)) static void leaf(void)
{
	__asm__ volatile("");
}

__attribute__((noinline)) static void work(void)
{
	kymo_marker(number++);
	leaf();
	__asm__ volatile("");
}

__attribute__((noinline)) static void first(void)
{
	work();
	__asm__ volatile("");
}

/* Alone in its section, so that its end has a name. */
__attribute__((noinline, section("second_code"))) static void second(void)
{
	work();
	__asm__ volatile("");
}

extern const char __start_second_code[], __stop_second_code[];

int main(void)
{
	if (kymo_conditions.magic != KYMO_CONDITIONS_MAGIC || kymo_conditions.stopper.hits != 0)
		return 1;
	kymo_conditions.trigger.from = (uintptr_t)__start_second_code;
	kymo_conditions.trigger.end = (uintptr_t)__stop_second_code;
	kymo_conditions.trigger.hit = 2;
	kymo_conditions.trigger.times = 1;
	kymo_conditions.stopper.hit = 3;
	for (int i = 0; i < 5; i++) {
		first();
		second();
	}
	if (kymo_conditions.trigger.hits != 4 || kymo_conditions.trigger.acted != 1)
		return 2;
	if (kymo_conditions.stopper.hits != 3 || kymo_conditions.stopper.acted != 1)
		return 3;
	return 0;
}
