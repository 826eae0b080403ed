//! Tests of mounts through the kernel.

mod affinity;
mod atomic;
mod bypass;
mod contents;
mod features;
mod matrix;
mod mounted;
mod names;
mod posix;
mod requests;
mod ring;
mod whole;

use syncline_testkit::{ImageSpec, Need, TempImage, mkfs};

/// Needs of most tests.
const NEEDS: [Need; 2] = [Need::Fuse, Need::E2fsck];

fn image() -> TempImage {
    mkfs(&ImageSpec::with_size(64 << 20))
}

/// The number of an error.
fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}
