//! Words of an fstab line for ext4 that are not options of ours: for mount(8) and others, the same
//! here without being asked, or refused, because to take them silently would promise something.
//!
//! Source: mount(8), ext4(5), as of util-linux 2.41 and Linux 6.18.

/// Meaning of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// Nothing has to be done.
    Same,
    /// With `ro`: the log is not replayed on the image, but in memory; else refused.
    ReadOnly(&'static str),
    /// Refused; the reason, and the next step.
    Refused(&'static str),
}

/// Words for mount(8) and other programs that read fstab.
const OTHERS: &[&str] = &[
    "auto", "noauto", "nofail", "_netdev", "user", "users", "nouser", "owner", "group", "nogroup",
    "comment", "helper", "uhelper", "silent", "loud",
];

/// Always so.
const ALWAYS: &[&str] = &[
    "async",
    "acl",
    "user_xattr",
    "barrier",
    "barrier=1",
    "delalloc",
    "bsddf",
    "nogrpid",
    "sysvgroups",
    "noquota",
    "nomand",
    "noiversion",
    "dax=never",
    "noinit_itable",
    "nodebug",
];

/// Advice about speed that changes no result; each may have a value.
const ADVICE: &[&str] = &[
    "stripe",
    "inode_readahead_blks",
    "min_batch_time",
    "max_batch_time",
    "journal_ioprio",
    "mb_optimize_scan",
    "dioread_lock",
    "dioread_nolock",
    "no_prefetch_block_bitmaps",
    "prefetch_block_bitmaps",
];

/// Words for a mount with `ro` that writes nothing at all.
const READ_ONLY: &[&str] = &["noload", "norecovery"];

/// Reason of the refusal of [`READ_ONLY`] words, and the next step.
const NOT_READ_ONLY: &str = "an image is not written without its log; give `ro` as well";

/// Refused words, by the word with its value or by the name alone.
const REFUSED: &[(&[&str], &str)] = &[
    (
        &["sync", "dirsync"],
        "each call would wait for the device; synced data is durable without it, leave it out",
    ),
    (&["nobarrier", "barrier=0"], "the device is always flushed; leave it out"),
    (&["data=journal"], "only what is synced goes to the journal; give sync=eager"),
    (&["data=writeback"], "data reaches its home blocks before the metadata; give data=ordered"),
    (&["errors=panic"], "a mount cannot panic the machine; give errors=remount-ro"),
    (&["nodelalloc"], "blocks are always allocated at write-back; leave it out"),
    (
        &["journal_checksum", "nojournal_checksum", "journal_async_commit"],
        "`sync=` selects the format of the journal; leave it out",
    ),
    (
        &["quota", "usrquota", "grpquota", "prjquota", "usrjquota", "grpjquota", "jqfmt"],
        "quotas are not supported; leave it out",
    ),
    (&["noacl", "nouser_xattr"], "ACLs and attributes are always there; leave it out"),
    (&["grpid", "bsdgroups"], "a new file has its maker's group; set set-group-id on directories"),
    (&["resuid", "resgid"], "the reserved blocks are root's; leave it out"),
    (&["minixdf"], "df never counts the file system's own blocks; leave it out"),
    (&["dax", "dax=always", "dax=inode"], "files have no direct access; leave it out"),
    (&["iversion", "i_version", "mand", "debug"], "it does not exist here; leave it out"),
    (&["init_itable"], "inode tables are not zeroed in the background; leave it out"),
    (&["noblock_validity", "block_validity"], "block numbers are always checked; leave it out"),
    (&["max_dir_size_kb"], "directories have no limit of their own; leave it out"),
    (&["journal_dev", "journal_path"], "external journals are refused; leave it out"),
    (&["sb"], "the first superblock is used; run `e2fsck -b` on the image, then leave it out"),
    (&["nosymfollow"], "it cannot be passed on; leave it out"),
];

/// Meaning of a word, if it is one of these.
pub(crate) fn meaning(item: &str) -> Option<Word> {
    let (name, value) = item.split_once('=').map_or((item, None), |(n, v)| (n, Some(v)));
    let same = OTHERS.contains(&name) || ALWAYS.contains(&item) || ADVICE.contains(&name);
    if same || name.starts_with("x-") || name.starts_with("X-") {
        return Some(Word::Same);
    }
    if READ_ONLY.contains(&item) {
        return Some(Word::ReadOnly(NOT_READ_ONLY));
    }
    // `sync=eager` is none of these words, but `resuid=0` is.
    let valued = !matches!(name, "sync" | "data" | "errors" | "barrier" | "dax");
    let refused = |word: &&&str| **word == item || value.is_some() && valued && **word == name;
    let found = REFUSED.iter().find(|(words, _)| words.iter().any(|word| refused(&word)));
    found.map(|(_, why)| Word::Refused(why))
}

/// Every name, for the nearest of an unknown one.
#[cfg(test)]
fn all() -> impl Iterator<Item = &'static str> {
    let refused = REFUSED.iter().flat_map(|(words, _)| words.iter());
    OTHERS.iter().chain(ALWAYS).chain(ADVICE).chain(READ_ONLY).chain(refused).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_means_one_thing() {
        for word in all() {
            assert!(meaning(word).is_some(), "{word}");
        }
        let mut seen = std::collections::BTreeSet::new();
        assert!(all().all(|word| seen.insert(word)), "a word is there twice");
        assert!(REFUSED.iter().all(|(_, why)| why.contains("; ")), "a next step is missing");
    }

    #[test]
    fn values_belong_to_the_words() {
        for same in ["stripe=128", "x-systemd.automount", "user=bob", "barrier=1", "comment=a"] {
            assert_eq!(meaning(same), Some(Word::Same), "{same}");
        }
        for refused in ["barrier=0", "resuid=1", "data=writeback", "sync", "usrjquota=a"] {
            assert!(matches!(meaning(refused), Some(Word::Refused(_))), "{refused}");
        }
        for ours in ["sync=eager", "data=ordered", "errors=continue", "commit=5", "nodiratime"] {
            assert_eq!(meaning(ours), None, "{ours}");
        }
    }
}
