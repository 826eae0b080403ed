/* A file of records: written in place, read back, shortened, with holes.
 *
 *   cc files.c $(pkg-config --cflags --libs syncline) -o files
 *   ./files card.img
 *
 * The image is made if it is not there.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <syncline.h>

enum { RECORD = 512, RECORDS = 100 };

static int64_t check(int64_t code, uint64_t handle, const char *doing)
{
    char text[256];
    if (code >= 0)
        return code;
    syncline_error(handle, text, sizeof text);
    fprintf(stderr, "%s: %s\n", doing, text);
    exit(1);
}

int main(int count, char **words)
{
    const unsigned how = SYNCLINE_READ | SYNCLINE_WRITE | SYNCLINE_CREATE;
    syncline_volume volume;
    syncline_file file;
    struct syncline_stat stat;
    char record[RECORD];
    if (count != 2) {
        fprintf(stderr, "usage: files IMAGE\n");
        return 2;
    }
    if (access(words[1], F_OK) != 0)
        check(syncline_mkfs(words[1], 64 << 20, "records", 0), 0, "making the image");
    check(syncline_open(words[1], NULL, &volume), 0, "opening the image");
    check(syncline_file_open(volume, "/records", how, 0644, &file), volume, "opening /records");

    /* Space for all of them at once: no write fails for want of it later. */
    check(syncline_file_allocate(file, SYNCLINE_ALLOCATE, 0, RECORDS * RECORD), file, "allocating");
    for (int nr = 0; nr < RECORDS; nr++) {
        memset(record, nr, sizeof record);
        check(syncline_file_pwrite(file, record, sizeof record, (uint64_t)nr * RECORD), file, "writing a record");
    }
    check(syncline_file_sync(file, 1), file, "syncing"); /* durable from here on */

    /* In any order, without a position: */
    check(syncline_file_pread(file, record, sizeof record, 42 * RECORD), file, "reading a record");
    printf("record 42 begins with %d\n", record[0]);

    /* In order, with the position that the file has: */
    check(syncline_file_seek(file, 98 * RECORD, SYNCLINE_SEEK_SET), file, "seeking");
    int last = 0;
    while (check(syncline_file_read(file, record, sizeof record), file, "reading on") == RECORD)
        last = record[0];
    printf("the last record begins with %d\n", last);

    /* The first 8 KiB are given back, the last records cut off. */
    check(syncline_file_allocate(file, SYNCLINE_PUNCH_HOLE, 0, 8192), file, "punching a hole");
    check(syncline_file_truncate(file, 50 * RECORD), file, "truncating");
    printf("data begins at %" PRId64 "\n", check(syncline_file_seek(file, 0, SYNCLINE_SEEK_DATA), file, "looking for data"));
    check(syncline_file_stat(file, &stat), file, "stat");
    printf("%" PRIu64 " bytes, %" PRIu64 " of them stored\n", stat.size, stat.blocks * 512);

    check(syncline_file_close(file), 0, "closing the file");
    check(syncline_close(volume), 0, "closing");
    return 0;
}
