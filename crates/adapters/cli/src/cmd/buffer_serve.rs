//! The server of a write buffer: a file, a block device, or network blocks.
//!
//! ```text
//!   device, log, /dev/null, a ring     opened with the rights of the caller
//!   Hands                              a process that keeps these rights (`buffer_keeper.rs`)
//!   contain::enter                     the server has none any more
//!   Buffer                             reads the log; requests come
//! ```
//!
//! Promise: what reads the log, the device and the requests of clients has the rights of
//! [`crate::contain`] alone. `buffer status` says which layers hold. Tested in
//! `tests/fuzz_targets/tests/it/takeover.rs`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use syncline_buffer::{Buffer, BufferError, BufferOptions, LogArea};
use syncline_control::hints::Hinted;
use syncline_control::socket::{ControlSocket, Handler};
use syncline_control::{Governed, Governor};
use syncline_device::{
    BlockDevice, Clock, DeviceError, FileDevice, FileOptions, Geometry, Kind, Origin, Request,
    WallClock,
};
use syncline_export::{
    Control, Export, ExportError, Listen, Mounted, NbdServer, UblkQueue, UblkRing,
};
use syncline_fuse::Sandbox;
use syncline_ondisk::Superblock;
use syncline_ondisk::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET};
use syncline_ondisk::write_log::write_log_of;

use super::buffer::{
    DEVICE, POLL_INTERVAL, STATUS, UBLK, check_sensor, document, keep, listen, make_log, new_id,
};
use super::buffer_keeper::Hands;
use super::hints::{self, RELAX, STRICT};
use super::mount_open::{DATA_BYTES, DESCRIPTORS_MAX};
use crate::args::BufferAttach;
use crate::contain::{self, Keeps, Layers, Limits, TAKEOVER, attacked};
use crate::daemon::Waiting;
use crate::error::{Failure, Result};
use crate::{complain, interrupt, served};

const CONTROL: &str = "control";

/// Opens device and log, gives up all rights, and serves until the buffer is detached.
pub(super) fn serve(args: &BufferAttach) -> Result<()> {
    let dir = std::fs::canonicalize(&args.dir).map_err(|err| Failure::host(&args.dir, &err))?;
    let listen = listen(args, &dir)?;
    check_sensor(args)?;
    if args.way == UBLK {
        served::check_ublk()?;
    }
    let waiting = Waiting::new()?;
    let home = FileDevice::open(&args.device, FileOptions::default())?;
    let made = args.create && !args.log.exists();
    if made {
        make_log(&args.log, args.log_size)?;
    }
    let opened = FileDevice::open(&args.log, FileOptions::default()).map_err(Failure::from);
    let entered = opened.and_then(|log| {
        let sizes = [&home, &log].map(|file| file.geometry().size_bytes);
        let (entered, layers) = Entered::now(args, dir, waiting, made, sizes)?;
        Ok((log, entered, layers))
    });
    let (log, mut entered, layers) = entered.inspect_err(|_| {
        if made {
            // Nothing half-made stays; the error is the one to report.
            let _ = std::fs::remove_file(&args.log);
        }
    })?;
    let ready = AtomicBool::new(false);
    let hands = Arc::clone(&entered.hands);
    let served = open(args, home, log).and_then(|buffer| {
        let look = Arc::clone(&hands);
        let server = Arc::new(Server {
            hinted: Hinted::new(buffer),
            names: [args.device.display().to_string(), args.log.display().to_string()],
            layers,
            leave: AtomicBool::new(false),
            ready: AtomicBool::new(false),
            governor: Governor::with(Arc::new(move || look.services())),
        });
        let served = serve_over(args, listen.as_ref(), &server, &mut entered);
        ready.store(server.ready.load(Ordering::Relaxed), Ordering::Relaxed);
        served
    });
    if made && served.is_err() && !ready.load(Ordering::Relaxed) {
        // Nothing was served: the log that this command made is empty.
        hands.remove_log();
    }
    served
}

/// A process that has given up its rights, and what it has instead.
struct Entered {
    dir: PathBuf,
    hands: Arc<Hands>,
    waiting: Waiting,
    /// User and group of the caller.
    owner: (u32, u32),
    own_queues: bool,
    /// With `--as ublk`.
    queue: Option<UblkQueue>,
}

impl Entered {
    fn now(
        args: &BufferAttach,
        dir: PathBuf,
        waiting: Waiting,
        has_new_log: bool,
        sizes: [u64; 2],
    ) -> Result<(Entered, Layers)> {
        let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let serves_ublk = args.way == UBLK;
        let ring = serves_ublk.then(UblkRing::new).transpose();
        let ring = ring.map_err(|err| served::ublk_failure(err.into()))?;
        let (hands, layers, own_queues) = match Hands::kept(args, &dir, has_new_log) {
            Ok(hands) => {
                let limits = Limits {
                    descriptors: DESCRIPTORS_MAX,
                    data_bytes: DATA_BYTES + args.ram.saturating_mul(4),
                    file_bytes: Some(sizes[0].max(sizes[1])),
                    keeps: if serves_ublk { Keeps::ServesUblk } else { Keeps::Nothing },
                };
                let (layers, own_queues) = contain::enter(limits, &["/dev/fuse"]);
                (hands, layers, own_queues)
            }
            Err(err) => {
                let layers = Layers::without("a process that keeps the rights");
                complain(&format!("{}: {}: {err}", args.device.display(), layers.line()));
                (Hands::own(args, &dir, has_new_log)?, layers, true)
            }
        };
        let start = |ring| UblkQueue::start(ring, contain::give_up).map_err(served::ublk_failure);
        let queue = ring.map(start).transpose()?;
        // Without a keeper this thread makes the device itself.
        if serves_ublk && matches!(hands, Hands::Kept(_)) {
            contain::give_up();
        }
        let own_queues = own_queues && contain::may_open_fuse();
        let hands = Arc::new(hands);
        Ok((Entered { dir, hands, waiting, owner, own_queues, queue }, layers))
    }

    /// Answers on the control socket.
    fn answer(&self, handler: Handler) -> Result<ControlSocket> {
        let hands = Arc::clone(&self.hands);
        let bound = hands.control(self.owner.0)?.removed_by(move || hands.remove_control());
        let failed = |err: std::io::Error| Failure::Failed(format!("no control socket: {err}"));
        bound.answer(handler).map_err(failed)
    }
}

fn serve_over(
    args: &BufferAttach,
    listen: Option<&Listen>,
    server: &Arc<Server>,
    entered: &mut Entered,
) -> Result<()> {
    // Before those of the user, which stay as they are set.
    server.governor.set_later(vec!["power=on", "session=on"]);
    if !args.policy.is_empty() {
        let words: Vec<String> = args.policy.iter().map(|name| format!("{name}=on")).collect();
        server.set(words.iter().map(String::as_str)).map_err(Failure::Failed)?;
    }
    // Answers until everything is at its place: who asked for that waits for this.
    match listen {
        None if args.way == UBLK => over_ublk(server, entered),
        None => {
            // `detach` has looked for mounts of the loop device, which is over the file.
            let free = Box::new(|| None);
            let _control = entered.answer(handler(server, free))?;
            over_fuse(args, server, entered)?;
            server.buffer().drain().map_err(Failure::from)
        }
        Some(listen) => over_nbd(listen, server, entered),
    }
}

/// State shared by all ways of serving.
struct Server {
    hinted: Hinted,
    /// Device and log.
    names: [String; 2],
    layers: Layers,
    leave: AtomicBool,
    /// True once it was told that the device is served.
    ready: AtomicBool,
    governor: Governor,
}

impl Server {
    fn buffer(&self) -> &Buffer {
        self.hinted.buffer()
    }

    /// Changes settings and policies, as `ctl set` does.
    fn set<'a>(&self, words: impl Iterator<Item = &'a str>) -> std::result::Result<(), String> {
        self.governor.set(Governed::buffer(self.buffer()), words)
    }

    fn document(&self) -> String {
        let mut document = document(self.buffer(), &self.names);
        document["settings"] = self.governor.document(Governed::buffer(self.buffer()));
        document["sandbox"] = self.layers.document(Sandbox::Best);
        hints::describe(&self.hinted, &mut document);
        format!("{document:#}\n")
    }

    fn detach(&self) -> std::result::Result<(), String> {
        self.buffer().drain().map_err(|err| {
            format!(
                "the log was not drained ({err}); correct the device, end the server and attach \
                 again"
            )
        })?;
        self.leave.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Tells who waits that the device is served.
    fn ready(&self, waiting: &Waiting, line: &str) -> Result<()> {
        waiting.ready(line)?;
        self.ready.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Does the periodic work until the server is to end, or has ended.
    fn stay(&self, ended: impl Fn() -> bool) {
        let (clock, mut said) = (WallClock::new(), false);
        while self.visit(&clock, &mut said) && !ended() && !interrupt::asked() {
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Does the periodic work; returns false if the server is to end.
    fn visit(&self, clock: &WallClock, said: &mut bool) -> bool {
        keep(self.buffer(), clock, said, &|text| complain(text));
        if self.hinted.status().relaxed_files > 0 {
            self.governor
                .guard(Governed::buffer(self.buffer()))
                .iter()
                .for_each(|line| complain(line));
        }
        // A failure has latched the buffer: the next visit says it.
        let _ = self
            .governor
            .visit(Governed::buffer(self.buffer()), Duration::from_nanos(clock.now_ns()));
        !self.leave.load(Ordering::Relaxed)
    }
}

/// Why the device may not go yet.
type Busy = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// Makes the handler of the control socket's commands.
fn handler(server: &Arc<Server>, busy: Busy) -> Handler {
    let server = Arc::clone(server);
    Box::new(move |line| match line {
        "status" => Ok(server.document()),
        "takeover" if TAKEOVER.get().is_some() => Ok(attacked()),
        "detach" => match busy() {
            Some(why) => Err(why),
            None => server.detach().map(|()| String::new()),
        },
        "clean" => {
            let drained = server.buffer().drain().map(|()| String::new());
            drained.map_err(|err| format!("the log was not drained ({err}); correct the device"))
        }
        other => match other.split_once(' ') {
            Some(("set", words)) => server.set(words.split_whitespace()).map(|()| String::new()),
            Some((RELAX, files)) => hints::answer(&server.hinted, files, Hinted::relax),
            Some((STRICT, files)) => hints::answer(&server.hinted, files, hints::harden),
            _ => Err(format!(
                "`{other}` is not a request; use status, set, relax, strict, clean or detach"
            )),
        },
    })
}

fn over_fuse(args: &BufferAttach, server: &Arc<Server>, entered: &Entered) -> Result<()> {
    let Entered { dir, hands, waiting, owner, own_queues, .. } = entered;
    let device = hands.mount()?;
    let mounted = Mounted { dir, device, owner: *owner, own_queues: *own_queues };
    let failed = |err: ExportError| Failure::Failed(err.to_string());
    let served = export(server).serve_mounted(mounted).map_err(failed).inspect_err(|_| {
        // The first failure is the one to report.
        let _ = hands.unmount();
    })?;
    let node = args.attach.then(|| hands.attach_loop()).transpose();
    let begun = node.and_then(|node| {
        server.ready(waiting, node.as_deref().unwrap_or_default())?;
        Ok(node)
    });
    let node = match begun {
        Ok(node) => node,
        Err(failure) => {
            hands.detach_loop();
            hands.unmount()?;
            served.wait().map_err(failed)?;
            return Err(failure);
        }
    };
    server.stay(|| served.finished());
    if !served.finished() {
        if let Some(node) = node.filter(|_| !hands.detach_loop()) {
            complain(&format!("{node} is still attached; detach it with `losetup -d {node}`"));
        }
        hands.unmount()?;
    }
    served.wait().map_err(failed)
}

fn over_ublk(server: &Arc<Server>, entered: &mut Entered) -> Result<()> {
    let (hands, waiting) = (&entered.hands, &entered.waiting);
    let Some(queue) = entered.queue.take() else { return Ok(()) };
    let device = Arc::new(SharedBuffer(Arc::clone(server)));
    let (node, file) = hands.add_ublk(device.geometry())?;
    let serving = match queue.serve(device, file) {
        Ok(serving) => serving,
        Err(err) => {
            // The first failure is the one to report.
            let _ = hands.delete_ublk();
            return Err(served::ublk_failure(err));
        }
    };
    let end = || {
        let stopped = hands.stop_ublk();
        let ended = serving.end().map_err(served::ublk_failure);
        stopped.and(hands.delete_ublk()).and(ended)
    };
    if let Err(failure) = hands.start_ublk() {
        let _ = end();
        return Err(failure);
    }
    let (name, asks) = (node.clone(), Arc::clone(hands));
    let busy: Busy = Box::new(move || {
        asks.ublk_in_use().then(|| format!("{name} is in use; unmount it with `umount {name}`"))
    });
    let control = entered.answer(handler(server, busy));
    let begun = control.and_then(|control| server.ready(waiting, &node).map(|()| control));
    let control = match begun {
        Ok(control) => control,
        Err(failure) => {
            let _ = end();
            return Err(failure);
        }
    };
    server.stay(|| serving.finished());
    served::await_end_of_use(&node, || hands.ublk_in_use());
    let removed = end();
    let drained = server.buffer().drain().map_err(Failure::from);
    drop(control);
    removed.and(drained)
}

fn over_nbd(listen: &Listen, server: &Arc<Server>, entered: &Entered) -> Result<()> {
    let socket = entered.hands.listen(listen)?;
    let device: Arc<dyn BlockDevice> = Arc::new(SharedBuffer(Arc::clone(server)));
    let hands = Arc::clone(&entered.hands);
    let nbd = NbdServer { device, name: DEVICE.to_owned() };
    let served = nbd.serve_at(socket, move || hands.remove_socket());
    let served = Arc::new(served.map_err(|err| Failure::Failed(err.to_string()))?);
    let seen = Arc::clone(&served);
    let busy: Busy = Box::new(move || match seen.connections() {
        0 => None,
        clients => Some(format!("{clients} clients are connected; end them, nbd-client -d")),
    });
    let control = entered.answer(handler(server, busy))?;
    server.ready(&entered.waiting, &served.listen().to_string())?;
    server.stay(|| false);
    served.stop();
    let drained = server.buffer().drain().map_err(Failure::from);
    drop(control);
    drained
}

/// The buffer of a server as a device.
struct SharedBuffer(Arc<Server>);

impl BlockDevice for SharedBuffer {
    fn geometry(&self) -> Geometry {
        self.0.hinted.geometry()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> std::result::Result<(), DeviceError> {
        self.0.hinted.submit(batch)
    }
}

/// An image that a mount left with its log is that mount's.
fn refuse_marked(home: &dyn BlockDevice) -> Result<()> {
    let mut sb = [0; SUPERBLOCK_BYTES];
    let fits = home.geometry().size_bytes >= SUPERBLOCK_OFFSET + SUPERBLOCK_BYTES as u64;
    if fits {
        home.read(SUPERBLOCK_OFFSET, &mut sb, Origin::new(Kind::Metadata, true))?;
    }
    let marked = Superblock::decode(&sb).is_ok() && write_log_of(&sb).is_some();
    if !marked {
        return Ok(());
    }
    Err(Failure::Unsupported(
        "a mount left its newest data in a write log; mount it with that log, `syncline mount -o \
         buffer_log=LOG`, and unmount it"
            .to_owned(),
    ))
}

fn open(args: &BufferAttach, home: FileDevice, log: FileDevice) -> Result<Buffer> {
    refuse_marked(&home).map_err(|err| err.at(args.device.display()))?;
    let home: Arc<dyn BlockDevice> = Arc::new(home);
    let area = LogArea { device: Arc::new(log), same_medium: false };
    if args.create {
        Buffer::create_log(&area, home.geometry().size_bytes, new_id()?, args.force)
            .map_err(|err| failure(args, err))?;
    }
    let defaults = BufferOptions::default();
    let options = BufferOptions {
        ram_bytes: args.ram,
        relaxed_bytes_max: defaults.relaxed_bytes_max.min(args.ram),
        ..defaults
    };
    let clock = Arc::new(WallClock::new());
    Buffer::open_measured(home, Some(area), options, Some(clock)).map_err(|err| failure(args, err))
}

/// With the options that are the next step.
fn failure(args: &BufferAttach, error: BufferError) -> Failure {
    let place = match error {
        BufferError::NoPage { .. } | BufferError::ReadOnly => &args.device,
        _ => &args.log,
    };
    let failure = match error {
        BufferError::Device(error) => error.into(),
        BufferError::NoLog => Failure::Failed(
            "there is no write log in it; make one with --create, which overwrites it".to_owned(),
        ),
        BufferError::InUse { what } => Failure::Failed(format!(
            "it is not empty: {what}; check that it is the right one, then add --force"
        )),
        BufferError::Corrupt { .. } => Failure::Corrupt(error.to_string()),
        BufferError::Unsupported { .. } => Failure::Unsupported(error.to_string()),
        BufferError::OtherDevice { .. }
        | BufferError::TooSmall { .. }
        | BufferError::FewZones
        | BufferError::NoPage { .. }
        | BufferError::ReadOnly => Failure::Failed(error.to_string()),
    };
    failure.at(place.display())
}

fn export(server: &Arc<Server>) -> Export {
    let (shown, left) = (Arc::clone(server), Arc::clone(server));
    let status = Control { name: STATUS, read: Box::new(move || shown.document()), write: None };
    let control = Control {
        name: CONTROL,
        read: Box::new(|| "detach\n".to_owned()),
        write: Some(Box::new(move |word| match word {
            "detach" => left.detach(),
            other => Err(format!("`{other}` is not detach")),
        })),
    };
    let device = Arc::new(SharedBuffer(Arc::clone(server)));
    Export { device, name: DEVICE, controls: vec![status, control] }
}
