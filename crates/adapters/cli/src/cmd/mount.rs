//! `mount`: serves an image on a directory until it is unmounted.
//!
//! ```text
//!   syncline mount ──── starts ───> syncline mount --served      (its own session)
//!        | waits                        opens, recovers, mounts
//!        | <──────── one byte ────────  ready; lets go of the terminal
//!      exits 0                          serves ... unmounted or SIGTERM: cleans up, exits
//! ```
//! Until it is ready the serving process has the caller's standard error, and its exit code becomes
//! the caller's. Later failures go to the system log.

use std::io::{Read, Write};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use syncline_buffer::{BufferOptions, LogArea};
use syncline_device::{
    BlockDevice, Clock, DeviceError, FileDevice, FileOptions, RecordingDevice, SwapDevice,
    WallClock, kernel_use, mounted_image,
};
use syncline_fs::{Alloc, Buffered, FsError, MountOptions, MountReport, Volume};
use syncline_fuse::{Capture, FuseOptions, Mount, Setup, write_hint};
use syncline_ondisk::FeatureCheck;

use super::mount_control::Live;
use super::reopened::{Pin, Reopened};
use crate::args;
use crate::error::{Failure, Result};

/// Byte that the serving process sends when it is ready.
const READY: u8 = b'R';

/// Longest wait of a mount for the previous mount of the image to finish.
const FINISH_WAIT: Duration = Duration::from_secs(30);

/// Poll interval for signals and the end of the mount.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Size of a log that is made, unless told otherwise.
const LOG_BYTES: u64 = 64 << 20;

/// Errno of a FUSE mount whose process is gone.
const ENOTCONN: i32 = 107;

/// EWOULDBLOCK of the lock, EBUSY of a block device.
const IN_USE: [i32; 2] = [11, 16];

/// Mounts; see the module.
pub(crate) fn run(args: &args::Mount) -> Result<()> {
    if super::remount::asked(args) {
        return super::remount::run(args, &absolute(&args.dir)?);
    }
    let options = FuseOptions::parse(&args.options)?;
    let image = absolute(&args.image)?;
    let dir = absolute(&args.dir)?;
    match std::fs::metadata(&dir) {
        Ok(meta) if meta.is_dir() => {}
        Err(err) if err.raw_os_error() == Some(ENOTCONN) => {
            let what = "a mount remains whose process has died";
            let text = format!("{0}: {what}; run `syncline umount {0}`", dir.display());
            return Err(Failure::Failed(text));
        }
        _ => {
            let text = format!("{}: not a directory; give an empty directory", dir.display());
            return Err(Failure::Failed(text));
        }
    }
    if args.foreground || args.served {
        return serve(args, options, &image, &dir);
    }
    in_background(args, &image, &dir)
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::fs::canonicalize(path).map_err(|err| Failure::host(path, &err))
}

fn in_background(args: &args::Mount, image: &Path, dir: &Path) -> Result<()> {
    let failed = |err: std::io::Error| {
        Failure::Failed(format!("the serving process cannot be started: {err}; try -f"))
    };
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(["mount", "--served"]);
    for options in &args.options {
        command.arg("-o").arg(options);
    }
    command.arg("--").arg(image).arg(dir);
    crate::daemon::with_huge_pages(&mut command);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut said = [0];
    let read = child.stdout.take().map_or(Ok(0), |mut out| out.read(&mut said));
    if matches!(read, Ok(1)) && said[0] == READY {
        return Ok(());
    }
    let status = child.wait().map_err(failed)?;
    // It has said why.
    Err(Failure::Said(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

/// Returns a message if the volume has no room for the hot zones that were asked for.
fn small_zones(asked: &MountOptions, report: &MountReport) -> Option<String> {
    let (zones, bytes) = (report.hot_zones, report.hot_zone_bytes);
    // By lifetime there is one region with the bytes of all.
    let fewer = asked.alloc == Alloc::HotZones && zones < asked.hot_zones;
    let wanted = u64::from(asked.hot_zones.max(zones)).saturating_mul(asked.hot_zone_size_bytes);
    (!asked.read_only && (fewer || bytes < wanted)).then(|| {
        format!(
            "hot zones: {zones}, together {} MiB, less than requested: a flex group has one zone, \
             and all zones take at most an eighth of the volume; nothing needs to be done",
            bytes >> 20
        )
    })
}

fn serve(args: &args::Mount, mut options: FuseOptions, image: &Path, dir: &Path) -> Result<()> {
    if args.served {
        // Fails only for a process that leads its group, which a started one does not.
        let _ = rustix::process::setsid();
    }
    // Where others use the mount, the blocks reserved for root stay root's.
    options.volume.privileged = rustix::process::geteuid().is_root() && !options.allow_other;
    // The kernel says when a writer has not the right to keep them.
    options.volume.set_id_by_caller = true;
    let clock: Arc<dyn Clock> = Arc::new(WallClock::new());
    let at = |failure: Failure| failure.at(image.display());
    let Stack { counted, traced, buffered, top, writable } = stacked(&options, image, &clock)?;
    let mounted = Volume::mount_report(top, Arc::clone(&clock), options.volume.clone());
    let (volume, report) = match mounted {
        Ok(mounted) => mounted,
        Err(err) => {
            // What it refuses is the caller's to know, not what comes of the log.
            let _ = detach(buffered);
            return Err(at(err.into()));
        }
    };
    let log = logger(image, args.served);
    if let Some(warning) = small_zones(&options.volume, &report) {
        log(&warning);
    }
    if let Some(hint) = write_hint(&volume, &options) {
        // The caller's standard error, also of a mount that goes to the background.
        crate::complain(&format!("{}: {hint}", image.display()));
    }
    let live = Arc::new(Live::new(&volume, buffered.as_ref().map(Buffered::buffer), writable));
    let log_of_buffer = options.buffer_log.clone().unwrap_or_default();
    let setup = Setup {
        counts: Arc::new(move || counted.counts()),
        buffer: buffered.as_ref().map(|buffered| shown(buffered, image, &log_of_buffer)),
        settings: live.settings(),
        capture: traced.as_ref().map(|traced| &traced.capture),
        log: Arc::clone(&log),
        ..Setup::new(volume.clone(), clock, options, image.to_owned())
    };
    // The socket exists before the mount, so that a program that sees the mount can use it.
    let control = live.answer(dir, &log);
    let mount = match Mount::start(setup, dir) {
        Ok(mount) => mount,
        Err(err) => {
            // Nothing was changed: the image goes back to what it was.
            let _ = volume.unmount();
            let _ = detach(buffered);
            return Err(err.into());
        }
    };
    drop(volume);
    end_on_panic(Arc::clone(&log));
    if args.served {
        ready().map_err(|err| Failure::host(dir, &err))?;
    }
    stay(&mount, &live, &log);
    drop(control);
    let done = end(mount, buffered, traced, (image, &log));
    done.inspect_err(|failure| {
        if args.served {
            log(failure.message().unwrap_or_default());
        }
    })
}

/// Unmounts, if nobody has yet; then everything is at its place and the trace has its name.
fn end(
    mount: Mount,
    buffered: Option<Buffered>,
    traced: Option<Traced>,
    (image, log): (&Path, &Log),
) -> Result<()> {
    let ended = mount.end();
    if ended.was_busy {
        log("unmounted while files were open; further accesses to them fail");
    }
    let unmounted = ended.volume.map_err(Failure::from);
    // Without a clean unmount the image stays with its log, as after a crash.
    let unmounted = unmounted.and_then(|()| detach(buffered));
    let unmounted = unmounted.map_err(|failure| failure.at(image.display()));
    let written = traced.map_or(Ok(()), |traced| end_capture(traced, log));
    unmounted.and(written)
}

/// Devices of a mount.
struct Stack {
    /// The image.
    counted: Arc<Device>,
    traced: Option<Traced>,
    buffered: Option<Buffered>,
    /// The device of the volume.
    top: Arc<dyn BlockDevice>,
    writable: Option<Reopened>,
}

fn stacked(options: &FuseOptions, image: &Path, clock: &Arc<dyn Clock>) -> Result<Stack> {
    let (counted, place) = opened(options, image, clock)?;
    let traced = start_capture(options, clock, &counted)?;
    let buffered = buffered(options, &counted)?;
    let top = tapped(traced.as_ref(), top(buffered.as_ref(), Arc::clone(&counted)));
    let in_memory = readable(&top, options, image, clock)?;
    let place = place.filter(|_| in_memory.is_none() && !options.noload);
    let writable = place.map(|(place, pin)| Reopened::new(place, image, pin));
    Ok(Stack { counted, traced, buffered, top: in_memory.unwrap_or(top), writable })
}

/// The place of an image, and what was mounted.
type Replaceable = (Arc<SwapDevice>, Pin);

/// The image, which has an ext4, and with `ro` the place in which it can be opened again to write.
fn opened(
    options: &FuseOptions,
    image: &Path,
    clock: &Arc<dyn Clock>,
) -> Result<(Arc<Device>, Option<Replaceable>)> {
    recover(options, image, clock)?;
    let (device, pin) = open(image, options.volume.read_only)?;
    crate::image::superblock(&*device, image)?;
    if !options.volume.read_only {
        return Ok((Arc::new(RecordingDevice::new(device)), None));
    }
    let place = Arc::new(SwapDevice::new(device));
    Ok((Arc::new(RecordingDevice::new(place.clone())), Some((place, pin))))
}

/// Replays the log of an image for a mount with `ro`, as ext4 does: on the image, if that can be
/// written and neither `noload` nor `norecovery` is given.
fn recover(options: &FuseOptions, image: &Path, clock: &Arc<dyn Clock>) -> Result<()> {
    if !options.volume.read_only || options.noload {
        return Ok(());
    }
    let (device, _) = open(image, true)?;
    let superblock = crate::image::superblock(&*device, image)?;
    // Features that can only be read leave the log where it is: readers have it in memory.
    let may_write = superblock.check_features() == Ok(FeatureCheck::ReadWrite);
    if !superblock.needs_recovery() || !may_write {
        return Ok(());
    }
    drop(device);
    let device = match open(image, false) {
        Ok((device, _)) if device.geometry().read_only => return Ok(()),
        Ok((device, _)) => device,
        // Who may not write has it in memory; what else is wrong is wrong for a reader, too.
        Err(_) => return Ok(()),
    };
    let recovered = Volume::mount(device, Arc::clone(clock), MountOptions::default());
    let recovered = recovered.and_then(Volume::unmount);
    recovered.map_err(|err| Failure::from(err).at(image.display()))
}

/// The device in memory in which a log is replayed that is still to be replayed for `ro`.
fn readable(
    device: &Arc<dyn BlockDevice>,
    options: &FuseOptions,
    image: &Path,
    clock: &Arc<dyn Clock>,
) -> Result<Option<Arc<dyn BlockDevice>>> {
    if !options.volume.read_only {
        return Ok(None);
    }
    let recovered = Volume::recovered_in_memory(device, clock, options.volume.cache_bytes);
    let recovered = recovered.map_err(|err| Failure::from(err).at(image.display()))?;
    if recovered.is_some() {
        let said = "the journal was replayed in memory only; `syncline recover` writes it";
        crate::complain(&format!("{}: {said}", image.display()));
    }
    Ok(recovered.map(|(memory, _)| memory))
}

/// Until somebody unmounts it or asks us to end.
fn stay(mount: &Mount, live: &Live, log: &Log) {
    let clock = WallClock::new();
    let mut said = false;
    while !mount.is_over() && !crate::interrupt::asked() {
        live.visit(&clock, &mut said, log);
        std::thread::park_timeout(POLL_INTERVAL);
    }
}

/// A capture, which holds the image: an unmount waits until its lock goes, and has the trace then.
struct Traced {
    capture: Capture,
    _image: Arc<Device>,
}

/// The capture that `trace` asks for, in a file whose path holds in any working directory.
fn start_capture(
    options: &FuseOptions,
    clock: &Arc<dyn Clock>,
    image: &Arc<Device>,
) -> Result<Option<Traced>> {
    let Some(file) = &options.trace else { return Ok(None) };
    let path = std::path::absolute(file).map_err(|err| Failure::host(file, &err))?;
    let capture = Capture::start(&path, Arc::clone(clock))?;
    Ok(Some(Traced { capture, _image: Arc::clone(image) }))
}

/// Wraps the device of the volume to capture its requests, if a trace was asked for.
fn tapped(traced: Option<&Traced>, device: Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice> {
    match traced {
        Some(traced) => Arc::new(traced.capture.device(device)),
        None => device,
    }
}

/// Gives the file of events its name, and logs how many are missing in it.
fn end_capture(traced: Traced, log: &Log) -> Result<()> {
    let counts = traced.capture.finish()?;
    if counts.lost > 0 {
        log(&format!(
            "the trace misses {} of {} events, which arrived faster than they were written; write \
             it to a faster file system, or reserve a processor for it",
            counts.lost,
            counts.lost + counts.events
        ));
    }
    Ok(())
}

type Device = RecordingDevice<Arc<dyn BlockDevice>>;

/// The write buffer that `buffer_log` asks for, over the image.
fn buffered(options: &FuseOptions, image: &Arc<Device>) -> Result<Option<Buffered>> {
    let Some(path) = &options.buffer_log else { return Ok(None) };
    let made = !path.exists();
    if made {
        super::buffer::make_log(path, options.buffer_log_size.unwrap_or(LOG_BYTES))?;
    }
    let attached = FileDevice::open(path, FileOptions::default()).map_err(Failure::from);
    let attached = attached.and_then(|log| {
        let area = LogArea { device: Arc::new(log), same_medium: false };
        let defaults = BufferOptions::default();
        let ram_bytes = options.buffer_ram.unwrap_or(defaults.ram_bytes);
        let relaxed_bytes_max = defaults.relaxed_bytes_max.min(ram_bytes);
        let sizes = BufferOptions { ram_bytes, relaxed_bytes_max, ..defaults };
        let id = super::buffer::new_id()?;
        let clock = Arc::new(WallClock::new());
        Buffered::attach(image.clone(), area, id, sizes, Some(clock)).map_err(|err| match err {
            // It says what to do.
            FsError::Invalid(text) => Failure::Failed(text),
            other => other.into(),
        })
    });
    if made && attached.is_err() {
        // Nothing half-made stays; the error is the one to report.
        let _ = std::fs::remove_file(path);
    }
    attached.map(Some).map_err(|err| err.at(path.display()))
}

/// Returns the device of the volume: the buffer, if there is one, or the image.
fn top(buffered: Option<&Buffered>, image: Arc<Device>) -> Arc<dyn BlockDevice> {
    match buffered {
        Some(buffered) => buffered.buffer().clone(),
        None => image,
    }
}

fn detach(buffered: Option<Buffered>) -> Result<()> {
    Ok(buffered.map_or(Ok(()), Buffered::detach)?)
}

/// Returns the part of `status` about a buffer.
fn shown(
    buffered: &Buffered,
    image: &Path,
    log: &Path,
) -> Arc<dyn Fn() -> serde_json::Value + Send + Sync> {
    let (buffer, names) =
        (buffered.buffer().clone(), [image, log].map(|p| p.display().to_string()));
    Arc::new(move || super::buffer::document(&buffer, &names))
}

/// Opens the image, unless it is mounted. Waits for a process that is ending its mount of it.
fn open(image: &Path, read_only: bool) -> Result<(Arc<dyn BlockDevice>, Pin)> {
    let options = FileOptions { read_only, ..FileOptions::default() };
    let began = Instant::now();
    loop {
        if let Some(entry) = mounted_image(image) {
            return Err(Failure::Failed(format!(
                "{}: already mounted on {} ({}); unmount that first",
                image.display(),
                entry.dir.display(),
                entry.kind
            )));
        }
        match FileDevice::open(image, options) {
            Ok(file) => {
                let pin = Pin::of(&file, image)?;
                return Ok((syncline_image::formatted(file, image)?, pin));
            }
            Err(DeviceError::Open { errno, .. })
                if IN_USE.contains(&errno) && began.elapsed() < FINISH_WAIT && ending(image) =>
            {
                crate::interrupt::check()?;
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(err) => return Err(err.into()),
        }
    }
}

/// True if a process still serves the image after its unmount.
fn ending(image: &Path) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else { return false };
    let is_ending = |process: std::fs::DirEntry| {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        let own = process.file_name().to_str() == Some(&std::process::id().to_string());
        let is = |word: &str| words.contains(&word.as_bytes());
        !own && is("mount") && image.to_str().is_some_and(is)
    };
    kernel_use(image).is_none() && processes.flatten().any(is_ending)
}

/// Tells the parent, and lets go of its terminal.
fn ready() -> std::io::Result<()> {
    std::env::set_current_dir("/")?;
    std::io::stdout().write_all(&[READY])?;
    std::io::stdout().flush()?;
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

pub(super) type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// Returns the receiver of messages: standard error in the foreground, else the system log.
fn logger(image: &Path, served: bool) -> Log {
    let image = image.display().to_string();
    Arc::new(move |text: &str| {
        if served {
            // Facility daemon, severity error (RFC 3164).
            let (process, said) = (std::process::id(), format!("{image}: {text}"));
            let line = format!("<27>syncline[{process}]: {}", crate::format::line(&said));
            let socket = UnixDatagram::unbound();
            let _ = socket.and_then(|socket| socket.send_to(line.as_bytes(), "/dev/log"));
        } else {
            crate::complain(&format!("{image}: {text}"));
        }
    })
}

/// A worker that panics would leave its program waiting for ever: the process ends instead, the
/// programs get errors, and the next mount recovers.
fn end_on_panic(log: Log) {
    std::panic::set_hook(Box::new(move |info| {
        log(&format!("internal error, please report it: {info}"));
        std::process::abort();
    }));
}
