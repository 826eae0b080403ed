//! The socket by which a process that serves a directory is asked and changed.
//!
//! ```text
//!   syncline ctl DIR ... --> control-HASH in a runtime directory --> thread --> handler(line)
//!             <-- "ok\n" and text, or "error SENTENCE\n"
//! ```
//!
//! One line, one answer, one connection after the other. The socket lies in the runtime directory
//! of the user who serves ([`runtime_dir`]), named after DIR, so that nobody else can take its
//! name; DIR itself may be covered by a mount or dead. What a killed process leaves there is taken
//! over. Who asks has to be the user who serves, or root, and anybody else is refused before a byte
//! is read; who is allowed has [`PATIENCE`] for the whole line. Who is asked: the user to whom the
//! kernel gave the mount, the caller, and root ([`servers`]), as the directory and `SO_PEERCRED`
//! say.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_peercred;
use rustix::process::{Uid, geteuid};
use syncline_device::{mount_of, runtime_dir};

/// Longest request, in bytes.
const REQUEST_BYTES_MAX: usize = 8192;
/// Longest answer, in bytes.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// Time limit for a line of the other side.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time limit for an answer. It is long since draining writes the whole log.
const ANSWER_PATIENCE: Duration = Duration::from_secs(600);

/// Answers a line with a text, or with a sentence that says why not.
pub type Handler = Box<dyn Fn(&str) -> Result<String, String> + Send>;

/// Why a question has no answer.
#[derive(Debug)]
pub enum AskError {
    /// The sentence of the other side.
    Refused(String),
    /// This user serves it, whom the caller may not ask.
    Denied(u32),
    /// A user answers in whose name another one's socket lies.
    Stranger(u32),
    /// The connection failed, or ended without an answer.
    Broken(std::io::Error),
}

/// A socket that has its name, and does not answer yet. Dropped, it loses its name.
pub struct Bound {
    listener: UnixListener,
    /// The user who serves.
    owner: Uid,
    name: Name,
}

/// A socket that answers until it is dropped.
pub struct ControlSocket {
    listener: Arc<UnixListener>,
    name: Option<Name>,
    thread: Option<JoinHandle<()>>,
}

/// The name of a socket, until it is dropped.
struct Name(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Drop for Name {
    fn drop(&mut self) {
        if let Some(remove) = self.0.take() {
            remove();
        }
    }
}

/// The socket by which the calling user answers for `dir`, an absolute path without links.
///
/// # Errors
/// The user has no runtime directory, or somebody else has it.
pub fn address(dir: &Path) -> std::io::Result<PathBuf> {
    Ok(runtime_dir(geteuid().as_raw())?.join(name(dir)))
}

/// The name for a directory: a hash, since names are short (FNV-1a, 64 bits, twice).
fn name(dir: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let hash = |seed: u64| {
        dir.as_os_str().as_bytes().iter().fold(0xcbf2_9ce4_8422_2325 ^ seed, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        })
    };
    format!("control-{:016x}{:016x}", hash(0), hash(0x5bd1_e995))
}

/// Binds the socket, also where a process that was killed has left one.
fn bind(path: &Path) -> std::io::Result<UnixListener> {
    use std::io::ErrorKind;
    let listener = match UnixListener::bind(path) {
        Err(err) if err.kind() == ErrorKind::AddrInUse => match UnixStream::connect(path) {
            Err(dead) if dead.kind() == ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path)?;
                UnixListener::bind(path)
            }
            _ => Err(err),
        },
        bound => bound,
    }?;
    // Others are refused by name, where they may enter the directory at all.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}

impl Bound {
    /// Binds the socket for `dir`, an absolute path without links.
    ///
    /// # Errors
    /// Somebody answers for it already.
    pub fn new(dir: &Path) -> std::io::Result<Bound> {
        let path = address(dir)?;
        let listener = bind(&path)?;
        let name = Name(Some(Box::new(move || drop(std::fs::remove_file(path)))));
        Ok(Bound { listener, owner: geteuid(), name })
    }

    /// For another process, which has the name removed.
    pub fn into_fd(mut self) -> OwnedFd {
        self.name.0 = None;
        self.listener.into()
    }

    /// The socket that another process has bound for the user `owner`. Its name stays unless
    /// [`Bound::removed_by`] says who removes it.
    pub fn from_fd(socket: OwnedFd, owner: u32) -> Bound {
        Bound { listener: socket.into(), owner: Uid::from_raw(owner), name: Name(None) }
    }

    /// Has the name removed by `remove`, for a process that will not have the right.
    #[must_use]
    pub fn removed_by(mut self, remove: impl FnOnce() + Send + Sync + 'static) -> Bound {
        self.name.0 = Some(Box::new(remove));
        self
    }

    /// Answers from now on.
    ///
    /// # Errors
    /// No thread can be made.
    pub fn answer(self, handler: Handler) -> std::io::Result<ControlSocket> {
        let Bound { listener, owner, name } = self;
        let listener = Arc::new(listener);
        let accepting = Arc::clone(&listener);
        let serve = move || {
            while let Ok((stream, _)) = accepting.accept() {
                // A client that goes away early gets no answer.
                let _ = answer(&stream, owner, &handler);
            }
        };
        let thread = std::thread::Builder::new().name("control".into()).spawn(serve);
        Ok(ControlSocket { listener, name: Some(name), thread: Some(thread?) })
    }
}

impl ControlSocket {
    /// Answers for `dir`, an absolute path without links.
    ///
    /// # Errors
    /// Somebody answers for it already, or no thread can be made.
    pub fn answer(dir: &Path, handler: Handler) -> std::io::Result<ControlSocket> {
        Bound::new(dir)?.answer(handler)
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // Ends the wait of the thread.
        let _ = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
        self.name = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn answer(mut stream: &UnixStream, owner: Uid, handler: &Handler) -> std::io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let peer = socket_peercred(stream)?.uid;
    let answer = if peer != owner && !peer.is_root() {
        let (peer, owner) = (peer.as_raw(), owner.as_raw());
        Err(format!("user {peer} may not control it; ask as user {owner} or root"))
    } else {
        match request(stream)? {
            None => Err("the request is not a line; use `syncline ctl`".to_owned()),
            Some(line) => handler(&line),
        }
    };
    let text = match answer {
        Ok(text) => format!("ok\n{text}"),
        Err(why) => format!("error {}\n", why.replace('\n', " ")),
    };
    stream.write_all(text.as_bytes())
}

/// The line that the other side sends, without its end. `None`: it is none, or too long.
fn request(mut stream: &UnixStream) -> std::io::Result<Option<String>> {
    let began = Instant::now();
    let mut bytes = Vec::new();
    let mut piece = [0; 1024];
    while bytes.len() < REQUEST_BYTES_MAX && !bytes.ends_with(b"\n") {
        let left = PATIENCE.saturating_sub(began.elapsed());
        if left.is_zero() {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut piece)? {
            0 => break,
            n => bytes.extend_from_slice(&piece[..n]),
        }
    }
    let line = bytes.strip_suffix(b"\n").filter(|line| !line.contains(&b'\n'));
    Ok(line.and_then(|line| String::from_utf8(line.to_vec()).ok()))
}

/// Users who may serve `dir`: who mounted it, as the kernel says, the caller, and root. For root
/// also the owner of a directory on which nothing is mounted, unless a FUSE program says who owns
/// it.
fn servers(dir: &Path) -> Vec<u32> {
    let own = geteuid();
    let mount = mount_of(dir);
    let mut users: Vec<u32> = mount.iter().filter_map(|entry| entry.user).collect();
    users.extend([own.as_raw(), 0]);
    let is_fuse = rustix::fs::statfs(dir).is_ok_and(|fs| fs.f_type == FUSE_SUPER_MAGIC);
    if own.is_root() && mount.is_none() && !is_fuse {
        users.extend(std::fs::metadata(dir).map(|meta| meta.uid()));
    }
    users
}

/// `f_type` of a FUSE file system, `linux/magic.h`.
const FUSE_SUPER_MAGIC: rustix::fs::FsWord = 0x6573_5546;

/// Connects to the program that serves `dir`. `None`: there is none.
fn connect(dir: &Path) -> Result<Option<UnixStream>, AskError> {
    use std::io::ErrorKind;
    let mut denied = None;
    for user in servers(dir) {
        let Ok(runtime) = runtime_dir(user) else { continue };
        let stream = match UnixStream::connect(runtime.join(name(dir))) {
            Ok(stream) => stream,
            Err(err) => {
                denied = (err.kind() == ErrorKind::PermissionDenied).then_some(user).or(denied);
                continue;
            }
        };
        let peer = socket_peercred(&stream).map_err(|err| AskError::Broken(err.into()))?.uid;
        if peer.as_raw() != user && !peer.is_root() {
            return Err(AskError::Stranger(peer.as_raw()));
        }
        return Ok(Some(stream));
    }
    denied.map_or(Ok(None), |user| Err(AskError::Denied(user)))
}

/// Asks the process that serves `dir`, an absolute path without links. `None`: nobody does.
///
/// # Errors
/// All of [`AskError`].
pub fn ask(dir: &Path, line: &str) -> Result<Option<String>, AskError> {
    let broken = AskError::Broken;
    let Some(mut stream) = connect(dir)? else { return Ok(None) };
    stream.set_write_timeout(Some(PATIENCE)).map_err(broken)?;
    stream.set_read_timeout(Some(ANSWER_PATIENCE)).map_err(broken)?;
    // Who is refused is not listened to: the answer can be there although the request never went.
    let sent = stream.write_all(format!("{line}\n").as_bytes());
    let mut text = Vec::new();
    let read = (&stream).take(ANSWER_BYTES_MAX).read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text);
    match text.split_once('\n') {
        Some((first, _)) if first.starts_with("error ") => {
            Err(AskError::Refused(first[6..].to_owned()))
        }
        Some(("ok", text)) => sent.and(read).map(|_| Some(text.to_owned())).map_err(broken),
        _ => Err(broken(std::io::ErrorKind::UnexpectedEof.into())),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// A name for a socket of this test.
    fn nowhere(test: &str) -> PathBuf {
        std::env::temp_dir().join(format!("no such directory of {test}, {}", std::process::id()))
    }

    fn connected(dir: &Path) -> UnixStream {
        UnixStream::connect(address(dir).unwrap()).unwrap()
    }

    #[test]
    fn hostile_clients_get_a_sentence_or_nothing_and_others_are_served() {
        let dir = nowhere("hostile clients");
        let handler: Handler = Box::new(|line| Ok(line.len().to_string()));
        let _socket = ControlSocket::answer(&dir, handler).unwrap();
        let alive = || assert_eq!(ask(&dir, "12345").unwrap().as_deref(), Some("5"));
        let said = |bytes: &[u8]| {
            let mut stream = connected(&dir);
            let _ = stream.write_all(bytes);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let mut text = Vec::new();
            let _ = stream.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        };
        let refused = "error the request is not a line; use `syncline ctl`\n";
        for bad in [&b""[..], b"no end", b"two\nlines\n", b"\xff\xfe\n", &[b'x'; 100_000]] {
            assert_eq!(said(bad), refused, "{} bytes", bad.len());
            alive();
        }
        // Random bytes are a request, or none; nothing else.
        let mut seed = 1u64;
        for round in 0..500 {
            let bytes = std::iter::repeat_with(|| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (seed >> 56) as u8
            });
            let bytes: Vec<u8> = bytes.take(round % 90).chain([b'\n']).collect();
            let text = said(&bytes);
            assert!(text == refused || text.starts_with("ok\n"), "{bytes:?}: {text}");
        }
        // A thousand that go away at once, and a hundred that are there and say nothing yet.
        for _ in 0..1000 {
            drop(connected(&dir));
        }
        alive();
        let silent: Vec<_> = (0..100).map(|_| connected(&dir)).collect();
        drop(silent);
        alive();
    }

    #[test]
    fn a_slow_client_is_given_up_after_the_patience_for_a_line() {
        let dir = nowhere("a slow client");
        let _socket = ControlSocket::answer(&dir, Box::new(|_| Ok(String::new()))).unwrap();
        let mut slow = connected(&dir);
        let began = Instant::now();
        let mut sent = 0;
        // A byte now and then, which would keep a limit on each read from ever being reached.
        while slow.write_all(b"x").is_ok() {
            sent += 1;
            std::thread::sleep(Duration::from_millis(300));
            assert!(began.elapsed() < PATIENCE * 3, "still listened to after {sent} bytes");
        }
        assert!(sent > 5, "given up at once");
        assert_eq!(ask(&dir, "x").unwrap().as_deref(), Some(""));
    }

    #[test]
    fn lines_and_answers() {
        let dir = nowhere("lines and answers");
        assert_eq!(ask(&dir, "x").unwrap(), None);
        let handler: Handler = Box::new(|line| match line {
            "good" => Ok("a\nb".to_owned()),
            _ => Err(format!("`{line}` is not good; say good")),
        });
        let socket = ControlSocket::answer(&dir, handler).unwrap();
        assert_eq!(ask(&dir, "good").unwrap().as_deref(), Some("a\nb"));
        let said = ask(&dir, "bad").unwrap_err();
        assert!(matches!(said, AskError::Refused(text) if text == "`bad` is not good; say good"));
        let second = ControlSocket::answer(&dir, Box::new(|_| Ok(String::new())));
        assert!(second.is_err());
        drop(socket);
        assert_eq!(ask(&dir, "good").unwrap(), None);
        // What a killed process leaves is nobody, and is taken over.
        drop(UnixListener::bind(address(&dir).unwrap()).unwrap());
        assert_eq!(ask(&dir, "good").unwrap(), None);
        let again = ControlSocket::answer(&dir, Box::new(|_| Ok(String::new()))).unwrap();
        assert_eq!(ask(&dir, "good").unwrap().as_deref(), Some(""));
        drop(again);
        assert!(!address(&dir).unwrap().exists(), "nothing stays behind");
    }
}
