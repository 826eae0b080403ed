/* A logger in one thread: records arrive on a pipe, the volume's background work is done between them.
 *
 *   cc event_loop.c $(pkg-config --cflags --libs syncline) -o event_loop
 *   generate | ./event_loop card.img
 *
 * The image is made if it is not there. Every line is durable before the next one is read.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <syncline.h>

static void check(int64_t code, uint64_t handle, const char *doing)
{
    char text[256];
    if (code >= 0)
        return;
    syncline_error(handle, text, sizeof text);
    fprintf(stderr, "%s: %s\n", doing, text);
    exit(1);
}

int main(int count, char **words)
{
    syncline_volume volume;
    syncline_file log;
    char record[512];
    if (count != 2) {
        fprintf(stderr, "usage: event_loop IMAGE < RECORDS\n");
        return 2;
    }
    if (access(words[1], F_OK) != 0)
        check(syncline_mkfs(words[1], 64 << 20, "log", 0), 0, "making the image");
    check(syncline_open(words[1], "nobackground", &volume), 0, "opening the image");
    check(syncline_file_open(volume, "/log", SYNCLINE_APPEND | SYNCLINE_CREATE, 0644, &log), volume, "opening /log");
    for (;;) {
        struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
        int64_t wait_ms = syncline_tick(volume);
        check(wait_ms, volume, "background work");
        if (poll(&input, 1, (int)wait_ms) <= 0)
            continue;
        ssize_t len = read(STDIN_FILENO, record, sizeof record);
        if (len <= 0)
            break;
        check(syncline_file_write(log, record, (size_t)len), log, "writing");
        check(syncline_file_sync(log, 1), log, "syncing");
    }
    check(syncline_close(volume), 0, "closing");
    return 0;
}
