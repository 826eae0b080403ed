//! `umount`: unmounts, and waits until the serving process has closed the image.
//!
//! ```text
//!   unmounted ── mounted elsewhere too (bind) ──> done: the image stays in use
//!        | last one seen from here
//!        | ── superblock is still there ────────> done, said: another mount namespace has it
//!        | the kernel has released it
//!      the lock on the image goes ──────────────> done: it is clean
//! ```
//! The kernel tells a FUSE program about an unmount and waits for nothing. So the lock that the
//! serving process holds on the image is waited for: it goes when the image is clean. After a
//! shutdown (`EXT4_IOC_SHUTDOWN`, `ctl shutdown`) it is not, because somebody wanted that.

use std::fs::File;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use serde_json::Value;
use syncline_device::{
    MountEntry, Superblock, find_program, is_open, mount_of, mounted_image, mounts_beside,
};
use syncline_image::partition::{Part, part_of};

use crate::args::Umount;
use crate::error::{Failure, Result, plain};

/// File system type of our mounts in the mount table.
const KIND: &str = "fuse.syncline";

/// Poll interval of the image's lock.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Time for which others may hold the superblock without notice, as a reader of the mount table
/// does.
const MOMENT: Duration = Duration::from_millis(300);

/// Time for which a mount may be busy although all files are closed: the kernel releases files of
/// io_uring and asynchronous I/O after the end of their program.
const BUSY: Duration = Duration::from_secs(1);

/// Time for which the status of the mount is waited for.
const STATUS_MAX: Duration = Duration::from_secs(1);

/// When it is said what is waited for.
const SAY: Duration = Duration::from_secs(3);

/// Time for which the serving process may write before it is reported as stuck.
const FINISH_MAX: Duration = Duration::from_secs(600);

/// State of the file system after the unmount.
enum Left {
    /// Nobody has the image open.
    Image,
    /// It is mounted somewhere that this mount namespace shows.
    MountedHere,
    /// It is mounted somewhere else, or still open.
    Elsewhere,
}

/// Unmounts; see the module.
pub(crate) fn run(args: &Umount) -> Result<()> {
    let dir = absolute(&args.dir);
    let entry = find(&dir)?;
    // Opened before the unmount: afterwards the path may mean something else.
    let image = image_of(&entry);
    let superblock = Superblock::of(&entry);
    let status = status(&dir);
    let nothing_written = left_as_it_is(&status);
    let is_deleted = entry.is_trusted() && is_deleted(&entry.source);
    unmount(&dir, args.lazy)?;
    if is_deleted {
        let text = if is_device(&entry.source) {
            "the device was pulled out while it was mounted; what was not synced before is lost"
        } else {
            "deleted or moved while it was mounted: if deleted, what was written is gone"
        };
        crate::complain(&format!("{}: {text}", entry.source.display()));
    }
    let (Some(image), false) = (image, args.lazy) else { return Ok(()) };
    match wait(&image, &entry, superblock.as_ref(), &dir)? {
        Left::Image => {
            drop(image);
            if nothing_written { Ok(()) } else { unclean(&entry, part(&status)) }
        }
        Left::MountedHere => Ok(()),
        Left::Elsewhere => {
            crate::complain(&format!(
                "{}: unmounted here; {} stays in use, because another mount namespace has it \
                 mounted or a program uses it after `umount -l`; `lsns -t mnt` shows namespaces",
                dir.display(),
                entry.source.display()
            ));
            Ok(())
        }
    }
}

/// The image of a mount. `None`: there is none to wait for, or the name is a stranger's word, who
/// may have put a pipe or a link there.
fn image_of(entry: &MountEntry) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let trusted = Some(&entry.source).filter(|_| entry.is_trusted());
    let image = File::from(rustix::fs::open(trusted?, flags, Mode::empty()).ok()?);
    let kind = image.metadata().ok()?.file_type();
    (kind.is_file() || kind.is_block_device()).then_some(image)
}

/// True if no file has this name any more.
pub(super) fn is_deleted(image: &Path) -> bool {
    std::fs::symlink_metadata(image).is_err_and(|err| err.kind() == std::io::ErrorKind::NotFound)
}

/// True if the name is that of a device; images may be in /dev/shm.
pub(super) fn is_device(image: &Path) -> bool {
    image.starts_with("/dev") && !image.starts_with("/dev/shm")
}

/// Waits for the process that serves it, if the unmount was the last.
fn wait(
    image: &File,
    entry: &MountEntry,
    superblock: Option<&Superblock>,
    dir: &Path,
) -> Result<Left> {
    let began = Instant::now();
    let mut said = false;
    loop {
        if !mounts_beside(entry).is_empty() {
            return Ok(Left::MountedHere);
        }
        if !is_open(image) {
            return Ok(Left::Image);
        }
        if began.elapsed() > MOMENT && superblock.is_some_and(Superblock::lives) {
            return Ok(Left::Elsewhere);
        }
        // Somebody has mounted it anew.
        if mounted_image(&entry.source).is_some() {
            return Ok(Left::MountedHere);
        }
        if began.elapsed() > SAY && !said {
            said = true;
            let what = "waiting for its process to write the last data";
            crate::complain(&format!("{}: unmounted; {what}", dir.display()));
        }
        if began.elapsed() > FINISH_MAX {
            return Err(Failure::Failed(format!(
                "{}: unmounted, but its process still has {} open after {} s; see the system \
                 log, and `fuser -v` on the image",
                dir.display(),
                entry.source.display(),
                FINISH_MAX.as_secs()
            )));
        }
        crate::interrupt::check()?;
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// A mount whose process died does not answer, so its path cannot be resolved either.
fn absolute(dir: &Path) -> PathBuf {
    std::fs::canonicalize(dir).or_else(|_| std::path::absolute(dir)).unwrap_or(dir.to_owned())
}

/// Our mount on `dir`.
pub(crate) fn find(dir: &Path) -> Result<MountEntry> {
    let none = |what: &str| {
        let text = format!("{}: {what}; see `findmnt -t {KIND}`", dir.display());
        Err(Failure::Failed(text))
    };
    match mount_of(dir) {
        Some(entry) if entry.kind == KIND => Ok(entry),
        Some(entry) => none(&format!("mounted by another program ({})", entry.kind)),
        None => none("nothing is mounted there"),
    }
}

/// Unmounts; what is busy only for a moment is tried again.
fn unmount(dir: &Path, lazy: bool) -> Result<()> {
    let began = Instant::now();
    loop {
        match unmount_once(dir, lazy) {
            Err((_, true)) if began.elapsed() < BUSY => std::thread::sleep(2 * POLL_INTERVAL),
            done => return done.map_err(|(why, busy)| refused(dir, &why, busy)),
        }
    }
}

/// Gives why not, and whether it is in use.
fn unmount_once(dir: &Path, lazy: bool) -> std::result::Result<(), (String, bool)> {
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(dir, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => return Ok(()),
        Err(Errno::PERM) => {}
        Err(err) => return Err((plain(&err.into()), err == Errno::BUSY)),
    }
    let Some(program) = find_program("fusermount3", &[]) else {
        return Err(("fusermount3 is not there; install the package fuse3".to_owned(), false));
    };
    let mut command = Command::new(program);
    command.arg("-u").args(lazy.then_some("-z")).arg("--").arg(dir);
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            let text = text.trim().trim_start_matches("fusermount3: ");
            Err((text.to_owned(), text.contains("busy")))
        }
        Err(err) => Err((format!("fusermount3: {}", plain(&err)), false)),
    }
}

fn refused(dir: &Path, why: &str, busy: bool) -> Failure {
    let next = if why.contains("/etc/mtab") {
        "make it, as root: ln -s ../proc/self/mounts /etc/mtab"
    } else if busy {
        "close the files that are open (fuser -vm shows them), or give -l"
    } else {
        "only root and the user who mounted it may unmount it"
    };
    Failure::Failed(format!("{}: {why}; {next}", dir.display()))
}

/// The status of a mount; null where its process does not answer, which is not waited for.
fn status(dir: &Path) -> Value {
    let (send, answer) = std::sync::mpsc::channel();
    let dir = dir.to_owned();
    std::thread::spawn(move || {
        let status = super::status::read(&dir).ok();
        let _ = send.send(status.and_then(|text| serde_json::from_str::<Value>(&text).ok()));
    });
    answer.recv_timeout(STATUS_MAX).ok().flatten().unwrap_or(Value::Null)
}

/// True if the volume was ended by a shutdown, or is read-only, its log perhaps replayed in memory:
/// then the image is not made clean.
fn left_as_it_is(status: &Value) -> bool {
    status["shut_down"] == true || status["read_only"] == true
}

/// The part of the image that was mounted.
fn part(status: &Value) -> Part {
    let number = status["partition"].as_u64().and_then(|number| u32::try_from(number).ok());
    match (number, status["offset_bytes"].as_u64()) {
        (Some(number), _) => Part::Partition(number),
        (None, Some(offset)) => Part::Offset(offset),
        (None, None) => Part::Whole,
    }
}

/// Fails if the image was not left clean.
fn unclean(entry: &MountEntry, part: Part) -> Result<()> {
    let path = &entry.source;
    // Nobody has written to it, and to look would be to unpack it; or its other files are not known
    // here, and the mount has logged what went wrong.
    if syncline_image::is_compressed(path) || syncline_image::is_over(path) {
        return Ok(());
    }
    let device = part_of(crate::image::device(path, true)?, part, path)?;
    if crate::image::superblock(&*device, path)?.needs_recovery() {
        return Err(Failure::Failed(format!(
            "{}: unmounted, but its journal has to be replayed, see the system log for why; run \
             `syncline recover` on it",
            path.display()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_unmount_says_what_to_do() {
        let said = |why: &str, busy| {
            let failure = refused(Path::new("/mnt"), why, busy);
            failure.message().unwrap_or_default().to_owned()
        };
        let without_mtab = "failed to open /etc/mtab: No such file or directory";
        assert!(said(without_mtab, false).ends_with("ln -s ../proc/self/mounts /etc/mtab"));
        assert!(said("busy", true).contains("fuser -vm"));
        assert!(said("not permitted", false).contains("only root"));
    }
}
