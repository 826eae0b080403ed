//! The names under which mount(8) and umount(8) call this program.
//!
//! ```text
//!   mount.fuse.syncline  SOURCE DIR [-sfnv] [-N ns] [-o options] [-t type]
//!   umount.fuse.syncline DIR [-flnrv] [-N ns] [-t type]
//! ```
//! Source: mount(8), umount(8), "External helpers".

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The arguments as the command line's; `None` if there is nothing to do (`mount -f`).
pub(crate) fn arguments(given: impl IntoIterator<Item = OsString>) -> Option<Vec<OsString>> {
    let given: Vec<OsString> = given.into_iter().collect();
    let program = given.first().map(|first| Path::new(first).file_name().unwrap_or_default());
    match program.map(OsStr::as_bytes) {
        Some(b"mount.fuse.syncline" | b"mount.syncline") => translate(&given, "mount"),
        Some(b"umount.fuse.syncline" | b"umount.syncline") => translate(&given, "umount"),
        _ => Some(given),
    }
}

/// The arguments of a helper as those of `command`.
pub(crate) fn translate(given: &[OsString], command: &str) -> Option<Vec<OsString>> {
    let mut out: Vec<OsString> = vec!["syncline".into(), command.into()];
    let mut rest = given.iter().skip(1);
    while let Some(argument) = rest.next() {
        match argument.as_bytes() {
            b"-o" => out.extend(["-o".into(), rest.next().cloned().unwrap_or_default()]),
            [b'-', b'o', list @ ..] => out.extend(["-o".into(), OsStr::from_bytes(list).into()]),
            b"-t" | b"-N" => drop(rest.next()),
            [b'-', letters @ ..] if !letters.is_empty() && !letters.starts_with(b"-") => {
                if command == "mount" && letters.contains(&b'f') {
                    return None;
                }
                if command == "umount" && letters.contains(&b'l') {
                    out.push("-l".into());
                }
            }
            _ => out.push(argument.clone()),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(line: &str) -> Option<String> {
        let given = line.split(' ').map(OsString::from);
        let out = arguments(given)?;
        Some(out.iter().map(|a| a.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn calls_of_mount_and_umount() {
        let mount = "/sbin/mount.fuse.syncline /a /mnt -s -v -o rw,noatime -t fuse.syncline";
        assert_eq!(ask(mount).unwrap(), "syncline mount /a /mnt -o rw,noatime");
        assert_eq!(ask("mount.syncline /a /mnt -oro").unwrap(), "syncline mount /a /mnt -o ro");
        assert_eq!(ask("mount.fuse.syncline /a /mnt -f"), None);
        assert_eq!(ask("/sbin/umount.fuse.syncline /mnt -nl").unwrap(), "syncline umount /mnt -l");
        assert_eq!(ask("syncline ls -l a:/").unwrap(), "syncline ls -l a:/");
    }
}
