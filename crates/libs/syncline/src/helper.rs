//! A helper process that reads the image in the place of this one (`isolate`).
//!
//! ```text
//!   Disk, File, Directory
//!        | calls: wire.rs
//!   Helper  ── a connection for each call under way ──>  syncline isolate: serve.rs
//!        └──── more connections, its end (SEQPACKET) ──>    contained, then the image
//! ```
//!
//! Promises
//! - The helper gets the files of the image, its end of the sockets and standard error, and no
//!   descriptor, variable or directory else of this process.
//! - It can do this process no harm: answers are checked, take no more memory than was asked for,
//!   and descriptors that it sends are not taken. It can give wrong data, and none.
//! - Where it ended, or said what makes no sense, every later call is EIO. What was synced is on
//!   the image.
//! - It ends with the [`Helper`], at the latest with this process, and leaves no zombie.
//!
//! Calls of several threads run beside each other, each on a connection of its own; at
//! [`CONNECTIONS_MAX`] the next one waits. Tested in `tests/it/`.

use std::fs::File;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socketpair,
};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getegid, geteuid, getgid, getuid, pidfd_open,
    pidfd_send_signal, waitid,
};
use syncline_device::{FileDevice, OpenFiles, find_program};

use crate::error::{EIO, Error, Result};
use crate::options::OpenOptions;
use crate::wire::{
    ANSWER_BYTES_MAX, CALL_BYTES_MAX, CONNECTIONS_MAX, Call, DONE, FAILED, Hello, Opened,
    PART_BYTES, Wire, receive_all, send_all, whole,
};

/// The program, and where it is besides the directories of `PATH`.
const PROGRAM: &str = "syncline";
const PLACES: [&str; 2] = ["/usr/bin", "/usr/local/bin"];
/// Variable of the environment that names the program.
const VARIABLE: &str = "SYNCLINE_PROGRAM";

const ENAMETOOLONG: i32 = 36;
const ENOENT: i32 = 2;

#[derive(Default)]
struct Connections {
    idle: Vec<OwnedFd>,
    made: usize,
    /// Why there are no more calls.
    ended: Option<&'static str>,
}

/// The helper of one volume. Dropping it ends the process.
pub(crate) struct Helper {
    control: OwnedFd,
    process: Option<OwnedFd>,
    connections: Mutex<Connections>,
    freed: Condvar,
    /// Has the locks of the image: nobody sees what the helper has open.
    _image: Option<FileDevice>,
}

/// Two ends, closed in programs that the process starts.
fn pair(kind: SocketType) -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?)
}

/// Sends one packet with copies of descriptors.
fn give(control: impl AsFd, packet: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    rights.push(SendAncillaryMessage::ScmRights(descriptors));
    sendmsg(control, &[IoSlice::new(packet)], &mut rights, SendFlags::NOSIGNAL)?;
    Ok(())
}

const ENDED: &str = "the process that reads the image has ended";
const SENSELESS: &str = "the process that reads the image gave an answer that makes no sense";

fn gone(why: &str) -> Error {
    let next = "close the volume, run `syncline check` on the image, and open it again";
    Error::new(EIO, format!("{why}; {next}: what was synced is there"))
}

/// The program for the option `isolate`.
///
/// # Errors
/// ENOENT.
pub(crate) fn program(given: &Path) -> Result<PathBuf> {
    if !given.as_os_str().is_empty() {
        return std::path::absolute(given).map_err(|err| Error::host(given.display(), &err));
    }
    // The environment is the caller's of a program that has other rights than its caller.
    let trusts_path = getuid() == geteuid() && getgid() == getegid();
    let fixed = || PLACES.iter().map(|dir| Path::new(dir).join(PROGRAM)).find(|at| at.is_file());
    let found = match std::env::var_os(VARIABLE).filter(|named| trusts_path && !named.is_empty()) {
        Some(named) => return program(Path::new(&named)),
        None if trusts_path => find_program(PROGRAM, &PLACES),
        None => fixed(),
    };
    found.ok_or_else(|| {
        let text = "`isolate` needs the program `syncline`, which is not there; install the \
                    package syncline, or name its path in SYNCLINE_PROGRAM";
        Error::new(ENOENT, text)
    })
}

impl Helper {
    /// Starts `program` on an image that is open, and mounts the volume there.
    ///
    /// # Errors
    /// As opening the volume in this process, and what starting a program says.
    pub(crate) fn start(
        program: &Path,
        image: FileDevice,
        options: &OpenOptions,
    ) -> Result<(Helper, Opened)> {
        let failed = |err: io::Error| Error::host(program.display(), &err);
        let unnamed = "an option was set that has no name; leave it out, or open without `isolate`";
        let items = options.mount.items().ok_or_else(|| Error::invalid(unnamed))?;
        let (control, theirs) = pair(SocketType::SEQPACKET).map_err(failed)?;
        let (first, far) = pair(SocketType::STREAM).map_err(failed)?;
        let mut command = Command::new(program);
        // A Ctrl-C is for this process.
        command.arg("isolate").env_clear().current_dir("/").process_group(0);
        let child = command.stdin(theirs).stdout(Stdio::null()).spawn().map_err(failed)?;
        drop(command);
        // By its number only now: the process of this number is ours until somebody waits for it.
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).ok();
        let files = image.files().map_err(failed)?;
        let hello = Hello {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            options: items,
            background: options.background,
            size_bytes: files.size_bytes,
            block_device: files.block_device,
            align_bytes: files.direct.as_ref().map(|(_, align_bytes)| *align_bytes),
        };
        let helper = Helper::over(control, first, process, Some(image));
        let opened = helper.begin(&hello, far, &files).and_then(|()| helper.opened());
        let opened = opened.map_err(|err| match err.errno {
            EIO if helper.connections.lock().ended.is_some() => {
                let (shown, version) = (program.display(), env!("CARGO_PKG_VERSION"));
                let text = format!(
                    "{shown} ended before it had the image open; see that `{shown} --version` is \
                     {version}"
                );
                Error::new(EIO, text)
            }
            _ => err,
        })?;
        Ok((helper, opened))
    }

    /// A helper at the other ends of these sockets.
    pub(crate) fn over(
        control: OwnedFd,
        first: OwnedFd,
        process: Option<OwnedFd>,
        image: Option<FileDevice>,
    ) -> Helper {
        let connections = Connections { idle: vec![first], made: 1, ended: None };
        let (connections, freed) = (Mutex::new(connections), Condvar::new());
        Helper { control, process, connections, freed, _image: image }
    }

    fn begin(&self, hello: &Hello, far: OwnedFd, files: &OpenFiles) -> Result<()> {
        let mut packet = Vec::new();
        hello.put(&mut packet);
        let direct: Option<&File> = files.direct.as_ref().map(|(file, _)| file);
        let mut descriptors = vec![far.as_fd(), files.buffered.as_fd()];
        descriptors.extend(direct.map(AsFd::as_fd));
        give(&self.control, &packet, &descriptors).map_err(|_| self.end(ENDED))
    }

    /// The answer to the first message.
    fn opened(&self) -> Result<Opened> {
        let connection = self.take()?;
        let mut bytes = Vec::new();
        let answer = self.answer(&connection, &mut bytes)?;
        self.put_back(connection);
        answer
    }

    /// No call is answered any more.
    fn end(&self, why: &'static str) -> Error {
        let mut connections = self.connections.lock();
        connections.idle.clear();
        let why = *connections.ended.get_or_insert(why);
        self.freed.notify_all();
        // So that the calls of other threads end, too.
        if let Some(process) = &self.process {
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
        gone(why)
    }

    /// A connection of this call's own.
    fn take(&self) -> Result<OwnedFd> {
        let mut connections = self.connections.lock();
        loop {
            if let Some(why) = connections.ended {
                return Err(gone(why));
            }
            if let Some(connection) = connections.idle.pop() {
                return Ok(connection);
            }
            if connections.made < CONNECTIONS_MAX {
                connections.made += 1;
                break;
            }
            self.freed.wait(&mut connections);
        }
        drop(connections);
        let made = pair(SocketType::STREAM).and_then(|(near, far)| {
            give(&self.control, &[0], &[far.as_fd()])?;
            Ok(near)
        });
        made.map_err(|_| self.end(ENDED))
    }

    fn put_back(&self, connection: OwnedFd) {
        let mut connections = self.connections.lock();
        if connections.ended.is_none() {
            connections.idle.push(connection);
            self.freed.notify_one();
        }
    }

    /// Takes the head of an answer: the bytes behind its result, which is `Err` with the error of
    /// the call.
    fn head(&self, connection: &OwnedFd) -> Result<(u8, usize)> {
        let mut head = [0; 5];
        match receive_all(connection, &mut head) {
            Ok(true) => {}
            _ => return Err(self.end(ENDED)),
        }
        let [len @ .., result] = head;
        let len = usize::try_from(u32::from_le_bytes(len)).unwrap_or(usize::MAX);
        match (result, len.checked_sub(1)) {
            (DONE | FAILED, Some(len)) => Ok((result, len)),
            _ => Err(self.end(SENSELESS)),
        }
    }

    /// The rest of an answer, at most as long as one may be.
    fn body(&self, connection: &OwnedFd, len: usize, into: &mut Vec<u8>) -> Result<()> {
        if len > ANSWER_BYTES_MAX {
            return Err(self.end(SENSELESS));
        }
        into.clear();
        into.resize(len, 0);
        match receive_all(connection, into) {
            Ok(true) => Ok(()),
            _ => Err(self.end(ENDED)),
        }
    }

    /// The value of an answer, or its error; outside what is wrong with the helper.
    fn answer<T: for<'a> Wire<'a>>(
        &self,
        connection: &OwnedFd,
        bytes: &mut Vec<u8>,
    ) -> Result<Result<T>> {
        let (result, len) = self.head(connection)?;
        self.body(connection, len, bytes)?;
        let answer = match result {
            DONE => whole(bytes).map(Ok),
            _ => whole(bytes).map(Err),
        };
        answer.ok_or_else(|| self.end(SENSELESS))
    }

    fn send(&self, connection: &OwnedFd, call: &Call<'_>, data: &[u8]) -> Result<()> {
        let mut bytes = vec![0; 8];
        call.put(&mut bytes);
        let len = bytes.len() - 8;
        if len > CALL_BYTES_MAX {
            let text = "a path or value is longer than a call may be; shorten it";
            return Err(Error::new(ENAMETOOLONG, text));
        }
        // Both are far below 2^32.
        bytes[..4].copy_from_slice(&(len as u32).to_le_bytes());
        bytes[4..8].copy_from_slice(&(data.len() as u32).to_le_bytes());
        send_all(connection, &bytes, data).map_err(|_| self.end(ENDED))
    }

    /// Makes a call with data.
    fn ask<T: for<'a> Wire<'a>>(&self, call: &Call<'_>, data: &[u8]) -> Result<T> {
        let connection = self.take()?;
        let mut bytes = Vec::new();
        let sent = self.send(&connection, call, data);
        let answer = sent.and_then(|()| self.answer(&connection, &mut bytes));
        match answer {
            Ok(answer) => {
                self.put_back(connection);
                answer
            }
            Err(err) => {
                // Nothing of a call that is too long was sent.
                if err.errno == ENAMETOOLONG {
                    self.put_back(connection);
                }
                Err(err)
            }
        }
    }

    /// Makes a call.
    pub(crate) fn call<T: for<'a> Wire<'a>>(&self, call: Call<'_>) -> Result<T> {
        self.ask(&call, &[])
    }

    /// Reads a file from `offset` on; fewer bytes than asked only at its end.
    pub(crate) fn read(&self, file: u64, offset: u64, into: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        loop {
            let end = into.len().min(done + PART_BYTES);
            let part = &mut into[done..end];
            let wanted = part.len();
            let got = self.read_part(file, offset.saturating_add(done as u64), part)?;
            done += got;
            if got < wanted || done == into.len() {
                return Ok(done);
            }
        }
    }

    fn read_part(&self, file: u64, offset: u64, into: &mut [u8]) -> Result<usize> {
        let connection = self.take()?;
        // At most a part.
        self.send(&connection, &Call::Read { file, offset, len: into.len() as u32 }, &[])?;
        let (result, len) = self.head(&connection)?;
        if result == FAILED {
            let mut bytes = Vec::new();
            self.body(&connection, len, &mut bytes)?;
            let err = whole(&bytes).ok_or_else(|| self.end(SENSELESS))?;
            self.put_back(connection);
            return Err(err);
        }
        let Some(into) = into.get_mut(..len) else { return Err(self.end(SENSELESS)) };
        match receive_all(&connection, into) {
            Ok(true) => {}
            _ => return Err(self.end(ENDED)),
        }
        self.put_back(connection);
        Ok(len)
    }

    /// Writes to a file at `offset`, or at its end; where it began, and the bytes taken.
    pub(crate) fn write(
        &self,
        file: u64,
        offset: Option<u64>,
        from: &[u8],
    ) -> Result<(u64, usize)> {
        let (mut began, mut done) = (offset, 0);
        loop {
            let part = &from[done..from.len().min(done + PART_BYTES)];
            let offset = offset.map(|offset| offset.saturating_add(done as u64));
            let (at, taken) = match self.ask::<(u64, u64)>(&Call::Write { file, offset }, part) {
                // As write(2): what was taken is said, and the next call gives the error.
                Err(_) if done > 0 => (0, 0),
                answer => answer?,
            };
            let taken = usize::try_from(taken).ok().filter(|taken| *taken <= part.len());
            let Some(taken) = taken else { return Err(self.end(SENSELESS)) };
            let at = *began.get_or_insert(at);
            done += taken;
            if taken < part.len() || done == from.len() {
                return Ok((at, done));
            }
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // Its end is the last that the image sees of it; the locks are free when this returns.
        let Some(process) = &self.process else { return };
        // Without the right to end it (root without capabilities) it ends with its sockets.
        if pidfd_send_signal(process, Signal::KILL) != Err(Errno::PERM) {
            let waited = || waitid(WaitId::PidFd(process.as_fd()), WaitIdOptions::EXITED);
            while matches!(waited(), Err(Errno::INTR)) {}
        }
    }
}
