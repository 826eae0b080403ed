//! Volume of a simulated run: a new image or a given one.
//!
//! A new image is made by [`syncline_fs::mkfs`] with the default features and with UUID, hash seed
//! and time fixed, so that a run repeats exactly. It is made once; each run gets a snapshot that
//! shares what it does not change.

use std::path::PathBuf;

use syncline_device::MemoryDevice;
use syncline_fs::mkfs::{Options, Plan};

use crate::error::{LabError, Result};

/// The volume UUID of every image made here.
const UUID: u128 = 0x5379_6e63_6c69_4e65_8000_0000_0000_0001;
/// The directory hash seed of every image made here.
const HASH_SEED: u128 = 0x5379_6e63_6c69_4e65_8000_0000_0000_0002;
/// 2024-01-01, the start of the virtual clock.
const TIME_S: u64 = 1_704_067_200;

/// Source of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageSource {
    /// A new volume with default features and 4 KiB blocks.
    New {
        /// Size of the volume in bytes.
        size_bytes: u64,
    },
    /// The same with four block groups in a flex group instead of sixteen: so 2 GiB have the flex
    /// groups of 8, and what is spread over them on a phone is spread here. For
    /// [`crate::bench::Aging`].
    ManyFlexGroups {
        /// Size of the volume in bytes.
        size_bytes: u64,
    },
    /// An image file. It is read, never written.
    File(PathBuf),
}

impl Default for ImageSource {
    /// 2 GiB, as the stored kernel figures were measured on.
    fn default() -> Self {
        ImageSource::New { size_bytes: 2 << 30 }
    }
}

/// An image in memory, from which runs take their own copy.
#[derive(Debug)]
pub struct Image(MemoryDevice);

impl Image {
    /// Makes or reads the image.
    pub fn load(source: &ImageSource) -> Result<Image> {
        match source {
            #[cfg(not(target_family = "wasm"))]
            ImageSource::File(path) => Ok(Image(MemoryDevice::load(path)?)),
            #[cfg(target_family = "wasm")]
            ImageSource::File(_) => {
                Err(LabError::Usage("a browser has no files; leave the image out".to_owned()))
            }
            ImageSource::New { size_bytes } => made(*size_bytes, None),
            ImageSource::ManyFlexGroups { size_bytes } => made(*size_bytes, Some(4)),
        }
    }

    /// A device that holds the image, and `room_bytes` behind it.
    pub(crate) fn with_room(&self, room_bytes: u64) -> MemoryDevice {
        self.0.snapshot_with_room(room_bytes)
    }

    /// A device of its own for one run. Unchanged content is shared.
    pub fn snapshot(&self) -> MemoryDevice {
        self.0.snapshot()
    }
}

fn made(size_bytes: u64, flex_groups: Option<u32>) -> Result<Image> {
    let options = Options {
        block_bytes: Some(4096),
        flex_groups,
        lazy_itable_init: false,
        uuid: UUID.to_be_bytes(),
        hash_seed: HASH_SEED.to_be_bytes(),
        time_s: TIME_S,
        zeroed: true,
        ..Options::default()
    };
    let device = MemoryDevice::new(size_bytes);
    let made = Plan::new(&options, size_bytes).and_then(|plan| plan.write(&device));
    made.map_err(|err| LabError::Failed(format!("{err}; give an image of your own")))?;
    Ok(Image(device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_repeat_and_snapshots_are_apart() {
        let make = || Image::load(&ImageSource::New { size_bytes: 16 << 20 }).unwrap();
        let (a, b) = (make(), make());
        assert_eq!(a.snapshot().first_difference(&b.snapshot()), None);
        let copy = a.snapshot();
        copy.write_at(0, &[1]).unwrap();
        assert_eq!(a.snapshot().first_difference(&b.snapshot()), None);
    }

    #[test]
    fn a_size_that_is_refused_says_what_to_do() {
        let err = Image::load(&ImageSource::New { size_bytes: 4096 }).unwrap_err().to_string();
        assert!(err.contains("too small") && err.ends_with("give an image of your own"), "{err}");
    }
}
