/* A program on Linux whose link is RTT. Its main thread is a target with rings in memory. A second thread is the debug
 * probe, which finds the control block, reads and writes the rings, and serves one channel on a TCP port as OpenOCD
 * does. The rings are small, so that they are full most of the time. */
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kymo.h"
#include "kymo_rtt.h"

#define PLAIN KYMO_NO_INSTRUMENT

KYMO_RTT;
static uint8_t up[48], down[16];
static kymo_rtt_channel_t *to_host, *from_host;

PLAIN static void send_bytes(const uint8_t *bytes, size_t count)
{
	kymo_rtt_send(to_host, bytes, count, 100000000);
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

/* ------------------------------------------------------------------ the probe */

/* The block, looked for by its text, as a probe does. */
PLAIN static kymo_rtt_t *find(void)
{
	static const char text[16] = "SEGGER RTT";
	extern char __data_start[], _end[];
	for (;;)
		for (char *at = __data_start; at + sizeof(kymo_rtt_t) <= _end; at += 4)
			if (memcmp(at, text, sizeof text) == 0)
				return (kymo_rtt_t *)(void *)at;
}

/* What a target has written to a ring. */
PLAIN static size_t take(kymo_rtt_channel_t *ring, uint8_t *bytes, size_t room)
{
	uint32_t write = __atomic_load_n(&ring->write, __ATOMIC_ACQUIRE), read = ring->read;
	size_t count = 0;
	while (read != write && count < room) {
		bytes[count++] = ring->memory[read];
		read = read + 1 == ring->size ? 0 : read + 1;
	}
	__atomic_store_n(&ring->read, read, __ATOMIC_RELEASE);
	return count;
}

/* Whether the byte fitted. */
PLAIN static bool give(kymo_rtt_channel_t *ring, uint8_t byte)
{
	uint32_t read = __atomic_load_n(&ring->read, __ATOMIC_ACQUIRE), write = ring->write;
	uint32_t next = write + 1 == ring->size ? 0 : write + 1;
	if (next == read)
		return false;
	ring->memory[write] = byte;
	__atomic_store_n(&ring->write, next, __ATOMIC_RELEASE);
	return true;
}

PLAIN static void serve(kymo_rtt_t *block, int client)
{
	for (;;) {
		uint8_t bytes[256];
		size_t count = take(&block->up[1], bytes, sizeof bytes);
		if (count > 0 && send(client, bytes, count, MSG_NOSIGNAL) != (ssize_t)count)
			return;
		struct pollfd wanted = {client, POLLIN, 0};
		if (poll(&wanted, 1, count > 0 ? 0 : 1) <= 0)
			continue;
		ssize_t received = recv(client, bytes, sizeof bytes, 0);
		if (received <= 0)
			return;
		for (ssize_t n = 0; n < received;) {
			n += give(&block->down[1], bytes[n]);
			/* The target may wait for room itself. */
			uint8_t more[64];
			count = take(&block->up[1], more, sizeof more);
			if (count > 0 && send(client, more, count, MSG_NOSIGNAL) != (ssize_t)count)
				return;
		}
	}
}

PLAIN static void *probe(void *unused)
{
	(void)unused;
	kymo_rtt_t *block = find();
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof address;
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (struct sockaddr *)&address, size) != 0 || listen(listener, 4) != 0)
		return NULL;
	getsockname(listener, (struct sockaddr *)&address, &size);
	printf("%d\n", ntohs(address.sin_port));
	fflush(stdout);
	for (;;) {
		int client = accept(listener, NULL, NULL);
		if (client < 0)
			return NULL;
		serve(block, client);
		close(client);
	}
}

PLAIN int main(void)
{
	kymo_on();
	work();
	kymo_off();
	kymo_rtt_init();
	to_host = kymo_rtt_up(1, "Kymo", up, sizeof up);
	from_host = kymo_rtt_down(1, "Kymo", down, sizeof down);
	pthread_t thread;
	if (pthread_create(&thread, NULL, probe, NULL) != 0)
		return 1;
	for (;;) {
		int byte = kymo_rtt_read(from_host);
		if (byte >= 0)
			kymo_link_receive((uint8_t)byte);
		else if (kymo_link_pending())
			kymo_link_poll();
		else
			usleep(100);
	}
}
