//! A device as a file: contents, alignment, one flush for each fsync, discards, controls, errors.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Arc;

use parking_lot::Mutex;
use syncline_device::{
    BlockDevice, FailingDevice, FaultPlan, MemoryDevice, OpClass, RecordingDevice,
};
use syncline_export::{Control, Export, Served};
use syncline_testkit::{Need, require};

const MIB: u64 = 1 << 20;

fn serve(
    device: Arc<dyn BlockDevice>,
    controls: Vec<Control>,
) -> (tempfile::TempDir, Served, File) {
    let dir = tempfile::tempdir().unwrap();
    let served = Export { device, name: "flash", controls }.serve(dir.path()).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(dir.path().join("flash")).unwrap();
    (dir, served, file)
}

#[test]
fn requests_reach_the_device_as_they_are() {
    if !require("requests_reach_the_device_as_they_are", &[Need::Fuse]) {
        return;
    }
    let device = Arc::new(RecordingDevice::new(MemoryDevice::new(8 * MIB)));
    let (dir, served, file) = serve(device.clone(), Vec::new());
    assert_eq!(file.metadata().unwrap().len(), 8 * MIB);
    // Half of the kernel's largest request: a buffer that is not aligned is one page more.
    let block: Vec<u8> = (0..MIB / 2).map(|i| (i % 251) as u8).collect();
    file.write_all_at(&block, MIB).unwrap();
    assert_eq!((device.counts().write_requests(), device.counts().written_bytes()), (1, MIB / 2));
    assert_eq!(device.counts().flushes(), 0);
    file.sync_data().unwrap();
    file.sync_all().unwrap();
    assert_eq!(device.counts().flushes(), 2);
    // Synchronous writes: FUA where the device has it, by its open flags and by the write's own.
    let fua = device.counts().other.fua_writes;
    let synced =
        OpenOptions::new().write(true).custom_flags(0o10_000).open(dir.path().join("flash"));
    synced.unwrap().write_all_at(&block[..4096], MIB).unwrap();
    assert_eq!((device.counts().other.fua_writes - fua, device.counts().flushes()), (1, 2));
    let mut back = vec![0; 1000];
    // Reads of any alignment.
    file.read_exact_at(&mut back, MIB + 333).unwrap();
    assert_eq!(back, block[333..1333]);
    // Parts of sectors are put into what is there; beyond the device there is no place.
    let before = device.counts();
    file.write_all_at(&[0xee; 600], MIB + 1000).unwrap();
    let sent = device.counts() - before;
    assert_eq!((sent.write_requests(), sent.written_bytes(), sent.read_bytes()), (1, 1536, 1536));
    let mut around = vec![0; 1536];
    file.read_exact_at(&mut around, MIB + 512).unwrap();
    let expected = [&block[512..1000], &[0xee; 600], &block[1600..2048]].concat();
    assert!(around == expected, "what lies around the written bytes stays");
    file.write_all_at(&block[1000..1600], MIB + 1000).unwrap();
    assert_eq!(file.write_at(&block[..4096], 8 * MIB).unwrap_err().raw_os_error(), Some(28));
    assert_eq!(file.read_at(&mut back, 8 * MIB).unwrap(), 0);
    let mode = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, mode, MIB, MIB).unwrap();
    assert_eq!(device.counts().discards(), 1);
    file.read_exact_at(&mut back, MIB + 333).unwrap();
    assert_eq!(back, [0; 1000]);
    drop(file);
    served.unmount().unwrap();
}

#[test]
fn a_directory_that_is_busy_for_a_moment_is_unmounted() {
    if !require("a_directory_that_is_busy_for_a_moment_is_unmounted", &[Need::Fuse]) {
        return;
    }
    let (dir, served, file) = serve(Arc::new(MemoryDevice::new(MIB)), Vec::new());
    let closed = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        drop(file);
    });
    served.unmount().unwrap();
    closed.join().unwrap();
    assert!(!dir.path().join("flash").exists());
}

#[test]
fn controls_are_read_and_written_as_texts() {
    if !require("controls_are_read_and_written_as_texts", &[Need::Fuse]) {
        return;
    }
    let text = Arc::new(Mutex::new("on".to_owned()));
    let (reads, writes) = (text.clone(), text.clone());
    let switch = Control {
        name: "power",
        read: Box::new(move || reads.lock().clone()),
        write: Some(Box::new(move |new| match new {
            "on" | "cut" => {
                *writes.lock() = new.to_owned();
                Ok(())
            }
            other => Err(format!("{other}?")),
        })),
    };
    let fixed = Control { name: "stats", read: Box::new(|| "{}".to_owned()), write: None };
    let (dir, served, file) = serve(Arc::new(MemoryDevice::new(MIB)), vec![switch, fixed]);
    drop(file);
    let mut names: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["flash", "power", "stats"]);
    let mut power = OpenOptions::new().write(true).open(dir.path().join("power")).unwrap();
    power.write_all(b"cut\n").unwrap();
    assert_eq!(power.write_all(b"off").unwrap_err().raw_os_error(), Some(22));
    drop(power);
    let mut now = String::new();
    File::open(dir.path().join("power")).unwrap().read_to_string(&mut now).unwrap();
    assert_eq!((now.as_str(), text.lock().as_str()), ("cut", "cut"));
    assert_eq!(std::fs::read_to_string(dir.path().join("stats")).unwrap(), "{}");
    assert!(!dir.path().join("other").exists());
    served.unmount().unwrap();
    assert!(!dir.path().join("power").exists());
}

#[test]
fn a_failing_device_is_an_error_and_no_hang() {
    if !require("a_failing_device_is_an_error_and_no_hang", &[Need::Fuse]) {
        return;
    }
    let device = Arc::new(FailingDevice::new(MemoryDevice::new(MIB)));
    device.arm(FaultPlan::once(OpClass::Flush, 1));
    let (_dir, served, file) = serve(device, Vec::new());
    file.write_all_at(&[1; 4096], 0).unwrap();
    assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(5));
    drop(file);
    served.unmount().unwrap();
}
