/* Transport over a file descriptor (a file, a pipe, a terminal, a socket), and over a TCP server with one client at a
 * time.
 *
 *     static kymo_transport_t pipe = {.write = kymo_fd_write, .read = kymo_fd_read, .context = KYMO_FD(fd)};
 *
 *     static kymo_server_t server;
 *     static kymo_transport_t tcp = KYMO_SERVER_TRANSPORT(&server, .patience = 100000000);
 *
 *     kymo_server_open(&server, INADDR_LOOPBACK, 4000);
 *
 * Sockets never block; other descriptors do, unless they have O_NONBLOCK. (Writing to a pipe without a reader raises
 * SIGPIPE: ignore that signal.) A second client waits until the first one has disconnected. */
#ifndef KYMO_POSIX_H
#define KYMO_POSIX_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kymo_transport.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KYMO_FD(fd_) ((void *)(intptr_t)(fd_))

/* Converts the result of a system call to that of a transport. */
KYMO_TRANSPORT_FUNCTION int32_t kymo_fd_result(ssize_t result)
{
	if (result >= 0)
		return (int32_t)result;
	return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : KYMO_TRANSPORT_GONE;
}

KYMO_TRANSPORT_FUNCTION int32_t kymo_fd_write(void *context, const uint8_t *bytes, uint32_t count)
{
	int fd = (int)(intptr_t)context;
	ssize_t result = send(fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (result < 0 && errno == ENOTSOCK)
		result = write(fd, bytes, count);
	return kymo_fd_result(result);
}

KYMO_TRANSPORT_FUNCTION int32_t kymo_fd_read(void *context, uint8_t *bytes, uint32_t count)
{
	int fd = (int)(intptr_t)context;
	ssize_t result = recv(fd, bytes, count, MSG_DONTWAIT);
	if (result < 0 && errno == ENOTSOCK)
		result = read(fd, bytes, count);
	/* End of file: the writer is gone. */
	return result == 0 && count > 0 ? KYMO_TRANSPORT_GONE : kymo_fd_result(result);
}

typedef struct kymo_server {
	int listener, client; /* file descriptors; `client` is one higher, 0: none */
	uint16_t port;        /* the port it listens on */
} kymo_server_t;

#define KYMO_SERVER_TRANSPORT(server_, ...) \
	{.write = kymo_server_write, .read = kymo_server_read, .context = (server_), __VA_ARGS__}

/* Listens on an address of this machine (INADDR_LOOPBACK, INADDR_ANY) and a port (0: any free port). Returns false,
 * with errno, if that fails. */
KYMO_TRANSPORT_FUNCTION bool kymo_server_open(kymo_server_t *server, uint32_t host, uint16_t port)
{
	struct sockaddr_in address;
	socklen_t size = sizeof address;
	memset(&address, 0, sizeof address);
	address.sin_family = AF_INET;
	address.sin_addr.s_addr = htonl(host);
	address.sin_port = htons(port);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), yes = 1;
	if (listener < 0)
		return false;
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
	if (bind(listener, (struct sockaddr *)&address, size) != 0 || listen(listener, 4) != 0 ||
	    getsockname(listener, (struct sockaddr *)&address, &size) != 0) {
		close(listener);
		return false;
	}
	server->listener = listener;
	server->port = ntohs(address.sin_port);
	return true;
}

/* Closes the client's connection if a read or a write failed. */
KYMO_TRANSPORT_FUNCTION int32_t kymo_server_result(kymo_server_t *server, int32_t result)
{
	if (result < 0) {
		close(server->client - 1);
		server->client = 0;
	}
	return result;
}

KYMO_TRANSPORT_FUNCTION int32_t kymo_server_write(void *context, const uint8_t *bytes, uint32_t count)
{
	kymo_server_t *server = (kymo_server_t *)context;
	if (server->client == 0)
		return KYMO_TRANSPORT_GONE;
	return kymo_server_result(server, kymo_fd_write(KYMO_FD(server->client - 1), bytes, count));
}

/* Also accepts the next client. */
KYMO_TRANSPORT_FUNCTION int32_t kymo_server_read(void *context, uint8_t *bytes, uint32_t count)
{
	kymo_server_t *server = (kymo_server_t *)context;
	if (server->client == 0)
		server->client = accept(server->listener, NULL, NULL) + 1;
	if (server->client == 0)
		return KYMO_TRANSPORT_GONE;
	return kymo_server_result(server, kymo_fd_read(KYMO_FD(server->client - 1), bytes, count));
}

#ifdef __cplusplus
}
#endif

#endif
