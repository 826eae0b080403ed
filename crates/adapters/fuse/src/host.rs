//! Rights that a mount needs of its process besides the image and the requests.
//!
//! ```text
//!   Mount, Serve, Capture -> dyn Host -> Machine             in this process
//!                                   \-> a socket -> Machine  in a process that keeps the rights,
//!                                   |                        while this one has given them up
//!                                   \-> ServiceHost          in a program that mounts for its user
//! ```
//!
//! Promises: a host acts on its directory alone. It tells about a thread only what proc(5) shows.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};
use rustix::process::{getegid, geteuid};
use syncline_device::{find_program, mount_of};

use crate::capture::{self, Place, Process};
use crate::options::FuseOptions;

/// Readahead of the mount in KiB, where we may set it.
const READAHEAD_KIB: &str = "1024";

/// A process that has the rights of a mount.
pub trait Host: Send + Sync {
    /// User who mounted, if known.
    fn owner(&self) -> Option<u32>;

    /// Mounts on the directory and gives the device of the requests. Writes are allowed unless
    /// `read_only`.
    ///
    /// # Errors
    /// The kernel or fusermount3 refuses.
    fn mount(&self, read_only: bool) -> io::Result<OwnedFd>;

    /// Asks the kernel to read ahead by more than its 128 KiB. Only root may; it works without.
    fn read_ahead(&self);

    /// Unmounts the directory; true if it was in use and could only be detached. With `sync` what
    /// the kernel holds is written first.
    fn unmount(&self, sync: bool) -> bool;

    /// The text of /proc/THREAD/status, and whether the thread is in the user namespace of the
    /// mount. `None` where it is not to be seen.
    fn status(&self, thread: u32) -> Option<(String, bool)>;

    /// Gives the file of `trace=` its name, or removes it.
    ///
    /// # Errors
    /// Those of the directory.
    fn end_trace(&self, whole: bool) -> io::Result<()>;

    /// The process of a thread.
    fn process(&self, thread: u32) -> Option<Process>;

    /// /proc/THREAD/stat, opened.
    fn stat_file(&self, thread: u32) -> Option<File>;
}

/// The rights of this process, for one directory.
pub struct Machine {
    dir: PathBuf,
    /// Words of `-o` for fuse(8), with `fsname`.
    words: Vec<String>,
    image: String,
    flags: MountFlags,
    /// Where the file of `trace=` gets its name.
    pub trace: Option<Arc<Place>>,
}

/// Through which the kernel sends requests.
pub(crate) const DEVICE_PATH: &str = "/dev/fuse";

impl Machine {
    /// For a mount of `image` on `dir`.
    pub fn new(dir: &Path, image: &Path, options: &FuseOptions) -> Machine {
        let mut flags = MountFlags::empty();
        let mut words = vec!["default_permissions".to_owned(), "subtype=syncline".to_owned()];
        let noatime = options.volume.atime == syncline_fs::Atime::Noatime;
        for (on, flag, word) in [
            (!options.suid, MountFlags::NOSUID, "nosuid"),
            (!options.dev, MountFlags::NODEV, "nodev"),
            (options.noexec, MountFlags::NOEXEC, "noexec"),
            (noatime, MountFlags::NOATIME, "noatime"),
        ] {
            if on {
                flags |= flag;
            }
            match word.strip_prefix("no").filter(|word| !on && *word != "atime") {
                Some(opposite) => words.push(opposite.to_owned()),
                None if on => words.push(word.to_owned()),
                None => {}
            }
        }
        if options.allow_other {
            words.push("allow_other".to_owned());
        }
        let image = image.to_string_lossy().into_owned();
        Machine { dir: dir.to_owned(), words, image, flags, trace: None }
    }

    /// For a directory that shows the file of a device.
    pub fn of_device(dir: &Path) -> Machine {
        let words =
            ["default_permissions", "subtype=syncline-device", "nosuid", "nodev", "noatime"];
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOATIME;
        let (words, image) = (words.map(str::to_owned).to_vec(), "syncline-device".to_owned());
        Machine { dir: dir.to_owned(), words, image, flags, trace: None }
    }

    /// Words and flags of mount(2).
    pub(crate) fn for_kernel(&self) -> (Vec<&str>, MountFlags) {
        let for_kernel = |word: &&str| {
            matches!(*word, "default_permissions" | "allow_other") || word.starts_with("subtype=")
        };
        (self.words.iter().map(String::as_str).filter(for_kernel).collect(), self.flags)
    }

    /// The source that the mount table shows.
    pub(crate) fn image(&self) -> &str {
        &self.image
    }

    /// mount(2), for root.
    fn mount_directly(&self, read_only: bool) -> io::Result<OwnedFd> {
        let mode = std::fs::metadata(&self.dir)?.permissions().mode();
        let device: OwnedFd = File::options().read(true).write(true).open(DEVICE_PATH)?.into();
        let (words, mut flags) = self.for_kernel();
        let (user, group) = (geteuid().as_raw(), getegid().as_raw());
        let mut data =
            format!("fd={},rootmode={mode:o},user_id={user},group_id={group}", device.as_raw_fd());
        for word in words {
            data = data + "," + word;
        }
        flags.set(MountFlags::RDONLY, read_only);
        let data = std::ffi::CString::new(data)?;
        rustix::mount::mount(self.image.as_bytes(), &self.dir, "fuse", flags, data.as_c_str())?;
        Ok(device)
    }

    /// By fusermount3, which has set-user-ID: it sends the device through a socket, here its
    /// standard input.
    fn mount_by_program(&self, read_only: bool) -> io::Result<OwnedFd> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, "there is no fusermount3");
        let program = find_program("fusermount3", &[]).ok_or_else(missing)?;
        let stream = SocketType::STREAM;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, stream, SocketFlags::CLOEXEC, None)?;
        let image = self.image.replace('\\', "\\\\").replace(',', "\\,");
        let access = if read_only { "ro" } else { "rw" };
        let words = [self.words.join(","), format!("fsname={image}"), access.to_owned()];
        let mut command = Command::new(program);
        command.arg("-o").arg(words.join(",")).arg("--").arg(&self.dir);
        command.env("_FUSE_COMMFD", "0").stdin(theirs).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn()?;
        // Its end of the socket has to close with it.
        drop(command);
        let device = received(&ours);
        let said = child.wait_with_output()?.stderr;
        match device? {
            Some(device) => Ok(device),
            None => Err(io::Error::other(String::from_utf8_lossy(&said).into_owned())),
        }
    }
}

/// The descriptor that comes with the next message; `None`: there is none.
fn received(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let (mut byte, mut space) = ([0], [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))]);
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    loop {
        let mut parts = [IoSliceMut::new(&mut byte)];
        match recvmsg(socket, &mut parts, &mut rights, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(err) => return Err(err.into()),
            Ok(_) => break,
        }
    }
    Ok(rights.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    }))
}

impl Host for Machine {
    fn owner(&self) -> Option<u32> {
        Some(geteuid().as_raw())
    }

    fn mount(&self, read_only: bool) -> io::Result<OwnedFd> {
        match self.mount_directly(read_only) {
            Err(err) if err.raw_os_error() == Some(Errno::PERM.raw_os_error()) => {
                self.mount_by_program(read_only)
            }
            done => done,
        }
    }

    /// The mount is found in the table, not asked for its number: a process that is killed while it
    /// waits for itself never ends, and its mount with it.
    fn read_ahead(&self) {
        let Some((major, minor)) = mount_of(&self.dir).map(|entry| entry.device) else { return };
        let place = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
        let _ = std::fs::write(place, READAHEAD_KIB);
    }

    fn unmount(&self, sync: bool) -> bool {
        let dir = &self.dir;
        // Without `sync` nothing is asked of the own mount: see `read_ahead`.
        if sync {
            if let Ok(root) = File::open(dir) {
                let _ = rustix::fs::syncfs(&root);
            }
        }
        if rustix::mount::unmount(dir, UnmountFlags::NOFOLLOW).is_ok() {
            return false;
        }
        if rustix::mount::unmount(dir, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH).is_ok() {
            return true;
        }
        let Some(program) = find_program("fusermount3", &[]) else { return false };
        let fusermount = |flags: &[&str]| {
            let mut command = Command::new(&program);
            let done = command.arg("-q").args(flags).arg("--").arg(dir).output();
            done.is_ok_and(|output| output.status.success())
        };
        !fusermount(&["-u"]) && fusermount(&["-u", "-z"])
    }

    fn status(&self, thread: u32) -> Option<(String, bool)> {
        let of = |name: &str| format!("/proc/{thread}/{name}");
        let text = std::fs::read_to_string(of("status")).ok()?;
        let namespace = |path: String| std::fs::read_link(path).ok();
        let own = namespace("/proc/self/ns/user".to_owned());
        let same = own.is_some() && namespace(of("ns/user")) == own;
        Some((text, same))
    }

    fn end_trace(&self, whole: bool) -> io::Result<()> {
        match &self.trace {
            Some(place) if whole => place.commit(),
            Some(place) => place.remove(),
            None => Ok(()),
        }
    }

    fn process(&self, thread: u32) -> Option<Process> {
        capture::process_of(thread)
    }

    fn stat_file(&self, thread: u32) -> Option<File> {
        File::open(format!("/proc/{thread}/stat")).ok()
    }
}
