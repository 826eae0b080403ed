//! Images that a crash left: read without being changed, recovered, and written to.

use std::path::Path;
use std::sync::Arc;

use crate::support::{at, done, run};
use syncline_device::{FileDevice, FileOptions, WallClock};
use syncline_fs::{Create, MountOptions, Volume};
use syncline_testkit::{ImageSpec, Need, TempImage, debugfs, e2fsck_clean, mkfs, require};

/// An image whose last transactions are in the journal only, with an open file that was unlinked.
pub(crate) fn crashed() -> TempImage {
    let image = mkfs(&ImageSpec::default());
    let dev = Arc::new(FileDevice::open(image.path(), FileOptions::default()).unwrap());
    // Its fsync takes the unlink along.
    let options = MountOptions::parse("sync=ordered").unwrap();
    let vol = Volume::mount(dev, Arc::new(WallClock::new()), options).unwrap();
    let root = vol.root().unwrap();
    let create = Create { mode: 0o644, uid: 0, gid: 0 };
    let file = vol.create(&root, b"file", &create).unwrap();
    vol.write(&file, 0, b"acknowledged").unwrap();
    let open = vol.create(&root, b"open", &create).unwrap();
    vol.write(&open, 0, &[1; 10_000]).unwrap();
    vol.fsync(&open, false).unwrap();
    vol.unlink(&root, b"open").unwrap();
    vol.fsync(&file, false).unwrap();
    // Neither is dropped in time: as in a crash, nothing more reaches the image.
    let copy = image.duplicate();
    drop((file, open));
    copy
}

fn info(path: &Path) -> serde_json::Value {
    let ran = run(&["info".as_ref(), "--json".as_ref(), path.as_os_str()]);
    serde_json::from_str(&ran.text()).expect("a JSON document")
}

#[test]
fn reading_replays_in_memory_and_recover_on_the_image() {
    if !require("reading_replays_in_memory_and_recover_on_the_image", &[Need::E2fsck]) {
        return;
    }
    let image = crashed();
    let before = image.bytes();
    let ran = run(&["cat", &at(image.path(), "/file")]);
    assert_eq!((ran.code, ran.text().as_str()), (0, "acknowledged"));
    assert!(ran.err.contains("in memory only"), "{}", ran.err);
    let facts = info(image.path());
    assert_eq!(facts["schema"], "syncline.info/1");
    assert_eq!(facts["info"]["needs_recovery"], true);
    assert!(facts["info"]["journal_transactions_to_replay"].as_u64() > Some(0), "{facts}");
    assert_eq!(facts["info"]["orphans"], 1, "{facts}");
    let check = run(&["check".as_ref(), image.path().as_os_str()]);
    assert!(check.text().contains("the journal was not replayed"), "{}", check.text());
    let check = run(&["check", "--replay", "--compare", image.path().to_str().unwrap()]);
    assert_eq!(check.code, 0, "{}", check.text());
    assert!(check.text().contains("the journal must be replayed first"), "{}", check.text());
    assert!(before == image.bytes(), "reading wrote");

    let said = done(&["recover".as_ref(), image.path().as_os_str()]);
    assert!(said.contains("1 orphans finished; clean now"), "{said}");
    e2fsck_clean(image.path()).unwrap();
    assert_eq!(info(image.path())["info"]["state"], "clean");
    let after = image.bytes();
    let said = done(&["recover".as_ref(), image.path().as_os_str()]);
    assert!(said.contains("nothing to recover"), "{said}");
    assert!(after == image.bytes(), "a second recovery wrote");
    assert_eq!(done(&["cat", &at(image.path(), "/file")]), "acknowledged");
}

#[test]
fn writing_recovers_first() {
    if !require("writing_recovers_first", &[Need::E2fsck]) {
        return;
    }
    let image = crashed();
    done(&["mkdir", &at(image.path(), "/new")]);
    e2fsck_clean(image.path()).unwrap();
    assert_eq!(done(&["ls", &at(image.path(), "/")]), "file\nlost+found\nnew\n");
}

#[test]
fn info_agrees_with_the_stock_tools() {
    if !require("info_agrees_with_the_stock_tools", &[Need::E2fsck]) {
        return;
    }
    let image = mkfs(&ImageSpec { block_size_bytes: 1024, ..ImageSpec::default() });
    let stock = debugfs(image.path(), "stats -h\n");
    let facts = info(image.path());
    let said = |label: &str| {
        let line = stock.lines().find(|line| line.starts_with(label)).expect("a line of debugfs");
        line[label.len()..].trim().to_owned()
    };
    let info = &facts["info"];
    assert_eq!(info["uuid"].as_str(), Some(said("Filesystem UUID:").as_str()));
    assert_eq!(info["blocks"].to_string(), said("Block count:"));
    assert_eq!(info["inodes"].to_string(), said("Inode count:"));
    assert_eq!(info["free_inodes"].to_string(), said("Free inodes:"));
    let free: u64 = said("Free blocks:").parse().unwrap();
    assert_eq!(info["free_bytes"], free * 1024);
    let mut ours: Vec<&str> =
        info["features"].as_array().unwrap().iter().filter_map(|name| name.as_str()).collect();
    let theirs = said("Filesystem features:");
    let mut theirs: Vec<&str> = theirs.split_whitespace().collect();
    ours.sort_unstable();
    theirs.sort_unstable();
    assert_eq!(ours, theirs);
    let table = done(&["info".as_ref(), image.path().as_os_str()]);
    assert!(table.contains("free") && table.contains("journal"), "{table}");
}

/// Damage is said with what helps, which is not the command that was just given.
#[test]
fn what_cannot_be_opened_is_said_with_a_way_out() {
    if !require("what_cannot_be_opened_is_said_with_a_way_out", &[Need::E2fsck]) {
        return;
    }
    let damages = [
        ("feature needs_recovery\nclri <8>\n", "the journal is no file"),
        ("feature needs_recovery\nsif <8> mode 040755\n", "the journal is no file"),
        ("feature needs_recovery\nsif <8> size 1000\n", "outside of the journal inode"),
        ("clri <2>\n", "there is no root directory"),
        ("sif <2> mode 0100644\n", "there is no root directory"),
        ("sif <2> links_count 0\n", "there is no root directory"),
    ];
    for (damage, said) in damages {
        let image = mkfs(&ImageSpec::default());
        let _ = debugfs(image.path(), damage);
        let check = run(&["check".as_ref(), image.path().as_os_str()]);
        let all = check.text() + &check.err;
        assert_eq!(check.code, 3, "{damage}: {all}");
        let found = all.contains(said) || all.contains("a journal of 1000 bytes");
        assert!(found && all.contains("syncline repair"), "{damage}: {all}");
        assert!(!all.contains("syncline check") && !all.contains("syncline recover"), "{all}");
        let list = run(&["ls", &at(image.path(), "/")]);
        assert_eq!(list.code, 3, "{damage}: {}", list.err);
        assert!(list.err.contains(said) && list.err.contains("syncline repair"), "{}", list.err);
        let recover = run(&["recover".as_ref(), image.path().as_os_str()]);
        let clean = !damage.contains("needs_recovery");
        assert_eq!(recover.code, if clean { 0 } else { 3 }, "{damage}: {}", recover.err);
    }
}

/// The log of a file system with an external journal is not where `recover` could find it.
#[test]
fn recover_refuses_external_journals_by_name() {
    if !require("recover_refuses_external_journals_by_name", &[Need::E2fsck]) {
        return;
    }
    let journal =
        mkfs(&ImageSpec { features: "journal_dev".into(), ..ImageSpec::with_size(16 << 20) });
    let image = mkfs(&ImageSpec::default());
    let _ = debugfs(image.path(), "ssv journal_inum 0\nssv journal_dev 0x700\n");
    for (image, said) in [(&journal, "journal_dev"), (&image, "external journal")] {
        let ran = run(&["recover".as_ref(), image.path().as_os_str()]);
        assert_eq!(ran.code, 4, "{}{}", ran.text(), ran.err);
        assert!(ran.err.contains(said) && ran.err.contains("e2fsck"), "{}", ran.err);
    }
}
