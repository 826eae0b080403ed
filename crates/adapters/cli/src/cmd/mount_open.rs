//! Files and sockets of a mount, opened before it gives up its rights.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use syncline_device::{
    BlockDevice, DeviceError, FileDevice, FileOptions, kernel_use, mounted_image,
};
use syncline_fuse::{Affinity, Capture, FuseOptions, Host, Rings, Sandbox, TraceFile};
use syncline_image::Files;

use super::reopened::Pin;
use crate::args;
use crate::contain::{self, Keeper, Keeps, Layers, Limits, Local, Rights, Served};
use crate::control::{self, Bound};
use crate::error::{Failure, Result};
use crate::image::Standard;

/// Longest wait of a mount for the previous mount of the image to finish.
const FINISH_WAIT: Duration = Duration::from_secs(30);

/// Size of a log that is made, unless told otherwise.
const LOG_BYTES: u64 = 64 << 20;

/// EWOULDBLOCK of the lock, EBUSY of a block device.
pub(super) const IN_USE: [i32; 2] = [11, 16];

/// Most open descriptors of a mount: image, log, trace, two for each of 128 workers, clients.
pub(super) const DESCRIPTORS_MAX: u64 = 512;

/// Descriptors of a file beside the image: two, and two copies.
const DESCRIPTORS_BESIDE: u64 = 4;

/// Memory for data of a mount besides four times its caches: stacks, tables, buffers.
pub(super) const DATA_BYTES: u64 = 2 << 30;

/// Files and sockets of a mount, opened while it has the rights to.
pub(super) struct Open {
    pub(super) image: Files,
    /// Shows how a compressed image is unpacked.
    pub(super) unpacking: Standard,
    pub(super) trace: Option<TraceFile>,
    /// The log of the write buffer, and whether it is new.
    pub(super) log: Option<(FileDevice, bool)>,
    pub(super) control: Option<Bound>,
    /// Rings for requests.
    pub(super) rings: Option<Rings>,
    /// `/dev/null`, in the place of the terminal of a mount in the background.
    pub(super) null: Option<File>,
}

impl Open {
    pub(super) fn all(
        args: &args::Mount,
        options: &FuseOptions,
        image: &Path,
        dir: &Path,
    ) -> Result<(Open, Pin)> {
        let (file, pin) = open(image, options.volume.read_only)?;
        let backing = [&options.backing[..], &args.part.backing].concat();
        let files = Files::open(file, image, &backing)?;
        files.repair()?;
        let log = options.buffer_log.as_ref().map(|path| {
            let made = !path.exists();
            if made {
                let size_bytes = options.buffer_log_size.unwrap_or(LOG_BYTES);
                super::buffer::make_log(path, size_bytes)?;
            }
            let opened = FileDevice::open(path, FileOptions::default()).map_err(Failure::from);
            if made && opened.is_err() {
                // Nothing half-made stays; the error is the one to report.
                let _ = std::fs::remove_file(path);
            }
            Ok::<_, Failure>((opened.map_err(|err| err.at(path.display()))?, made))
        });
        let log = log.transpose()?;
        let said = |failure: &Failure| crate::complain(failure.message().unwrap_or_default());
        let control = control::bind(dir).inspect_err(said).ok();
        // The file of a trace, with a path that holds in any working directory.
        let trace = options.trace.as_ref().map(|file| {
            let path = std::path::absolute(file).map_err(|err| Failure::host(file, &err))?;
            Ok::<_, Failure>(Capture::create(&path)?)
        });
        let null = args.served.then(|| {
            let null = File::options().read(true).write(true).open("/dev/null");
            null.map_err(|err| Failure::host("/dev/null".as_ref(), &err))
        });
        let (trace, null) = (trace.transpose()?, null.transpose()?);
        let rings = rings(options, image);
        let unpacking = Standard::contained("unpack");
        Ok((Open { image: files, unpacking, trace, log, control, rings, null }, pin))
    }

    /// Limits of the process that serves it.
    pub(super) fn limits(&self, options: &FuseOptions) -> Limits {
        let cache_bytes = options.volume.cache_bytes.max(options.buffer_ram.unwrap_or_default());
        let size_bytes = |file: &FileDevice| file.geometry().size_bytes;
        let log_bytes = self.log.as_ref().map_or(0, |(log, _)| size_bytes(log));
        let grows = self.trace.is_some() || self.image.grows();
        let beside = self.image.beside().count() as u64;
        Limits {
            descriptors: DESCRIPTORS_MAX + beside * DESCRIPTORS_BESIDE,
            data_bytes: DATA_BYTES + cache_bytes.saturating_mul(4),
            // `strict` does without rather than keep a capability.
            keeps: match (options.affinity, options.sandbox) {
                (Affinity::Caller, Sandbox::Best) => Keeps::Binds,
                _ => Keeps::Nothing,
            },
            file_bytes: (!grows).then(|| size_bytes(self.image.image()).max(log_bytes)),
        }
    }
}

/// Rings for the workers of a mount, if the kernel offers them for requests.
pub(super) fn rings(options: &FuseOptions, image: &Path) -> Option<Rings> {
    Rings::of(options).unwrap_or_else(|err| {
        let text = "requests come through /dev/fuse, since this system allows no io_uring";
        crate::complain(&format!("{}: {text}: {err}", image.display()));
        None
    })
}

/// Rights and layers of a mount that gave up its own rights.
pub(super) struct Contained {
    pub(super) host: Arc<dyn Host>,
    pub(super) rights: Arc<dyn Rights>,
    pub(super) layers: Layers,
    pub(super) own_queues: bool,
}

/// Gives up the rights of this process, as `sandbox=` asks; another one keeps them.
pub(super) fn contained(
    args: &args::Mount,
    (image, dir): (&Path, &Path),
    options: &FuseOptions,
    open: &Open,
    pin: Pin,
) -> Result<Contained> {
    let has_new_log = matches!(open.log, Some((_, true)));
    let of = &Served { image, dir, in_background: args.served, has_new_log };
    let kept = match options.sandbox {
        Sandbox::Off => None,
        _ => Keeper::start(of, args, &pin, &open.image, open.trace.as_ref()).map(Some).or_else(
            |err| {
                let layers = Layers::without("a process that keeps the rights");
                layers.check(options.sandbox)?;
                crate::complain(&format!("{}: {}: {err}", of.image.display(), layers.line()));
                Ok::<_, Failure>(None)
            },
        )?,
    };
    let Some(keeper) = kept else {
        let place = open.trace.as_ref().map(|trace| Arc::clone(&trace.place));
        let local = Arc::new(Local::new(of, options, pin, place));
        let layers = Layers::default();
        let own_queues = contain::may_open_fuse();
        return Ok(Contained { host: local.host(), rights: local, layers, own_queues });
    };
    let (layers, own_queues) = contain::enter(open.limits(options), &["/dev/fuse"]);
    layers.check(options.sandbox)?;
    let keeper = Arc::new(keeper);
    let own_queues = own_queues && contain::may_open_fuse();
    Ok(Contained { host: keeper.clone(), rights: keeper, layers, own_queues })
}

/// Opens the image, unless it is mounted. Waits for a process that is ending its mount of it.
fn open(image: &Path, read_only: bool) -> Result<(FileDevice, Pin)> {
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
                return Ok((file, pin));
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
