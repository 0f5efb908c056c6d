/* A thread that exits while it fills a record. Saves to the file in its argument, clears the recording, and saves again
 * to the same name with ".2". */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "kymo.h"

const kymo_config_t kymo_config = {
	.version = KYMO_CONFIG_VERSION,
	.flags = KYMO_START_ON,
	.buffer_size = 64u << 10,
	.packet_size = 4096,
};

static void *reserves(void *unused)
{
	kymo_marker(1);
	void *record = kymo_reserve(24);
	if (record != NULL)
		memset(record, 7, 24);
	kymo_marker(2);
	return unused;
}

static void run(void *(*what)(void *))
{
	pthread_t thread;
	if (pthread_create(&thread, NULL, what, NULL) == 0)
		pthread_join(thread, NULL);
}

int main(int count, char **arguments)
{
	if (count < 2)
		return 1;
	char second[4096];
	snprintf(second, sizeof(second), "%s.2", arguments[1]);
	run(reserves);
	kymo_marker(3);
	/* Who lives is waited for. */
	void *record = kymo_reserve(8);
	kymo_clear();
	kymo_commit(record, 0);
	if (kymo_save(arguments[1]) != 0)
		return 2;
	kymo_clear();
	kymo_marker(4);
	return kymo_save(second) == 0 ? 0 : 3;
}
