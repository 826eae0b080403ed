/* Processes, threads, devices of the caller, damage, and calls with random arguments. */
#include "every.h"

static const unsigned RW = SYNCLINE_READ | SYNCLINE_WRITE;

/* --- a device in memory, with faults ------------------------------------------------------------------------- */

struct memory {
    pthread_mutex_t lock;
    char *bytes;
    uint64_t size;
    int fail_writes, released, asked;
    syncline_volume calls; /* called back, which is refused */
};

static int memory_read(void *context, void *into, size_t len, uint64_t offset)
{
    struct memory *memory = context;
    pthread_mutex_lock(&memory->lock);
    if (memory->calls && syncline_sync(memory->calls) == -EDEADLK)
        memory->asked++;
    memcpy(into, memory->bytes + offset, len);
    pthread_mutex_unlock(&memory->lock);
    return 0;
}

static int memory_write(void *context, const void *from, size_t len, uint64_t offset)
{
    struct memory *memory = context;
    pthread_mutex_lock(&memory->lock);
    int fails = memory->fail_writes;
    if (!fails)
        memcpy(memory->bytes + offset, from, len);
    pthread_mutex_unlock(&memory->lock);
    return fails ? -ENOSPC : 0;
}

static int memory_flush(void *context)
{
    (void)context;
    return 0;
}

static void memory_release(void *context)
{
    ((struct memory *)context)->released++;
}

static void load(struct memory *memory, const char *path)
{
    FILE *file = fopen(path, "rb");
    CHECK(file && fseek(file, 0, SEEK_END) == 0);
    memory->size = (uint64_t)ftell(file);
    memory->bytes = malloc(memory->size);
    rewind(file);
    CHECK(fread(memory->bytes, 1, memory->size, file) == memory->size);
    fclose(file);
    pthread_mutex_init(&memory->lock, NULL);
}

static void devices(const char *path)
{
    struct memory memory = {0};
    syncline_volume volume;
    syncline_file file;
    load(&memory, path);
    struct syncline_device device = {&memory, memory.size, memory_read, memory_write, memory_flush, memory_release};
    struct syncline_device broken = device;
    broken.read = NULL;
    IS(syncline_open_device(&broken, NULL, &volume), -EINVAL);
    broken = device;
    broken.size_bytes = 1000;
    IS(syncline_open_device(&broken, NULL, &volume), -EINVAL);
    IS(syncline_open_device(NULL, NULL, &volume), -EINVAL);
    IS(syncline_open_device(&device, "nonsense", &volume), -EINVAL);
    IS(memory.released, 3);
    broken = device;
    broken.size_bytes = 4096;
    CHECK(syncline_open_device(&broken, NULL, &volume) < 0);
    IS(memory.released, 4);

    device.write = NULL;
    OK(syncline_open_device(&device, NULL, &volume));
    IS(syncline_mkdir(volume, "/x", 0755), -EROFS);
    OK(syncline_close(volume));
    device.write = memory_write;
    OK(syncline_open_device(&device, "nobackground", &volume));
    memory.released = 0;
    memory.calls = volume;
    OK(syncline_file_open(volume, "/m", RW | SYNCLINE_CREATE, 0644, &file));
    IS(syncline_file_write(file, "memory", 6), 6);
    OK(syncline_file_sync(file, 0));
    CHECK(memory.asked > 0);
    memory.calls = 0;

    /* A write that failed is never forgotten, also when the device is well again. */
    IS(syncline_file_write(file, "lost", 4), 4);
    memory.fail_writes = 1;
    IS(syncline_file_sync(file, 0), -EIO);
    memory.fail_writes = 0;
    IS(syncline_file_sync(file, 0), -EIO);
    char text[300];
    CHECK(syncline_error(file, text, sizeof text) > 0 && strstr(text, "latched"));
    char back[6];
    IS(syncline_file_pread(file, back, 6, 0), 6);
    CHECK(memcmp(back, "memory", 6) == 0);
    IS(memory.released, 0);
    IS(syncline_close(volume), -EIO);
    IS(memory.released, 1);
    IS(syncline_file_close(file), -EBADF);

    /* What was synced is there. */
    struct syncline_report report;
    OK(syncline_open_device(&device, NULL, &volume));
    OK(syncline_report(volume, &report));
    CHECK(report.transactions_replayed > 0);
    OK(syncline_file_open(volume, "/m", SYNCLINE_READ, 0, &file));
    IS(syncline_file_read(file, back, 6), 6);
    CHECK(memcmp(back, "memory", 6) == 0);
    OK(syncline_close(volume));
    IS(syncline_file_close(file), -EBADF);
    IS(memory.released, 2);
    free(memory.bytes);
}

/* --- processes ----------------------------------------------------------------------------------------------- */

static void in_child(void (*child)(const char *, uint64_t), const char *path, uint64_t handle)
{
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        child(path, handle);
        _exit(0);
    }
    int status;
    IS(waitpid(pid, &status, 0), pid);
    IS(status, 0);
}

static void writes_and_dies(const char *path, uint64_t unused)
{
    syncline_volume volume;
    syncline_file file;
    (void)unused;
    OK(syncline_open(path, NULL, &volume));
    OK(syncline_file_open(volume, "/synced", RW | SYNCLINE_CREATE, 0644, &file));
    IS(syncline_file_write(file, "durable", 7), 7);
    OK(syncline_file_sync(file, 0));
}

static void is_refused(const char *path, uint64_t volume)
{
    syncline_volume own;
    struct syncline_stat stat;
    char text[300];
    IS(syncline_mkdir(volume, "/child", 0755), -EBADF);
    CHECK(syncline_error(volume, text, sizeof text) > 0 && strstr(text, "fork"));
    IS(syncline_stat(volume, "/synced", 0, &stat), -EBADF);
    IS(syncline_close(volume), -EBADF);
    IS(syncline_open(path, NULL, &own), -EBUSY);
    /* Another image may be opened here. */
    OK(syncline_mkfs("child.img", 16 << 20, NULL, 1));
    OK(syncline_open("child.img", NULL, &own));
    CHECK(own != volume);
    OK(syncline_mkdir(own, "/child", 0755));
    OK(syncline_close(own));
}

static void processes(const char *path)
{
    syncline_volume volume;
    syncline_file file;
    struct syncline_report report;
    char back[7];
    in_child(writes_and_dies, path, 0);
    /* Read only: recovered in memory, as often as one likes. */
    for (int round = 0; round < 2; round++) {
        /* A helper of the dead process has the image until it has seen the death. */
        int code;
        while ((code = syncline_open(path, "ro", &volume)) == -EBUSY && getenv("SYNCLINE_TEST_OPTIONS"))
            usleep(1000);
        OK(code);
        OK(syncline_report(volume, &report));
        CHECK(report.transactions_replayed > 0 && report.in_memory == 1);
        OK(syncline_file_open(volume, "/synced", SYNCLINE_READ, 0, &file));
        IS(syncline_file_read(file, back, 7), 7);
        CHECK(memcmp(back, "durable", 7) == 0);
        OK(syncline_close(volume));
        IS(syncline_file_close(file), -EBADF);
    }
    OK(syncline_recover(path, &report));
    CHECK(report.transactions_replayed > 0);
    OK(syncline_open(path, NULL, &volume));
    OK(syncline_report(volume, &report));
    IS(report.transactions_replayed, 0);
    in_child(is_refused, path, volume);
    OK(syncline_mkdir(volume, "/parent", 0755));
    OK(syncline_close(volume));
}

/* --- threads ------------------------------------------------------------------------------------------------- */

static syncline_volume shared;

static void *works(void *number)
{
    char name[64], data[3000], back[3000];
    syncline_file file;
    memset(data, (int)(intptr_t)number, sizeof data);
    for (int round = 0; round < 100; round++) {
        snprintf(name, sizeof name, "/t%d-%d", (int)(intptr_t)number, round % 7);
        int opened = syncline_file_open(shared, name, RW | SYNCLINE_CREATE, 0644, &file);
        if (opened == -EBADF)
            return NULL; /* closed by the other thread */
        OK(opened);
        int64_t done = syncline_file_pwrite(file, data, sizeof data, 4096 * (uint64_t)(round % 5));
        CHECK(done == sizeof data || done == -EBADF);
        if (round % 10 == 0) {
            int synced = syncline_file_sync(file, round % 20);
            CHECK(synced == 0 || synced == -EBADF);
        }
        done = syncline_file_pread(file, back, sizeof back, 4096 * (uint64_t)(round % 5));
        CHECK(done == -EBADF || memcmp(data, back, sizeof back) == 0);
        int closed = syncline_file_close(file);
        CHECK(closed == 0 || closed == -EBADF);
    }
    return NULL;
}

static void threads(const char *path)
{
    for (int round = 0; round < 6; round++) {
        pthread_t thread[8];
        OK(syncline_open(path, NULL, &shared));
        for (intptr_t at = 0; at < 8; at++)
            OK(pthread_create(&thread[at], NULL, works, (void *)(at + 1)));
        if (round % 2 == 0) {
            usleep(3000u * (unsigned)round);
            OK(syncline_close(shared));
        }
        for (int at = 0; at < 8; at++)
            OK(pthread_join(thread[at], NULL));
        if (round % 2)
            OK(syncline_close(shared));
    }
}

/* --- random calls -------------------------------------------------------------------------------------------- */

static uint64_t state = 88172645463325252u;

static uint64_t next(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return below ? state % below : state;
}

static uint64_t handles[64];

static uint64_t handle(void)
{
    switch (next(12)) {
    case 0: return 0;
    case 1: return UINT64_MAX;
    case 2: return next(0);
    case 3: return next(100);
    default: return handles[next(64)];
    }
}

static const char *name(void)
{
    static const char *names[] = {"/",    "/a",   "/b/c", "/b",       "b/../a",  "",        ".",   "..",
                                  "//b//", "/l",  "/l/l", "user.x",   "user.",   "trusted.\x80\xff", "/b/c/d", "/a/",
                                  NULL,   "nope/x"};
    return names[next(sizeof names / sizeof *names)];
}

static uint64_t offset(void)
{
    static const uint64_t odd[] = {0, 1, 4095, 4096, 1 << 20, BAD_OFFSET - 1, BAD_OFFSET, UINT64_MAX, BAD_OFFSET / 2};
    return next(3) ? next(200000) : odd[next(sizeof odd / sizeof *odd)];
}

static int random_flags(void)
{
    return next(4) ? (int)next(256) : (int)next(0);
}

static void open_something(const char *path)
{
    uint64_t made = 0;
    int done;
    switch (next(8)) {
    case 0: done = syncline_open(next(20) ? path : name(), next(3) ? NULL : "nobackground", &made); break;
    case 1: done = syncline_dir_open(handle(), name(), &made); break;
    default: done = syncline_file_open(handle(), name(), (unsigned)random_flags(), (uint32_t)next(4096), &made);
    }
    if (done == 0)
        handles[next(64)] = made;
}

static void anything(const char *path)
{
    static char buffer[70000];
    struct syncline_stat stat;
    struct syncline_statfs space;
    struct syncline_report report;
    struct syncline_entry entry;
    struct syncline_time time = {(int64_t)next(0), (uint32_t)next(0), next(2) ? 0 : 1};
    size_t len = next(5) ? next(sizeof buffer) : 0;
    unsigned flags = (unsigned)random_flags();
    uint64_t on = handle();
    switch (next(36)) {
    case 0: syncline_file_read(on, buffer, len); break;
    case 1: syncline_file_write(on, buffer, len); break;
    case 2: case 3: syncline_file_pread(on, next(9) ? buffer : NULL, len, offset()); break;
    case 4: case 5: syncline_file_pwrite(on, next(9) ? buffer : NULL, len, offset()); break;
    case 6: syncline_file_seek(on, (int64_t)offset(), (int)next(6)); break;
    case 7: syncline_file_truncate(on, offset()); break;
    case 8: syncline_file_allocate(on, (int)next(20), offset(), offset()); break;
    case 9: syncline_file_sync(on, (int)next(2)); break;
    case 10: syncline_file_stat(on, next(9) ? &stat : NULL); break;
    case 11: if (next(4) == 0) syncline_file_close(on); break;
    case 12: syncline_stat(on, name(), flags, &stat); break;
    case 13: syncline_chmod(on, name(), flags & 128, (uint32_t)next(070000)); break;
    case 14: syncline_chown(on, name(), flags & 128, (uint32_t)next(0), (uint32_t)next(0)); break;
    case 15: syncline_utimes(on, name(), flags & 128, &time, next(2) ? NULL : &time); break;
    case 16: syncline_mkdir(on, name(), (uint32_t)next(010000)); break;
    case 17: syncline_rmdir(on, name()); break;
    case 18: syncline_unlink(on, name()); break;
    case 19: syncline_rename(on, name(), name(), (unsigned)next(5)); break;
    case 20: syncline_link(on, name(), name()); break;
    case 21: syncline_symlink(on, name(), name()); break;
    case 22: syncline_readlink(on, name(), buffer, len); break;
    case 23: syncline_getxattr(on, name(), flags & 128, name(), buffer, len); break;
    case 24: syncline_setxattr(on, name(), flags & 131, name(), buffer, len); break;
    case 25: syncline_listxattr(on, name(), flags & 128, buffer, len); break;
    case 26: syncline_removexattr(on, name(), flags & 128, name()); break;
    case 27: syncline_dir_read(on, &entry); break;
    case 28: if (next(4) == 0) syncline_dir_close(on); break;
    case 29: syncline_statfs(on, &space); break;
    case 30: syncline_report(on, &report); break;
    case 31: syncline_tick(on); break;
    case 32: syncline_error(on, next(9) ? buffer : NULL, next(50)); break;
    case 33: if (next(20) == 0) syncline_sync(on); break;
    case 34: if (next(60) == 0) syncline_close(on); break;
    default: open_something(path);
    }
}

static void random_calls(const char *path, unsigned count)
{
    for (unsigned at = 0; at < count; at++)
        anything(path);
    for (int at = 0; at < 64; at++)
        syncline_close(handles[at]);
    for (int at = 0; at < 64; at++) {
        syncline_file_close(handles[at]);
        syncline_dir_close(handles[at]);
    }
}

/* --- damage -------------------------------------------------------------------------------------------------- */

static void count_finding(void *context, const char *finding)
{
    CHECK(strlen(finding) > 5);
    /* Not allowed in here. */
    IS(syncline_check("whatever", NULL, NULL), -EDEADLK);
    ++*(int *)context;
}

static void damage(const char *path)
{
    char zeros[4096] = {0};
    int found = 0, image = open(path, O_RDWR);
    /* The second descriptor block's neighbours: bitmaps and inode tables lie in the first megabyte. */
    for (off_t block = 3; block < 200; block += 3)
        CHECK(pwrite(image, zeros, sizeof zeros, block * 4096) == sizeof zeros);
    close(image);
    int64_t errors = syncline_check(path, count_finding, &found);
    CHECK((errors > 0 && found > 0) || errors == -EUCLEAN);
}

int main(int count, char **words)
{
    CHECK(count == 3);
    const char *path = words[1];
    OK(syncline_mkfs(path, 32 << 20, NULL, 0));
    devices(path);
    processes(path);
    threads(path);
    IS(syncline_check(path, NULL, NULL), 0);
    random_calls(path, (unsigned)atoi(words[2]));
    IS(syncline_check(path, NULL, NULL), 0);
    OK(syncline_mkfs("damaged.img", 32 << 20, NULL, 1));
    damage("damaged.img");
    puts("nothing crashed");
    return 0;
}
