/* Syncline: ext4 images, block devices and storage of yours, without a mount, root or kernel support.
 *
 * Link with -lsyncline (pkg-config syncline). docs/LIBRARIES.md has examples.
 *
 * - Functions return 0 or a count of bytes, or a negative errno. syncline_error has the sentence.
 * - Handles are numbers, not pointers. One that was closed, is of another kind or was opened before a
 *   fork gives -EBADF. 0 is never a handle.
 * - Every function may be called from any thread, also with the same handle.
 * - Strings end with a zero byte; paths are bytes, relative to the root of the volume. A null pointer
 *   where something is needed, an unknown flag, and an offset or size of 2^63 or more give -EINVAL.
 * - Permissions are not checked: who may use the image may use its files. New files belong to root.
 * - A process that ends without syncline_close leaves the image as a power cut does: what was synced
 *   is there, and the next open recovers it.
 */
#ifndef SYNCLINE_H
#define SYNCLINE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef uint64_t syncline_volume;
typedef uint64_t syncline_file;
typedef uint64_t syncline_dir;

/* "0.1.0" */
const char *syncline_version(void);

/* Copies the sentence of the last failure of `handle` into `text`, with a zero byte, cut to `size`. For 0, and for
 * what is no handle: the last failure of this thread in a function without a valid handle. Returns the length of the
 * whole sentence; 0 if nothing failed yet. */
size_t syncline_error(uint64_t handle, char *text, size_t size);

/* --- Volumes ------------------------------------------------------------------------------------------------- */

/* Opens an image file or block device. `options` is NULL or a list of mount options (docs/COMPAT.md), as
 * "ro,sync=ordered", "nobackground": no thread is started, and syncline_tick is yours to call, and
 * "durability=strict" or "durability=periodic": a sync makes its data durable, or returns at once and the volume goes
 * back to one moment after a crash, at most commit= seconds old; syncline_sync makes everything durable in both.
 * With "ro" a journal that has to be replayed is replayed in memory. -EBUSY: another process has it.
 * With "ro" the disk in a qcow2, VHD, VHDX, VMDK or Android sparse image is read, also in several files, and that in
 * a compressed image, which is unpacked into a file without a name in $TMPDIR. "backing=FILE" names the file that a
 * qcow2 is over, and given again the file below that; a path with a comma is put in double quotes.
 * "isolate" or "isolate=/path/of/syncline", for images of strangers: a process of the program syncline, which gives up
 * its rights, reads the image. Where it ends, calls give -EIO. It is a child of yours, for which the library waits. */
int syncline_open(const char *path, const char *options, syncline_volume *volume);

/* Storage of yours. The functions return 0 or a negative errno, are called from any thread, several at once, with
 * offsets and lengths that are multiples of 512, and must not call into this library (-EDEADLK). */
struct syncline_device {
    void *context;       /* handed to each function */
    uint64_t size_bytes; /* a multiple of 512 */
    int (*read)(void *context, void *into, size_t len, uint64_t offset);
    int (*write)(void *context, const void *from, size_t len, uint64_t offset); /* NULL: read-only */
    int (*flush)(void *context);    /* makes completed writes durable; NULL: they always are */
    void (*release)(void *context); /* called once, when the device is not used any more; may be NULL */
};

/* Opens the volume on it. After a failure `release` was called already. */
int syncline_open_device(const struct syncline_device *device, const char *options, syncline_volume *volume);

/* Ends all files and directories of the volume, waits for calls of other threads, writes everything and leaves a clean
 * image. The handle is gone also after an error; the image is recoverable then. */
int syncline_close(syncline_volume volume);

/* Makes everything durable. */
int syncline_sync(syncline_volume volume);

/* Does what is due in the background ("nobackground"); returns in how many milliseconds to call again, at most. */
int64_t syncline_tick(syncline_volume volume);

struct syncline_report {
    uint32_t transactions_replayed; /* by the open: not 0 if it was not closed before */
    uint32_t blocks_replayed;
    uint32_t orphans;   /* deletions that were finished */
    uint32_t in_memory; /* 1: the replay is not on the image ("ro") */
};
int syncline_report(syncline_volume volume, struct syncline_report *report);

struct syncline_statfs {
    uint64_t blocks, blocks_free, blocks_available; /* of block_size bytes */
    uint64_t files, files_free;
    uint32_t block_size, name_len;
};
int syncline_statfs(syncline_volume volume, struct syncline_statfs *space);

/* --- Files --------------------------------------------------------------------------------------------------- */

enum { /* of syncline_file_open */
    SYNCLINE_READ = 1,
    SYNCLINE_WRITE = 2,
    SYNCLINE_APPEND = 4,     /* every write goes to the end */
    SYNCLINE_CREATE = 8,     /* made if it is not there */
    SYNCLINE_EXCLUSIVE = 16, /* with CREATE: -EEXIST if it is there */
    SYNCLINE_TRUNCATE = 32,
    SYNCLINE_DSYNC = 64,    /* every write is durable when it returns */
    SYNCLINE_NOFOLLOW = 128 /* -ELOOP for a symbolic link */
};

/* `mode`: permission bits of a file that is made. A directory may be opened with SYNCLINE_READ, to be synced. */
int syncline_file_open(syncline_volume volume, const char *path, unsigned flags, uint32_t mode, syncline_file *file);
int syncline_file_close(syncline_file file);

/* At the position, which moves. Fewer bytes than asked: the end of the file, or of the space. */
int64_t syncline_file_read(syncline_file file, void *into, size_t len);
int64_t syncline_file_write(syncline_file file, const void *from, size_t len);
/* At `offset`; the position stays. */
int64_t syncline_file_pread(syncline_file file, void *into, size_t len, uint64_t offset);
int64_t syncline_file_pwrite(syncline_file file, const void *from, size_t len, uint64_t offset);

enum { /* of syncline_file_seek */
    SYNCLINE_SEEK_SET = 0,
    SYNCLINE_SEEK_CUR = 1,
    SYNCLINE_SEEK_END = 2,
    SYNCLINE_SEEK_DATA = 3, /* the first data at or behind the offset; -ENXIO if there is none */
    SYNCLINE_SEEK_HOLE = 4
};
/* Returns the new position. */
int64_t syncline_file_seek(syncline_file file, int64_t offset, int whence);
int syncline_file_truncate(syncline_file file, uint64_t size);

enum { /* of syncline_file_allocate; modes of fallocate(2) */
    SYNCLINE_ALLOCATE = 0,
    SYNCLINE_ALLOCATE_KEEP_SIZE = 1,
    SYNCLINE_PUNCH_HOLE = 3,
    SYNCLINE_ZERO_RANGE = 16,
    SYNCLINE_ZERO_RANGE_KEEP_SIZE = 17
};
int syncline_file_allocate(syncline_file file, int mode, uint64_t offset, uint64_t len);

/* fsync; with `data_only` fdatasync. After a failed write every later one fails with -EIO. */
int syncline_file_sync(syncline_file file, int data_only);

struct syncline_time {
    int64_t seconds;
    uint32_t nanoseconds; /* SYNCLINE_NOW: the time of the call */
    uint32_t reserved;    /* 0 */
};
#define SYNCLINE_NOW 0x3fffffffu

struct syncline_stat {
    uint64_t size, blocks, rdev; /* blocks of 512 bytes */
    uint32_t ino, mode, uid, gid, nlink, blksize, flags, generation;
    struct syncline_time atime, mtime, ctime, crtime;
};
int syncline_file_stat(syncline_file file, struct syncline_stat *stat);

/* --- Names --------------------------------------------------------------------------------------------------- */

/* `flags`: 0, or SYNCLINE_NOFOLLOW for a symbolic link itself. */
int syncline_stat(syncline_volume volume, const char *path, unsigned flags, struct syncline_stat *stat);
int syncline_chmod(syncline_volume volume, const char *path, unsigned flags, uint32_t mode);
/* UINT32_MAX keeps owner or group. */
int syncline_chown(syncline_volume volume, const char *path, unsigned flags, uint32_t uid, uint32_t gid);
/* NULL keeps a time. */
int syncline_utimes(syncline_volume volume, const char *path, unsigned flags, const struct syncline_time *atime,
                    const struct syncline_time *mtime);

int syncline_mkdir(syncline_volume volume, const char *path, uint32_t mode);
int syncline_rmdir(syncline_volume volume, const char *path);
int syncline_unlink(syncline_volume volume, const char *path);

enum { SYNCLINE_RENAME_NOREPLACE = 1, SYNCLINE_RENAME_EXCHANGE = 2 };
int syncline_rename(syncline_volume volume, const char *from, const char *to, unsigned flags);
int syncline_link(syncline_volume volume, const char *from, const char *to);
int syncline_symlink(syncline_volume volume, const char *target, const char *path);

/* Return the length; with `size` 0 nothing is copied; -ERANGE if it does not fit. No zero byte is added. */
int64_t syncline_readlink(syncline_volume volume, const char *path, char *target, size_t size);
int64_t syncline_getxattr(syncline_volume volume, const char *path, unsigned flags, const char *name, void *value,
                          size_t size);
/* Names, each with its zero byte. */
int64_t syncline_listxattr(syncline_volume volume, const char *path, unsigned flags, char *names, size_t size);

enum { SYNCLINE_XATTR_CREATE = 1, SYNCLINE_XATTR_REPLACE = 2 }; /* beside SYNCLINE_NOFOLLOW */
int syncline_setxattr(syncline_volume volume, const char *path, unsigned flags, const char *name, const void *value,
                      size_t size);
int syncline_removexattr(syncline_volume volume, const char *path, unsigned flags, const char *name);

/* --- Directories --------------------------------------------------------------------------------------------- */

struct syncline_entry {
    uint32_t ino;
    uint32_t type; /* as the type bits of a mode, S_IFMT; 0: unknown */
    uint32_t name_len;
    char name[256]; /* with a zero byte */
};
int syncline_dir_open(syncline_volume volume, const char *path, syncline_dir *dir);
/* 1: an entry, without . and ..; 0: the end. */
int syncline_dir_read(syncline_dir dir, struct syncline_entry *entry);
int syncline_dir_close(syncline_dir dir);

/* --- Images -------------------------------------------------------------------------------------------------- */

/* Makes an ext4 with the defaults of mke2fs 1.47: in a new file of `size_bytes`, or with 0 in the file
 * or device that is there. `label` may be NULL. -EEXIST if something is there, unless `force`. The root directory
 * belongs to the caller; syncline_chown changes that. */
int syncline_mkfs(const char *path, uint64_t size_bytes, const char *label, int force);

/* Checks an image that nobody writes to. Returns the number of errors; `say` (may be NULL) is called with each of the
 * first thousand. -EUCLEAN if it cannot even be opened. */
int64_t syncline_check(const char *path, void (*say)(void *context, const char *finding), void *context);

/* Replays the journal and finishes deletions, as an open does. `report` may be NULL. */
int syncline_recover(const char *path, struct syncline_report *report);

/* --- New images with a tree ---------------------------------------------------------------------------------- */

typedef uint64_t syncline_build;

struct syncline_build_options { /* zeros and NULL: the defaults */
    uint64_t size_bytes;        /* 0: as small as the tree allows, and what is to spare */
    uint64_t spare_bytes;       /* room beside the tree, this or spare_percent */
    uint32_t spare_percent;
    uint32_t reserved;     /* 0 */
    uint64_t inodes;       /* 0: as many as the tree needs */
    uint64_t time_s;       /* of the volume, seconds since 1970; 0: now */
    const char *label;     /* at most 16 bytes */
    const uint8_t *uuid;   /* 16 bytes; NULL: random */
    const char *hash_seed; /* a UUID as text; NULL: random. With uuid and time_s, equal calls give equal bytes */
};

struct syncline_xattr {
    const char *name; /* in full, as "user.source"; ACLs are as setxattr(2) takes them */
    const void *value;
    size_t size;
};

/* Begins an image at a path where nothing is; entries follow, in any order, each file's contents right after it.
 * `options` may be NULL. The image is laid out in one pass and never mounted. Below 8 MiB it has no journal, as with
 * mke2fs, and can only be read. */
int syncline_build_begin(const char *path, const struct syncline_build_options *options, syncline_build *build);

/* Adds an entry of the type in `stat->mode`; only mode, uid, gid, rdev, atime and mtime are looked at, and SYNCLINE_NOW
 * is the time of the volume. `target` is that of a symbolic link, else NULL. Directories that no entry names are made;
 * one that is there gets these attributes. -EEXIST, -ENOTDIR, -ENOSPC: the entry is not there, others may follow. */
int syncline_build_add(syncline_build build, const char *path, const struct syncline_stat *stat, const char *target,
                       const struct syncline_xattr *xattrs, size_t count);
/* One more name for the entry at `from`. */
int syncline_build_link(syncline_build build, const char *from, const char *to);

/* Appends bytes, or a hole, to the file that was added last. */
int syncline_build_write(syncline_build build, const void *from, size_t len);
int syncline_build_skip(syncline_build build, uint64_t len);

/* Makes the image and returns its size. The handle is gone also after an error, and then the image. */
int64_t syncline_build_finish(syncline_build build);
/* Removes what was begun. A process that ends without either leaves a file that holds no file system. */
int syncline_build_cancel(syncline_build build);

#ifdef __cplusplus
}
#endif
#endif
