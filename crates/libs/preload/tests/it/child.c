/* Does what its arguments say, word by word: fsync NAME, open FLAGS NAME, rename OLD NEW, exit, ... */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static void need(int good, const char *what)
{
    if (!good) {
        perror(what);
        exit(9);
    }
}

static int made(const char *name)
{
    int fd = open(name, O_RDWR | O_CREAT, 0600);
    need(fd >= 0 && write(fd, name, strlen(name)) > 0, name);
    return fd;
}

/* A line in the log of calls, to tell what came before from what came after. */
static void mark(void)
{
    int log = open(getenv("SPY_LOG"), O_WRONLY | O_CREAT | O_APPEND, 0600);
    need(write(log, "mark\n", 5) == 5, "log");
    close(log);
}

static void map_and_msync(const char *name)
{
    int fd = made(name);
    need(ftruncate(fd, 8192) == 0, "ftruncate");
    char *at = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    at[5000] = 1;
    need(msync(at, 8192, MS_SYNC) == 0, "msync");
    close(fd);
}

static void open_as(const char *how, const char *name)
{
    int flags = strcmp(how, "sync") == 0 ? O_SYNC : O_DSYNC;
    int fd = open(name, O_RDWR | O_CREAT | flags, 0600);
    need(fd >= 0 && write(fd, "x", 1) == 1, name);
    close(fd);
    fd = openat(AT_FDCWD, name, O_RDWR | flags);
    need(fd >= 0, name);
    close(fd);
}

static void write_sync(const char *name)
{
    int fd = made(name);
    struct iovec part = {"abc", 3};
    need(pwritev2(fd, &part, 1, 0, RWF_DSYNC) == 3, "pwritev2");
    close(fd);
}

static void forked(const char *name)
{
    pid_t child = fork();
    if (child == 0) {
        int fd = made(name);
        need(fsync(fd) == 0, name);
        _exit(0);
    }
    int status;
    need(waitpid(child, &status, 0) == child && status == 0, "child");
}

int main(int count, char **words)
{
    for (int at = 1; at < count; at++) {
        const char *word = words[at], *name = at + 1 < count ? words[at + 1] : "", *other = at + 2 < count ? words[at + 2] : "";
        int fd = -1, used = 1;
        if (strcmp(word, "fsync") == 0)
            need((fd = made(name)) >= 0 && fsync(fd) == 0, name);
        else if (strcmp(word, "fdatasync") == 0)
            need((fd = made(name)) >= 0 && fdatasync(fd) == 0, name);
        else if (strcmp(word, "range") == 0)
            need((fd = made(name)) >= 0 && sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE) == 0, name);
        else if (strcmp(word, "syncfs") == 0)
            need((fd = made(name)) >= 0 && syncfs(fd) == 0, name);
        else if (strcmp(word, "directory") == 0)
            need((fd = open(name, O_RDONLY)) >= 0 && fsync(fd) == 0, name);
        else if (strcmp(word, "msync") == 0)
            map_and_msync(name);
        else if (strcmp(word, "pwritev2") == 0)
            write_sync(name);
        else if (strcmp(word, "fork") == 0)
            forked(name);
        else if (strcmp(word, "execv") == 0) {
            char *list[] = {(char *)name, 0};
            execv(name, list);
            need(0, name);
        } else if (strcmp(word, "mkdir") == 0)
            need(mkdir(name, 0700) == 0, name);
        else if (used = 2, strcmp(word, "open") == 0)
            open_as(name, other);
        else if (strcmp(word, "rename") == 0)
            need(rename(name, other) == 0, name);
        else if (strcmp(word, "exchange") == 0)
            need(renameat2(AT_FDCWD, name, AT_FDCWD, other, RENAME_EXCHANGE) == 0, name);
        else if (strcmp(word, "link") == 0)
            need(link(name, other) == 0, name);
        else if (used = 0, strcmp(word, "sync") == 0)
            sync();
        else if (strcmp(word, "mark") == 0)
            mark();
        else if (strcmp(word, "badfd") == 0)
            need(fsync(999) == -1 && errno == EBADF, "EBADF");
        else if (strcmp(word, "setfl") == 0) {
            fd = made("strict.setfl");
            need(fcntl(fd, F_SETFL, O_SYNC) == 0 && !(fcntl(fd, F_GETFL) & O_SYNC), "Linux ignores it");
        } else if (strcmp(word, "ring") == 0) {
            char params[120] = {0};
            fd = syscall(SYS_io_uring_setup, 4, params);
            printf("ring %d\n", fd >= 0);
        } else if (strcmp(word, "_exit") == 0)
            _exit(0);
        else
            return 8;
        at += used;
        if (fd >= 0)
            close(fd);
    }
    return 0;
}
