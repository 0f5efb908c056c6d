/* Kymo's recorder: the C interface.
 *
 * To record a program:
 *   1. Compile what you want to see with -finstrument-functions and link libkymo.a.
 *   2. Define one `kymo_config` (below; what an initializer leaves out is 0: none, or the default).
 *      On Linux you may do without: then everything is recorded from the start, and saved at exit
 *      to the file that the environment variable KYMO_OUTPUT names.
 *   3. Give the recorder a way to the host: call kymo_link_receive() for each byte that arrives
 *      (an interrupt handler may), kymo_link_poll() from a place that may take its time (the idle
 *      thread), and name a function that sends bytes in `kymo_config.send`. (On Linux the environment variable
 *      KYMO_SOCKET does without all that.)
 *   4. If there are threads or interrupts to be told apart, call the hooks named below, or name
 *      your scheduler's own functions in `kymo_config.promotions`.
 *   5. Call kymo_tick() from a periodic interrupt, so that the clock is never in doubt.
 *
 * On a Cortex-M a hook needs at most half a KiB of stack (the first one of a program one KiB), and
 * kymo_link_poll() one and a half besides what `send` needs.
 *
 * Nothing here allocates or waits, except kymo_link_poll(), which waits for `send`. All hooks may
 * be called from any context, before main() too, and before RAM is initialized (they do nothing
 * then). What the recorder itself calls must not be instrumented: give such functions
 * KYMO_NO_INSTRUMENT.
 *
 * On bare metal the code that copies .data and clears .bss must not be instrumented either. After
 * power-on hooks see that .data is not there yet, but after a reset that keeps RAM it still looks
 * initialized (the command `reboot` sees to that itself).
 */
#ifndef KYMO_H
#define KYMO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A program on Linux. Debian's compilers for Linux build programs of bare metal too, with -ffreestanding. */
#if defined(__linux__) && __STDC_HOSTED__
#define KYMO_LINUX
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define KYMO_NO_INSTRUMENT __attribute__((no_instrument_function))

/* The libraries for a Cortex-M and for RISC-V mask the interrupts of one processor, which does not keep another one off: what
 * two of them record is damaged. An operating system that runs threads on several is refused here, where its configuration is
 * seen (Zephyr's is everywhere; include FreeRTOS.h or rtems.h before this file). Where only one of them runs instrumented
 * code, define KYMO_ONE_CPU. */
#if !defined(KYMO_LINUX) && (defined(__arm__) || defined(__riscv)) && !defined(KYMO_ONE_CPU)
#if defined(CONFIG_SMP) || defined(RTEMS_SMP) || defined(configNUMBER_OF_CORES) && configNUMBER_OF_CORES > 1
#error "Kymo records one processor here, and this system runs threads on several: turn SMP off, or define KYMO_ONE_CPU if \
instrumented code runs on one of them alone"
#endif
#endif

/* The version of this file's structures; stands in kymo_config.version. */
#define KYMO_CONFIG_VERSION 3u

/* ------------------------------------------------------------------ configuration */

/* kymo_config.flags */
#define KYMO_START_ON 1u /* record from the first instrumented call on, without a trigger */
#define KYMO_FIXED 2u    /* when the buffer is full, keep the oldest events (else the newest) */
#define KYMO_STREAM 4u   /* a reader takes packets out while all record; what comes while it is late
                          * is counted, not kept */
#define KYMO_CALL_SITES 8u /* record with every entry where it was called from: 10 bytes an entry (15
                            * on a 64-bit machine) in the place of 3 (6), and all on the slow path.
                            * Without it the host knows callers by their nesting */

#define KYMO_ONCE 16u /* a single shot: once the stopper has returned, the trigger does nothing until events
                       * are cleared or a trigger is set (`kymo trace --once` asks for it, too) */

/* The profile table: what is kept of a function, and of a call that has not ended. The contents
 * are the recorder's; only the sizes matter here. */
typedef struct kymo_slot {
	uintptr_t reserved_address;
	uint32_t reserved_count[2];
	uint64_t reserved_times[4];
} kymo_slot_t;

typedef struct kymo_frame {
	uintptr_t reserved_function;
	uint32_t reserved_slot[2];
	uint64_t reserved_times[2];
} kymo_frame_t;

/* What a function's entry and exit are recorded as instead of calls. */
enum kymo_promotion_kind {
	KYMO_PROMOTE_SWITCHED_IN = 1,  /* entry: current_thread() was switched in; exit: nothing */
	KYMO_PROMOTE_SWITCHED_OUT = 2, /* entry: current_thread() was switched out; exit: nothing */
	KYMO_PROMOTE_ISR = 3,          /* entry and exit of interrupt `irq`, besides the call */
	KYMO_PROMOTE_NOTHING = 4       /* neither entry nor exit is recorded */
};

typedef struct kymo_promotion {
	void (*function)(void);
	uint16_t kind; /* enum kymo_promotion_kind */
	uint16_t irq;
} kymo_promotion_t;

/* Trigger and stopper, and their conditions, as they survive a reboot. Put it where start-up code does not write. */
typedef struct kymo_retained {
	uintptr_t reserved[16];
} kymo_retained_t;

typedef struct kymo_config {
	uint32_t version; /* KYMO_CONFIG_VERSION */
	uint32_t flags;

	/* The event buffer: packet_size (a multiple of 8, 128 to 524288) divides buffer_size; at least
	 * 2 packets; 8-byte aligned. On Linux `buffer` is NULL: every thread gets one of buffer_size
	 * bytes (0: 4 MiB, and packets of 4 KiB) when it records first. */
	void *buffer;
	uint32_t buffer_size;
	uint32_t packet_size;

	/* Room for names and other things to be known once (never overwritten); 8-byte aligned.
	 * About 30 bytes a name and 150 besides. */
	void *metadata;
	uint32_t metadata_size;

	/* The profile table; NULL and 0 for none. Of the slots (3 at least) a microcontroller needs the last
	 * two itself. Where all are taken a function takes that of one with a low total, which is counted.
	 * `frames` holds shadow_stacks * shadow_depth; of each
	 * stack the recorder needs one frame itself. 2 to 32 stacks, of 2 to 65535 frames. On Linux they
	 * are the sizes for each thread (2 stacks do), and the pointers are NULL. */
	kymo_slot_t *slots;
	uint32_t slot_count;
	kymo_frame_t *frames;
	uint32_t shadow_stacks; /* threads that can be distinguished at one time, and 1 for interrupts */
	uint32_t shadow_depth;  /* frames a stack */

	const kymo_promotion_t *promotions;
	uint32_t promotion_count;

	/* Entering the trigger turns recording on, returning from the stopper turns it off: from a recursive one,
	 * from its outermost call in the thread that entered it first. */
	void (*trigger)(void);
	void (*stopper)(void);
	kymo_retained_t *retained; /* NULL: changes last until the next reset; not used on Linux */

	/* The start of the program's text: KYMO_TEXT_BASE, or your linker script's symbol. On Linux
	 * NULL does. */
	const void *text_base;

	/* Records are shortest for functions with small numbers: the distance from text_base in units
	 * of 1 << function_shift bytes. 4 where your linker script aligns functions to 16 bytes
	 * (SUBALIGN(16)): then 128 KiB of code have the shortest form. 0: what the architecture aligns
	 * functions to. A function that is not aligned so takes a few bytes more. */
	uint32_t function_shift;

	/* The clock: a register (or variable) that counts up at clock_hz, and begins again at 0 after
	 * 2^32; hooks read it themselves. Or a function that counts up, and begins again after
	 * 2^clock_bits (8 to 32), which costs a call at every event and the fast hooks. Both NULL: the
	 * processor's own counter, at clock_hz: DWT_CYCCNT on a Cortex-M where it works, else SysTick as
	 * soon as you have started it. On Linux the clock is always the recorder's own (the TSC where it
	 * is steady), and measured: leave these 0. */
	const volatile uint32_t *counter;
	uint32_t (*clock)(void);
	uint64_t clock_hz;
	uint32_t clock_bits;
	uint32_t tick_hz; /* how often kymo_tick() is called; 0: never */

	/* The thread that runs now: any number that tells it from others, not 0. NULL: one thread (on
	 * Linux: the kernel's number). Asked at every event until the first switch is told by a hook or
	 * a promotion. */
	uintptr_t (*current_thread)(void);

	/* Sends bytes to the host; called from kymo_link_poll() only. NULL: no link. */
	void (*send)(const uint8_t *bytes, size_t count);
	/* Starts the machine again. NULL: the command `reboot` is refused. */
	void (*reboot)(void);

	/* The build id's note: link with -Wl,--build-id, keep .note.gnu.build-id in the linker script,
	 * and give the symbol that you put before it. On Linux NULL does. */
	const void *build_id_note;

#if !defined(KYMO_LINUX) && (defined(__arm__) || defined(__riscv))
	/* These libraries mask the interrupts of one processor, which does not keep another off: of several let one run
	 * instrumented code, or nothing that is recorded is whole. (Named so that to ask for more does not compile.) */
	uint32_t only_one_cpu;
#else
	/* Several processors that run one program (AArch64): how many, at most 16; 0 is 1. Then `buffer`
	 * holds cpu_count buffers of buffer_size bytes, one after the other, aligned to 128 as they are
	 * (buffer_size is a multiple of 128; of one CPU, neither matters); there is no profile table, but
	 * of one CPU; and every CPU calls kymo_cpu_start() once. `clock`, if any, is called by each CPU
	 * for itself. */
	uint32_t cpu_count;
#endif
} kymo_config_t;

/* You define this one. */
extern const kymo_config_t kymo_config;

#ifdef __cplusplus
#define KYMO_ASSERT(holds_, rule_) static_assert(holds_, rule_)
#else
#define KYMO_ASSERT(holds_, rule_) _Static_assert(holds_, rule_)
#endif

/* The memory of a profile table; KYMO_WITH_TABLE among the fields of KYMO_CONFIG takes it. */
#define KYMO_TABLE(slots_, stacks_, depth_)                                                       \
	KYMO_ASSERT((slots_) >= 3, "slot_count must be at least 3");                              \
	KYMO_ASSERT((stacks_) >= 2 && (stacks_) <= 32, "shadow_stacks must be from 2 to 32");     \
	KYMO_ASSERT((depth_) >= 2 && (depth_) <= 65535, "shadow_depth must be from 2 to 65535");  \
	static kymo_slot_t kymo_table_slots[KYMO_MEMORY(slots_)];                                 \
	static kymo_frame_t kymo_table_frames[KYMO_MEMORY((stacks_) * (depth_))];                 \
	enum { kymo_table_slot_count = (slots_), kymo_table_stacks = (stacks_), kymo_table_depth = (depth_) }

#define KYMO_WITH_TABLE                                                                           \
	.slots = KYMO_GIVEN(kymo_table_slots), .slot_count = kymo_table_slot_count,               \
	.frames = KYMO_GIVEN(kymo_table_frames), .shadow_stacks = kymo_table_stacks,              \
	.shadow_depth = kymo_table_depth

/* Defines kymo_config and its memory, and checks when it is compiled what must hold of the sizes: so many packets of
 * packet_size bytes, so many bytes for names, then the other fields (in C++ in their order):
 *
 *     KYMO_TABLE(256, 4, 32);
 *     KYMO_CONFIG(KYMO_START_ON, 16, 1024, 1024, KYMO_WITH_TABLE, .clock_hz = 64000000);
 *
 * For one processor. What cannot be known before the program runs (whether a clock counts) kymo_status() tells. */
#define KYMO_CONFIG(flags_, packets_, packet_size_, metadata_size_, ...)                          \
	KYMO_ASSERT((packet_size_) % 8 == 0 && (packet_size_) >= 128 && (packet_size_) <= 524288, \
		    "packet_size must be a multiple of 8, from 128 to 524288");                   \
	KYMO_ASSERT((packets_) >= 2, "there must be at least 2 packets");                         \
	KYMO_ASSERT((metadata_size_) >= 128 && (metadata_size_) < 524288,                         \
		    "metadata_size must be at least 128 and less than 524288");                   \
	static uint64_t kymo_buffer_memory[KYMO_MEMORY((packets_) * (packet_size_) / 8)];         \
	static uint64_t kymo_metadata_memory[KYMO_MEMORY(((metadata_size_) + 7) / 8)];            \
	const kymo_config_t kymo_config = {.version = KYMO_CONFIG_VERSION,                        \
					   .flags = (flags_),                                     \
					   .buffer = KYMO_GIVEN(kymo_buffer_memory),              \
					   .buffer_size = (packets_) * (packet_size_),            \
					   .packet_size = (packet_size_),                         \
					   .metadata = KYMO_GIVEN(kymo_metadata_memory),          \
					   .metadata_size = (metadata_size_),                     \
					   __VA_ARGS__}

#ifdef KYMO_LINUX
/* There the recorder takes its memory itself. */
#define KYMO_MEMORY(count_) 1
#define KYMO_GIVEN(memory_) (sizeof(memory_) != 0 ? NULL : NULL)
#else
#define KYMO_MEMORY(count_) (count_)
#define KYMO_GIVEN(memory_) (memory_)
#endif

/* The start of the image with GNU ld's own linker scripts. */
extern const char __executable_start[];
#define KYMO_TEXT_BASE ((const void *)__executable_start)

/* ------------------------------------------------------------------ duration mode
 *
 * A call is one record, written when it returns, if it took at least `threshold`: short calls leave nothing behind, so
 * that a buffer holds seconds or hours in the place of milliseconds. It takes a library that was built with the part
 * `duration` (cargo xtask lib TARGET --parts duration,...), and memory for a shadow stack for each thread:
 *
 *     KYMO_DURATION(4, 32, .threshold = 6400, .flags = KYMO_DURATION_ON);
 *
 * for 4 threads (interrupts go on the stack of the thread that they interrupt) of 31 calls each. The other fields are
 * optional. All of them may be changed while the program runs: by the host (`kymo trace --threshold`), by the
 * program, or by a debugger that writes where the symbol kymo_duration says. Threshold, depth and filter count at once; flags and
 * the stop function once `request` is not 0, at the next kymo_tick().
 *
 * Threads are distinguished by kymo_switch() and kymo_switched_in(), or, with more instructions for each call, by
 * kymo_config.current_thread. Promotions are not looked at. A call that lasts longer than the counter takes to come round needs
 * kymo_tick(). For one processor; of several: KYMO_CPU_DURATION. Programs on Linux need nothing of this but KYMO_THRESHOLD in their
 * environment. */
#define KYMO_DURATION_ON 1u     /* record so from the start; else the host turns it on */
#define KYMO_DURATION_ON_CPU 2u /* compare the time in which the call's thread ran, not all time (more instructions) */
#define KYMO_DURATION_EVENTS 4u /* record thread switches and interrupts beside the calls */

/* kymo_duration.freeze_on */
#define KYMO_FREEZE_ON_MARKER 1u
#define KYMO_FREEZE_ON_IRQ 2u

/* The contents are the recorder's. */
typedef struct kymo_open_call {
	uintptr_t reserved[8];
} kymo_open_call_t;

/* Settings as they survive a reboot. Put it, and the filter, where start-up code does not write. */
typedef struct kymo_duration_retained {
	uintptr_t reserved[12];
} kymo_duration_retained_t;

/* What becomes of a function's calls from the first one on, unless the host's wishes were kept over a reboot. A function that is NULL
 * stands for all; later rules count before earlier ones. */
#define KYMO_RULE_RECORD 0u
#define KYMO_RULE_SKIP 1u  /* not recorded */
#define KYMO_RULE_BELOW 2u /* nor is anything that it calls */
typedef struct kymo_duration_rule {
	void (*function)(void);
	uint32_t action;
} kymo_duration_rule_t;

typedef struct kymo_duration {
	uintptr_t reserved_running[3];
	uintptr_t threshold; /* ticks of the clock */
	/* Entering it turns recording off, whatever the threshold: where something went wrong, and what came before is to be
	 * kept. With Thumb's lowest bit, as the compiler has it. */
	void (*stop_at)(void);
	uintptr_t reserved_stopper;
	uint32_t magic; /* KYMO_DURATION_MAGIC */
	uint32_t flags;
	uint32_t depth; /* the last level of calls that is recorded; 0: all */
	/* What becomes of a function's calls: two bits each, for every 1 << filter_shift bytes from text_base on (the
	 * lowest bits of a byte are the first's). 0: they are recorded, 1: they are not, 2: nor is
	 * anything that they call. KYMO_DURATION_FILTER(bytes of text) is the size; NULL: no filter. */
	uint32_t filter_shift;
	uint8_t *filter;
	uint32_t filter_size;
	/* For a debugger that has changed flags or stop_at, or whose changes are to be kept over a reboot: not 0. */
	volatile uint32_t request;
	uintptr_t reserved_base;
	kymo_duration_retained_t *retained;
	/* A call of `freeze` that took longer than freeze_over ticks (at least the threshold) turns recording off, as entering
	 * stop_at does: both only if called from freeze_from (NULL: from anywhere), only the freeze_hit-th time since recording was turned on
	 * (0: the first), and when freeze_after calls more have been recorded. */
	void (*freeze)(void);
	uintptr_t freeze_over;
	void (*freeze_from)(void);
	uint32_t freeze_hit, freeze_after;
	/* The same where an event happens: KYMO_FREEZE_ON_MARKER, kymo_marker(freeze_value); KYMO_FREEZE_ON_IRQ,
	 * kymo_isr_enter(freeze_value). 0: none. */
	uint32_t freeze_on, freeze_value;
	uint32_t reserved_hits[2];
	const kymo_duration_rule_t *rules; /* NULL: none; they need a filter */
	uint32_t rule_count;
#if UINTPTR_MAX > 0xFFFFFFFFu
	uint32_t reserved_padding;
#endif
	/* Calls that found no room on their stack, or no stack; and exits without an entry, entries without an exit. */
	uint32_t too_deep, unmatched;
	kymo_open_call_t *frames;
	uint32_t stacks, stack_depth;
	const void *reserved_running_stack;
	uint32_t reserved_counts[2];
	kymo_open_call_t reserved_frames[2];
} kymo_duration_t;

#define KYMO_DURATION_MAGIC 0x4B794475u

/* Yours, if the program has it. */
extern kymo_duration_t kymo_duration;

/* Is in libraries that have the part. */
extern const uint8_t kymo_duration_part;

/* So many bytes for the filter of so many bytes of text. */
#define KYMO_DURATION_FILTER(text_) (((text_) + 63) / 64)

#define KYMO_DURATION(stacks_, depth_, ...)                                                       \
	KYMO_ASSERT((stacks_) >= 1 && (stacks_) <= 64, "there must be from 1 to 64 stacks");      \
	KYMO_ASSERT((depth_) >= 2 && (depth_) <= 4096, "a stack must have from 2 to 4096 frames"); \
	const void *const kymo_duration_needs = &kymo_duration_part;                              \
	static kymo_open_call_t kymo_duration_frames[(stacks_) * (depth_)];                       \
	kymo_duration_t kymo_duration = {.magic = KYMO_DURATION_MAGIC,                            \
					 .filter_shift = 4,                                       \
					 .frames = kymo_duration_frames,                          \
					 .stacks = (stacks_),                                     \
					 .stack_depth = (depth_),                                 \
					 __VA_ARGS__}

/* The same for a program on several processors (AArch64): each has a structure and so many stacks of its own; all have the same
 * settings. In C, not C++.
 *
 *     KYMO_CPU_DURATION(8, 4, 32, .threshold = 6400, .flags = KYMO_DURATION_ON);
 *
 * Calls in which their thread changes the processor are counted (`unmatched`), not recorded. stop_at, the fields that begin with
 * freeze, and request have no effect. There is no duration mode where the program has a clock of its own (kymo_config.clock), or
 * fewer structures than processors (kymo_config.cpu_count). */
typedef struct kymo_cpu_duration {
	kymo_duration_t *of_cpu;  /* the first processor's, and behind it the others' */
	kymo_open_call_t *frames; /* those of all their stacks */
	uint32_t cpus;
} kymo_cpu_duration_t;

extern const kymo_cpu_duration_t kymo_cpu_duration;

#define KYMO_CPU_DURATION(cpus_, stacks_, depth_, ...)                                             \
	KYMO_ASSERT((stacks_) >= 1 && (stacks_) <= 64, "there must be from 1 to 64 stacks");       \
	KYMO_ASSERT((depth_) >= 2 && (depth_) <= 4096, "a stack must have from 2 to 4096 frames"); \
	KYMO_ASSERT((cpus_) >= 1 && (cpus_) <= 16, "there must be from 1 to 16 processors");       \
	const void *const kymo_duration_needs = &kymo_duration_part;                               \
	static kymo_open_call_t kymo_duration_frames[(cpus_) * (stacks_) * (depth_)];              \
	kymo_duration_t kymo_duration_of_cpu[(cpus_)] = {                                          \
		[0 ...((cpus_) - 1)] = {.magic = KYMO_DURATION_MAGIC,                              \
					.filter_shift = 4,                                         \
					.stacks = (stacks_),                                       \
					.stack_depth = (depth_),                                   \
					__VA_ARGS__}};                                             \
	const kymo_cpu_duration_t kymo_cpu_duration = {kymo_duration_of_cpu, kymo_duration_frames, (cpus_)}

/* ------------------------------------------------------------------ gate */

/* Recording happens while the gate is enabled and on. After start it is enabled, and off unless
 * KYMO_START_ON says otherwise. enable and disable nest: as many enables as disables. They may be
 * called in critical sections. */
void kymo_enable(void);
void kymo_disable(void);

/* Turn recording on and off without trigger and stopper. */
void kymo_on(void);
void kymo_off(void);

/* The functions whose entry turns recording on and whose exit turns it off; NULL for none. Kept
 * over a reboot if kymo_config.retained is given. */
void kymo_set_trigger(void (*function)(void));
void kymo_set_stopper(void (*function)(void));

/* When trigger and stopper act, in libraries that were built with the part `conditions` (cargo xtask lib TARGET --parts
 * conditions,...): only when called from code at `from` up to `end` (0: from anywhere), from the hit-th of these calls on
 * (0: the first), `times` times at most (0: without limit). The trigger is looked at while recording is off, the stopper
 * while it is on, and recording ends where the call that counts returns. Set by the host (`kymo trace --trigger 'parse from main hit 3'`),
 * by the program, or by a debugger that writes where the symbol says: words count at once. Counting begins anew when events are
 * cleared, or a trigger or stopper is set. What the host has set is kept over a reboot if kymo_config.retained is given; what was written is
 * when a trigger or stopper is set behind it. */
typedef struct kymo_condition {
	uintptr_t from, end;
	uint32_t hit, times;
	volatile uint32_t hits, acted; /* so many of these calls there were; so often it has acted */
	/* Code that belongs to that at `from`, and that the compiler put elsewhere (GCC's `.cold` parts); 0: none. */
	uintptr_t cold, cold_end;
} kymo_condition_t;

typedef struct kymo_conditions {
	uint32_t magic; /* KYMO_CONDITIONS_MAGIC */
	uint32_t reserved;
	kymo_condition_t trigger, stopper;
} kymo_conditions_t;

#define KYMO_CONDITIONS_MAGIC 0x4B79436Fu

extern kymo_conditions_t kymo_conditions;

/* Why nothing is recorded: NULL if kymo_config can be used, else the name of the field that is wrong and the
 * rule that it breaks, as "packet_size: must be a multiple of 8, from 128 to 524288", and in *value (unless
 * that is NULL) what it is. Sets the recorder up if no hook has done so; call it once RAM is initialized, and
 * of several processors after kymo_cpu_start(). */
const char *kymo_status(uintptr_t *value);

/* Forget the recorded events and the profile table. Not while the host reads a dump or a stream: then
 * nothing happens. */
void kymo_clear(void);

/* ------------------------------------------------------------------ hooks */

/* Called by the compiler with -finstrument-functions. */
void __cyg_profile_func_enter(void *function, void *call_site);
void __cyg_profile_func_exit(void *function, void *call_site);

/* A thread gets, or loses, the processor. */
void kymo_switched_in(uintptr_t thread);
void kymo_switched_out(uintptr_t thread);

/* The processor goes from the thread that runs to `next`: both at once, in one record. For schedulers that
 * know whom they switch to; cheaper than the two calls above. */
void kymo_switch(uintptr_t next);

/* An interrupt handler begins and ends. Call them in any case: while nothing is recorded they keep
 * account of what is being served, and a recording that is turned on in a handler begins with its
 * isr_enter. (Handlers that are only promoted are not known then.) `irq` as the architecture counts:
 * on Cortex-M the exception number (15 = SysTick, 16 = IRQ 0), on Linux the signal. */
void kymo_isr_enter(uint16_t irq);
void kymo_isr_exit(uint16_t irq);

/* The program says something. `name` must be a string constant: only its address is recorded. */
void kymo_marker(uint32_t value);
void kymo_named_marker(const char *name, uint32_t value);

/* What time it is in the world, in nanoseconds since 1970 UTC, if the program knows: at the start
 * and now and then, so that the host shows dates, and corrects the drift of the clock. (`kymo record`
 * tells it a target that does not know; on Linux it is recorded without this.) */
void kymo_wall_clock(uint64_t ns);

/* A record of your own, of a size that you choose, written in place: reserve it, fill it, then commit it
 * with a type that tells one kind of your records from another (not 0), or discard it. NULL if nothing is
 * recorded now, or there is no room (which is counted). At most as many bytes as a packet has less 80,
 * and never more than 65535: choose packet_size for the largest (on Linux packets have 4 KiB unless you
 * say otherwise). Aligned to 4 bytes, and may hold anything at first.
 *
 * All others go on recording meanwhile; what is discarded leaves nothing behind if nobody did, else a
 * record of type 0. Don't be long: what is being filled is not overwritten, so when the buffer has gone
 * round events are discarded (and counted) until you commit, in stream mode the host waits for it, and
 * kymo_clear() does nothing. (On Linux what a thread that ended was filling stays unfinished, and
 * counts as lost.) Commit where you reserved: in the same thread or handler, and on
 * the same CPU. */
void *kymo_reserve(size_t size);
void kymo_commit(void *record, uint16_t type);
void kymo_discard(void *record);

/* Names, once for each; NULL is none. */
void kymo_thread_name(uintptr_t thread, const char *name);
void kymo_isr_name(uint16_t irq, const char *name);

/* setjmp() and longjmp() are about to be called with this buffer: so it is known exactly which
 * functions a jump leaves. Don't call these; have the linker do it: for newlib with
 *     -Wl,--wrap=setjmp,-u,setjmp,--wrap=longjmp,-u,longjmp
 * and with glibc, whose headers give them other names, in the same way with both options for each of
 * _setjmp, __sigsetjmp, longjmp, siglongjmp and __longjmp_chk (and setjmp and _longjmp, if a program
 * names those itself). -u fetches the real function, which nothing else may ask for any more. Without
 * all this jumps are noticed when a function further out returns, and exits in between may be told of
 * a wrong function: with the ELF file at hand, kymo warns of that. */
void kymo_setjmp(const void *buffer);
void kymo_longjmp(const void *buffer);

/* Priority and mode of the current thread, when they changed. */
void kymo_context(uintptr_t thread, int16_t priority, uint16_t mode);

/* Keeps the clock's upper bits, and closes packets that a stream is to send: at least four times in a
 * turn of the counter. Where it came so late that a turn may have been missed, the trace says so (and
 * `status` counts it: clock_gaps). Where the counter is the tick's own timer (SysTick as both), call it first in the
 * handler: it stands for a turn then.
 *
 * It also ends a dump whose host has not been heard for five seconds, so that recording goes on
 * even if kymo_link_poll() is called only when bytes arrive. Without a tick only that call ends it.
 * (On Linux there is no tick: the first hook after that time does it, and kymo_link_poll().) */
void kymo_tick(void);

/* ------------------------------------------------------------------ link */

/* A byte arrived from the host. Any context, but not two at once; nothing but moving the byte
 * happens here. */
void kymo_link_receive(uint8_t byte);

/* Does what the host asked for, until there is nothing more to do, or of a stream 64 pieces of 240
 * bytes have been sent. From a context that may wait for kymo_config.send. */
void kymo_link_poll(void);

/* Whether kymo_link_poll() would have something to do: bytes have arrived, or a stream has something
 * to send. A program whose link thread sleeps asks this in its tick, and wakes it. */
bool kymo_link_pending(void);

/* ------------------------------------------------------------------ console */

#if !defined(KYMO_LINUX) && !defined(__aarch64__)
/* Gives all that was recorded so far to `put`, as lines of text for a console: where the program dies (a fault handler, an
 * assertion, a watchdog's warning), or where there is no link. `kymo show LOG` reads it out of whatever log the lines stand in.
 * Nothing is recorded meanwhile. From any context; the lines take 1.8 characters for each byte of the recording.
 * False, and nothing is given, if nothing can have been recorded, or if this interrupted the recorder at its work (the fault
 * is one of `clock` or `current_thread`): then the memory is to be read by a debugger. On a Cortex-M it takes one and a half KiB
 * of stack besides what `put` needs. */
bool kymo_dump_text(void (*put)(const char *text, size_t length));

/* The same of what RAM still holds after a reset: a watchdog's, or of a program that died without a word. Call it first thing in
 * start-up code, before .data is copied and .bss is cleared; `put` uses neither, nor does it call anything that is instrumented.
 * Nothing is believed that does not fit: false, and nothing is given, where the newest packet is damaged or RAM holds
 * something else (as after power-on); older packets count up to the first that does not fit. */
bool kymo_dump_survivors(void (*put)(const char *text, size_t length));
#endif

/* ------------------------------------------------------------------ several processors */

#if defined(__aarch64__) && !defined(KYMO_LINUX)
/* The CPU that calls this records from now on, as `number` (0 to cpu_count - 1). Each CPU calls it
 * once caches are on, before the first function that it shall record; the first one sets the
 * recorder up. From reset until then TPIDR_EL1 must be 0 (start-up code, which must not be
 * instrumented, sees to that); from then on it is the recorder's. (In a library that was built with the
 * option tpidrro_el0 or tpidr_el0 it is that register.) False if there is no buffer for
 * it, or the configuration is wrong (`status` says how). kymo_tick() is for each CPU to call. */
bool kymo_cpu_start(uint16_t number);
#endif

/* ------------------------------------------------------------------ where flash is short
 *
 * libkymo_minimal.a, for a Cortex-M, has the compiler's hooks, kymo_on(), kymo_off() and kymo_tick(),
 * and nothing else. Of kymo_config it uses version, flags (KYMO_START_ON, KYMO_FIXED), buffer,
 * buffer_size, packet_size, text_base, function_shift and counter (NULL: DWT_CYCCNT). If these are
 * unusable nothing is recorded. It does not watch for ticks that come too late. After kymo_off() every
 * packet in the buffer says how long it is. Call these three only once RAM is initialized. */

/* ------------------------------------------------------------------ Linux */

#ifdef KYMO_LINUX
/* The recordings of so many threads that have ended are kept as they are (without this: 1024), except in stream
 * mode, where a thread is forgotten once the host has all of it. A new thread then goes on in the memory of the one
 * that ended first, and overwrites that packet by packet. */
#define KYMO_ENDED_THREADS(threads_)                                                              \
	extern const uint32_t kymo_ended_threads;                                                 \
	const uint32_t kymo_ended_threads = (threads_)

/* Writes all that was recorded so far, packets as they are, to `path`: one file that
 * `kymo show`, `kymo export` and the rest take. 0, or -1 with errno. Happens by itself at exit
 * when the environment variable KYMO_OUTPUT names a file; where a signal, _exit() or exec ends the
 * program, that file has all the same what was recorded (book/linux.md). A fork has a file of its own.
 * EBUSY if a dump is going on, or if a thread's recording is missing in the file because the
 * thread did not leave its hook for ten seconds. (A signal handler that leaves by siglongjmp may have
 * interrupted one: its thread is found to have left with its next call that is not much deeper in the stack, or
 * when it saves; what the hook was for counts as lost.) EFAULT if `path` is NULL. */
int kymo_save(const char *path);
#endif

#ifdef __cplusplus
}
#endif

#endif
