//! A mount that another program makes: the service side of libfuse's `fuservicemount3`.
//!
//! ```text
//!   user's program                   socket                        this process, without rights
//!   hello, arguments, /dev/fuse  ------------->  Service::accept
//!   opens a path of the user     <--- OPEN, descriptor --->  Service::open
//!   fsopen, fsconfig, mount(2)   <--- TYPE NAME MNTP OPTS DOIT ---  ServiceHost::mount
//!   exits with a code            <--- BYEE ---  Service::done, Service::refuse
//! ```
//!
//! The socket has packets (`SOCK_SEQPACKET`). A packet is four letters, numbers with the highest
//! byte first, and a string that ends with a zero. Arguments are in a file in memory: `ARGS`, their
//! number, place and length of each, and the strings.
//! Source: include/fuse_service_priv.h of libfuse's master (3.19).
//!
//! The protocol has no packet for a sentence. So a refusal is sent as a request to open a file of
//! that name, with flags that Linux refuses before it looks at the name. The other program prints
//! name and error for its user.
//!
//! Promises
//! - Any packets are an answer or an error. None takes more memory than [`ARGUMENTS_BYTES_MAX`] and
//!   one packet, and a side that says nothing is given up after [`PATIENCE`].
//! - At most one descriptor comes with a packet, and only with an answer to a request for one.
//! - After the conversation the process has nothing of the user but the files that it asked for.
//!
//! Assumptions: the other side is of the user whose image it is, and may lie to itself. The service
//! can neither unmount nor see other processes: an end that the user has not asked for leaves a
//! mount that answers ENOTCONN. Tested below and in `crates/adapters/cli/tests/it/service.rs`;
//! packets of any kind in `tests/fuzz_targets`.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::{Errno, retry_on_intr};
use rustix::mount::MountFlags;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendFlags, recvmsg, sendmsg,
};

use crate::capture::Process;
use crate::host::{Host, Machine};
use crate::options::FuseOptions;

/// Longest wait for a packet.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest packet of the other side: an answer with a path.
const PACKET_BYTES_MAX: usize = 8 << 10;
/// Most bytes of the file of arguments, and of all arguments.
const ARGUMENTS_BYTES_MAX: usize = 64 << 10;
/// Version of the protocol.
const VERSION: u16 = 1;
/// Flag of the hello: `allow_other` would be taken.
const ALLOW_OTHER: u32 = 1;
/// Flag of a request to open: nothing is printed.
const QUIET: u32 = 1;
/// Kind of a directory, `S_IFDIR`.
const DIRECTORY: u16 = 0o040_000;
/// Bytes of an answer before its path: letters and errno.
const ANSWER_BYTES: usize = 8;

/// The conversation with the program that mounts.
pub struct Service {
    /// None when it is over.
    socket: Mutex<Option<OwnedFd>>,
    /// For one mount.
    device: Mutex<Option<OwnedFd>>,
    arguments: Vec<OsString>,
    allows_other: bool,
}

impl Service {
    /// Greets the program at the other end, and takes its arguments and its FUSE device.
    ///
    /// # Errors
    /// Those of the socket; [`ErrorKind::InvalidData`] for packets that make no sense.
    pub fn accept(socket: OwnedFd) -> io::Result<Service> {
        sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
        let allows_other = hello(&received(&socket)?.0)?;
        let version = [VERSION, 0].map(u16::to_be_bytes).concat();
        sent(&socket, *b"LAST", &[&version])?;
        let arguments = File::from(descriptor(&socket, b"argv")?);
        let device = descriptor(&socket, b"fusedev")?;
        let arguments = parsed(&all(&arguments)?)?;
        let (socket, device) = (Mutex::new(Some(socket)), Mutex::new(Some(device)));
        Ok(Service { socket, device, arguments, allows_other })
    }

    /// The name of the service, and the arguments of the other program without its own options.
    pub fn arguments(&self) -> &[OsString] {
        &self.arguments
    }

    /// True if users other than the one who mounts may be allowed to use the mount.
    pub fn allows_other(&self) -> bool {
        self.allows_other
    }

    /// Has a file opened with the rights of the user.
    ///
    /// # Errors
    /// Those of open(2) there, and of the conversation.
    pub fn open(&self, path: &Path, flags: OFlags) -> io::Result<File> {
        let name = path.as_os_str().as_bytes();
        // What is asked for is said in our own words if it is refused.
        let fixed = [flags.bits(), 0, QUIET, 0].map(u32::to_be_bytes).concat();
        self.talk(|socket| {
            sent(socket, *b"OPEN", &[&fixed, name, &[0]])?;
            descriptor(socket, name).map(File::from)
        })
    }

    /// Says that the mount is there, which ends the conversation.
    ///
    /// # Errors
    /// The other program is gone.
    pub fn done(&self) -> io::Result<()> {
        self.end(0)
    }

    /// Has the reason printed why there is no mount, and ends the conversation with a code.
    pub fn refuse(&self, why: &str, code: u8) {
        let name: Vec<u8> = why.bytes().filter(|byte| *byte != 0).collect();
        // Read-only, which a file without a name is not (open(2)).
        let fixed = [OFlags::TMPFILE.bits(), 0, 0, 0].map(u32::to_be_bytes).concat();
        // It may be gone, or not listen.
        let _ = self.talk(|socket| {
            sent(socket, *b"OPEN", &[&fixed, &name, &[0]])?;
            received(socket)
        });
        let _ = self.end(code.into());
    }

    fn end(&self, code: u32) -> io::Result<()> {
        let done = self.talk(|socket| sent(socket, *b"BYEE", &[&code.to_be_bytes()]));
        *self.socket.lock().unwrap_or_else(PoisonError::into_inner) = None;
        done
    }

    fn talk<T>(&self, work: impl FnOnce(&OwnedFd) -> io::Result<T>) -> io::Result<T> {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        work(socket.as_ref().ok_or(ErrorKind::NotConnected)?)
    }

    /// One step of the mount; the other program prints what is wrong with it.
    fn step(&self, letters: [u8; 4], parts: &[&[u8]], what: &str) -> io::Result<()> {
        let answer = self.talk(|socket| {
            sent(socket, letters, parts)?;
            received(socket)
        });
        match answered(&answer?.0, *b"REPL")? {
            (0, []) => Ok(()),
            (_, [_, ..]) => Err(senseless("an answer that is too long")),
            (errno, []) => {
                let err = errno_of(errno).to_string();
                let err = err.split(" (os error").next().unwrap_or_default();
                let text = format!("{what} refused: {err}; see what the mounting program printed");
                Err(io::Error::other(text))
            }
        }
    }
}

/// The rights that a mount has through a service: to mount, until the conversation ends.
pub struct ServiceHost {
    service: Arc<Service>,
    machine: Machine,
    dir: PathBuf,
}

impl ServiceHost {
    /// For a mount on `dir`, as the other program named it; `image` is the source to show.
    pub fn new(service: Arc<Service>, dir: &Path, image: &Path, options: &FuseOptions) -> Self {
        let machine = Machine::new(dir, image, options);
        ServiceHost { service, machine, dir: dir.to_owned() }
    }

    /// Has the directory mounted, step by step.
    fn ask(&self, read_only: bool) -> io::Result<()> {
        let (words, mut flags) = self.machine.for_kernel();
        // The other program adds the name of the service itself.
        let words = words.into_iter().filter(|word| !word.starts_with("subtype="));
        let words = words.collect::<Vec<_>>().join(",");
        flags.set(MountFlags::RDONLY, read_only);
        let fixed = [DIRECTORY, 0].map(u16::to_be_bytes).concat();
        let (dir, image) = (self.dir.as_os_str().as_bytes(), self.machine.image().as_bytes());
        let step =
            |letters: &[u8; 4], parts: &[&[u8]], what| self.service.step(*letters, parts, what);
        step(b"TYPE", &[&0_u32.to_be_bytes()], "FUSE was")?;
        step(b"NAME", &[image, &[0]], "the source was")?;
        step(b"MNTP", &[&fixed, dir, &[0]], "the directory was")?;
        step(b"OPTS", &[words.as_bytes(), &[0]], "the options were")?;
        step(b"DOIT", &[&flags.bits().to_be_bytes()], "the mount was")
    }
}

impl Host for ServiceHost {
    /// Unknown: the other program may have set-user-ID. Without `allow_other` nobody else than that
    /// user gets to the mount.
    fn owner(&self) -> Option<u32> {
        None
    }

    fn mount(&self, read_only: bool) -> io::Result<OwnedFd> {
        let taken = self.service.device.lock().unwrap_or_else(PoisonError::into_inner).take();
        let once = || io::Error::other("a service mounts once; mount with -o uring=off");
        let device = taken.ok_or_else(once)?;
        self.ask(read_only)?;
        Ok(device)
    }

    fn read_ahead(&self) {}

    /// Nobody here may. Programs get errors when the process ends.
    fn unmount(&self, _sync: bool) -> bool {
        false
    }

    fn status(&self, _thread: u32) -> Option<(String, bool)> {
        None
    }

    fn end_trace(&self, _whole: bool) -> io::Result<()> {
        Ok(())
    }

    fn process(&self, _thread: u32) -> Option<Process> {
        None
    }

    fn stat_file(&self, _thread: u32) -> Option<File> {
        None
    }
}

fn senseless(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("the mounting program sent {what}"))
}

fn errno_of(errno: u32) -> io::Error {
    i32::try_from(errno).map_or(ErrorKind::Other.into(), io::Error::from_raw_os_error)
}

fn sent(socket: &OwnedFd, letters: [u8; 4], parts: &[&[u8]]) -> io::Result<()> {
    let packet = [&letters[..], &parts.concat()].concat();
    let mut none = SendAncillaryBuffer::default();
    let flags = SendFlags::NOSIGNAL | SendFlags::EOR;
    retry_on_intr(|| sendmsg(socket, &[IoSlice::new(&packet)], &mut none, flags))?;
    Ok(())
}

/// The next packet, and a descriptor with it.
fn received(socket: &OwnedFd) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let mut packet = vec![0; PACKET_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let got = retry_on_intr(|| {
        let mut parts = [IoSliceMut::new(&mut packet)];
        recvmsg(socket.as_fd(), &mut parts, &mut rights, RecvFlags::CMSG_CLOEXEC)
    });
    let got = got.map_err(|err| match err {
        Errno::AGAIN => {
            let text = "the mounting program has not answered for a minute";
            io::Error::new(ErrorKind::TimedOut, text)
        }
        err => err.into(),
    })?;
    if got.flags.contains(ReturnFlags::TRUNC) {
        return Err(senseless("a packet that is too long"));
    }
    if got.bytes == 0 {
        return Err(io::Error::new(ErrorKind::UnexpectedEof, "the mounting program has ended"));
    }
    packet.truncate(got.bytes);
    let descriptor = rights.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut sent) => sent.next(),
        _ => None,
    });
    Ok((packet, descriptor))
}

/// The descriptor of the file that was asked for by this name.
fn descriptor(socket: &OwnedFd, name: &[u8]) -> io::Result<OwnedFd> {
    let (packet, descriptor) = received(socket)?;
    match answered(&packet, *b"FILE")? {
        (_, [said @ .., 0]) if said != name => Err(senseless("another file than was asked for")),
        (0, [_, ..]) => descriptor.ok_or_else(|| senseless("no descriptor with a file")),
        (errno, [_, ..]) => Err(errno_of(errno)),
        _ => Err(senseless("an answer without an end")),
    }
}

/// Errno and rest of an answer.
fn answered(packet: &[u8], letters: [u8; 4]) -> io::Result<(u32, &[u8])> {
    let (head, rest) = packet.split_at_checked(ANSWER_BYTES).unwrap_or_default();
    match head {
        [a, b, c, d, errno @ ..] if [*a, *b, *c, *d] == letters => Ok((number(errno), rest)),
        _ => Err(senseless("another packet than an answer")),
    }
}

fn number(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// True if `allow_other` would be taken.
fn hello(packet: &[u8]) -> io::Result<bool> {
    let [b'S', b'A', b'F', b'T', a, b, c, d, flags @ ..] = packet else {
        return Err(senseless("no greeting"));
    };
    let versions = u16::from_be_bytes([*a, *b])..=u16::from_be_bytes([*c, *d]);
    if flags.len() != 4 || !versions.contains(&VERSION) {
        let text = "speaks another version of the protocol; install a syncline for it";
        return Err(io::Error::new(ErrorKind::Unsupported, format!("the mounting program {text}")));
    }
    // What a flag of a later version allows is not asked for.
    Ok(number(flags) & ALLOW_OTHER != 0)
}

/// All bytes of a file that another process may change meanwhile.
fn all(file: &File) -> io::Result<Vec<u8>> {
    let (mut bytes, mut len) = (vec![0; ARGUMENTS_BYTES_MAX + 1], 0);
    while len < bytes.len() {
        match file.read_at(&mut bytes[len..], len as u64)? {
            0 => break,
            more => len += more,
        }
    }
    if len > ARGUMENTS_BYTES_MAX {
        return Err(senseless("more than 64 KiB of arguments"));
    }
    bytes.truncate(len);
    Ok(bytes)
}

/// The arguments in their file.
fn parsed(file: &[u8]) -> io::Result<Vec<OsString>> {
    let wrong = || senseless("arguments without sense");
    let (head, table) = file.split_at_checked(8).ok_or_else(wrong)?;
    let count = number(&head[4..]) as usize;
    if !head.starts_with(b"ARGS") || count > table.len() / 8 {
        return Err(wrong());
    }
    let mut bytes_left = ARGUMENTS_BYTES_MAX;
    let arguments = table.chunks_exact(8).take(count).map(|entry| {
        let (at, len) = (number(entry) as usize, number(&entry[4..]) as usize);
        // Several may name the same bytes.
        bytes_left = bytes_left.checked_sub(len)?;
        match file.get(at..at.checked_add(len)?)? {
            [argument @ .., 0] if !argument.contains(&0) => Some(argument.to_vec()),
            _ => None,
        }
    });
    let arguments: Option<Vec<_>> = arguments.map(|found| found.map(OsString::from_vec)).collect();
    arguments.ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of arguments as libfuse lays it out.
    fn file_of(arguments: &[&str]) -> Vec<u8> {
        let mut table = [&b"ARGS"[..], &(arguments.len() as u32).to_be_bytes()].concat();
        let mut strings = Vec::new();
        for argument in arguments {
            let at = 8 + 8 * arguments.len() + strings.len();
            let place = [at as u32, argument.len() as u32 + 1].map(u32::to_be_bytes);
            table.extend(place.concat());
            strings.extend([argument.as_bytes(), &[0]].concat());
        }
        [table, strings].concat()
    }

    #[test]
    fn arguments_are_found_at_their_places() {
        let given = ["syncline", "a b", "", "-o", "ro"];
        assert_eq!(parsed(&file_of(&given)).unwrap(), given);
        assert_eq!(parsed(b"ARGS\0\0\0\0").unwrap(), [""; 0]);
    }

    #[test]
    fn arguments_without_sense_are_refused() {
        let good = file_of(&["syncline", "image", "dir"]);
        let with = |at: usize, byte: u8| {
            let mut bad = good.clone();
            bad[at] = byte;
            bad
        };
        let cases = [
            ("no letters", with(0, b'B')),
            ("more than there are", with(7, 99)),
            ("a count of any size", with(4, 255)),
            ("a place behind the end", with(10, 1)),
            ("a length behind the end", with(13, 255)),
            ("no zero at the end", with(good.len() - 1, b'x')),
            ("a zero within", with(good.len() - 3, 0)),
            ("cut", good[..good.len() - 1].to_vec()),
            ("a head alone", good[..7].to_vec()),
            ("nothing", Vec::new()),
        ];
        for (name, case) in cases {
            assert_eq!(parsed(&case).unwrap_err().kind(), ErrorKind::InvalidData, "{name}");
        }
        // Few bytes that are named again and again are no gigabytes.
        let place = [16 + 8 * 4000_u32, 16 << 10].map(u32::to_be_bytes).concat();
        let table = [&b"ARGS"[..], &4000_u32.to_be_bytes(), &place.repeat(4000)].concat();
        let file = [table, vec![b'x'; 30 << 10], vec![0]].concat();
        assert!(parsed(&file).is_err());
    }

    #[test]
    fn greetings_agree_on_the_version() {
        let of = |low: u16, high: u16, flags: u32| {
            let numbers = [low, high].map(u16::to_be_bytes).concat();
            hello(&[&b"SAFT"[..], &numbers, &flags.to_be_bytes()].concat())
        };
        assert_eq!((of(1, 1, 0).unwrap(), of(0, 7, 3).unwrap()), (false, true));
        for (low, high) in [(2, 3), (0, 0), (3, 1)] {
            assert_eq!(of(low, high, 0).unwrap_err().kind(), ErrorKind::Unsupported);
        }
        assert!(hello(b"SAFT\0\x01\0\x01\0\0\0").is_err(), "cut");
        assert!(hello(b"LAST\0\x01\0\x01\0\0\0\0").is_err(), "an answer");
    }

    #[test]
    fn answers_are_of_what_was_asked() {
        assert_eq!(answered(b"REPL\0\0\0\x05", *b"REPL").unwrap(), (5, &[][..]));
        for bad in [&b"REPL\0\0\0"[..], b"FILE\0\0\0\0", b""] {
            assert!(answered(bad, *b"REPL").is_err());
        }
    }
}
