//! The volume of `syncline-fs`, with an example each.

/// The volume itself, for programs with an interface of their own: inodes instead of paths, no
/// thread, the clock as a parameter.
///
/// ```
/// # let device = syncline::MemoryDevice::from_bytes(&syncline_testkit::tiny_ext4());
/// use std::sync::Arc;
/// use syncline::{Create, MountOptions, Volume, WallClock};
///
/// let options = MountOptions::default();
/// let volume = Volume::mount(Arc::new(device), Arc::new(WallClock::new()), options)?;
/// let root = volume.root()?;
/// let file = volume.create(&root, b"note", &Create { mode: 0o644, uid: 0, gid: 0 })?;
/// volume.write(&file, 0, b"kept")?;
/// volume.fsync(&file, false)?;
/// drop((root, file));
/// volume.unmount()?;
/// # Ok::<(), syncline::FsError>(())
/// ```
pub use syncline_fs::Volume;

/// Options of a volume, as fields and by the names of `mount -o`.
///
/// ```
/// use syncline::{MountOptions, SyncMode};
///
/// let mut options = MountOptions::parse("sync=periodic,cache=16M")?;
/// options.apply("commit=1")?;
/// let same = MountOptions::default().with(|options| {
///     options.sync = SyncMode::Periodic;
///     options.cache_bytes = 16 << 20;
///     options.commit_s = 1;
/// });
/// assert_eq!(options, same);
/// # Ok::<(), syncline::FsError>(())
/// ```
pub use syncline_fs::MountOptions;

/// The promise of an fsync; the crate's documentation compares the modes.
///
/// ```
/// use syncline::{MountOptions, SyncMode};
///
/// assert_eq!(MountOptions::default().sync, SyncMode::Eager);
/// let options = MountOptions::default().with(|options| options.sync = SyncMode::Ordered);
/// assert_eq!(options.sync.name(), "ordered");
/// ```
pub use syncline_fs::SyncMode;

/// Permissions and owner of a new file of a [`Volume`].
///
/// ```
/// # let device = syncline::MemoryDevice::from_bytes(&syncline_testkit::tiny_ext4());
/// # let device = std::sync::Arc::new(device);
/// # let clock = std::sync::Arc::new(syncline::WallClock::new());
/// # let volume = syncline::Volume::mount(device, clock, Default::default())?;
/// use syncline::Create;
///
/// let create = Create { mode: 0o750, uid: 1000, gid: 1000 };
/// let dir = volume.mkdir(&volume.root()?, b"home", &create)?;
/// assert_eq!(volume.getattr(&dir).uid, 1000);
/// # Ok::<(), syncline::FsError>(())
/// ```
pub use syncline_fs::Create;

/// An inode of a [`Volume`]. All of them are dropped before the unmount.
///
/// ```
/// # let device = syncline::MemoryDevice::from_bytes(&syncline_testkit::tiny_ext4());
/// # let device = std::sync::Arc::new(device);
/// # let clock = std::sync::Arc::new(syncline::WallClock::new());
/// # let volume = syncline::Volume::mount(device, clock, Default::default())?;
/// use syncline::{Create, InodeRef};
///
/// let root: InodeRef = volume.root()?;
/// let file = volume.create(&root, b"scratch", &Create::default())?;
/// volume.unlink(&root, b"scratch")?;
/// volume.write(&file, 0, b"still there")?; // until the last reference is dropped
/// drop((root, file));
/// volume.unmount()?;
/// # Ok::<(), syncline::FsError>(())
/// ```
pub use syncline_fs::InodeRef;

/// Attributes of a file.
///
/// ```
/// # let device = syncline::MemoryDevice::from_bytes(&syncline_testkit::tiny_ext4());
/// # let disk = syncline::Disk::on(std::sync::Arc::new(device), &Default::default())?;
/// use syncline::{At, Attr};
///
/// let attr: Attr = disk.stat(b"/lost+found", At::Follow)?;
/// assert_eq!((attr.mode & 0o7777, attr.uid), (0o700, 0));
/// # Ok::<(), syncline::Error>(())
/// ```
pub use syncline_fs::Attr;

/// Attributes to change.
///
/// ```
/// # let device = syncline::MemoryDevice::from_bytes(&syncline_testkit::tiny_ext4());
/// # let disk = syncline::Disk::on(std::sync::Arc::new(device), &Default::default())?;
/// use syncline::{Access, At, SetAttr};
///
/// disk.open_file(b"/a", Access::CREATE, 0o644)?;
/// let set = SetAttr { mode: Some(0o600), uid: Some(1000), ..SetAttr::default() };
/// disk.setattr(b"/a", At::Follow, &set)?;
/// assert_eq!(disk.stat(b"/a", At::Follow)?.uid, 1000);
/// # Ok::<(), syncline::Error>(())
/// ```
pub use syncline_fs::SetAttr;

/// A time to set.
///
/// ```
/// # let device = syncline::MemoryDevice::from_bytes(&syncline_testkit::tiny_ext4());
/// # let disk = syncline::Disk::on(std::sync::Arc::new(device), &Default::default())?;
/// use syncline::{At, SetAttr, SetTime, Timestamp};
///
/// let then = Timestamp { seconds: 1_000_000_000, nanoseconds: 0 };
/// let set = SetAttr { mtime: Some(SetTime::At(then)), ..SetAttr::default() };
/// disk.setattr(b"/lost+found", At::Follow, &set)?;
/// assert_eq!(disk.stat(b"/lost+found", At::Follow)?.mtime, then);
/// # Ok::<(), syncline::Error>(())
/// ```
pub use syncline_fs::SetTime;

/// A time of a file; earlier times compare as less.
///
/// ```
/// use syncline::Timestamp;
///
/// let early = Timestamp { seconds: -1, nanoseconds: 999_999_999 };
/// assert!(early < Timestamp { seconds: 0, nanoseconds: 0 });
/// ```
pub use syncline_fs::Timestamp;

/// Kind of a file.
///
/// ```
/// # let device = syncline::MemoryDevice::from_bytes(&syncline_testkit::tiny_ext4());
/// # let disk = syncline::Disk::on(std::sync::Arc::new(device), &Default::default())?;
/// use syncline::FileKind;
///
/// let mut root = disk.open_directory(b"/")?;
/// assert!(root.next_entry()?.is_some_and(|entry| entry.kind == FileKind::Directory));
/// # Ok::<(), syncline::Error>(())
/// ```
pub use syncline_fs::FileKind;

/// Space and inodes.
///
/// ```
/// # let device = syncline::MemoryDevice::from_bytes(&syncline_testkit::tiny_ext4());
/// # let disk = syncline::Disk::on(std::sync::Arc::new(device), &Default::default())?;
/// let space = disk.statfs()?;
/// assert_eq!((space.block_size, space.files), (1024, 128));
/// assert!(space.blocks_free <= space.blocks);
/// # Ok::<(), syncline::Error>(())
/// ```
pub use syncline_fs::StatFs;

/// Treatment of an existing target of a rename.
///
/// ```
/// # let device = syncline::MemoryDevice::from_bytes(&syncline_testkit::tiny_ext4());
/// # let disk = syncline::Disk::on(std::sync::Arc::new(device), &Default::default())?;
/// use syncline::{Access, RenameFlags};
///
/// disk.open_file(b"/new", Access::CREATE, 0o644)?;
/// disk.open_file(b"/old", Access::CREATE, 0o644)?;
/// let err = disk.rename(b"/new", b"/old", RenameFlags::NOREPLACE).unwrap_err();
/// assert_eq!(err.errno, 17); // EEXIST
/// disk.rename(b"/new", b"/old", RenameFlags::NONE)?;
/// # Ok::<(), syncline::Error>(())
/// ```
pub use syncline_fs::RenameFlags;

/// The effect of [`File::allocate`](crate::File::allocate) on a range.
///
/// ```
/// # let device = syncline::MemoryDevice::from_bytes(&syncline_testkit::tiny_ext4());
/// # let disk = syncline::Disk::on(std::sync::Arc::new(device), &Default::default())?;
/// use syncline::{Access, FallocateMode};
///
/// let file = disk.open_file(b"/a", Access::CREATE, 0o644)?;
/// file.write(&[1; 8192])?;
/// file.allocate(FallocateMode::PunchHole, 0, 4096)?;
/// assert_eq!(file.seek_extent(0, true)?, 4096);
/// # Ok::<(), syncline::Error>(())
/// ```
pub use syncline_fs::FallocateMode;

/// Condition on setting an extended attribute.
///
/// ```
/// # let device = syncline::MemoryDevice::from_bytes(&syncline_testkit::tiny_ext4());
/// # let disk = syncline::Disk::on(std::sync::Arc::new(device), &Default::default())?;
/// use syncline::{At, XattrFlags};
///
/// let source = (b"user.source".as_slice(), b"sensor 3".as_slice());
/// disk.setxattr(b"/lost+found", At::Follow, source, XattrFlags::Create)?;
/// let again = disk.setxattr(b"/lost+found", At::Follow, source, XattrFlags::Create);
/// assert_eq!(again.unwrap_err().errno, 17); // EEXIST
/// # Ok::<(), syncline::Error>(())
/// ```
pub use syncline_fs::XattrFlags;

/// Why a [`Volume`] did not do what it was asked. [`Error`](crate::Error) is made from it.
///
/// ```
/// # let device = syncline::MemoryDevice::from_bytes(&syncline_testkit::tiny_ext4());
/// # let device = std::sync::Arc::new(device);
/// # let clock = std::sync::Arc::new(syncline::WallClock::new());
/// # let volume = syncline::Volume::mount(device, clock, Default::default())?;
/// use syncline::FsError;
///
/// let err = volume.resolve("/no/such").err();
/// assert_eq!(err, Some(FsError::NotFound));
/// assert_eq!(FsError::NotFound.errno(), 2);
/// # Ok::<(), syncline::FsError>(())
/// ```
pub use syncline_fs::FsError;

/// The repairs of a mount.
///
/// ```
/// # let device = syncline::MemoryDevice::from_bytes(&syncline_testkit::tiny_ext4());
/// # let disk = syncline::Disk::on(std::sync::Arc::new(device), &Default::default())?;
/// assert_eq!(disk.opened().transactions_replayed, 0); // it had been closed
/// # Ok::<(), syncline::Error>(())
/// ```
pub use syncline_fs::MountReport;

/// The findings of a check.
///
/// ```
/// # let image = syncline_testkit::TempImage::tiny();
/// let report = syncline::check(image.path(), &mut |_| true)?;
/// assert_eq!((report.findings.len(), report.directories), (0, 2));
/// # Ok::<(), syncline::Error>(())
/// ```
pub use syncline_fs::CheckReport;

/// How far a check is. Its receiver returns false to stop it.
///
/// ```
/// # let image = syncline_testkit::TempImage::tiny();
/// use syncline::CheckProgress;
///
/// let mut stop = |at: CheckProgress| at.stage != "inodes";
/// assert!(syncline::check(image.path(), &mut stop)?.stopped);
/// # Ok::<(), syncline::Error>(())
/// ```
pub use syncline_fs::CheckProgress;
