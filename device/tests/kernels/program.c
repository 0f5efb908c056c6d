/* Alternative program to Lua: a few kernels typical of controller firmware, so that measurements can be
 * repeated on a program with another call profile. It sorts lists with a comparison callback, parses
 * numbers with a state machine, multiplies matrices and filters a signal; some functions are short and
 * called often, others loop for long. All of this is instrumented.
 */
#include "program.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

static uint32_t rounds;
static volatile uint32_t samples;

static uint32_t next_random(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

/* ------------------------------------------------------------------ a list */

#define NODES 128

struct node {
	struct node *next;
	uint32_t key;
	uint32_t place;
};

struct work {
	struct node nodes[NODES];
	int32_t a[16][16], b[16][16], c[16][16];
	int32_t signal[256];
	uint32_t random;
};

typedef bool less_function(const struct node *, const struct node *);

static bool less_by_key(const struct node *a, const struct node *b)
{
	return a->key < b->key;
}

static bool less_by_place(const struct node *a, const struct node *b)
{
	return a->place < b->place;
}

static struct node *make_list(struct work *work)
{
	for (uint32_t i = 0; i < NODES; i++) {
		work->nodes[i].next = i + 1 < NODES ? &work->nodes[i + 1] : NULL;
		work->nodes[i].key = next_random(&work->random);
		work->nodes[i].place = i;
	}
	return work->nodes;
}

static struct node *split(struct node *list)
{
	struct node *middle = list;
	for (struct node *end = list->next; end && end->next; end = end->next->next)
		middle = middle->next;
	struct node *rest = middle->next;
	middle->next = NULL;
	return rest;
}

static struct node *merge(struct node *a, struct node *b, less_function *less)
{
	struct node *list = NULL, **end = &list;
	while (a && b) {
		struct node **first = less(b, a) ? &b : &a;
		*end = *first;
		end = &(*end)->next;
		*first = *end;
	}
	*end = a ? a : b;
	return list;
}

static struct node *sort(struct node *list, less_function *less)
{
	if (!list || !list->next)
		return list;
	struct node *rest = split(list);
	return merge(sort(list, less), sort(rest, less), less);
}

/* ------------------------------------------------------------------ a machine of states */

enum state { START, INTEGER, FRACTION, EXPONENT, OTHER, STATES };

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static enum state step(enum state state, char c)
{
	switch (state) {
	case START:
		return is_digit(c) || c == '-' ? INTEGER : c == '.' ? FRACTION : OTHER;
	case INTEGER:
		return is_digit(c) ? INTEGER : c == '.' ? FRACTION : OTHER;
	case FRACTION:
		return is_digit(c) ? FRACTION : c == 'e' ? EXPONENT : OTHER;
	case EXPONENT:
		return is_digit(c) ? EXPONENT : OTHER;
	default:
		return OTHER;
	}
}

static void recognise(const char *text, uint32_t counts[STATES])
{
	enum state state = START;
	for (; *text; text++) {
		if (*text == ',') {
			counts[state]++;
			state = START;
		} else {
			state = step(state, *text);
		}
	}
	counts[state]++;
}

/* ------------------------------------------------------------------ matrices */

static int32_t row_times_column(const struct work *work, size_t row, size_t column)
{
	int32_t sum = 0;
	for (size_t i = 0; i < 16; i++)
		sum += work->a[row][i] * work->b[i][column];
	return sum;
}

static void fill(struct work *work)
{
	for (size_t i = 0; i < 16; i++) {
		for (size_t j = 0; j < 16; j++) {
			work->a[i][j] = (int32_t)(next_random(&work->random) & 255) - 128;
			work->b[i][j] = (int32_t)(i * j & 15);
		}
	}
}

static void multiply(struct work *work)
{
	for (size_t row = 0; row < 16; row++)
		for (size_t column = 0; column < 16; column++)
			work->c[row][column] = row_times_column(work, row, column);
}

/* ------------------------------------------------------------------ a filter */

static int32_t saturate(int32_t value)
{
	return value > 32767 ? 32767 : value < -32768 ? -32768 : value;
}

static void filter(struct work *work)
{
	static const int32_t taps[] = {-3, 12, 70, 120, 70, 12, -3};
	for (size_t i = 0; i + 7 <= 256; i++) {
		int32_t sum = 0;
		for (size_t tap = 0; tap < 7; tap++)
			sum += work->signal[i + tap] * taps[tap];
		work->signal[i] = saturate(sum >> 8);
	}
}

static void record_signal(struct work *work)
{
	for (size_t i = 0; i < 256; i++)
		work->signal[i] = (int32_t)(next_random(&work->random) & 0xFFFF) - 0x8000;
}

/* ------------------------------------------------------------------ rounds */

void program_round(const char *who, uint32_t number)
{
	/* One for each thread. */
	static struct work both[2];
	struct work *work = &both[who[4] == 'b'];
	uint32_t counts[STATES] = {0};
	work->random = number;
	for (int i = 0; i < 20; i++) {
		struct node *list = sort(make_list(work), less_by_key);
		list = sort(list, less_by_place);
		recognise("12,-7,0.5,3.25e7,x1,,999999,1.e3,abc,42,6.02e23,-0.001,7e7,..", counts);
		fill(work);
		multiply(work);
		record_signal(work);
		filter(work);
	}
	printf("%s: round %u: %u integers, %u others, %d\n", who, (unsigned)number,
	       (unsigned)counts[INTEGER], (unsigned)counts[OTHER], (int)work->c[3][5]);
	__atomic_add_fetch(&rounds, 1, __ATOMIC_RELAXED);
}

__attribute__((noinline)) void program_first_round(const char *who)
{
	program_round(who, 1);
}

uint32_t program_rounds(void)
{
	return __atomic_load_n(&rounds, __ATOMIC_RELAXED);
}

void program_sample(void)
{
	static uint32_t noise = 1;
	next_random(&noise);
	samples = samples + 1;
}

uint32_t program_samples(void)
{
	return samples;
}
