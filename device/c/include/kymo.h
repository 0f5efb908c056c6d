/* C interface of Kymo's recorder.
 *
 * To record a program:
 * 1. Compile the code to be recorded with -finstrument-functions and link libkymo.a.
 * 2. Define one `kymo_config` (below). Fields that an initializer omits are 0: none, or the default. On Linux the
 *    definition is optional: without it the recorder records everything from the start and saves it at exit to the file
 *    that the environment variable KYMO_OUTPUT names.
 * 3. Connect the recorder to the host: call kymo_link_receive() for each byte that arrives (an interrupt handler may),
 *    call kymo_link_poll() from a context that may block (the idle thread), and set `kymo_config.send` to a function
 *    that sends bytes. (On Linux the environment variable KYMO_SOCKET replaces all of this.)
 * 4. To distinguish threads and interrupts, call the hooks named below, or list your scheduler's own functions in
 *    `kymo_config.promotions`.
 * 5. Call kymo_tick() from a periodic interrupt, so that the recorder never misses a wraparound of the clock.
 *
 * On a Cortex-M a hook needs at most 512 bytes of stack (the first hook of a program 1 KiB), and kymo_link_poll() needs
 * 1.5 KiB in addition to the needs of `send`.
 *
 * No function here allocates memory. None waits, except kymo_link_poll(), which waits for `send`. All hooks may be
 * called from any context, also before main() and before RAM is initialized (they do nothing then). Functions that the
 * recorder itself calls must not be instrumented: mark them KYMO_NO_INSTRUMENT.
 *
 * On bare metal the code that copies .data and clears .bss must not be instrumented either. After power-on the hooks
 * detect that .data is not initialized yet, but after a reset that keeps RAM it still looks initialized. (The command
 * `reboot` takes care of that itself.)
 */
#ifndef KYMO_H
#define KYMO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A program that runs on Linux. Debian's compilers for Linux also build bare-metal programs, with -ffreestanding. */
#if defined(__linux__) && __STDC_HOSTED__
#define KYMO_LINUX
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define KYMO_NO_INSTRUMENT __attribute__((no_instrument_function))

/* Refuses systems that run threads on several processors. The libraries for Cortex-M and RISC-V mask the interrupts of
 * one processor, which does not exclude the others: two processors that record would damage each other's data. The
 * check needs the system's configuration: Zephyr's is visible everywhere; for the others include FreeRTOS.h or rtems.h
 * before this file. If only one processor runs instrumented code, define KYMO_ONE_CPU. */
#if !defined(KYMO_LINUX) && (defined(__arm__) || defined(__riscv)) && !defined(KYMO_ONE_CPU)
#if defined(CONFIG_SMP) || defined(RTEMS_SMP) || defined(configNUMBER_OF_CORES) && configNUMBER_OF_CORES > 1
#error "Kymo records one processor here, and this system runs threads on several: turn SMP off, or define KYMO_ONE_CPU if \
instrumented code runs on one of them alone"
#endif
#endif

/* Version of the structures in this file, for kymo_config.version. */
#define KYMO_CONFIG_VERSION 3u

/* ------------------------------------------------------------------ configuration */
/* kymo_config.flags */
#define KYMO_START_ON 1u /* record from the first instrumented call on, without a trigger */
#define KYMO_FIXED 2u    /* when the buffer is full, keep the oldest events (else the newest) */
#define KYMO_STREAM 4u   /* the host takes packets out while recording continues; events that do not fit
                          * while the host is late are counted, not kept */
#define KYMO_CALL_SITES 8u /* record the call site with every entry: 10 bytes an entry (15 on a 64-bit machine) instead
                            * of 3 (6), and always on the slow path. Else the host derives callers from the nesting */

#define KYMO_ONCE 16u /* single shot: after the stopper has returned, the trigger does nothing until events
                       * are cleared or a trigger is set (`kymo trace --once` requests it, too) */

/* Entries of the profile table: one slot per function, one frame per open call. The contents are private to the
 * recorder; only the sizes matter here. */
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

/* Events that replace the entry and exit of a promoted function. */
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

/* Storage in which trigger, stopper and conditions survive a reboot. Place it where start-up code does not write. */
typedef struct kymo_retained {
	uintptr_t reserved[16];
} kymo_retained_t;

typedef struct kymo_config {
	uint32_t version; /* KYMO_CONFIG_VERSION */
	uint32_t flags;

	/* Event buffer, 8-byte aligned. packet_size is a multiple of 8, from 128 to 524288, and divides buffer_size; at
	 * least 2 packets. On Linux `buffer` is NULL: every thread gets a buffer of buffer_size bytes when it first
	 * records (0: 4 MiB, with packets of 4 KiB). */
	void *buffer;
	uint32_t buffer_size;
	uint32_t packet_size;

	/* Memory for names and other data that is recorded once and never overwritten; 8-byte aligned. About 30 bytes
	 * per name, plus 150. */
	void *metadata;
	uint32_t metadata_size;

	/* Profile table; NULL and 0 for none. There are at least 3 slots, of which a microcontroller uses the last two
	 * itself. When all slots are in use, a new function replaces one with a low total, and the replacement is
	 * counted. `frames` holds shadow_stacks * shadow_depth frames, for 2 to 32 stacks of 2 to 65535 frames each;
	 * the recorder uses one frame of each stack itself. On Linux the sizes apply to each thread (2 stacks suffice),
	 * and the pointers are NULL. Several processors have a table each: see KYMO_CPU_TABLE. */
	kymo_slot_t *slots;
	uint32_t slot_count;
	kymo_frame_t *frames;
	uint32_t shadow_stacks; /* threads that can be distinguished at one time, plus 1 for interrupts */
	uint32_t shadow_depth;  /* frames per stack */

	const kymo_promotion_t *promotions;
	uint32_t promotion_count;

	/* Entering the trigger turns recording on; returning from the stopper's outermost call turns it off, in the
	 * thread that entered it first (on Linux and with several processors in any thread, on whichever processor it is). */
	void (*trigger)(void);
	void (*stopper)(void);
	kymo_retained_t *retained; /* NULL: changes last until the next reset; unused on Linux */

	/* Start of the program's text: KYMO_TEXT_BASE, or a symbol of your linker script. May be NULL on Linux. */
	const void *text_base;

	/* Unit of function numbers: a function's number is its distance from text_base in units of 1 << function_shift
	 * bytes, and small numbers make short records. Use 4 if your linker script aligns functions to 16 bytes
	 * (SUBALIGN(16)): then functions within 128 KiB of code have the shortest records. 0: the architecture's
	 * alignment of functions. A function with a smaller alignment takes a few more bytes. */
	uint32_t function_shift;

	/* Clock. `counter` is a register (or variable) that counts up at clock_hz and wraps at 2^32; hooks read it
	 * directly. `clock` is a function that counts up and wraps at 2^clock_bits (8 to 32); it costs a call per event
	 * and rules out the fast path of the hooks. Both NULL: the processor's own counter, which runs at clock_hz: on
	 * a Cortex-M DWT_CYCCNT if it works, else SysTick as soon as you have started it. On Linux the recorder always
	 * uses its own clock (the TSC if it is steady) and measures its frequency: leave these 0. */
	const volatile uint32_t *counter;
	uint32_t (*clock)(void);
	uint64_t clock_hz;
	uint32_t clock_bits;
	uint32_t tick_hz; /* calls of kymo_tick() per second; 0: none */

	/* Returns the running thread: any number except 0 that distinguishes it from others. Called at every event
	 * until a hook or a promotion reports the first thread switch. NULL: one thread (on Linux: the kernel's thread
	 * id). */
	uintptr_t (*current_thread)(void);

	/* Sends bytes to the host. Only kymo_link_poll() calls it. NULL: no link. */
	void (*send)(const uint8_t *bytes, size_t count);
	/* Resets the machine. NULL: the recorder refuses the command `reboot`. */
	void (*reboot)(void);

	/* Build-id note: link with -Wl,--build-id, keep .note.gnu.build-id in the linker script, and set this to the
	 * symbol that you define in front of it. May be NULL on Linux. */
	const void *build_id_note;

#if !defined(KYMO_LINUX) && (defined(__arm__) || defined(__riscv))
	/* Stands in for cpu_count, so that a request for several processors does not compile. These libraries mask the
	 * interrupts of one processor, which does not exclude the others. On a machine with several, only one may run
	 * instrumented code; otherwise the recording is damaged. */
	uint32_t only_one_cpu;
#else
	/* Number of processors that run one program (AArch64), at most 16; 0 means 1. With more than one, `buffer`
	 * holds cpu_count consecutive buffers of buffer_size bytes; both its address and buffer_size are multiples of
	 * 128. Every CPU calls kymo_cpu_start() once, and each CPU calls `clock`, if set, for itself. */
	uint32_t cpu_count;
#endif
} kymo_config_t;

/* The program defines it. */
extern const kymo_config_t kymo_config;

#ifdef __cplusplus
#define KYMO_ASSERT(holds_, rule_) static_assert(holds_, rule_)
#else
#define KYMO_ASSERT(holds_, rule_) _Static_assert(holds_, rule_)
#endif

/* Memory of a profile table. KYMO_WITH_TABLE, among the fields of KYMO_CONFIG, passes it to the recorder. */
#define KYMO_TABLE(slots_, stacks_, depth_)                                                       \
	KYMO_ASSERT((slots_) >= 3, "slot_count must be at least 3");                              \
	KYMO_ASSERT((stacks_) >= 2 && (stacks_) <= 32, "shadow_stacks must be from 2 to 32");     \
	KYMO_ASSERT((depth_) >= 2 && (depth_) <= 65535, "shadow_depth must be from 2 to 65535");  \
	static kymo_slot_t kymo_table_slots[KYMO_MEMORY(slots_)];                                 \
	static kymo_frame_t kymo_table_frames[KYMO_MEMORY((stacks_) * (depth_))];                 \
	enum { kymo_table_slot_count = (slots_), kymo_table_stacks = (stacks_), kymo_table_depth = (depth_) }

/* Memory of the profile tables of several processors, for KYMO_WITH_TABLE in a kymo_config: slots_ functions for each,
 * and shadow stacks that all share, because threads migrate: one for each processor's interrupts, and threads_ for
 * threads with open calls and (one a processor) code without a thread. The recorder uses two frames of each. Report
 * thread switches before a thread can run elsewhere: while its former processor has its stack, its calls are counted as
 * ones that did not fit (with current_thread alone, up to that processor's next call or kymo_tick()). */
#define KYMO_CPU_TABLE(cpus_, slots_, threads_, depth_)                                           \
	KYMO_ASSERT((slots_) >= 8 && (slots_) % 8 == 0, "slot_count must be a multiple of 8");    \
	KYMO_ASSERT((threads_) >= 1, "shadow_stacks must be at least cpu_count + 1");             \
	KYMO_ASSERT((depth_) >= 3 && (depth_) <= 65535, "shadow_depth must be from 3 to 65535");  \
	static kymo_slot_t kymo_table_slots[(cpus_) * (slots_)] __attribute__((aligned(128)));    \
	static kymo_frame_t kymo_table_frames[((cpus_) + (threads_)) * (depth_)];                 \
	enum { kymo_table_slot_count = (slots_), kymo_table_stacks = (cpus_) + (threads_), kymo_table_depth = (depth_) }

#define KYMO_WITH_TABLE                                                                           \
	.slots = KYMO_GIVEN(kymo_table_slots), .slot_count = kymo_table_slot_count,               \
	.frames = KYMO_GIVEN(kymo_table_frames), .shadow_stacks = kymo_table_stacks,              \
	.shadow_depth = kymo_table_depth

/* Defines kymo_config and its memory, and checks the sizes at compile time. Arguments: the flags, the number of
 * packets, the size of a packet in bytes, the bytes for names, then the other fields (in C++ in the order of their
 * declaration):
 *
 *     KYMO_TABLE(256, 4, 32);
 *     KYMO_CONFIG(KYMO_START_ON, 16, 1024, 1024, KYMO_WITH_TABLE, .clock_hz = 64000000);
 *
 * For one processor. kymo_status() reports errors that only the running program can detect, such as a clock that does
 * not count. */
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
/* On Linux the recorder allocates its memory itself. */
#define KYMO_MEMORY(count_) 1
#define KYMO_GIVEN(memory_) (sizeof(memory_) != 0 ? NULL : NULL)
#else
#define KYMO_MEMORY(count_) (count_)
#define KYMO_GIVEN(memory_) (memory_)
#endif

/* Start of the image in GNU ld's own linker scripts. */
extern const char __executable_start[];
#define KYMO_TEXT_BASE ((const void *)__executable_start)

/* ------------------------------------------------------------------ duration mode
 *
 * Records each call as one record, written when the call returns, if it took at least `threshold`. Short calls leave no
 * record, so that a buffer holds seconds or hours instead of milliseconds. Needs a library built with the part
 * `duration` (cargo xtask lib TARGET --parts duration,...), and memory for a shadow stack per thread:
 *
 *     KYMO_DURATION(4, 32, .threshold = 6400, .flags = KYMO_DURATION_ON);
 *
 * for 4 threads of 31 calls each. (Interrupts use the stack of the thread that they interrupt.) The other fields are
 * optional. All settings may change while the program runs: by the host (`kymo trace --threshold`), by the program, or
 * by a debugger that writes to the symbol kymo_duration. Its changes of flags and of the stop function take effect at
 * the next kymo_tick() after `request` was set to a value other than 0, the others at once. (On several processors
 * threshold and depth need that, too.)
 *
 * kymo_switch() and kymo_switched_in() distinguish threads; kymo_config.current_thread does so as well, with more
 * instructions per call. Promotions are ignored. A call that lasts longer than one wraparound of the counter needs
 * kymo_tick(). For several processors see KYMO_CPU_DURATION. On Linux KYMO_THRESHOLD in the environment is enough. */
#define KYMO_DURATION_ON 1u     /* use duration mode from the start; else the host turns it on */
#define KYMO_DURATION_ON_CPU 2u /* take off the time in which other threads ran; interrupts count (more instructions) */
#define KYMO_DURATION_EVENTS 4u /* record thread switches and interrupts beside the calls */

/* kymo_duration.freeze_on */
#define KYMO_FREEZE_ON_MARKER 1u
#define KYMO_FREEZE_ON_IRQ 2u

/* The contents are private to the recorder. */
typedef struct kymo_open_call {
	uintptr_t reserved[8];
} kymo_open_call_t;

/* Storage in which the settings survive a reboot. Place it and the filter where start-up code does not write. */
typedef struct kymo_duration_retained {
	uintptr_t reserved[12];
} kymo_duration_retained_t;

/* Rule for a function's calls, in force from the first call on, unless settings of the host were kept over a reboot.
 * NULL means all functions. Later rules override earlier ones. */
#define KYMO_RULE_RECORD 0u
#define KYMO_RULE_SKIP 1u  /* not recorded */
#define KYMO_RULE_BELOW 2u /* neither the function nor its callees are recorded */
typedef struct kymo_duration_rule {
	void (*function)(void);
	uint32_t action;
} kymo_duration_rule_t;

typedef struct kymo_duration {
	uintptr_t reserved_running[3];
	uintptr_t threshold; /* ticks of the clock */
	/* Entering this function turns recording off, whatever the threshold: set it to the function in which an error
	 * shows, to keep what came before. With Thumb's lowest bit set, as in the compiler's function pointers. */
	void (*stop_at)(void);
	uintptr_t reserved_stopper;
	uint32_t magic; /* KYMO_DURATION_MAGIC */
	uint32_t flags;
	uint32_t depth; /* the deepest level of calls that is recorded; 0: all */
	/* Filter: two bits per 1 << filter_shift bytes from text_base on, lowest bits of a byte first. 0: calls are
	 * recorded; 1: they are not; 2: neither they nor their callees are. Its size is KYMO_DURATION_FILTER(bytes of
	 * text). NULL: no filter. */
	uint32_t filter_shift;
	uint8_t *filter;
	uint32_t filter_size;
	/* Set to a value other than 0, last, by a debugger that has changed flags or stop_at, or whose changes are to
	 * survive a reboot. 0 again once they are applied; what stops recording is counted anew. */
	volatile uint32_t request;
	uintptr_t reserved_base;
	kymo_duration_retained_t *retained;
	/* A call of `freeze` that took longer than freeze_over ticks (at least the threshold) turns recording off, like
	 * entering stop_at. Both apply only to calls from freeze_from (NULL: from anywhere) and only to the freeze_hit-th
	 * such call since recording was turned on (0: the first); recording then ends after freeze_after more recorded
	 * calls. It ends so freeze_times times at most, though it is turned on again (0: without limit), counted until
	 * events are cleared or the program restarts. */
	void (*freeze)(void);
	uintptr_t freeze_over;
	void (*freeze_from)(void);
	uint32_t freeze_hit, freeze_after;
	/* Turns recording off in the same way at an event: KYMO_FREEZE_ON_MARKER at kymo_marker(freeze_value),
	 * KYMO_FREEZE_ON_IRQ at kymo_isr_enter(freeze_value). 0: none. */
	uint16_t freeze_on, freeze_times;
	uint32_t freeze_value;
	uint32_t reserved_hits[2];
	const kymo_duration_rule_t *rules; /* NULL: none; rules need a filter */
	uint16_t rule_count, reserved_acted;
#if UINTPTR_MAX > 0xFFFFFFFFu
	uint32_t reserved_padding;
#endif
	/* Calls not recorded because their stack was full or no stack was free; exits without an entry, and entries
	 * without an exit. */
	uint32_t too_deep, unmatched;
	kymo_open_call_t *frames;
	uint32_t stacks, stack_depth;
	const void *reserved_running_stack;
	uint32_t reserved_counts[2];
	kymo_open_call_t reserved_frames[2];
} kymo_duration_t;

#define KYMO_DURATION_MAGIC 0x4B794475u

/* The program defines it if it uses duration mode. */
extern kymo_duration_t kymo_duration;

/* Exists only in libraries built with the part `duration`. */
extern const uint8_t kymo_duration_part;

/* Size in bytes of the filter for a text of this many bytes. */
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

/* Duration mode for a program on several processors (AArch64). Each CPU has its own structure and its own stacks; all
 * have the same settings. In C, not C++.
 *
 *     KYMO_CPU_DURATION(8, 4, 32, .threshold = 6400, .flags = KYMO_DURATION_ON);
 *
 * A call during which its thread migrates to another CPU is counted (`unmatched`), not recorded. What stops recording
 * on all CPUs is in the first structure; its threshold, depth, flags and stop_at are applied to all at a kymo_tick()
 * after its `request` was set, once no host reads and no CPU is stopped in a hook. Duration mode is unavailable if the
 * program has a clock of its own (kymo_config.clock), or fewer structures than processors (kymo_config.cpu_count). */
typedef struct kymo_cpu_duration {
	kymo_duration_t *of_cpu;  /* one structure per CPU */
	kymo_open_call_t *frames; /* the frames of all stacks of all CPUs */
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
/* Enable and disable the gate. Events are recorded while the gate is enabled and on. After start it is enabled, and off
 * unless KYMO_START_ON is set. The calls nest: each disable needs an enable. Both work in critical sections. */
void kymo_enable(void);
void kymo_disable(void);

/* Turn recording on and off, without trigger and stopper. */
void kymo_on(void);
void kymo_off(void);

/* Set the functions whose entry turns recording on and whose exit turns it off; NULL for none. They survive a reboot if
 * kymo_config.retained is set. */
void kymo_set_trigger(void (*function)(void));
void kymo_set_stopper(void (*function)(void));

/* Conditions under which trigger and stopper act, in libraries built with the part `conditions` (cargo xtask lib TARGET
 * --parts conditions,...), which the one for Linux has. A function acts only if it is called from code between `from`
 * and `end` (0: from anywhere), from the hit-th such call on (0: the first), and at most `times` times (0: without
 * limit). The trigger is checked while recording is off, the stopper while it is on; recording ends where the call that
 * counts returns. The host sets conditions (`kymo trace --trigger 'parse from main hit 3'`), as may the program, or a
 * debugger that writes to the symbol: each word takes effect at once. Counting restarts when events are cleared, or
 * when a trigger or stopper is set. Conditions that the host sets survive a reboot if kymo_config.retained is set;
 * those that the program or a debugger writes do so only once a trigger or stopper is set after them. */
typedef struct kymo_condition {
	uintptr_t from, end;
	uint32_t hit, times;
	volatile uint32_t hits, acted; /* number of such calls so far; number of times it acted */
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

/* Reports why nothing is recorded. Returns NULL if kymo_config is usable, else the name of the wrong field and the rule
 * that it breaks, such as "packet_size: must be a multiple of 8, from 128 to 524288", and stores the field's value in
 * *value (unless that is NULL). Sets the recorder up if no hook has done so. Call it after RAM is initialized, and with
 * several processors after kymo_cpu_start(). */
const char *kymo_status(uintptr_t *value);

/* Discards the recorded events and the profile table. Does nothing while the host reads a dump or a stream. */
void kymo_clear(void);

/* Counts events that were not recorded and that only the caller knows of (device/c/wrap/pg.c: calls that are too deep),
 * as lost by the calling thread, if recording is on. On Linux, and on one processor. */
void kymo_lost(uint32_t events);

/* ------------------------------------------------------------------ hooks */
/* Called by the compiler with -finstrument-functions. */
void __cyg_profile_func_enter(void *function, void *call_site);
void __cyg_profile_func_exit(void *function, void *call_site);

/* A thread gets, or loses, the processor. */
void kymo_switched_in(uintptr_t thread);
void kymo_switched_out(uintptr_t thread);

/* The processor switches from the running thread to `next`: both in one record, cheaper than the two calls above. */
void kymo_switch(uintptr_t next);

/* A thread has ended, or was deleted. Call it before another one can get its number: frees its shadow stack (profile
 * table, duration mode), and recording no longer waits for it to leave the stopper. Records a marker "thread_ended".
 * (On Linux that is all.) */
void kymo_thread_ended(uintptr_t thread);

/* An interrupt handler begins and ends. Call both also while nothing is recorded: a recording that is turned on within a
 * handler then begins with its isr_enter. (Not for handlers that are only promoted.) `irq` is the architecture's number:
 * on Cortex-M that of the exception (15 = SysTick, 16 = IRQ 0), on Linux the signal. */
void kymo_isr_enter(uint16_t irq);
void kymo_isr_exit(uint16_t irq);

/* Record a marker. `name` must be a string constant: only its address is recorded. */
void kymo_marker(uint32_t value);
void kymo_named_marker(const char *name, uint32_t value);

/* Records the wall-clock time, in nanoseconds since 1970 UTC. A program that knows the time calls it at the start and
 * repeatedly afterwards, so that the host can show dates and correct the clock's drift. (`kymo record` sends the time
 * to a target that does not know it; on Linux the recorder calls this itself.) */
void kymo_wall_clock(uint64_t ns);

/* Records of your own, of any size, written in place: reserve a record, fill it, then commit it with a type that
 * identifies the kind of record (not 0), or discard it. kymo_reserve() returns NULL if nothing is recorded at present,
 * or if there is no room (which is counted). The size is limited to packet_size - 80, and to 65535 bytes: choose
 * packet_size for the largest record (on Linux packets have 4 KiB by default). The record is aligned to 4 bytes, and
 * its initial contents are undefined.
 *
 * Other contexts continue to record meanwhile. A discarded record leaves nothing behind, unless another context has
 * recorded since: then it becomes a record of type 0. Commit soon: a reserved record is never overwritten, so once the
 * buffer has wrapped around to it, new events are discarded (and counted) until you commit; in stream mode the host
 * waits for it, and kymo_clear() does nothing. (On Linux a record reserved by a thread that has exited stays unfinished
 * and counts as lost.) Commit in the context that reserved: the same thread or handler, on the same CPU. */
void *kymo_reserve(size_t size);
void kymo_commit(void *record, uint16_t type);
void kymo_discard(void *record);

/* Set names, once each. NULL: no name. */
void kymo_thread_name(uintptr_t thread, const char *name);
void kymo_isr_name(uint16_t irq, const char *name);

/* Report that setjmp() or longjmp() is about to be called with this buffer, so that the host knows exactly which
 * functions a jump abandons. Do not call them yourself; let the linker insert them. For newlib use
 *     -Wl,--wrap=setjmp,-u,setjmp,--wrap=longjmp,-u,longjmp
 * and for glibc, whose headers use other names, the same two options for each of _setjmp, __sigsetjmp, longjmp,
 * siglongjmp and __longjmp_chk (and for setjmp and _longjmp, if a program uses those names itself). -u pulls in the
 * real function, to which no other reference remains. Without these options a jump is noticed only when a function
 * further out returns, and the exits in between may be attributed to the wrong function; given the ELF file, kymo warns
 * of that. */
void kymo_setjmp(const void *buffer);
void kymo_longjmp(const void *buffer);

/* Records a change of the current thread's priority and mode. */
void kymo_context(uintptr_t thread, int16_t priority, uint16_t mode);

/* Extends the clock beyond the counter's width, and closes packets that a stream has to send. Call it at least four
 * times per wraparound of the counter. If a call came so late that a wraparound may have been missed, the trace says so
 * (and `status` counts it: clock_gaps). If the counter is the tick's own timer (SysTick as both), call it first in the
 * handler: each call then stands for one wraparound.
 *
 * It also ends a dump whose host has been silent for five seconds, so that recording continues even if kymo_link_poll()
 * is called only when bytes arrive. (On Linux there is no tick: the first hook after that time ends it.) */
void kymo_tick(void);

/* ------------------------------------------------------------------ link */
/* Takes a byte that arrived from the host, and only stores it. Callable from any context, but not from two at once. */
void kymo_link_receive(uint8_t byte);

/* Executes the host's commands, until none is pending, or until 64 pieces of 240 bytes of a stream have been sent. Call
 * it from a context that may wait for kymo_config.send. */
void kymo_link_poll(void);

/* Returns whether kymo_link_poll() has work: a program whose link thread sleeps calls this in its tick to wake it. */
bool kymo_link_pending(void);

/* ------------------------------------------------------------------ console */
#if !defined(KYMO_LINUX) && !defined(__aarch64__)
/* Writes the whole recording to `put`, as lines of text for a console. For the point where the program dies (a fault
 * handler, an assertion, a watchdog's warning), or for a program without a link. `kymo show LOG` finds the lines in any
 * log that contains them. Nothing is recorded meanwhile. Callable from any context; the text has 1.8 characters per
 * byte of the recording. Returns false, and writes nothing, if nothing can have been recorded, or if the caller
 * interrupted the recorder itself (the fault occurred in `clock` or `current_thread`): read the memory with a debugger
 * then. On a Cortex-M it takes 1.5 KiB of stack in addition to the needs of `put`. */
bool kymo_dump_text(void (*put)(const char *text, size_t length));

/* Does the same with one line per record that a person can read: time, thread, entry (>) or exit (<) and the function's
 * address, markers. For when there is no tool: addr2line -f -e ELF ADDRESS names a function. 40 characters each. */
bool kymo_dump_lines(void (*put)(const char *text, size_t length));

/* Does the same as kymo_dump_text() with what RAM still holds of the recording after a reset: by a watchdog, or of a
 * program that died without a message. Call it first in start-up code, before .data is copied and .bss is cleared;
 * `put` must use neither, and must not call instrumented functions. Inconsistent packets are refused and counted;
 * without checksums (kymo_sums.h) a damaged value is not noticed, and the text says that packets are unverified. Calls
 * of duration mode that had not ended are missing. Returns false if RAM holds no recording (as after power-on). */
bool kymo_dump_survivors(void (*put)(const char *text, size_t length));
#endif

/* ------------------------------------------------------------------ several processors */
#if defined(__aarch64__) && !defined(KYMO_LINUX)
/* Registers the calling CPU as `number` (0 to cpu_count - 1): from then on the recorder records its events. Each CPU
 * calls it once, after caches are on and before the first function to be recorded; the first call sets the recorder up.
 * TPIDR_EL1 must be 0 from reset until then, which is the task of start-up code (not instrumented); afterwards the
 * register belongs to the recorder. (A library built with the option tpidrro_el0 or tpidr_el0 uses that register
 * instead.) Returns false if there is no buffer for the CPU, or if the configuration is wrong (`status` says how). Each
 * CPU calls kymo_tick() for itself. */
bool kymo_cpu_start(uint16_t number);
#endif

/* ------------------------------------------------------------------ minimal recorder
 *
 * libkymo_minimal.a, for a Cortex-M with little flash, has only the compiler's hooks, kymo_on(), kymo_off() and
 * kymo_tick(). It uses these fields of kymo_config: version, flags (KYMO_START_ON, KYMO_FIXED), buffer, buffer_size,
 * packet_size, text_base, function_shift and counter (NULL: DWT_CYCCNT). If they are unusable, nothing is recorded. It
 * does not detect ticks that come too late. After kymo_off() every packet in the buffer records its own length. Call
 * these three functions only after RAM is initialized. */

/* ------------------------------------------------------------------ Linux */
#ifdef KYMO_LINUX
/* For code that calls hooks only while they are needed (device/c/wrap/patchable.c): calls `follower` now, and whenever
 * that may have changed, with whether recording is on or a trigger is awaited. `follower` may use nothing but system
 * calls, because a hook or a signal handler may call it. Returns false, and calls it once with true, if there are more
 * than 16 of them. kymo_unfollow() reverts it, and returns when no other thread runs `follower` any more, so that its
 * code can be unloaded. */
bool kymo_follow(void (*follower)(bool needed));
void kymo_unfollow(void (*follower)(bool needed));

/* Keeps the recordings of this many threads that have exited (default: 1024). Beyond that a new thread reuses the
 * memory of the thread that exited first, and overwrites it packet by packet. Not in stream mode, where a thread's
 * memory is released once the host has received all of it. */
#define KYMO_ENDED_THREADS(threads_)                                                              \
	extern const uint32_t kymo_ended_threads;                                                 \
	const uint32_t kymo_ended_threads = (threads_)

/* Writes the whole recording, packets unchanged, to `path`: one file that `kymo show`, `kymo export` and the other
 * subcommands read. Returns 0, or -1 with errno. Runs by itself at exit if the environment variable KYMO_OUTPUT names a
 * file, which holds the recording even if a signal, _exit() or exec ends the program (book/linux.md). A forked child
 * has its own file. EFAULT if `path` is NULL; EBUSY if a dump or a stream is in progress, or if a thread's recording is
 * missing in the file because the thread did not leave its hook for ten seconds (as after a siglongjmp out of a signal
 * handler that interrupted a hook, until the recorder notices that at a later call; that event counts as lost). */
int kymo_save(const char *path);
#endif

#ifdef __cplusplus
}
#endif

#endif
