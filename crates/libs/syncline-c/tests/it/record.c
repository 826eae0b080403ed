/* Two events that overlap, and calls that must fail. The directory is the only argument. */
#include "syncline_recorder.h"

#include <stdio.h>
#include <string.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, syncline_recorder_error()); \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

int main(int count, char **arguments)
{
    syncline_recorder_config config = {
        .recorder = 7,
        .record_bytes_max = 100,
        .pre_records = 10,
        .post_records_max = 20,
        .slack_records = 1000,
        .events_max = 2,
        .strategy = SYNCLINE_RECORDER_POOL,
    };
    syncline_recorder_counts_t counts;
    syncline_recorder *recorder = NULL;
    char record[101];
    uint64_t n;

    CHECK(count == 2);
    CHECK(syncline_recorder_open(NULL, &config, &recorder) == -1);
    CHECK(strstr(syncline_recorder_error(), "null pointer") != NULL);
    config.strategy = 9;
    CHECK(syncline_recorder_open(arguments[1], &config, &recorder) == -1);
    CHECK(strstr(syncline_recorder_error(), "strategy 9") != NULL);
    config.strategy = SYNCLINE_RECORDER_POOL;
    CHECK(syncline_recorder_open(arguments[1], &config, &recorder) == 0);
    for (n = 0; n < 100; n++) {
        memset(record, (int)n, sizeof record);
        if (n == 30)
            syncline_recorder_trigger(recorder, 20);
        if (n == 40)
            syncline_recorder_trigger(recorder, 5);
        CHECK(syncline_recorder_push(recorder, n * 1000, record, 100) == 0);
    }
    CHECK(syncline_recorder_push(recorder, n, record, 101) == 1);
    CHECK(syncline_recorder_push(recorder, n, NULL, 1) == -1);
    syncline_recorder_stop(recorder);
    CHECK(syncline_recorder_counts(recorder, &counts) == 0);
    CHECK(counts.lost == 1);
    CHECK(syncline_recorder_close(recorder, &counts) == 0);
    CHECK(counts.started == 2 && counts.finished == 2 && counts.durable == 2);
    CHECK(counts.refused == 0 && counts.failed == 0 && counts.lost == 1);
    CHECK(syncline_recorder_close(NULL, NULL) == 0);
    return 0;
}
