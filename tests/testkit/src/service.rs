//! The program that mounts, as libfuse's `fuservicemount3` does for a service of mounts.
//!
//! ```text
//!   greet      hello -> its answer; arguments in memory, /dev/fuse
//!   converse   each request of the service: open a file, mount, until BYEE or the end
//! ```
//! It checks no less than libfuse's: what is in a packet, its order, and that the directory is one
//! of the arguments.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create};
use rustix::mount::MountFlags;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType, recv, sendmsg, socketpair,
};

/// Longest packet, as in libfuse.
const PACKET_BYTES_MAX: usize = 65_536;
/// Flag of the hello: `allow_other` is taken.
const ALLOW_OTHER: u32 = 1;

/// A program that mounts, with one end of a conversation.
#[derive(Debug)]
pub struct MountingProgram {
    socket: OwnedFd,
    arguments: Vec<String>,
    device: File,
    source: Option<String>,
    dir: Option<String>,
    options: Option<String>,
    /// Words that the service had printed for the user.
    pub said: Option<String>,
    /// Paths that it had opened.
    pub opened: Vec<String>,
}

impl MountingProgram {
    /// Makes both ends: this program, and the socket of the service.
    ///
    /// # Panics
    /// Without /dev/fuse.
    #[must_use]
    pub fn new(arguments: &[&str]) -> (MountingProgram, OwnedFd) {
        let kind = SocketType::SEQPACKET;
        let ends = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
        let (socket, theirs) = ends.expect("a socket");
        let device = File::options().read(true).write(true).open("/dev/fuse");
        let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
        let program = MountingProgram {
            socket,
            arguments,
            device: device.expect("/dev/fuse"),
            source: None,
            dir: None,
            options: None,
            said: None,
            opened: Vec::new(),
        };
        (program, theirs)
    }

    /// Sends a packet, with a descriptor or without.
    ///
    /// # Errors
    /// The service is gone.
    pub fn send(&self, packet: &[u8], file: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        let files = file.into_iter().collect::<Vec<_>>();
        if !files.is_empty() {
            rights.push(SendAncillaryMessage::ScmRights(&files));
        }
        sendmsg(&self.socket, &[IoSlice::new(packet)], &mut rights, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// The next packet; none: the service has ended.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn receive(&self) -> io::Result<Option<Vec<u8>>> {
        let mut packet = vec![0; PACKET_BYTES_MAX];
        let (len, _) = recv(&self.socket, &mut packet[..], RecvFlags::empty())?;
        packet.truncate(len);
        Ok((len > 0).then_some(packet))
    }

    /// The file of arguments.
    #[must_use]
    pub fn arguments(&self) -> Vec<u8> {
        let mut table = [&b"ARGS"[..], &(self.arguments.len() as u32).to_be_bytes()].concat();
        let mut strings = Vec::new();
        for argument in &self.arguments {
            let at = 8 + 8 * self.arguments.len() + strings.len();
            let place = [at as u32, argument.len() as u32 + 1].map(u32::to_be_bytes);
            table.extend(place.concat());
            strings.extend([argument.as_bytes(), &[0]].concat());
        }
        [table, strings].concat()
    }

    /// Greets the service, and gives it arguments and device.
    ///
    /// # Errors
    /// The service is gone, or answers something else.
    pub fn greet(&self) -> io::Result<()> {
        let flags = ALLOW_OTHER.to_be_bytes();
        self.send(&[&b"SAFT\0\x01\0\x01"[..], &flags].concat(), None)?;
        if self.receive()?.as_deref() != Some(b"LAST\0\x01\0\0") {
            return Err(ErrorKind::InvalidData.into());
        }
        let memory = memory(&self.arguments())?;
        self.send(b"FILE\0\0\0\0argv\0", Some(memory.as_fd()))?;
        self.send(b"FILE\0\0\0\0fusedev\0", Some(self.device.as_fd()))
    }

    /// Does what the service asks for, until it says goodbye with a code.
    ///
    /// # Errors
    /// It goes without one, or asks for something that libfuse would refuse.
    pub fn converse(&mut self) -> io::Result<u32> {
        self.greet()?;
        loop {
            let packet = self.receive()?.ok_or(ErrorKind::UnexpectedEof)?;
            let (letters, rest) = packet.split_at_checked(4).ok_or(ErrorKind::InvalidData)?;
            let done = match letters {
                b"BYEE" => return number(rest, 0),
                b"OPEN" => {
                    self.open(rest)?;
                    continue;
                }
                b"TYPE" if number(rest, 0)? == 0 => Ok(()),
                b"NAME" => once(&mut self.source, string(rest, 0)?),
                b"OPTS" => once(&mut self.options, string(rest, 0)?),
                b"MNTP" if rest.starts_with(&[0x40, 0, 0, 0]) => {
                    let dir = string(rest, 4)?;
                    if !self.arguments.contains(&dir) {
                        return Err(io::Error::other("a directory that is no argument"));
                    }
                    once(&mut self.dir, dir)
                }
                b"DOIT" => self.mount(number(rest, 0)?),
                _ => return Err(io::Error::other(format!("{packet:?}"))),
            };
            let errno = done.map_or_else(|err| err.raw_os_error().unwrap_or(5), |()| 0);
            self.send(&[&b"REPL"[..], &errno.to_be_bytes()].concat(), None)?;
        }
    }

    fn open(&mut self, rest: &[u8]) -> io::Result<()> {
        let (flags, quiet, path) = (number(rest, 0)?, number(rest, 8)?, string(rest, 16)?);
        let flags = OFlags::from_bits_retain(flags) | OFlags::CLOEXEC;
        let opened = rustix::fs::open(&path, flags, Mode::empty());
        if let (Err(err), 0) = (&opened, quiet) {
            self.said = Some(format!("{path}: {}", io::Error::from(*err)));
        }
        let errno = opened.as_ref().map_or_else(|err| err.raw_os_error(), |_| 0);
        let packet = [&b"FILE"[..], &errno.to_be_bytes(), path.as_bytes(), &[0]].concat();
        self.send(&packet, opened.as_ref().ok().map(AsFd::as_fd))?;
        self.opened.push(path);
        Ok(())
    }

    fn mount(&self, flags: u32) -> io::Result<()> {
        let dir = self.dir.as_ref().ok_or(ErrorKind::InvalidInput)?;
        let source = self.source.as_ref().ok_or(ErrorKind::InvalidInput)?;
        let options = self.options.as_deref().unwrap_or_default();
        let kind = std::fs::metadata(dir)?.mode() & 0o170_000;
        let device = self.device.as_raw_fd();
        let data = format!("{options},fd={device},rootmode={kind:o},user_id=0,group_id=0");
        let data = std::ffi::CString::new(data)?;
        let flags = MountFlags::from_bits_retain(flags);
        Ok(rustix::mount::mount(source, dir, "fuse.syncline", flags, data.as_c_str())?)
    }
}

/// A file in memory.
///
/// # Errors
/// Without memory.
pub fn memory(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("arguments", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    Ok(file)
}

fn once(place: &mut Option<String>, value: String) -> io::Result<()> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(ErrorKind::InvalidInput.into()),
    }
}

fn number(bytes: &[u8], at: usize) -> io::Result<u32> {
    let found = bytes.get(at..).and_then(<[u8]>::first_chunk);
    found.map(|bytes| u32::from_be_bytes(*bytes)).ok_or(ErrorKind::InvalidData.into())
}

fn string(bytes: &[u8], at: usize) -> io::Result<String> {
    match bytes.get(at..) {
        Some([value @ .., 0]) => String::from_utf8(value.to_vec()).map_err(io::Error::other),
        _ => Err(ErrorKind::InvalidData.into()),
    }
}
