//! Listening, connections, the end.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use syncline_device::BlockDevice;

use super::handshake::handshake;
use super::stream::{Listen, Listener, Stream, Until};
use super::transmission::serve;
use crate::bytes::Bytes;

/// Connections at one time; more are closed at once.
const CONNECTIONS_MAX: usize = 16;
/// Time limit for the handshake.
const HANDSHAKE: Duration = Duration::from_secs(30);
/// Wait after a failed accept; as a rule no descriptors are left.
const PAUSE: Duration = Duration::from_millis(100);

/// Poll interval while the end waits for requests under way, 10 seconds at most.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
const END_POLLS: u32 = 2000;

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum NbdError {
    /// The socket cannot be made.
    #[error("cannot listen on {listen}: {source}; choose another place, or end what is there")]
    Listen {
        /// Address.
        listen: Listen,
        /// Why.
        source: io::Error,
    },
    /// No thread.
    #[error("cannot serve: {0}; end other programs and try again")]
    Thread(#[from] io::Error),
}

/// A device that is to be served.
pub struct NbdServer {
    /// The device.
    pub device: Arc<dyn BlockDevice>,
    /// Name of the export; the empty name means it, too.
    pub name: String,
}

struct Shared {
    bytes: Bytes,
    device: Arc<dyn BlockDevice>,
    name: String,
    stop: AtomicBool,
    connections: Mutex<Vec<Arc<Stream>>>,
}

/// A socket at its place, where nobody answers yet.
pub struct NbdSocket {
    listener: Listener,
    listen: Listen,
}

type Remove = Box<dyn FnOnce() + Send>;

/// A device that is being served, until it is stopped or dropped.
pub struct NbdServed {
    listen: Listen,
    listener: Arc<Listener>,
    shared: Arc<Shared>,
    accepting: Mutex<Option<(JoinHandle<()>, Remove)>>,
}

impl NbdSocket {
    /// Binds.
    ///
    /// # Errors
    /// [`NbdError::Listen`].
    pub fn bind(listen: &Listen) -> Result<NbdSocket, NbdError> {
        let failed = |source| NbdError::Listen { listen: listen.clone(), source };
        let (listener, listen) = Listener::bind(listen).map_err(failed)?;
        Ok(NbdSocket { listener, listen })
    }

    /// For another process.
    pub fn into_fd(self) -> OwnedFd {
        self.listener.into()
    }

    /// The socket that another process has bound to `listen`.
    ///
    /// # Errors
    /// It has no address.
    pub fn from_fd(socket: OwnedFd, listen: &Listen) -> io::Result<NbdSocket> {
        let (listener, listen) = Listener::from_fd(socket, listen)?;
        Ok(NbdSocket { listener, listen })
    }
}

impl NbdServer {
    /// Listens and serves in threads of its own. Clients can connect when this returns.
    ///
    /// # Errors
    /// Both classes of [`NbdError`].
    pub fn serve(self, listen: &Listen) -> Result<NbdServed, NbdError> {
        let socket = NbdSocket::bind(listen)?;
        let path = match &socket.listen {
            Listen::Unix(path) => Some(path.clone()),
            Listen::Tcp(_) => None,
        };
        // Somebody may have removed it already.
        self.serve_at(socket, move || drop(path.map(std::fs::remove_file)))
    }

    /// As [`NbdServer::serve`], at a socket that is bound and that `remove` removes.
    ///
    /// # Errors
    /// [`NbdError::Thread`].
    pub fn serve_at(
        self,
        socket: NbdSocket,
        remove: impl FnOnce() + Send + 'static,
    ) -> Result<NbdServed, NbdError> {
        let NbdSocket { listener, listen } = socket;
        let listener = Arc::new(listener);
        let shared = Arc::new(Shared {
            bytes: Bytes::new(Arc::clone(&self.device)),
            device: self.device,
            name: self.name,
            stop: AtomicBool::new(false),
            connections: Mutex::default(),
        });
        let (seen, accepts) = (Arc::clone(&shared), Arc::clone(&listener));
        let accepting =
            thread::Builder::new().name("nbd".into()).spawn(move || accept(&accepts, &seen))?;
        let accepting = Mutex::new(Some((accepting, Box::new(remove) as Remove)));
        Ok(NbdServed { listen, listener, shared, accepting })
    }
}

fn accept(listener: &Listener, shared: &Arc<Shared>) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    while !shared.stop.load(Ordering::Acquire) {
        let Ok(stream) = listener.accept() else {
            thread::sleep(PAUSE);
            continue;
        };
        threads.retain(|thread| !thread.is_finished());
        if !stream.may_connect()
            || shared.connections.lock().len() >= CONNECTIONS_MAX
            || shared.stop.load(Ordering::Acquire)
        {
            continue;
        }
        let stream = Arc::new(stream);
        let kept = Arc::clone(&stream);
        shared.connections.lock().push(Arc::clone(&stream));
        let seen = Arc::clone(shared);
        let spawned = thread::Builder::new().name("nbd-connection".into()).spawn(move || {
            // A connection that breaks is its client's to report.
            let _ = connection(&stream, &seen);
            // The place is free before the socket closes: who saw the end may connect again.
            seen.connections.lock().retain(|other| !Arc::ptr_eq(other, &stream));
        });
        match spawned {
            Ok(thread) => threads.push(thread),
            Err(_) => shared.connections.lock().retain(|other| !Arc::ptr_eq(other, &kept)),
        }
    }
    shared.connections.lock().iter().for_each(|connection| connection.end_reads());
    for _ in 0..END_POLLS {
        if threads.iter().all(JoinHandle::is_finished) {
            break;
        }
        thread::sleep(POLL_INTERVAL);
    }
    // Who does not read its replies does not get them.
    shared.connections.lock().iter().for_each(|connection| connection.end());
    for thread in threads {
        // One that panicked serves nobody either.
        let _ = thread.join();
    }
}

fn connection(stream: &Stream, shared: &Shared) -> io::Result<()> {
    stream.set_patience(Some(HANDSHAKE))?;
    let geometry = shared.device.geometry();
    let patient = Until { stream, end: Instant::now() + HANDSHAKE };
    let Some(agreed) = handshake(patient, &shared.name, geometry)? else {
        return Ok(());
    };
    stream.set_patience(None)?;
    serve(stream, &shared.bytes, geometry.read_only, agreed)
}

impl NbdServed {
    /// Returns the address that the server listens on, with the port that the system chose. As text
    /// it is the URI for clients.
    pub fn listen(&self) -> &Listen {
        &self.listen
    }

    /// Connections now.
    pub fn connections(&self) -> usize {
        self.shared.connections.lock().len()
    }

    /// Takes no more requests, answers those that came, and removes the socket. Nothing is flushed
    /// that the clients did not flush: the device's owner does that.
    pub fn stop(&self) {
        let Some((accepting, remove)) = self.accepting.lock().take() else { return };
        self.shared.stop.store(true, Ordering::Release);
        self.listener.end();
        let _ = accepting.join();
        remove();
    }
}

impl Drop for NbdServed {
    fn drop(&mut self) {
        self.stop();
    }
}
