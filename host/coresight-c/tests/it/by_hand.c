/* Builds a trace from bytes, a source and code, and checks all results of the interface. */
#include <stdio.h>
#include <string.h>

#include "kymo_coresight.h"

#define CHECK(what)                                                    \
    do {                                                               \
        if (!(what)) {                                                 \
            printf("line %d: %s (%s)\n", __LINE__, #what, kymo_coresight_error()); \
            return 1;                                                  \
        }                                                              \
    } while (0)

/* Synchronization, trace info, trace on, address 0x1000 with the context of EL1; atoms N, E. */
static const uint8_t trace_bytes[] = {0, 0, 0, 0, 0,    0,    0,    0, 0, 0, 0, 0x80, 0x01, 0x01,
                                      0, 4, 0x85, 0x00, 0x08, 0, 0, 0, 0, 0, 0, 0x31, 0xda};

/* cbz x0, .+8; nop; b .-8 */
static const uint8_t code[] = {0x40, 0, 0, 0xb4, 0x1f, 0x20, 0x03, 0xd5, 0xfe, 0xff, 0xff, 0x17};

struct seen {
    kymo_coresight_element ranges[4];
    unsigned count, elements, packets, runs;
    char texts[512];
};

static int on_element(void *user, const kymo_coresight_element *element)
{
    struct seen *seen = user;
    seen->elements++;
    if (element->kind == KYMO_CORESIGHT_RANGE && seen->count < 4)
        seen->ranges[seen->count++] = *element;
    return 0;
}

static int on_packet(void *user, const kymo_coresight_packet *packet)
{
    struct seen *seen = user;
    if (packet->offset + packet->size > sizeof trace_bytes || !packet->bytes ||
        memcmp(packet->bytes, trace_bytes + packet->offset, packet->size) != 0)
        return 1;
    seen->packets++;
    strncat(seen->texts, packet->text, 20);
    return 0;
}

static int any_packet(void *user, const kymo_coresight_packet *packet)
{
    (void)user;
    return !packet->text;
}

static int stop(void *user, const kymo_coresight_element *element)
{
    (void)element;
    ++*(unsigned *)user;
    return 1;
}

static int on_run(void *user, const kymo_coresight_run *run)
{
    ((struct seen *)user)->runs++;
    return run->executions != 1;
}

int main(void)
{
    _Static_assert(sizeof(kymo_coresight_element) == 72, "as the library has it");
    _Static_assert(sizeof(kymo_coresight_run) == 48, "as the library has it");
    struct seen seen = {0};
    CHECK(!kymo_coresight_of_bytes(trace_bytes, sizeof trace_bytes, 9));
    CHECK(strstr(kymo_coresight_error(), "layout"));
    kymo_coresight *trace = kymo_coresight_of_bytes(trace_bytes, sizeof trace_bytes, KYMO_CORESIGHT_UNFORMATTED);
    CHECK(trace);
    CHECK(kymo_coresight_add_memory(trace, 0x1000, code, sizeof code, 0) == -1);
    CHECK(strstr(kymo_coresight_error(), "source before"));
    kymo_coresight_source source = {KYMO_CORESIGHT_ETMV4, 0, {0xc1, 0x10, 0x28000ea1, 0x4100f403, 0x488, 0, 0}};
    CHECK(kymo_coresight_add_source(trace, &source) == 0);
    CHECK(kymo_coresight_add_memory(trace, 0x1000, code, sizeof code, KYMO_CORESIGHT_EL1N) == 0);
    CHECK(kymo_coresight_add_file(trace, 0, "/nowhere", 0, 1, 0) == -1);
    CHECK(kymo_coresight_buffers(trace) == 1);
    CHECK(kymo_coresight_missing(trace) == 0 && !kymo_coresight_missing_file(trace, 0));

    CHECK(kymo_coresight_packets(trace, on_packet, &seen) == 0);
    CHECK(seen.packets == 5);
    CHECK(strstr(seen.texts, "I_ASYNC") && strstr(seen.texts, "I_TRACE_ON") && strstr(seen.texts, "I_ATOM_F2"));

    CHECK(kymo_coresight_elements(trace, on_element, &seen) == 0);
    CHECK(seen.count == 2 && seen.elements > 4);
    /* N: cbz was not taken. */
    CHECK(seen.ranges[0].start == 0x1000 && seen.ranges[0].end == 0x1004 && seen.ranges[0].count == 1);
    CHECK(seen.ranges[0].flags == (KYMO_CORESIGHT_BRANCH | KYMO_CORESIGHT_CONDITIONAL));
    /* E: nop, and b back. */
    CHECK(seen.ranges[1].start == 0x1004 && seen.ranges[1].end == 0x100c && seen.ranges[1].count == 2);
    CHECK(seen.ranges[1].flags == (KYMO_CORESIGHT_BRANCH | KYMO_CORESIGHT_TAKEN));
    CHECK(seen.ranges[1].isa == KYMO_CORESIGHT_A64 && seen.ranges[1].offset == sizeof trace_bytes - 1);

    unsigned calls = 0;
    CHECK(kymo_coresight_elements(trace, stop, &calls) == 0 && calls == 1);
    CHECK(kymo_coresight_elements(trace, NULL, NULL) == -1);
    CHECK(kymo_coresight_elements(NULL, stop, &calls) == -1);

    kymo_coresight_totals totals;
    CHECK(kymo_coresight_runs(trace, 1, on_run, &seen, &totals) == 0);
    CHECK(seen.runs == 2 && totals.instructions == 3 && totals.ranges == 2 && totals.not_accessible == 0);
    CHECK(kymo_coresight_runs(trace, 0, NULL, NULL, NULL) == 0);
    CHECK(kymo_coresight_warnings(trace) == 0 && !kymo_coresight_warning(trace, 0));
    kymo_coresight_free(trace);

    /* Without memory nothing is decoded, and a warning reports that once. */
    trace = kymo_coresight_of_bytes(trace_bytes, sizeof trace_bytes, KYMO_CORESIGHT_UNFORMATTED);
    CHECK(trace && kymo_coresight_warnings(trace) == 2);
    CHECK(strstr(kymo_coresight_warning(trace, 0), "describes no source"));
    CHECK(kymo_coresight_add_source(trace, &source) == 0);
    CHECK(kymo_coresight_warnings(trace) == 0);
    CHECK(kymo_coresight_runs(trace, 1, NULL, NULL, NULL) == 0);
    CHECK(kymo_coresight_elements(trace, on_element, &seen) == 0);
    CHECK(kymo_coresight_warnings(trace) == 1 && !kymo_coresight_warning(trace, 1));
    CHECK(strstr(kymo_coresight_warning(trace, 0), "no image is, first to 0x1000"));
    CHECK(kymo_coresight_warnings(NULL) == 0 && !kymo_coresight_warning(NULL, 0));
    kymo_coresight_free(trace);

    /* An ITM that synchronizes, overflows, and sends an invalid packet. */
    static const uint8_t itm[] = {0, 0, 0, 0, 0, 0x80, 0x70, 0x04};
    kymo_coresight_source software = {KYMO_CORESIGHT_ITM, 0, {0x10}};
    for (int way = 0; way < 3; way++) {
        trace = kymo_coresight_of_bytes(itm, sizeof itm, KYMO_CORESIGHT_UNFORMATTED);
        CHECK(trace && kymo_coresight_add_source(trace, &software) == 0);
        CHECK(kymo_coresight_warnings(trace) == 0);
        if (way == 0)
            CHECK(kymo_coresight_packets(trace, any_packet, NULL) == 0);
        else if (way == 1)
            CHECK(kymo_coresight_elements(trace, on_element, &seen) == 0);
        else
            CHECK(kymo_coresight_runs(trace, 1, NULL, NULL, NULL) == 0);
        CHECK(kymo_coresight_warnings(trace) == 2);
        CHECK(strstr(kymo_coresight_warning(trace, 0), "offset 7"));
        CHECK(strstr(kymo_coresight_warning(trace, 1), "overflow"));
        kymo_coresight_free(trace);
    }
    kymo_coresight_free(NULL);
    puts("all is well");
    return 0;
}
