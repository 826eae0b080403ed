//! `mount`: serves an image on a directory until it is unmounted.
//!
//! ```text
//!   syncline mount ──── starts ───> syncline mount --served      (its own session)
//!        | waits                        opens, recovers, mounts
//!        | <──────── one byte ────────  ready; lets go of the terminal
//!      exits 0                          serves ... unmounted or SIGTERM: cleans up, exits
//! ```
//! Until it is ready the serving process has the caller's standard error, and its exit code becomes
//! the caller's. Later failures go to the system log. It opens all that it needs, gives up its
//! rights ([`crate::contain`]), and reads the image only then.
//!
//! This file is long because a mount is one sequence of steps, from the options to the last flush,
//! and a step that fails undoes those before it.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use syncline_buffer::{BufferOptions, LogArea};
use syncline_device::{BlockDevice, Clock, FileDevice, RecordingDevice, SwapDevice, WallClock};
use syncline_fs::{Alloc, Buffered, FsError, LogFormat, MountOptions, MountReport, Volume};
use syncline_fuse::{Capture, FuseOptions, Host, Mount, Mounter, Setup, write_hint};
use syncline_image::Files;
use syncline_image::partition::{Part, part_of};
use syncline_ondisk::FeatureCheck;

use super::mount_control::Live;
use super::mount_open::{Contained, Open, contained};
use super::reopened::Reopened;
use crate::args;
use crate::contain::{self, Rights};
use crate::error::{Failure, Result};
use crate::image::Standard;

/// Byte that the serving process sends when it is ready.
const READY: u8 = b'R';

/// Poll interval for signals and the end of the mount.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Errno of a FUSE mount whose process is gone.
const ENOTCONN: i32 = 107;

/// Mounts; see the module.
pub(crate) fn run(args: &args::Mount) -> Result<()> {
    if args.keeper {
        return contain::keep(args);
    }
    if super::remount::asked(args) {
        return super::remount::run(args, &absolute(&args.dir)?);
    }
    let args = &with_part(args);
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

/// `--partition` and `--offset` as options, which the other processes of the mount get too.
fn with_part(args: &args::Mount) -> args::Mount {
    let (partition, offset) = (args.part.partition, args.part.offset);
    let partition = partition.map(|number| format!("partition={number}"));
    let offset = offset.map(|bytes| format!("offset={bytes}"));
    let mut args = args.clone();
    args.options.extend(partition.into_iter().chain(offset));
    args
}

/// The part of the disk in a file that a mount is of.
fn part(options: &FuseOptions) -> Part {
    match (options.partition, options.offset) {
        (Some(number), _) => Part::Partition(number),
        (None, Some(offset)) => Part::Offset(offset),
        (None, None) => Part::Whole,
    }
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
    // As options they would have to be text.
    for file in &args.part.backing {
        command.arg("--backing").arg(file);
    }
    command.arg("--").arg(image).arg(dir);
    crate::daemon::with_huge_pages(&mut command);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut said = [0];
    let read = child.stdout.take().map_or(Ok(0), |mut out| {
        crate::daemon::await_word(&out, &child);
        out.read(&mut said)
    });
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

/// Mounts the volume, and logs what it has less of than it was asked for.
fn mounted(
    device: Arc<dyn BlockDevice>,
    clock: &Arc<dyn Clock>,
    options: &FuseOptions,
    log: &Log,
) -> syncline_fs::Result<Volume> {
    let (volume, report) = Volume::mount_report(device, Arc::clone(clock), options.volume.clone())?;
    if let Some(warning) = small_zones(&options.volume, &report) {
        log(&warning);
    }
    Ok(volume)
}

/// Settings that follow from the process and the kernel.
pub(super) fn settle(options: &mut FuseOptions) {
    // Where others use the mount, the blocks reserved for root stay root's.
    options.volume.privileged = rustix::process::geteuid().is_root() && !options.allow_other;
    // The kernel says when a writer has not the right to keep them.
    options.volume.set_id_by_caller = true;
    // The number of processors is in files that cannot be read later.
    options.threads = options.workers();
}

/// Says what is missing and what the mount cannot do. The caller's standard error takes it, also of
/// a mount that goes to the background.
fn tell(volume: &Volume, options: &FuseOptions, mounter: Option<&Mounter>, image: &Path) {
    let missing = volume.take_missing().into_iter().map(|what| format!("missing: {what}"));
    let told = missing.chain(mounter.and_then(|mounter| write_hint(volume, options, mounter)));
    told.for_each(|hint| crate::complain(&format!("{}: {hint}", image.display())));
}

/// The reason for the format of the log, which `log=auto` asks for; it is said.
pub(super) fn chosen_log(
    options: &mut FuseOptions,
    at: (&Path, &Path),
    open: &Open,
) -> Option<String> {
    if !options.log_auto {
        return None;
    }
    let (log, reason) = super::mount_log::choose(options, at, open.image.grows());
    options.volume.log = log;
    if log == LogFormat::Jbd2 {
        // Meant for the other choice.
        options.volume.log_unit_bytes = MountOptions::default().log_unit_bytes;
    }
    let name = if log == LogFormat::Packed { "packed" } else { "jbd2" };
    crate::complain(&format!("{}: log=auto is log={name}: {reason}", at.0.display()));
    Some(reason)
}

fn serve(args: &args::Mount, mut options: FuseOptions, image: &Path, dir: &Path) -> Result<()> {
    if args.served {
        // Fails only for a process that leads its group, which a started one does not.
        let _ = rustix::process::setsid();
    }
    settle(&mut options);
    syncline_fuse::prepare_memory();
    let mounter = Mounter::now();
    let (mut open, pin) = Open::all(args, &options, image, dir)?;
    let log_reason = chosen_log(&mut options, (image, dir), &open);
    let null = open.null.take();
    let contained = contained(args, (image, dir), &options, &open, pin)?;
    let ready = null.map(|null| move || ready(&null).map_err(|err| Failure::host(dir, &err)));
    let (mounter, in_background) = (Some(mounter), args.served);
    let serving = Serving { open, contained, options, log_reason, mounter, in_background };
    serving.serve(image, dir, ready)
}

/// Parts of a mount, in a process without rights.
pub(super) struct Serving {
    pub(super) open: Open,
    pub(super) contained: Contained,
    pub(super) options: FuseOptions,
    /// The reason for the format of the log, if it was chosen.
    pub(super) log_reason: Option<String>,
    /// Who hears what the mount cannot do.
    pub(super) mounter: Option<Mounter>,
    /// Nobody sees its standard error when it ends.
    pub(super) in_background: bool,
}

impl Serving {
    /// Mounts `image` on `dir`, says so by `ready`, and serves until the end.
    pub(super) fn serve(
        self,
        image: &Path,
        dir: &Path,
        ready: Option<impl FnOnce() -> Result<()>>,
    ) -> Result<()> {
        let Serving { mut open, contained, options, log_reason, mounter, in_background } = self;
        let clock: Arc<dyn Clock> = Arc::new(WallClock::new());
        let (control, rings) = (open.control.take(), open.rings.take());
        let Contained { host, rights, layers, own_queues } = contained;
        let control = control.map(|socket| {
            let rights = Arc::clone(&rights);
            socket.removed_by(move || rights.remove_control())
        });
        let Stack { counted, traced, buffered, top, writable } =
            stacked(&options, open, image, &clock, &host, &rights)?;
        let logger = Arc::clone(&rights);
        let log: Log = Arc::new(move |text: &str| logger.log(text));
        let volume = match mounted(top, &clock, &options, &log) {
            Ok(volume) => volume,
            Err(err) => {
                // What it refuses is the caller's to know, not what comes of the log.
                let _ = detach(buffered);
                return Err(Failure::from(err).at(image.display()));
            }
        };
        tell(&volume, &options, mounter.as_ref(), image);
        let buffer = buffered.as_ref().map(Buffered::buffer);
        let live = Arc::new(Live::new(&volume, buffer, writable, &rights, &options)?);
        let log_of_buffer = options.buffer_log.clone().unwrap_or_default();
        let setup = Setup {
            counts: Arc::new(move || counted.counts()),
            buffer: buffered.as_ref().map(|buffered| shown(buffered, image, &log_of_buffer)),
            settings: live.settings(),
            capture: traced.as_ref().map(|traced| &traced.capture),
            log: Arc::clone(&log),
            host,
            own_queues,
            rings,
            log_reason,
            sandbox: layers.document(options.sandbox),
            ..Setup::new(dir, volume.clone(), clock, options, image.to_owned())
        };
        // The socket exists before the mount, so that a program that sees the mount can use it.
        let control = control.and_then(|socket| live.answer(socket));
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
        let to_log = Arc::clone(&log);
        crate::end_on_panic(move |line| to_log(line));
        if let Some(ready) = ready {
            ready()?;
            if !layers.missing.is_empty() {
                log(&layers.line());
            }
        }
        stay(&mount, &live, &log);
        drop(control);
        end(mount, buffered, traced, (image, &log)).inspect_err(|failure| {
            if in_background {
                log(failure.message().unwrap_or_default());
            }
        })
    }
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
    /// For a mount with `ro`: the image, or the reason why nobody can write to it.
    writable: std::result::Result<Reopened, String>,
}

fn stacked(
    options: &FuseOptions,
    open: Open,
    image: &Path,
    clock: &Arc<dyn Clock>,
    host: &Arc<dyn Host>,
    rights: &Arc<dyn Rights>,
) -> Result<Stack> {
    let Open { image: files, unpacking, trace, log, .. } = open;
    let only_read = files.only_read();
    let capture = trace
        .map(|trace| Capture::start(trace, Arc::clone(clock), Arc::clone(host)))
        .transpose()?;
    let (counted, place) = opened(options, (files, unpacking), image, clock, rights)?;
    let traced = capture.map(|capture| Traced { capture, _image: Arc::clone(&counted) });
    let buffered = log.map(|(log, made)| {
        let attached = attach(options, &counted, log);
        if made && attached.is_err() {
            // Nothing half-made stays; the error is the one to report.
            rights.remove_log();
        }
        let path = options.buffer_log.as_deref().unwrap_or(image);
        attached.map_err(|err| err.at(path.display()))
    });
    let buffered = buffered.transpose()?;
    let top = tapped(traced.as_ref(), top(buffered.as_ref(), Arc::clone(&counted)));
    let in_memory = readable(&top, options, image, clock)?;
    let replayed = in_memory.is_some() || options.noload || options.volume.rescue.is_some();
    let part = part(options);
    let (image, rights) = (image.to_owned(), Arc::clone(rights));
    let writable = match (only_read, place) {
        (Some(why), _) => Err(why.to_owned()),
        (None, Some(place)) if !replayed => Ok(Reopened { place, image, part, rights }),
        _ => Err("mounted with `noload`, or its log was replayed in memory only; unmount it, and \
                  mount it again"
            .to_owned()),
    };
    Ok(Stack { counted, traced, buffered, top: in_memory.unwrap_or(top), writable })
}

/// The image, which has an ext4, and with `ro` the place in which it can be opened again to write.
fn opened(
    options: &FuseOptions,
    files: (Files, Standard),
    image: &Path,
    clock: &Arc<dyn Clock>,
    rights: &Arc<dyn Rights>,
) -> Result<(Arc<Device>, Option<Arc<SwapDevice>>)> {
    let device = recovered(options, files, image, clock, rights)?;
    if !options.volume.read_only {
        return Ok((Arc::new(RecordingDevice::new(device)), None));
    }
    let place = Arc::new(SwapDevice::new(device));
    Ok((Arc::new(RecordingDevice::new(place.clone())), Some(place)))
}

/// Replays the log of an image for a mount with `ro`, as ext4 does: on the image, if that can be
/// written and neither `noload` nor `norecovery` is given. Gives the disk as it is open then.
fn recovered(
    options: &FuseOptions,
    (files, unpacking): (Files, Standard),
    image: &Path,
    clock: &Arc<dyn Clock>,
    rights: &Arc<dyn Rights>,
) -> Result<Arc<dyn BlockDevice>> {
    let (part, only_read) = (part(options), files.only_read().is_some());
    let disk = part_of(files.disk(&unpacking)?, part, image)?;
    if options.volume.rescue.is_some() {
        return Ok(disk);
    }
    let superblock = crate::image::superblock(&*disk, image)?;
    // Features that can only be read leave the log where it is: readers have it in memory.
    let may_write = superblock.check_features() == Ok(FeatureCheck::ReadWrite);
    let wanted = options.volume.read_only && !options.noload && !only_read;
    if !wanted || !superblock.needs_recovery() || !may_write {
        return Ok(disk);
    }
    drop(disk);
    let open = |read_only| {
        let disk = syncline_image::formatted(rights.open_image(read_only)?, image)?;
        Ok(part_of(disk, part, image)?)
    };
    // Who may not write has it in memory; what else is wrong is wrong for a reader, too.
    let writable: Result<Arc<dyn BlockDevice>> = open(false);
    if let Some(disk) = writable.ok().filter(|disk| !disk.geometry().read_only) {
        let mounted = Volume::mount(disk, Arc::clone(clock), MountOptions::default());
        let recovered = mounted.and_then(Volume::unmount);
        recovered.map_err(|err| Failure::from(err).at(image.display()))?;
    }
    open(true)
}

/// The device in memory in which a log is replayed that is still to be replayed for `ro`.
fn readable(
    device: &Arc<dyn BlockDevice>,
    options: &FuseOptions,
    image: &Path,
    clock: &Arc<dyn Clock>,
) -> Result<Option<Arc<dyn BlockDevice>>> {
    if !options.volume.read_only || options.volume.rescue.is_some() {
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
fn attach(options: &FuseOptions, image: &Arc<Device>, log: FileDevice) -> Result<Buffered> {
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

/// Tells the parent, and lets go of its terminal.
fn ready(null: &File) -> std::io::Result<()> {
    std::env::set_current_dir("/")?;
    std::io::stdout().write_all(&[READY])?;
    std::io::stdout().flush()?;
    rustix::stdio::dup2_stdout(null)?;
    rustix::stdio::dup2_stderr(null)?;
    Ok(())
}

pub(super) type Log = Arc<dyn Fn(&str) + Send + Sync>;
