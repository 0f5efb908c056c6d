/* Records events of its own (kymo_event.h), and nothing else. */
#include "kymo_event.h"

#define SENSOR(FIELD) FIELD(u8, channel) FIELD(u8, state) FIELD(f32, volts) FIELD(i16, offset) FIELD(u64, count)
#define SENSOR_TYPE 7
KYMO_EVENT(sensor, SENSOR_TYPE, SENSOR);
KYMO_EVENT_LABELS(sensor, state, "0=idle 1=busy");

#define MESSAGE(FIELD) FIELD(text16, topic) FIELD(bytes4, payload) FIELD(x32, flags) FIELD(f64, weight)
KYMO_EVENT(message, 0x102, MESSAGE);

#define EMPTY_HANDED(FIELD) FIELD(i64, number)
KYMO_EVENT(empty_handed, 65535, EMPTY_HANDED);

#define SAMPLES 3
#define HEARD(FIELD) FIELD(u16, samples[SAMPLES]) FIELD(f32, levels[2]) FIELD(u8, modes[2]) FIELD(text8, names[2])
KYMO_EVENT(heard, 9, HEARD);
KYMO_EVENT_LABELS(heard, modes, "0=off 1=on");

static int evaluated;

static uint64_t count(void)
{
	evaluated++;
	return 0x123456789ABCDEF0;
}

int main(void)
{
	kymo_off();
	/* Nothing is recorded, nothing evaluated. */
	KYMO_RECORD(sensor, .channel = 1, .count = count());
	kymo_on();
	KYMO_RECORD(sensor, .channel = 3, .state = 1, .volts = 1.5f, .offset = -20, .count = count());
	KYMO_RECORD(sensor, .channel = 4, .state = 9);
	KYMO_RECORD(message, .topic = "sixteen letters!", .payload = {1, 2, 3, 0xFF}, .flags = 0xBEEF, .weight = -0.25);
	struct kymo_event_message *message = KYMO_EVENT_RESERVE(message);
	if (message != NULL) {
		*message = (struct kymo_event_message){0};
		KYMO_EVENT_SET_TEXT(message->topic, "short");
		KYMO_EVENT_COMMIT(message, message);
	}
	KYMO_RECORD(empty_handed, .number = -5);
	KYMO_RECORD(heard, .samples = {1, 2, 0xFFFF}, .levels = {0.5f, -1}, .modes = {1, 2}, .names = {"left", "rightest"});
	/* One that is not declared. */
	void *other = kymo_reserve(4);
	if (other != NULL) {
		*(uint32_t *)other = 0x04030201;
		kymo_commit(other, 99);
	}
	kymo_off();
	return evaluated == 1 ? 0 : 1;
}
