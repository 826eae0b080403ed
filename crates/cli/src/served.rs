//! What commands share that serve a device as a file: the loop device over it, and staying.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use syncline_export::Served;

use crate::error::{Failure, Result};
use crate::{complain, interrupt};

/// How often a server looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);
/// How often it looks whether a loop device has gone: for 2 minutes.
const RELEASE_LOOKS: u32 = 2400;

/// Attaches a loop device without a cache of its own.
pub(crate) fn attach(file: &Path) -> Result<String> {
    let done = Command::new("losetup")
        .args(["--find", "--show", "--direct-io=on"])
        .arg(file)
        .output()
        .map_err(|err| Failure::Failed(format!("losetup: {err}; install the package mount")))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned());
    }
    let why = String::from_utf8_lossy(&done.stderr);
    Err(Failure::Failed(format!(
        "no loop device: {}; it needs root and free loop devices, or leave out --attach",
        why.trim()
    )))
}

/// The kernel lets go of the file when the last opener of the loop device does, which may be a
/// program that only looks at new devices; until then the directory cannot be unmounted.
fn detach(node: &str) -> bool {
    let asked = Command::new("losetup").args(["-d", node]).status();
    if !asked.is_ok_and(|status| status.success()) {
        return false;
    }
    let name = node.rsplit('/').next().unwrap_or(node);
    let backing = Path::new("/sys/block").join(name).join("loop/backing_file");
    (0..RELEASE_LOOKS).any(|look| {
        if look > 0 {
            std::thread::sleep(LOOK);
        }
        !backing.exists()
    })
}

/// Starts the loop device if one was asked for; without it nothing is served.
pub(crate) fn attached(served: Served, file: Option<&Path>) -> Result<(Served, Option<String>)> {
    match file.map(attach).transpose() {
        Ok(node) => Ok((served, node)),
        Err(failure) => {
            served.unmount().map_err(|err| Failure::Failed(err.to_string()))?;
            Err(failure)
        }
    }
}

/// Serves until the directory is unmounted, a signal asks, or `each` (called all the time) says
/// false.
pub(crate) fn stay(
    served: Served,
    node: Option<&str>,
    mut each: impl FnMut() -> bool,
) -> Result<()> {
    let failed = |err: syncline_export::ExportError| Failure::Failed(err.to_string());
    while !served.finished() && !interrupt::asked() && each() {
        std::thread::sleep(LOOK);
    }
    if served.finished() {
        return served.wait().map_err(failed);
    }
    if let Some(node) = node.filter(|node| !detach(node)) {
        complain(&format!("{node} is still attached; detach it with `losetup -d {node}`"));
    }
    served.unmount().map_err(failed)
}
