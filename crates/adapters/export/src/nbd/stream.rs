//! Sockets of both kinds as one.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// Length of the queue of connections, as in the standard library.
const BACKLOG: i32 = 128;

/// Address that a server listens on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Listen {
    /// A socket at this path, which must not exist.
    Unix(PathBuf),
    /// A port of the loopback address; 0: any free one.
    Tcp(SocketAddr),
}

impl FromStr for Listen {
    type Err = String;

    /// `unix:PATH`, `127.0.0.1:PORT` or `[::1]:PORT`.
    fn from_str(text: &str) -> Result<Listen, String> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Listen::Unix(path.into()));
        }
        let address = text.parse::<SocketAddr>();
        let address = address.map_err(|_| "unix:PATH or 127.0.0.1:PORT".to_owned())?;
        if !address.ip().is_loopback() {
            let why = "there is no authentication, so only 127.0.0.1 and [::1] are served; use a \
                       tunnel, ssh -L, from elsewhere";
            return Err(why.to_owned());
        }
        Ok(Listen::Tcp(address))
    }
}

impl fmt::Display for Listen {
    /// As a client's URI, for the export without a name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Unix(path) => write!(f, "nbd+unix:///?socket={}", path.display()),
            Listen::Tcp(address) => write!(f, "nbd://{address}"),
        }
    }
}

/// Binds a socket for its owner only. The mode is the socket's before it has a name: a chmod of the
/// name could meet something else, and would leave it open until then.
fn bind_private(path: &Path) -> io::Result<UnixListener> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::fs::fchmod(&socket, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

pub(crate) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    /// Binds; with the place as it came to be.
    pub(crate) fn bind(listen: &Listen) -> io::Result<(Listener, Listen)> {
        match listen {
            Listen::Unix(path) => Ok((Listener::Unix(bind_private(path)?), listen.clone())),
            Listen::Tcp(address) => Listener::from_fd(TcpListener::bind(address)?.into(), listen),
        }
    }

    /// The socket that another process has bound; with the place as it came to be.
    pub(crate) fn from_fd(socket: OwnedFd, listen: &Listen) -> io::Result<(Listener, Listen)> {
        Ok(match listen {
            Listen::Unix(_) => (Listener::Unix(socket.into()), listen.clone()),
            Listen::Tcp(_) => {
                let listener = TcpListener::from(socket);
                let bound = Listen::Tcp(listener.local_addr()?);
                (Listener::Tcp(listener), bound)
            }
        })
    }

    /// Ends the wait for connections.
    pub(crate) fn end(&self) {
        let how = rustix::net::Shutdown::Both;
        let _ = match self {
            Listener::Unix(listener) => rustix::net::shutdown(listener, how),
            Listener::Tcp(listener) => rustix::net::shutdown(listener, how),
        };
    }

    pub(crate) fn accept(&self) -> io::Result<Stream> {
        Ok(match self {
            Listener::Unix(listener) => Stream::Unix(listener.accept()?.0),
            Listener::Tcp(listener) => Stream::Tcp(listener.accept()?.0),
        })
    }
}

impl From<Listener> for OwnedFd {
    fn from(listener: Listener) -> OwnedFd {
        match listener {
            Listener::Unix(listener) => listener.into(),
            Listener::Tcp(listener) => listener.into(),
        }
    }
}

/// A connection. Both halves are used through references, as of the sockets themselves.
pub(crate) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

macro_rules! each {
    ($stream:expr, $name:ident => $call:expr) => {
        match $stream {
            Stream::Unix($name) => $call,
            Stream::Tcp($name) => $call,
        }
    };
}

impl Stream {
    /// Reads end as at the end of the stream; what is written still goes out.
    pub(crate) fn end_reads(&self) {
        // Fails where the other side has ended it.
        let _ = each!(self, socket => socket.shutdown(Shutdown::Read));
    }

    /// Nothing goes either way any more.
    pub(crate) fn end(&self) {
        // As above.
        let _ = each!(self, socket => socket.shutdown(Shutdown::Both));
    }

    /// True if the peer of a Unix socket is our user or root. A TCP port admits anybody.
    pub(crate) fn may_connect(&self) -> bool {
        let Stream::Unix(socket) = self else { return true };
        let own = rustix::process::geteuid();
        let peer = rustix::net::sockopt::socket_peercred(socket);
        peer.is_ok_and(|peer| peer.uid == own || peer.uid.is_root())
    }

    /// Sets the time limit of reads and writes. Replies are sent at once (TCP_NODELAY).
    pub(crate) fn set_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        if let Stream::Tcp(socket) = self {
            socket.set_nodelay(true)?;
        }
        each!(self, socket => socket.set_read_timeout(patience))?;
        each!(self, socket => socket.set_write_timeout(patience))
    }
}

impl Read for &Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        each!(self, socket => (&*socket).read(into))
    }
}

impl Write for &Stream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        each!(self, socket => (&*socket).write(from))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A stream whose reads end at a time: a byte now and then is not enough.
pub(crate) struct Until<'a> {
    pub(crate) stream: &'a Stream,
    pub(crate) end: Instant,
}

impl Read for Until<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        each!(self.stream, socket => socket.set_read_timeout(Some(left)))?;
        let mut stream = self.stream;
        stream.read(into)
    }
}

impl Write for Until<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let mut stream = self.stream;
        stream.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_peer_is_given_up() {
        let (ours, mut peer) = UnixStream::pair().unwrap();
        let began = Instant::now();
        let feeder = std::thread::spawn(move || {
            // A byte now and then, which would keep a limit of each read from being reached.
            while peer.write_all(b"x").is_ok() && began.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let stream = Stream::Unix(ours);
        let mut until = Until { stream: &stream, end: began + Duration::from_millis(300) };
        assert!(until.read_exact(&mut [0; 1 << 16]).is_err());
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        drop(stream);
        feeder.join().unwrap();
    }

    #[test]
    fn places_to_listen() {
        assert_eq!("unix:/a/b".parse(), Ok(Listen::Unix("/a/b".into())));
        assert!(matches!("127.0.0.1:10809".parse(), Ok(Listen::Tcp(a)) if a.port() == 10809));
        assert!(matches!("[::1]:0".parse(), Ok(Listen::Tcp(_))));
        for (bad, why) in [
            ("unix:", "unix:PATH"),
            ("10809", "unix:PATH"),
            ("localhost:1", "unix:PATH"),
            ("0.0.0.0:10809", "no authentication"),
            ("192.168.1.1:10809", "no authentication"),
        ] {
            assert!(bad.parse::<Listen>().unwrap_err().contains(why), "{bad}");
        }
    }

    #[test]
    fn a_socket_has_its_mode_before_its_name() {
        use std::os::unix::fs::MetadataExt;
        let path = std::env::temp_dir().join(format!("syncline-nbd-{}", std::process::id()));
        let (listener, _) = Listener::bind(&Listen::Unix(path.clone())).unwrap();
        assert_eq!(std::fs::symlink_metadata(&path).unwrap().mode() & 0o7777, 0o600);
        let client = UnixStream::connect(&path).unwrap();
        assert!(matches!(listener.accept(), Ok(Stream::Unix(_))));
        drop(client);
        // A link in its place is left alone, and what it names.
        std::fs::remove_file(&path).unwrap();
        let other = path.with_extension("other");
        std::fs::write(&other, "").unwrap();
        let mode = std::fs::metadata(&other).unwrap().mode();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        assert!(Listener::bind(&Listen::Unix(path.clone())).is_err());
        assert_eq!(std::fs::metadata(&other).unwrap().mode(), mode);
        for path in [&path, &other] {
            std::fs::remove_file(path).unwrap();
        }
    }
}
