/* Every function of syncline.h: what it does, and what it answers to arguments that make no sense. */
#include "every.h"

static const unsigned RW = SYNCLINE_READ | SYNCLINE_WRITE;

static void images(const char *path)
{
    syncline_volume volume;
    struct syncline_report report;
    OK(syncline_mkfs(path, 64 << 20, "things", 0));
    IS(syncline_mkfs(path, 64 << 20, NULL, 0), -EEXIST);
    IS(syncline_mkfs(path, 0, NULL, 0), -EEXIST);
    OK(syncline_mkfs(path, 0, NULL, 1));
    OK(syncline_mkfs(path, 64 << 20, "again", 1));
    IS(syncline_mkfs(NULL, 1, NULL, 0), -EINVAL);
    IS(syncline_mkfs("/nowhere/at/all", 64 << 20, NULL, 0), -ENOENT);
    IS(syncline_mkfs("tiny.img", 512, NULL, 0), -EINVAL);
    IS(access("tiny.img", F_OK), -1);
    IS(syncline_check(path, NULL, NULL), 0);
    IS(syncline_check("missing.img", NULL, NULL), -ENOENT);
    IS(syncline_check(NULL, NULL, NULL), -EINVAL);
    OK(syncline_recover(path, &report));
    IS(report.transactions_replayed, 0);
    OK(syncline_recover(path, NULL));
    IS(syncline_recover(NULL, &report), -EINVAL);

    if (geteuid() == 0) {
        OK(chown(".", 1000, 1001));
        OK(setegid(1001));
        OK(seteuid(1000));
    }
    struct syncline_stat root;
    OK(syncline_mkfs("own.img", 16 << 20, NULL, 0));
    OK(syncline_open("own.img", NULL, &volume));
    OK(syncline_stat(volume, "/", 0, &root));
    IS(root.uid, geteuid());
    IS(root.gid, getegid());
    OK(syncline_close(volume));
    if (getuid() == 0) {
        OK(seteuid(0));
        OK(setegid(0));
    }

    IS(syncline_open("missing.img", NULL, &volume), -ENOENT);
    IS(syncline_open(NULL, NULL, &volume), -EINVAL);
    IS(syncline_open(path, NULL, NULL), -EINVAL);
    IS(syncline_open(path, "no-such-option", &volume), -EINVAL);
    char text[200];
    CHECK(syncline_error(0, text, sizeof text) > 0 && strstr(text, "no-such-option"));
    IS(syncline_error(0, text, 5), syncline_error(0, NULL, 0));
    IS(strlen(text), 4);
    CHECK(strlen(syncline_version()) >= 5);
    IS(syncline_open(path, "durability=none", &volume), -EINVAL);
    OK(syncline_open(path, "durability=periodic,commit=1", &volume));
    OK(syncline_sync(volume));
    OK(syncline_close(volume));
}

static void files(syncline_volume volume)
{
    static char block[100000], back[100000];
    struct syncline_stat stat;
    syncline_file file, other;
    memset(block, 7, sizeof block);
    IS(syncline_file_open(volume, "/f", RW, 0644, &file), -ENOENT);
    OK(syncline_file_open(volume, "/f", RW | SYNCLINE_CREATE, 0644, &file));
    IS(syncline_file_open(volume, "/f", RW | SYNCLINE_CREATE | SYNCLINE_EXCLUSIVE, 0644, &other), -EEXIST);
    IS(syncline_file_open(volume, "/f", 0, 0, &other), -EINVAL);
    IS(syncline_file_open(volume, "/f", 1u << 31, 0, &other), -EINVAL);
    IS(syncline_file_open(volume, "/f", SYNCLINE_READ | SYNCLINE_TRUNCATE, 0, &other), -EINVAL);
    IS(syncline_file_open(volume, "/f", SYNCLINE_READ | SYNCLINE_EXCLUSIVE, 0, &other), -EINVAL);
    IS(syncline_file_open(volume, "/f", RW | SYNCLINE_CREATE, 0170000, &other), -EINVAL);
    IS(syncline_file_open(volume, NULL, RW, 0, &other), -EINVAL);
    IS(syncline_file_open(volume, "/f", RW, 0, NULL), -EINVAL);
    IS(syncline_file_open(volume, "/", RW, 0, &other), -EISDIR);

    IS(syncline_file_write(file, block, sizeof block), sizeof block);
    IS(syncline_file_pwrite(file, "head", 4, 0), 4);
    IS(syncline_file_seek(file, 0, SYNCLINE_SEEK_CUR), sizeof block);
    IS(syncline_file_seek(file, -4, SYNCLINE_SEEK_END), sizeof block - 4);
    IS(syncline_file_read(file, back, sizeof back), 4);
    IS(syncline_file_read(file, back, sizeof back), 0);
    IS(syncline_file_seek(file, 0, SYNCLINE_SEEK_SET), 0);
    IS(syncline_file_read(file, back, sizeof back), sizeof back);
    CHECK(memcmp(back, "head", 4) == 0 && memcmp(back + 4, block + 4, sizeof back - 4) == 0);
    IS(syncline_file_pread(file, back, 10, sizeof block - 3), 3);
    IS(syncline_file_pread(file, back, 0, 0), 0);
    IS(syncline_file_pread(file, NULL, 0, 0), 0);
    IS(syncline_file_pread(file, NULL, 1, 0), -EINVAL);
    IS(syncline_file_pread(file, back, SIZE_MAX, 0), -EINVAL);
    IS(syncline_file_pread(file, back, 1, BAD_OFFSET), -EINVAL);
    IS(syncline_file_pread(file, back, 1, BAD_OFFSET - 1), 0);
    IS(syncline_file_pwrite(file, block, 1, BAD_OFFSET - 1), -EINVAL);
    IS(syncline_file_pwrite(file, block, 1, BAD_OFFSET / 2), -EFBIG);
    IS(syncline_file_pwrite(file, NULL, 1, 0), -EINVAL);
    IS(syncline_file_pwrite(file, NULL, 0, 0), 0);
    IS(syncline_file_read(file, NULL, 1), -EINVAL);
    IS(syncline_file_write(file, NULL, 1), -EINVAL);
    IS(syncline_file_seek(file, -1, SYNCLINE_SEEK_SET), -EINVAL);
    IS(syncline_file_seek(file, INT64_MIN, SYNCLINE_SEEK_END), -EINVAL);
    IS(syncline_file_seek(file, INT64_MAX, SYNCLINE_SEEK_END), -EINVAL);
    IS(syncline_file_seek(file, 0, 99), -EINVAL);
    char text[100];
    CHECK(syncline_error(file, text, sizeof text) > 0);

    OK(syncline_file_truncate(file, 1 << 20));
    IS(syncline_file_seek(file, 0, SYNCLINE_SEEK_DATA), 0);
    IS(syncline_file_seek(file, 200000, SYNCLINE_SEEK_DATA), -ENXIO);
    CHECK(syncline_file_seek(file, 0, SYNCLINE_SEEK_HOLE) >= (int64_t)sizeof block);
    IS(syncline_file_truncate(file, BAD_OFFSET), -EINVAL);
    IS(syncline_file_truncate(file, BAD_OFFSET - 1), -EFBIG);
    OK(syncline_file_allocate(file, SYNCLINE_ALLOCATE, 1 << 20, 1 << 20));
    OK(syncline_file_allocate(file, SYNCLINE_ALLOCATE_KEEP_SIZE, 4 << 20, 4096));
    OK(syncline_file_allocate(file, SYNCLINE_PUNCH_HOLE, 0, 8192));
    OK(syncline_file_allocate(file, SYNCLINE_ZERO_RANGE, 8192, 4096));
    OK(syncline_file_allocate(file, SYNCLINE_ZERO_RANGE_KEEP_SIZE, 6 << 20, 4096));
    IS(syncline_file_allocate(file, 2, 0, 1), -EINVAL);
    IS(syncline_file_allocate(file, 0, 0, 0), -EINVAL);
    IS(syncline_file_allocate(file, 0, BAD_OFFSET - 2, 1), -EFBIG);
    IS(syncline_file_allocate(file, 0, BAD_OFFSET, 1), -EINVAL);
    IS(syncline_file_allocate(file, 0, 1, UINT64_MAX), -EINVAL);
    IS(syncline_file_pread(file, back, 12288, 0), 12288);
    for (int at = 0; at < 12288; at++)
        CHECK(back[at] == 0);
    OK(syncline_file_sync(file, 0));
    OK(syncline_file_sync(file, 1));
    OK(syncline_file_stat(file, &stat));
    CHECK(stat.size == 2 << 20 && stat.mode == (S_IFREG | 0644) && stat.nlink == 1 && stat.ino > 2);
    IS(syncline_file_stat(file, NULL), -EINVAL);

    OK(syncline_file_open(volume, "/f", SYNCLINE_APPEND | SYNCLINE_DSYNC, 0, &other));
    IS(syncline_file_write(other, "tail", 4), 4);
    IS(syncline_file_read(other, back, 1), -EBADF);
    OK(syncline_file_close(other));
    OK(syncline_file_open(volume, "/f", SYNCLINE_READ, 0, &other));
    IS(syncline_file_write(other, "x", 1), -EBADF);
    IS(syncline_file_truncate(other, 0), -EBADF);
    IS(syncline_file_pread(other, back, 10, 2 << 20), 4);
    CHECK(memcmp(back, "tail", 4) == 0);
    OK(syncline_file_close(other));
    IS(syncline_file_close(other), -EBADF);
    IS(syncline_file_pread(other, back, 1, 0), -EBADF);
    OK(syncline_file_open(volume, "/", SYNCLINE_READ, 0, &other));
    IS(syncline_file_read(other, back, 1), -EISDIR);
    OK(syncline_file_sync(other, 0));
    OK(syncline_file_close(other));

    /* A file without a name lives until it is closed. */
    OK(syncline_unlink(volume, "/f"));
    IS(syncline_file_pread(file, back, 4, 2 << 20), 4);
    OK(syncline_file_close(file));
    OK(syncline_file_open(volume, "/g", SYNCLINE_WRITE | SYNCLINE_CREATE | SYNCLINE_TRUNCATE, 0600, &file));
    IS(syncline_file_write(file, block, 5000), 5000);
    OK(syncline_file_close(file));
}

static void names(syncline_volume volume)
{
    struct syncline_stat stat;
    struct syncline_time time = {1000000000, 123456789, 0}, now = {0, SYNCLINE_NOW, 0}, bad = {0, 1000000000, 0};
    syncline_file file;
    char text[64];
    OK(syncline_mkdir(volume, "/d", 0755));
    IS(syncline_mkdir(volume, "/d", 0755), -EEXIST);
    IS(syncline_mkdir(volume, "/", 0755), -EEXIST);
    IS(syncline_mkdir(volume, "/e", 010000), -EINVAL);
    IS(syncline_mkdir(volume, "", 0755), -ENOENT);
    IS(syncline_mkdir(volume, NULL, 0755), -EINVAL);
    OK(syncline_rename(volume, "/g", "/d/g", 0));
    OK(syncline_link(volume, "/d/g", "/h"));
    IS(syncline_link(volume, "/d", "/i"), -EPERM);
    IS(syncline_rename(volume, "/d/g", "/h", SYNCLINE_RENAME_NOREPLACE), -EEXIST);
    OK(syncline_rename(volume, "/d", "/h", SYNCLINE_RENAME_EXCHANGE));
    OK(syncline_rename(volume, "/d", "/h", SYNCLINE_RENAME_EXCHANGE));
    IS(syncline_rename(volume, "/d/g", "/h", 4), -EINVAL);
    IS(syncline_rename(volume, "/d", "/d/below", 0), -EINVAL);
    IS(syncline_rename(volume, "/no", "/h", 0), -ENOENT);
    OK(syncline_symlink(volume, "d/g", "/s"));
    IS(syncline_symlink(volume, "", "/t"), -ENOENT);
    IS(syncline_file_open(volume, "/s", SYNCLINE_READ | SYNCLINE_NOFOLLOW, 0, &file), -ELOOP);
    OK(syncline_symlink(volume, "nowhere", "/dangling"));
    IS(syncline_file_open(volume, "/dangling", SYNCLINE_WRITE | SYNCLINE_CREATE, 0644, &file), -ENOENT);
    IS(syncline_readlink(volume, "/s", text, sizeof text), 3);
    CHECK(memcmp(text, "d/g", 3) == 0);
    IS(syncline_readlink(volume, "/s", NULL, 0), 3);
    IS(syncline_readlink(volume, "/s", text, 2), -ERANGE);
    IS(syncline_readlink(volume, "/s", NULL, 10), -EINVAL);
    IS(syncline_readlink(volume, "/h", text, sizeof text), -EINVAL);

    OK(syncline_chmod(volume, "/s", 0, 04711));
    OK(syncline_chown(volume, "/s", 0, 1000, UINT32_MAX));
    OK(syncline_chown(volume, "/s", SYNCLINE_NOFOLLOW, 7, 8));
    OK(syncline_utimes(volume, "/s", 0, &time, NULL));
    OK(syncline_utimes(volume, "/s", 0, NULL, &now));
    IS(syncline_utimes(volume, "/s", 0, &bad, NULL), -EINVAL);
    IS(syncline_chmod(volume, "/s", 0, 1u << 20), -EINVAL);
    IS(syncline_chmod(volume, "/s", 3, 0), -EINVAL);
    OK(syncline_stat(volume, "/s", 0, &stat));
    CHECK(stat.uid == 1000 && stat.gid == 0 && stat.size == 5000 && stat.nlink == 2);
    CHECK(stat.atime.seconds == 1000000000 && stat.atime.nanoseconds == 123456789);
    CHECK(stat.mtime.seconds > 1500000000);
    OK(syncline_stat(volume, "/s", SYNCLINE_NOFOLLOW, &stat));
    CHECK(S_ISLNK(stat.mode) && stat.uid == 7 && stat.gid == 8);
    IS(syncline_stat(volume, "/s", 77, &stat), -EINVAL);
    IS(syncline_stat(volume, "/no/way", 0, &stat), -ENOENT);
    IS(syncline_stat(volume, "/h/way", 0, &stat), -ENOTDIR);
    IS(syncline_stat(volume, "/s", 0, NULL), -EINVAL);
    static char longest[5000];
    memset(longest, 'x', sizeof longest - 1);
    IS(syncline_stat(volume, longest, 0, &stat), -ENAMETOOLONG);
    longest[300] = 0;
    IS(syncline_mkdir(volume, longest, 0700), -ENAMETOOLONG);
    IS(syncline_unlink(volume, "/d"), -EISDIR);
    IS(syncline_rmdir(volume, "/d"), -ENOTEMPTY);
    IS(syncline_rmdir(volume, "/h"), -ENOTDIR);
    IS(syncline_unlink(volume, "/no"), -ENOENT);
    OK(syncline_mkdir(volume, "/empty", 0));
    OK(syncline_rmdir(volume, "/empty"));
}

static void attributes(syncline_volume volume)
{
    char value[100];
    OK(syncline_setxattr(volume, "/h", 0, "user.a", "one", 3));
    IS(syncline_setxattr(volume, "/h", SYNCLINE_XATTR_CREATE, "user.a", "x", 1), -EEXIST);
    IS(syncline_setxattr(volume, "/h", SYNCLINE_XATTR_REPLACE, "user.b", "x", 1), -ENODATA);
    IS(syncline_setxattr(volume, "/h", 3, "user.b", "x", 1), -EINVAL);
    IS(syncline_setxattr(volume, "/h", 0, "user.b", NULL, 1), -EINVAL);
    IS(syncline_setxattr(volume, "/h", 0, NULL, "x", 1), -EINVAL);
    IS(syncline_setxattr(volume, "/h", 0, "nonsense", "x", 1), -EOPNOTSUPP);
    OK(syncline_setxattr(volume, "/h", 0, "user.empty", NULL, 0));
    IS(syncline_getxattr(volume, "/h", 0, "user.a", value, sizeof value), 3);
    CHECK(memcmp(value, "one", 3) == 0);
    IS(syncline_getxattr(volume, "/h", 0, "user.a", NULL, 0), 3);
    IS(syncline_getxattr(volume, "/h", 0, "user.a", value, 2), -ERANGE);
    IS(syncline_getxattr(volume, "/h", 0, "user.no", value, 2), -ENODATA);
    IS(syncline_getxattr(volume, "/h", 2, "user.a", value, 2), -EINVAL);
    IS(syncline_listxattr(volume, "/h", 0, value, sizeof value), 7 + 11);
    IS(syncline_listxattr(volume, "/h", 0, NULL, 0), 7 + 11);
    IS(syncline_listxattr(volume, "/h", 0, value, 3), -ERANGE);
    OK(syncline_setxattr(volume, "/s", SYNCLINE_NOFOLLOW, "trusted.t", "1", 1));
    IS(syncline_getxattr(volume, "/s", SYNCLINE_NOFOLLOW, "trusted.t", value, 9), 1);
    IS(syncline_getxattr(volume, "/s", 0, "trusted.t", value, 9), -ENODATA);
    OK(syncline_removexattr(volume, "/h", 0, "user.a"));
    IS(syncline_removexattr(volume, "/h", 0, "user.a"), -ENODATA);
    IS(syncline_removexattr(volume, "/h", 0, NULL), -EINVAL);
}

static void directories(syncline_volume volume)
{
    struct syncline_entry entry;
    syncline_dir dir;
    syncline_file file;
    char name[32];
    OK(syncline_mkdir(volume, "/many", 0755));
    for (int at = 0; at < 3000; at++) {
        snprintf(name, sizeof name, "/many/%d", at);
        OK(syncline_file_open(volume, name, SYNCLINE_WRITE | SYNCLINE_CREATE, 0644, &file));
        OK(syncline_file_close(file));
    }
    static char seen[3000];
    OK(syncline_dir_open(volume, "/many", &dir));
    int read;
    while ((read = syncline_dir_read(dir, &entry)) == 1) {
        int at = atoi(entry.name);
        CHECK(at >= 0 && at < 3000 && !seen[at] && entry.type == S_IFREG && entry.ino);
        CHECK(strlen(entry.name) == entry.name_len);
        seen[at] = 1;
    }
    IS(read, 0);
    CHECK(!memchr(seen, 0, sizeof seen));
    IS(syncline_dir_read(dir, NULL), -EINVAL);
    IS(syncline_file_close(dir), -EBADF);
    IS(syncline_dir_read(dir, &entry), 0);
    OK(syncline_dir_close(dir));
    IS(syncline_dir_close(dir), -EBADF);
    IS(syncline_dir_read(dir, &entry), -EBADF);
    IS(syncline_dir_open(volume, "/h", &dir), -ENOTDIR);
    IS(syncline_dir_open(volume, NULL, &dir), -EINVAL);
    IS(syncline_dir_open(volume, "/", NULL), -EINVAL);
}

static void read_only(const char *path)
{
    syncline_volume volume, second;
    syncline_file file;
    char byte;
    OK(syncline_open(path, "ro", &volume));
    OK(syncline_open(path, "ro", &second));
    IS(syncline_open(path, NULL, &(syncline_volume){0}), -EBUSY);
    IS(syncline_mkdir(volume, "/x", 0755), -EROFS);
    IS(syncline_unlink(volume, "/h"), -EROFS);
    IS(syncline_file_open(volume, "/h", RW, 0, &file), -EROFS);
    OK(syncline_file_open(volume, "/h", SYNCLINE_READ, 0, &file));
    IS(syncline_file_read(file, &byte, 1), 1);
    CHECK(byte == 7);
    OK(syncline_file_sync(file, 0));
    OK(syncline_sync(volume));
    /* In the wrong order. */
    OK(syncline_close(volume));
    IS(syncline_file_read(file, &byte, 1), -EBADF);
    IS(syncline_file_close(file), -EBADF);
    OK(syncline_close(second));
}

static void builds(void)
{
    const struct syncline_time time = {1500000000, 123456789, 0}, bad = {0, 1000000000, 0};
    const struct syncline_stat dir = {.mode = S_IFDIR | 0750, .uid = 7, .atime = time, .mtime = time};
    const struct syncline_stat plain = {.mode = S_IFREG | 0640, .gid = 9, .mtime = {0, SYNCLINE_NOW, 0}};
    const struct syncline_stat link = {.mode = S_IFLNK | 0777}, null = {.mode = S_IFCHR | 0666, .rdev = 1 << 8 | 3};
    const struct syncline_stat wrong[] = {{.mode = 0644}, {.mode = S_IFREG | 1u << 16}, {.mode = 0170000},
                                          {.mode = S_IFREG, .mtime = bad}};
    const struct syncline_xattr xattrs[] = {{"user.source", "test", 4}, {"user.empty", NULL, 0}};
    const uint8_t uuid[16] = {1, 2, 3};
    const struct syncline_build_options all = {
        .spare_percent = 20, .inodes = 100, .time_s = 1700000000, .label = "built", .uuid = uuid,
        .hash_seed = "5c1e1f5e-0000-4000-8000-000000000002"};
    struct syncline_stat stat;
    syncline_build build;
    syncline_volume volume;
    syncline_file file;
    char text[64];
    OK(syncline_build_begin("built.img", &all, &build));
    IS(syncline_build_begin("built.img", &all, &(syncline_build){0}), -EEXIST);
    IS(syncline_build_write(build, "x", 1), -EINVAL);
    OK(syncline_build_add(build, "/etc", &dir, NULL, NULL, 0));
    OK(syncline_build_add(build, "/usr/share/f", &plain, NULL, xattrs, 2));
    OK(syncline_build_write(build, "begin", 5));
    OK(syncline_build_write(build, NULL, 0));
    OK(syncline_build_skip(build, 100000));
    OK(syncline_build_write(build, "end", 3));
    IS(syncline_build_write(build, NULL, 1), -EINVAL);
    OK(syncline_build_add(build, "/etc/s", &link, "../usr", NULL, 0));
    IS(syncline_build_skip(build, 1), -EINVAL);
    OK(syncline_build_add(build, "/null", &null, NULL, NULL, 0));
    OK(syncline_build_link(build, "/usr/share/f", "/g"));
    IS(syncline_build_link(build, "/nothing", "/h"), -ENOENT);
    IS(syncline_build_add(build, "/g", &plain, NULL, NULL, 0), -EEXIST);
    IS(syncline_build_add(build, "/g/h", &plain, NULL, NULL, 0), -ENOTDIR);
    IS(syncline_build_add(build, "/t", &link, NULL, NULL, 0), -EINVAL);
    IS(syncline_build_add(build, "/t", &plain, "target", NULL, 0), -EINVAL);
    IS(syncline_build_add(build, NULL, &plain, NULL, NULL, 0), -EINVAL);
    IS(syncline_build_add(build, "/t", NULL, NULL, NULL, 0), -EINVAL);
    IS(syncline_build_add(build, "/t", &plain, NULL, NULL, 1), -EINVAL);
    IS(syncline_build_add(build, "/t", &plain, NULL, xattrs, SIZE_MAX), -EINVAL);
    IS(syncline_build_add(build, "/..", &plain, NULL, NULL, 0), -EINVAL);
    for (size_t at = 0; at < sizeof wrong / sizeof *wrong; at++)
        IS(syncline_build_add(build, "/t", &wrong[at], NULL, NULL, 0), -EINVAL);
    IS(syncline_sync(build), -EBADF);
    IS(syncline_close(build), -EBADF);
    int64_t bytes = syncline_build_finish(build);
    struct stat host;
    OK(lstat("built.img", &host));
    CHECK(host.st_size == bytes && bytes > 0 && bytes < 8 << 20);
    IS(syncline_build_finish(build), -EBADF);
    IS(syncline_build_add(build, "/x", &plain, NULL, NULL, 0), -EBADF);
    IS(syncline_check("built.img", NULL, NULL), 0);

    OK(syncline_open("built.img", "ro", &volume));
    OK(syncline_stat(volume, "/etc", 0, &stat));
    CHECK(stat.mode == dir.mode && stat.uid == 7 && !memcmp(&stat.mtime, &time, sizeof time));
    OK(syncline_stat(volume, "/g", 0, &stat));
    CHECK(stat.mode == plain.mode && stat.gid == 9 && stat.nlink == 2 && stat.size == 100008 && stat.blocks < 64);
    CHECK(stat.mtime.seconds == 1700000000 && stat.atime.seconds == 0);
    IS(syncline_getxattr(volume, "/g", 0, "user.source", text, sizeof text), 4);
    IS(syncline_getxattr(volume, "/g", 0, "user.empty", text, sizeof text), 0);
    OK(syncline_file_open(volume, "/g", SYNCLINE_READ, 0, &file));
    IS(syncline_file_pread(file, text, sizeof text, 100004), 4);
    CHECK(!memcmp(text, "\0end", 4));
    IS(syncline_readlink(volume, "/etc/s", text, sizeof text), 6);
    OK(syncline_stat(volume, "/null", 0, &stat));
    CHECK(stat.mode == null.mode && stat.rdev == null.rdev);
    OK(syncline_close(volume));

    /* What fails or is given up leaves nothing. */
    OK(syncline_build_begin("none.img", NULL, &build));
    OK(syncline_build_cancel(build));
    IS(syncline_build_cancel(build), -EBADF);
    IS(access("none.img", F_OK), -1);
    static char part[1 << 20] = {1};
    OK(syncline_build_begin("none.img", &(struct syncline_build_options){.size_bytes = 8 << 20}, &build));
    OK(syncline_build_add(build, "/big", &plain, NULL, NULL, 0));
    int code = 0;
    for (int parts = 0; parts < 9 && code == 0; parts++)
        code = syncline_build_write(build, part, sizeof part);
    code = code ? code : (int)syncline_build_finish(build);
    IS(code, -ENOSPC);
    syncline_build_cancel(build);
    IS(access("none.img", F_OK), -1);
    IS(syncline_build_begin("bad.img", &(struct syncline_build_options){.reserved = 1}, &build), -EINVAL);
    IS(syncline_build_begin("bad.img", &(struct syncline_build_options){.spare_bytes = 1, .spare_percent = 1}, &build),
       -EINVAL);
    IS(syncline_build_begin("bad.img", &(struct syncline_build_options){.label = "more than 16 bytes"}, &build), -EINVAL);
    IS(syncline_build_begin(NULL, NULL, &build), -EINVAL);
    IS(syncline_build_begin("bad.img", NULL, NULL), -EINVAL);
    IS(access("bad.img", F_OK), -1);
    IS(syncline_build_finish(0), -EBADF);
    IS(syncline_build_link(0, "/a", "/b"), -EBADF);
}

int main(int count, char **words)
{
    CHECK(count == 2);
    const char *path = words[1];
    syncline_volume volume, other;
    struct syncline_statfs space;
    struct syncline_report report;
    syncline_file left;
    syncline_dir dir;
    images(path);
    builds();
    OK(syncline_open(path, "nobackground", &volume));
    IS(syncline_open(path, NULL, &other), -EBUSY);
    IS(syncline_open(path, "ro", &other), -EBUSY);
    IS(syncline_check(path, NULL, NULL), -EBUSY);
    files(volume);
    names(volume);
    attributes(volume);
    directories(volume);
    OK(syncline_statfs(volume, &space));
    CHECK(space.block_size >= 1024 && space.blocks > space.blocks_free && space.name_len == 255);
    IS(syncline_statfs(volume, NULL), -EINVAL);
    OK(syncline_report(volume, &report));
    CHECK(report.transactions_replayed == 0 && report.in_memory == 0);
    IS(syncline_report(volume, NULL), -EINVAL);
    CHECK(syncline_tick(volume) >= 0);
    OK(syncline_sync(volume));
    IS(syncline_file_close(volume), -EBADF);
    IS(syncline_dir_close(volume), -EBADF);
    IS(syncline_file_sync(volume, 0), -EBADF);
    IS(syncline_dir_read(volume, &(struct syncline_entry){0}), -EBADF);
    OK(syncline_file_open(volume, "/h", RW, 0, &left));
    IS(syncline_sync(left), -EBADF);
    IS(syncline_close(left), -EBADF);
    OK(syncline_dir_open(volume, "/", &dir));
    OK(syncline_close(volume));
    /* The volume ended both; their handles can still be closed. */
    IS(syncline_dir_read(dir, &(struct syncline_entry){0}), -EBADF);
    OK(syncline_dir_close(dir));
    IS(syncline_file_close(left), -EBADF);
    IS(syncline_file_close(left), -EBADF);
    IS(syncline_close(volume), -EBADF);
    IS(syncline_close(0), -EBADF);
    IS(syncline_sync(volume), -EBADF);
    IS(syncline_tick(volume), -EBADF);
    IS(syncline_report(volume, &report), -EBADF);
    read_only(path);
    IS(syncline_check(path, NULL, NULL), 0);
    puts("every function answers");
    return 0;
}
