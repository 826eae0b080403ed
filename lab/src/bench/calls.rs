//! Waits of fallocate() and of periodic write() in virtual time, beside the ftruncate and fsync of
//! another file (write-latency paper, section 5).
//!
//! Calls follow each other: before each call the other file's size changes and is synced, and due
//! background work is done. So a wait is the price of a system call and the device time of what the
//! call itself reads or writes. Waits for a lock that another thread holds are not in it;
//! `syncline-lab latency` measures those in real time. Runs repeat exactly. Tested here.

use serde::{Deserialize, Serialize};
use syncline_fs::{FallocateMode, MountOptions};
use syncline_nand::Profile;

use crate::bench::image::Image;
use crate::bench::runner::Stack;
use crate::error::Result;
use crate::observer::Observer;

/// Bytes of an allocation, of a write, and time between two writes (section 5).
const FALLOCATE_BYTES: u64 = 100_000_000;
const WRITE_BYTES: u64 = 16 << 10;
const PERIOD_NS: u64 = 5_000_000;
/// Written back each time after so many bytes.
const WRITE_BACK_BYTES: u64 = 2 << 20;
/// The other file's size alternates between this and nothing.
const OTHER_BYTES: u64 = 1 << 20;

/// The call that is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Call {
    /// fallocate of 100 MB, which is given back after.
    Fallocate,
    /// write of 16 KiB each 5 ms into allocated blocks.
    Write,
}

/// Waits of all calls, microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Waits {
    /// Mean.
    pub mean_us: f64,
    /// Longest.
    pub max_us: f64,
}

/// Times `calls` calls on a new volume; `beside`: with the other file's changes between them.
pub fn waits(
    (profile, image, mount): (&Profile, &Image, &MountOptions),
    call: Call,
    beside: bool,
    calls: u64,
    observer: &dyn Observer,
) -> Result<Waits> {
    let stack = Stack::new(profile, image.snapshot(), 0)?;
    let target = stack.mount(mount, 1)?;
    let (fs, volume, clock) = (target.fs(), target.fs().volume(), target.fs().clock());
    let (file, other) = (fs.create("/file")?, fs.create("/other")?);
    if call == Call::Write {
        volume.fallocate(&file, FallocateMode::Allocate, 0, calls * WRITE_BYTES)?;
    }
    fs.sync()?;
    let (record, syscall_ns) = (vec![0xa5; WRITE_BYTES as usize], fs.syscall_us() * 1000);
    let (first_ns, mut total_ns, mut max_ns) = (clock.now_ns(), 0, 0);
    for n in 0..calls {
        if observer.stopped() {
            break;
        }
        if beside {
            fs.truncate(&other, n % 2 * OTHER_BYTES)?;
            fs.fsync(&other, false)?;
        }
        if call == Call::Write {
            clock.sleep_until(first_ns + n * PERIOD_NS);
        }
        // What is due in the background is done before the call.
        fs.charge_syscall();
        let start_ns = clock.now_ns();
        match call {
            Call::Fallocate => {
                volume.fallocate(&file, FallocateMode::Allocate, 0, FALLOCATE_BYTES)?;
            }
            Call::Write => {
                volume.write(&file, n * WRITE_BYTES, &record)?;
            }
        }
        let wait_ns = clock.now_ns() - start_ns + syscall_ns;
        (total_ns, max_ns) = (total_ns + wait_ns, max_ns.max(wait_ns));
        match call {
            Call::Fallocate => {
                fs.truncate(&file, 0)?;
                fs.fsync(&file, false)?;
            }
            Call::Write if ((n + 1) * WRITE_BYTES).is_multiple_of(WRITE_BACK_BYTES) => {
                let from = (n + 1) * WRITE_BYTES - WRITE_BACK_BYTES;
                volume.writeback_range(&file, from, WRITE_BACK_BYTES)?;
            }
            Call::Write => {}
        }
        observer.position(n, calls);
    }
    drop((file, other));
    target.unmount()?;
    let us = |ns: u64| ns as f64 / 1e3;
    Ok(Waits { mean_us: us(total_ns) / calls.max(1) as f64, max_us: us(max_ns) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unobserved;
    use crate::bench::image::ImageSource;
    use syncline_testkit::{Need, require};

    #[test]
    fn a_write_into_allocated_blocks_waits_for_no_device() {
        if !require("a_write_into_allocated_blocks_waits_for_no_device", &[Need::E2fsck]) {
            return;
        }
        let profile = Profile::by_name("nexus7-emmc").unwrap();
        let image = Image::load(&ImageSource::New { size_bytes: 512 << 20 }).unwrap();
        let of = |options: &str, call, beside| {
            let mount = MountOptions::parse(options).unwrap();
            waits((&profile, &image, &mount), call, beside, 100, &Unobserved).unwrap()
        };
        let price_us = f64::from(profile.host.syscall_us);
        let options = "noatime,lazytime,cache=64M,cache_reserve=64M";
        for beside in [false, true] {
            let write = of(options, Call::Write, beside);
            assert_eq!((write.mean_us, write.max_us), (price_us, price_us), "beside {beside}");
        }
        let fallocate = of(options, Call::Fallocate, true);
        assert_eq!(fallocate, of(options, Call::Fallocate, true), "runs repeat");
        assert!(fallocate.max_us >= price_us);
    }
}
