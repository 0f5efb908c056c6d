/* RTT: byte channels that a debugger reads from memory while the program runs (J-Link, OpenOCD, pyOCD, probe-rs).
 *
 * Debuggers find a control block in RAM by its symbol, _SEGGER_RTT, or by the text at its start. The block lists rings,
 * up to the host and down from it. Writer and reader each move only their own index, so neither waits for the other.
 *
 * 1. Write KYMO_RTT; once, outside of functions, and call kymo_rtt_init() before any other function of this file.
 * 2. Assign rings to the channels that you use, with kymo_rtt_up() and kymo_rtt_down(). By convention channel 0 is the
 *    terminal, and channel 1 is SystemView's ("SysView").
 *
 * A program must not have two control blocks. If it already has SEGGER's RTT, or another implementation, do not use
 * this file; use a channel of that implementation (SEGGER_RTT_ConfigUpBuffer() and SEGGER_RTT_WriteSkipNoLock()).
 *
 * Each ring may have one writer at a time. kymo_rtt_send() counts what it drops, for each channel up
 * (_SEGGER_RTT.lost[NUMBER]); as a transport (KYMO_RTT_TRANSPORT) a channel counts in kymo_transport_t, as all do.
 */
#ifndef KYMO_RTT_H
#define KYMO_RTT_H

#include "kymo_ring.h"
#include "kymo_transport.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Number of channels each way; the same in all source files. */
#ifndef KYMO_RTT_CHANNELS
#define KYMO_RTT_CHANNELS 3
#endif

/* Losses of a channel up: number of calls of kymo_rtt_send() that dropped bytes, and number of bytes. */
typedef struct kymo_rtt_lost {
	uint32_t writes, bytes;
} kymo_rtt_lost_t;

typedef struct kymo_rtt {
	char id[16];
	int32_t up_count;
	int32_t down_count;
	kymo_rtt_channel_t up[KYMO_RTT_CHANNELS];
	kymo_rtt_channel_t down[KYMO_RTT_CHANNELS];
	/* Not part of the block for debuggers. */
	kymo_rtt_lost_t lost[KYMO_RTT_CHANNELS];
} kymo_rtt_t;

extern kymo_rtt_t _SEGGER_RTT;

#define KYMO_RTT kymo_rtt_t _SEGGER_RTT

/* Initializes the control block, unless it is initialized already. The identifying text is stored backwards, so that
 * debuggers do not mistake it, in flash or in a copy, for a control block. It is written last, when the rest of the
 * block is valid. */
KYMO_RTT_FUNCTION void kymo_rtt_init(void)
{
	static const char backwards[] = "TTR REGGES";
	volatile char *id = _SEGGER_RTT.id;
	size_t length = sizeof backwards - 1, same = 0;
	while (same < length && id[length - 1 - same] == backwards[same])
		same++;
	if (same == length)
		return;
	for (size_t n = 0; n < sizeof _SEGGER_RTT.id; n++)
		id[n] = 0;
	memset(_SEGGER_RTT.up, 0, sizeof _SEGGER_RTT.up);
	memset(_SEGGER_RTT.down, 0, sizeof _SEGGER_RTT.down);
	memset(_SEGGER_RTT.lost, 0, sizeof _SEGGER_RTT.lost);
	_SEGGER_RTT.up_count = _SEGGER_RTT.down_count = KYMO_RTT_CHANNELS;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	for (size_t n = 0; n < length; n++)
		id[length - 1 - n] = backwards[n];
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* Assigns a ring to a channel; it holds size - 1 bytes. Returns NULL if there is no such channel. */
KYMO_RTT_FUNCTION kymo_rtt_channel_t *kymo_rtt_ring(kymo_rtt_channel_t *channels, unsigned number, const char *name,
						    void *memory, uint32_t size)
{
	if (number >= KYMO_RTT_CHANNELS || size < 2)
		return NULL;
	kymo_rtt_channel_t *channel = &channels[number];
	channel->size = 0;
	channel->write = channel->read = 0;
	channel->flags = 0;
	channel->memory = (uint8_t *)memory;
	channel->name = name;
	__atomic_store_n(&channel->size, size, __ATOMIC_RELEASE);
	return channel;
}

/* Assign a ring to a channel up to the host, or down from it. */
KYMO_RTT_FUNCTION kymo_rtt_channel_t *kymo_rtt_up(unsigned number, const char *name, void *memory, uint32_t size)
{
	return kymo_rtt_ring(_SEGGER_RTT.up, number, name, memory, size);
}

KYMO_RTT_FUNCTION kymo_rtt_channel_t *kymo_rtt_down(unsigned number, const char *name, void *memory, uint32_t size)
{
	return kymo_rtt_ring(_SEGGER_RTT.down, number, name, memory, size);
}

/* Writes all of the bytes and waits for the host to make room: for kymo_config.send. If there is no room `patience`
 * times in a row, the host counts as disconnected: the rest is dropped and counted, and false returned. */
KYMO_RTT_FUNCTION bool kymo_rtt_send(kymo_rtt_channel_t *channel, const uint8_t *bytes, size_t count, uint32_t patience)
{
	for (uint32_t looks = 0; count > 0 && looks < patience; looks++) {
		uint32_t room = kymo_rtt_room(channel);
		if (room == 0)
			continue;
		uint32_t some = count < room ? (uint32_t)count : room;
		kymo_rtt_put(channel, bytes, some);
		bytes += some;
		count -= some;
		looks = 0;
	}
	if (count == 0)
		return true;
	for (unsigned n = 0; n < KYMO_RTT_CHANNELS; n++)
		if (channel == &_SEGGER_RTT.up[n]) {
			_SEGGER_RTT.lost[n].writes++;
			_SEGGER_RTT.lost[n].bytes += (uint32_t)count;
		}
	return false;
}

/* A channel up and one down (or NULL) as a transport:
 *
 *     static kymo_rtt_pipe_t pipe;
 *     static kymo_transport_t transport = KYMO_RTT_TRANSPORT(&pipe, .patience = 1000000);
 *
 *             pipe.up = kymo_rtt_up(0, "Kymo", up, sizeof up);
 *             pipe.down = kymo_rtt_down(0, "Kymo", down, sizeof down);
 *
 * Before that, and without a channel, the other end counts as disconnected. */
typedef struct kymo_rtt_pipe {
	kymo_rtt_channel_t *up, *down;
} kymo_rtt_pipe_t;

#define KYMO_RTT_TRANSPORT(pipe_, ...)                                                            \
	{.write = kymo_rtt_pipe_write,                                                            \
	 .room = kymo_rtt_pipe_room,                                                              \
	 .read = kymo_rtt_pipe_read,                                                              \
	 .context = (pipe_),                                                                      \
	 __VA_ARGS__}

KYMO_TRANSPORT_FUNCTION int32_t kymo_rtt_pipe_room(void *context)
{
	kymo_rtt_channel_t *up = ((kymo_rtt_pipe_t *)context)->up;
	return up != NULL ? (int32_t)kymo_rtt_room(up) : KYMO_TRANSPORT_GONE;
}

KYMO_TRANSPORT_FUNCTION int32_t kymo_rtt_pipe_write(void *context, const uint8_t *bytes, uint32_t count)
{
	int32_t room = kymo_rtt_pipe_room(context);
	if (room <= 0)
		return room;
	uint32_t some = count < (uint32_t)room ? count : (uint32_t)room;
	kymo_rtt_put(((kymo_rtt_pipe_t *)context)->up, bytes, some);
	return (int32_t)some;
}

KYMO_TRANSPORT_FUNCTION int32_t kymo_rtt_pipe_read(void *context, uint8_t *bytes, uint32_t count)
{
	kymo_rtt_channel_t *down = ((kymo_rtt_pipe_t *)context)->down;
	uint32_t some = 0;
	for (int byte; down != NULL && some < count && (byte = kymo_rtt_read(down)) >= 0;)
		bytes[some++] = (uint8_t)byte;
	return (int32_t)some;
}

#ifdef __cplusplus
}
#endif

#endif
