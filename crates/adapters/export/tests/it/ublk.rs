//! A device through ublk, where the kernel has it and we are root; else how it is refused. The
//! whole of it, with power cuts, runs in a guest: `cargo xtask run guest`.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use syncline_device::{BlockDevice, Kind, MemoryDevice, Origin, RecordingDevice};
use syncline_export::{UblkDevice, UblkError, UblkServer};
use syncline_testkit::skip;

const MIB: u64 = 1 << 20;

#[test]
fn a_kernel_without_ublk_is_named_and_one_with_it_serves() {
    let test = "a_kernel_without_ublk_is_named_and_one_with_it_serves";
    let device = Arc::new(RecordingDevice::new(MemoryDevice::new(4 * MIB)));
    let server = UblkServer { device: Arc::clone(&device) as Arc<dyn BlockDevice> };
    let there = Path::new("/dev/ublk-control").exists();
    let served = match server.serve() {
        Ok(served) => served,
        Err(err @ UblkError::Missing) => {
            assert!(!there && err.to_string().contains("modprobe ublk_drv"), "{err}");
            assert!(matches!(UblkDevice::check(), Err(UblkError::Missing)));
            return skip(test, "needs a kernel with ublk for the rest; modprobe ublk_drv");
        }
        Err(err @ UblkError::NotRoot) => {
            assert!(there && !rustix::process::geteuid().is_root(), "{err}");
            return skip(test, "needs root for ublk");
        }
        Err(err) => panic!("{err}"),
    };
    let node = served.node().to_owned();
    let file = std::fs::File::options().read(true).write(true).open(&node).unwrap();
    let flushes = device.counts().flushes();
    file.write_all_at(&[7; 8192], 3 * MIB).unwrap();
    file.sync_all().unwrap();
    assert!(device.counts().flushes() > flushes, "fsync of the node is a flush");
    let mut found = vec![0; 8192];
    device.read(3 * MIB, &mut found, Origin::new(Kind::Other, true)).unwrap();
    assert!(found.iter().all(|byte| *byte == 7), "what the kernel wrote is on the device");
    drop(file);
    assert!(!served.in_use() && !served.finished());
    served.stop().unwrap();
    assert!(!node.exists(), "{} has gone", node.display());
    served.stop().unwrap();
}
