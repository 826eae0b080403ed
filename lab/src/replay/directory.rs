//! A trace of system calls in a directory of the host: real threads, real time.
//!
//! ```text
//!   thread 1   write a | fsync a |          | write b      each thread of the trace is a thread;
//!   thread 2             write b | rename b, a | ...       its calls are in order
//!                                  ^ waits: calls on one name keep the order of the trace
//! ```
//!
//! Promises
//! - A call waits for the last call before it, of another thread, that named the same file, either
//!   of its two names, or a directory above them that the trace makes, removes or renames. Nothing
//!   else is ordered: what ran at the same time may run at the same time.
//! - Everything happens in a new directory that is removed afterwards. Paths are resolved below it
//!   (`openat2` with RESOLVE_IN_ROOT): neither `..` nor a symbolic link of the trace leaves it.
//! - Calls that cannot be made, because the trace does not show how a file came to be, are counted,
//!   not guessed; any other error ends the replay.
//!
//! Files of before the trace are made and synced first ([`crate::replay::plan`]). This is an
//! adapter: it reads the clock and starts threads. This file is long because every operation of a
//! trace has its call in it. Tested in `lab/tests/replay/directory.rs`.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::error::{LabError, Result};
use crate::latency::Timer;
use crate::trace::{Flags, NameId, Names, Op, Record};
use parking_lot::{Condvar, Mutex};
use rustc_hash::{FxHashMap, FxHashSet};
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use syncline_device::{Clock, WallClock};

use crate::replay::ReplayTrace;
use crate::replay::contents::{Contents, Maker, PIECE_BYTES_MAX};
use crate::replay::plan::{Plan, inside};

/// Threads of a trace, at most.
const THREADS_MAX: usize = 1024;
/// Open files that are kept; a phone's log has no close.
const OPEN_MAX: usize = 512;
/// Longest single call.
const CALL_BYTES_MAX: u64 = 64 << 20;
/// Calls between two looks at the watch.
const WATCHED: u64 = 64;

/// A replay in a directory.
pub struct DirectoryReplay<'a> {
    /// Where; the replay works in a subdirectory that it removes.
    pub dir: &'a Path,
    /// Calls are made at the times of the trace, or later; else as soon as they may.
    pub timing: bool,
}

/// The figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DirectoryReplayed {
    /// From the first call to the end of the last, seconds.
    pub elapsed_s: f64,
    /// Calls made.
    pub calls: u64,
    /// Calls that could not be made.
    pub left_out: u64,
    /// Threads.
    pub threads: usize,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// fsync, fdatasync, sync.
    pub sync_calls: u64,
    /// Median of these, microseconds.
    pub sync_latency_us_p50: f64,
    /// 99 of 100 are not slower.
    pub sync_latency_us_p99: f64,
    /// Slowest.
    pub sync_latency_us_max: f64,
}

/// Calls that each call waits for.
struct Order {
    /// Calls of each thread, by number.
    threads: Vec<Vec<u32>>,
    /// Start of each call's list in `waits`, and the end of the last.
    starts: Vec<u32>,
    waits: Vec<u32>,
}

impl Order {
    fn of(trace: &ReplayTrace) -> Order {
        // Directories whose being there changes.
        let mut moving = FxHashSet::default();
        for record in &trace.records {
            if matches!(record.op, Op::Mkdir | Op::Rmdir | Op::Rename | Op::Symlink) {
                moving.extend([record.file, record.target].map(|n| inside(trace.names.get(n))));
            }
        }
        let mut above: FxHashMap<NameId, Vec<String>> = FxHashMap::default();
        let mut last: FxHashMap<String, (u32, usize)> = FxHashMap::default();
        let mut numbers: FxHashMap<(u32, u32), usize> = FxHashMap::default();
        let mut order = Order { threads: Vec::new(), starts: Vec::new(), waits: Vec::new() };
        for (at, record) in (0u32..).zip(&trace.records) {
            let next = numbers.len();
            let thread = *numbers.entry((record.process, record.thread)).or_insert(next);
            if thread == order.threads.len() {
                order.threads.push(Vec::new());
            }
            order.threads[thread].push(at);
            let from = order.waits.len();
            order.starts.push(from as u32);
            for name in [record.file, record.target].into_iter().filter(|name| name.is_some()) {
                let keys = above.entry(name).or_insert_with(|| {
                    let path = inside(trace.names.get(name));
                    let dirs = path.match_indices('/').map(|(end, _)| &path[..end]);
                    let dirs = dirs.filter(|dir| moving.contains(*dir)).map(str::to_owned);
                    dirs.chain([path.clone()]).collect()
                });
                for key in keys {
                    let before = last.insert(key.clone(), (at, thread));
                    if let Some((before, other)) = before
                        && other != thread
                        && !order.waits[from..].contains(&before)
                    {
                        order.waits.push(before);
                    }
                }
            }
        }
        order.starts.push(order.waits.len() as u32);
        order
    }

    fn waits(&self, at: u32) -> &[u32] {
        let at = at as usize;
        &self.waits[self.starts[at] as usize..self.starts[at + 1] as usize]
    }
}

/// State that the threads share.
struct Shared<'a> {
    trace: &'a ReplayTrace,
    root: OwnedFd,
    clock: WallClock,
    start_ns: u64,
    timing: bool,
    done: Vec<AtomicBool>,
    changed: (Mutex<()>, Condvar),
    stop: AtomicBool,
    open: Mutex<FxHashMap<NameId, Arc<File>>>,
    syncs: Mutex<Timer>,
    failed: Mutex<Option<LabError>>,
    calls: AtomicU64,
    left_out: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

impl DirectoryReplay<'_> {
    /// Replays `trace`. `watch` gets the calls done and says whether to go on; what was done until
    /// then is reported.
    pub fn run(
        &self,
        trace: &ReplayTrace,
        watch: &(dyn Fn(u64) -> bool + Sync),
    ) -> Result<DirectoryReplayed> {
        let order = Order::of(trace);
        let threads = order.threads.len();
        if threads > THREADS_MAX {
            let text = format!("the trace has {threads} threads, {THREADS_MAX} at most are made");
            return Err(LabError::Usage(text + "; replay a part of it"));
        }
        let failed = |err: io::Error| LabError::host(self.dir, &err);
        let made = tempfile::Builder::new().prefix(".syncline-replay-").tempdir_in(self.dir);
        let made = made.map_err(failed)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(made.path(), flags, Mode::empty());
        let root = root.map_err(|err| failed(err.into()))?;
        let plan = Plan::of(&trace.records, &trace.names);
        populate(&plan, &trace.names, &root).map_err(failed)?;

        let clock = WallClock::new();
        let shared = Shared {
            trace,
            root,
            start_ns: clock.now_ns(),
            clock,
            timing: self.timing,
            done: trace.records.iter().map(|_| AtomicBool::new(false)).collect(),
            changed: (Mutex::new(()), Condvar::new()),
            stop: AtomicBool::new(false),
            open: Mutex::default(),
            syncs: Mutex::default(),
            failed: Mutex::default(),
            calls: 0.into(),
            left_out: 0.into(),
            read_bytes: 0.into(),
            written_bytes: 0.into(),
        };
        thread::scope(|scope| {
            for calls in &order.threads {
                scope.spawn(|| shared.thread(&order, calls, watch));
            }
        });
        let elapsed_ns = shared.clock.now_ns() - shared.start_ns;
        if let Some(err) = shared.failed.into_inner() {
            return Err(err);
        }
        let syncs = shared.syncs.into_inner();
        Ok(DirectoryReplayed {
            elapsed_s: elapsed_ns as f64 / 1e9,
            calls: shared.calls.into_inner(),
            left_out: shared.left_out.into_inner(),
            threads,
            read_bytes: shared.read_bytes.into_inner(),
            written_bytes: shared.written_bytes.into_inner(),
            sync_calls: syncs.count(),
            sync_latency_us_p50: syncs.percentile_us(50.0),
            sync_latency_us_p99: syncs.percentile_us(99.0),
            sync_latency_us_max: syncs.max_us(),
        })
    }
}

impl Shared<'_> {
    /// Makes the calls of one thread.
    fn thread(&self, order: &Order, calls: &[u32], watch: &(dyn Fn(u64) -> bool + Sync)) {
        let mut contents = Maker::new(Contents::Noise, calls.first().copied().unwrap_or(0).into());
        let mut buffer = vec![0; PIECE_BYTES_MAX];
        for at in calls {
            let record = &self.trace.records[*at as usize];
            self.wait(order.waits(*at));
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            if !record.failed() && record.op != Op::Present {
                if self.timing {
                    self.clock.sleep_until(self.start_ns.saturating_add(record.time_ns));
                }
                match self.call(record, &mut contents, &mut buffer) {
                    Ok(()) => {
                        let made = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
                        if made.is_multiple_of(WATCHED) && !watch(made) {
                            self.end();
                        }
                    }
                    Err(err) if of_the_trace(err) => {
                        self.left_out.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(err) => {
                        let path = self.trace.names.get(record.file);
                        let err = LabError::host(path, &err.into());
                        self.failed.lock().get_or_insert(err);
                        self.end();
                    }
                }
            }
            self.done[*at as usize].store(true, Ordering::Release);
            let _guard = self.changed.0.lock();
            self.changed.1.notify_all();
        }
    }

    fn end(&self) {
        self.stop.store(true, Ordering::Relaxed);
        let _guard = self.changed.0.lock();
        self.changed.1.notify_all();
    }

    /// Waits for other threads' calls. They are earlier in the trace, so nobody waits in a circle.
    fn wait(&self, calls: &[u32]) {
        let done = |at: &u32| self.done[*at as usize].load(Ordering::Acquire);
        let over = || calls.iter().all(done) || self.stop.load(Ordering::Relaxed);
        if over() {
            return;
        }
        let mut guard = self.changed.0.lock();
        while !over() {
            self.changed.1.wait(&mut guard);
        }
    }

    fn call(
        &self,
        record: &Record,
        contents: &mut Maker,
        buffer: &mut [u8],
    ) -> std::result::Result<(), Errno> {
        match record.op {
            op if op.is_sync() => {
                let from_ns = self.clock.now_ns();
                self.sync(record)?;
                self.syncs.lock().add_ns(self.clock.now_ns() - from_ns);
                Ok(())
            }
            Op::Read | Op::Write => self.transfer(record, contents, buffer),
            _ => self.name(record),
        }
    }

    fn sync(&self, record: &Record) -> std::result::Result<(), Errno> {
        match record.op {
            Op::Fsync => rustix::fs::fsync(&*self.file(record.file)?),
            Op::Fdatasync => rustix::fs::fdatasync(&*self.file(record.file)?),
            Op::Sync => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                rustix::fs::syncfs(rustix::fs::openat(&self.root, ".", flags, Mode::empty())?)
            }
            // Starts write-back on Linux and promises nothing.
            _ => self.file(record.file).map(drop),
        }
    }

    fn transfer(
        &self,
        record: &Record,
        contents: &mut Maker,
        buffer: &mut [u8],
    ) -> std::result::Result<(), Errno> {
        let file = self.file(record.file)?;
        let (mut at, mut left) = (record.offset_bytes, record.len_bytes.min(CALL_BYTES_MAX));
        while left > 0 {
            let len = left.min(PIECE_BYTES_MAX as u64);
            let moved = match record.op {
                Op::Write => file.write_at(contents.piece(len), at),
                _ => file.read_at(&mut buffer[..len as usize], at),
            };
            let moved = match moved {
                Ok(moved) => moved as u64,
                Err(err) if err.kind() == io::ErrorKind::Interrupted => continue,
                Err(err) => return Err(Errno::from_io_error(&err).unwrap_or(Errno::IO)),
            };
            let sum = if record.op == Op::Write { &self.written_bytes } else { &self.read_bytes };
            sum.fetch_add(moved, Ordering::Relaxed);
            if moved == 0 {
                break;
            }
            at += moved;
            left -= moved;
        }
        if record.op == Op::Write && record.flags.has(Flags::SYNC) {
            rustix::fs::fdatasync(&*file)?;
        }
        Ok(())
    }

    fn path(&self, name: NameId) -> &str {
        relative(self.trace.names.get(name))
    }

    /// The file of a record: open, or opened without a call of its own.
    fn file(&self, name: NameId) -> std::result::Result<Arc<File>, Errno> {
        if let Some(file) = self.open.lock().get(&name) {
            return Ok(Arc::clone(file));
        }
        let path = self.path(name);
        let opened = match beneath(&self.root, path, OFlags::RDWR) {
            // A directory, for fsync.
            Err(Errno::ISDIR) => beneath(&self.root, path, OFlags::RDONLY),
            opened => opened,
        };
        Ok(self.keep(name, opened?))
    }

    fn keep(&self, name: NameId, file: OwnedFd) -> Arc<File> {
        let file = Arc::new(File::from(file));
        let mut open = self.open.lock();
        if open.len() >= OPEN_MAX {
            open.clear();
        }
        open.insert(name, Arc::clone(&file));
        file
    }

    fn name(&self, record: &Record) -> std::result::Result<(), Errno> {
        use rustix::fs::{fallocate, ftruncate, linkat, mkdirat, renameat, symlinkat, unlinkat};
        let path = self.path(record.file);
        match record.op {
            Op::Create => {
                let file = beneath(&self.root, path, OFlags::RDWR | OFlags::CREATE)?;
                self.keep(record.file, file);
            }
            Op::Open => {
                self.open.lock().remove(&record.file);
                self.file(record.file)?;
            }
            Op::Stat => drop(beneath(&self.root, path, OFlags::PATH)?),
            Op::Close => drop(self.open.lock().remove(&record.file)),
            Op::Truncate => {
                ftruncate(&*self.file(record.file)?, record.size_bytes.unwrap_or(0))?;
            }
            Op::Fallocate => {
                let (file, flags) = (self.file(record.file)?, FallocateFlags::KEEP_SIZE);
                fallocate(&*file, flags, record.offset_bytes, record.len_bytes)?;
            }
            Op::Unlink => {
                self.open.lock().remove(&record.file);
                let (dir, name) = parent(&self.root, path)?;
                unlinkat(dir, name, AtFlags::empty())?;
            }
            Op::Mkdir => {
                let (dir, name) = parent(&self.root, path)?;
                mkdirat(dir, name, Mode::from_raw_mode(0o755))?;
            }
            Op::Rmdir => {
                let (dir, name) = parent(&self.root, path)?;
                unlinkat(dir, name, AtFlags::REMOVEDIR)?;
            }
            Op::Rename => {
                let (from_dir, from) = parent(&self.root, path)?;
                let (to_dir, to) = parent(&self.root, self.path(record.target))?;
                renameat(from_dir, from, to_dir, to)?;
                let mut open = self.open.lock();
                match open.remove(&record.file) {
                    Some(file) => drop(open.insert(record.target, file)),
                    None => drop(open.remove(&record.target)),
                }
            }
            Op::Link => {
                let (from_dir, from) = parent(&self.root, path)?;
                let (to_dir, to) = parent(&self.root, self.path(record.target))?;
                linkat(from_dir, from, to_dir, to, AtFlags::empty())?;
            }
            Op::Symlink => {
                let (dir, name) = parent(&self.root, path)?;
                symlinkat(self.trace.names.get(record.target), dir, name)?;
            }
            _ => {}
        }
        Ok(())
    }
}

/// True if an error says that the trace does not show how things came to be, as against a failure
/// of the directory.
fn of_the_trace(err: Errno) -> bool {
    [
        Errno::NOENT,
        Errno::EXIST,
        Errno::NOTDIR,
        Errno::ISDIR,
        Errno::NOTEMPTY,
        Errno::INVAL,
        Errno::LOOP,
        Errno::NAMETOOLONG,
        Errno::XDEV,
        Errno::FBIG,
        Errno::OPNOTSUPP,
        Errno::NXIO,
        Errno::BADF,
    ]
    .contains(&err)
}

fn relative(path: &str) -> &str {
    match path.trim_start_matches('/') {
        "" => ".",
        path => path,
    }
}

/// Opens a path below the root, never outside of it.
fn beneath(root: &OwnedFd, path: &str, flags: OFlags) -> std::result::Result<OwnedFd, Errno> {
    let mode = if flags.contains(OFlags::CREATE) { 0o644 } else { 0 };
    let flags = flags | OFlags::CLOEXEC;
    rustix::fs::openat2(
        root.as_fd(),
        path,
        flags,
        Mode::from_raw_mode(mode),
        ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
    )
}

/// The directory of a path, and the name in it.
fn parent<'p>(root: &OwnedFd, path: &'p str) -> std::result::Result<(OwnedFd, &'p str), Errno> {
    let path = path.trim_end_matches('/');
    let (dir, name) = path.rsplit_once('/').unwrap_or((".", path));
    if matches!(name, "" | "." | "..") {
        return Err(Errno::INVAL);
    }
    Ok((beneath(root, relative(dir), OFlags::PATH | OFlags::DIRECTORY)?, name))
}

/// Makes the directories and files that were there, and syncs them.
fn populate(plan: &Plan, names: &Names, root: &OwnedFd) -> io::Result<()> {
    let accept = |done: std::result::Result<(), Errno>| match done {
        Err(err) if !of_the_trace(err) => Err(io::Error::from(err)),
        _ => Ok(()),
    };
    for dir in &plan.dirs {
        accept(
            parent(root, relative(dir))
                .and_then(|(dir, name)| rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(0o755))),
        )?;
    }
    let bytes = vec![0x5A; PIECE_BYTES_MAX];
    for before in &plan.files {
        let path = inside(names.get(before.path));
        let file = match beneath(root, relative(&path), OFlags::RDWR | OFlags::CREATE) {
            Ok(file) => File::from(file),
            Err(err) => {
                accept(Err(err))?;
                continue;
            }
        };
        let (mut at, filled) = (0, before.filled_bytes());
        while at < filled {
            let len = (filled - at).min(PIECE_BYTES_MAX as u64) as usize;
            file.write_all_at(&bytes[..len], at)?;
            at += len as u64;
        }
        if filled < before.size_bytes {
            accept(rustix::fs::ftruncate(&file, before.size_bytes))?;
        }
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::syncfs(rustix::fs::openat(root, ".", flags, Mode::empty())?)?)
}
