//! `ctl`: durability and place of files on a mount, settings of a mount or a write buffer.

use std::path::Path;

use rustix::fs::{XattrFlags, setxattr};
use rustix::io::Errno;
use syncline_device::mount_of;

use crate::args::{CtlCommand, CtlPaths};
use crate::control;
use crate::error::{Failure, Result};
use crate::format::Out;
use crate::interrupt;

/// The attribute that says how durable a file is.
const DURABILITY: &str = "user.syncline.durability";
/// The attribute that moves a file into a zone; it is not stored.
const RELOCATE: &str = "user.syncline.relocate";
/// File system type of our mounts in the mount table.
const KIND: &str = "fuse.syncline";

/// Runs one of the commands.
pub(crate) fn run(command: &CtlCommand) -> Result<()> {
    match command {
        CtlCommand::Relax(args) => mark(args, "relaxed"),
        CtlCommand::Strict(args) => mark(args, "strict"),
        CtlCommand::Relocate(args) => relocate(args),
        CtlCommand::Set(args) => {
            ask(&args.dir, &format!("set {}", args.settings.join(" "))).map(drop)
        }
        CtlCommand::Sync(args) => ask(&args.dir, "sync").map(drop),
        CtlCommand::Clean(args) => ask(&args.dir, "clean").map(drop),
        CtlCommand::Shutdown(args) => {
            let request = if args.no_flush { "shutdown now" } else { "shutdown" };
            ask(&args.dir, request).map(drop)
        }
        CtlCommand::Status(args) => {
            let text = document(&args.dir)?;
            let mut out = Out::new();
            out.text(format!("{}\n", text.trim_end()))?;
            out.flush()
        }
    }
}

/// Reads the status of a directory: of a mount from its attribute, of a buffer from its socket.
pub(super) fn document(dir: &Path) -> Result<String> {
    let real = std::fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    if mount_of(&real).is_some_and(|mount| mount.kind == KIND) {
        return super::status::read(dir);
    }
    match control::ask(dir, "status")? {
        Some(text) => Ok(text),
        None => super::status::read(dir),
    }
}

fn ask(dir: &Path, request: &str) -> Result<String> {
    if request.contains('\n') {
        return Err(Failure::Usage("a setting with a line break; write NAME=VALUE".to_owned()));
    }
    control::ask(dir, request)?.ok_or_else(|| {
        Failure::Failed(format!(
            "{}: no writable mount or write buffer is served there; start it with `syncline mount` \
             or `syncline buffer attach`",
            dir.display()
        ))
    })
}

/// Sets the attribute. The kernel allows it to users who may write to the file.
fn mark(args: &CtlPaths, how: &str) -> Result<()> {
    let set = |path: &Path, real: &Path| {
        setxattr(real, DURABILITY, how.as_bytes(), XattrFlags::empty()).map_err(|err| match err {
            Errno::OPNOTSUPP | Errno::PERM => Failure::Failed(format!(
                "{}: only files and directories can be marked; give one of these",
                path.display()
            )),
            _ => Failure::host(path, &err.into()),
        })
    };
    let elsewhere = "`syncline preload` relaxes files elsewhere, `syncline buffer relax` those of \
                     ext4 over a write buffer";
    each(args, elsewhere, &set)
}

/// Moves files to the zones, one after the other; blocks that do not fit stay in place.
fn relocate(args: &CtlPaths) -> Result<()> {
    let set = |path: &Path, real: &Path| {
        setxattr(real, RELOCATE, b"now", XattrFlags::empty()).map_err(|err| match err {
            Errno::INVAL => Failure::Failed(format!(
                "{}: the mount has no zones for hot files; mount with -o alloc=hot_zones",
                path.display()
            )),
            Errno::OPNOTSUPP | Errno::PERM => Failure::Failed(format!(
                "{}: not an extent-mapped regular file; name a regular file or a directory",
                path.display()
            )),
            _ => Failure::host(path, &err.into()),
        })
    };
    each(args, "Syncline moves files of its own mounts only", &set)
}

/// Calls `set` for each path, which must be on a Syncline mount.
fn each(args: &CtlPaths, elsewhere: &str, set: &dyn Fn(&Path, &Path) -> Result<()>) -> Result<()> {
    for path in &args.paths {
        let real = std::fs::canonicalize(path).map_err(|err| Failure::host(path, &err))?;
        let mount = real.ancestors().find_map(mount_of);
        if mount.is_none_or(|mount| mount.kind != KIND) {
            return Err(Failure::Failed(format!(
                "{}: not on a Syncline mount; {elsewhere}",
                path.display()
            )));
        }
        set(path, &real)?;
        interrupt::check()?;
    }
    Ok(())
}
