/* A tree of files and what belongs to them: names, links, owners, times, attributes, lists.
 *
 *   cc tree.c $(pkg-config --cflags --libs syncline) -o tree
 *   ./tree card.img
 *
 * The image is made if it is not there, and the tree is removed at the end.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <syncline.h>

static syncline_volume volume;

static int64_t check(int64_t code, const char *doing)
{
    char text[256];
    if (code >= 0)
        return code;
    syncline_error(volume, text, sizeof text);
    fprintf(stderr, "%s: %s\n", doing, text);
    exit(1);
}

static void write_file(const char *path, const char *text)
{
    syncline_file file;
    check(syncline_file_open(volume, path, SYNCLINE_WRITE | SYNCLINE_CREATE | SYNCLINE_TRUNCATE, 0644, &file), path);
    check(syncline_file_write(file, text, strlen(text)), path);
    check(syncline_file_sync(file, 0), path);
    check(syncline_file_close(file), path);
}

static void list(const char *path)
{
    syncline_dir dir;
    struct syncline_entry entry;
    check(syncline_dir_open(volume, path, &dir), path);
    while (check(syncline_dir_read(dir, &entry), path) == 1)
        printf("%s/%s\n", path, entry.name);
    check(syncline_dir_close(dir), path);
}

int main(int count, char **words)
{
    const struct syncline_time now = {.nanoseconds = SYNCLINE_NOW}, then = {.seconds = 1000000000};
    struct syncline_stat stat;
    char text[256] = "";
    if (count != 2) {
        fprintf(stderr, "usage: tree IMAGE\n");
        return 2;
    }
    if (access(words[1], F_OK) != 0)
        check(syncline_mkfs(words[1], 64 << 20, "tree", 0), "making the image");
    check(syncline_open(words[1], NULL, &volume), "opening the image");
    check(syncline_mkdir(volume, "/site", 0755), "mkdir");

    /* A new version takes the place of the old one: a power cut leaves one of them, whole. */
    write_file("/site/index", "old\n");
    write_file("/site/index.new", "new\n");
    check(syncline_rename(volume, "/site/index.new", "/site/index", 0), "rename");

    check(syncline_link(volume, "/site/index", "/site/again"), "link");
    check(syncline_symlink(volume, "index", "/site/main"), "symlink");
    text[check(syncline_readlink(volume, "/site/main", text, sizeof text - 1), "readlink")] = 0;
    printf("/site/main -> %s\n", text);

    check(syncline_chmod(volume, "/site/index", 0, 0640), "chmod");
    check(syncline_chown(volume, "/site/main", SYNCLINE_NOFOLLOW, 1000, UINT32_MAX), "chown"); /* the link itself */
    check(syncline_utimes(volume, "/site/index", 0, &now, &then), "utimes");
    check(syncline_stat(volume, "/site/again", 0, &stat), "stat");
    printf("mode %o, %u names, written in %lld\n", stat.mode & 07777, stat.nlink, (long long)stat.mtime.seconds);

    check(syncline_setxattr(volume, "/site/index", 0, "user.source", "sensor", 6), "setxattr");
    check(syncline_listxattr(volume, "/site/index", 0, text, sizeof text), "listxattr"); /* names with their zero bytes */
    printf("first attribute %s\n", text);
    text[check(syncline_getxattr(volume, "/site/index", 0, "user.source", text, sizeof text - 1), "getxattr")] = 0;
    printf("its value %s\n", text);
    check(syncline_removexattr(volume, "/site/index", 0, "user.source"), "removexattr");

    list("/site");
    check(syncline_unlink(volume, "/site/main"), "unlink");
    check(syncline_unlink(volume, "/site/again"), "unlink");
    check(syncline_unlink(volume, "/site/index"), "unlink");
    check(syncline_rmdir(volume, "/site"), "rmdir");
    check(syncline_sync(volume), "sync"); /* removals are durable, too */
    check(syncline_close(volume), "closing");
    return 0;
}
