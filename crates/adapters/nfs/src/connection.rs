//! A connection, and the threads that take turns to read its calls.
//!
//! The thread that has the turn reads a call. It keeps the turn while it answers from memory, so a
//! client that sends one call at a time keeps one thread busy. Before a call that waits for the
//! device it hands the turn on: a sync of one program does not hold up the others of its machine,
//! and syncs that arrive together share a commit.

use std::io::{self, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use crate::duplicates::Duplicates;
use crate::export::Export;
use crate::record::{Room, read_record};
use crate::rpc::{parse, reply_to};

/// Threads of a connection.
const THREADS_MAX: usize = 8;

/// Threads of all connections beside the first of each.
pub(crate) const HELPERS_MAX: usize = 64;

/// State of all connections.
pub(crate) struct Shared {
    pub(crate) export: Export,
    pub(crate) duplicates: Duplicates,
    pub(crate) helpers: AtomicUsize,
    pub(crate) started: Instant,
}

/// Memory of the thread that has the turn.
#[derive(Default)]
struct Turn {
    record: Vec<u8>,
    room: Room,
}

/// A connection that was accepted.
pub(crate) struct Connection {
    stream: TcpStream,
    peer: IpAddr,
    shared: Arc<Shared>,
    turn: Mutex<Turn>,
    sending: Mutex<()>,
    /// Threads that wait for the turn.
    waiting: AtomicUsize,
    /// Calls that run.
    running: AtomicUsize,
    /// A whole call has come.
    speaks: AtomicBool,
    /// Milliseconds of the server's time at the last call or reply.
    heard_ms: AtomicU64,
    closing: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the connection of a thread that panics.
struct Closing<'a>(&'a Connection);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.close();
        }
    }
}

impl Connection {
    /// Begins to serve.
    ///
    /// # Errors
    /// There is no thread for it.
    pub(crate) fn start(
        stream: TcpStream,
        peer: IpAddr,
        shared: Arc<Shared>,
    ) -> io::Result<Arc<Connection>> {
        let connection = Arc::new(Connection {
            stream,
            peer,
            heard_ms: AtomicU64::new(shared.started.elapsed().as_millis() as u64),
            shared,
            turn: Mutex::default(),
            sending: Mutex::default(),
            waiting: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            speaks: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            threads: Mutex::default(),
        });
        connection.spawn(|connection| connection.serve())?;
        Ok(connection)
    }

    fn spawn(self: &Arc<Self>, run: impl FnOnce(&Arc<Self>) + Send + 'static) -> io::Result<()> {
        let connection = Arc::clone(self);
        let thread = std::thread::Builder::new().name("nfs".into());
        let mut threads = lock(&self.threads);
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread.spawn(move || run(&connection))?);
        Ok(())
    }

    /// Ends it: the peer is told, threads that read or send wake up.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        // One that the peer has closed is not connected any more.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    pub(crate) fn is_finished(&self) -> bool {
        lock(&self.threads).iter().all(JoinHandle::is_finished)
    }

    /// Waits for its threads to end.
    pub(crate) fn join(&self) {
        loop {
            let threads = std::mem::take(&mut *lock(&self.threads));
            if threads.is_empty() {
                return;
            }
            for thread in threads {
                // A thread that panicked has ended as well.
                let _ = thread.join();
            }
        }
    }

    /// Order in which connections go when there are too many: those first that never sent a whole
    /// call, then the one that was silent the longest. `None`: a call runs.
    pub(crate) fn idleness(&self) -> Option<(bool, u64)> {
        let idle = self.running.load(Ordering::Relaxed) == 0;
        let (speaks, heard) = (&self.speaks, &self.heard_ms);
        idle.then(|| (speaks.load(Ordering::Relaxed), heard.load(Ordering::Relaxed)))
    }

    fn heard(&self) {
        let now = self.shared.started.elapsed().as_millis() as u64;
        self.heard_ms.store(now, Ordering::Relaxed);
    }

    /// Answers calls until the connection ends, or enough other threads do.
    fn serve(self: &Arc<Self>) {
        let _closing = Closing(self);
        let mut spare = Vec::new();
        loop {
            match self.next_call(&mut spare) {
                Ok(true) => {}
                Ok(false) if self.waiting.load(Ordering::Relaxed) == 0 => {}
                Ok(false) => return,
                Err(_) => return self.close(),
            }
        }
    }

    /// Reads a call and answers it. False: without the turn.
    fn next_call(self: &Arc<Self>, spare: &mut Vec<u8>) -> io::Result<bool> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let mut turn = lock(&self.turn);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        let Turn { record, room } = &mut *turn;
        let closed = || io::Error::from(io::ErrorKind::ConnectionAborted);
        let len = read_record(&mut &self.stream, record)?.ok_or_else(closed)?;
        let Ok(call) = parse(&record[..len]) else { return Err(closed()) };
        self.speaks.store(true, Ordering::Relaxed);
        self.heard();
        if !(call.may_wait() && self.has_successor()) {
            self.answer(&record[..len], room)?;
            return Ok(true);
        }
        std::mem::swap(record, spare);
        drop(turn);
        self.answer(&spare[..len], &mut Room::default())?;
        Ok(false)
    }

    fn answer(&self, record: &[u8], room: &mut Room) -> io::Result<()> {
        let call = parse(record).map_err(|_| io::ErrorKind::InvalidData)?;
        let Shared { export, duplicates, .. } = &*self.shared;
        self.running.fetch_add(1, Ordering::Relaxed);
        let reply = reply_to(export, duplicates, self.peer, &call, room);
        self.running.fetch_sub(1, Ordering::Relaxed);
        let _turn = lock(&self.sending);
        (&self.stream).write_all(&reply)?;
        self.heard();
        Ok(())
    }

    /// Another thread waits for the turn, if need be a new one.
    fn has_successor(self: &Arc<Self>) -> bool {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            return true;
        }
        let helpers = &self.shared.helpers;
        let more = |now: usize| (now < HELPERS_MAX).then_some(now + 1);
        let threads = lock(&self.threads).iter().filter(|thread| !thread.is_finished()).count();
        if threads >= THREADS_MAX
            || helpers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err()
        {
            return false;
        }
        let helper = Helper(Arc::clone(&self.shared));
        let spawned = self.spawn(move |connection| {
            let _helper = helper;
            connection.serve();
        });
        spawned.is_ok()
    }
}

/// One of the helpers that are counted.
struct Helper(Arc<Shared>);

impl Drop for Helper {
    fn drop(&mut self) {
        self.0.helpers.fetch_sub(1, Ordering::Relaxed);
    }
}
