/* A program on Linux whose link is the transport in its argument: `tcp`, where it is the server itself; or `usb`, `dma`
 * or `fifo`, where a thread simulates slow hardware and serves its data on a TCP port. `usb` is unplugged while no host
 * is connected. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>

#include "kymo.h"
#include "kymo_dma.h"
#include "kymo_fifo.h"
#include "kymo_posix.h"

#define PLAIN KYMO_NO_INSTRUMENT

static kymo_transport_t *transport;

PLAIN static void send_bytes(const uint8_t *bytes, size_t count)
{
	kymo_transport_send(transport, bytes, count);
}

KYMO_CONFIG(0, 64, 1024, 1024, .send = send_bytes);

__attribute__((noinline)) static int leaf(int n)
{
	__asm__ volatile("" : "+r"(n));
	return n + 1;
}

__attribute__((noinline)) static void work(void)
{
	for (int n = 0; n < 5000; n++)
		leaf(n);
}

/* ------------------------------------------------------------------ hardware */

static kymo_server_t server;
static pthread_mutex_t masked = PTHREAD_MUTEX_INITIALIZER;

PLAIN static uintptr_t lock(void)
{
	pthread_mutex_lock(&masked);
	return 0;
}

PLAIN static void unlock(uintptr_t was)
{
	(void)was;
	pthread_mutex_unlock(&masked);
}

/* From the host: a ring in all cases. */
static uint8_t received[33];
static kymo_rtt_channel_t from_host = {"", received, sizeof received, 0, 0, 0};

PLAIN static int32_t read_ring(void *unused, uint8_t *bytes, uint32_t count)
{
	(void)unused;
	uint32_t some = 0;
	for (int byte; some < count && (byte = kymo_rtt_read(&from_host)) >= 0;)
		bytes[some++] = (uint8_t)byte;
	return (int32_t)some;
}

/* A UART that interrupts. */
static uint8_t waiting[48];
static kymo_fifo_t fifo = KYMO_FIFO(waiting, sizeof waiting, NULL);
static kymo_transport_t by_fifo = KYMO_FIFO_TRANSPORT(&fifo, .read = read_ring, .patience = 100000000);

PLAIN static uint32_t take_fifo(uint8_t *bytes, uint32_t count)
{
	uint32_t some = 0;
	for (int byte; some < count && (byte = kymo_fifo_next(&fifo)) >= 0;)
		bytes[some++] = (uint8_t)byte;
	return some;
}

/* A DMA channel. */
static uint8_t halves[2][100];
static const uint8_t *transfer;
static uint32_t transfer_count;

PLAIN static void start(const uint8_t *bytes, uint32_t count)
{
	transfer = bytes;
	transfer_count = count;
}

static kymo_dma_t dma = {
	.halves = {halves[0], halves[1]}, .size = sizeof halves[0], .start = start, .lock = lock, .unlock = unlock};
static kymo_transport_t by_dma = KYMO_DMA_TRANSPORT(&dma, .read = read_ring, .patience = 100000000);

PLAIN static uint32_t take_dma(uint8_t *bytes, uint32_t count)
{
	lock();
	uint32_t some = transfer_count < count ? transfer_count : count;
	const uint8_t *from = transfer;
	transfer_count = 0;
	unlock(0);
	if (some == 0)
		return 0;
	memcpy(bytes, from, some);
	kymo_dma_done(&dma);
	return some;
}

/* USB: a bulk endpoint. */
static uint8_t packet[64];
static uint32_t packet_count;
static bool plugged;

PLAIN static int32_t write_usb(void *unused, const uint8_t *bytes, uint32_t count)
{
	(void)unused;
	int32_t some = KYMO_TRANSPORT_GONE;
	lock();
	if (plugged) {
		some = 0;
		if (packet_count == 0) {
			packet_count = count < sizeof packet ? count : sizeof packet;
			memcpy(packet, bytes, packet_count);
			some = (int32_t)packet_count;
		}
	}
	unlock(0);
	return some;
}

static kymo_transport_t by_usb = {.write = write_usb, .read = read_ring, .patience = 100000000};

PLAIN static uint32_t take_usb(uint8_t *bytes, uint32_t count)
{
	lock();
	uint32_t some = packet_count < count ? packet_count : count;
	memcpy(bytes, packet, some);
	packet_count = 0;
	unlock(0);
	return some;
}

PLAIN static void plug(bool in)
{
	lock();
	plugged = in;
	packet_count = 0;
	unlock(0);
}

static uint32_t (*take)(uint8_t *bytes, uint32_t count);

/* Carries bytes from and to a client, as long as it is there. */
PLAIN static void serve(int client)
{
	for (;;) {
		uint8_t bytes[256];
		uint32_t count = take(bytes, sizeof bytes);
		if (count > 0 && send(client, bytes, count, MSG_NOSIGNAL) != (ssize_t)count)
			return;
		struct pollfd wanted = {client, POLLIN, 0};
		if (poll(&wanted, 1, count > 0 ? 0 : 1) <= 0)
			continue;
		uint32_t room = kymo_rtt_room(&from_host);
		if (room == 0)
			continue;
		ssize_t some = recv(client, bytes, room, 0);
		if (some <= 0)
			return;
		kymo_rtt_put(&from_host, bytes, (uint32_t)some);
	}
}

PLAIN static void *hardware(void *unused)
{
	(void)unused;
	for (;;) {
		struct pollfd wanted = {server.listener, POLLIN, 0};
		poll(&wanted, 1, -1);
		int client = accept(server.listener, NULL, NULL);
		if (client < 0)
			continue;
		plug(true);
		serve(client);
		plug(false);
		close(client);
	}
	return NULL;
}

static kymo_transport_t by_tcp = KYMO_SERVER_TRANSPORT(&server, .patience = 100000000);

PLAIN int main(int count, char **arguments)
{
	static const struct {
		const char *name;
		kymo_transport_t *transport;
		uint32_t (*take)(uint8_t *bytes, uint32_t count);
	} ways[] = {{"tcp", &by_tcp, NULL}, {"fifo", &by_fifo, take_fifo}, {"dma", &by_dma, take_dma}, {"usb", &by_usb, take_usb}};
	for (size_t n = 0; n < sizeof ways / sizeof ways[0]; n++)
		if (count == 2 && strcmp(arguments[1], ways[n].name) == 0) {
			transport = ways[n].transport;
			take = ways[n].take;
		}
	pthread_t thread;
	if (transport == NULL || !kymo_server_open(&server, INADDR_LOOPBACK, 0) ||
	    (take != NULL && pthread_create(&thread, NULL, hardware, NULL) != 0))
		return 1;
	kymo_on();
	work();
	kymo_off();
	printf("%d\n", server.port);
	fflush(stdout);
	for (;;) {
		kymo_transport_receive(transport, kymo_link_receive);
		if (kymo_link_pending())
			kymo_link_poll();
		else
			usleep(100);
	}
}
