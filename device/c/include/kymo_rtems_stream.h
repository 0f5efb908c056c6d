/* RTEMS's record stream, version 10, made of Kymo's items (kymo_items.h, kymo_rtems.h). For RTEMS's own client,
 * rtems-record-lttng, and other readers of such streams. `kymo` reads it as well, but does not need it: it receives the
 * items with the rest of the trace.
 *
 * A server sends the stream to each client, without end:
 *
 *     static kymo_rtems_stream_t stream;
 *
 *     kymo_rtems_stream_begin(&stream, send, NULL, CLOCK_HZ);      when the client has connected
 *     kymo_rtems_stream_go_on(&stream);                            repeatedly, from one context
 *
 * `send` receives a few bytes at a time, and must wait until there is room for them: a stream with missing bytes cannot
 * be read. Items are lost meanwhile if their ring is full, and the stream reports that.
 *
 *     rtems-record-lttng -H 192.0.2.1 -p 1234 -o DIRECTORY
 *
 * A fatal-error handler writes all items to the console, in a block of base64 that RTEMS's client (-t -b) and `kymo`
 * find in a log:
 *
 *     kymo_rtems_dump_base64(send, NULL, CLOCK_HZ);
 *
 * For one processor; on Linux the items are those of the calling thread. Timestamps count from the clock's value 0. */
#ifndef KYMO_RTEMS_STREAM_H
#define KYMO_RTEMS_STREAM_H

#include "kymo_items.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__aarch64__) && !defined(KYMO_LINUX)
#error "kymo_rtems_stream.h is for one processor, and for Linux"
#endif

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define KYMO_RTEMS_FORMAT (sizeof(uintptr_t) == 4 ? 0x33333333u : 0x44444444u)
#else
#define KYMO_RTEMS_FORMAT (sizeof(uintptr_t) == 4 ? 0x11111111u : 0x22222222u)
#endif

/* Sends all of the bytes. */
typedef void (*kymo_rtems_send_t)(const void *bytes, size_t count, void *argument);

typedef struct kymo_rtems_stream {
	kymo_rtems_send_t send;
	void *argument;
	uint64_t hz;
	uint64_t last;   /* timestamp of the last item, in ticks */
	uint64_t synced; /* timestamp of the last pair of uptime items */
	bool is_synced;
	kymo_items_cursor_t cursor;
} kymo_rtems_stream_t;

/* Sends an item with the lower 22 bits of its timestamp. */
KYMO_SYSTEM void kymo_rtems_stream_item(const kymo_rtems_stream_t *stream, uint32_t id, uint64_t time, uintptr_t data)
{
	uint32_t time_event = (uint32_t)time << 10 | (id & 1023);

	stream->send(&time_event, sizeof time_event, stream->argument);
	stream->send(&data, sizeof data, stream->argument);
}

/* Sends the header that a client needs before all items. The stream begins with the oldest item in the ring. */
KYMO_SYSTEM void kymo_rtems_stream_begin(kymo_rtems_stream_t *stream, kymo_rtems_send_t send, void *argument, uint64_t hz)
{
	static const kymo_items_cursor_t oldest;
	const uint32_t begin[2] = {KYMO_RTEMS_FORMAT, 0x82e14ec1u};

	stream->send = send;
	stream->argument = argument;
	stream->hz = hz;
	stream->last = stream->synced = 0;
	stream->is_synced = false;
	stream->cursor = oldest;
	send(begin, sizeof begin, argument);
	kymo_rtems_stream_item(stream, KYMO_ITEM_VERSION, 0, 10);
	kymo_rtems_stream_item(stream, KYMO_ITEM_PROCESSOR_MAXIMUM, 0, 0);
	kymo_rtems_stream_item(stream, KYMO_ITEM_PER_CPU_COUNT, 0, KYMO_ITEMS_AT_ONCE);
	kymo_rtems_stream_item(stream, KYMO_ITEM_FREQUENCY, 0, (uintptr_t)hz);
}

/* Names a thread, before its items are sent. `id` is the value in THREAD_SWITCH_IN; the name has at most 31 bytes. */
KYMO_SYSTEM void kymo_rtems_stream_thread(const kymo_rtems_stream_t *stream, uintptr_t id, const char *name)
{
	kymo_rtems_stream_item(stream, KYMO_ITEM_THREAD_ID, 0, id);
	for (size_t at = 0; at < 31 && name[at] != 0;) {
		uintptr_t word = 0;

		for (size_t n = 0; n < sizeof word && at < 31 && name[at] != 0; n++)
			word |= (uintptr_t)(unsigned char)name[at++] << 8 * n;
		kymo_rtems_stream_item(stream, KYMO_ITEM_THREAD_NAME, 0, word);
	}
}

/* Sends the full timestamp, if the item's 22 bits are ambiguous, or half a second after the last one. */
KYMO_SYSTEM void kymo_rtems_stream_time(kymo_rtems_stream_t *stream, uint64_t time)
{
	uint64_t seconds = time / stream->hz;

	if (!stream->is_synced || time - stream->last >= 1u << 21 || time - stream->synced >= stream->hz / 2) {
		uint64_t fraction = ((time - seconds * stream->hz) << 32) / stream->hz;

		kymo_rtems_stream_item(stream, KYMO_ITEM_UPTIME_LOW, time, (uintptr_t)fraction);
		kymo_rtems_stream_item(stream, KYMO_ITEM_UPTIME_HIGH, time, (uintptr_t)seconds);
		stream->is_synced = true;
		stream->synced = time;
	}
	stream->last = time;
}

/* Sends the items produced since the last call. Returns false if there are no more at present. */
KYMO_SYSTEM bool kymo_rtems_stream_go_on(kymo_rtems_stream_t *stream)
{
	kymo_timed_item_t items[8];
	kymo_drained_t drained = kymo_items_drain(&stream->cursor, items, sizeof items / sizeof items[0]);

	if (drained.count != 0 || drained.lost != 0)
		kymo_rtems_stream_item(stream, KYMO_ITEM_PROCESSOR, 0, 0);
	if (drained.lost != 0) {
		kymo_rtems_stream_item(stream, KYMO_ITEM_PER_CPU_OVERFLOW, 0, drained.lost);
		stream->is_synced = false;
	}
	for (size_t n = 0; n < drained.count; n++) {
		kymo_rtems_stream_time(stream, items[n].time);
		kymo_rtems_stream_item(stream, items[n].id, items[n].time, items[n].data);
	}
	return drained.more;
}

/* Encodes the sent bytes as base64, in lines. */
typedef struct kymo_rtems_base64 {
	kymo_rtems_send_t send;
	void *argument;
	uint8_t bytes[57];
	size_t count;
} kymo_rtems_base64_t;

KYMO_SYSTEM void kymo_rtems_base64_line(kymo_rtems_base64_t *base64)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	char line[77];
	size_t length = 0;

	for (size_t at = 0; at < base64->count; at += 3) {
		size_t rest = base64->count - at;
		uint32_t three = (uint32_t)base64->bytes[at] << 16;

		if (rest > 1)
			three |= (uint32_t)base64->bytes[at + 1] << 8;
		if (rest > 2)
			three |= base64->bytes[at + 2];
		line[length++] = digits[three >> 18];
		line[length++] = digits[three >> 12 & 63];
		line[length++] = rest > 1 ? digits[three >> 6 & 63] : '=';
		line[length++] = rest > 2 ? digits[three & 63] : '=';
	}
	line[length++] = '\n';
	if (base64->count != 0)
		base64->send(line, length, base64->argument);
	base64->count = 0;
}

KYMO_SYSTEM void kymo_rtems_base64_send(const void *bytes, size_t count, void *argument)
{
	kymo_rtems_base64_t *base64 = (kymo_rtems_base64_t *)argument;

	for (size_t n = 0; n < count; n++) {
		base64->bytes[base64->count++] = ((const uint8_t *)bytes)[n];
		if (base64->count == sizeof base64->bytes)
			kymo_rtems_base64_line(base64);
	}
}

/* Writes all items in the ring as text. The program must not produce items meanwhile. */
KYMO_SYSTEM void kymo_rtems_dump_base64(kymo_rtems_send_t send, void *argument, uint64_t hz)
{
	static const char begin[] = "\n*** BEGIN OF RECORDS BASE64 ***\n";
	static const char end[] = "*** END OF RECORDS BASE64 ***\n";
	kymo_rtems_base64_t base64 = {send, argument, {0}, 0};
	kymo_rtems_stream_t stream;

	send(begin, sizeof begin - 1, argument);
	kymo_rtems_stream_begin(&stream, kymo_rtems_base64_send, &base64, hz);
	while (kymo_rtems_stream_go_on(&stream)) {
	}
	kymo_rtems_base64_line(&base64);
	send(end, sizeof end - 1, argument);
}

#ifdef __cplusplus
}
#endif

#endif
