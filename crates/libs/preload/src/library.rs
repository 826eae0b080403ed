//! The state of the process: rules, counts, files; the decision for each call; the end.
//!
//! A child after fork owes nothing: its parent does. `owner` tells the two apart, also where no
//! fork handler runs (vfork).

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_int};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use serde_json::{Value, json};

use crate::files::{Device, FileId, Files};
use crate::hooks::real;
use crate::logs;
use crate::rules::Rules;
use crate::system::{self, Spin, complain};

/// Files of one device that are synced one by one at the end; with more its file system is.
const SINGLY_MAX: usize = 64;
/// Of statfs: each file has to be synced, the whole does nothing.
const FUSE_SUPER_MAGIC: libc::__fsword_t = 0x6573_5546;

/// Calls that are counted.
#[derive(Clone, Copy)]
pub(crate) enum Call {
    Fsync,
    Fdatasync,
    SyncFileRange,
    Msync,
    /// open with `O_SYNC` or `O_DSYNC`.
    OpenSync,
    /// pwritev2 with `RWF_SYNC` or `RWF_DSYNC`.
    WriteSync,
    Syncfs,
    Sync,
}

const CALLS: [&str; 8] =
    ["fsync", "fdatasync", "sync_file_range", "msync", "open_sync", "write_sync", "syncfs", "sync"];

pub(crate) struct Library {
    pub(crate) rules: Rules,
    /// No file is relaxed.
    pub(crate) nothing: bool,
    /// Every file is.
    pub(crate) everything: bool,
    /// File that receives the report.
    report: Option<PathBuf>,
}

pub(crate) static LIBRARY: OnceLock<Library> = OnceLock::new();
pub(crate) static FILES: Spin<Files> = Spin::new();
static SKIPPED: [AtomicU64; CALLS.len()] = [const { AtomicU64::new(0) }; CALLS.len()];
static KEPT: [AtomicU64; CALLS.len()] = [const { AtomicU64::new(0) }; CALLS.len()];
static RINGS: AtomicU64 = AtomicU64::new(0);
/// The process that owes what is owed.
static OWNER: AtomicU32 = AtomicU32::new(0);
/// True once any sync was owed; until then renames cost nothing.
pub(crate) static OWED: AtomicBool = AtomicBool::new(false);

/// When the library is loaded: reads the variables and the rules.
pub(crate) extern "C" fn begin() {
    OWNER.store(std::process::id(), Ordering::Relaxed);
    let rules = read_rules().unwrap_or_else(|why| {
        complain(&format!("{why}; every file is strict until the rules are corrected"));
        Rules::default()
    });
    let report = std::env::var_os("SYNCLINE_PRELOAD_REPORT").map(PathBuf::from);
    let report = report.filter(|path| !path.as_os_str().is_empty());
    // Loaded once; a second call changes nothing.
    let (nothing, everything) = (rules.nothing(), rules.everything());
    let _ = LIBRARY.set(Library { rules, nothing, everything, report });
    // SAFETY: the handlers are functions without arguments that live as long as the process.
    unsafe {
        libc::pthread_atfork(Some(logs::before_fork), Some(logs::after_fork), Some(forked));
    }
}

fn read_rules() -> Result<Rules, String> {
    let mut text = String::new();
    if let Some(path) = std::env::var_os("SYNCLINE_PRELOAD_RULES_FILE").filter(|p| !p.is_empty()) {
        let path = PathBuf::from(path);
        text = std::fs::read_to_string(&path)
            .map_err(|err| format!("the rules {} cannot be read: {err}", path.display()))?;
    }
    if let Some(more) = std::env::var_os("SYNCLINE_PRELOAD_RULES") {
        text = format!("{text}\n{}", more.to_string_lossy());
    }
    Rules::parse(&text)
}

extern "C" fn forked() {
    logs::in_child();
    OWNER.store(std::process::id(), Ordering::Relaxed);
    OWED.store(false, Ordering::Relaxed);
    for counter in SKIPPED.iter().chain(&KEPT).chain([&RINGS]) {
        counter.store(0, Ordering::Relaxed);
    }
    // SAFETY: a child after fork has one thread.
    unsafe { FILES.start_again() };
}

/// A ring of io_uring was made, whose submissions nobody sees here.
pub(crate) fn ring_made() {
    RINGS.fetch_add(1, Ordering::Relaxed);
}

/// False in a child that shares the memory of its parent (vfork).
pub(crate) fn is_owner() -> bool {
    OWNER.load(Ordering::Relaxed) == std::process::id()
}

fn count(call: Call, skipped: bool) -> bool {
    let counters = if skipped { &SKIPPED } else { &KEPT };
    counters[call as usize].fetch_add(1, Ordering::Relaxed);
    skipped
}

/// Decides if a sync of this descriptor is skipped; true if so. The call is counted, and a skipped
/// sync is owed.
pub(crate) fn skips(fd: c_int, call: Call) -> bool {
    count(call, system::keeping_errno(|| owe(fd)).is_some())
}

/// A file was opened with its synchronous flags.
pub(crate) fn kept_open() {
    count(Call::OpenSync, false);
}

/// `Some`: the file is relaxed, and its sync is owed from now on.
fn owe(fd: c_int) -> Option<()> {
    let library = LIBRARY.get().filter(|library| !library.nothing)?;
    let file = system::identity(fd).filter(|file| file.plain)?;
    let known = FILES.with(|files| {
        if files.is_whole(file.id.device) {
            return Some(true);
        }
        let decision = files.decision(&file.id);
        if decision == Some(true) {
            files.owe(&file.id);
            OWED.store(true, Ordering::Relaxed);
        }
        decision
    })?;
    let relaxed = match known {
        Some(relaxed) => relaxed,
        None => decide(library, fd, file.id)?,
    };
    relaxed.then_some(())
}

/// Decides on a file; if it is relaxed its sync is owed. `None`: it cannot be told.
fn decide(library: &Library, fd: c_int, id: FileId) -> Option<bool> {
    let path = system::path_of(fd)?;
    let relaxed = library.everything || library.rules.is_relaxed(&path);
    let directory = library.everything.then(|| path.parent().unwrap_or(&path).to_owned());
    let (relaxed, many) = FILES.with(|files| {
        let fits = files.decided(id, path, relaxed);
        if fits && relaxed {
            files.owe(&id);
        }
        (fits && relaxed, library.everything && files.many_on(id.device))
    })?;
    if relaxed {
        OWED.store(true, Ordering::Relaxed);
    }
    if let Some(directory) = directory.filter(|_| many && !is_fuse(fd)) {
        FILES.with(|files| {
            files.make_whole(id.device, directory);
            OWED.store(files.owes_files(), Ordering::Relaxed);
        });
    }
    Some(relaxed)
}

/// True if calls without a file (sync, syncfs) are skipped: only if every file is relaxed.
pub(crate) fn skips_all(call: Call) -> bool {
    count(call, LIBRARY.get().is_some_and(|library| library.everything))
}

/// True if a file of this name would be relaxed; asked before it is opened.
pub(crate) fn name_is_relaxed(dirfd: c_int, path: &CStr) -> bool {
    let Some(library) = LIBRARY.get().filter(|library| !library.nothing) else {
        return false;
    };
    let path = absolute(dirfd, path);
    path.is_some_and(|path| library.rules.is_relaxed(&std::fs::canonicalize(&path).unwrap_or(path)))
}

/// The path with its directory resolved; its last part may be a link, or not be there.
pub(crate) fn absolute(dirfd: c_int, path: &CStr) -> Option<PathBuf> {
    let path = Path::new(std::ffi::OsStr::from_bytes(path.to_bytes()));
    let base = match dirfd {
        _ if path.is_absolute() => PathBuf::new(),
        libc::AT_FDCWD => std::env::current_dir().ok()?,
        dirfd => system::path_of(dirfd)?,
    };
    let path = base.join(path);
    let name = path.file_name()?;
    Some(std::fs::canonicalize(path.parent()?).ok()?.join(name))
}

/// Returns the paths of the files mapped in a range of addresses, one for each mapping. `None`: a
/// part of the range maps no file.
fn mapped(address: usize, length: usize) -> Option<Vec<PathBuf>> {
    let maps = std::fs::read("/proc/self/maps").ok()?;
    let end = address.checked_add(length)?;
    let mut at = address;
    let mut paths = Vec::new();
    for line in maps.split(|byte| *byte == b'\n') {
        let mut words = line.splitn(6, |byte| *byte == b' ');
        let range = std::str::from_utf8(words.next()?).ok().and_then(|text| text.split_once('-'));
        let Some((from, to)) = range else { continue };
        let number = |text| usize::from_str_radix(text, 16).ok();
        let (from, to) = (number(from)?, number(to)?);
        if to <= at {
            continue;
        }
        let path = words.nth(4)?.trim_ascii_start();
        if from > at || !path.starts_with(b"/") {
            return None;
        }
        paths.push(PathBuf::from(std::ffi::OsStr::from_bytes(path)));
        at = to;
        if at >= end {
            return Some(paths);
        }
    }
    None
}

/// True if msync of this range is skipped, because every file in it is relaxed.
pub(crate) fn skips_mapping(address: usize, length: usize) -> bool {
    let skipped = system::keeping_errno(|| {
        if LIBRARY.get().is_none_or(|library| library.nothing) {
            return false;
        }
        let Some(paths) = mapped(address, length.max(1)) else { return false };
        let files = paths.iter().map(|path| open(path)).collect::<Vec<_>>();
        let all = files.iter().all(|file| file.as_ref().is_some_and(|fd| is_relaxed(fd.0)));
        all && files.iter().flatten().all(|fd| owe(fd.0).is_some())
    });
    count(Call::Msync, skipped)
}

fn is_relaxed(fd: c_int) -> bool {
    let path = system::identity(fd).filter(|file| file.plain).and_then(|_| system::path_of(fd));
    path.is_some_and(|path| LIBRARY.get().is_some_and(|library| library.rules.is_relaxed(&path)))
}

/// A descriptor without rights to the contents: closing it ends no lock of the program (`O_PATH`).
struct Fd(c_int);

impl Drop for Fd {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours and is not used again.
        unsafe { libc::close(self.0) };
    }
}

fn open(path: &Path) -> Option<Fd> {
    open_with(path, libc::O_PATH)
}

fn open_with(path: &Path, flags: c_int) -> Option<Fd> {
    let name = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::open(name.as_ptr(), flags | libc::O_CLOEXEC) };
    (fd >= 0).then_some(Fd(fd))
}

#[derive(PartialEq)]
pub(crate) enum Outcome {
    Done,
    /// The name leads to no file, or to another one.
    Gone,
    Failed,
}

pub(crate) fn sync_file(id: &FileId, path: &Path) -> Outcome {
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else { return Outcome::Gone };
    if system::identity_at(&name).is_none_or(|file| file.id != *id) {
        return Outcome::Gone;
    }
    let usual = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_NOFOLLOW;
    let file = open_with(path, usual).or_else(|| open_with(path, usual | libc::O_WRONLY));
    match (file, real::FSYNC.get()) {
        // SAFETY: the descriptor is open.
        (Some(file), Some(fsync)) if unsafe { fsync(file.0) } == 0 => Outcome::Done,
        _ => Outcome::Failed,
    }
}

/// True if the file system of an open file must be synced file by file (FUSE).
fn is_fuse(fd: c_int) -> bool {
    // SAFETY: statfs is a structure of integers, for which zeros are valid.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: `found` is large enough by its type.
    let asked = unsafe { libc::fstatfs(fd, &raw mut found) };
    asked != 0 || found.f_type == FUSE_SUPER_MAGIC
}

/// Syncs the file system of this device, which the directory is on; true: all of it is durable.
fn sync_file_system(device: Device, directory: &Path) -> bool {
    let place = open_with(directory, libc::O_DIRECTORY);
    let same = |fd: &Fd| system::identity(fd.0).is_some_and(|dir| dir.id.device == device);
    match (place.filter(|fd| same(fd) && !is_fuse(fd.0)), real::SYNCFS.get()) {
        // SAFETY: the descriptor is open.
        (Some(place), Some(syncfs)) => unsafe { syncfs(place.0) == 0 },
        _ => false,
    }
}

/// Syncs every file system but those of FUSE.
fn sync_all() {
    if let Some(sync) = real::SYNC.get() {
        // SAFETY: it takes nothing.
        unsafe { sync() };
    }
}

/// Results of the syncs at the end of the process.
#[derive(Default)]
struct Synced {
    done: u64,
    gone: u64,
    file_systems: u64,
    failed: Vec<PathBuf>,
}

fn sync_owed() -> Synced {
    let mut synced = Synced::default();
    let skipped = |call: Call| SKIPPED[call as usize].load(Ordering::Relaxed) > 0;
    if skipped(Call::Sync) || skipped(Call::Syncfs) {
        sync_all();
    }
    for (device, directory, files) in FILES.with(Files::take_whole).unwrap_or_default() {
        synced.file_systems += 1;
        synced.done += files;
        if !sync_file_system(device, &directory) {
            // Its directory has gone, or it could not: all of them.
            sync_all();
        }
    }
    let owed = FILES.with(|files| files.owed()).unwrap_or_default();
    let mut devices: BTreeMap<Device, Vec<(FileId, PathBuf)>> = BTreeMap::new();
    for (id, path) in owed {
        devices.entry(id.device).or_default().push((id, path));
    }
    for (device, files) in &devices {
        let directory = files.iter().find_map(|(_, path)| path.parent().filter(|dir| dir.is_dir()));
        if files.len() > SINGLY_MAX && directory.is_some_and(|dir| sync_file_system(*device, dir)) {
            synced.done += files.len() as u64;
            FILES.with(|known| files.iter().for_each(|(id, _)| known.synced(id)));
            continue;
        }
        for (id, path) in files {
            match sync_file(id, path) {
                Outcome::Done => synced.done += 1,
                Outcome::Gone => synced.gone += 1,
                Outcome::Failed => synced.failed.push(path.clone()),
            }
            FILES.with(|known| known.synced(id));
        }
    }
    synced
}

/// The end of the program, or of what it was before exec: syncs what is owed, and reports.
pub(crate) extern "C" fn finish() {
    if !is_owner() {
        return;
    }
    system::keeping_errno(|| {
        logs::finish();
        let synced = sync_owed();
        OWED.store(false, Ordering::Relaxed);
        if let Some(path) = synced.failed.first() {
            complain(&format!(
                "{} files could not be synced at the end, the first is {}; check the device, data \
                 written to them may be lost",
                synced.failed.len(),
                path.display()
            ));
        }
        report(&synced);
    });
}

fn counts(counters: &[AtomicU64]) -> (Value, u64) {
    let numbers = counters.iter().map(|counter| counter.swap(0, Ordering::Relaxed));
    let named: Vec<(&str, u64)> = CALLS.into_iter().zip(numbers).collect();
    let sum = named.iter().map(|(_, number)| number).sum();
    (named.into_iter().filter(|(_, number)| *number > 0).collect(), sum)
}

/// Rings that are still open, those of libraries that make the system call themselves included.
fn open_rings() -> u64 {
    let Ok(links) = std::fs::read_dir("/proc/self/fd") else { return 0 };
    let is_ring = |entry: &std::fs::DirEntry| {
        let target = std::fs::read_link(entry.path());
        target.is_ok_and(|target| target.as_os_str() == "anon_inode:[io_uring]")
    };
    links.flatten().filter(is_ring).count() as u64
}

fn report(synced: &Synced) {
    let Some(place) = LIBRARY.get().and_then(|library| library.report.as_ref()) else { return };
    let ((relaxed, some), (strict, more)) = (counts(&SKIPPED), counts(&KEPT));
    let rings = RINGS.swap(0, Ordering::Relaxed).max(open_rings());
    let (logs, ended_early) = logs::counts();
    if some + more + rings + logs == 0 {
        return;
    }
    let program = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    let line = json!({
        "schema": "syncline.preload/1",
        "pid": std::process::id(),
        "program": program.to_string_lossy(),
        "relaxed": relaxed,
        "strict": strict,
        "synced_at_end": synced.done,
        "gone_at_end": synced.gone,
        "file_systems_at_end": synced.file_systems,
        "failed_at_end": synced.failed.len(),
        "too_many_files": FILES.with(|files| files.is_full()),
        "io_uring_not_covered": rings,
        "logs": logs,
        "logs_ended_early": ended_early,
    });
    let written = if place.as_os_str() == "-" {
        writeln!(std::io::stderr(), "{line}")
    } else {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(place);
        file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()))
    };
    if let Err(err) = written {
        complain(&format!("no report in {}: {err}; choose another file", place.display()));
    }
}
