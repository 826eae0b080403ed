//! The socket by which a process that serves a directory is asked and changed.
//!
//! ```text
//!   syncline ctl DIR ... --> abstract socket named after DIR --> thread --> handler(line)
//!             <-- "ok\n" and text, or "error SENTENCE\n"
//! ```
//!
//! One line, one answer, one connection after the other. The name is in the kernel only, so nothing
//! stays behind a process that is killed, and DIR may be covered by a mount or dead. Who asks has
//! to be the user who serves, or root, and anybody else is refused before a byte is read; who is
//! allowed has [`PATIENCE`] for the whole line. Who answers has to be the user who asks, root, or
//! the owner of DIR (`SO_PEERCRED`), because anybody may take a name.

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_peercred;
use rustix::process::{Uid, geteuid};

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
    /// A user answers who does not own the directory.
    Stranger(u32),
    /// The connection failed, or ended without an answer.
    Broken(std::io::Error),
}

/// A socket that answers until it is dropped.
pub struct ControlSocket {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The name for a directory, an absolute path without links: a hash, since names are short
/// (FNV-1a, 64 bits, twice).
///
/// # Errors
/// None that is known: the name is short enough.
pub fn address(dir: &Path) -> std::io::Result<SocketAddr> {
    use std::os::unix::ffi::OsStrExt;
    let hash = |seed: u64| {
        dir.as_os_str().as_bytes().iter().fold(0xcbf2_9ce4_8422_2325 ^ seed, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        })
    };
    let name = format!("syncline/control/{:016x}{:016x}", hash(0), hash(0x5bd1_e995));
    SocketAddr::from_abstract_name(name.as_bytes())
}

impl ControlSocket {
    /// Answers for `dir`, an absolute path without links.
    ///
    /// # Errors
    /// Somebody answers for it already, or no thread can be made.
    pub fn answer(dir: &Path, handler: Handler) -> std::io::Result<ControlSocket> {
        let address = address(dir)?;
        let listener = UnixListener::bind_addr(&address)?;
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let serve = move || {
            while let Ok((stream, _)) = listener.accept() {
                if seen.load(Ordering::Acquire) {
                    break;
                }
                // A client that goes away early gets no answer.
                let _ = answer(&stream, &handler);
            }
        };
        let thread = std::thread::Builder::new().name("control".into()).spawn(serve);
        Ok(ControlSocket { address, stop, thread: Some(thread?) })
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // Wakes the thread.
        drop(UnixStream::connect_addr(&self.address));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn answer(mut stream: &UnixStream, handler: &Handler) -> std::io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let peer = socket_peercred(stream)?.uid;
    let answer = if peer != geteuid() && !peer.is_root() {
        let owner = geteuid().as_raw();
        Err(format!("user {} may not control it; ask as user {owner} or root", peer.as_raw()))
    } else {
        match request(stream)? {
            None => Err("the request is no line; use `syncline ctl`".to_owned()),
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

/// True if the server runs as our user, as root or as the owner of `dir`.
fn trusted(server: Uid, dir: &Path) -> bool {
    let owner = std::fs::metadata(dir).map(|meta| meta.uid());
    server == geteuid() || server.is_root() || owner.is_ok_and(|uid| uid == server.as_raw())
}

/// Asks the process that serves `dir`, an absolute path without links. `None`: nobody does.
///
/// # Errors
/// All of [`AskError`].
pub fn ask(dir: &Path, line: &str) -> Result<Option<String>, AskError> {
    let broken = AskError::Broken;
    let address = address(dir).map_err(broken)?;
    let Ok(mut stream) = UnixStream::connect_addr(&address) else { return Ok(None) };
    let server = socket_peercred(&stream).map_err(|err| broken(err.into()))?.uid;
    if !trusted(server, dir) {
        return Err(AskError::Stranger(server.as_raw()));
    }
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
        UnixStream::connect_addr(&address(dir).unwrap()).unwrap()
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
        let refused = "error the request is no line; use `syncline ctl`\n";
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
    }
}
