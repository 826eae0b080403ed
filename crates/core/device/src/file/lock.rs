//! Locks of an open image. A user with read permission only cannot hold them against a writer.
//!
//! ```text
//!   byte   WRITER   write lock of the writer: the kernel gives it to descriptors that may write
//!          READER   read lock of each reader
//!          MARK     read lock of a writer without the lock of WRITER
//!   file   lock-DEV-INO in the user's runtime directory, where a stranger's read lock of WRITER
//!          keeps a writer from its write lock
//! ```
//!
//! Promises
//! - One writer at a time, of those who run as root, as the owner of the image or as one user; no
//!   reader opens what somebody writes.
//! - A writer is refused while root, the owner or its own user reads the image. Locks of anybody
//!   else hold up nobody, since they need no more than permission to read; such a reader may see a
//!   state that never was.
//! - A process that cannot see who has a lock ([`take_unseeing`]) takes each for a friend's. It has
//!   no lock file, and MARK shows it the writers that have nothing else.
//! - Locks end with the device that took them, and with the process at the latest. A child that
//!   another thread starts has the descriptors until it runs its program, but not the locks. If
//!   another process has the files ([`Held::share`]), the last descriptor ends the locks.
//! - Locks belong to descriptors (`F_OFD_SETLK`), so that two of one process exclude each other;
//!   QEMU's bytes are others. Where the file system has no such locks `flock` stands in.
//!
//! Tested in `tests.rs`; against other users in `crates/adapters/cli/tests/it/strangers.rs`.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::process::geteuid;

use super::mounts::OWN_KIND;
use super::runtime::runtime_dir;

/// Bytes of the locks, behind any image.
pub(super) const WRITER: i64 = 0x7379_6e63_6c69_0000;
const READER: i64 = WRITER + 1;
const MARK: i64 = WRITER + 2;

/// Time that readers have to finish before a writer looks who they are.
const READERS_FINISH: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The lock file of a writer; gone when it is dropped.
#[derive(Debug)]
struct WriterFile {
    path: PathBuf,
    /// Process that made it; one that was forked from it leaves it alone.
    maker: u32,
    _held: File,
}

impl Drop for WriterFile {
    fn drop(&mut self) {
        if self.maker == std::process::id() {
            // While it is locked: who waits for it sees that it is gone.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Locks of an open image.
#[derive(Debug)]
pub(super) struct Held {
    /// Process that took them; one that was forked from it leaves them alone.
    maker: u32,
    is_shared: AtomicBool,
    _own: Option<WriterFile>,
}

impl Held {
    /// Another process gets descriptors of the image, and with them the locks.
    pub(super) fn share(&self) {
        self.is_shared.store(true, Ordering::Release);
    }

    /// Gives back all locks that `file`, the image, has: those of this module, and any of a format
    /// within it.
    pub(super) fn give_back(&self, file: &File) {
        if self.maker != std::process::id() || self.is_shared.load(Ordering::Acquire) {
            return;
        }
        unlock(file);
    }
}

fn unlock(file: &File) {
    // The end of the last descriptor gives back what fails here.
    let all = libc::flock { l_len: 0, ..range(libc::F_UNLCK, 0) };
    let _ = fcntl(file, FcntlArg::F_OFD_SETLK(&all));
    let _ = flock(file, FlockOperation::Unlock);
}

/// Takes the locks of a reader or writer of an open image.
///
/// # Errors
/// EAGAIN if somebody has it open whose locks count.
pub(super) fn take(file: &File, read_only: bool) -> io::Result<Held> {
    let own = taken(file, read_only).inspect_err(|_| unlock(file))?;
    Ok(Held { maker: std::process::id(), is_shared: AtomicBool::new(false), _own: own })
}

fn taken(file: &File, read_only: bool) -> io::Result<Option<WriterFile>> {
    let meta = file.metadata()?;
    if read_only {
        match set(file, libc::F_RDLCK, READER) {
            Err(err) if is_without_locks(err) => return by_flock(file, true),
            _ => {}
        }
        return if is_written(file) { Err(in_use()) } else { Ok(None) };
    }
    let own = match set(file, libc::F_WRLCK, WRITER) {
        Ok(()) => None,
        Err(err) if is_without_locks(err) => return by_flock(file, false),
        Err(_) if found(file, libc::F_RDLCK, WRITER) => return Err(in_use()),
        // Read locks alone are in the way.
        Err(_) => {
            let own = writer_file(&meta)?;
            // For who sees no lock file.
            let _ = set(file, libc::F_RDLCK, MARK);
            Some(own)
        }
    };
    if own.is_none() && has_writer_file(&meta) {
        return Err(in_use());
    }
    let began = Instant::now();
    while found(file, libc::F_WRLCK, READER) {
        if began.elapsed() > READERS_FINISH {
            return if is_read_by_friends(&meta) { Err(in_use()) } else { Ok(own) };
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(own)
}

/// As [`take`], for a process that sees neither lock files of others nor their processes.
///
/// # Errors
/// EAGAIN if anybody has a lock.
pub(super) fn take_unseeing(file: &File, read_only: bool) -> io::Result<Held> {
    let (kind, own, others) = match read_only {
        true => (libc::F_RDLCK, READER, [WRITER, MARK]),
        false => (libc::F_WRLCK, WRITER, [READER, MARK]),
    };
    let began = Instant::now();
    let done = match set(file, kind, own) {
        Err(err) if is_without_locks(err) => by_flock(file, read_only).map(drop),
        Err(_) => Err(in_use()),
        Ok(()) => loop {
            if !others.into_iter().any(|byte| found(file, libc::F_WRLCK, byte)) {
                break Ok(());
            }
            if began.elapsed() > READERS_FINISH {
                break Err(in_use());
            }
            std::thread::sleep(POLL_INTERVAL);
        },
    };
    done.inspect_err(|_| unlock(file))?;
    Ok(Held { maker: std::process::id(), is_shared: AtomicBool::new(false), _own: None })
}

/// True while somebody whose locks count has the image open, as far as this user can tell.
pub fn is_open(file: &File) -> bool {
    is_written(file)
        || found(file, libc::F_WRLCK, READER)
            && file.metadata().is_ok_and(|meta| is_read_by_friends(&meta))
}

fn is_written(file: &File) -> bool {
    found(file, libc::F_RDLCK, WRITER) || file.metadata().is_ok_and(|meta| has_writer_file(&meta))
}

fn in_use() -> io::Error {
    Errno::EAGAIN.into()
}

fn is_without_locks(err: Errno) -> bool {
    matches!(err, Errno::EINVAL | Errno::ENOSYS | Errno::ENOLCK | Errno::EOPNOTSUPP)
}

fn by_flock(file: &File, shared: bool) -> io::Result<Option<WriterFile>> {
    let exclusive = FlockOperation::NonBlockingLockExclusive;
    let kind = if shared { FlockOperation::NonBlockingLockShared } else { exclusive };
    flock(file, kind)?;
    Ok(None)
}

fn range(kind: libc::c_int, at: i64) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: at,
        l_len: 1,
        l_pid: 0,
    }
}

fn set(file: &File, kind: libc::c_int, at: i64) -> Result<(), Errno> {
    fcntl(file, FcntlArg::F_OFD_SETLK(&range(kind, at))).map(drop)
}

/// True if somebody else has a lock that keeps this kind of lock from the byte.
fn found(file: &File, kind: libc::c_int, at: i64) -> bool {
    let mut asked = range(kind, at);
    let done = fcntl(file, FcntlArg::F_OFD_GETLK(&mut asked));
    done.is_ok() && libc::c_int::from(asked.l_type) != libc::F_UNLCK
}

fn writer_file_in(dir: &Path, meta: &Metadata) -> PathBuf {
    dir.join(format!("lock-{:x}-{:x}", meta.dev(), meta.ino()))
}

/// Users whose locks count: root, the owner of the image, and the caller.
fn friends(meta: &Metadata) -> [u32; 3] {
    [0, meta.uid(), geteuid().as_raw()]
}

/// Makes and locks the lock file of the caller.
fn writer_file(meta: &Metadata) -> io::Result<WriterFile> {
    if has_writer_file(meta) {
        return Err(in_use());
    }
    let path = writer_file_in(&runtime_dir(geteuid().as_raw())?, meta);
    loop {
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        options.custom_flags(OFlags::NOFOLLOW.bits() as i32);
        let held = options.open(&path)?;
        flock(&held, FlockOperation::NonBlockingLockExclusive).map_err(|_| in_use())?;
        let now = std::fs::symlink_metadata(&path);
        if now.is_ok_and(|now| held.metadata().is_ok_and(|held| held.ino() == now.ino())) {
            return Ok(WriterFile { path, maker: std::process::id(), _held: held });
        }
        // Its last owner has removed it meanwhile.
    }
}

/// True if a friend holds its lock file for the image.
fn has_writer_file(meta: &Metadata) -> bool {
    friends(meta).into_iter().any(|uid| {
        let Ok(dir) = runtime_dir(uid) else { return false };
        match File::open(writer_file_in(&dir, meta)) {
            Ok(file) => flock(&file, FlockOperation::NonBlockingLockShared).is_err(),
            // Another user's, who removes it in the end.
            Err(err) => err.kind() == io::ErrorKind::PermissionDenied,
        }
    })
}

/// True if a process of a friend has the lock of a reader, as far as procfs shows: proc(5),
/// /proc/pid/fdinfo names the locks of a descriptor.
fn is_read_by_friends(meta: &Metadata) -> bool {
    let friends = friends(meta);
    let byte = READER.to_string();
    let is_reader =
        |line: &str| line.contains(" READ ") && line.split_whitespace().any(|word| word == byte);
    processes().any(|process| {
        process.metadata().is_ok_and(|dir| friends.contains(&dir.uid()))
            && has_lock(&process, meta, &is_reader)
    })
}

fn processes() -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_number = |name: &std::ffi::OsStr| name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
    entries.filter(move |entry| is_number(&entry.file_name())).map(|entry| entry.path())
}

/// True if a descriptor of the process for the file has a lock that fits.
fn has_lock(process: &Path, meta: &Metadata, fits: &dyn Fn(&str) -> bool) -> bool {
    let open = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let mut of_file = open.filter(|fd| {
        let file = std::fs::metadata(fd.path());
        file.is_ok_and(|file| (file.dev(), file.ino()) == (meta.dev(), meta.ino()))
    });
    of_file.any(|fd| {
        let text = std::fs::read_to_string(process.join("fdinfo").join(fd.file_name()));
        text.unwrap_or_default().lines().any(|line| line.starts_with("lock:") && fits(line))
    })
}

/// The sentence for an image that is in use: where it is mounted, or the process that has a lock,
/// as far as procfs shows.
pub(super) fn user_of(path: &Path, file: &File) -> String {
    const OPEN: &str = "another program has it open";
    let meta = file.metadata();
    let holds = |process: &PathBuf| meta.as_ref().is_ok_and(|m| has_lock(process, m, &|_| true));
    let own = Path::new("/proc").join(std::process::id().to_string());
    let holders: Vec<PathBuf> = processes().filter(holds).collect();
    // The caller may read what somebody else has open as well.
    let process = holders.iter().find(|process| **process != own);
    if process.is_none() && !holders.is_empty() {
        return "this program has it open already; close it first".to_owned();
    }
    let process = process.map(PathBuf::as_path).unwrap_or(Path::new(""));
    let id = process.file_name().unwrap_or_default().to_string_lossy();
    // It has none, too, if it is not to be seen, as the server of another's mount.
    let name = std::fs::read_to_string(process.join("comm")).unwrap_or_default();
    let name = name.trim_end();
    let mount = super::mounts::mounted_image(path).filter(|entry| entry.kind == OWN_KIND);
    match mount.filter(|_| name.is_empty() || name == "syncline") {
        Some(entry) => {
            let dir = entry.dir.display();
            format!("{OPEN}: it is mounted on {dir}; unmount it with `syncline umount {dir}`")
        }
        None if id.is_empty() => format!("{OPEN}; close that first"),
        None => format!("{OPEN}: {name} (process {id}); close that first"),
    }
}
