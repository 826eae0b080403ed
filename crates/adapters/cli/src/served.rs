//! Functions shared by commands that serve a device: its block device, and the wait for the end.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use syncline_device::BlockDevice;
use syncline_export::{Served, UblkDevice, UblkError, UblkServed, UblkServer};

use crate::error::{Failure, Result};
use crate::{complain, interrupt};

/// Poll interval of a server for its end.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Polls for the removal of a loop device: 2 minutes in all.
const RELEASE_POLLS: u32 = 2400;

/// The program instead of its ioctls: this crate stays free of unsafe code, losetup says which step
/// failed, and it is installed wherever loop devices are used.
fn losetup() -> Result<Command> {
    let found = syncline_device::find_program("losetup", &[]).map(Command::new);
    found.ok_or_else(|| Failure::Failed("losetup is not there; install the package mount".into()))
}

/// Attaches a loop device without a cache of its own.
pub fn attach(file: &Path) -> Result<String> {
    let done = losetup()?
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
pub(crate) fn detach(node: &str) -> bool {
    let asked = losetup().map(|mut losetup| losetup.args(["-d", node]).status());
    if !asked.is_ok_and(|status| status.is_ok_and(|status| status.success())) {
        return false;
    }
    let name = node.rsplit('/').next().unwrap_or(node);
    let backing = Path::new("/sys/block").join(name).join("loop/backing_file");
    (0..RELEASE_POLLS).any(|poll| {
        if poll > 0 {
            std::thread::sleep(POLL_INTERVAL);
        }
        !backing.exists()
    })
}

/// Returns the mount point of a loop device over `file`, or of `node`, if there is one.
pub fn mounted(file: &Path, node: Option<&str>) -> Result<Option<String>> {
    let listed = losetup()?
        .args(["--noheadings", "--output", "NAME", "--associated"])
        .arg(file)
        .output()
        .map_err(|err| Failure::Failed(format!("losetup: {err}; install the package mount")))?;
    let nodes = String::from_utf8_lossy(&listed.stdout).into_owned();
    let path = Path::new("/proc/self/mounts");
    let mounts = std::fs::read_to_string(path).map_err(|err| Failure::host(path, &err))?;
    let is_mounted = |node: &&str| {
        mounts.lines().any(|line| line.split(' ').next().is_some_and(|source| source == *node))
    };
    Ok(nodes.split_whitespace().chain(node).find(is_mounted).map(str::to_owned))
}

/// A block device of the kernel.
pub enum Node {
    /// Over the file.
    Loop(String),
    /// Beside it.
    Ublk(Box<UblkServed>),
}

impl Node {
    /// Its path.
    pub fn name(&self) -> String {
        match self {
            Node::Loop(node) => node.clone(),
            Node::Ublk(served) => served.node().display().to_string(),
        }
    }

    fn remove(&self) -> Result<()> {
        match self {
            Node::Loop(node) => {
                if !detach(node) {
                    complain(&format!(
                        "{node} is still attached; detach it with `losetup -d {node}`"
                    ));
                }
                Ok(())
            }
            Node::Ublk(served) => remove(served),
        }
    }
}

/// Starts the block device that was asked for; without it nothing is served.
pub fn attached(
    served: Served,
    node: impl FnOnce() -> Result<Option<Node>>,
) -> Result<(Served, Option<Node>)> {
    match node() {
        Ok(node) => Ok((served, node)),
        Err(failure) => {
            served.unmount().map_err(|err| Failure::Failed(err.to_string()))?;
            Err(failure)
        }
    }
}

/// The loop device over a file, if one was asked for.
pub fn over(file: Option<&Path>) -> Result<Option<Node>> {
    Ok(file.map(attach).transpose()?.map(Node::Loop))
}

/// A block device through ublk.
pub fn beside(device: Arc<dyn BlockDevice>) -> Result<Node> {
    let served = UblkServer { device }.serve().map_err(ublk_failure)?;
    Ok(Node::Ublk(Box::new(served)))
}

/// Makes a block device: ublk, or a loop device over `file` if there is no ublk.
pub fn either(device: Arc<dyn BlockDevice>, file: &Path) -> Result<Node> {
    match (UblkServer { device }).serve() {
        Ok(served) => Ok(Node::Ublk(Box::new(served))),
        // Where root is what is missing the loop device says so.
        Err(UblkError::Missing | UblkError::Old | UblkError::NotRoot) => {
            attach(file).map(Node::Loop)
        }
        Err(err) => Err(ublk_failure(err)),
    }
}

/// Checks that the machine has ublk, before anything is made for it.
pub fn check_ublk() -> Result<()> {
    UblkDevice::check().map_err(ublk_failure)
}

pub(crate) fn ublk_failure(error: UblkError) -> Failure {
    match error {
        UblkError::Missing | UblkError::Old => Failure::Unsupported(error.to_string()),
        other => Failure::Failed(other.to_string()),
    }
}

/// Waits until nobody uses a block device any more, 2 minutes at most; says so if somebody does.
pub(crate) fn await_end_of_use(node: &str, in_use: impl Fn() -> bool) {
    let mut polls = 0..RELEASE_POLLS;
    while in_use() {
        if polls.next().is_none() {
            return complain(&format!("{node} was removed in use; unmount what was on it"));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Removes a ublk device.
fn remove(served: &UblkServed) -> Result<()> {
    await_end_of_use(&served.node().display().to_string(), || served.in_use());
    served.stop().map_err(ublk_failure)
}

/// Serves until the directory is unmounted, a signal asks, or `each` (called all the time) says
/// false.
pub fn stay(served: Served, node: Option<&Node>, mut each: impl FnMut() -> bool) -> Result<()> {
    let failed = |err: syncline_export::ExportError| Failure::Failed(err.to_string());
    while !served.finished() && !interrupt::asked() && each() {
        std::thread::sleep(POLL_INTERVAL);
    }
    if served.finished() {
        // Its loop device goes with its last user; ublk does not need the file.
        let removed = match node {
            Some(Node::Ublk(ublk)) => remove(ublk),
            _ => Ok(()),
        };
        served.wait().map_err(failed)?;
        return removed;
    }
    let removed = node.map_or(Ok(()), Node::remove);
    served.unmount().map_err(failed)?;
    removed
}
