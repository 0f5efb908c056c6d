/* Checksums of the packets in RAM, for what a reset leaves of a recording (kymo_dump_survivors() in kymo.h).
 *
 * Without them the firmware can detect that a packet's header, sizes or times are damaged, but not a damaged value, and
 * the dump says that its packets are not verified. With them a packet that changed is refused, and counted.
 *
 * Needs a library built with the part `sums` (cargo xtask lib TARGET --parts sums,...), for one processor with 32 bits.
 * Beside KYMO_CONFIG, with the same number of packets:
 *
 *     KYMO_SUMS(8);
 *
 * takes 8 bytes per packet. The checksum of a packet is computed by the hook that began the next one, with interrupts enabled: about two
 * instructions per byte of the packet. The newest packet has none, and neither has one in which a record was still
 * being filled (kymo_reserve()) when it was closed. */
#ifndef KYMO_SUMS_H
#define KYMO_SUMS_H

#include "kymo.h"

/* The contents are private to the recorder. */
typedef struct kymo_packet_sum {
	uint32_t reserved[2];
} kymo_packet_sum_t;

/* The program defines them if its packets have checksums. */
extern kymo_packet_sum_t kymo_sums[];
extern const uint32_t kymo_sum_count;

/* Exists only in libraries built with the part `sums`. */
extern const uint8_t kymo_sums_part;

#define KYMO_SUMS(packets_)                                                                       \
	const void *const kymo_sums_needs = &kymo_sums_part;                                      \
	const uint32_t kymo_sum_count = (packets_);                                               \
	kymo_packet_sum_t kymo_sums[(packets_)]

#endif
