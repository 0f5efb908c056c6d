/* The demonstration on Linux: two threads that run Lua, a timer signal in the place of the timer
 * interrupt, and Kymo's link on a TCP port of this machine.
 *
 *     demo [--port PORT] [--rounds N]
 *
 * --port: answer Kymo at 127.0.0.1:PORT (0: any that is free; it is printed), and run for ever.
 * --rounds: end after so many rounds of each thread; with KYMO_OUTPUT=FILE in the environment what
 * was recorded is saved then.
 *
 * Not instrumented, because Kymo calls it.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "kymo.h"
#include "program.h"

#ifdef NAIVE
#include "naive.h"
#endif

/* ------------------------------------------------------------------ Kymo's configuration */

static void send_to_host(const uint8_t *bytes, size_t count);

const kymo_config_t kymo_config = {
	.version = KYMO_CONFIG_VERSION,
#ifdef NAIVE
	/* Everything from the first instruction on, and nothing of it lost. */
	.flags = KYMO_START_ON | KYMO_FIXED,
	.buffer_size = 16u * 1024u * 1024u,
#else
	/* No trigger and no stopper: what is recorded is the first round of both threads, and a
	 * function belongs to one. See begin_first_round(). */
	.buffer_size = 2u * 1024u * 1024u,
#endif
	.packet_size = 4096,
	.metadata_size = 1024,
	.slot_count = 1024,
	.shadow_stacks = 2, /* for the thread, and for its signal handlers */
	.shadow_depth = 128,
	.text_base = KYMO_TEXT_BASE,
	.send = send_to_host,
};

/* ------------------------------------------------------------------ the interrupt */

static void on_alarm(int signal)
{
	int error = errno;
#ifdef NAIVE
	naive_interrupt((uint16_t)signal);
#endif
	kymo_isr_enter((uint16_t)signal);
	program_sample();
	kymo_isr_exit((uint16_t)signal);
#ifdef NAIVE
	naive_interrupt(0);
#endif
	errno = error;
}

/* Frequency of SIGALRM: 700 Hz. With the naive recorder beside Kymo's it is 2,000 Hz, so that many
 * signals interrupt the hooks themselves; at a much higher frequency more handlers would run during
 * one hook on a busy machine than Kymo can buffer (it counts the rest as lost). */
#ifdef NAIVE
#define PERIOD_US 500
#else
#define PERIOD_US (1000000 / 700)
#endif

static void start_timer(void)
{
	struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
	sigaction(SIGALRM, &action, NULL);
	struct itimerval period = {{0, PERIOD_US}, {0, PERIOD_US}};
	setitimer(ITIMER_REAL, &period, NULL);
}

static void block_alarm(int how)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	pthread_sigmask(how, &set, NULL);
}

/* ------------------------------------------------------------------ threads */

static uint32_t last_round; /* 0: none */

/* Recording lasts from the begin of both threads' first rounds until both are over, however late
 * the machine lets one of them run. Each turns it on and off: neither goes on before it is done. The
 * comparison with the naive recorder records everything. */
static pthread_barrier_t first_round;

static void begin_first_round(void)
{
#ifndef NAIVE
	kymo_on();
#endif
	pthread_barrier_wait(&first_round);
}

static void end_first_round(void)
{
	pthread_barrier_wait(&first_round);
#ifndef NAIVE
	kymo_off();
#endif
}

static void pause_between_rounds(void)
{
	/* Until an absolute time: with many signals a relative sleep would never end. */
	struct timespec end;
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_nsec += 500 * 1000 * 1000;
	end.tv_sec += end.tv_nsec / 1000000000;
	end.tv_nsec %= 1000000000;
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR)
		;
}

static void *run_lua_a(void *unused)
{
	(void)unused;
	kymo_thread_name((uintptr_t)gettid(), "lua-a");
	/* A thread's first event makes its stream. What a signal would record in that moment is
	 * counted as lost, so no signal shall come before. */
	kymo_marker(0);
	block_alarm(SIG_UNBLOCK);
	begin_first_round();
	program_first_round("lua-a");
	end_first_round();
	puts("demo: the first round is done");
	for (uint32_t number = 2; !last_round || number <= last_round; number++) {
		pause_between_rounds();
		program_round("lua-a", number);
	}
	/* The signal is this thread's, and it is about to end. */
	block_alarm(SIG_BLOCK);
	return NULL;
}

static void *run_lua_b(void *unused)
{
	(void)unused;
	kymo_thread_name((uintptr_t)gettid(), "lua-b");
	begin_first_round();
	program_round("lua-b", 1);
	end_first_round();
	for (uint32_t number = 2; !last_round || number <= last_round; number++) {
		pause_between_rounds();
		program_round("lua-b", number);
	}
	return NULL;
}

/* ------------------------------------------------------------------ link */

static int host = -1; /* the connection, if there is one */

static void send_to_host(const uint8_t *bytes, size_t count)
{
	while (host >= 0 && count > 0) {
		ssize_t sent = send(host, bytes, count, MSG_NOSIGNAL);
		if (sent < 0 && errno != EINTR)
			return; /* the host has disconnected; serve() detects that too */
		if (sent > 0) {
			bytes += sent;
			count -= (size_t)sent;
		}
	}
}

static int listen_at(uint16_t port)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t size = sizeof address;
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	int yes = 1;
	if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) ||
	    bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&address, &size)) {
		perror("demo: port");
		exit(1);
	}
	printf("demo: listening at 127.0.0.1:%d\n", ntohs(address.sin_port));
	return listener;
}

/* Serves one host after the other, endlessly. */
static void serve(int listener)
{
	for (;;) {
		/* The link also has things to do by itself: it sends a stream, and it gives up on
		 * a host that fell silent. */
		struct pollfd wanted = {.fd = host >= 0 ? host : listener, .events = POLLIN};
		if (poll(&wanted, 1, kymo_link_pending() ? 0 : 20) > 0) {
			if (host < 0) {
				host = accept(listener, NULL, NULL);
			} else {
				uint8_t bytes[256];
				ssize_t count = recv(host, bytes, sizeof bytes, 0);
				if (count <= 0 && errno != EINTR) {
					close(host);
					host = -1;
				}
				for (ssize_t i = 0; i < count; i++)
					kymo_link_receive(bytes[i]);
			}
		}
		kymo_link_poll();
	}
}

/* The value of `--name VALUE` on the command line, or `otherwise`. */
static long option(int count, char **words, const char *name, long otherwise)
{
	for (int i = 1; i + 1 < count; i++)
		if (strcmp(words[i], name) == 0)
			return strtol(words[i + 1], NULL, 10);
	return otherwise;
}

int main(int argc, char **argv)
{
	long port = option(argc, argv, "--port", -1);
	last_round = (uint32_t)option(argc, argv, "--rounds", 0);

	setvbuf(stdout, NULL, _IOLBF, 0);
	kymo_isr_name(SIGALRM, "SIGALRM");
	int listener = port >= 0 ? listen_at((uint16_t)port) : -1;

	/* Signals go to the thread that lets them: lua-a. */
	block_alarm(SIG_BLOCK);
	start_timer();
	pthread_t lua_a, lua_b;
	if (pthread_barrier_init(&first_round, NULL, 2) ||
	    pthread_create(&lua_a, NULL, run_lua_a, NULL) ||
	    pthread_create(&lua_b, NULL, run_lua_b, NULL)) {
		fputs("demo: no threads\n", stderr);
		return 1;
	}
	if (listener >= 0)
		serve(listener);
	pthread_join(lua_a, NULL);
	pthread_join(lua_b, NULL);
#ifdef NAIVE
	naive_save("naive.log");
#endif
	return 0;
}
