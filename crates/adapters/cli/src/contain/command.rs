//! A command on an image that gives up its rights before it reads the image.
//!
//! One that writes opens the image first: whether another program reads it is to be seen with
//! all rights only.
//!
//! Promises: it reads and writes the images and places that its arguments name, and reads system
//! files (`/etc`, `/proc`, `/sys`, `/usr`). It reaches no network and no other process, and gets no
//! privilege by a program. It starts none either, but for those that [`Bounds::starts`] is for,
//! which have the same bounds. Every layer that the kernel lacks is left out.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};

use landlock::{
    Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, Scope,
};
use rustix::process::geteuid;
use rustix::thread::set_no_new_privs;

use super::filter;
use super::layers::LANDLOCK;

/// Places that every command may read.
const SYSTEM: [&str; 8] = ["/etc", "/proc", "/sys", "/usr", "/bin", "/sbin", "/lib", "/lib64"];

/// Files and programs that a command may use.
#[derive(Debug, Default)]
pub(crate) struct Bounds {
    /// Files and directories that it reads.
    pub(crate) reads: Vec<PathBuf>,
    /// Files that it writes to.
    pub(crate) writes: Vec<PathBuf>,
    /// Directories in which it makes, changes and removes files.
    pub(crate) fills: Vec<PathBuf>,
    /// It starts a program, such as e2fsck.
    pub(crate) starts: bool,
}

impl Bounds {
    /// Bounds of a command that reads this image.
    pub(crate) fn reader(image: &Path) -> Bounds {
        // A compressed image is unpacked into a file without a name.
        let unpacks = syncline_image::is_compressed(image);
        let fills = unpacks.then(std::env::temp_dir).into_iter().collect();
        let reads = [image.to_owned()].into_iter().chain(syncline_image::other_files(image));
        Bounds { reads: reads.collect(), fills, ..Bounds::default() }
    }

    /// It reads the files below the image, too.
    pub(crate) fn over(mut self, part: &crate::args::Part) -> Bounds {
        self.reads.extend(part.backing.iter().cloned());
        self
    }

    /// Bounds of a command that writes to this image.
    pub(crate) fn writer(image: &Path) -> Bounds {
        // The file of a qcow2 that was not closed is repaired by qemu-img.
        let starts = syncline_image::is_qcow2(image);
        Bounds { writes: vec![image.to_owned()], starts, ..Bounds::default() }
    }

    /// It makes or replaces this file, too.
    pub(crate) fn makes(mut self, file: &Path) -> Bounds {
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
        self.fills.push(parent.unwrap_or(Path::new(".")).to_owned());
        self
    }

    /// Gives up everything else when the first image is open. The process has one thread.
    pub(crate) fn when_opened(self) -> Arc<dyn Fn() + Send + Sync> {
        let once = Once::new();
        Arc::new(move || once.call_once(|| self.enter()))
    }

    /// Gives up everything else. The process has one thread.
    pub(crate) fn enter(&self) {
        // Each layer holds without the others.
        let _ = set_no_new_privs(true);
        let _ = self.restrict_files();
        if !self.starts {
            let _ = filter::install_for_command(!self.writes.is_empty());
        }
    }

    fn restrict_files(&self) -> Result<(), RulesetError> {
        let ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
        let ruleset = ruleset.handle_access(AccessFs::from_all(LANDLOCK))?;
        let ruleset = ruleset.handle_access(AccessNet::from_all(LANDLOCK))?;
        let mut created = ruleset.scope(Scope::from_all(LANDLOCK))?.create()?;
        let read = AccessFs::from_read(LANDLOCK);
        let write =
            AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev;
        let all = AccessFs::from_all(LANDLOCK);
        let runtime = syncline_device::runtime_dir(geteuid().as_raw());
        let lists: [(&[PathBuf], BitFlags<AccessFs>); 6] = [
            (&SYSTEM.map(PathBuf::from), read),
            (&["/dev/null", "/dev/tty"].map(PathBuf::from), write),
            (&runtime.into_iter().collect::<Vec<_>>(), all),
            (&self.reads, read | AccessFs::IoctlDev),
            (&self.writes, write),
            (&self.fills, all),
        ];
        for (paths, access) in lists {
            for path in paths {
                // Rights of directories are none of a file's.
                let kind = if path.is_dir() { all } else { AccessFs::from_file(LANDLOCK) };
                if let Ok(place) = PathFd::new(path) {
                    created = created.add_rule(PathBeneath::new(place, access & kind))?;
                }
            }
        }
        created.restrict_self().map(drop)
    }
}
