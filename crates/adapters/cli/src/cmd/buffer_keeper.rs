//! The rights of a server of a write buffer, which it gives up before it reads the log.
//!
//! ```text
//!   syncline buffer attach ── starts ──> syncline buffer attach --keeper
//!      | opens device and log               |
//!      | gives up its rights                |
//!      | Ask ─────────────────────────────> | mounts, binds sockets, makes block devices
//!      | <──────── Answer, descriptors ──── |
//!      ends ── the socket closes ─────────> ends
//! ```
//!
//! Promise: the keeper reads neither device nor log nor a request of a client. It acts on its own
//! directory and on the devices that it made. Without a process for it the server keeps its rights.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use serde::{Deserialize, Serialize};
use syncline_control::socket::Bound;
use syncline_control::{Power, Services, Session};
use syncline_device::Geometry;
use syncline_export::{Listen, NbdSocket, UblkDevice, UblkError};
use syncline_fuse::{Host, Machine};

use super::buffer::{DEVICE, listen};
use crate::args::BufferAttach;
use crate::contain::channel;
use crate::error::{Failure, Result};
use crate::{control, served};

/// Time in which the unmount of a busy directory is tried again: a program that was just started
/// has the files of its parent until it execs.
const BUSY_WITHIN: Duration = Duration::from_secs(2);
const BUSY_INTERVAL: Duration = Duration::from_millis(10);

#[derive(Debug, Deserialize, Serialize)]
enum Ask {
    Mount,
    Unmount,
    Control,
    RemoveControl,
    Listen,
    RemoveSocket,
    AttachLoop,
    DetachLoop,
    AddUblk { geometry: Limits },
    StartUblk,
    UblkInUse,
    StopUblk,
    DeleteUblk,
    RemoveLog,
    Services,
}

#[derive(Debug, Deserialize, Serialize)]
enum Answer {
    Done,
    Flag(bool),
    /// Of a device.
    Name(String),
    Services(Session, Power),
    /// A sentence; true if the system lacks something.
    Refused(String, bool),
}

type Answered = (Answer, Vec<OwnedFd>);

/// A geometry in a message.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
struct Limits {
    size_bytes: u64,
    request_bytes: u64,
    /// Volatile cache, FUA, discard, read-only.
    flags: [bool; 4],
}

impl From<Geometry> for Limits {
    fn from(of: Geometry) -> Limits {
        Limits {
            size_bytes: of.size_bytes,
            request_bytes: of.max_request_bytes,
            flags: [of.volatile_cache, of.fua, of.discard, of.read_only],
        }
    }
}

impl From<Limits> for Geometry {
    fn from(of: Limits) -> Geometry {
        let [volatile_cache, fua, discard, read_only] = of.flags;
        let max_request_bytes = of.request_bytes;
        Geometry {
            max_request_bytes,
            volatile_cache,
            fua,
            discard,
            read_only,
            ..Geometry::new(of.size_bytes)
        }
    }
}

/// First message.
#[derive(Debug, Deserialize, Serialize)]
struct Hello {
    /// Process that serves.
    server: u32,
    /// It has made the log.
    has_new_log: bool,
}

/// Removes a file, which somebody may have removed already.
fn removed(path: Option<PathBuf>) -> Answer {
    drop(path.map(std::fs::remove_file));
    Answer::Done
}

/// The rights of this process.
pub(super) struct Local {
    dir: PathBuf,
    listen: Option<Listen>,
    server: u32,
    machine: Machine,
    node: Mutex<Option<String>>,
    ublk: Mutex<Option<UblkDevice>>,
    /// Made for this server, and empty until it serves.
    new_log: Option<PathBuf>,
    services: Mutex<Services>,
}

fn held<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Local {
    fn new(args: &BufferAttach, dir: &Path, hello: &Hello) -> Result<Local> {
        Ok(Local {
            dir: dir.to_owned(),
            listen: listen(args, dir)?,
            server: hello.server,
            machine: Machine::of_device(dir),
            node: Mutex::default(),
            ublk: Mutex::default(),
            new_log: hello.has_new_log.then(|| args.log.clone()),
            services: Mutex::new(Services::with(args.sensor.clone())),
        })
    }

    fn answer(&self, ask: Ask) -> Answered {
        self.act(ask).unwrap_or_else(|failure| {
            let lacks = matches!(failure, Failure::Unsupported(_));
            let said = failure.message().unwrap_or_default().to_owned();
            (Answer::Refused(said, lacks), Vec::new())
        })
    }

    fn act(&self, ask: Ask) -> Result<Answered> {
        let answer = match ask {
            Ask::Mount => return Ok((Answer::Done, vec![self.mount()?])),
            Ask::Control => return Ok((Answer::Done, vec![control::bind(&self.dir)?.into_fd()])),
            Ask::Listen => {
                let bound = self.listen.as_ref().map(NbdSocket::bind).transpose();
                let bound = bound.map_err(|err| Failure::Failed(err.to_string()))?;
                return Ok((Answer::Done, bound.map(NbdSocket::into_fd).into_iter().collect()));
            }
            Ask::AddUblk { geometry } => {
                let added = UblkDevice::add(&geometry.into(), self.server);
                let (device, file) = added.map_err(served::ublk_failure)?;
                let name = device.node().display().to_string();
                *held(&self.ublk) = Some(device);
                return Ok((Answer::Name(name), vec![file.into()]));
            }
            Ask::Unmount => {
                self.unmount();
                Answer::Done
            }
            Ask::AttachLoop => {
                let node = served::attach(&self.dir.join(DEVICE))?;
                *held(&self.node) = Some(node.clone());
                Answer::Name(node)
            }
            Ask::DetachLoop => {
                let node = held(&self.node).take();
                Answer::Flag(node.is_none_or(|node| served::detach(&node)))
            }
            Ask::UblkInUse => {
                Answer::Flag(held(&self.ublk).as_ref().is_some_and(UblkDevice::in_use))
            }
            Ask::StartUblk => self.ublk(UblkDevice::start)?,
            Ask::StopUblk => self.ublk(UblkDevice::stop)?,
            Ask::DeleteUblk => self.ublk(UblkDevice::delete)?,
            Ask::RemoveControl => removed(syncline_control::socket::address(&self.dir).ok()),
            Ask::RemoveSocket => removed(match &self.listen {
                Some(Listen::Unix(path)) => Some(path.clone()),
                _ => None,
            }),
            Ask::RemoveLog => removed(self.new_log.clone()),
            Ask::Services => {
                let (session, power) = held(&self.services).look();
                Answer::Services(session, power)
            }
        };
        Ok((answer, Vec::new()))
    }

    fn ublk(
        &self,
        what: impl FnOnce(&UblkDevice) -> std::result::Result<(), UblkError>,
    ) -> Result<Answer> {
        let done = held(&self.ublk).as_ref().map_or(Ok(()), what);
        done.map(|()| Answer::Done).map_err(served::ublk_failure)
    }

    fn mount(&self) -> Result<OwnedFd> {
        self.machine.mount(false).map_err(|err| {
            Failure::Failed(format!(
                "cannot serve in {}: {err}; it must be an existing directory, and FUSE must be \
                 usable (/dev/fuse, fusermount3)",
                self.dir.display()
            ))
        })
    }

    fn unmount(&self) {
        let until = Instant::now() + BUSY_WITHIN;
        loop {
            match rustix::mount::unmount(&self.dir, UnmountFlags::NOFOLLOW) {
                Ok(()) => return,
                Err(Errno::BUSY) if Instant::now() < until => std::thread::sleep(BUSY_INTERVAL),
                Err(_) => {
                    self.machine.unmount(false);
                    return;
                }
            }
        }
    }
}

/// The rights of a server, of this process or of its keeper.
pub(super) enum Hands {
    Own(Box<Local>),
    Kept(OwnedFd),
}

impl Hands {
    /// Those of this process.
    pub(super) fn own(args: &BufferAttach, dir: &Path, has_new_log: bool) -> Result<Hands> {
        let hello = Hello { server: std::process::id(), has_new_log };
        Ok(Hands::Own(Box::new(Local::new(args, dir, &hello)?)))
    }

    /// Those of a keeper, which starts.
    ///
    /// # Errors
    /// There is no process for it.
    pub(super) fn kept(args: &BufferAttach, dir: &Path, has_new_log: bool) -> io::Result<Hands> {
        let (ours, theirs) = channel::pair()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["buffer", "attach", "--keeper", "--as", &args.way, "--log"]).arg(&args.log);
        command.args(args.listen.iter().flat_map(|place| ["--listen", place]));
        if let Some(program) = &args.sensor {
            command.arg("--sensor").arg(program);
        }
        command.arg("--").arg(&args.device).arg(dir);
        command.stdin(theirs).stdout(Stdio::null());
        if !args.foreground {
            // It must not keep the terminal of the caller.
            command.stderr(Stdio::null());
        }
        // Its end of the socket closes with it. It ends with ours, so that nobody waits for it.
        command.spawn()?;
        drop(command);
        channel::send(&ours, &Hello { server: std::process::id(), has_new_log }, &[])?;
        Ok(Hands::Kept(ours))
    }

    fn ask(&self, ask: Ask) -> Result<Answered> {
        let gone = |err: io::Error| {
            Failure::Failed(format!("the process that keeps the rights of the server: {err}"))
        };
        let answered = match self {
            Hands::Own(local) => local.answer(ask),
            Hands::Kept(socket) => channel::ask(socket, &ask).map_err(gone)?,
        };
        match answered {
            (Answer::Refused(said, true), _) => Err(Failure::Unsupported(said)),
            (Answer::Refused(said, false), _) => Err(Failure::Failed(said)),
            answered => Ok(answered),
        }
    }

    fn tell(&self, ask: Ask) -> Result<()> {
        self.ask(ask).map(drop)
    }

    fn flag(&self, ask: Ask) -> bool {
        matches!(self.ask(ask), Ok((Answer::Flag(true), _)))
    }

    fn descriptor(&self, ask: Ask) -> Result<OwnedFd> {
        let descriptor = self.ask(ask)?.1.into_iter().next();
        descriptor.ok_or_else(|| Failure::Failed("the keeper sends no descriptor".to_owned()))
    }

    /// Mounts the directory; the device of its requests.
    pub(super) fn mount(&self) -> Result<OwnedFd> {
        self.descriptor(Ask::Mount)
    }

    pub(super) fn unmount(&self) -> Result<()> {
        self.tell(Ask::Unmount)
    }

    /// The control socket of the user `owner`, bound.
    pub(super) fn control(&self, owner: u32) -> Result<Bound> {
        Ok(Bound::from_fd(self.descriptor(Ask::Control)?, owner))
    }

    pub(super) fn remove_control(&self) {
        let _ = self.tell(Ask::RemoveControl);
    }

    /// The socket for network blocks, bound.
    pub(super) fn listen(&self, listen: &Listen) -> Result<NbdSocket> {
        let bound = self.descriptor(Ask::Listen)?;
        let failed = |err: io::Error| Failure::Failed(format!("cannot listen on {listen}: {err}"));
        NbdSocket::from_fd(bound, listen).map_err(failed)
    }

    pub(super) fn remove_socket(&self) {
        let _ = self.tell(Ask::RemoveSocket);
    }

    /// Attaches a loop device to the served file; its name.
    pub(super) fn attach_loop(&self) -> Result<String> {
        self.name(Ask::AttachLoop).map(|(name, _)| name)
    }

    /// Detaches the loop device; true if it has let go of the file.
    pub(super) fn detach_loop(&self) -> bool {
        self.flag(Ask::DetachLoop)
    }

    /// Makes a block device; its name, and the file of its requests.
    pub(super) fn add_ublk(&self, geometry: Geometry) -> Result<(String, File)> {
        let (name, descriptors) = self.name(Ask::AddUblk { geometry: geometry.into() })?;
        let file = descriptors.into_iter().next().map(File::from);
        let missing = || Failure::Failed("the keeper sends no descriptor".to_owned());
        Ok((name, file.ok_or_else(missing)?))
    }

    fn name(&self, ask: Ask) -> Result<(String, Vec<OwnedFd>)> {
        match self.ask(ask)? {
            (Answer::Name(name), descriptors) => Ok((name, descriptors)),
            _ => Err(Failure::Failed("the keeper names no device".to_owned())),
        }
    }

    pub(super) fn start_ublk(&self) -> Result<()> {
        self.tell(Ask::StartUblk)
    }

    pub(super) fn ublk_in_use(&self) -> bool {
        self.flag(Ask::UblkInUse)
    }

    pub(super) fn stop_ublk(&self) -> Result<()> {
        self.tell(Ask::StopUblk)
    }

    pub(super) fn delete_ublk(&self) -> Result<()> {
        self.tell(Ask::DeleteUblk)
    }

    /// Removes the log if it was made for this server.
    pub(super) fn remove_log(&self) {
        let _ = self.tell(Ask::RemoveLog);
    }

    /// Asks the services of the machine.
    pub(super) fn services(&self) -> (Session, Power) {
        match self.ask(Ask::Services) {
            Ok((Answer::Services(session, power), _)) => (session, power),
            _ => Default::default(),
        }
    }
}

/// The keeper's process: answers until the other end of its standard input is closed.
///
/// # Errors
/// No socket, or no first message.
pub(super) fn keep(args: &BufferAttach) -> Result<()> {
    let failed = |err: io::Error| Failure::Failed(format!("the keeper of a buffer: {err}"));
    // Ctrl-C is for the process that serves, and its end ends this one.
    let _ = rustix::process::setsid();
    let socket = io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
    let hello = channel::receive::<Hello>(&socket).map_err(failed)?;
    let Some((hello, _)) = hello else { return Ok(()) };
    let local = Local::new(args, &args.dir, &hello)?;
    channel::answer(&socket, move |ask| local.answer(ask)).map_err(failed)
}
