/* Decoder for Arm CoreSight hardware trace, for C and C++: libkymo_coresight.
 *
 * A trace is opened from a file, or built from a buffer, its sources (trace units) and the memory that their cores ran.
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
    KYMO_CORESIGHT_TPIU = 2,        /* what a trace port emits: frames among synchronization words */
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

/* Memory spaces, to be combined; 0 is all of them. */
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
    KYMO_CORESIGHT_NO_SYNC = 0,        /* nothing is known until the next synchronization; number: why */
    KYMO_CORESIGHT_TRACE_ON = 1,       /* tracing begins; number: 0 normal, 1 after an overflow, 2 after debug state */
    KYMO_CORESIGHT_END = 2,            /* of the trace; number: why */
    KYMO_CORESIGHT_CONTEXT = 3,        /* level, security, isa, context_id, vmid */
    KYMO_CORESIGHT_RANGE = 4,          /* start, end, count, isa, flags, cycles */
    KYMO_CORESIGHT_RANGE_NO_PATH = 5,  /* start, end (where it goes on), count (0: unknown) */
    KYMO_CORESIGHT_NOT_ACCESSIBLE = 6, /* start, of code that no memory has; space */
    KYMO_CORESIGHT_ADDRESS_UNKNOWN = 7,
    KYMO_CORESIGHT_EXCEPTION = 8,      /* number; start: preferred return address, with KYMO_CORESIGHT_HAS_ADDRESS */
    KYMO_CORESIGHT_EXCEPTION_RETURN = 9,
    KYMO_CORESIGHT_TIMESTAMP = 10,     /* value, cycles */
    KYMO_CORESIGHT_CYCLES = 11,        /* cycles */
    KYMO_CORESIGHT_EVENT = 12,         /* number; -1: the trigger */
    KYMO_CORESIGHT_TIMESTAMP_MARKER = 13,
    KYMO_CORESIGHT_TRANSACTION = 14,   /* number: 0 under way, 1 start, 2 commit, 3 fail */
    KYMO_CORESIGHT_INSTRUMENTATION = 15, /* level, value */
    /* ETMv4: conditional instructions that are no branches; value: the key that instruction and result have in common */
    KYMO_CORESIGHT_CONDITIONAL_INSTRUCTION = 16,
    KYMO_CORESIGHT_CONDITIONAL_RESULT = 17, /* number: 0 failed, 1 passed, 2 unknown, 0x10 | NZCV */
    KYMO_CORESIGHT_CONDITIONAL_FLUSH = 18,
    /* ETMv3: loads and stores, as far as they are traced */
    KYMO_CORESIGHT_DATA = 19,            /* start: address, with HAS_ADDRESS; value, with HAS_VALUE */
    KYMO_CORESIGHT_STORE_FAILED = 20,
    KYMO_CORESIGHT_DATA_SUPPRESSED = 21, /* left out by the trace unit */
    /* STM: number: master << 16 | channel; value, and in count its bits; start: timestamp, with HAS_TIMESTAMP */
    KYMO_CORESIGHT_STM_DATA = 22,
    KYMO_CORESIGHT_STM_MARKER = 23,      /* data that is marked, or without bits a flag */
    KYMO_CORESIGHT_STM_TRIGGER = 24,
    KYMO_CORESIGHT_STM_FREQUENCY = 25,   /* value: Hz */
    KYMO_CORESIGHT_STM_ERROR = 26,       /* messages are lost */
    /* ITM: value, and in count its bits */
    KYMO_CORESIGHT_ITM_SOFTWARE = 27,    /* number: stimulus port */
    KYMO_CORESIGHT_ITM_HARDWARE = 28,    /* number: discriminator of the DWT's packet */
    KYMO_CORESIGHT_ITM_LOCAL_TIME = 29,  /* number: how it is delayed; value: ticks since the beginning or a loss */
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
    KYMO_CORESIGHT_PARTIAL = 9,   /* the recorder reports gaps in the trace before */
    KYMO_CORESIGHT_COLLISION = 10, /* another user of the trace unit has the missing trace */
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
    KYMO_CORESIGHT_TAKEN = 1 << 0,       /* it executed; for a branch: was taken */
    KYMO_CORESIGHT_CONDITIONAL = 1 << 1, /* on a condition */
    KYMO_CORESIGHT_BRANCH = 1 << 2,      /* direct or indirect */
    KYMO_CORESIGHT_INDIRECT = 1 << 3,    /* its target is in a register or in memory */
    KYMO_CORESIGHT_CALL = 1 << 4,
    KYMO_CORESIGHT_RETURN = 1 << 5,      /* from a call or from an exception */
    KYMO_CORESIGHT_HAS_ADDRESS = 1 << 6,
    KYMO_CORESIGHT_HAS_CYCLES = 1 << 7,
    KYMO_CORESIGHT_HAS_CONTEXT_ID = 1 << 8,
    KYMO_CORESIGHT_HAS_VMID = 1 << 9,
    KYMO_CORESIGHT_HAS_LEVEL = 1 << 10,
    KYMO_CORESIGHT_HAS_VALUE = 1 << 11,     /* of data */
    KYMO_CORESIGHT_HAS_TIMESTAMP = 1 << 12, /* of a message of an STM: in `start` */
};

typedef struct {
    uint64_t offset;   /* of the packet that it comes from, in its buffer */
    uint64_t start;    /* address of the first instruction */
    uint64_t end;      /* address behind the last one */
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
    uint64_t offset;      /* of its first byte, in its buffer */
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
    uint64_t taken;    /* how often its last instruction, if a branch, was taken */
    uint32_t count;    /* instructions */
    uint32_t thread;   /* whose context ID the trace had; 0 if none */
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
    uint64_t without_path;   /* instructions of which only the number is known */
    uint64_t not_accessible; /* times that execution went where no memory has the code */
    uint64_t unsynced;       /* times that trace was lost: overflow, wrong packet, code that does not fit */
} kymo_coresight_totals;

/* Callbacks return 0 to continue, any other value to stop. */
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

/* Adds memory to the cores of all sources: `size` bytes, which are copied. At an address in several parts, the part
 * added first wins. */
int kymo_coresight_add_memory(kymo_coresight *trace, uint64_t address, const uint8_t *bytes, size_t size, uint8_t space);

/* Adds memory from a file: `size` bytes from `offset` on, or up to the end of a shorter file. */
int kymo_coresight_add_file(kymo_coresight *trace, uint64_t address, const char *path, uint64_t offset, uint64_t size,
                            uint8_t space);

/* Returns the number of buffers of the trace. */
size_t kymo_coresight_buffers(const kymo_coresight *trace);

/* Number and names of files that the trace names and that were not found. The name after the last one is NULL. */
size_t kymo_coresight_missing(const kymo_coresight *trace);
const char *kymo_coresight_missing_file(const kymo_coresight *trace, size_t index);

/* Number and texts of the warnings of `kymo`: missing files with their builds, bytes of trace IDs without a source,
 * images that differ. After kymo_coresight_elements and kymo_coresight_runs, also their warnings: execution where no
 * file is, lost trace, code that does not match the trace; after these and kymo_coresight_packets, damage and losses of
 * an STM or ITM. A text is valid until another function of the trace is called; the text after the last one is NULL. */
size_t kymo_coresight_warnings(const kymo_coresight *trace);
const char *kymo_coresight_warning(const kymo_coresight *trace, size_t index);

/* Calls `on_packet` for all packets, in the order of their last bytes in the buffers. */
int kymo_coresight_packets(const kymo_coresight *trace, kymo_coresight_on_packet on_packet, void *user);

/* Decodes the trace and calls `on_element` for all elements, in the order of their packets in the buffers. */
int kymo_coresight_elements(const kymo_coresight *trace, kymo_coresight_on_element on_element, void *user);

/* Counts the executions of each straight run, on at most `threads` threads. This is the fastest way to decode a trace.
 * Runs are sorted by address. `on_run` and `totals` may be NULL. */
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
