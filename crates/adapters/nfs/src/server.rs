//! Connections and background work.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use syncline_control::status::{Names, Status};
use syncline_device::Clock;
use syncline_fs::Volume;

use crate::allowed::Allowed;
use crate::connection::{Connection, Shared};
use crate::duplicates::Duplicates;
use crate::export::Export;
use crate::local;
use crate::rpc::NAMES;

/// Name of the way of requests in a status, and those of the procedures.
pub const PROTOCOL: (&str, Names) = ("nfs", NAMES);

/// Connections at a time. One more ends an idle one, of a peer that never sent a call if there is
/// one.
pub const CONNECTIONS_MAX: usize = 64;

/// [`Rules::patience`] by default.
const PATIENCE: Duration = Duration::from_secs(30);

/// Longest wait for a connection, in nanoseconds: what gets dirty meanwhile waits so much longer
/// for its write-back at most, and the server for the order to stop.
const REST_NS_MAX: u64 = 100_000_000;

/// Rest after a connection that could not be accepted.
const ACCEPT_REST: Duration = Duration::from_millis(10);

/// Rules for clients: who may connect, and what a server grants them.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Peers beside those of the loopback interface.
    pub allowed: Vec<Allowed>,
    /// Other users of this machine may connect, too. Otherwise a connection from this machine has
    /// to be of the user who serves, or of root: a call may name any user.
    pub local_users: bool,
    /// Checks permissions for the user that a call names. Otherwise every user may do everything.
    pub permissions: bool,
    /// Longest silence of a peer within a record, and while it does not take a reply.
    pub patience: Duration,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules { allowed: Vec::new(), local_users: false, permissions: true, patience: PATIENCE }
    }
}

/// A volume on a TCP port.
pub struct Server {
    listener: TcpListener,
    rules: Rules,
    shared: Arc<Shared>,
    connections: Vec<Arc<Connection>>,
}

impl Server {
    /// Serves the volume on `listener` once [`Server::run`] is called, and counts calls in
    /// `status`, made with [`PROTOCOL`]. `fsid` tells volumes apart and is part of every file
    /// handle: the same number for the same volume, as half of its UUID.
    ///
    /// # Errors
    /// The listener cannot be made non-blocking, or with `sync=periodic` the volume cannot be
    /// synced.
    pub fn new(
        listener: TcpListener,
        (volume, status): (Volume, Arc<Status>),
        fsid: u64,
        rules: Rules,
    ) -> io::Result<Server> {
        listener.set_nonblocking(true)?;
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let verifier = since.map_or(0, |since| since.as_nanos() as u64).to_be_bytes();
        if volume.sync_points().is_some() {
            // A reply says that it is durable, so every sync takes a sync point.
            volume.set_relaxed_enabled(false).map_err(io::Error::other)?;
        }
        let shared = Arc::new(Shared {
            export: Export::new((volume, status), fsid, verifier, rules.permissions),
            duplicates: Duplicates::default(),
            helpers: AtomicUsize::new(0),
            started: Instant::now(),
        });
        Ok(Server { listener, rules, shared, connections: Vec::new() })
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
            result = self.wait(self.tick(clock)).map(|ready| {
                if ready {
                    self.accept();
                }
            });
            self.connections.retain(|connection| !connection.is_finished());
        }
        for connection in &self.connections {
            connection.close();
        }
        for connection in self.connections.drain(..) {
            connection.join();
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

    /// Begins with the next connection, or closes it: what is wrong with one ends no other.
    fn accept(&mut self) {
        let Ok((stream, peer)) = self.listener.accept() else {
            // The peer went away again, or there are no descriptors: then it stays to be accepted.
            return std::thread::sleep(ACCEPT_REST);
        };
        let is_local_user = self.rules.local_users || local::may_connect(&stream, peer);
        let peer = peer.ip().to_canonical();
        let welcome = peer.is_loopback() || self.rules.allowed.iter().any(|net| net.holds(peer));
        if welcome && is_local_user && self.set_up(&stream).is_ok() && self.make_room() {
            // Without a thread the connection is closed.
            self.connections.extend(Connection::start(stream, peer, Arc::clone(&self.shared)));
        }
    }

    fn set_up(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(self.rules.patience))?;
        stream.set_write_timeout(Some(self.rules.patience))
    }

    /// Closes a connection that is idle if there are too many; a client that needs it connects
    /// again. False: all are busy.
    fn make_room(&self) -> bool {
        let open = self.connections.iter().filter(|connection| !connection.is_closing());
        if open.clone().count() < CONNECTIONS_MAX {
            return true;
        }
        let idle = open.filter_map(|connection| Some((connection.idleness()?, connection)));
        let longest = idle.min_by_key(|(idleness, _)| *idleness);
        let ends_soon = self.connections.len() < 2 * CONNECTIONS_MAX;
        longest.filter(|_| ends_soon).map(|(_, connection)| connection.close()).is_some()
    }
}
