//! `ctl`: durability of files on a mount, settings of a write buffer.

use std::path::Path;

use rustix::fs::{XattrFlags, setxattr};
use rustix::io::Errno;
use syncline_fuse::mount_of;

use crate::args::{CtlCommand, CtlPaths};
use crate::control;
use crate::error::{Failure, Result};
use crate::format::Out;

/// The attribute that says how durable a file is.
const DURABILITY: &str = "user.syncline.durability";
/// What the mount table calls ours.
const KIND: &str = "fuse.syncline";

/// Runs one of the commands.
pub(crate) fn run(command: &CtlCommand) -> Result<()> {
    match command {
        CtlCommand::Relax(args) => mark(args, "relaxed"),
        CtlCommand::Strict(args) => mark(args, "strict"),
        CtlCommand::Set(args) => {
            ask(&args.dir, &format!("set {}", args.settings.join(" "))).map(drop)
        }
        CtlCommand::Clean(args) => ask(&args.dir, "clean").map(drop),
        CtlCommand::Status(args) => {
            let text = match control::ask(&args.dir, "status")? {
                Some(text) => text,
                None => super::status::read(&args.dir)? + "\n",
            };
            let mut out = Out::new();
            out.text(text)?;
            out.flush()
        }
    }
}

fn ask(dir: &Path, request: &str) -> Result<String> {
    if request.contains('\n') {
        return Err(Failure::Usage("a setting with a line break; write NAME=VALUE".to_owned()));
    }
    control::ask(dir, request)?.ok_or_else(|| {
        Failure::Failed(format!(
            "{}: no write buffer is served there; start one with `syncline buffer attach`",
            dir.display()
        ))
    })
}

/// Sets the attribute, which the kernel allows to who may write to the file.
fn mark(args: &CtlPaths, how: &str) -> Result<()> {
    for path in &args.paths {
        let real = std::fs::canonicalize(path).map_err(|err| Failure::host(path, &err))?;
        let mount = real.ancestors().find_map(mount_of);
        if mount.is_none_or(|mount| mount.kind != KIND) {
            return Err(Failure::Failed(format!(
                "{}: not on a Syncline mount; `syncline preload` relaxes files elsewhere",
                path.display()
            )));
        }
        setxattr(&real, DURABILITY, how.as_bytes(), XattrFlags::empty()).map_err(
            |err| match err {
                Errno::OPNOTSUPP | Errno::PERM => Failure::Failed(format!(
                    "{}: only files and directories can be marked; give one of these",
                    path.display()
                )),
                _ => Failure::host(path, &err.into()),
            },
        )?;
    }
    Ok(())
}
