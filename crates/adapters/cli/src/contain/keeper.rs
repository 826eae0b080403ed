//! The process that keeps the rights of a mount.
//!
//! ```text
//!   syncline mount --served ── starts ──> syncline mount --keeper    (the same options and paths)
//!      | gives up its rights                  | descriptors: image (O_PATH), place of the trace
//!      | Ask, and a socket for the answer ──> | a thread each: one may wait for another, as an
//!      | <── Answer, and descriptors ──────── | unmount does for the writes of the kernel
//!      ends ── the socket closes ───────────> ends
//! ```
//!
//! A process that was taken over can ask for no more than this: the image to read or write, the
//! mount and unmount of its directory, the name of its trace, /proc of a thread, a line in the log,
//! the state of session and power supply, the end of its control socket or of a log that it made.

use std::any::Any;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use syncline_control::{Power, Services, Session, socket};
use syncline_device::{FileDevice, OpenFiles};
use syncline_fuse::{FuseOptions, Host, Machine, Place, Process, TraceFile};
use syncline_image::Files;

use super::channel;
use crate::args;
use crate::cmd::Pin;
use crate::error::{Failure, Result};

/// A question to the keeper.
#[derive(Debug, Deserialize, Serialize)]
enum Ask {
    Mount { read_only: bool },
    ReadAhead,
    Unmount { sync: bool },
    Status { thread: u32 },
    Process { thread: u32 },
    StatFile { thread: u32 },
    EndTrace { whole: bool },
    OpenImage { read_only: bool },
    Log { text: String },
    Services,
    RemoveControl,
    RemoveLog,
}

/// The answer, which may come with descriptors.
#[derive(Debug, Deserialize, Serialize)]
enum Answer {
    Done,
    Flag(bool),
    Status(Option<(String, bool)>),
    Process(Option<(u32, String)>),
    Services(Session, Power),
    /// Alignment of the direct file, if there is one; size of the image; is it a block device.
    Image {
        align_bytes: Option<u64>,
        size_bytes: u64,
        block_device: bool,
    },
    /// An errno or 0, and a sentence.
    Refused(i32, String),
}

/// First message, with descriptors.
#[derive(Debug, Deserialize, Serialize)]
struct Hello {
    in_background: bool,
    has_new_log: bool,
    /// Behind the image (`O_PATH`): what is open of it, if only to read.
    reads: bool,
    /// Descriptors of other files, in messages of their own.
    beside: usize,
    /// The name of the trace; its directory is the last descriptor.
    trace: Option<String>,
}

/// Rights of a mount besides those of [`Host`].
pub(crate) trait Rights: Send + Sync {
    /// Opens the image that was mounted. The one that was opened before has to be closed.
    fn open_image(&self, read_only: bool) -> Result<FileDevice>;
    /// Logs a line.
    fn log(&self, text: &str);
    /// Asks the services of the machine.
    fn services(&self) -> (Session, Power);
    /// Removes the control socket.
    fn remove_control(&self);
    /// Removes the log of the write buffer, which this mount has made.
    fn remove_log(&self);
}

/// Image and directory of a mount, and who hears of failures.
pub(crate) struct Served<'a> {
    pub(crate) image: &'a Path,
    pub(crate) dir: &'a Path,
    /// In the background: messages go to the system log.
    pub(crate) in_background: bool,
    /// The log of its write buffer is new.
    pub(crate) has_new_log: bool,
}

/// The rights of this process.
pub(crate) struct Local {
    machine: Arc<Machine>,
    dir: PathBuf,
    image: PathBuf,
    pin: Pin,
    in_background: bool,
    /// A log that this mount has made.
    new_log: Option<PathBuf>,
    services: Mutex<Services>,
    /// The keeper's copy of what the other process has open. The lock of a reader counts where a
    /// process shows it (proc(5)), and the other process shows nothing.
    lent: Mutex<Option<Box<dyn Any + Send>>>,
    /// The same of the files beside the image, which stay open.
    beside: Vec<OwnedFd>,
}

impl Local {
    pub(crate) fn new(
        of: &Served<'_>,
        options: &FuseOptions,
        pin: Pin,
        trace: Option<Arc<Place>>,
    ) -> Local {
        let mut machine = Machine::new(of.dir, of.image, options);
        machine.trace = trace;
        Local {
            machine: Arc::new(machine),
            dir: of.dir.to_owned(),
            image: of.image.to_owned(),
            pin,
            in_background: of.in_background,
            new_log: options.buffer_log.clone().filter(|_| of.has_new_log),
            services: Mutex::new(Services::with(options.sensor.clone())),
            lent: Mutex::default(),
            beside: Vec::new(),
        }
    }

    /// The rights of [`Host`].
    pub(crate) fn host(&self) -> Arc<dyn Host> {
        self.machine.clone()
    }

    /// Opens the image for another process, which has closed the one before.
    fn lend(&self, read_only: bool) -> Result<(Answer, Vec<OwnedFd>)> {
        let mut lent = self.lent.lock().unwrap_or_else(PoisonError::into_inner);
        *lent = None;
        let file = self.open_image(read_only)?;
        let failed = |err: io::Error| Failure::host(&self.image, &err);
        let OpenFiles { buffered, direct, size_bytes, block_device, .. } =
            file.files().map_err(failed)?;
        let align_bytes = direct.as_ref().map(|(_, align_bytes)| *align_bytes);
        let files = [Some(buffered), direct.map(|(file, _)| file)];
        *lent = Some(Box::new(file));
        let answer = Answer::Image { align_bytes, size_bytes, block_device };
        Ok((answer, files.into_iter().flatten().map(OwnedFd::from).collect()))
    }

    fn answer(&self, ask: Ask) -> (Answer, Vec<OwnedFd>) {
        let host = &*self.machine;
        let done = |done: io::Result<()>| done.map_or_else(|err| refused(&err), |()| Answer::Done);
        let answer = match ask {
            Ask::Mount { read_only } => match host.mount(read_only) {
                Ok(device) => return (Answer::Done, vec![device]),
                Err(err) => refused(&err),
            },
            Ask::StatFile { thread } => {
                return (
                    Answer::Done,
                    host.stat_file(thread).map(OwnedFd::from).into_iter().collect(),
                );
            }
            Ask::OpenImage { read_only } => match self.lend(read_only) {
                Ok(answer) => return answer,
                Err(failure) => Answer::Refused(0, failure.message().unwrap_or_default().into()),
            },
            Ask::ReadAhead => {
                host.read_ahead();
                Answer::Done
            }
            Ask::Unmount { sync } => Answer::Flag(host.unmount(sync)),
            Ask::Status { thread } => Answer::Status(host.status(thread)),
            Ask::Process { thread } => {
                let found = host.process(thread);
                Answer::Process(found.map(|found| (found.number, found.name.into())))
            }
            Ask::EndTrace { whole } => done(host.end_trace(whole)),
            Ask::Log { text } => {
                self.log(&text);
                Answer::Done
            }
            Ask::Services => {
                let (session, power) = self.services();
                Answer::Services(session, power)
            }
            Ask::RemoveLog => {
                self.remove_log();
                Answer::Done
            }
            Ask::RemoveControl => {
                self.remove_control();
                Answer::Done
            }
        };
        (answer, Vec::new())
    }
}

fn refused(err: &io::Error) -> Answer {
    Answer::Refused(err.raw_os_error().unwrap_or_default(), err.to_string())
}

impl Rights for Local {
    fn open_image(&self, read_only: bool) -> Result<FileDevice> {
        self.pin.open_image(&self.image, read_only)
    }

    fn log(&self, text: &str) {
        let said = format!("{}: {text}", self.image.display());
        if !self.in_background {
            return crate::complain(&said);
        }
        // Facility daemon, severity error (RFC 3164).
        let line = format!("<27>syncline[{}]: {}", std::process::id(), crate::format::line(&said));
        let socket = UnixDatagram::unbound();
        let _ = socket.and_then(|socket| socket.send_to(line.as_bytes(), "/dev/log"));
    }

    fn services(&self) -> (Session, Power) {
        self.services.lock().unwrap_or_else(PoisonError::into_inner).look()
    }

    fn remove_control(&self) {
        if let Ok(path) = socket::address(&self.dir) {
            let _ = std::fs::remove_file(path);
        }
    }

    fn remove_log(&self) {
        if let Some(path) = &self.new_log {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The keeper, as its process sees it.
pub(crate) struct Keeper {
    socket: OwnedFd,
    owner: u32,
    in_background: bool,
    image: PathBuf,
}

impl Keeper {
    /// Starts the keeper of a mount.
    ///
    /// # Errors
    /// There is no process for it.
    pub(crate) fn start(
        of: &Served<'_>,
        args: &args::Mount,
        pin: &Pin,
        files: &Files,
        trace: Option<&TraceFile>,
    ) -> io::Result<Keeper> {
        let (ours, theirs) = channel::pair()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["mount", "--keeper"]);
        for options in &args.options {
            command.arg("-o").arg(options);
        }
        command.arg("--").arg(of.image).arg(of.dir);
        command.stdin(theirs).stdout(Stdio::null());
        if of.in_background {
            // It must not keep the terminal of the caller.
            command.stderr(Stdio::null());
        }
        // Its end of the socket closes with it. It ends with ours, so that nobody waits for it.
        command.spawn()?;
        drop(command);
        let parts = trace.map(|trace| trace.place.parts());
        let name = parts.map(|(_, name)| name.to_string_lossy().into_owned());
        let open = files.image().files()?;
        let beside = files.beside().map(|file| Ok(file.files()?.buffered));
        let beside = beside.collect::<io::Result<Vec<_>>>()?;
        let mut descriptors = vec![pin.as_fd()];
        descriptors.extend(open.read_only.then_some(open.buffered.as_fd()));
        descriptors.extend(parts.map(|(dir, _)| dir.as_fd()));
        let hello = Hello {
            in_background: of.in_background,
            has_new_log: of.has_new_log,
            reads: open.read_only,
            beside: beside.len(),
            trace: name,
        };
        channel::send(&ours, &hello, &descriptors)?;
        for file in &beside {
            channel::send(&ours, &(), &[file.as_fd()])?;
        }
        Ok(Keeper {
            socket: ours,
            owner: rustix::process::geteuid().as_raw(),
            in_background: of.in_background,
            image: of.image.to_owned(),
        })
    }

    fn ask(&self, ask: &Ask) -> io::Result<(Answer, Vec<OwnedFd>)> {
        match channel::ask(&self.socket, ask)? {
            (Answer::Refused(0, text), _) => Err(io::Error::other(text)),
            (Answer::Refused(errno, _), _) => Err(io::Error::from_raw_os_error(errno)),
            answer => Ok(answer),
        }
    }

    /// Asks for something that does not fail, or whose failure changes nothing.
    fn tell(&self, ask: &Ask) -> Option<Answer> {
        self.ask(ask).ok().map(|(answer, _)| answer)
    }
}

impl Host for Keeper {
    fn owner(&self) -> Option<u32> {
        Some(self.owner)
    }

    fn mount(&self, read_only: bool) -> io::Result<OwnedFd> {
        let (_, devices) = self.ask(&Ask::Mount { read_only })?;
        devices.into_iter().next().ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn read_ahead(&self) {
        self.tell(&Ask::ReadAhead);
    }

    fn unmount(&self, sync: bool) -> bool {
        matches!(self.tell(&Ask::Unmount { sync }), Some(Answer::Flag(true)))
    }

    fn status(&self, thread: u32) -> Option<(String, bool)> {
        match self.tell(&Ask::Status { thread }) {
            Some(Answer::Status(found)) => found,
            _ => None,
        }
    }

    fn end_trace(&self, whole: bool) -> io::Result<()> {
        self.ask(&Ask::EndTrace { whole }).map(drop)
    }

    fn process(&self, thread: u32) -> Option<Process> {
        match self.tell(&Ask::Process { thread }) {
            Some(Answer::Process(Some((number, name)))) => {
                Some(Process { number, name: name.into() })
            }
            _ => None,
        }
    }

    fn stat_file(&self, thread: u32) -> Option<File> {
        let (_, files) = self.ask(&Ask::StatFile { thread }).ok()?;
        files.into_iter().next().map(File::from)
    }
}

impl Rights for Keeper {
    fn open_image(&self, read_only: bool) -> Result<FileDevice> {
        let failed = |err: io::Error| Failure::Failed(err.to_string());
        let (answer, files) = self.ask(&Ask::OpenImage { read_only }).map_err(failed)?;
        let mut files = files.into_iter().map(File::from);
        match (answer, files.next()) {
            (Answer::Image { align_bytes, size_bytes, block_device }, Some(buffered)) => {
                let direct = align_bytes.zip(files.next()).map(|(align, file)| (file, align));
                let files = OpenFiles { buffered, direct, size_bytes, block_device, read_only };
                Ok(FileDevice::from_files(files))
            }
            _ => Err(failed(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    fn log(&self, text: &str) {
        if self.in_background {
            self.tell(&Ask::Log { text: text.to_owned() });
        } else {
            crate::complain(&format!("{}: {text}", self.image.display()));
        }
    }

    fn services(&self) -> (Session, Power) {
        match self.tell(&Ask::Services) {
            Some(Answer::Services(session, power)) => (session, power),
            _ => Default::default(),
        }
    }

    fn remove_control(&self) {
        self.tell(&Ask::RemoveControl);
    }

    fn remove_log(&self) {
        self.tell(&Ask::RemoveLog);
    }
}

/// The keeper's process: answers until the other end of its standard input is closed.
///
/// # Errors
/// No socket, or no first message.
pub(crate) fn keep(args: &args::Mount) -> Result<()> {
    let failed = |err: io::Error| Failure::Failed(format!("the keeper of a mount: {err}"));
    // Ctrl-C is for the process that serves, and its end ends this one.
    let _ = rustix::process::setsid();
    let options = FuseOptions::parse(&args.options)?;
    let socket = io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
    let hello = channel::receive::<Hello>(&socket).map_err(failed)?;
    let Some((hello, descriptors)) = hello else { return Ok(()) };
    let mut descriptors = descriptors.into_iter();
    let pin = descriptors.next().ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))?;
    let reads = if hello.reads { descriptors.next() } else { None };
    let place = hello.trace.zip(descriptors.next());
    let place = place.map(|(name, dir)| Arc::new(Place::within(dir, name.as_ref())));
    let of = Served {
        image: &args.image,
        dir: &args.dir,
        in_background: hello.in_background,
        has_new_log: hello.has_new_log,
    };
    let mut local = Local::new(&of, &options, Pin::from(pin), place);
    for _ in 0..hello.beside {
        let received = channel::receive::<()>(&socket).map_err(failed)?;
        let Some(((), file)) = received else { return Ok(()) };
        local.beside.extend(file);
    }
    *local.lent.lock().unwrap_or_else(PoisonError::into_inner) =
        reads.map(|open| Box::new(open) as Box<dyn Any + Send>);
    channel::answer(&socket, move |ask| local.answer(ask)).map_err(failed)
}
