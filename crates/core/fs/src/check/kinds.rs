//! Kinds of findings: the name of each, and what a repair does about it.
//!
//! A name is stable, and says in words what e2fsck's problem code says. A notice is what e2fsck
//! prints and does not count: `e2fsck -fn` still ends with "clean".

/// Kind of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    /// Stable name.
    pub(super) name: &'static str,
    /// What a repair does.
    pub(super) repair: &'static str,
    /// False for a notice.
    pub(super) is_error: bool,
}

macro_rules! kinds {
    ($is_error:literal: $($kind:ident, $name:literal, $repair:literal;)*) => {
        $(pub(super) const $kind: Kind =
            Kind { name: $name, repair: $repair, is_error: $is_error };)*
    };
}

kinds! { true:
    // Superblock, descriptors, journal.
    SUPERBLOCK, "superblock-corrupt", "take a backup superblock";
    SUPERBLOCK_FIELD, "superblock-field", "take a backup superblock, or the one value that fits";
    DEVICE_TOO_SMALL, "device-too-small", "none: restore the rest of the device";
    UNREADABLE, "block-unreadable", "write zeros";
    DESC_CSUM, "group-descriptor-checksum", "write a new checksum";
    BLOCK_BITMAP_PLACE, "block-bitmap-misplaced", "allocate another bitmap";
    INODE_BITMAP_PLACE, "inode-bitmap-misplaced", "allocate another bitmap";
    INODE_TABLE_PLACE, "inode-table-misplaced", "use the place in the backup, or an empty table";
    TABLE_CONFLICT, "metadata-conflict", "use the place in the backup, or move the bitmap";
    MMP, "mmp-block-corrupt", "write a new MMP block";
    MMP_BUSY, "mmp-in-use", "none: unmount the file system on the other host";
    JOURNAL_INODE, "journal-inode-invalid", "delete the journal and make another";
    JOURNAL_SUPER, "journal-superblock-corrupt", "write a new journal superblock";
    JOURNAL_EXTERNAL, "journal-external", "none: give e2fsck the journal device with -j";
    JOURNAL_UNUSED, "journal-inode-not-clear", "clear the inode";
    RESIZE_INODE, "resize-inode-invalid", "rebuild the resize inode";
    // Orphans.
    ORPHAN_INVALID, "orphan-invalid", "empty the orphan list";
    ORPHAN_PENDING, "orphan-pending", "delete or truncate the inode";
    ORPHAN_FILE, "orphan-file-corrupt", "write a new orphan file";
    ORPHAN_NO_FILE, "orphan-present-without-file", "clear the flag";
    STRAY_NUMBER, "superblock-names-file", "clear the number";
    // Inodes.
    INODE_CSUM, "inode-checksum", "write a new checksum";
    INODE_GARBAGE, "unused-inode-garbage", "clear the flags";
    DTIME_MISSING, "deletion-time-missing", "set a deletion time";
    DTIME_SET, "deletion-time-of-used-inode", "clear the deletion time";
    MODE, "inode-mode-invalid", "clear the inode";
    MODE_OF_DIR, "directory-mode", "set the type to directory";
    RESERVED_MODE, "reserved-inode-mode", "clear the mode";
    ROOT, "root-directory-missing", "make a root directory";
    BAD_BLOCKS, "bad-blocks-inode-invalid", "clear the inode, or move the bitmap";
    QUOTA_INODE, "quota-inode-invalid", "clear the inode";
    INODE_FIELD, "inode-field-not-zero", "clear the field";
    INODE_FLAG, "inode-flag-invalid", "clear the flag";
    EXTENT_FLAG, "extent-flag-wrong", "set or clear the flag";
    EXTRA_ISIZE, "inode-extra-size", "set the size that the superblock wants";
    INLINE_DATA, "inline-data-invalid", "truncate the file";
    SPECIAL, "special-file-invalid", "clear the inode";
    SYMLINK, "symlink-invalid", "clear the inode";
    SIZE, "inode-size", "set the size to the blocks of the file";
    BLOCKS, "inode-block-count", "set the count";
    LARGE_FILE, "large-file-feature", "set the feature";
    ENCRYPTION, "encryption-policy", "clear the inode";
    NOT_ENCRYPTED, "encryption-policy-missing", "clear the flag";
    VERITY, "verity-hash", "none: restore the file from a copy";
    // Blocks of an inode.
    BLOCK_MAPPED, "block-map-with-bigalloc", "make an extent tree";
    EXTENT_HEADER, "extent-header-invalid", "remove the part of the tree";
    EXTENT_CSUM, "extent-checksum", "write a new checksum";
    EXTENT_DEPTH, "extent-depth", "rebuild the tree";
    EXTENT_RANGE, "extent-out-of-range", "remove the extent";
    EXTENT_ORDER, "extent-out-of-order", "remove the extent";
    EXTENT_EMPTY, "extent-empty", "remove the extent";
    EXTENT_INDEX, "extent-index-start", "set the start to that of the child";
    EXTENT_UNWRITTEN_DIR, "directory-block-unwritten", "mark the block as written";
    BLOCK_RANGE, "block-out-of-range", "clear the pointer";
    BLOCK_TOO_FAR, "block-beyond-largest-file", "clear the pointer";
    BLOCK_TWICE, "block-used-twice", "copy the blocks, or delete the file if there is no room";
    CLUSTER, "cluster-misaligned", "copy the cluster";
    DIR_HOLE, "directory-hole", "close the hole";
    DIR_EMPTY, "directory-without-blocks", "clear the inode";
    DIR_TOO_LARGE, "directory-too-large", "remove the blocks";
    // Extended attributes.
    XATTR_BLOCK, "xattr-block-invalid", "remove the attributes";
    XATTR_CSUM, "xattr-checksum", "write a new checksum";
    XATTR_ENTRY, "xattr-entry-invalid", "remove the attributes";
    XATTR_HASH, "xattr-hash", "remove the attributes";
    XATTR_PLACE, "xattr-empty-value-place", "clear the place";
    XATTR_USERS, "xattr-block-users", "set the count";
    XATTR_VALUE, "xattr-value-inode", "remove the attribute";
    XATTR_VALUE_USERS, "xattr-value-users", "set the count";
    // Directories.
    DIR_CORRUPT, "directory-corrupt", "salvage what can be read";
    DIR_CSUM, "directory-checksum", "write a new checksum";
    DIR_INLINE_SIZE, "inline-directory-size", "cut the directory";
    DOT, "dot-entry", "rewrite the entry";
    DOTDOT, "dotdot-entry", "rewrite the entry";
    HTREE_ROOT, "htree-root-invalid", "drop the index";
    HTREE_NODE, "htree-node-invalid", "drop the index";
    HTREE_ORDER, "htree-hash-order", "drop the index";
    HTREE_LEAF, "htree-wrong-leaf", "drop the index";
    HTREE_BLOCK, "htree-block-not-indexed", "drop the index";
    ENTRY_INODE, "entry-inode-invalid", "clear the entry";
    ENTRY_UNUSED, "entry-of-unused-inode", "clear the entry";
    ENTRY_UNINIT, "entry-of-uninitialised-inode", "scan the inode table again";
    ENTRY_NAME, "entry-name-invalid", "change the name";
    ENTRY_TYPE, "entry-file-type", "set the type";
    ENTRY_TWICE, "entry-duplicate", "rename one of them";
    ENTRY_LINK, "entry-second-link-to-directory", "clear the entry";
    ENTRY_ENCRYPTION, "entry-encryption", "clear the entry";
    ENTRY_VALUE, "entry-of-xattr-value", "clear the entry";
    // Links.
    DIR_UNCONNECTED, "directory-unconnected", "connect it to lost+found";
    DIR_PARENT, "directory-parent", "set `..` to the directory that has the name";
    DIR_LOOP, "directory-loop", "connect it to lost+found";
    UNATTACHED, "inode-unattached", "connect it to lost+found";
    LINKS, "link-count", "set the count";
    DIR_NLINK, "directory-links-feature", "set the feature";
    // Bitmaps, counters, quota.
    BLOCK_BITMAP, "block-bitmap-differs", "write the bitmap again";
    BLOCK_BITMAP_CSUM, "block-bitmap-checksum", "write a new checksum";
    INODE_BITMAP, "inode-bitmap-differs", "write the bitmap again";
    INODE_BITMAP_CSUM, "inode-bitmap-checksum", "write a new checksum";
    BITMAP_PADDING, "bitmap-padding", "set the bits";
    FREE_BLOCKS, "group-free-blocks", "set the count";
    FREE_INODES, "group-free-inodes", "set the count";
    DIR_COUNT, "group-directory-count", "set the count";
    QUOTA, "quota-usage", "set the usage";
    QUOTA_FILE, "quota-file-invalid", "write the file again";
}

kinds! { false:
    BACKUP_SUPERBLOCK, "superblock-backup-used", "copy the backup over the superblock";
    SUPERBLOCK_HINT, "superblock-hint", "set the field to what the others imply";
    DESC_FLAGS, "group-flags", "clear the flags";
    JOURNAL_FLAG, "journal-flag", "set or clear the flag";
    TIME_RANGE, "inode-time-range", "clear the wrong epoch bits";
    SPECIAL_FLAG, "special-file-flag", "clear the flag";
    ORPHAN_PRESENT, "orphan-present-flag", "clear the flag";
    VERITY_MISSING, "verity-descriptor-missing", "none: restore the file from a copy";
    JOURNAL_PENDING, "journal-not-empty", "replay the journal";
    ERROR_RECORDED, "error-recorded", "forget the error";
}

/// Kinds whose repair loses nothing and needs no decision (`e2fsck -p`).
pub(super) const SAFE: [Kind; 26] = [
    LINKS,
    BLOCK_BITMAP,
    BLOCK_BITMAP_CSUM,
    INODE_BITMAP,
    INODE_BITMAP_CSUM,
    BITMAP_PADDING,
    FREE_BLOCKS,
    FREE_INODES,
    DIR_COUNT,
    QUOTA,
    DESC_CSUM,
    ORPHAN_PENDING,
    ORPHAN_NO_FILE,
    ORPHAN_PRESENT,
    ERROR_RECORDED,
    DTIME_MISSING,
    DTIME_SET,
    BLOCKS,
    LARGE_FILE,
    DIR_NLINK,
    INODE_FIELD,
    EXTENT_INDEX,
    ENTRY_TYPE,
    ENTRY_UNINIT,
    XATTR_USERS,
    XATTR_VALUE_USERS,
];
