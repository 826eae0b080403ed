/* Fills a file in random order, and does what its other words say: see main. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PIECE = 5000, PIECES = 300 };

static char piece[PIECE], got[PIECE];
static int order[PIECES];
static const char *name;
static int fd = -1;

static void need(int good, const char *what)
{
    if (!good) {
        fprintf(stderr, "filler: %s: %s\n", what, strerror(errno));
        exit(9);
    }
}

static void make(int nr)
{
    for (int at = 0; at < PIECE; at++)
        piece[at] = 'a' + (nr * 7 + at * 3 + nr * at / 11) % 26;
}

static void put(int nr, int way)
{
    make(nr);
    off_t at = (off_t)nr * PIECE;
    struct iovec parts[2] = {{piece, 1000}, {piece + 1000, PIECE - 1000}};
    if (way == 0)
        need(pwrite(fd, piece, PIECE, at) == PIECE, "pwrite");
    else if (way == 1)
        need(lseek(fd, at, SEEK_SET) == at && write(fd, piece, PIECE) == PIECE, "write");
    else if (way == 2)
        need(pwritev(fd, parts, 2, at) == PIECE, "pwritev");
    else
        need(lseek(fd, at, SEEK_SET) == at && writev(fd, parts, 2) == PIECE, "writev");
    if (way % 2)
        need(lseek(fd, 0, SEEK_CUR) == at + PIECE, "the position");
}

static void look(int nr, int there)
{
    make(nr);
    if (!there)
        memset(piece, 0, PIECE);
    need(pread(fd, got, PIECE, (off_t)nr * PIECE) == PIECE && memcmp(got, piece, PIECE) == 0, "a piece that is read");
}

static void fill(int from, int to)
{
    for (int at = from; at < to; at++) {
        put(order[at], at % 4);
        if (at % 16 == 15)
            need(fsync(fd) == 0 && fdatasync(fd) == 0, "fsync");
        look(order[at], 1);
    }
}

static void verify(int count)
{
    for (int at = 0; at < PIECES; at++)
        look(order[at], at < count);
    need(pread(fd, got, PIECE, (off_t)PIECES * PIECE) == 0, "the end");
}

static void whole(void)
{
    struct stat found;
    need(lseek(fd, 0, SEEK_SET) == 0, "lseek");
    for (int nr = 0; nr < PIECES; nr++) {
        make(nr);
        need(read(fd, got, PIECE) == PIECE && memcmp(got, piece, PIECE) == 0, "reading in order");
    }
    need(read(fd, got, 1) == 0 && fstat(fd, &found) == 0 && found.st_size == (off_t)PIECES * PIECE, "the length");
}

static void use(const char *how)
{
    char other[4096];
    snprintf(other, sizeof other, "%s.new", name);
    if (strcmp(how, "rename") == 0)
        need(rename(name, other) == 0 && rename(other, name) == 0, how);
    else if (strcmp(how, "link") == 0)
        need(link(name, other) == 0 && unlink(other) == 0, how);
    else if (strcmp(how, "mmap") == 0) {
        char *at = mmap(0, PIECE, PROT_READ, MAP_SHARED, fd, 0);
        make(0);
        need(at != MAP_FAILED && memcmp(at, piece, PIECE) == 0, how);
    } else if (strcmp(how, "stdio") == 0) {
        FILE *file = fopen(name, "r+");
        make(0);
        need(file && fread(got, PIECE, 1, file) == 1 && memcmp(got, piece, PIECE) == 0 && fclose(file) == 0, how);
    } else if (strcmp(how, "fork") == 0) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            whole();
            _exit(0);
        }
        need(waitpid(child, &status, 0) == child && status == 0, how);
    } else if (strcmp(how, "sendfile") == 0) {
        int to = open(other, O_RDWR | O_CREAT | O_TRUNC, 0600);
        make(0);
        off_t from = 0;
        need(sendfile(to, fd, &from, PIECE) == PIECE && pread(to, got, PIECE, 0) == PIECE, how);
        need(memcmp(got, piece, PIECE) == 0 && unlink(other) == 0, how);
    } else if (strcmp(how, "punch") == 0) {
        need(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PIECE) == 0, how);
        look(0, 0);
        put(0, 0);
    } else if (strcmp(how, "overwrite") == 0)
        for (int round = 0; round < 14000; round++)
            put(round % PIECES, 0);
    else if (strcmp(how, "second") == 0) {
        int first = fd, copy = dup(fd);
        need(lseek(copy, 0, SEEK_SET) == 0 && read(copy, got, PIECE) == PIECE && lseek(first, 0, SEEK_CUR) == PIECE, "dup");
        fd = open(name, O_RDONLY);
        whole();
        need(close(copy) == 0 && close(fd) == 0, "close");
        fd = first;
    } else if (strcmp(how, "cut") == 0) {
        need(ftruncate(fd, PIECE) == 0 && ftruncate(fd, (off_t)PIECES * PIECE) == 0, how);
        for (int nr = 0; nr < PIECES; nr++)
            look(nr, nr == 0);
        for (int nr = 1; nr < PIECES; nr++)
            put(nr, nr % 4);
    } else if (strcmp(how, "unlink") == 0) {
        need(unlink(name) == 0 && access(name, F_OK) != 0, how);
        whole();
        close(fd);
        fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
        need(fd >= 0 && posix_fallocate(fd, 0, (off_t)PIECES * PIECE) == 0, "made again");
        verify(0);
        fill(0, PIECES);
    } else
        need(0, how);
}

/* NAME and words: fill, half (and no more), rest, verify, halfway, whole, kill, or what `use` knows. */
int main(int count, char **words)
{
    name = words[1];
    for (int at = 0; at < PIECES; at++)
        order[at] = at * 131 % PIECES;
    fd = open(name, O_RDWR | O_CREAT, 0600);
    need(fd >= 0, "open");
    for (int word = 2; word < count; word++) {
        const char *how = words[word];
        if (strcmp(how, "make") == 0)
            need(fallocate(fd, 0, 0, (off_t)PIECES * PIECE) == 0, "fallocate");
        else if (strcmp(how, "half") == 0)
            fill(0, PIECES / 2);
        else if (strcmp(how, "rest") == 0)
            fill(PIECES / 2, PIECES);
        else if (strcmp(how, "halfway") == 0)
            verify(PIECES / 2);
        else if (strcmp(how, "whole") == 0)
            whole();
        else if (strcmp(how, "kill") == 0)
            raise(SIGKILL);
        else
            use(how);
    }
    return 0;
}
