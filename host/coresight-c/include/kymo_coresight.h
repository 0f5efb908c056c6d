/* Decoder for Arm CoreSight hardware trace, for C and C++: libkymo_coresight.
 *
 * A trace is opened from a file, or built from a buffer, its sources (trace units) and the code memory of their cores.
 * Callbacks receive its packets, its elements (ranges of executed instructions, exceptions, times), or the execution
 * count of each straight run of instructions.
 *
 * A trace may be used by one thread at a time. Functions that return int return 0, or -1 if they failed;
 * kymo_coresight_error returns the reason. Structs grow only at their end.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef KYMO_CORESIGHT_H
#define KYMO_CORESIGHT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A trace with its sources and their memory. */
typedef struct kymo_coresight kymo_coresight;

/* Layout of a buffer. */
enum {
    KYMO_CORESIGHT_UNFORMATTED = 0, /* bytes of one source, without frames (TRBE) */
    KYMO_CORESIGHT_MEMORY = 1,      /* frames from the first byte on (ETB, ETF, ETR) */
    KYMO_CORESIGHT_TPIU = 2,        /* output of a trace port: frames and synchronization words */
    KYMO_CORESIGHT_DSTREAM = 3,     /* blocks of a DSTREAM probe */
};

/* Protocol of a source. */
enum {
    KYMO_CORESIGHT_ETMV4 = 0,
    KYMO_CORESIGHT_ETE = 1,
    KYMO_CORESIGHT_ETMV3 = 2,
    KYMO_CORESIGHT_PTM = 3,
    KYMO_CORESIGHT_STM = 4,
    KYMO_CORESIGHT_ITM = 5,
};

/* Source of trace. Registers, in this order; unused ones are 0:
 *   ETMv4, ETE: TRCCONFIGR, TRCTRACEIDR, TRCIDR0, TRCIDR1, TRCIDR2, TRCIDR8, TRCDEVARCH (ETE)
 *   ETMv3, PTM: ETMCR, ETMTRACEIDR, ETMIDR, ETMCCER
 *   STM, ITM:   trace ID
 */
typedef struct {
    uint32_t protocol;
    uint32_t is_m_profile; /* 1 if the core is a Cortex-M or another of the M profile */
    uint32_t registers[7];
} kymo_coresight_source;

/* Memory spaces, which can be combined; 0 means all of them. */
enum {
    KYMO_CORESIGHT_EL1S = 0x01,
    KYMO_CORESIGHT_EL1N = 0x02,
    KYMO_CORESIGHT_EL2N = 0x04,
    KYMO_CORESIGHT_EL3 = 0x08,
    KYMO_CORESIGHT_EL2S = 0x10,
    KYMO_CORESIGHT_EL1R = 0x20,
    KYMO_CORESIGHT_EL2R = 0x40,
    KYMO_CORESIGHT_ROOT = 0x80,
};

/* Kinds of elements, each with the fields that are valid besides `buffer`, `trace_id` and `offset`. */
enum {
    KYMO_CORESIGHT_NO_SYNC = 0,        /* nothing is known until the next synchronization; number: the reason */
    KYMO_CORESIGHT_TRACE_ON = 1,       /* tracing begins; number: 0 normal, 1 overflow, 2 debug state; cycles */
    KYMO_CORESIGHT_END = 2,            /* end of the trace; number: the reason */
    KYMO_CORESIGHT_CONTEXT = 3,        /* level, security, isa, context_id, vmid, cycles */
    KYMO_CORESIGHT_RANGE = 4,          /* start, end, count, isa, flags, cycles */
    KYMO_CORESIGHT_RANGE_NO_PATH = 5,  /* start, end (where execution continues), count (0: unknown) */
    KYMO_CORESIGHT_NOT_ACCESSIBLE = 6, /* start: address without memory; space */
    KYMO_CORESIGHT_ADDRESS_UNKNOWN = 7,
    KYMO_CORESIGHT_EXCEPTION = 8,      /* number; start: preferred return address, with KYMO_CORESIGHT_HAS_ADDRESS */
    KYMO_CORESIGHT_EXCEPTION_RETURN = 9,
    KYMO_CORESIGHT_TIMESTAMP = 10,     /* value, cycles */
    KYMO_CORESIGHT_CYCLES = 11,        /* cycles */
    KYMO_CORESIGHT_EVENT = 12,         /* number; -1: the trigger */
    KYMO_CORESIGHT_TIMESTAMP_MARKER = 13,
    KYMO_CORESIGHT_TRANSACTION = 14,   /* number: 0 in progress, 1 start, 2 commit, 3 fail */
    KYMO_CORESIGHT_INSTRUMENTATION = 15, /* level, value */
    /* ETMv4: conditional instructions other than branches; value: the key that relates instruction and result */
    KYMO_CORESIGHT_CONDITIONAL_INSTRUCTION = 16,
    KYMO_CORESIGHT_CONDITIONAL_RESULT = 17, /* number: 0 failed, 1 passed, 2 unknown, 0x10 | NZCV */
    KYMO_CORESIGHT_CONDITIONAL_FLUSH = 18,
    /* ETMv3: traced loads and stores */
    KYMO_CORESIGHT_DATA = 19,            /* start: address, with HAS_ADDRESS; value, with HAS_VALUE */
    KYMO_CORESIGHT_STORE_FAILED = 20,
    KYMO_CORESIGHT_DATA_SUPPRESSED = 21, /* omitted by the trace unit */
    /* STM: number: master << 16 | channel; value; count: its size in bits; start: timestamp, with HAS_TIMESTAMP */
    KYMO_CORESIGHT_STM_DATA = 22,
    KYMO_CORESIGHT_STM_MARKER = 23,      /* data with a marker, or a flag if its size is 0 */
    KYMO_CORESIGHT_STM_TRIGGER = 24,
    KYMO_CORESIGHT_STM_FREQUENCY = 25,   /* value: Hz */
    KYMO_CORESIGHT_STM_ERROR = 26,       /* messages are lost */
    /* ITM: value; count: its size in bits */
    KYMO_CORESIGHT_ITM_SOFTWARE = 27,    /* number: stimulus port */
    KYMO_CORESIGHT_ITM_HARDWARE = 28,    /* number: discriminator of the DWT's packet */
    KYMO_CORESIGHT_ITM_LOCAL_TIME = 29,  /* number: kind of delay; value: ticks since the beginning or the last loss */
    KYMO_CORESIGHT_ITM_GLOBAL_TIME = 30, /* value */
};

/* Reasons for the loss of synchronization. */
enum {
    KYMO_CORESIGHT_INIT = 0,
    KYMO_CORESIGHT_RESET = 1,
    KYMO_CORESIGHT_OVERFLOW = 2,
    KYMO_CORESIGHT_DISCARD = 3,
    KYMO_CORESIGHT_BAD_PACKET = 4,
    KYMO_CORESIGHT_BAD_IMAGE = 5,
    KYMO_CORESIGHT_BAD_OPCODE = 6,
    KYMO_CORESIGHT_END_OF_TRACE = 7,
    KYMO_CORESIGHT_TRUNCATED = 8, /* the recorder's buffer was full */
    KYMO_CORESIGHT_PARTIAL = 9,   /* the recorder reports gaps in the trace before this */
    KYMO_CORESIGHT_COLLISION = 10, /* another user of the trace unit received the missing trace */
};

/* Instruction sets. */
enum {
    KYMO_CORESIGHT_A32 = 0,
    KYMO_CORESIGHT_T32 = 1,
    KYMO_CORESIGHT_A64 = 2,
    KYMO_CORESIGHT_THUMBEE = 3,
    KYMO_CORESIGHT_JAZELLE = 4,
    KYMO_CORESIGHT_ISA_UNKNOWN = 5,
};

/* Flags of elements. The first six describe the last instruction of a range. */
enum {
    KYMO_CORESIGHT_TAKEN = 1 << 0,       /* it was executed; a branch: it was taken */
    KYMO_CORESIGHT_CONDITIONAL = 1 << 1, /* it is conditional */
    KYMO_CORESIGHT_BRANCH = 1 << 2,      /* direct or indirect */
    KYMO_CORESIGHT_INDIRECT = 1 << 3,    /* its target is in a register or in memory */
    KYMO_CORESIGHT_CALL = 1 << 4,
    KYMO_CORESIGHT_RETURN = 1 << 5,      /* from a call or an exception */
    KYMO_CORESIGHT_HAS_ADDRESS = 1 << 6,
    KYMO_CORESIGHT_HAS_CYCLES = 1 << 7,
    KYMO_CORESIGHT_HAS_CONTEXT_ID = 1 << 8,
    KYMO_CORESIGHT_HAS_VMID = 1 << 9,
    KYMO_CORESIGHT_HAS_LEVEL = 1 << 10,
    KYMO_CORESIGHT_HAS_VALUE = 1 << 11,     /* data: `value` is valid */
    KYMO_CORESIGHT_HAS_TIMESTAMP = 1 << 12, /* STM message: `start` is its timestamp */
};

typedef struct {
    uint64_t offset;   /* offset of its packet in the buffer */
    uint64_t start;    /* address of the first instruction */
    uint64_t end;      /* address after the last instruction */
    uint64_t value;
    uint32_t buffer;   /* number of the buffer, from 0 */
    uint32_t count;    /* instructions */
    int32_t number;
    uint32_t cycles;   /* since the last count, with KYMO_CORESIGHT_HAS_CYCLES */
    uint32_t context_id;
    uint32_t vmid;
    uint32_t flags;
    uint8_t kind;
    uint8_t trace_id;
    uint8_t isa;
    uint8_t level;     /* exception level */
    uint8_t security;  /* 0 secure, 1 non-secure, 2 root, 3 realm */
    uint8_t space;
    uint8_t last_size; /* bytes of the last instruction of a range */
    uint8_t reserved;
} kymo_coresight_element;

/* Packet. */
typedef struct {
    uint64_t offset;      /* offset of its first byte in the buffer */
    const uint8_t *bytes; /* valid during the callback, as is the text */
    size_t size;
    const char *text;     /* name and meaning, as trc_pkt_lister prints them */
    uint32_t buffer;
    uint8_t trace_id;
    uint8_t reserved[3];
} kymo_coresight_packet;

/* Straight run of instructions with its execution count. */
typedef struct {
    uint64_t start;
    uint64_t end;
    uint64_t executions;
    uint64_t taken;    /* number of times that its last instruction was taken, if that is a branch */
    uint32_t count;    /* instructions */
    uint32_t thread;   /* context ID in the trace; 0 if there was none */
    uint8_t isa;
    uint8_t last_size;
    uint8_t reserved[6];
} kymo_coresight_run;

/* Totals of all sources, and of lost trace. */
typedef struct {
    uint64_t packets;
    uint64_t ranges;
    uint64_t instructions;
    uint64_t exceptions;
    uint64_t without_path;   /* instructions whose addresses are not known, only their number */
    uint64_t not_accessible; /* number of times that execution reached an address without memory */
    uint64_t unsynced;       /* number of losses of trace: overflow, invalid packet, code that does not match */
} kymo_coresight_totals;

/* Callbacks return 0 to continue, any other value to stop. They may call other functions of the same trace, except those
 * that change it: kymo_coresight_add_source, kymo_coresight_add_memory, kymo_coresight_add_file and kymo_coresight_free. */
typedef int (*kymo_coresight_on_element)(void *user, const kymo_coresight_element *element);
typedef int (*kymo_coresight_on_packet)(void *user, const kymo_coresight_packet *packet);
typedef int (*kymo_coresight_on_run)(void *user, const kymo_coresight_run *run);

/* Opens a snapshot directory (with a snapshot.ini) or a perf.data file. `root` is the directory that contains the files
 * mapped by a perf.data file; NULL is "/". Returns NULL if the input cannot be read. */
kymo_coresight *kymo_coresight_open(const char *path, const char *root);

/* Creates a trace of `size` bytes, which are copied. Add sources next, then their memory. Returns NULL if `layout` is
 * invalid. */
kymo_coresight *kymo_coresight_of_bytes(const uint8_t *bytes, size_t size, uint32_t layout);

/* Adds a source to all buffers. */
int kymo_coresight_add_source(kymo_coresight *trace, const kymo_coresight_source *source);

/* Adds memory to the cores of all sources: `size` bytes, which are copied. If parts overlap, the one with the highest
 * start address is used; of parts with the same start address, the one added first. */
int kymo_coresight_add_memory(kymo_coresight *trace, uint64_t address, const uint8_t *bytes, size_t size, uint8_t space);

/* Adds memory from a file: `size` bytes from `offset` on, or up to the end of a shorter file. */
int kymo_coresight_add_file(kymo_coresight *trace, uint64_t address, const char *path, uint64_t offset, uint64_t size,
                            uint8_t space);

/* Returns the number of buffers of the trace. */
size_t kymo_coresight_buffers(const kymo_coresight *trace);

/* Number and names of the files mapped in a perf.data recording that were not found; for a snapshot directory, error
 * messages for the parts that could not be read. The text after the last one is NULL. */
size_t kymo_coresight_missing(const kymo_coresight *trace);
const char *kymo_coresight_missing_file(const kymo_coresight *trace, size_t index);

/* Number and texts of the warnings of `kymo`: missing files with their builds, bytes of trace IDs without a source,
 * images that differ. After kymo_coresight_elements and kymo_coresight_runs, also their warnings: execution at
 * addresses without a file, lost trace, code that does not match the trace; after these and kymo_coresight_packets,
 * damage and losses of an STM or ITM. A text is valid until another function of the trace is called; the text after
 * the last one is NULL. */
size_t kymo_coresight_warnings(const kymo_coresight *trace);
const char *kymo_coresight_warning(const kymo_coresight *trace, size_t index);

/* Calls `on_packet` for all packets, in the order of their last bytes in the buffers. */
int kymo_coresight_packets(const kymo_coresight *trace, kymo_coresight_on_packet on_packet, void *user);

/* Decodes the trace and calls `on_element` for all elements, in the order of their packets in the buffers. */
int kymo_coresight_elements(const kymo_coresight *trace, kymo_coresight_on_element on_element, void *user);

/* Counts the executions of each straight run, on at most `threads` threads. This is the fastest way to decode a trace.
 * Runs are sorted by thread and memory map, then by address. `on_run` and `totals` may be NULL. */
int kymo_coresight_runs(const kymo_coresight *trace, unsigned threads, kymo_coresight_on_run on_run, void *user,
                        kymo_coresight_totals *totals);

/* Frees a trace; NULL is allowed. */
void kymo_coresight_free(kymo_coresight *trace);

/* Error of the last failed call of this thread; valid until the next failed call. */
const char *kymo_coresight_error(void);

#ifdef __cplusplus
}
#endif
#endif
