/* Prints the ranges of a trace, or the runs that executed the most instructions.
 *
 *   hotspots INPUT            the twenty hottest runs
 *   hotspots --ranges INPUT   every range
 *
 * INPUT is a snapshot directory or a perf.data file. To build it:
 *
 *   cc hotspots.c -Iinclude -Ltarget/release -lkymo_coresight -o hotspots
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kymo_coresight.h"

static int print_range(void *user, const kymo_coresight_element *element)
{
    (void)user;
    if (element->kind == KYMO_CORESIGHT_RANGE)
        printf("%02x %#" PRIx64 "-%#" PRIx64 " %" PRIu32 " %s\n", element->trace_id, element->start, element->end,
               element->count, element->flags & KYMO_CORESIGHT_TAKEN ? "E" : "N");
    return 0;
}

struct runs {
    kymo_coresight_run *all;
    size_t count, room;
};

static int keep_run(void *user, const kymo_coresight_run *run)
{
    struct runs *runs = user;
    if (runs->count == runs->room) {
        size_t room = runs->room ? 2 * runs->room : 1024;
        kymo_coresight_run *all = realloc(runs->all, room * sizeof *all);
        if (!all)
            return 1;
        runs->all = all;
        runs->room = room;
    }
    runs->all[runs->count++] = *run;
    return 0;
}

static uint64_t heat(const kymo_coresight_run *run)
{
    return run->executions * run->count;
}

static int by_heat(const void *one, const void *other)
{
    const kymo_coresight_run *a = one, *b = other;
    if (heat(a) != heat(b))
        return heat(a) < heat(b) ? 1 : -1;
    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    return a->end < b->end ? -1 : a->end > b->end;
}

int main(int argc, char **argv)
{
    int ranges = argc == 3 && strcmp(argv[1], "--ranges") == 0;
    if (argc != 2 + ranges) {
        fprintf(stderr, "usage: hotspots [--ranges] INPUT\n");
        return 2;
    }
    kymo_coresight *trace = kymo_coresight_open(argv[1 + ranges], NULL);
    if (!trace) {
        fprintf(stderr, "error: %s\n", kymo_coresight_error());
        return 1;
    }

    int status;
    if (ranges) {
        status = kymo_coresight_elements(trace, print_range, NULL);
    } else {
        struct runs runs = {0};
        kymo_coresight_totals totals;
        status = kymo_coresight_runs(trace, 2, keep_run, &runs, &totals);
        if (status == 0) {
            if (runs.count)
                qsort(runs.all, runs.count, sizeof *runs.all, by_heat);
            printf("%" PRIu64 " instructions in %" PRIu64 " ranges, %zu of them distinct\n", totals.instructions,
                   totals.ranges, runs.count);
            for (size_t at = 0; at < runs.count && at < 20; at++) {
                const kymo_coresight_run *run = &runs.all[at];
                printf("%#" PRIx64 "-%#" PRIx64 " %" PRIu64 " times %" PRIu32 "\n", run->start, run->end,
                       run->executions, run->count);
            }
        }
        free(runs.all);
    }
    if (status != 0)
        fprintf(stderr, "error: %s\n", kymo_coresight_error());
    /* The warnings say why a result is empty or incomplete. */
    for (size_t at = 0; at < kymo_coresight_warnings(trace); at++)
        fprintf(stderr, "warning: %s\n", kymo_coresight_warning(trace, at));
    kymo_coresight_free(trace);
    return status != 0;
}
