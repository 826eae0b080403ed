/* The default VFS of SQLite's test program: files below a directory are files of an ext4 image, through the loadable
 * extension; all others are the unix VFS's.
 *
 *   testfixture ── "suite" (this file): names, counters and simulated errors of the suite ──> "syncline" (the extension)
 *
 * Linked into testfixture with SQLITE_EXTRA_INIT=suite_init. The environment says what to use: SUITE_EXTENSION,
 * SUITE_IMAGE, SUITE_ROOT, SUITE_OPTIONS; without SUITE_IMAGE nothing changes. Tcl gets commands for files in the image
 * by `load {} Suite`.
 *
 * A file in the image has an empty one of its name on the host: its mark, for Tcl's glob.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3.h>
#include <tcl.h>

extern int sqlite3_io_error_hit, sqlite3_io_error_hardhit, sqlite3_io_error_pending, sqlite3_io_error_persist;
extern int sqlite3_io_error_benign, sqlite3_diskfull_pending, sqlite3_diskfull, sqlite3_open_file_count;
extern int sqlite3_sync_count, sqlite3_fullsync_count;

static sqlite3_vfs *unix_vfs, *image_vfs, suite_vfs;
static char root[2048], image[2048];
static struct suite_file *open_files;

struct suite_file {
    sqlite3_file base;
    struct suite_file *next;
    sqlite3_file *file; /* the extension's, behind this */
    char *name;
};

/* The suite lets the nth call fail, once or from then on. */
static int io_error(void)
{
    if (!(sqlite3_io_error_persist && sqlite3_io_error_hit) && sqlite3_io_error_pending-- != 1)
        return 0;
    sqlite3_io_error_hit++;
    if (!sqlite3_io_error_benign)
        sqlite3_io_error_hardhit++;
    return 1;
}

static int disk_full(void)
{
    if (sqlite3_diskfull_pending == 0)
        return 0;
    if (sqlite3_diskfull_pending != 1) {
        sqlite3_diskfull_pending--;
        return 0;
    }
    sqlite3_io_error_hit++;
    if (!sqlite3_io_error_benign)
        sqlite3_io_error_hardhit++;
    sqlite3_diskfull = 1;
    sqlite3_io_error_hit = 1;
    return 1;
}

/* The part of a full name below the root, with its slash; NULL for others. */
static const char *inside(const char *name)
{
    size_t len = strlen(root);
    return name && image_vfs && !strncmp(name, root, len) && name[len] == '/' ? name + len : NULL;
}

/* The name for the extension, with parameters as SQLite's core lays them out. SQLite makes no directories, and tests make
 * them on the host: in the image a number of the directory is a part of the name. */
static char *mapped(const char *path)
{
    const char *name_alone = strrchr(path, '/') + 1;
    char directory[24] = "";
    unsigned long number = 5381;
    const char *options = getenv("SUITE_OPTIONS");
    size_t len = strlen(image) + strlen(path) + (options ? strlen(options) : 0) + 40;
    char *name = calloc(1, len);
    for (const char *at = path; at < name_alone - 1; at++)
        number = number * 33 + (unsigned char)*at;
    if (name_alone > path + 1)
        sprintf(directory, "%lx-", number);
    int at = 4 + sprintf(name + 4, "%s//%s%s", image, directory, name_alone) + 1;
    if (options && *options) {
        at += sprintf(name + at, "options") + 1;
        sprintf(name + at, "%s", options);
    }
    return name;
}

static void mark(const char *name, int there)
{
    if (!there)
        unlink(name);
    else
        close(open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
}

#define REAL(f) (((struct suite_file *)(f))->file)
#define CALL(f, method, ...) (REAL(f)->pMethods->method(REAL(f), ##__VA_ARGS__))

static int suite_close(sqlite3_file *f)
{
    struct suite_file **at = &open_files;
    while (*at && *at != (struct suite_file *)f)
        at = &(*at)->next;
    if (*at)
        *at = (*at)->next;
    int code = CALL(f, xClose);
    free(((struct suite_file *)f)->name);
    sqlite3_open_file_count--;
    return code;
}

static int suite_read(sqlite3_file *f, void *into, int len, sqlite3_int64 at)
{
    return io_error() ? SQLITE_IOERR_READ : CALL(f, xRead, into, len, at);
}

static int suite_write(sqlite3_file *f, const void *from, int len, sqlite3_int64 at)
{
    if (io_error())
        return SQLITE_IOERR_WRITE;
    return disk_full() ? SQLITE_FULL : CALL(f, xWrite, from, len, at);
}

static int suite_truncate(sqlite3_file *f, sqlite3_int64 size)
{
    return io_error() ? SQLITE_IOERR_TRUNCATE : CALL(f, xTruncate, size);
}

static int suite_sync(sqlite3_file *f, int flags)
{
    if (disk_full())
        return SQLITE_FULL;
    sqlite3_sync_count++;
    sqlite3_fullsync_count += (flags & 0x0f) == SQLITE_SYNC_FULL;
    return io_error() ? SQLITE_IOERR_FSYNC : CALL(f, xSync, flags);
}

static int suite_file_size(sqlite3_file *f, sqlite3_int64 *size)
{
    return io_error() ? SQLITE_IOERR_FSTAT : CALL(f, xFileSize, size);
}

static int suite_lock(sqlite3_file *f, int level) { return CALL(f, xLock, level); }
static int suite_unlock(sqlite3_file *f, int level) { return CALL(f, xUnlock, level); }

static int suite_reserved(sqlite3_file *f, int *out)
{
    return io_error() ? SQLITE_IOERR_CHECKRESERVEDLOCK : CALL(f, xCheckReservedLock, out);
}

static int suite_control(sqlite3_file *f, int op, void *arg) { return CALL(f, xFileControl, op, arg); }
static int suite_sector_size(sqlite3_file *f) { return CALL(f, xSectorSize); }

/* Where a VFS offers atomic writes many tests leave out their journals; this SQLite would not use them. */
static int suite_characteristics(sqlite3_file *f)
{
    return CALL(f, xDeviceCharacteristics) & ~SQLITE_IOCAP_BATCH_ATOMIC;
}

static int suite_shm_map(sqlite3_file *f, int page, int len, int extend, void volatile **out)
{
    return io_error() ? SQLITE_IOERR_SHMMAP : CALL(f, xShmMap, page, len, extend, out);
}
static int suite_shm_lock(sqlite3_file *f, int at, int n, int flags) { return CALL(f, xShmLock, at, n, flags); }
static void suite_shm_barrier(sqlite3_file *f) { CALL(f, xShmBarrier); }
static int suite_shm_unmap(sqlite3_file *f, int delete) { return CALL(f, xShmUnmap, delete); }

static const sqlite3_io_methods methods_1 = {
    1, suite_close, suite_read, suite_write, suite_truncate, suite_sync, suite_file_size, suite_lock, suite_unlock,
    suite_reserved, suite_control, suite_sector_size, suite_characteristics, 0, 0, 0, 0, 0, 0};
static const sqlite3_io_methods methods_2 = {
    2, suite_close, suite_read, suite_write, suite_truncate, suite_sync, suite_file_size, suite_lock, suite_unlock,
    suite_reserved, suite_control, suite_sector_size, suite_characteristics, suite_shm_map, suite_shm_lock,
    suite_shm_barrier, suite_shm_unmap, 0, 0};

static int suite_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *f, int flags, int *out_flags)
{
    struct suite_file *file = (struct suite_file *)f;
    const char *path = inside(name);
    int code;
    (void)vfs;
    if (!path)
        return unix_vfs->xOpen(unix_vfs, name, f, flags, out_flags);
    f->pMethods = NULL;
    file->name = mapped(path);
    file->file = (sqlite3_file *)(file + 1);
    code = image_vfs->xOpen(image_vfs, file->name + 4, file->file, flags, out_flags);
    if (code != SQLITE_OK) {
        free(file->name);
        return code;
    }
    mark(name, 1);
    f->pMethods = file->file->pMethods->iVersion > 1 ? &methods_2 : &methods_1;
    file->next = open_files;
    open_files = file;
    sqlite3_open_file_count++;
    return SQLITE_OK;
}

static int suite_delete(sqlite3_vfs *vfs, const char *name, int sync_dir)
{
    const char *path = inside(name);
    char *to;
    int code;
    (void)vfs;
    if (!path)
        return unix_vfs->xDelete(unix_vfs, name, sync_dir);
    if (io_error())
        return SQLITE_IOERR_DELETE;
    to = mapped(path);
    code = image_vfs->xDelete(image_vfs, to + 4, sync_dir);
    free(to);
    if (code == SQLITE_OK)
        mark(name, 0);
    return code;
}

static int suite_access(sqlite3_vfs *vfs, const char *name, int flags, int *out)
{
    const char *path = inside(name);
    char *to;
    int code;
    (void)vfs;
    if (!path)
        return unix_vfs->xAccess(unix_vfs, name, flags, out);
    if (io_error())
        return SQLITE_IOERR_ACCESS;
    to = mapped(path);
    code = image_vfs->xAccess(image_vfs, to + 4, flags, out);
    free(to);
    return code;
}

/* Without the image the suite would test the unix VFS. */
static void refuse(const char *why)
{
    fprintf(stderr, "suite: %s\n", why);
    exit(77);
}

/* The suite's crash tests choose themselves which writes a crash loses, and let the process end with the others in the
 * system's cache, unsynced. For an image the end of a process is a power cut: it is closed first. */
static void close_all(void)
{
    while (open_files)
        suite_close(&open_files->base);
}

/* Called at every sqlite3_initialize, which makes the unix VFS the default. */
int suite_init(const char *unused)
{
    sqlite3 *db;
    char *message = NULL;
    (void)unused;
    if (!getenv("SUITE_IMAGE"))
        return SQLITE_OK;
    if (!image_vfs) {
        snprintf(image, sizeof image, "%s", getenv("SUITE_IMAGE"));
        if (!realpath(getenv("SUITE_ROOT"), root) || !(unix_vfs = sqlite3_vfs_find("unix")))
            refuse("SUITE_ROOT is no directory");
        if (sqlite3_open_v2(":memory:", &db, SQLITE_OPEN_READWRITE, "unix") != SQLITE_OK)
            refuse("no database in memory");
        sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 1, NULL);
        if (sqlite3_load_extension(db, getenv("SUITE_EXTENSION"), "sqlite3_syncline_init", &message) != SQLITE_OK)
            refuse(message ? message : "the extension cannot be loaded");
        sqlite3_close(db);
        /* The suite counts what is allocated. */
        sqlite3_reset_auto_extension();
        if (!(image_vfs = sqlite3_vfs_find("syncline")))
            refuse("the extension has registered no VFS");
        atexit(close_all);
        suite_vfs = *unix_vfs;
        suite_vfs.pNext = NULL;
        suite_vfs.zName = "suite";
        suite_vfs.szOsFile = (int)sizeof(struct suite_file) + image_vfs->szOsFile;
        if (suite_vfs.szOsFile < unix_vfs->szOsFile)
            suite_vfs.szOsFile = unix_vfs->szOsFile;
        suite_vfs.xOpen = suite_open;
        suite_vfs.xDelete = suite_delete;
        suite_vfs.xAccess = suite_access;
    }
    return sqlite3_vfs_register(&suite_vfs, 1);
}

/* --- Commands of Tcl -------------------------------------------------------------------------------------------- */

/* Opens a file of the image, by its full name on the host. */
static sqlite3_file *open_file(const char *name, int flags, char **to)
{
    const char *path = inside(name);
    sqlite3_file *file = calloc(1, image_vfs ? (size_t)image_vfs->szOsFile : 1);
    *to = path ? mapped(path) : NULL;
    flags |= SQLITE_OPEN_MAIN_DB;
    if (path && image_vfs->xOpen(image_vfs, *to + 4, file, flags, &flags) == SQLITE_OK)
        return file;
    free(file);
    free(*to);
    return NULL;
}

static void close_file(sqlite3_file *file, char *to)
{
    file->pMethods->xClose(file);
    free(file);
    free(to);
}

/* suite_size NAME: bytes; -1: there is none. suite_get NAME; suite_put NAME BYTES; suite_delete NAME. */
static int command(ClientData what, Tcl_Interp *interp, int count, Tcl_Obj *const words[])
{
    const char *name = count > 1 ? Tcl_GetString(words[1]) : "";
    sqlite3_int64 size = -1;
    char *to;
    int code = SQLITE_OK;
    if (what == (ClientData)'d') {
        if (inside(name)) {
            to = mapped(inside(name));
            /* Opening it opens the image, which is not open if no database is. */
            char *hold_name;
            sqlite3_file *hold = open_file(name, SQLITE_OPEN_READWRITE, &hold_name);
            if (hold) {
                image_vfs->xDelete(image_vfs, to + 4, 0);
                close_file(hold, hold_name);
            }
            free(to);
            mark(name, 0);
        }
        return TCL_OK;
    }
    int flags = what == (ClientData)'p' ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READWRITE;
    sqlite3_file *file = open_file(name, flags, &to);
    if (file)
        file->pMethods->xFileSize(file, &size);
    if (what == (ClientData)'s') {
        Tcl_SetObjResult(interp, Tcl_NewWideIntObj(size));
    } else if (!file) {
        Tcl_SetObjResult(interp, Tcl_ObjPrintf("couldn't open \"%s\" in the image", name));
        return TCL_ERROR;
    } else if (what == (ClientData)'g') {
        Tcl_Obj *bytes = Tcl_NewByteArrayObj(NULL, 0);
        unsigned char *into = Tcl_SetByteArrayLength(bytes, (int)size);
        if (size > 0)
            code = file->pMethods->xRead(file, into, (int)size, 0);
        Tcl_SetObjResult(interp, bytes);
    } else {
        int len;
        unsigned char *from = Tcl_GetByteArrayFromObj(words[2], &len);
        code = file->pMethods->xTruncate(file, len);
        if (code == SQLITE_OK && len > 0)
            code = file->pMethods->xWrite(file, from, len, 0);
        mark(name, 1);
    }
    if (file)
        close_file(file, to);
    if (code != SQLITE_OK) {
        Tcl_SetObjResult(interp, Tcl_ObjPrintf("\"%s\" in the image: error %d", name, code));
        return TCL_ERROR;
    }
    return TCL_OK;
}

static int Suite_Init(Tcl_Interp *interp)
{
    Tcl_CreateObjCommand(interp, "suite_size", command, (ClientData)'s', NULL);
    Tcl_CreateObjCommand(interp, "suite_get", command, (ClientData)'g', NULL);
    Tcl_CreateObjCommand(interp, "suite_put", command, (ClientData)'p', NULL);
    Tcl_CreateObjCommand(interp, "suite_delete", command, (ClientData)'d', NULL);
    return TCL_OK;
}

__attribute__((constructor)) static void announce(void)
{
    Tcl_StaticPackage(NULL, "Suite", Suite_Init, NULL);
}
