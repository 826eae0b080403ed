/* An image for each job of a machine that starts in a second: a tree in one pass, without a mount or root.
 *
 *   cc build.c $(pkg-config --cflags --libs syncline) -o build
 *   ./build new.img
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <syncline.h>

static syncline_build image;

/* Leaves no image behind when a step fails. */
static void check(int64_t code, const char *doing)
{
    char text[256];
    if (code >= 0)
        return;
    syncline_error(image, text, sizeof text);
    fprintf(stderr, "%s: %s\n", doing, text);
    if (image)
        syncline_build_cancel(image);
    exit(1);
}

static void file(const char *path, uint32_t mode, const char *text)
{
    const struct syncline_stat stat = {.mode = S_IFREG | mode, .mtime = {0, SYNCLINE_NOW, 0}};
    check(syncline_build_add(image, path, &stat, NULL, NULL, 0), path);
    check(syncline_build_write(image, text, strlen(text)), path);
}

int main(int count, char **words)
{
    const struct syncline_build_options options = {.spare_bytes = 16 << 20, .label = "job"};
    const struct syncline_stat directory = {.mode = S_IFDIR | 01777}, link = {.mode = S_IFLNK};
    const struct syncline_stat console = {.mode = S_IFCHR | 0600, .rdev = 5 << 8 | 1};
    const struct syncline_stat data = {.mode = S_IFREG | 0600};
    const struct syncline_xattr origin = {"user.origin", "job", 3};
    if (count != 2) {
        fprintf(stderr, "usage: build IMAGE\n");
        return 2;
    }
    remove(words[1]);
    check(syncline_build_begin(words[1], &options, &image), "beginning");
    file("/init", 0755, "#!/bin/sh\nexec sh /etc/job\n");
    file("/etc/job", 0644, "echo built; poweroff -f\n");
    check(syncline_build_add(image, "/tmp", &directory, NULL, NULL, 0), "/tmp");
    check(syncline_build_add(image, "/dev/console", &console, NULL, NULL, 0), "/dev/console");
    check(syncline_build_add(image, "/job", &link, "etc/job", NULL, 0), "/job");
    check(syncline_build_link(image, "/init", "/sbin/init"), "/sbin/init");
    /* A gigabyte that takes a block: a hole, and its end. */
    check(syncline_build_add(image, "/scratch", &data, NULL, &origin, 1), "/scratch");
    check(syncline_build_skip(image, (1 << 30) - 4), "/scratch");
    check(syncline_build_write(image, "end\n", 4), "/scratch");
    int64_t size = syncline_build_finish(image);
    image = 0;
    check(size, "making the image");
    printf("%" PRId64 " MiB\n", size >> 20);
    return 0;
}
