//! ext4 in user space: a program reads and writes an image, a card, or storage of its own, without
//! a mount, without root, and without the kernel's driver. An fsync holds through a power cut.
//!
//! ```
//! # let image = syncline_testkit::TempImage::tiny();
//! # let image = image.path();
//! use syncline::{Access, Disk, OpenOptions};
//!
//! let disk = Disk::open(image, &OpenOptions::default())?;
//! let file = disk.open_file(b"/note", Access::CREATE, 0o644)?;
//! file.write(b"kept through a power cut\n")?;
//! file.sync(false)?; // durable from here on
//! drop(file);
//! disk.close()?; // a clean ext4 again, for the kernel and e2fsck
//! # Ok::<(), syncline::Error>(())
//! ```
//!
//! # Which type
//!
//! | to | use |
//! | --- | --- |
//! | open an image, and files in it by path | [`Disk`], [`File`], [`Directory`] |
//! | make, check or recover an image | [`Make`], [`check`], [`Disk::recover`] |
//! | make an image of a tree, in one pass | [`Builder`] |
//! | work with inodes, or without a thread and in virtual time | [`Volume`] |
//! | put the volume on storage of your own | [`BlockDevice`] |
//!
//! # Reading and writing
//!
//! Paths are bytes, relative to the root of the volume. A [`File`] has a position, as a file
//! descriptor has. A read returns fewer bytes than asked only at the end of the file.
//!
//! ```
//! # let device = syncline::MemoryDevice::from_bytes(&syncline_testkit::tiny_ext4());
//! # let disk = syncline::Disk::on(std::sync::Arc::new(device), &Default::default())?;
//! use syncline::Access;
//!
//! disk.mkdir(b"/data", 0o755)?;
//! let file = disk.open_file(b"/data/table", Access::CREATE, 0o644)?;
//! file.write_at(0, b"hello world")?;
//! let mut word = [0; 5];
//! file.seek(6)?;
//! file.read(&mut word)?;
//! assert_eq!(&word, b"world");
//! # Ok::<(), syncline::Error>(())
//! ```
//!
//! # Durability
//!
//! A write is in the page cache of this process. [`File::sync`] makes the file durable, with the
//! name under which it was made; [`Disk::sync`] makes everything durable. [`Access::sync`] makes
//! each write of a file durable before it returns. What is not synced is written within some 30
//! seconds by a thread of the disk.
//!
//! [`SyncMode`] selects the cost of a sync:
//!
//! | `sync=` | `File::sync` | a power cut takes |
//! | --- | --- | --- |
//! | `eager` (default) | one sequential write and one flush | nothing that was synced |
//! | `ordered` | as the kernel's ext4: data in place, a journal commit | nothing that was synced |
//! | `periodic` | returns at once | the last `commit=` seconds (5) of all files |
//!
//! After a power cut a `periodic` volume is at a consistent point in time: databases open normally.
//!
//! ```
//! # let bytes = syncline_testkit::tiny_ext4();
//! use std::sync::Arc;
//! use syncline::{Access, Disk, MemoryDevice, OpenOptions};
//!
//! let device = Arc::new(MemoryDevice::from_bytes(&bytes));
//! let disk = Disk::on(device.clone(), &OpenOptions::parse("sync=periodic")?)?;
//! let file = disk.open_file(b"/log", Access::CREATE, 0o644)?;
//! file.sync(false)?; // returns at once
//! disk.sync()?; // durable from here on, in this mode too
//! let after = Disk::on(Arc::new(device.snapshot()), &OpenOptions::default())?;
//! assert!(after.open_file(b"/log", Access::READ, 0).is_ok());
//! # Ok::<(), syncline::Error>(())
//! ```
//!
//! # After a crash
//!
//! An image that was not closed is recovered by the next open, by the kernel, or by e2fsck.
//! [`Disk::opened`] reports the recovery of the open. An open with `ro` recovers in memory and
//! leaves the
//! image alone. Each operation, such as a rename, is there as a whole or not at all.
//!
//! ```
//! # let image = syncline_testkit::TempImage::tiny();
//! # let image = image.path();
//! use syncline::{Access, At, Disk, OpenOptions};
//!
//! let disk = Disk::open(image, &OpenOptions::default())?;
//! let file = disk.open_file(b"/synced", Access::CREATE, 0o644)?;
//! file.sync(false)?;
//! drop((file, disk)); // as if the process had been killed
//!
//! let disk = Disk::open(image, &OpenOptions::parse("ro")?)?;
//! assert!(disk.opened().transactions_replayed > 0 && disk.is_replayed_in_memory());
//! disk.stat(b"/synced", At::Follow)?;
//! # Ok::<(), syncline::Error>(())
//! ```
//!
//! # Errors
//!
//! Calls by path return an [`Error`]: Linux's number, and a sentence that ends with the next step.
//! Calls of a [`Volume`] return an [`FsError`], and devices a [`DeviceError`]; `?` turns both into
//! an [`Error`].
//!
//! After a failed write nothing is written any more: every sync fails with EIO, and reads go on.
//! Close the disk, look at the device, and open it again. A corrupt image (EUCLEAN) is read-only
//! from then on, and an image with unknown features is refused by their names (EOPNOTSUPP).
//!
//! ```
//! # let device = syncline::MemoryDevice::from_bytes(&syncline_testkit::tiny_ext4());
//! # let disk = syncline::Disk::on(std::sync::Arc::new(device), &Default::default())?;
//! let err = disk.rmdir(b"/").unwrap_err();
//! assert_eq!(err.errno, 17); // EEXIST
//! assert!(err.to_string().contains("name something in it"));
//! # Ok::<(), syncline::Error>(())
//! ```
//!
//! # Threads and processes
//!
//! - Every call may come from any thread. [`Disk::close`] waits for the calls under way and ends
//!   every file of the disk; later calls fail with EBADF.
//! - An image that another process writes to is refused (EBUSY), and for writing one that another
//!   process reads.
//! - A process that was forked from the one that opened the image is refused (EBADF), and neither
//!   touches the image nor waits for a lock when it drops what it inherited.
//! - A disk has one thread, for commits and write-back. With `nobackground` it has none, and the
//!   program calls [`Disk::tick`].
//!
//! ```
//! # let device = syncline::MemoryDevice::from_bytes(&syncline_testkit::tiny_ext4());
//! # let disk = syncline::Disk::on(std::sync::Arc::new(device), &Default::default())?;
//! use syncline::Access;
//!
//! std::thread::scope(|scope| {
//!     for name in [b"/a", b"/b"] {
//!         let disk = &disk;
//!         scope.spawn(move || disk.open_file(name, Access::CREATE, 0o644)?.sync(false));
//!     }
//! });
//! disk.close()?;
//! # Ok::<(), syncline::Error>(())
//! ```
//!
//! # Disks of other programs
//!
//! With `ro` [`Disk::open`] reads the disk in a qcow2, VHD, VHDX, VMDK or Android sparse image,
//! also in several files, and in an image that is compressed. That is unpacked into a file without
//! a name in `$TMPDIR`. [`OpenOptions::backing`] names the files that a qcow2 is over; the names in
//! an image are never opened. Only a raw image and a VHD of fixed size are written to.
//!
//! # Images of strangers
//!
//! A library cannot give up the rights of its program. With the option `isolate` a process of the
//! program `syncline`, which gives up its rights first, reads the image in its place
//! ([`OpenOptions::isolate`]). A hostile image can end that process: then calls fail with EIO, and
//! what was synced is there. [`Disk::on`] and [`Disk::volume`] are not to be had with it.
//!
//! # Not promised
//!
//! - A [`Disk`] that is dropped without [`Disk::close`] writes nothing more.
//! - Permissions are not checked: the caller may do what it can do to the image. New files belong
//!   to root.
//! - With `sync=eager` an fsync of one file does not make earlier changes to unrelated files
//!   durable. ext4 in ordered mode does, as a side effect. Renames and links keep their order.
//! - With the option `log=packed` only this crate recovers the image until it is closed.
//! - A device that acknowledges a flush and loses the data breaks every promise here.
//! - Images with compression, external journals or unknown features are refused. Those with
//!   encryption (without keys), quotas, projects, MMP or shared blocks can only be read;
//!   quotas are not checked.
//! - With `isolate` an append of more than 1 MiB is several appends.
//! - The crates `syncline-fs`, `syncline-device` and below are parts of this one. Their own
//!   interfaces change without notice.
//!
//! Linux only. Tested through the C and Python interfaces, which are over this crate; with
//! `isolate` in `tests/it` also.

#![forbid(unsafe_code)]

mod build;
mod device;
mod directory;
mod disk;
mod error;
mod file;
#[cfg(feature = "isolate")]
mod helper;
#[cfg(not(feature = "isolate"))]
#[path = "helper_absent.rs"]
mod helper;
#[cfg(feature = "images")]
mod images;
#[cfg(not(feature = "images"))]
#[path = "images_absent.rs"]
mod images;
mod maintenance;
mod names;
mod options;
mod serve;
mod tools;
mod volume;
#[cfg_attr(not(feature = "isolate"), allow(dead_code))]
mod wire;

pub use build::Builder;
pub use device::{
    BlockDevice, Clock, DeviceError, FileDevice, FileOptions, Geometry, MemoryDevice, Op, Request,
    WallClock,
};
pub use directory::{Directory, Entry};
pub use disk::Disk;
pub use error::{Error, Result};
pub use file::{Access, File};
pub use names::At;
pub use options::OpenOptions;
pub use tools::{Make, check};
pub use volume::{
    Attr, CheckProgress, CheckReport, Create, FallocateMode, FileKind, FsError, InodeRef,
    MountOptions, MountReport, RenameFlags, SetAttr, SetTime, StatFs, SyncMode, Timestamp, Volume,
    XattrFlags,
};

#[cfg(test)]
mod hostile_tests;

#[cfg(test)]
mod tests {
    /// Each public name is a promise. A new name replaces an old one.
    const NAMES_MAX: usize = 40;

    #[test]
    fn the_public_names_are_few() {
        let source = include_str!("lib.rs").split("#[cfg(test)]").next().unwrap();
        assert!(!source.contains("\npub mod"), "a module would have names that are not counted");
        let uses = source.split("\npub use ").skip(1);
        let names: Vec<&str> = uses
            .flat_map(|text| {
                let (path, _) = text.split_once(';').unwrap();
                let (_, names) = path.split_once("::").unwrap();
                names.trim_matches(['{', '}']).split(',').map(str::trim)
            })
            .filter(|name| !name.is_empty())
            .collect();
        assert!(!names.contains(&"*"), "each name is written out");
        assert!(names.len() <= NAMES_MAX, "{} public names, at most {NAMES_MAX}", names.len());
    }
}
