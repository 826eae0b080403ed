/* Throughput through C; crates/libs/syncline/examples/throughput.rs says what is measured. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "syncline.h"

#define MIB (1 << 20)
#define SPREAD (UINT64_C(16) << 20)

static void checked(int64_t result, uint64_t handle)
{
    char text[400];
    if (result >= 0)
        return;
    syncline_error(handle, text, sizeof text);
    fprintf(stderr, "%s\n", text);
    exit(1);
}

static long long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int main(int count, char **words)
{
    syncline_volume volume;
    syncline_file file;
    char *block = malloc(MIB);
    if (count != 4 || !block)
        return 2;
    const uint64_t rounds = strtoull(words[3], NULL, 10);
    memset(block, 'x', MIB);
    checked(syncline_open(words[1], NULL, &volume), 0);
    checked(syncline_file_open(volume, "/file", SYNCLINE_READ | SYNCLINE_WRITE | SYNCLINE_CREATE, 0644, &file), volume);
    if (!strcmp(words[2], "stream")) {
        long long begin = now();
        for (uint64_t at = 0; at < rounds; at++)
            checked(syncline_file_pwrite(file, block, MIB, at << 20), file);
        checked(syncline_file_sync(file, 0), file);
        printf("%lld ", now() - begin);
        begin = now();
        for (uint64_t at = 0; at < rounds; at++)
            checked(syncline_file_pread(file, block, MIB, at << 20), file);
        printf("%lld\n", now() - begin);
    } else {
        for (uint64_t at = 0; at < SPREAD >> 20; at++)
            checked(syncline_file_pwrite(file, block, MIB, at << 20), file);
        checked(syncline_file_sync(file, 0), file);
        long long begin = now();
        for (uint64_t at = 0; at < rounds; at++) {
            checked(syncline_file_pwrite(file, block, 4096, at * 7919 * 4096 % SPREAD), file);
            checked(syncline_file_sync(file, 0), file);
        }
        printf("%lld\n", now() - begin);
    }
    checked(syncline_file_close(file), 0);
    checked(syncline_unlink(volume, "/file"), volume);
    checked(syncline_close(volume), 0);
    free(block);
    return 0;
}
