/* Images: made, opened, checked, and recovered after a program that died.
 *
 *   cc images.c $(pkg-config --cflags --libs syncline) -o images
 *   ./images new.img
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <syncline.h>

static int64_t check(int64_t code, const char *doing)
{
    char text[256];
    if (code >= 0)
        return code;
    syncline_error(0, text, sizeof text);
    fprintf(stderr, "%s: %s\n", doing, text);
    exit(1);
}

/* Is called with each finding of a check. */
static void say(void *context, const char *finding)
{
    ++*(int *)context;
    printf("%s\n", finding);
}

int main(int count, char **words)
{
    const char *image = words[1];
    syncline_volume volume;
    syncline_file file;
    struct syncline_report report;
    struct syncline_statfs space;
    int findings = 0;
    if (count != 2) {
        fprintf(stderr, "usage: images IMAGE\n");
        return 2;
    }
    printf("library %s\n", syncline_version());
    check(syncline_mkfs(image, 64 << 20, "images", 1), "making the image");

    if (fork() == 0) {
        /* A process that dies with the image open: what it synced is kept. */
        check(syncline_open(image, "sync=eager", &volume), "opening");
        check(syncline_file_open(volume, "/kept", SYNCLINE_WRITE | SYNCLINE_CREATE, 0644, &file), "creating");
        check(syncline_file_write(file, "kept\n", 5), "writing");
        check(syncline_file_sync(file, 0), "syncing");
        _exit(0);
    }
    wait(NULL);

    /* A reader recovers in memory and leaves the image alone. */
    check(syncline_open(image, "ro", &volume), "opening for reading");
    check(syncline_report(volume, &report), "report");
    printf("%u transactions replayed%s\n", report.transactions_replayed, report.in_memory ? ", in memory" : "");
    check(syncline_statfs(volume, &space), "statfs");
    printf("%" PRIu64 " of %" PRIu64 " blocks free\n", space.blocks_free, space.blocks);
    check(syncline_close(volume), "closing");

    check(syncline_recover(image, &report), "recovering");
    printf("%u transactions replayed on the image\n", report.transactions_replayed);
    int64_t errors = check(syncline_check(image, say, &findings), "checking");
    printf("%" PRId64 " errors\n", errors);
    return errors != 0 || findings != 0;
}
