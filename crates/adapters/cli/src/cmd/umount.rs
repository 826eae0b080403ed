//! `umount`: unmounts, and waits until the serving process has let go of the image.
//!
//! The kernel tells a FUSE program about an unmount and waits for nothing. So the lock that the
//! serving process holds on the image is waited for: it goes when the image is clean.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use syncline_fuse::{MountEntry, mount_of};

use crate::args::Umount;
use crate::error::{Failure, Result, plain};

/// What our mounts are called in the mount table.
const KIND: &str = "fuse.syncline";

/// How often the lock is tried.
const LOOK: Duration = Duration::from_millis(10);

/// Unmounts; see the module.
pub(crate) fn run(args: &Umount) -> Result<()> {
    let dir = absolute(&args.dir);
    let entry = find(&dir)?;
    // Opened before the unmount: afterwards the path may mean something else.
    let image = std::fs::File::open(&entry.source);
    unmount(&dir, args.lazy)?;
    let (Ok(image), false) = (image, args.lazy) else { return Ok(()) };
    while let Err(err) = rustix::fs::flock(&image, FlockOperation::NonBlockingLockExclusive) {
        if err != Errno::WOULDBLOCK && err != Errno::INTR {
            break;
        }
        crate::interrupt::check()?;
        std::thread::sleep(LOOK);
    }
    drop(image);
    unclean(&entry)
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
        Some(entry) => none(&format!("mounted by somebody else ({})", entry.kind)),
        None => none("nothing is mounted there"),
    }
}

fn unmount(dir: &Path, lazy: bool) -> Result<()> {
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(dir, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => return Ok(()),
        Err(Errno::PERM) => {}
        Err(err) => return Err(refused(dir, &plain(&err.into()), err == Errno::BUSY)),
    }
    let mut command = Command::new("fusermount3");
    command.arg("-u").args(lazy.then_some("-z")).arg("--").arg(dir);
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            let text = text.trim().trim_start_matches("fusermount3: ");
            Err(refused(dir, text, text.contains("busy")))
        }
        Err(err) => Err(refused(dir, &format!("fusermount3: {}", plain(&err)), false)),
    }
}

fn refused(dir: &Path, why: &str, busy: bool) -> Failure {
    let next = if busy {
        "close the files that are open (fuser -vm shows them), or give -l"
    } else {
        "only root and the user who mounted it may unmount it"
    };
    Failure::Failed(format!("{}: {why}; {next}", dir.display()))
}

/// Fails if the image was not left clean.
fn unclean(entry: &MountEntry) -> Result<()> {
    let path = &entry.source;
    let device = crate::image::device(path, true)?;
    if crate::image::superblock(&*device, path)?.needs_recovery() {
        return Err(Failure::Failed(format!(
            "{}: unmounted, but its journal has to be replayed, see the system log for why; run \
             `syncline recover` on it",
            path.display()
        )));
    }
    Ok(())
}
