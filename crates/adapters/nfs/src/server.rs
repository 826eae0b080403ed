//! Connections and background work.

use std::io::{self, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use syncline_device::Clock;
use syncline_fs::Volume;

use crate::allowed::Allowed;
use crate::duplicates::Duplicates;
use crate::export::Export;
use crate::rpc::{read_record, reply_to};

/// Connections at a time; more are closed at once.
pub const CONNECTIONS_MAX: usize = 64;

/// Longest wait for a connection, in nanoseconds: what gets dirty meanwhile waits so much longer
/// for its write-back at most, and the server for the order to stop.
const REST_NS_MAX: u64 = 100_000_000;

/// Rest after a connection that could not be accepted.
const ACCEPT_REST: Duration = Duration::from_millis(10);

struct Shared {
    export: Export,
    duplicates: Duplicates,
}

/// A volume on a TCP port.
pub struct Server {
    listener: TcpListener,
    allowed: Vec<Allowed>,
    shared: Arc<Shared>,
    connections: Vec<(TcpStream, JoinHandle<()>)>,
}

impl Server {
    /// Serves the volume on `listener` once [`Server::run`] is called. `fsid` tells volumes apart
    /// and is part of every file handle: the same number for the same volume, as half of its UUID.
    /// Peers other than loopback must be in `allowed`.
    ///
    /// # Errors
    /// The listener cannot be made non-blocking, or with `sync=periodic` the volume cannot be
    /// synced.
    pub fn new(
        listener: TcpListener,
        volume: Volume,
        fsid: u64,
        allowed: Vec<Allowed>,
    ) -> io::Result<Server> {
        listener.set_nonblocking(true)?;
        let started = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let verifier = started.map_or(0, |since| since.as_nanos() as u64).to_be_bytes();
        if volume.moments().is_some() {
            // A reply says that it is durable, so every sync takes a moment.
            volume.set_relaxes(false).map_err(io::Error::other)?;
        }
        let export = Export { volume, fsid, verifier };
        let shared = Arc::new(Shared { export, duplicates: Duplicates::default() });
        Ok(Server { listener, allowed, shared, connections: Vec::new() })
    }

    /// The address that it listens on.
    ///
    /// # Errors
    /// As of getsockname(2).
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` is set, then ends all connections. The caller unmounts the volume.
    /// `clock` is the volume's.
    ///
    /// # Errors
    /// Waiting for connections fails for good. A volume that failed answers every change with
    /// NFS3ERR_IO and goes on being read.
    pub fn run(&mut self, clock: &dyn Clock, stop: &AtomicBool) -> io::Result<()> {
        let mut result = Ok(());
        while result.is_ok() && !stop.load(Ordering::Relaxed) {
            result = self.wait(self.tick(clock)).and_then(|ready| match ready {
                true => self.accept(),
                false => Ok(()),
            });
            self.connections.retain(|(_, thread)| !thread.is_finished());
        }
        for (stream, _) in &self.connections {
            // One that the peer has closed is not connected any more.
            let _ = stream.shutdown(Shutdown::Both);
        }
        for (_, thread) in self.connections.drain(..) {
            // A thread that panicked has ended as well.
            let _ = thread.join();
        }
        result
    }

    /// Background work that is due; returns how long nothing has to be done.
    fn tick(&self, clock: &dyn Clock) -> u64 {
        let volume = &self.shared.export.volume;
        if volume.is_near_throttle() {
            volume.hurry_writeback();
        }
        let now = clock.now_ns();
        if volume.next_deadline_ns().is_some_and(|due| due <= now) {
            // A failure has latched the volume: the calls that follow say so.
            let _ = volume.tick(now);
        }
        let due = volume.next_deadline_ns().filter(|_| volume.latched().is_none());
        due.map_or(REST_NS_MAX, |due| due.saturating_sub(now).clamp(1_000_000, REST_NS_MAX))
    }

    fn wait(&self, rest_ns: u64) -> io::Result<bool> {
        let mut fds = [PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN)];
        let rest = Timespec { tv_sec: 0, tv_nsec: rest_ns as _ };
        match poll(&mut fds, Some(&rest)) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(err) => Err(err.into()),
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        let Ok((stream, peer)) = self.listener.accept() else {
            // The peer went away again, or there are no descriptors: then it stays to be accepted.
            std::thread::sleep(ACCEPT_REST);
            return Ok(());
        };
        let peer = peer.ip().to_canonical();
        let welcome = peer.is_loopback() || self.allowed.iter().any(|net| net.holds(peer));
        if !welcome || self.connections.len() >= CONNECTIONS_MAX {
            return Ok(());
        }
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        let (ours, shared) = (stream.try_clone()?, Arc::clone(&self.shared));
        let thread = std::thread::Builder::new().name("nfs".into());
        // Without a thread the connection is closed.
        if let Ok(thread) = thread.spawn(move || serve(&shared, stream, peer)) {
            self.connections.push((ours, thread));
        }
        Ok(())
    }
}

/// Answers the calls of a connection until its end.
fn serve(shared: &Shared, mut stream: TcpStream, peer: IpAddr) {
    let mut record = Vec::new();
    while let Ok(true) = read_record(&mut stream, &mut record) {
        let Ok(reply) = reply_to(&shared.export, &shared.duplicates, peer, &record) else { break };
        if stream.write_all(&reply).is_err() {
            break;
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
}
