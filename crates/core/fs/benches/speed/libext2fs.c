/* The workloads of the speed benchmark by libext2fs: IMAGE NAMES OVERWRITES MIB.
   Prints seconds of processor time: create, lookup, list, unlink, overwrite, write, read. */
#include <et/com_err.h>
#include <ext2fs/ext2fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define S_IFREG_0644 0100644

static ext2_filsys fs;
static double started;

static void check(errcode_t err, const char *what) {
	if (err) {
		fprintf(stderr, "%s: %s\n", what, error_message(err));
		exit(1);
	}
}

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void start(void) { started = now(); }
static void stop(void) { printf("%.9f\n", now() - started); }

static ext2_ino_t create(ext2_ino_t dir, const char *name) {
	struct ext2_inode inode;
	ext2_ino_t ino;
	check(ext2fs_new_inode(fs, dir, S_IFREG_0644, 0, &ino), "new inode");
	memset(&inode, 0, sizeof inode);
	inode.i_mode = S_IFREG_0644;
	inode.i_links_count = 1;
	check(ext2fs_write_new_inode(fs, ino, &inode), "write inode");
	ext2_extent_handle_t extents;
	check(ext2fs_extent_open2(fs, ino, &inode, &extents), "extents");
	ext2fs_extent_free(extents);
	check(ext2fs_write_inode(fs, ino, &inode), "write inode");
	errcode_t err = ext2fs_link(fs, dir, name, ino, EXT2_FT_REG_FILE);
	if (err == EXT2_ET_DIR_NO_SPACE) {
		check(ext2fs_expand_dir(fs, dir), "expand");
		err = ext2fs_link(fs, dir, name, ino, EXT2_FT_REG_FILE);
	}
	check(err, "link");
	ext2fs_inode_alloc_stats2(fs, ino, 1, 0);
	return ino;
}

static void unlink_name(ext2_ino_t dir, const char *name) {
	struct ext2_inode inode;
	ext2_ino_t ino;
	check(ext2fs_lookup(fs, dir, name, strlen(name), 0, &ino), "lookup");
	check(ext2fs_unlink(fs, dir, name, ino, 0), "unlink");
	check(ext2fs_read_inode(fs, ino, &inode), "read inode");
	inode.i_links_count = 0;
	inode.i_dtime = time(0);
	check(ext2fs_write_inode(fs, ino, &inode), "write inode");
	ext2fs_inode_alloc_stats2(fs, ino, -1, 0);
}

static int show(struct ext2_dir_entry *entry, int offset, int size, char *buffer, void *arg) {
	struct ext2_inode inode;
	(void)offset, (void)size, (void)buffer, (void)arg;
	check(ext2fs_read_inode(fs, entry->inode, &inode), "read inode");
	return 0;
}

int main(int argc, char **argv) {
	if (argc != 5)
		return 2;
	int names = atoi(argv[2]), overwrites = atoi(argv[3]), mib = atoi(argv[4]);
	char name[32], *buffer = malloc(1 << 20);
	unsigned int done;
	initialize_ext2_error_table();
	check(ext2fs_open(argv[1], EXT2_FLAG_RW | EXT2_FLAG_64BITS, 0, 0, unix_io_manager, &fs), "open");
	check(ext2fs_read_bitmaps(fs), "bitmaps");
	memset(buffer, 7, 1 << 20);

	ext2_ino_t dir;
	check(ext2fs_mkdir(fs, EXT2_ROOT_INO, 0, "d"), "mkdir");
	check(ext2fs_lookup(fs, EXT2_ROOT_INO, "d", 1, 0, &dir), "lookup");
	start();
	for (int i = 0; i < names; i++)
		sprintf(name, "file%06d", i), create(dir, name);
	stop();
	start();
	for (int i = 0; i < names; i++) {
		ext2_ino_t ino;
		struct ext2_inode inode;
		sprintf(name, "file%06d", i);
		check(ext2fs_lookup(fs, dir, name, strlen(name), 0, &ino), "lookup");
		check(ext2fs_read_inode(fs, ino, &inode), "read inode");
	}
	stop();
	start();
	check(ext2fs_dir_iterate(fs, dir, 0, 0, show, 0), "list");
	stop();
	start();
	for (int i = 0; i < names; i += 2)
		sprintf(name, "file%06d", i), unlink_name(dir, name);
	stop();

	ext2_file_t file;
	check(ext2fs_file_open(fs, create(EXT2_ROOT_INO, "over"), EXT2_FILE_WRITE, &file), "open");
	for (int i = 0; i < 16; i++)
		check(ext2fs_file_write(file, buffer, 1 << 20, &done), "write");
	start();
	for (long i = 0; i < overwrites; i++) {
		check(ext2fs_file_llseek(file, i * 37 % 4096 * 4096, EXT2_SEEK_SET, 0), "seek");
		check(ext2fs_file_write(file, buffer, 4096, &done), "write");
	}
	stop();
	check(ext2fs_file_close(file), "close");

	ext2_ino_t seq = create(EXT2_ROOT_INO, "seq");
	check(ext2fs_file_open(fs, seq, EXT2_FILE_WRITE, &file), "open");
	start();
	for (int i = 0; i < mib; i++)
		check(ext2fs_file_write(file, buffer, 1 << 20, &done), "write");
	check(ext2fs_file_close(file), "close");
	check(ext2fs_flush(fs), "flush");
	stop();
	check(ext2fs_file_open(fs, seq, 0, &file), "open");
	start();
	for (int i = 0; i < mib; i++)
		check(ext2fs_file_read(file, buffer, 1 << 20, &done), "read");
	stop();
	check(ext2fs_file_close(file), "close");
	check(ext2fs_close(fs), "close");
	return 0;
}
