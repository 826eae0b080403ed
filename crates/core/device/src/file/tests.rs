//! Tests of the file device on temporary files and, where root allows, on a loop device.

use std::fs::File;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::process::Command;

use rustix::fs::OFlags;
use syncline_testkit::{Need, require};
use tempfile::TempDir;

use super::linux::is_in_memory;
use super::lives::Lives;
use super::*;
use crate::{BlockDevice, Kind, MemoryDevice, Origin, Plug, WriteLife};

const OTHER: Origin = Origin::new(Kind::Other, true);

fn image(size: u64) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    MemoryDevice::new(size).to_file(&path).unwrap();
    (dir, path)
}

fn every_mode() -> impl Iterator<Item = FileOptions> {
    let options = |mode: u8| FileOptions {
        direct: mode & 1 != 0,
        io_uring: mode & 2 != 0,
        ..FileOptions::default()
    };
    (0..4).map(options)
}

/// The same unaligned, scattered, overlapping plugs to the file and to memory.
fn exercise(device: &FileDevice) {
    let memory = MemoryDevice::new(device.geometry().size_bytes);
    let bytes: Vec<u8> = (0..600_000u32).map(|i| (i * 7 % 253) as u8).collect();
    let at = |sector: u64| sector * 512;
    for target in [device as &dyn BlockDevice, &memory] {
        let mut plug = Plug::new();
        plug.write(at(1), &bytes[3..3 + 512], OTHER);
        plug.write_run(at(8), bytes[1..1 + 80 * 512].chunks(1536), OTHER);
        plug.write(at(200), &bytes[..1024 * 512], OTHER);
        plug.write_fua(at(2), &bytes[100..100 + 1024], OTHER);
        for i in 0..70 {
            plug.write(at(2000 + i * 16), &bytes[i as usize..i as usize + 4096], OTHER);
        }
        plug.submit(target).unwrap();
        target.flush(OTHER).unwrap();
        target.discard(at(256), 65536, OTHER).unwrap();
    }
    let (mut a, mut b) = (vec![1; 2 << 20], vec![2; 2 << 20]);
    device.read(0, &mut a, OTHER).unwrap();
    memory.read(0, &mut b, OTHER).unwrap();
    assert!(a == b, "one large read");
    let (mut a, mut b) = (vec![1; 1 << 20], vec![2; 1 << 20]);
    for (target, buffer) in [(device as &dyn BlockDevice, &mut a), (&memory, &mut b)] {
        let mut plug = Plug::new();
        for (i, part) in buffer.chunks_mut(5 * 512).enumerate() {
            plug.read(i as u64 * 6 * 512, part, OTHER);
        }
        plug.submit(target).unwrap();
    }
    assert!(a == b, "many small reads");
}

#[test]
fn a_file_behaves_as_memory_in_every_mode() {
    for options in every_mode() {
        let (_dir, path) = image(4 << 20);
        let device = FileDevice::open(&path, options).unwrap();
        println!("{options:?}: direct {}, ring {}", device.is_direct(), device.has_io_uring());
        assert!(!device.is_direct() || options.direct);
        exercise(&device);
    }
}

#[test]
fn a_file_in_memory_is_neither_direct_nor_in_a_ring() {
    const NAME: &str = "a_file_in_memory_is_neither_direct_nor_in_a_ring";
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        return syncline_testkit::skip(NAME, "needs /dev/shm");
    };
    let path = dir.path().join("image");
    MemoryDevice::new(4 << 20).to_file(&path).unwrap();
    if !is_in_memory(&File::open(&path).unwrap()) {
        return syncline_testkit::skip(NAME, "needs a tmpfs at /dev/shm");
    }
    let device = FileDevice::open(&path, FileOptions::default()).unwrap();
    assert!(!device.is_direct() && !device.has_io_uring());
    exercise(&device);
}

#[test]
fn threads_share_a_file_and_its_ring() {
    for options in every_mode() {
        let (_dir, path) = image(4 << 20);
        let device = FileDevice::open(&path, options).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let device = &device;
                scope.spawn(move || {
                    let page = [thread as u8 + 1; 4096];
                    for round in 0..16 {
                        let mut plug = Plug::new();
                        for i in 0..8 {
                            // Every other page, so that nothing merges.
                            let number = (thread * 128 + round * 8 + i) * 2;
                            plug.write(number * 4096, &page, OTHER);
                        }
                        plug.submit(device).unwrap();
                    }
                });
            }
        });
        let mut all = vec![0; 4 << 20];
        device.read(0, &mut all, OTHER).unwrap();
        for (number, page) in all.chunks(4096).enumerate() {
            let expected = if number % 2 == 0 { (number / 256) as u8 + 1 } else { 0 };
            assert!(page.iter().all(|&b| b == expected), "page {number}, {options:?}");
        }
    }
}

/// As a child that another thread has forked, until it runs its program.
#[test]
fn locks_end_with_the_device_and_not_with_the_last_descriptor() {
    let (_dir, path) = image(8192);
    for read_only in [false, true] {
        let options = FileOptions { read_only, ..FileOptions::default() };
        let device = FileDevice::open(&path, options).unwrap();
        let child_has = device.try_clone_file().unwrap();
        drop(device);
        FileDevice::open(&path, FileOptions::default()).unwrap();
        drop(child_has);
    }
    // Files for another process take the locks along.
    let device = FileDevice::open(&path, FileOptions::default()).unwrap();
    let other_has = device.files().unwrap();
    drop(device);
    assert!(FileDevice::open(&path, FileOptions::default()).is_err());
    drop(FileDevice::from_files(other_has));
}

#[test]
fn a_second_writer_is_refused_and_readers_share() {
    let (_dir, path) = image(8192);
    let options = FileOptions::default();
    let read_only = FileOptions { read_only: true, ..options };
    let first = FileDevice::open(&path, options).unwrap();
    for refused in [options, read_only] {
        let Err(DeviceError::Open { reason, .. }) = FileDevice::open(&path, refused) else {
            panic!("opened twice");
        };
        assert_eq!(reason, "this program has it open already; close it first");
    }
    FileDevice::open(&path, FileOptions { lock: false, ..options }).unwrap();
    drop(first);
    let reader = FileDevice::open(&path, read_only).unwrap();
    FileDevice::open(&path, read_only).unwrap();
    assert_eq!(reader.write(0, &[0; 512], OTHER), Err(DeviceError::ReadOnly));
}

/// Opens as for a process that gets its files from another one.
fn opened_by_another(path: &Path, read_only: bool) -> Result<FileDevice, DeviceError> {
    let options = FileOptions { read_only, ..FileOptions::default() };
    FileDevice::open_by(Path::new("shown"), options, &|flags| {
        let rest = (flags - OFlags::RDWR).bits() as i32;
        let writes = flags.contains(OFlags::RDWR);
        File::options().read(true).write(writes).custom_flags(rest).open(path)
    })
}

#[test]
fn who_sees_nobody_respects_every_lock() {
    let (dir, path) = image(8192);
    let options = FileOptions::default();
    for read_only in [false, true] {
        let other = FileDevice::open(&path, FileOptions { read_only, ..options }).unwrap();
        assert!(opened_by_another(&path, false).is_err());
        assert_eq!(opened_by_another(&path, true).is_ok(), read_only);
        drop(other);
        let ours = opened_by_another(&path, read_only).unwrap();
        exercise_read(&ours);
        assert!(FileDevice::open(&path, options).is_err());
        assert!(opened_by_another(&path, false).is_err());
    }
    // A stranger's lock, which leaves a writer its lock file; the stranger goes.
    let stranger = File::open(&path).unwrap();
    let lock = nix::libc::flock {
        l_type: nix::libc::F_RDLCK as nix::libc::c_short,
        l_whence: 0,
        l_start: lock::WRITER,
        l_len: 1,
        l_pid: 0,
    };
    nix::fcntl::fcntl(&stranger, nix::fcntl::FcntlArg::F_OFD_SETLK(&lock)).unwrap();
    let writer = FileDevice::open(&path, options).unwrap();
    drop(stranger);
    for read_only in [false, true] {
        assert!(opened_by_another(&path, read_only).is_err());
    }
    drop(writer);
    drop(opened_by_another(&path, false).unwrap());
    let refused = opened_by_another(&dir.path().join("missing"), false).err().unwrap();
    assert!(refused.to_string().contains("check the path"), "{refused}");
    assert!(opened_by_another(dir.path(), true).is_err());
}

fn exercise_read(device: &FileDevice) {
    let mut bytes = [1; 4096];
    device.read(4096, &mut bytes, OTHER).unwrap();
    assert_eq!(bytes, [0; 4096]);
}

#[test]
fn wrong_paths_and_shrunken_files_are_errors() {
    let (dir, path) = image(8192);
    let options = FileOptions::default();
    assert!(FileDevice::open(dir.path(), options).is_err());
    assert!(FileDevice::open(&dir.path().join("missing"), options).is_err());
    assert!(FileDevice::create(&path, 512, options).is_err(), "must not replace");
    let made = FileDevice::create(&dir.path().join("new"), 5000, options).unwrap();
    assert_eq!(made.geometry().size_bytes, 4608);
    for options in every_mode() {
        let (_dir, path) = image(8192);
        let device = FileDevice::open(&path, options).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(4096).unwrap();
        let result = device.read(4096, &mut [0; 4096], OTHER);
        assert!(matches!(result, Err(DeviceError::Io { op: "read", .. })), "{options:?}");
        let (mut a, mut b) = ([0; 512], [0; 512]);
        let mut plug = Plug::new();
        plug.read(0, &mut a, OTHER);
        plug.read(7680, &mut b, OTHER);
        assert!(plug.submit(&device).is_err(), "{options:?}");
    }
}

/// Runs a program; its output if it succeeded.
fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_string();
    output.status.success().then_some(text)
}

/// Undone on drop, also when the test fails.
struct Undo(&'static str, Vec<String>);

impl Drop for Undo {
    fn drop(&mut self) {
        let arguments: Vec<&str> = self.1.iter().map(String::as_str).collect();
        if run(self.0, &arguments).is_none() {
            println!("{} {arguments:?} failed", self.0);
        }
    }
}

/// Flushes that a block device has seen (the kernel's block/stat.rst).
fn flushes(node: &str) -> u64 {
    let name = node.trim_start_matches("/dev/");
    let stat = std::fs::read_to_string(format!("/sys/block/{name}/stat")).unwrap();
    stat.split_whitespace().nth(15).unwrap().parse().unwrap()
}

fn one_flush_for_a_batch(device: &FileDevice, node: &str) {
    let before = flushes(node);
    let mut plug = Plug::new();
    for nr in 0..3 {
        plug.write_fua((8 << 20) + (nr << 16), &[1; 4096], OTHER);
    }
    plug.submit(device).unwrap();
    assert_eq!(flushes(node) - before, 1, "one for three FUA writes");
    device.write(0, &[0; 4096], OTHER).unwrap();
    assert_eq!(flushes(node) - before, 1, "none for a write");
}

/// A loop device has no use for them, and takes them all the same.
fn lifetimes_have_files_of_their_own(node: &str) {
    let Ok(mut device) = FileDevice::open(Path::new(node), FileOptions::default()) else {
        return println!("no direct and exclusive device here");
    };
    assert!(!device.geometry().write_hints && !device.lives.are_used());
    let file = device.try_clone_file().unwrap();
    device.lives = Lives::hints(&file, file.metadata().unwrap().rdev());
    let lives =
        [WriteLife::Short, WriteLife::Medium, WriteLife::Long, WriteLife::Extreme].into_iter();
    for (nr, life) in lives.enumerate() {
        let own = device.lives.file(life).expect("a node each, as root");
        assert_eq!(sys::write_hint(own).unwrap(), nr as u64 + 2, "RWH_WRITE_LIFE of {life:?}");
        let (at, origin) = (nr as u64 * 8192, Origin { life, ..OTHER });
        device.write(at, &[nr as u8 + 1; 4096], origin).unwrap();
        let mut read = [0; 4096];
        device.read(at, &mut read, origin).unwrap();
        assert_eq!(read, [nr as u8 + 1; 4096]);
    }
    assert!(device.lives.file(WriteLife::NotSet).is_none());
    assert_eq!(sys::write_hint(&file).unwrap(), 0, "the node in /dev keeps none");
}

#[test]
fn a_loop_device_works_and_a_mounted_one_is_refused() {
    const NAME: &str = "a_loop_device_works_and_a_mounted_one_is_refused";
    if !require(NAME, &[Need::Root, Need::Loop, Need::E2fsck]) {
        return;
    }
    let (dir, path) = image(16 << 20);
    let node = run("losetup", &["--find", "--show", path.to_str().unwrap()]).unwrap();
    let _loop_device = Undo("losetup", vec!["--detach".to_string(), node.clone()]);
    let refused = opened_by_another(&path, false).err().unwrap().to_string();
    assert!(refused.contains(&format!("the loop device {node} is over it")), "{refused}");
    drop(opened_by_another(&path, true).unwrap());
    for options in every_mode() {
        match FileDevice::open(Path::new(&node), options) {
            Ok(device) => {
                assert_eq!(device.geometry().size_bytes, 16 << 20);
                assert_eq!(device.is_direct(), options.direct, "its node is in memory, it is not");
                exercise(&device);
                device.write(0, &[0; 4096], OTHER).unwrap();
                one_flush_for_a_batch(&device, &node);
            }
            Err(error) => println!("no mode {options:?} here: {error}"),
        }
    }
    lifetimes_have_files_of_their_own(&node);
    let mount_point = dir.path().join("mnt");
    std::fs::create_dir(&mount_point).unwrap();
    let mount_point = mount_point.to_str().unwrap().to_string();
    let made = run("mke2fs", &["-q", "-F", "-t", "ext4", &node]);
    made.and_then(|_| run("mount", &[&node, &mount_point])).unwrap();
    let _mounted = Undo("umount", vec![mount_point]);
    let refused = FileDevice::open(Path::new(&node), FileOptions::default()).err();
    assert!(matches!(refused, Some(DeviceError::Open { errno: 16, .. })), "{refused:?}");
}
