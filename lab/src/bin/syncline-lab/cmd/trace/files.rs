//! Records the calls of every program on the files of a directory, from the events of the
//! kernel's ext4.
//!
//! ```text
//!   inode, size and path of each file below DIR ───────────────> RECORDING
//!   tracefs instance of its own, events of its file system ────> RECORDING
//! ```
//!
//! The recording is text that `syncline_lab::trace` imports as `ext4`. The events of this
//! process are left out. The instance is removed at the end, whatever happens.

use std::fs::{self, File};
use std::io::{BufWriter, ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use syncline_device::mounted_image;

use crate::tracefs::{Instance, kernel_filter};
use syncline_cli::error::{Failure, Result};
use syncline_cli::{complain, interrupt};

/// Events that are recorded; the first one is in every kernel.
const EVENTS: [&str; 9] = [
    "ext4_sync_file_enter",
    "ext4_da_write_end",
    "ext4_write_end",
    "ext4_journalled_write_end",
    "ext4_allocate_inode",
    "ext4_begin_ordered_truncate",
    "ext4_fallocate_enter",
    "ext4_evict_inode",
    "ext4_sync_fs",
];
/// Memory of the event buffer of each processor, KiB: a second of a hundred thousand writes.
const BUFFER_KIB: u32 = 16 << 10;
/// Pause between two looks into the buffers.
const PAUSE: Duration = Duration::from_millis(100);
/// `f_type` of ext2, ext3 and ext4.
const EXT4_MAGIC: u64 = 0xEF53;

/// True for what is recorded: a directory, or a device with a mounted file system.
pub(crate) fn is_place(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_dir() || meta.file_type().is_block_device())
}

/// Records into `recording` until the time is over or Ctrl-C.
pub(crate) fn record(place: &Path, time: Duration, recording: &File) -> Result<()> {
    let failed = |err: std::io::Error| Failure::host(place, &err);
    let dir = directory(place)?;
    let magic = rustix::fs::statfs(&dir).map_err(|err| failed(err.into()))?.f_type;
    if magic as u64 != EXT4_MAGIC {
        let text = "not on ext4 of the kernel; record a program with `syncline-lab trace record`, \
                    or what a mount of Syncline does with `syncline mount -o trace=DIR`";
        return Err(Failure::Unsupported(format!("{}: {text}", place.display())));
    }
    let device = fs::metadata(&dir).map_err(failed)?.dev();
    let events = enabled(device)?;
    let mut out = BufWriter::new(recording);
    list(&dir, device, &mut out).map_err(failed)?;
    interrupt::check()?;
    let mut pipe = File::options()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(events.path("trace_pipe"))
        .map_err(failed)?;
    let set = |value: &str| events.set("tracing_on", value).map_err(Failure::Failed);
    set("1")?;
    let (shown, seconds) = (place.display(), time.as_secs());
    complain(&format!("recording {shown} for {seconds} s; Ctrl-C ends it earlier"));
    let began = Instant::now();
    while began.elapsed() < time && !interrupt::asked() {
        std::thread::sleep(PAUSE.min(time));
        drain(&mut pipe, &mut out).map_err(failed)?;
    }
    set("0")?;
    drain(&mut pipe, &mut out).map_err(failed)?;
    out.flush().map_err(failed)?;
    match lost(&events) {
        0 => {}
        lost => complain(&format!("{shown}: {lost} events came too fast and are lost")),
    }
    // What was recorded until then is what was asked for.
    interrupt::forget();
    Ok(())
}

/// The directory itself, or where the device is mounted.
fn directory(place: &Path) -> Result<PathBuf> {
    if place.is_dir() {
        return Ok(place.to_owned());
    }
    let mount = mounted_image(place).map(|mount| mount.dir);
    mount.ok_or_else(|| {
        Failure::Usage(format!("{}: not mounted; mount it, or name a directory", place.display()))
    })
}

/// The events of a file system, off until the list is written.
fn enabled(device: u64) -> Result<Instance> {
    let events = Instance::new().map_err(Failure::Failed)?;
    let set = |file: &str, text: &str| events.set(file, text);
    let filter = format!("{} && common_pid != {}", kernel_filter(device), std::process::id());
    set("tracing_on", "0").map_err(Failure::Failed)?;
    set("buffer_size_kb", &BUFFER_KIB.to_string()).map_err(Failure::Failed)?;
    for event in EVENTS {
        let enabled = set(&format!("events/ext4/{event}/filter"), &filter)
            .and_then(|()| set(&format!("events/ext4/{event}/enable"), "1"));
        // Kernels differ in the ways of a write.
        if event == EVENTS[0] {
            enabled.map_err(Failure::Failed)?;
        }
    }
    Ok(events)
}

/// Writes a line for the directory and each file and directory below it, on its file system.
fn list(root: &Path, device: u64, out: &mut impl Write) -> std::io::Result<()> {
    let mut dirs = vec![(root.to_owned(), String::new())];
    let inode = fs::metadata(root)?.ino();
    writeln!(out, "present\t{inode}\t-\t")?;
    while let Some((dir, path)) = dirs.pop().filter(|_| !interrupt::asked()) {
        let entries = match fs::read_dir(&dir) {
            Err(err) if err.kind() == ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            // It may be gone by now.
            let meta = entry.metadata().ok().filter(|meta| meta.dev() == device);
            let Some(meta) = meta else { continue };
            let name = entry.file_name().to_string_lossy().replace('\n', "?");
            let path = format!("{path}/{name}");
            if meta.is_dir() {
                writeln!(out, "present\t{}\t-\t{path}", meta.ino())?;
                dirs.push((entry.path(), path));
            } else if meta.is_file() {
                writeln!(out, "present\t{}\t{}\t{path}", meta.ino(), meta.len())?;
            }
        }
    }
    Ok(())
}

/// Copies what is in the buffers.
fn drain(pipe: &mut File, out: &mut impl Write) -> std::io::Result<()> {
    let mut text = [0; 64 << 10];
    loop {
        match pipe.read(&mut text) {
            Ok(0) => return Ok(()),
            Ok(len) => out.write_all(&text[..len])?,
            Err(err) if err.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(err) => return Err(err),
        }
    }
}

/// Events that the kernel overwrote before they were read.
fn lost(events: &Instance) -> u64 {
    let stats = |cpu: fs::DirEntry| fs::read_to_string(cpu.path().join("stats")).ok();
    let of = |text: String| {
        let number = text.lines().find_map(|line| line.strip_prefix("overrun: "));
        number.and_then(|number| number.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    let cpus = fs::read_dir(events.path("per_cpu")).into_iter().flatten().flatten();
    cpus.filter_map(stats).map(of).sum()
}
