/* Transports with simulated hardware at the other end: a ring that an interrupt handler empties, a DMA channel, a USB
 * endpoint, a pin, an ITM, sockets, files. Each is fast, slow, full and disconnected in turn; the bytes that arrive and
 * the bytes counted as lost must add up to all bytes sent. Prints one line for each. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* The registers of an ITM: one word waits in each stimulus port. */
static uint32_t itm_read(uint32_t offset);
static void itm_write(uint32_t offset, uint32_t value, unsigned size);
#define KYMO_ITM_READ(offset_) itm_read(offset_)
#define KYMO_ITM_WRITE_WORD(offset_, value_) itm_write((offset_), (value_), 4)
#define KYMO_ITM_WRITE_BYTE(offset_, value_) itm_write((offset_), (value_), 1)

/* The debugger's side of semihosting. */
static intptr_t debugger(uintptr_t operation, const uintptr_t *numbers);
#define KYMO_SEMIHOSTING_REQUEST(operation_, numbers_) debugger((operation_), (numbers_))

#include "kymo_dma.h"
#include "kymo_fifo.h"
#include "kymo_gpio.h"
#include "kymo_itm.h"
#include "kymo_posix.h"
#include "kymo_rtt.h"
#include "kymo_semihosting.h"

#define CHECK(holds_)                                                                    \
	do {                                                                             \
		if (!(holds_)) {                                                         \
			printf("%s:%d: %s\n", __FILE__, __LINE__, #holds_);              \
			exit(1);                                                         \
		}                                                                        \
	} while (0)

static uint32_t random_state;

static uint32_t any(uint32_t below)
{
	random_state = random_state * 1664525 + 1013904223;
	return (uint32_t)(((uint64_t)random_state * below) >> 32);
}

/* ------------------------------------------------------------------ the other end */

/* How it behaves now. */
static enum { FAST, SLOW, FULL, GONE, STATES } state;

/* What it has got. */
static uint8_t got[1 << 22];
static uint32_t got_count;

static void get(const void *bytes, uint32_t count)
{
	CHECK(got_count + count <= sizeof got);
	memcpy(got + got_count, bytes, count);
	got_count += count;
}

/* Whether it does something when it is asked. */
static bool acts(void)
{
	return state == FAST || (state == SLOW && any(5) == 0);
}

static bool masked;
static uint32_t locks;
static void (*handler)(void);

/* An interrupt may come at once. */
static uintptr_t lock(void)
{
	uintptr_t was = masked;
	masked = true;
	locks++;
	return was;
}

static void unlock(uintptr_t was)
{
	CHECK(masked);
	masked = was;
	if (!masked && handler != NULL && any(3) == 0)
		handler();
}

static uint32_t now;

static uint32_t read_clock(void)
{
	CHECK(masked);
	return now += any(3);
}

/* -- FIFO */
static uint8_t fifo_memory[97];
static bool fifo_interrupt;

static void fifo_start(void)
{
	fifo_interrupt = true;
}

static kymo_fifo_t fifo = KYMO_FIFO(fifo_memory, sizeof fifo_memory, fifo_start);

static void fifo_handler(void)
{
	while (fifo_interrupt && acts()) {
		int byte = kymo_fifo_next(&fifo);
		if (byte < 0)
			fifo_interrupt = false;
		else
			get(&(uint8_t){(uint8_t)byte}, 1);
	}
}

/* -- RTT: a debug probe reads the ring when it likes. */
KYMO_RTT;
static uint8_t rtt_memory[97], rtt_down[16];
static kymo_rtt_pipe_t rtt_pipe;

static void rtt_probe(void)
{
	while (acts()) {
		int byte = kymo_rtt_read(rtt_pipe.up);
		if (byte < 0)
			return;
		get(&(uint8_t){(uint8_t)byte}, 1);
	}
}

/* -- DMA: it reads the memory at the end of a transfer. */
static uint8_t halves[2][80];
static const uint8_t *transfer;
static uint32_t transfer_count, transfers;

static void dma_start(const uint8_t *bytes, uint32_t count)
{
	CHECK(masked && transfer == NULL && count > 0 && count <= sizeof halves[0]);
	transfer = bytes;
	transfer_count = count;
	transfers++;
}

static kymo_dma_t dma = {
	.halves = {halves[0], halves[1]}, .size = sizeof halves[0], .start = dma_start, .lock = lock, .unlock = unlock};

static void dma_handler(void)
{
	if (masked || transfer == NULL || !acts())
		return;
	get(transfer, transfer_count);
	transfer = NULL;
	void (*again)(void) = handler;
	handler = NULL;
	kymo_dma_done(&dma);
	handler = again;
}

/* -- USB: one packet of 64 bytes waits for the host. */
static uint8_t packet[64];
static uint32_t packet_count;

static void usb_host(void)
{
	if (acts()) {
		get(packet, packet_count);
		packet_count = 0;
	}
}

static int32_t usb_room(void *unused)
{
	(void)unused;
	return state == GONE ? KYMO_TRANSPORT_GONE : packet_count > 0 ? 0 : (int32_t)sizeof packet;
}

static int32_t usb_write(void *unused, const uint8_t *bytes, uint32_t count)
{
	int32_t room = usb_room(unused);
	if (room <= 0)
		return room;
	packet_count = count < sizeof packet ? count : sizeof packet;
	memcpy(packet, bytes, packet_count);
	return (int32_t)packet_count;
}

/* -- a pin, sampled once a bit by what receives it */
static bool pin = true;
static int bit = -1;
static uint32_t shifted, samples;

static void sample(void)
{
	samples++;
	if (bit < 0) {
		if (!pin)
			bit = 0;
		return;
	}
	if (bit < 8) {
		shifted |= (uint32_t)pin << bit++;
		return;
	}
	CHECK(pin);
	get(&(uint8_t){(uint8_t)shifted}, 1);
	shifted = 0;
	bit = -1;
}

KYMO_GPIO_WRITER(pin_write, pin = high, sample());

/* -- ITM, port 3 */
static uint32_t itm_word;
static unsigned itm_size;

static void itm_trace(void)
{
	if (itm_size > 0 && acts()) {
		get(&itm_word, itm_size);
		itm_size = 0;
	}
}

static uint32_t itm_read(uint32_t offset)
{
	itm_trace();
	switch (offset) {
	case KYMO_ITM_CONTROL:
		return state == GONE && any(2) ? 0 : 1;
	case KYMO_ITM_ENABLED:
		return state == GONE ? ~8u : 8;
	default:
		CHECK(offset == KYMO_ITM_STIMULUS(3));
		return itm_size == 0;
	}
}

static void itm_write(uint32_t offset, uint32_t value, unsigned size)
{
	CHECK(offset == KYMO_ITM_STIMULUS(3) && itm_size == 0 && state != GONE);
	itm_word = value;
	itm_size = size;
}

/* -- a socket */
static int ends[2];

static void socket_host(void)
{
	uint8_t bytes[256];
	if (!acts())
		return;
	ssize_t count = recv(ends[1], bytes, sizeof bytes, MSG_DONTWAIT);
	if (count > 0)
		get(bytes, (uint32_t)count);
}

/* ------------------------------------------------------------------ what is sent */

static void host_nothing(void)
{
}

/* The other end takes what is left. */
static void finish(void (*host)(void))
{
	state = FAST;
	for (int n = 0; n < 100000; n++)
		host();
}

static void begin(void)
{
	got_count = 0;
	now = 0;
	state = FAST;
}

/* A transport at whose other end time passes with each write. */
static kymo_transport_t *inner;
static void (*passes)(void);

static int32_t timed_write(void *unused, const uint8_t *bytes, uint32_t count)
{
	(void)unused;
	passes();
	return inner->write(inner->context, bytes, count);
}

/* Texts of any length: what was not lost arrives, in order. */
static void bytes_of(const char *name, kymo_transport_t *of, void (*host)(void), bool can_lose)
{
	kymo_transport_t timed = {.write = timed_write, .patience = of->patience}, *transport = &timed;
	inner = of;
	passes = host;
	static uint8_t wanted[1 << 22];
	uint32_t count = 0, total = 0, failed = 0;
	begin();
	for (uint32_t n = 0; n < 4000; n++) {
		if (any(40) == 0)
			state = any(can_lose ? STATES : FULL);
		host();
		uint8_t text[300];
		uint32_t length = any(sizeof text), lost = transport->lost_bytes;
		for (uint32_t at = 0; at < length; at++)
			text[at] = (uint8_t)any(256);
		bool whole = kymo_transport_send(transport, text, length);
		lost = transport->lost_bytes - lost;
		CHECK(lost <= length && whole == (lost == 0));
		memcpy(wanted + count, text, length - lost);
		count += length - lost;
		total += length;
		failed += !whole;
	}
	finish(host);
	CHECK(got_count == count && memcmp(got, wanted, count) == 0);
	CHECK(count + transport->lost_bytes == total && transport->lost_writes == failed);
	CHECK(can_lose == (failed > 0));
	CHECK(count > 100000);
	printf("%s bytes\n", name);
}

/* Events of `least` to `most` bytes, whole or not at all; each has its number, its length and its time. */
static void events_of(const char *name, kymo_transport_t *transport, void (*host)(void), uint32_t most, bool can_lose)
{
	uint32_t total = 0, all = 5000;
	begin();
	transport->lost_bytes = transport->lost_writes = 0;
	transport->lock = lock;
	transport->unlock = unlock;
	transport->clock = read_clock;
	for (uint32_t n = 0; n < all; n++) {
		if (any(40) == 0)
			state = any(can_lose ? STATES : FULL);
		host();
		uint32_t event[64] = {n, 12 + any(most - 11), 0};
		kymo_transport_emit(transport, event, event[1], &event[2]);
		total += event[1];
	}
	transport->lock = NULL;
	transport->unlock = NULL;
	finish(host);
	uint32_t seen = 0, bytes = 0, next = 0, last = 0;
	while (bytes < got_count) {
		uint32_t event[3];
		CHECK(got_count - bytes >= sizeof event);
		memcpy(event, got + bytes, sizeof event);
		CHECK(event[0] >= next && event[2] >= last && got_count - bytes >= event[1]);
		next = event[0] + 1;
		last = event[2];
		bytes += event[1];
		seen++;
	}
	CHECK(seen + transport->lost_writes == all && bytes + transport->lost_bytes == total);
	CHECK(can_lose == (seen < all) && seen > all / 10);
	printf("%s events\n", name);
}

static void go(void)
{
	state = GONE;
}

static void close_socket(void)
{
	close(ends[1]);
}

/* Counts the calls of the transport's own write(). */
static uint32_t writes;

static int32_t counted_write(void *unused, const uint8_t *bytes, uint32_t count)
{
	(void)unused;
	writes++;
	return inner->write(inner->context, bytes, count);
}

/* How many bytes the last transport has taken while nothing took them from it. */
static uint32_t room;

/* How often write() is called for these bytes until they count as lost; 0 if they are taken. */
static uint32_t until_lost(kymo_transport_t *of, uint32_t patience)
{
	static const uint8_t much[100000];
	kymo_transport_t counted = {.write = counted_write, .patience = patience};
	inner = of;
	uint32_t before;
	/* The first times it may take what there is room for. */
	for (int n = 0; n < 3; n++) {
		before = counted.lost_bytes;
		writes = 0;
		if (kymo_transport_send(&counted, much, sizeof much))
			return 0;
		CHECK(counted.lost_writes == (uint32_t)n + 1 && counted.lost_bytes > before);
	}
	CHECK(counted.lost_bytes - before == sizeof much);
	room = 3 * sizeof much - counted.lost_bytes;
	return writes;
}

/* Prints what the table of the documentation says of a transport: while the other end does nothing, and after it has
 * gone (`go`; NULL: the transport cannot know). A write() that waits does not return here. */
static void facts(const char *name, kymo_transport_t *of, void (*go)(void))
{
	begin();
	alarm(60);
	state = FULL;
	handler = NULL;
	samples = locks = 0;
	room = 0;
	uint32_t most = until_lost(of, 9);
	printf("facts %s: buffer %u;", name, (unsigned)room);
	if (most > 0)
		CHECK(most == 10 && until_lost(of, 0) == 1);
	else
		CHECK(samples == 10 * 100000);
	printf(" blocks %s;", most > 0 ? "never in `write`" : "ten bits a byte");
	printf(" lock %s;", locks > 0 ? "its own" : "none");
	printf(" full %s;", most > 0 ? "`send` waits" : "never");
	if (go != NULL) {
		go();
		CHECK(until_lost(of, 9) == 1);
	}
	printf(" gone %s\n", go != NULL ? "lost at once" : "unknown");
	alarm(0);
}

static uint8_t taken[100];
static uint32_t taken_count;

static void take(uint8_t byte)
{
	taken[taken_count++] = byte;
}

static void files(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	CHECK(fd >= 0);
	kymo_transport_t file = {.write = kymo_fd_write, .context = KYMO_FD(fd)};
	CHECK(kymo_transport_send(&file, (const uint8_t *)"kept", 4) && lseek(fd, 0, SEEK_CUR) == 4);
	file.context = KYMO_FD(open("/dev/full", O_WRONLY));
	CHECK(!kymo_transport_send(&file, (const uint8_t *)"lost", 4));
	CHECK(file.lost_writes == 1 && file.lost_bytes == 4);
	int pipes[2];
	CHECK(pipe(pipes) == 0);
	file.context = KYMO_FD(pipes[1]);
	CHECK(fcntl(pipes[1], F_SETFL, O_NONBLOCK) == 0);
	static uint8_t much[200000];
	CHECK(!kymo_transport_send(&file, much, sizeof much));
	CHECK(file.lost_writes == 2 && file.lost_bytes == 4 + sizeof much - 65536);
	file.context = KYMO_FD(pipes[0]);
	file.read = kymo_fd_read;
	CHECK(fcntl(pipes[0], F_SETFL, O_NONBLOCK) == 0);
	uint32_t count = 0;
	for (int32_t some; (some = kymo_fd_read(file.context, much, sizeof much)) > 0;)
		count += (uint32_t)some;
	CHECK(count == 65536);
	CHECK(write(pipes[1], "status\r", 7) == 7);
	kymo_transport_receive(&file, take);
	CHECK(taken_count == 7 && memcmp(taken, "status\r", 7) == 0);
	close(pipes[1]);
	CHECK(kymo_fd_read(file.context, much, 1) == KYMO_TRANSPORT_GONE);
	printf("file bytes\n");
}

/* -- semihosting: a file on the debugger's machine, on a disk of so many bytes */
static uint32_t disk, requests;

static intptr_t debugger(uintptr_t operation, const uintptr_t *numbers)
{
	/* The processor stands still meanwhile: all of it is done before it continues. */
	requests++;
	if (operation == KYMO_SEMIHOSTING_OPEN)
		return numbers[2] == 8 && memcmp((const char *)numbers[0], "dump.txt", 8) == 0 ? 3 : -1;
	CHECK(operation == KYMO_SEMIHOSTING_WRITE && numbers[0] == 3);
	uint32_t count = numbers[2] < disk ? (uint32_t)numbers[2] : disk;
	get((const void *)numbers[1], count);
	disk -= count;
	return (intptr_t)(numbers[2] - count);
}

static void semihosting(void)
{
	kymo_transport_t file = {.write = kymo_semihosting_write, .patience = 9};
	static uint8_t much[3000];
	begin();
	locks = 0;
	for (uint32_t at = 0; at < sizeof much; at++)
		much[at] = (uint8_t)any(256);
	file.context = kymo_semihosting_open("dump.txt", 8);
	disk = 2000;
	/* There is no buffer: each write is one request, and has been executed when it returns. */
	requests = 0;
	for (uint32_t at = 0; at < 1000; at += 100) {
		CHECK(kymo_transport_send(&file, much + at, 100));
		CHECK(got_count == at + 100 && requests == at / 100 + 1);
	}
	CHECK(file.lost_bytes == 0);
	CHECK(!kymo_transport_send(&file, much + 1000, 1500));
	CHECK(got_count == 2000 && memcmp(got, much, got_count) == 0);
	CHECK(file.lost_writes == 1 && file.lost_bytes == 500);
	/* A full disk does not take more for being asked again. */
	requests = 0;
	CHECK(!kymo_transport_send(&file, much + 2500, 500) && requests == 1);
	CHECK(file.lost_writes == 2 && file.lost_bytes == 1000);
	file.context = kymo_semihosting_open("not here", 8);
	requests = 0;
	CHECK(!kymo_transport_send(&file, much, 10) && requests == 0);
	CHECK(file.lost_writes == 3 && file.lost_bytes == 1010);
	CHECK(locks == 0);
	printf("facts semihosting: buffer 0; blocks while the debugger works: milliseconds; lock none;"
	       " full what the file does not take is counted; gone unknown\n");
}

/* What kymo_rtt_send() drops is counted for its channel, and commands come through the one down. */
static void rtt_losses(void)
{
	static uint8_t other[32], much[200];
	kymo_rtt_channel_t *up = kymo_rtt_up(2, "other", other, sizeof other);
	CHECK(up != NULL && kymo_rtt_send(up, much, 20, 3));
	CHECK(_SEGGER_RTT.lost[2].writes == 0);
	/* 31 bytes fit. */
	CHECK(!kymo_rtt_send(up, much, 20, 3) && !kymo_rtt_send(up, much, 7, 3));
	CHECK(_SEGGER_RTT.lost[2].writes == 2 && _SEGGER_RTT.lost[2].bytes == 9 + 7);
	CHECK(_SEGGER_RTT.lost[0].writes == 0 && _SEGGER_RTT.lost[1].writes == 0);
	kymo_rtt_pipe_t none = {NULL, NULL};
	kymo_transport_t nowhere = KYMO_RTT_TRANSPORT(&none, .patience = 3);
	CHECK(!kymo_transport_send(&nowhere, much, 5) && nowhere.lost_bytes == 5);
	CHECK(nowhere.read(nowhere.context, much, 5) == 0);
	kymo_rtt_put(rtt_pipe.down, (const uint8_t *)"clear\r", 6);
	kymo_transport_t transport = KYMO_RTT_TRANSPORT(&rtt_pipe);
	taken_count = 0;
	kymo_transport_receive(&transport, take);
	CHECK(taken_count == 6 && memcmp(taken, "clear\r", 6) == 0);
	taken_count = 0;
	printf("rtt losses\n");
}

int main(int count, char **arguments)
{
	CHECK(count == 2);
	signal(SIGPIPE, SIG_IGN);
	random_state = 2026;

	kymo_transport_t to_fifo = KYMO_FIFO_TRANSPORT(&fifo, .patience = 50);
	bytes_of("fifo", &to_fifo, fifo_handler, true);
	events_of("fifo", &to_fifo, fifo_handler, 60, true);
	facts("fifo", &to_fifo, NULL);

	kymo_rtt_init();
	rtt_pipe.up = kymo_rtt_up(1, "Kymo", rtt_memory, sizeof rtt_memory);
	rtt_pipe.down = kymo_rtt_down(1, "Kymo", rtt_down, sizeof rtt_down);
	kymo_transport_t rtt = KYMO_RTT_TRANSPORT(&rtt_pipe, .patience = 50);
	bytes_of("rtt", &rtt, rtt_probe, true);
	events_of("rtt", &rtt, rtt_probe, 60, true);
	facts("rtt", &rtt, NULL);
	rtt_losses();

	handler = dma_handler;
	kymo_transport_t to_dma = KYMO_DMA_TRANSPORT(&dma, .patience = 50);
	bytes_of("dma", &to_dma, dma_handler, true);
	events_of("dma", &to_dma, dma_handler, 60, true);
	CHECK(transfers > 1000 && transfers < 9000);
	facts("dma", &to_dma, NULL);

	kymo_transport_t usb = {.write = usb_write, .room = usb_room, .patience = 50};
	bytes_of("usb", &usb, usb_host, true);
	events_of("usb", &usb, usb_host, 64, true);
	facts("usb", &usb, go);

	kymo_transport_t gpio = {.write = pin_write};
	bytes_of("gpio", &gpio, host_nothing, false);
	events_of("gpio", &gpio, host_nothing, 60, false);
	facts("gpio", &gpio, NULL);

	kymo_transport_t itm = {.write = kymo_itm_write, .context = KYMO_ITM_PORT(3), .patience = 20};
	bytes_of("itm", &itm, itm_trace, true);
	facts("itm", &itm, go);

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	CHECK(setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &(int){2048}, sizeof(int)) == 0);
	kymo_transport_t socket = {.write = kymo_fd_write, .context = KYMO_FD(ends[0]), .patience = 50};
	bytes_of("socket", &socket, socket_host, true);
	facts("socket", &socket, close_socket);

	files(arguments[1]);
	semihosting();
	return 0;
}
