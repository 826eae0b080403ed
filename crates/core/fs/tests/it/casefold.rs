//! Directories that fold case: names are found and changed in any spelling, in an index and without
//! one. The kernel of the test machine may not have casefold: debugfs and e2fsck make directories,
//! and e2fsck judges those that are changed here.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::sync::Arc;

use syncline_device::{BlockDevice, MemoryDevice};
use syncline_fs::repair::Plan;
use syncline_fs::{FsError, InodeRef, RenameFlags, SetAttr, Volume};
use syncline_testkit::{ImageSpec, Need, Random, debugfs, e2fsck_clean, require, scratch_dir};

use crate::bed::{Bed, MIB, names, owner};

/// Names, each with other spellings.
const NAMES: [(&str, &[&str]); 8] = [
    ("README.txt", &["readme.TXT", "ReadMe.txt"]),
    ("straße", &["STRASSE", "strasse", "Stra\u{1e9e}e"]),
    ("\u{c5}ngstr\u{f6}m", &["\u{212b}NGSTR\u{d6}M", "a\u{30a}ngstro\u{308}m"]),
    ("\u{d55c}\u{ae00}", &["\u{1112}\u{1161}\u{11ab}\u{1100}\u{1173}\u{11af}"]),
    ("\u{3a3}\u{3c2}", &["\u{3c3}\u{3c3}", "\u{3c2}\u{3a3}"]),
    ("so\u{ad}ft", &["SOFT", "so\u{200d}ft"]),
    ("\u{1fae0} of Unicode 14", &[]),
    ("\u{130}", &["i\u{307}"]),
];

fn spec(block_size: u32, encoding: &str, features: &str) -> ImageSpec {
    ImageSpec {
        block_size_bytes: block_size,
        features: format!("casefold{features}"),
        extended: format!("encoding={encoding}"),
        ..ImageSpec::with_size(32 * MIB)
    }
}

/// An image whose directory `d` folds case, with `more` files beside those of [`NAMES`].
fn folded(spec: &ImageSpec, more: usize) -> Bed {
    let source = tempfile::tempdir_in(scratch_dir()).unwrap();
    let dir = source.path().join("d");
    fs::create_dir(&dir).unwrap();
    for (name, _) in NAMES {
        fs::write(dir.join(name), name).unwrap();
    }
    fs::write(dir.join(std::ffi::OsStr::from_bytes(b"no\xffUTF-8")), "bytes").unwrap();
    for nr in 0..more {
        fs::write(dir.join(format!("File Number {nr}")), []).unwrap();
    }
    let contents = Some(source.path().to_owned());
    let mut bed = Bed::new(&ImageSpec { contents, ..spec.clone() }, 0);
    let _ = debugfs(bed.image.path(), "sif d flags 0x40080000\n");
    // Makes the index, of folded names.
    let ran = Command::new("e2fsck").arg("-fyD").arg(bed.image.path()).output().unwrap();
    assert!(ran.status.code().is_some_and(|code| code < 4), "{ran:?}");
    e2fsck_clean(bed.image.path()).unwrap();
    bed.load();
    bed
}

fn at(name: &str) -> Vec<u8> {
    [b"d/", name.as_bytes()].concat()
}

#[test]
fn names_are_found_in_any_spelling() {
    if !require("names_are_found_in_any_spelling", &[Need::E2fsck]) {
        return;
    }
    for (block_size, features) in [(4096, ""), (1024, ""), (1024, ",^dir_index,^metadata_csum")] {
        for more in [0, 600] {
            let what = format!("{block_size}{features}, {more} more");
            let bed = folded(&spec(block_size, "utf8", features), more);
            let vol = bed.mount("ro");
            let report = vol.check(&mut |_| true).unwrap();
            assert!(report.is_clean(), "{what}: {:#?}", report.findings);
            let dir = vol.resolve("d").unwrap();
            for (name, spellings) in NAMES {
                let ino = vol.resolve(at(name)).unwrap().ino;
                for spelling in spellings {
                    let found = vol.resolve(at(spelling)).map(|inode| inode.ino);
                    assert_eq!(found, Ok(ino), "{what}: {spelling}");
                }
            }
            for nr in 0..more {
                let ino = vol.lookup(&dir, format!("File Number {nr}").as_bytes()).unwrap().ino;
                let upper = vol.lookup(&dir, format!("FILE number {nr}").as_bytes()).unwrap();
                assert_eq!(upper.ino, ino, "{what}: {nr}");
            }
            assert!(vol.resolve(b"d/no\xffUTF-8").is_ok(), "{what}");
            for absent in
                [&b"d/NO\xffUTF-8"[..], b"d/readme", "d/\u{1fae0} OF Unicode 14".as_bytes()]
            {
                assert_eq!(
                    vol.resolve(absent).err(),
                    Some(FsError::NotFound),
                    "{what}: {absent:?}"
                );
            }
            assert_eq!(vol.resolve("D").err(), Some(FsError::NotFound), "the root does not fold");
            // Each name once, as it is, with a cookie between any two.
            let (mut seen, mut cookie) = (Vec::new(), 0);
            loop {
                let mut next = None;
                let take = &mut |entry: syncline_fs::DirEntry<'_>| {
                    seen.push(entry.name.to_vec());
                    next = Some(entry.next_cookie);
                    false
                };
                vol.readdir(&dir, cookie, take).unwrap();
                match next {
                    Some(next) => cookie = next,
                    None => break,
                }
            }
            seen.sort();
            let count = seen.len();
            seen.dedup();
            assert_eq!((seen.len(), count), (NAMES.len() + 3 + more, NAMES.len() + 3 + more));
            assert!(seen.contains(&"straße".as_bytes().to_vec()), "{what}");
        }
    }
}

#[test]
fn strict_volumes_and_other_encodings() {
    if !require("strict_volumes_and_other_encodings", &[Need::E2fsck]) {
        return;
    }
    let bed = folded(&spec(4096, "utf8,encoding_flags=strict", ""), 0);
    let vol = bed.mount("ro");
    assert!(vol.resolve("d/readme.TXT").is_ok());
    let said = vol.resolve(b"d/\xff").unwrap_err();
    assert_eq!((said.errno(), said.to_string().contains("no UTF-8")), (22, true));
    vol.unmount().unwrap();
    let vol = bed.mount("");
    let dir = vol.resolve("d").unwrap();
    for invalid in [&b"\xff"[..], "\u{1fae0}".as_bytes()] {
        assert_eq!(vol.create(&dir, invalid, &owner()).err().map(|err| err.errno()), Some(22));
    }
    vol.create(&dir, "\u{e9}".as_bytes(), &owner()).unwrap();
    // Encoding 2, and a directory that folds case on a volume without the feature.
    let plain = folded(&spec(4096, "utf8", ",^metadata_csum"), 0);
    let mut bytes = plain.image.bytes();
    bytes[1024 + 0x27c] = 2;
    let mount = |bytes: &[u8]| {
        let dev = Arc::new(MemoryDevice::from_bytes(bytes));
        Volume::mount(dev, plain.clock.clone(), plain.parsed("ro"))
    };
    let said = mount(&bytes).err().unwrap().to_string();
    assert!(said.contains("casefold with encoding 2"), "{said}");
    bytes[1024 + 0x62] &= !2;
    let said = mount(&bytes).unwrap().resolve("d/x").unwrap_err().to_string();
    assert!(said.contains("does not have casefold"), "{said}");
}

/// EXT4_CASEFOLD_FL.
const CASEFOLD: u32 = 0x4000_0000;

fn set_flags(vol: &Volume, inode: &InodeRef, flags: u32) -> Result<(), FsError> {
    vol.setattr(inode, &SetAttr { flags: Some(flags), ..SetAttr::default() }).map(drop)
}

#[test]
fn names_are_changed_in_any_spelling() {
    if !require("names_are_changed_in_any_spelling", &[Need::E2fsck]) {
        return;
    }
    let bed = Bed::new(&spec(1024, "utf8", ""), 0);
    let vol = bed.mount("");
    let root = vol.root().unwrap();
    let dir = vol.mkdir(&root, b"d", &owner()).unwrap();
    let found =
        |dir: &InodeRef, name: &str| vol.lookup(dir, name.as_bytes()).map(|found| found.ino);
    // What the name cache knows of an empty directory is still true when it begins to fold case.
    assert_eq!(found(&dir, "FOO"), Err(FsError::NotFound));
    set_flags(&vol, &dir, CASEFOLD).unwrap();
    assert_eq!(found(&dir, "FOO"), Err(FsError::NotFound));
    let foo = vol.create(&dir, b"Foo", &owner()).unwrap();
    for spelling in ["foo", "FOO", "Foo", "f\u{ad}oo"] {
        assert_eq!(found(&dir, spelling), Ok(foo.ino), "{spelling}");
        let exists = vol.create(&dir, spelling.as_bytes(), &owner()).err();
        assert_eq!(exists, Some(FsError::Exists), "{spelling}");
        assert_eq!(vol.link(&foo, &dir, spelling.as_bytes()).err(), Some(FsError::Exists));
    }
    // A name and its other spelling are one: nothing is renamed, as in Linux.
    vol.rename(&dir, b"foo", &dir, b"FOO", RenameFlags::NONE).unwrap();
    let exists = vol.rename(&dir, b"foo", &dir, b"FOO", RenameFlags::NOREPLACE);
    assert_eq!(exists, Err(FsError::Exists));
    assert_eq!(names(&vol, &dir), [b"Foo"]);
    // A soft hyphen is ignored, but no other name means the directory or its parent.
    for dots in [".\u{ad}", "..\u{ad}"] {
        assert_eq!(found(&dir, dots), Err(FsError::NotFound));
        assert_eq!(vol.rmdir(&dir, dots.as_bytes()), Err(FsError::NotFound));
        let moved = vol.rename(&dir, dots.as_bytes(), &root, b"moved", RenameFlags::NONE);
        assert_eq!(moved, Err(FsError::NotFound));
        vol.create(&dir, dots.as_bytes(), &owner()).unwrap();
        vol.rename(&dir, dots.as_bytes(), &dir, dots.as_bytes(), RenameFlags::NONE).unwrap();
    }
    for dots in [".\u{ad}", "..\u{ad}"] {
        vol.unlink(&dir, dots.as_bytes()).unwrap();
    }
    // What is replaced keeps its spelling.
    let other = vol.create(&root, b"other", &owner()).unwrap();
    vol.rename(&root, b"other", &dir, b"fOO", RenameFlags::NONE).unwrap();
    assert_eq!((names(&vol, &dir), found(&dir, "foo")), (vec![b"Foo".to_vec()], Ok(other.ino)));
    assert_eq!(set_flags(&vol, &dir, 0), Err(FsError::NotEmpty));
    assert_eq!(set_flags(&vol, &other, CASEFOLD), Err(FsError::NotDir));
    vol.unlink(&dir, b"FOO").unwrap();
    assert_eq!(found(&dir, "Foo"), Err(FsError::NotFound));
    // New directories fold case as theirs does; files have no such flag.
    let below = vol.mkdir(&dir, b"Below", &owner()).unwrap();
    let file = vol.create(&below, b"File", &owner()).unwrap();
    for dots in [".\u{ad}", "..\u{ad}"] {
        vol.create(&below, dots.as_bytes(), &owner()).unwrap();
    }
    let flags = |inode: &InodeRef| vol.getattr(inode).flags & CASEFOLD;
    assert_eq!((flags(&below), flags(&file)), (CASEFOLD, 0));
    assert_eq!(vol.resolve("d/BELOW/FILE").unwrap().ino, file.ino);
    // The number of a directory is used again by one that folds case, and the name cache holds
    // names of a file that stays.
    let stays = vol.create(&root, b"stays", &owner()).unwrap();
    for round in 0..20 {
        let plain = vol.mkdir(&root, b"plain", &owner()).unwrap();
        assert_eq!(found(&plain, "NAME"), Err(FsError::NotFound));
        vol.rmdir(&root, b"plain").unwrap();
        drop(plain);
        let folds = vol.mkdir(&dir, b"plain", &owner()).unwrap();
        vol.link(&stays, &folds, b"name").unwrap();
        assert!(found(&folds, "NAME").is_ok(), "{round}");
        vol.unlink(&folds, b"Name").unwrap();
        set_flags(&vol, &folds, 0).unwrap();
        assert_eq!(found(&folds, "name"), Err(FsError::NotFound), "{round}");
        vol.rmdir(&dir, b"PLAIN").unwrap();
    }
    drop((dir, below, file, foo, other, stays, root));
    bed.unmount_and_judge(vol, "changes in any spelling");
    let without = Bed::new(&crate::bed::spec(1024), 0);
    let vol = without.mount("");
    let refused = set_flags(&vol, &vol.root().unwrap(), CASEFOLD).unwrap_err();
    assert_eq!(refused.errno(), 95, "{refused}");
}

/// Random changes beside a map of folded names; e2fsck checks the index's hashes.
#[test]
fn random_changes_of_names_that_fold() {
    if !require("random_changes_of_names_that_fold", &[Need::E2fsck]) {
        return;
    }
    for (block_size, features, options) in
        [(1024, "", ""), (1024, ",^dir_index", "sync=ordered"), (4096, ",inline_data", "")]
    {
        let bed = Bed::new(&spec(block_size, "utf8", features), 0).with(options);
        let mut vol = bed.mount("");
        let dir = vol.mkdir(&vol.root().unwrap(), b"d", &owner()).unwrap();
        set_flags(&vol, &dir, vol.getattr(&dir).flags | CASEFOLD).unwrap();
        drop(dir);
        let mut random = Random::new(u64::from(block_size));
        let mut model = std::collections::BTreeMap::new();
        for round in 0..3000 {
            if round % 1000 == 999 {
                vol.unmount().unwrap();
                vol = bed.mount("");
            }
            let dir = vol.resolve("d").unwrap();
            let spelled = |random: &mut Random| {
                let nr = random.below(400);
                let name = ["a long name of a file ", "Stra\u{df}e ", "\u{c5}"]
                    [random.index(3) * (nr as usize % 2)];
                let name = format!("{name}{nr}");
                let upper = random.one_in(2);
                (name.to_lowercase(), if upper { name.to_uppercase() } else { name })
            };
            let (key, name) = spelled(&mut random);
            let key = key.replace('\u{df}', "ss");
            let known = model.get(&key).copied();
            let found = vol.lookup(&dir, name.as_bytes()).map(|inode| inode.ino);
            assert_eq!(found.ok(), known, "{round}: {name}");
            match random.below(5) {
                0 | 1 => {
                    let made = vol.create(&dir, name.as_bytes(), &owner());
                    assert_eq!(made.is_ok(), known.is_none(), "{round}: {name}");
                    model.entry(key).or_insert_with(|| made.unwrap().ino);
                }
                2 => {
                    let removed = vol.unlink(&dir, name.as_bytes());
                    assert_eq!(removed.is_ok(), model.remove(&key).is_some(), "{round}: {name}");
                }
                _ => {
                    let (to_key, to) = spelled(&mut random);
                    let to_key = to_key.replace('\u{df}', "ss");
                    let (from, to) = ((&dir, name.as_bytes()), (&dir, to.as_bytes()));
                    let done = vol.rename(from.0, from.1, to.0, to.1, RenameFlags::NONE);
                    assert_eq!(done.is_ok(), known.is_some(), "{round}: {name}");
                    if let Some(ino) = model.remove(&key) {
                        model.insert(to_key, ino);
                    }
                }
            }
        }
        let dir = vol.resolve("d").unwrap();
        assert_eq!(names(&vol, &dir).len(), model.len());
        drop(dir);
        bed.unmount_and_judge(vol, "random changes of names that fold");
        let report = bed.mount("ro").check(&mut |_| true).unwrap();
        assert!(report.is_clean(), "{:#?}", report.findings);
    }
}

fn repair(bed: &Bed) {
    let dev: Arc<dyn BlockDevice> = bed.dev.clone();
    let plan = Plan::new(&dev, &mut |_| true).unwrap();
    assert!(plan.after.is_clean(), "{:#?}", plan.after.findings);
    plan.apply(&*dev).unwrap();
    assert!(Plan::new(&dev, &mut |_| true).unwrap().changes.is_empty(), "once is enough");
}

/// Directories whose flag was set when they had names already: entries are in the wrong leaves, and
/// some names are there twice.
#[test]
fn directories_that_do_not_fold_rightly_are_found_and_repaired() {
    let test = "directories_that_do_not_fold_rightly_are_found_and_repaired";
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    for (more, features) in [(1, ",^dir_index"), (400, ""), (400, ",^dir_index")] {
        let mut bed = Bed::new(&spec(1024, "utf8,encoding_flags=strict", features), 0);
        let vol = bed.mount("");
        let dir = vol.mkdir(&vol.root().unwrap(), b"d", &owner()).unwrap();
        let mut made = Vec::new();
        for nr in 0..more {
            for name in [format!("File Number {nr}"), format!("FILE NUMBER {nr}")] {
                made.push(vol.create(&dir, name.as_bytes(), &owner()).unwrap().ino);
            }
        }
        made.push(vol.create(&dir, "new in \u{1fae0} 14".as_bytes(), &owner()).unwrap().ino);
        drop(dir);
        vol.unmount().unwrap();
        bed.save();
        let flags = if features.is_empty() && more > 1 { "0x40081000" } else { "0x40080000" };
        let _ = debugfs(bed.image.path(), &format!("sif d flags {flags}\n"));
        assert!(e2fsck_clean(bed.image.path()).is_err(), "e2fsck finds it");
        bed.load();
        let found = bed.mount("ro").check(&mut |_| true).unwrap();
        assert!(!found.is_clean());
        repair(&bed);
        bed.judge("a repair");
        let vol = bed.mount("ro");
        let dir = vol.resolve("d").unwrap();
        let mut left = Vec::new();
        vol.readdir(&dir, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                left.push(entry.ino);
                assert_eq!(vol.lookup(&dir, entry.name).unwrap().ino, entry.ino);
            }
            true
        })
        .unwrap();
        left.sort_unstable();
        assert_eq!(left, made, "{more}{features}: every file still has a name");
    }
}
