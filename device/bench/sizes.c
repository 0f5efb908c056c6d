/* Measures the size of the recorder in a linked program, without unused parts. With ALL the program uses everything
 * except the link, with LINK and ITEMS also those, with MINIMAL everything in the minimal library; otherwise only the
 * compiler's hooks. With NOTHING there is no recorder. */
#include "kymo.h"
#ifdef ITEMS
#include "kymo_items.h"

KYMO_ITEMS(2);
#endif

#define OWN __attribute__((section(".own")))

static uint64_t buffer[512] OWN;

#ifdef NOTHING
KYMO_NO_INSTRUMENT void __cyg_profile_func_enter(void *function, void *call_site)
{
	(void)function;
	(void)call_site;
}

KYMO_NO_INSTRUMENT void __cyg_profile_func_exit(void *function, void *call_site)
{
	(void)function;
	(void)call_site;
}
#endif

#ifdef ALL
static uint64_t names[64] OWN;
static kymo_slot_t slots[8] OWN;
static kymo_frame_t frames[16] OWN;
static kymo_retained_t retained OWN;

KYMO_NO_INSTRUMENT static uintptr_t current_thread(void)
{
	return 1;
}

void promoted(void)
{
	__asm__ volatile("");
}

#ifdef LINK
KYMO_NO_INSTRUMENT static void out(const uint8_t *bytes, size_t length)
{
	(void)bytes;
	(void)length;
}
#endif

static const kymo_promotion_t promotions[] = {
	{.function = promoted, .kind = KYMO_PROMOTE_SWITCHED_IN},
};
#endif

const kymo_config_t kymo_config = {
	.version = KYMO_CONFIG_VERSION,
	.flags = KYMO_START_ON,
	.buffer = buffer,
	.buffer_size = sizeof buffer,
	.packet_size = 1024,
	.clock_hz = 1000000,
#ifdef ALL
	.metadata = names,
	.metadata_size = sizeof names,
	.slots = slots,
	.slot_count = 8,
	.frames = frames,
	.shadow_stacks = 2,
	.shadow_depth = 8,
	.promotions = promotions,
	.promotion_count = 1,
	.retained = &retained,
	.current_thread = current_thread,
#endif
#ifdef LINK
	.send = out,
#endif
};

void traced(void)
{
	__asm__ volatile("");
}

#ifdef __linux__
#define BEGIN int main(void)
#else
#define BEGIN void reset(void)
#endif

KYMO_NO_INSTRUMENT BEGIN
{
#if defined(__aarch64__) && !defined(__linux__)
	kymo_cpu_start(0);
#endif
#ifdef ALL
	kymo_on();
	kymo_off();
	kymo_enable();
	kymo_disable();
	kymo_set_trigger(traced);
	kymo_set_stopper(traced);
	kymo_clear();
	kymo_switched_in(1);
	kymo_switched_out(1);
	kymo_isr_enter(1);
	kymo_isr_exit(1);
	kymo_marker(1);
	kymo_named_marker("name", 1);
	kymo_thread_name(1, "thread");
	kymo_isr_name(1, "interrupt");
	kymo_context(1, 1, 1);
	kymo_tick();
	promoted();
#endif
#ifdef ITEMS
	kymo_item_t items[2] = { { KYMO_ITEM_USER(0), 0 }, { KYMO_ITEM_USER(1), 1 } };

	kymo_produce(KYMO_ITEM_USER(0), 0);
	kymo_produce_2(KYMO_ITEM_USER(0), 0, KYMO_ITEM_USER(1), 1);
	kymo_produce_n(items, 2);
	kymo_produce_critical(KYMO_ITEM_USER(0), 0);
	kymo_produce_list(KYMO_ITEM_USER(0), 0, KYMO_ITEM_ARG_0, &items[0].data, 1);
	kymo_commit(kymo_reserve(16), 1);
	kymo_discard(kymo_reserve(16));
#endif
#ifdef LINK
	kymo_link_receive(0);
	if (kymo_link_pending())
		kymo_link_poll();
#endif
#ifdef MINIMAL
	kymo_on();
	kymo_off();
	kymo_tick();
#endif
	for (;;)
		traced();
}
