//! Each end of a helper's socket against one that sends whatever it likes.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use syncline_device::MemoryDevice;
use syncline_fs::{
    Attr, FallocateMode, FileKind, MountReport, RenameFlags, SetAttr, SetTime, StatFs, Timestamp,
    XattrFlags,
};
use syncline_testkit::{FuzzRounds, Random, tiny_ext4};

use crate::directory::Entry;
use crate::disk::Disk;
use crate::error::Error;
use crate::file::Access;
use crate::helper::Helper;
use crate::names::At;
use crate::serve::Served;
use crate::wire::{Call, DONE, FAILED, Hello, Opened, PART_BYTES, Wire, whole};

fn noise(random: &mut Random, most: usize) -> Vec<u8> {
    (0..random.index(most)).map(|_| random.bits() as u8).collect()
}

fn control() -> (OwnedFd, OwnedFd) {
    let packets = SocketType::SEQPACKET;
    socketpair(AddressFamily::UNIX, packets, SocketFlags::CLOEXEC, None).unwrap()
}

/// A number that means something now and then.
fn number(random: &mut Random) -> u64 {
    match random.below(4) {
        0 => random.bits(),
        1 => random.below(1 << 24),
        2 => (1 << 63) - 1 - random.below(2),
        _ => random.below(8),
    }
}

fn access(random: &mut Random) -> Access {
    let bits = random.bits();
    let bit = |at: u32| bits >> at & 1 == 1;
    Access {
        read: bit(0),
        write: bit(1),
        append: bit(2),
        sync: bit(3),
        create: bit(4) || bit(5),
        exclusive: bit(6) && bit(7),
        truncate: bit(8) && bit(9),
        nofollow: bit(10) && bit(11),
    }
}

fn set(random: &mut Random) -> SetAttr {
    let mut some = || Some(random.bits() as u32).filter(|number| number % 2 == 0);
    let (mode, uid, gid, flags, nanoseconds) = (some(), some(), some(), some(), some());
    let at = Timestamp { seconds: number(random) as i64, nanoseconds: nanoseconds.unwrap_or(1) };
    SetAttr {
        mode: mode.map(|mode| mode as u16),
        uid,
        gid,
        size: random.one_in(3).then(|| number(random)),
        atime: Some(SetTime::Now),
        mtime: Some(SetTime::At(at)),
        ctime: None,
        flags,
    }
}

/// Any call, mostly on names and handles that are there.
fn call<'a>(random: &mut Random, names: &'a [Vec<u8>; 4], noise: &'a [u8]) -> Call<'a> {
    let path = |random: &mut Random| match random.below(6) {
        0 => noise,
        at => &names[at as usize % names.len()][..],
    };
    let (from, to, value) = (path(random), path(random), path(random));
    let file = random.below(6);
    let (offset, len) = (number(random), number(random));
    let data = random.one_in(2);
    let follow = if data { At::Follow } else { At::Link };
    match random.below(31) {
        0 => Call::Sync {},
        1 => Call::StatFs {},
        2 => Call::Tick {},
        3 if random.one_in(50) => Call::Close {},
        4..=6 => Call::OpenFile { path: from, access: access(random), mode: len as u16 },
        7 => Call::OpenDirectory { path: from },
        8 => Call::Stat { path: from, follow },
        9 => Call::SetAttr { path: from, follow, set: set(random) },
        10 => Call::Mkdir { path: from, mode: len as u16 },
        11 => Call::Unlink { path: from },
        12 => Call::Rmdir { path: from },
        13 => {
            let flags = [RenameFlags::NONE, RenameFlags::NOREPLACE, RenameFlags::EXCHANGE];
            Call::Rename { from, to, flags: flags[random.index(3)] }
        }
        14 => Call::Link { from, to },
        15 => Call::Symlink { target: from, path: to },
        16 => Call::Readlink { path: from },
        17 => Call::Getxattr { path: from, follow, name: b"user.a" },
        18 => Call::Setxattr { path: from, follow, name: b"user.a", value, flags: XattrFlags::Any },
        19 => Call::Listxattr { path: from, follow },
        20 => Call::Removexattr { path: from, follow, name: to },
        21 | 22 => Call::Read { file, offset, len: len as u32 },
        23 | 24 => Call::Write { file, offset: data.then_some(offset) },
        25 => Call::FileStat { file },
        26 => Call::Truncate { file, size: offset },
        27 => Call::Allocate { file, mode: FallocateMode::ZeroRange, offset, len },
        28 => Call::FileSync { file, data_only: data },
        29 => Call::SeekExtent { file, offset, data },
        30 if random.one_in(4) => Call::CloseFile { file },
        30 if random.one_in(4) => Call::Forget { handle: file },
        30 if data => Call::Barrier { file },
        _ => Call::Entries { directory: file },
    }
}

fn names() -> [Vec<u8>; 4] {
    [b"/".to_vec(), b"/a".to_vec(), b"/dir".to_vec(), b"/dir/b".to_vec()]
}

fn same<T: for<'a> Wire<'a> + PartialEq + std::fmt::Debug>(value: &T) {
    let mut bytes = Vec::new();
    value.put(&mut bytes);
    assert_eq!(whole::<T>(&bytes).as_ref(), Some(value));
    assert_eq!(whole::<T>(&bytes[..bytes.len() - 1]), None, "{value:?} is cut");
}

#[test]
fn values_come_as_they_were_sent() {
    let mut random = Random::new(1);
    let names = names();
    for _ in 0..5000 {
        let noise = noise(&mut random, 40);
        let call = call(&mut random, &names, &noise);
        let mut bytes = Vec::new();
        call.put(&mut bytes);
        assert_eq!(whole(&bytes), Some(call));
    }
    let time = Timestamp { seconds: -1, nanoseconds: 2 };
    let disk = Disk::on(Arc::new(MemoryDevice::from_bytes(&tiny_ext4())), &Default::default());
    let disk = disk.unwrap();
    let attr = disk.stat(b"/", At::Follow).unwrap();
    same(&Attr { atime: time, rdev: 7, ..attr });
    same(&disk.statfs().unwrap());
    let mut report = MountReport::default();
    (report.orphans, report.hot_zone_bytes) = (3, 1 << 40);
    same(&Opened { read_only: true, in_memory: false, report });
    same(&Error::new(28, "voll: kein Plätzchen"));
    same(&vec![Entry { name: b"n".to_vec(), ino: 9, kind: FileKind::Symlink }]);
    same(&vec![vec![1, 2], vec![3]]);
    let (version, options) = ("1".to_owned(), vec!["ro".to_owned()]);
    let align_bytes = Some(512);
    let block_device = true;
    same(&Hello { version, options, background: true, size_bytes: 1, block_device, align_bytes });
}

/// Bytes that are nothing are `None`; no list takes memory for what is not there.
#[test]
fn any_bytes_are_taken() {
    for seed in FuzzRounds::at_least(20_000) {
        let mut random = Random::new(seed);
        let mut bytes = noise(&mut random, 200);
        if let Some(first) = bytes.first_mut() {
            *first %= 34;
        }
        let _ = whole::<Call<'_>>(&bytes);
        let _ = whole::<Hello>(&bytes);
        let _ = whole::<Opened>(&bytes);
        let _ = whole::<Attr>(&bytes);
        let _ = whole::<StatFs>(&bytes);
        let _ = whole::<Vec<Vec<u8>>>(&bytes);
        if let Some(entries) = whole::<Vec<Entry>>(&bytes) {
            assert!(entries.iter().all(|entry| !entry.name.is_empty()));
        }
        if let Some(err) = whole::<Error>(&bytes) {
            assert!(err.errno > 0);
        }
    }
    assert_eq!(whole::<Vec<Vec<u8>>>(&u32::MAX.to_le_bytes()), None);
    assert_eq!(whole::<Vec<Entry>>(&[255; 64]), None);
    let mut slash = Vec::new();
    vec![Entry { name: b"a/b".to_vec(), ino: 1, kind: FileKind::Regular }].put(&mut slash);
    assert_eq!(whole::<Vec<Entry>>(&slash), None, "no name of a directory leads elsewhere");
}

/// Answers that a helper makes up: any bytes, or answers of any length with any result.
fn answers(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..random.below(6) {
        let body = noise(random, 300);
        match random.below(6) {
            0 => bytes.extend(&body),
            1 => (random.bits() as u32).put(&mut bytes),
            _ => {
                (body.len() as u32 + 1).put(&mut bytes);
                bytes.push(if random.one_in(3) { FAILED } else { DONE });
                bytes.extend(&body);
            }
        }
    }
    bytes
}

#[test]
fn a_hostile_helper_does_no_harm() {
    for seed in FuzzRounds::at_least(2000) {
        let mut random = Random::new(seed);
        let (ours, theirs) = control();
        let (near, mut far) = UnixStream::pair().unwrap();
        let bytes = answers(&mut random);
        let helper = Helper::over(ours, near.into(), None, None);
        std::thread::scope(|scope| {
            // It reads what it is sent, as far as it has answers.
            scope.spawn(move || {
                let _ = far.write_all(&bytes);
                let mut some = [0; 4096];
                let _ = far.set_nonblocking(true).map(|()| far.read(&mut some));
                drop((far, theirs));
            });
            for _ in 0..6 {
                let mut into = vec![0xa5; random.index(5000)];
                let len = into.len();
                match random.below(6) {
                    0 => assert!(helper.read(0, 0, &mut into).unwrap_or(0) <= len),
                    1 => drop(helper.write(0, None, &into)),
                    2 => drop(helper.call::<Attr>(Call::FileStat { file: 0 })),
                    3 => drop(helper.call::<Vec<Entry>>(Call::Entries { directory: 0 })),
                    4 => drop(helper.call::<Vec<u8>>(Call::Readlink { path: b"/a" })),
                    _ => drop(helper.call::<()>(Call::Sync {})),
                }
            }
        });
        // The end stays the end, with a sentence.
        let err = helper.call::<()>(Call::Sync {}).unwrap_err();
        assert!(err.errno > 0);
    }
}

/// What a read or a write says is held against what was asked.
#[test]
fn a_helper_cannot_say_more_than_was_asked() {
    let answered = |answer: &[u8], ask: &dyn Fn(&Helper) -> Error| {
        let (ours, _theirs) = control();
        let (near, mut far) = UnixStream::pair().unwrap();
        far.write_all(answer).unwrap();
        let helper = Helper::over(ours, near.into(), None, None);
        let err = ask(&helper);
        assert!(err.errno == 5 && err.text.contains("makes no sense"), "{err}");
        assert_eq!(helper.call::<()>(Call::Sync {}).unwrap_err(), err);
    };
    let read = |helper: &Helper| helper.read(0, 0, &mut [0; 10]).unwrap_err();
    let mut long = 12_u32.to_le_bytes().to_vec();
    long.push(DONE);
    long.extend([0; 11]);
    answered(&long, &read);
    answered(&[0, 0, 0, 0, DONE], &read);
    answered(&[1, 0, 0, 0, 2], &read);
    answered(&[255, 255, 255, 255, FAILED], &read);
    let write = |helper: &Helper| helper.write(0, Some(0), b"abc").unwrap_err();
    let mut more = 17_u32.to_le_bytes().to_vec();
    more.push(DONE);
    (0_u64, 4_u64).put(&mut more);
    answered(&more, &write);
    let sync = |helper: &Helper| helper.call::<()>(Call::Sync {}).unwrap_err();
    answered(&[2, 0, 0, 0, DONE, 0], &sync);
    answered(&[0xff, 0xff, 0xff, 0, DONE], &sync);
}

#[test]
fn a_hostile_library_gets_answers_or_the_end() {
    let names = names();
    for seed in FuzzRounds::at_least(300) {
        let mut random = Random::new(seed);
        let device = Arc::new(MemoryDevice::from_bytes(&tiny_ext4()));
        let disk = Disk::on(device, &Default::default()).unwrap();
        let served = Served::of(disk);
        let mut bytes = Vec::new();
        for _ in 0..random.below(150) {
            let noise = noise(&mut random, 60);
            if random.one_in(60) {
                bytes.extend(&noise);
                continue;
            }
            let mut call_bytes = Vec::new();
            call(&mut random, &names, &noise).put(&mut call_bytes);
            if random.one_in(40) && !call_bytes.is_empty() {
                let at = random.index(call_bytes.len());
                call_bytes[at] = random.bits() as u8;
            }
            let data = noise.repeat(random.index(3));
            (call_bytes.len() as u32, data.len() as u32).put(&mut bytes);
            bytes.extend(&call_bytes);
            bytes.extend(&data);
        }
        let (near, far) = UnixStream::pair().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| served.serve(&far.into()));
            scope.spawn(|| {
                let _ = (&near).write_all(&bytes);
                let _ = near.shutdown(Shutdown::Write);
            });
            let mut said = Vec::new();
            let _ = (&near).read_to_end(&mut said);
        });
        if served.disk.is_open() {
            served.disk.close().unwrap();
        }
    }
}

#[test]
fn a_call_has_its_limits() {
    for head in [[1 << 20, 0], [3, PART_BYTES as u32 + 1], [u32::MAX, u32::MAX]] {
        let device = Arc::new(MemoryDevice::from_bytes(&tiny_ext4()));
        let served = Served::of(Disk::on(device, &Default::default()).unwrap());
        let (mut near, far) = UnixStream::pair().unwrap();
        near.write_all(&head.map(u32::to_le_bytes).concat()).unwrap();
        assert_eq!(served.serve(&far.into()), None, "before anything of it is read");
    }
}

#[test]
fn a_first_message_without_sense_is_refused() {
    for seed in 0..500 {
        let mut random = Random::new(seed);
        let (ours, theirs) = control();
        let packet = noise(&mut random, 300);
        rustix::net::send(&ours, &packet, rustix::net::SendFlags::NOSIGNAL).unwrap();
        drop(ours);
        let contain = |_, _| panic!("nothing is begun");
        assert_eq!(Disk::isolated(&theirs, contain).unwrap_err().errno, 22);
    }
}
