//! A volume in a helper process gives the answers of one in this process.

use std::fmt::Debug;
use std::path::Path;

use syncline::{
    Access, At, Attr, Disk, FallocateMode, OpenOptions, RenameFlags, SetAttr, SetTime, Timestamp,
    XattrFlags,
};
use syncline_testkit::{ImageSpec, Need, e2fsck_clean, mkfs, require};

use crate::{alone, isolated};

/// What the calls said, in order.
#[derive(Default)]
struct Said(Vec<String>);

impl Said {
    fn note<T: Debug>(&mut self, answer: T) {
        self.0.push(format!("{answer:?}"));
    }

    /// Attributes but for what differs from run to run.
    fn attr(&mut self, attr: syncline::Result<Attr>) {
        let none = Timestamp::default();
        self.note(attr.map(|attr| Attr {
            atime: none,
            mtime: if attr.mtime.seconds == 1 { attr.mtime } else { none },
            ctime: none,
            crtime: none,
            generation: 0,
            ..attr
        }));
    }
}

/// Calls on names.
fn names(disk: &Disk, said: &mut Said) {
    said.note(disk.mkdir(b"/dir", 0o755));
    said.note(disk.mkdir(b"/dir", 0o755));
    said.note(disk.mkdir(b"/no/such", 0o755));
    said.note(disk.mkdir(b"/", 0o755));
    said.note(disk.mkdir(b"", 0o755));
    said.note(disk.mkdir(b"/zero\0byte", 0o755));
    said.note(disk.mkdir(&[b'n'; 300], 0o755));
    said.note(disk.symlink(b"/dir", b"/link"));
    said.note(disk.readlink(b"/link"));
    said.note(disk.readlink(b"/dir"));
    said.attr(disk.stat(b"/link", At::Link));
    said.attr(disk.stat(b"/link", At::Follow));
    said.attr(disk.stat("/kein/ä".as_bytes(), At::Follow));
    let then = SetTime::At(Timestamp { seconds: 1, nanoseconds: 2 });
    let set = SetAttr {
        mode: Some(0o700),
        uid: Some(7),
        gid: Some(70_000),
        atime: Some(SetTime::Now),
        mtime: Some(then),
        flags: Some(0x40),
        ..SetAttr::default()
    };
    said.note(disk.setattr(b"/dir", At::Follow, &set));
    said.attr(disk.stat(b"/dir", At::Follow));
    for name in [b"/dir/a", b"/dir/b", b"/dir/c"] {
        said.note(disk.open_file(name, Access::CREATE, 0o640).map(|file| file.access()));
    }
    said.note(disk.rename(b"/dir/a", b"/dir/b", RenameFlags::NOREPLACE));
    said.note(disk.rename(b"/dir/a", b"/dir/c", RenameFlags::EXCHANGE));
    said.note(disk.rename(b"/dir/b", b"/dir/d", RenameFlags::NONE));
    said.note(disk.link(b"/dir/a", b"/dir/again"));
    said.note(disk.link(b"/dir", b"/dir/dir"));
    said.note(disk.unlink(b"/dir"));
    said.note(disk.unlink(b"/dir/c"));
    said.note(disk.rmdir(b"/dir"));
    said.note(disk.rmdir(b"/lost+found"));
    let mut listing = disk.open_directory(b"/dir").unwrap();
    while let Some(entry) = listing.next_entry().unwrap() {
        said.note((entry.name, entry.kind));
    }
    said.note(disk.open_directory(b"/dir/a").map(drop));
    said.note(disk.open_directory(b"/none").map(drop));
}

/// Calls on attributes.
fn attributes(disk: &Disk, said: &mut Said) {
    let long = vec![7; 3000];
    let pairs: [(&[u8], &[u8]); 4] =
        [(b"user.a", b"1"), (b"user.b", &long), (b"odd.name", b"x"), (b"user.", b"x")];
    for pair in pairs {
        said.note(disk.setxattr(b"/dir", At::Follow, pair, XattrFlags::Any));
        said.note(disk.setxattr(b"/dir", At::Follow, pair, XattrFlags::Create));
        said.note(disk.getxattr(b"/dir", At::Follow, pair.0));
    }
    said.note(disk.setxattr(b"/dir", At::Follow, (b"user.c", b""), XattrFlags::Replace));
    said.note(disk.listxattr(b"/dir", At::Follow));
    said.note(disk.removexattr(b"/dir", At::Follow, b"user.a"));
    said.note(disk.removexattr(b"/dir", At::Follow, b"user.a"));
    said.note(disk.listxattr(b"/link", At::Link));
}

/// Calls on files.
fn files(disk: &Disk, said: &mut Said) {
    said.note(disk.open_file(b"/none", Access::READ, 0).map(drop));
    said.note(disk.open_file(b"/dir", Access::WRITE, 0).map(drop));
    said.note(disk.open_file(b"/none", Access::default(), 0).map(drop));
    let nofollow = Access::READ.with(|access| access.nofollow = true);
    said.note(disk.open_file(b"/link", nofollow, 0).map(drop));
    let file = disk.open_file(b"/file", Access::CREATE, 0o600).unwrap();
    // More than one message each way, and not a whole number of them.
    let long: Vec<u8> = (0..5_000_001_u32).map(|at| (at % 251) as u8).collect();
    said.note(file.write(&long));
    said.note(file.position());
    said.note(file.write_at(10, b"middle"));
    said.note(file.write_at(u64::MAX, b"x"));
    let mut back = vec![0; 5_000_100];
    said.note(file.read_at(0, &mut back));
    assert_eq!(back[16..5_000_001], long[16..]);
    said.note(&back[..20]);
    said.note(file.seek(4_999_990));
    let mut part = [0; 20];
    said.note(file.read(&mut part));
    said.note((part, file.position()));
    said.note(file.read_at(9_000_000, &mut part));
    said.note(file.read_at(0, &mut []));
    said.note(file.truncate(3 << 20));
    said.note(file.truncate(1 << 63));
    said.note(file.allocate(FallocateMode::PunchHole, 0, 1 << 20));
    said.note(file.allocate(FallocateMode::KeepSize, 4 << 20, 4096));
    said.note(file.allocate(FallocateMode::Allocate, 0, 0));
    said.note(file.allocate(FallocateMode::Allocate, 0, u64::MAX));
    said.note((file.seek_extent(0, true), file.seek_extent(2 << 20, false)));
    said.note(file.seek_extent(9 << 20, true));
    said.note((file.sync(true), file.sync(false), file.barrier()));
    said.attr(file.stat());
    let reader = disk.open_file(b"/file", Access::READ, 0).unwrap();
    said.note((reader.write(b"no"), reader.truncate(0), reader.sync(false)));
    let append = Access::default().with(|access| access.append = true);
    let log = disk.open_file(b"/file", append, 0).unwrap();
    said.note((log.write(b"at the end"), log.position(), log.read(&mut part)));
    let dir = disk.open_file(b"/dir", Access::READ, 0).unwrap();
    said.note((dir.read(&mut part), dir.sync(false)));
    said.note((file.close(), file.close(), file.read_at(0, &mut part)));
}

/// All calls; then the disk is closed under an open file.
fn calls(image: &Path, options: &OpenOptions) -> Vec<String> {
    let mut said = Said::default();
    let disk = Disk::open(image, options).unwrap();
    said.note((disk.opened(), disk.is_read_only(), disk.is_replayed_in_memory(), disk.is_open()));
    names(&disk, &mut said);
    attributes(&disk, &mut said);
    files(&disk, &mut said);
    said.note((disk.sync(), disk.statfs()));
    assert!(disk.tick().unwrap() <= 5000);
    let left = disk.open_file(b"/file", Access::WRITE, 0).unwrap();
    let mut listing = disk.open_directory(b"/").unwrap();
    said.note((disk.close(), disk.close(), disk.is_open()));
    said.note((left.sync(false), left.close(), listing.next_entry(), disk.statfs()));
    e2fsck_clean(image).unwrap();
    said.0
}

#[test]
fn every_call_answers_as_without_a_helper() {
    if !require("every_call_answers_as_without_a_helper", &[Need::E2fsck]) {
        return;
    }
    let _alone = alone();
    for more in ["", "sync=ordered,nobackground", "sync=periodic,noatime,cache=8M"] {
        let image = || mkfs(&ImageSpec::with_size(64 << 20));
        let here = calls(image().path(), &OpenOptions::parse(more).unwrap());
        let there = calls(image().path(), &isolated(more));
        assert!(here.len() > 80, "{}", here.len());
        for (at, (here, there)) in here.iter().zip(&there).enumerate() {
            assert_eq!(here, there, "{more}: call {at}");
        }
        assert_eq!(here.len(), there.len());
    }
}

/// A directory whose names take many messages comes as a whole, each name once.
#[test]
fn a_long_directory_comes_as_a_whole() {
    let _alone = alone();
    let image = mkfs(&ImageSpec::default());
    let disk = crate::open(image.path(), "");
    let name = |at: u32| format!("/{at:0>200}").into_bytes();
    for at in 0..1500 {
        disk.open_file(&name(at), Access::CREATE, 0o644).unwrap();
    }
    let mut names = Vec::new();
    let mut listing = disk.open_directory(b"/").unwrap();
    while let Some(entry) = listing.next_entry().unwrap() {
        names.push(entry.name);
    }
    names.sort();
    let mut wanted: Vec<Vec<u8>> = (0..1500).map(|at| name(at)[1..].to_vec()).collect();
    wanted.push(b"lost+found".to_vec());
    assert_eq!(names, wanted);
    disk.close().unwrap();
}

#[test]
fn what_cannot_be_opened_is_said_as_without_a_helper() {
    if !require("what_cannot_be_opened_is_said_as_without_a_helper", &[Need::E2fsck]) {
        return;
    }
    let _alone = alone();
    let scratch = tempfile::tempdir().unwrap();
    let noise = scratch.path().join("noise");
    std::fs::write(&noise, vec![0x5a; 1 << 20]).unwrap();
    let busy = mkfs(&ImageSpec::default());
    let _held = crate::open(busy.path(), "");
    let broken = mkfs(&ImageSpec::default());
    let mut bytes = std::fs::read(broken.path()).unwrap();
    // Block of the inode table in the first group descriptor: outside of the volume.
    bytes[4096 + 8..4096 + 12].fill(0xff);
    std::fs::write(broken.path(), bytes).unwrap();
    let new = mkfs(&ImageSpec { features: "journal_dev".into(), ..ImageSpec::default() });
    let fresh = mkfs(&ImageSpec::default());
    let cases: [(&Path, &str); 9] = [
        (&noise, ""),
        (Path::new("/no/such"), ""),
        (scratch.path(), ""),
        (Path::new("a\0b"), ""),
        (busy.path(), ""),
        (busy.path(), "ro"),
        (broken.path(), ""),
        (new.path(), ""),
        (fresh.path(), "strict=x"),
    ];
    for (image, more) in cases {
        let here = Disk::open(image, &OpenOptions::parse(more).unwrap()).unwrap_err();
        let there = Disk::open(image, &isolated(more)).unwrap_err();
        assert_eq!(here, there, "{more}");
    }
}

#[test]
fn a_reader_replays_in_memory() {
    let _alone = alone();
    let image = mkfs(&ImageSpec::default());
    let disk = crate::open(image.path(), "");
    disk.open_file(b"/synced", Access::CREATE, 0o644).unwrap().sync(false).unwrap();
    drop(disk);
    let before = std::fs::read(image.path()).unwrap();
    let disk = crate::open(image.path(), "ro");
    assert!(disk.opened().transactions_replayed > 0 && disk.is_replayed_in_memory());
    assert!(disk.is_read_only());
    disk.stat(b"/synced", At::Follow).unwrap();
    let other = crate::open(image.path(), "ro");
    let busy = Disk::open(image.path(), &isolated("")).unwrap_err();
    assert_eq!((disk.mkdir(b"/no", 0).unwrap_err().errno, busy.errno), (30, 16));
    disk.close().unwrap();
    other.close().unwrap();
    assert!(before == std::fs::read(image.path()).unwrap(), "not one byte is written");
}

#[test]
fn what_a_helper_cannot_do_is_refused() {
    let _alone = alone();
    let image = mkfs(&ImageSpec::default());
    let disk = crate::open(image.path(), "");
    let err = disk.volume().err().unwrap();
    assert_eq!(err.errno, 95);
    assert!(err.text.contains("open it without `isolate`"), "{err}");
    let long = vec![b'/'; 300 << 10];
    assert_eq!(disk.stat(&long, At::Follow).unwrap_err().errno, 36);
    disk.stat(b"/", At::Follow).unwrap();
    drop(disk);
    let device = std::sync::Arc::new(syncline::MemoryDevice::new(1 << 20));
    assert_eq!(Disk::on(device, &isolated("")).unwrap_err().errno, 22);
    let none = OpenOptions::parse("isolate=/no/such/program").unwrap();
    let err = Disk::open(image.path(), &none).unwrap_err();
    assert!(err.errno == 2 && err.text.contains("/no/such/program"), "{err}");
    // A program that is another one.
    let other = OpenOptions::parse("isolate=/bin/true").unwrap();
    let err = Disk::open(image.path(), &other).unwrap_err();
    assert!(err.errno == 5 && err.text.contains("/bin/true --version"), "{err}");
    let unnamed = isolated("").with(|options| options.mount.privileged = false);
    assert_eq!(Disk::open(image.path(), &unnamed).unwrap_err().errno, 22);
    Disk::open(image.path(), &OpenOptions::default()).unwrap().close().unwrap();
}
