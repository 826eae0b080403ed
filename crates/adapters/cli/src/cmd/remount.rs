//! `mount -o remount,...`: the flags of a mount that is there.
//!
//! ```text
//!   mount -o remount,ro DIR -> mount(8) adds what fstab and the mount table say
//!     -> mount.fuse.syncline IMAGE DIR -o OLD,remount,ro -> mount(2), MS_REMOUNT
//! ```
//! So options that cannot change come along and are passed over, as FUSE passes them over.

use std::path::Path;

use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount_remount};

use crate::args::Mount;
use crate::control;
use crate::error::{Failure, Result, plain};

/// Flags of mount(2) that are kept, as statvfs(2) says them.
const FLAGS: [(StatVfsMountFlags, MountFlags); 7] = [
    (StatVfsMountFlags::RDONLY, MountFlags::RDONLY),
    (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
    (StatVfsMountFlags::NODEV, MountFlags::NODEV),
    (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
    (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
    (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
    (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
];

/// The words of the options.
fn words(args: &Mount) -> impl Iterator<Item = &str> {
    args.options.iter().flat_map(|list| syncline_fuse::words(list))
}

/// True if the options ask for a remount.
pub(super) fn asked(args: &Mount) -> bool {
    words(args).any(|word| word == "remount")
}

/// The flags after these words; the last one wins.
fn changed<'a>(now: MountFlags, words: impl Iterator<Item = &'a str>) -> MountFlags {
    words.fold(now, |flags, word| match word {
        "ro" => flags | MountFlags::RDONLY,
        "rw" => flags - MountFlags::RDONLY,
        "nosuid" => flags | MountFlags::NOSUID,
        "suid" | "allow_suid" => flags - MountFlags::NOSUID,
        "nodev" => flags | MountFlags::NODEV,
        "dev" | "allow_dev" => flags - MountFlags::NODEV,
        "noexec" => flags | MountFlags::NOEXEC,
        "exec" => flags - MountFlags::NOEXEC,
        _ => flags,
    })
}

/// Changes the flags; what was written before a change to `ro` is on the image when it returns. A
/// mount with `ro` opens its image again before a change to `rw`.
///
/// # Errors
/// `rw` of an image that cannot be written; files that are open for writing; no root.
pub(super) fn run(args: &Mount, dir: &Path) -> Result<()> {
    super::umount::find(dir)?;
    let at = |err: Errno| Failure::host(dir, &err.into());
    let now = statvfs(dir).map_err(at)?.f_flag;
    let kept = FLAGS.iter().filter(|(seen, _)| now.contains(*seen));
    let kept = kept.fold(MountFlags::empty(), |flags, (_, flag)| flags | *flag);
    let flags = changed(kept, words(args));
    let failed = |err: Errno| {
        let next = match err {
            Errno::BUSY => "close the files that are open for writing (fuser -vm shows them)",
            _ => "only root may change a mount",
        };
        Failure::Failed(format!("{}: {}; {next}", dir.display(), plain(&err.into())))
    };
    let read_only = flags.contains(MountFlags::RDONLY);
    let served_read_only = served_read_only(dir)?;
    if !read_only && served_read_only {
        // It may not be had after all, and the image would have been changed for nothing.
        if !rustix::process::geteuid().is_root() {
            return Err(failed(Errno::PERM));
        }
        control::ask(dir, "writable")?;
    }
    mount_remount(dir, flags, "").map_err(failed)?;
    if read_only && !served_read_only {
        control::ask(dir, "clean")?;
    }
    Ok(())
}

/// Returns true if the serving process can only read the image as it is open now.
fn served_read_only(dir: &Path) -> Result<bool> {
    let text = super::status::read(dir)?;
    let status: serde_json::Value = serde_json::from_str(&text)
        .map_err(|err| Failure::Failed(format!("the status is not JSON: {err}; try again")))?;
    Ok(status["read_only"] == true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_wins_and_the_others_stay() {
        let now = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::RELATIME;
        let ask = |line: &str| changed(now, line.split(','));
        assert_eq!(ask("rw,user_id=0,sync=ordered,remount,ro"), now | MountFlags::RDONLY);
        assert_eq!(ask("ro,remount,rw"), now);
        assert_eq!(ask("remount,allow_dev,noexec"), (now - MountFlags::NODEV) | MountFlags::NOEXEC);
    }
}
