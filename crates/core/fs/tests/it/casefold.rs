//! Directories that fold case: names are found in any spelling, in an index and without one. The
//! kernel of the test machine may not have casefold: debugfs and e2fsck make the directories.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::sync::Arc;

use syncline_device::{BlockDevice, MemoryDevice};
use syncline_fs::{FsError, MountOptions, Volume};
use syncline_testkit::{ImageSpec, Need, debugfs, e2fsck_clean, require, scratch_dir};

use crate::bed::{Bed, MIB};

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
    let device: Arc<dyn BlockDevice> = bed.dev.clone();
    let refused = Volume::mount(device, bed.clock.clone(), MountOptions::default());
    assert!(refused.err().unwrap().to_string().contains("casefold"));
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
