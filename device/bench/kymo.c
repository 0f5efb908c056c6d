/* Rows of Kymo's own hooks. The compile-time option selects what is recorded and checked:
 *     (nothing)    calls: gate, mask, clock and end of packet checked, a stopper, depth counted
 *     EVERYTHING   the profile table too, and a function that is filtered out
 *     SITES        with call sites
 *     DURATION     with a library that has duration mode, which is on
 *     SUMS         with a library that has checksums of packets
 *     MINIMAL      with a library that was built for nothing but calls
 *     LEAST        with the smallest library, which has nothing but calls
 * A row is named after its subject and this option. */
#include "kymo.h"

#include "machine.h"
#include "rows.h"

#if defined(SUMS)
#include "kymo_sums.h"
#endif

#if defined(EVERYTHING)
#define NAMED(name) name##_everything
#elif defined(SITES)
#define NAMED(name) name##_sites
#elif defined(DURATION)
#define NAMED(name) name##_filtered
#elif defined(SUMS)
#define NAMED(name) name##_summed
#elif defined(MINIMAL)
#define NAMED(name) name##_minimal
#elif defined(LEAST)
#define NAMED(name) name##_least
#else
#define ALL_ROWS
#define NAMED(name) name
#endif

#define ROW_(name) ROW(name)

#if defined(SUMS)
#define PACKET_BYTES 512
#else
#define PACKET_BYTES 4096
#endif

/* Larger than all rows together: the buffer is never full. */
#define PACKETS 16

void __cyg_profile_func_enter(void *function, void *call_site);
void __cyg_profile_func_exit(void *function, void *call_site);
int main(void);

/* Functions that are called, as far as the hooks know. */
__attribute__((aligned(16))) static void subject(void)
{
	STAY;
}

static void another(void)
{
	STAY;
}

static uint64_t buffer[PACKETS * PACKET_BYTES / 8] __attribute__((aligned(128)));

#if defined(SUMS)
KYMO_SUMS(PACKETS);
#endif

/* A recorder for several processors has the settings and the table of each. */
#if defined(__aarch64__) && !defined(__linux__)
#define SEVERAL
#endif

#if defined(DURATION)
/* A threshold that no call reaches. */
#if defined(SEVERAL)
KYMO_CPU_DURATION(1, 2, 32, .threshold = UINT32_MAX, .flags = KYMO_DURATION_ON);
#define SETTINGS kymo_duration_of_cpu[0]
#else
KYMO_DURATION(2, 32, .threshold = UINT32_MAX, .flags = KYMO_DURATION_ON);
#define SETTINGS kymo_duration
#endif
#endif

#if defined(EVERYTHING)
#if defined(SEVERAL)
KYMO_CPU_TABLE(1, 32, 2, 32);
#else
static kymo_slot_t slots[32];
static kymo_frame_t frames[2 * 32];
#endif
static const kymo_promotion_t filtered[] = { { .function = another, .kind = KYMO_PROMOTE_NOTHING } };
#endif

const kymo_config_t kymo_config = {
	.version = KYMO_CONFIG_VERSION,
#if defined(SITES)
	.flags = KYMO_START_ON | KYMO_CALL_SITES,
#else
	.flags = KYMO_START_ON,
#endif
	.buffer = buffer,
	.buffer_size = sizeof buffer,
	.packet_size = PACKET_BYTES,
	.text_base = KYMO_TEXT_BASE,
#if !defined(MINIMAL) && !defined(LEAST) && !defined(DURATION)
	.stopper = another,
#endif
#if defined(EVERYTHING)
#if defined(SEVERAL)
	.slots = kymo_table_slots,
	.slot_count = kymo_table_slot_count,
	.frames = kymo_table_frames,
	.shadow_stacks = kymo_table_stacks,
	.shadow_depth = kymo_table_depth,
#else
	.slots = slots,
	.slot_count = 32,
	.frames = frames,
	.shadow_stacks = 2,
	.shadow_depth = 32,
#endif
	.promotions = filtered,
	.promotion_count = 1,
#endif
#if defined(MACHINE_COUNTER)
	.counter = MACHINE_COUNTER,
#endif
#if !defined(__linux__)
	.clock_hz = 25000000,
#endif
};

#if defined(LEAST)

/* The smallest library has no markers, and writes the same as the others. */
#define RUN(name) row(name)
#define row(name) row_##name()

#else

/* Returns how far the newest packet has been written: its last byte is that of a marker, which is not 0. (On Linux the
 * buffer belongs to the thread, and the markers are found in the file that is saved at the end.) */
static const uint8_t *seen = (const uint8_t *)buffer;

/* More than is written between two checks. */
#define APART 1024

static const uint8_t *written(void)
{
	const uint8_t *all = (const uint8_t *)buffer + sizeof buffer;
	const uint8_t *end = (size_t)(all - seen) < APART ? all : seen + APART;

	while (end > seen && end[-1] == 0)
		end--;
	seen = end;
	return end;
}

/* Records a marker, searches for its end, and records another one, so that the next event is not far away in time. */
static const uint8_t *marked;

static void begin(void)
{
	kymo_marker(0xFFFFFFFF);
	marked = written();
	kymo_marker(0xFFFFFFFF);
}

/* Returns the bytes written since, minus those of an empty row. */
static uint32_t end(void)
{
	static uint32_t nothing;
	uint32_t bytes;

	kymo_marker(0xFFFFFFFF);
	bytes = (uint32_t)(written() - marked);
	if (nothing == 0)
		nothing = bytes;
	return bytes - nothing;
}

/* Runs a row, and prints the size of its records. They are all in one packet. */
#define RUN(name) RUN_(name)
#define RUN_(name) \
	do { \
		begin(); \
		row_##name(); \
		rows_say(#name, end(), TIMES); \
	} while (0)

#endif

/* Defines a row that calls its subject several times. */
#define CALLS(name, call) \
	ROW_(name) \
	{ \
		for (unsigned i = 0; i < TIMES; i++) { \
			call; \
			STAY; \
		} \
	}

#define ENTER __cyg_profile_func_enter((void *)subject, (void *)main)
#define EXIT __cyg_profile_func_exit((void *)subject, (void *)main)

#if !defined(SUMS)
CALLS(NAMED(enter), ENTER)
CALLS(NAMED(exit), EXIT)
#endif

#if defined(DURATION)

/* Rows of events that are recorded while functions are watched. */
CALLS(enter_recorded, ENTER)
CALLS(exit_recorded, EXIT)
#if !defined(SEVERAL)
CALLS(enter_watched, ENTER)
CALLS(exit_watched, EXIT)
#endif
CALLS(marker_duration, kymo_marker(i))
CALLS(marker_watched, kymo_marker(i))
CALLS(isr_duration, kymo_isr_enter(15))
CALLS(isr_watched, kymo_isr_enter(15))

static void others(void)
{
	SETTINGS.threshold = 0;
	row_enter_recorded();
	RUN(exit_recorded);
	SETTINGS.threshold = UINT32_MAX;
#if !defined(SEVERAL)
	SETTINGS.stop_at = another;
	SETTINGS.request = 1;
	kymo_tick();
	row_enter_watched();
	row_exit_watched();
	SETTINGS.stop_at = NULL;
	SETTINGS.request = 1;
	kymo_tick();
#endif
	/* Events without a condition, and with a condition that they do not meet. */
	row_marker_duration();
	row_isr_duration();
	SETTINGS.freeze_value = 7;
	SETTINGS.freeze_on = KYMO_FREEZE_ON_IRQ;
	row_isr_watched();
	SETTINGS.freeze_value = 0x10000;
	SETTINGS.freeze_on = KYMO_FREEZE_ON_MARKER;
	row_marker_watched();
	SETTINGS.freeze_on = 0;
}

#elif defined(ALL_ROWS)

/* Threads are numbers; these are far from all addresses in the program, and those near to HERE. */
#define FAR ((uintptr_t)0x50000000)
#define HERE ((uintptr_t)buffer)

CALLS(marker, kymo_marker(i))
CALLS(named_marker, kymo_named_marker("name", i))
CALLS(switch_near, kymo_switched_out(i == 0 ? HERE : HERE + 64 * (i - 1)); STAY;
      kymo_switched_in(HERE + 64 * i))
CALLS(switch_far, kymo_switched_out(i == 0 ? HERE : FAR + 64 * (i - 1)); STAY;
      kymo_switched_in(FAR + 64 * i))
CALLS(switch, kymo_switch(HERE + 64 * i))
CALLS(isr_enter, kymo_isr_enter(15))
CALLS(isr_exit, kymo_isr_exit(15))
CALLS(context, kymo_context(HERE, 1, 2))
#if !defined(__aarch64__)
CALLS(block, kymo_commit(kymo_reserve(16), 1))
#endif
CALLS(disabled_enter, ENTER)
CALLS(disabled_exit, EXIT)
CALLS(armed_enter, ENTER)
CALLS(armed_exit, EXIT)

/* Enough entries to fill a packet, so that another one is begun. */
#define FULL (PACKET_BYTES / 3)

ROW(packet)
{
	for (int i = 0; i < FULL; i++) {
		ENTER;
		STAY;
	}
}

/* Exits from the first packet's calls, which record their functions. */
CALLS(exit_named, EXIT)

static void others(void)
{
	RUN(marker);
	RUN(named_marker);
	RUN(isr_enter);
	RUN(isr_exit);
	RUN(context);
#if !defined(__aarch64__)
	RUN(block);
#endif
	kymo_switched_in(HERE);
	RUN(switch_far);
	kymo_switched_out(FAR + 64 * (TIMES - 1));
	kymo_switched_in(HERE);
	kymo_disable();
	row_disabled_enter();
	row_disabled_exit();
	kymo_enable();
	kymo_off();
	kymo_set_trigger(another);
	row_armed_enter();
	row_armed_exit();
	kymo_set_trigger(NULL);
	kymo_on();
	/* The first call after that takes the slow path. */
	ENTER;
	row_packet();
	/* Returns to the start of the packet, which is not the current one any more. */
	for (int i = 0; i < FULL; i++)
		EXIT;
	/* The newest packet is another one: its header names HERE. */
	seen = (const uint8_t *)buffer + sizeof buffer;
	while (seen[-1] == 0)
		seen--;
	RUN(exit_named);
	RUN(switch_near);
	RUN(switch);
}

#elif defined(SUMS)

#define FULL (PACKET_BYTES / 3)

ROW(packet_summed)
{
	for (int i = 0; i < FULL; i++) {
		ENTER;
		STAY;
	}
}

static void others(void)
{
	row_packet_summed();
}

#elif defined(EVERYTHING) && !defined(__linux__)

/* Number of calls of different functions, as far as the table knows: more than it has slots. */
#define DIFFERENT 64

static unsigned different;

/* Each call is shorter than the one before, by more than the clock varies. Which slot has the lowest total, and how
 * often the search finds a lower one, would otherwise differ from run to run. */
INLINE void call_another(void)
{
	void *function = (void *)((uintptr_t)another + 16 * ++different);

	__cyg_profile_func_enter(function, (void *)main);
	for (unsigned i = different; i < 2 * DIFFERENT; i++)
		for (volatile unsigned wait = 0; wait < 8; wait++)
			STAY;
	__cyg_profile_func_exit(function, (void *)main);
	STAY;
}

/* Calls of functions that have no slot while all are in use: each takes one of another function. */
ROW(evict)
{
	for (unsigned i = 0; i < TIMES; i++)
		call_another();
}

static void others(void)
{
	for (unsigned i = 0; i < DIFFERENT; i++)
		call_another();
	row_evict();
}

#else

static void others(void)
{
}

#endif

int main(void)
{
	machine_start();
#if defined(SEVERAL)
	kymo_cpu_start(0);
#endif
	/* The first call sets the recorder up, and the first event begins a packet. */
	ENTER;
	EXIT;
#if !defined(LEAST)
	begin();
	end();
#endif
#if !defined(SUMS)
	RUN(NAMED(enter));
	RUN(NAMED(exit));
#endif
	others();
	another();
	machine_stop();
	return 0;
}
