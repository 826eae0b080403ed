//! The layers of containment, each as far as the kernel has it.

use std::io;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::process::{
    DumpableBehavior, Gid, Resource, Rlimit, Uid, geteuid, set_dumpable_behavior, setrlimit,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, set_capabilities, set_keep_capabilities, set_no_new_privs,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};
use syncline_fuse::Sandbox;

use super::filter;
use crate::error::{Failure, Result};

/// User and group without rights of their own (`nobody`), for processes that root starts.
const NOBODY: u32 = 65_534;

/// Limit of a nice value of 0, getrlimit(2).
const NICE_ORDINARY: u64 = 20;

/// Newest version of Landlock that is asked for; an older kernel gives what it has.
pub(super) const LANDLOCK: ABI = ABI::V6;

/// Limits of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Open descriptors.
    pub(crate) descriptors: u64,
    /// Memory for data, in bytes.
    pub(crate) data_bytes: u64,
    /// End of the longest file that may be written, in bytes; `None`: files grow.
    pub(crate) file_bytes: Option<u64>,
    /// A capability that is kept.
    pub(crate) keeps: Keeps,
}

/// Capabilities that a process has besides its limits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Keeps {
    /// None.
    Nothing,
    /// Threads become idle ones and come back (`affinity=caller`).
    Binds,
    /// The kernel reads the partitions of a block device only if the thread that serves it had the
    /// rights of root when it began. Then [`give_up`] takes them.
    ServesUblk,
}

/// Names of the layers that hold, and of those that are missing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layers {
    pub(crate) held: Vec<&'static str>,
    pub(crate) missing: Vec<&'static str>,
}

impl Layers {
    fn add(&mut self, name: &'static str, done: bool) {
        if done { &mut self.held } else { &mut self.missing }.push(name);
    }

    /// A layer that was not tried.
    pub(crate) fn without(name: &'static str) -> Layers {
        Layers { missing: vec![name], ..Layers::default() }
    }

    /// For the status of a mount.
    pub(crate) fn document(&self, sandbox: Sandbox) -> serde_json::Value {
        let (held, missing) = (&self.held, &self.missing);
        serde_json::json!({ "option": sandbox.name(), "held": held, "missing": missing })
    }

    /// One line for the log.
    pub(crate) fn line(&self) -> String {
        let held = self.held.join(", ");
        match &self.missing[..] {
            [] => format!("contained by {held}"),
            missing if held.is_empty() => format!("not contained, {} failed", missing.join(", ")),
            missing => format!("contained by {held}; missing: {}", missing.join(", ")),
        }
    }

    /// Fails for `strict` unless every layer holds.
    pub(crate) fn check(&self, sandbox: Sandbox) -> Result<()> {
        if sandbox != Sandbox::Strict || self.missing.is_empty() {
            return Ok(());
        }
        let lacks = self.missing.join(", ");
        let text = format!("sandbox=strict: this system does not give {lacks}; use sandbox=best");
        Err(Failure::Failed(text))
    }
}

/// Gives up the rights of this process. `may_open` are the files that it may still open; where
/// there is no Landlock it may open none, and `false` comes with the layers.
pub(crate) fn enter(limits: Limits, may_open: &[&str]) -> (Layers, bool) {
    let mut layers = Layers::default();
    layers.add("no_new_privs", set_no_new_privs(true).is_ok());
    layers.add("limits", limit(limits).is_ok());
    let keeps = match limits.keeps {
        Keeps::ServesUblk if geteuid().is_root() => CapabilitySet::SYS_ADMIN,
        Keeps::Binds => for_affinity(),
        _ => CapabilitySet::empty(),
    };
    // Before the user changes: its directory and devices may be its alone.
    let landlock = restrict_files(may_open).unwrap_or(false);
    layers.add("landlock", landlock);
    layers.add("unprivileged user", drop_user(keeps).is_ok());
    let dropped = set_all_capabilities(keeps).is_ok();
    layers
        .add("no capabilities", dropped && (keeps.is_empty() || keeps == CapabilitySet::SYS_ADMIN));
    // A change of the user resets it.
    layers.add("not dumpable", set_dumpable_behavior(DumpableBehavior::NotDumpable).is_ok());
    let drops = limits.keeps == Keeps::ServesUblk;
    layers.add("seccomp", filter::install(landlock && !may_open.is_empty(), drops).is_ok());
    (layers, landlock)
}

fn limit(limits: Limits) -> io::Result<()> {
    let set = |resource, most| {
        let both = Rlimit { current: Some(most), maximum: Some(most) };
        setrlimit(resource, both).map_err(io::Error::from)
    };
    set(Resource::Core, 0)?;
    if let Some(bytes) = limits.file_bytes {
        // The signal of the limit would end the process; a write has an error with it.
        signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Default::default())?;
        set(Resource::Fsize, bytes)?;
    }
    set(Resource::Data, limits.data_bytes)?;
    set(Resource::Nofile, limits.descriptors)
}

/// True if all of it holds: older kernels know less than [`LANDLOCK`], but every kernel with
/// Landlock restricts files.
fn restrict_files(may_open: &[&str]) -> std::result::Result<bool, landlock::RulesetError> {
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
    let ruleset = ruleset.handle_access(AccessFs::from_all(LANDLOCK))?;
    let ruleset = ruleset.handle_access(AccessNet::from_all(LANDLOCK))?;
    let mut created = ruleset.scope(Scope::from_all(LANDLOCK))?.create()?;
    for path in may_open {
        if let Ok(file) = PathFd::new(path) {
            let access = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
            created = created.add_rule(PathBeneath::new(file, access))?;
        }
    }
    Ok(created.restrict_self()?.ruleset != RulesetStatus::NotEnforced)
}

/// Root becomes nobody, with these capabilities. The process has one thread.
fn drop_user(keeps: CapabilitySet) -> io::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    set_keep_capabilities(!keeps.is_empty())?;
    set_thread_groups(&[])?;
    set_thread_res_gid(group, group, group)?;
    Ok(set_thread_res_uid(user, user, user)?)
}

fn set_all_capabilities(keeps: CapabilitySet) -> io::Result<()> {
    let inheritable = CapabilitySet::empty();
    let sets = CapabilitySets { effective: keeps, permitted: keeps, inheritable };
    Ok(set_capabilities(None, sets)?)
}

/// The capabilities of `affinity=caller`: none where a limit says as well that an idle thread may
/// become an ordinary one again. Root may lack the right to raise limits.
fn for_affinity() -> CapabilitySet {
    let ordinary = Rlimit { current: Some(NICE_ORDINARY), maximum: Some(NICE_ORDINARY) };
    if !geteuid().is_root() || setrlimit(Resource::Nice, ordinary).is_ok() {
        return CapabilitySet::empty();
    }
    CapabilitySet::SYS_NICE
}

/// Takes from this thread what [`Keeps::ServesUblk`] left it.
pub(crate) fn give_up() {
    // It fails only where it had nothing.
    let _ = set_all_capabilities(CapabilitySet::empty());
}

/// True if each worker of a mount can have a queue of its own.
pub(crate) fn may_open_fuse() -> bool {
    std::fs::File::options().read(true).write(true).open("/dev/fuse").is_ok()
}
