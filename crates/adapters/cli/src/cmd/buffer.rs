//! `buffer`: the write buffer under any file system, as a file, a block device, or network blocks.

use std::io::IsTerminal;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use syncline_buffer::{Buffer, BufferError, BufferOptions, LogArea, LogId};
use syncline_control::hints::Hinted;
use syncline_control::{Governed, Governor};
use syncline_device::{
    BlockDevice, Clock, DeviceError, FileDevice, FileOptions, Geometry, Kind, Origin, Request,
    WallClock,
};
use syncline_export::{Control, Export, Listen, NbdServer};
use syncline_ondisk::Superblock;
use syncline_ondisk::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET};
use syncline_ondisk::write_log::write_log_of;

use super::hints::{self, RELAX, STRICT};
use crate::args::{BufferAttach, BufferCommand, BufferDir, BufferStatus};
use crate::control;
use crate::error::{Failure, Result};
use crate::format::Out;
use crate::{complain, daemon, interrupt, served};

/// Names of the files in the directory.
const DEVICE: &str = "device";
const STATUS: &str = "status";
const CONTROL: &str = "control";
/// Name of the socket for network blocks.
const SOCKET: &str = "nbd";
/// Ways of serving beside the file.
const NBD: &str = "nbd";
const UBLK: &str = "ublk";
/// Poll interval: of `detach` for the end of the server, and of a server for requests to end.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Work of one visit while the device is idle.
const TICKS_MAX: u32 = 64;

/// Runs one of the commands.
pub(crate) fn run(command: &BufferCommand) -> Result<()> {
    match command {
        BufferCommand::Attach(args) => attach(args),
        BufferCommand::Detach(args) => detach(args),
        BufferCommand::Status(args) => status(args),
        BufferCommand::Relax(args) => super::hints::relax(args),
        BufferCommand::Strict(args) => super::hints::strict(args),
        BufferCommand::Zeros(args) => super::zeros::run(args),
    }
}

fn attach(args: &BufferAttach) -> Result<()> {
    if !args.foreground && !daemon::is_child() {
        let said = daemon::start()?;
        let mut out = Out::new();
        if !said.is_empty() {
            out.text(format!("{said}\n"))?;
        }
        out.flush()?;
        if args.way == NBD && args.listen.is_none() && std::io::stderr().is_terminal() {
            let socket = args.dir.join(SOCKET);
            complain(&format!("as a block device: `{}`", nbd_client(&socket)));
        }
        return Ok(());
    }
    let dir = std::fs::canonicalize(&args.dir).map_err(|err| Failure::host(&args.dir, &err))?;
    let listen = listen(args, &dir)?;
    if args.way == UBLK {
        served::check_ublk()?;
    }
    let made = args.create && !args.log.exists();
    let server = Arc::new(Server {
        hinted: Hinted::new(open(args)?),
        names: [args.device.display().to_string(), args.log.display().to_string()],
        leave: AtomicBool::new(false),
        ready: AtomicBool::new(false),
        governor: Governor::default(),
    });
    let served = serve(args, &dir, listen, &server);
    if made && served.is_err() && !server.ready.load(Ordering::Relaxed) {
        // Nothing was served: the log that this command made is empty. The first error counts.
        let _ = std::fs::remove_file(&args.log);
    }
    served
}

fn serve(
    args: &BufferAttach,
    dir: &Path,
    listen: Option<Listen>,
    server: &Arc<Server>,
) -> Result<()> {
    if !args.policy.is_empty() {
        let words: Vec<String> = args.policy.iter().map(|name| format!("{name}=on")).collect();
        server.set(words.iter().map(String::as_str)).map_err(Failure::Failed)?;
    }
    // Answers until everything is at its place: who asked for that waits for this.
    match listen {
        None if args.way == UBLK => over_ublk(dir, server),
        None => {
            // `detach` has looked for mounts of the loop device, which is over the file.
            let free = Box::new(|| None);
            let _control = control::answer(dir, handler(server, free))?;
            over_fuse(args, server)?;
            server.buffer().drain().map_err(Failure::from)
        }
        Some(listen) => over_nbd(dir, &listen, server),
    }
}

/// The command that makes a block device of a socket.
fn nbd_client(socket: &Path) -> String {
    let load = if Path::new("/dev/nbd0").exists() { "" } else { "modprobe nbd && " };
    format!("{load}nbd-client -unix {} /dev/nbd0", socket.display())
}

/// Returns the address for network blocks; `None` for other kinds of device.
fn listen(args: &BufferAttach, dir: &Path) -> Result<Option<Listen>> {
    if args.way == UBLK && args.attach {
        let text = "--attach makes a loop device of a file; leave it out, --as ublk is a block \
                    device";
        return Err(Failure::Usage(text.to_owned()));
    }
    if args.way != NBD {
        return match args.listen {
            Some(_) => Err(Failure::Usage("--listen is for --as nbd; add that".to_owned())),
            None => Ok(None),
        };
    }
    if args.attach {
        let text = "--attach makes a loop device of a file; leave it out, and give the URI to \
                    nbd-client";
        return Err(Failure::Usage(text.to_owned()));
    }
    let place = args.listen.as_deref().map_or(Ok(Listen::Unix(dir.join(SOCKET))), str::parse);
    place.map(Some).map_err(|why| Failure::Usage(format!("--listen: {why}; give one of these")))
}

/// State shared by all ways of serving.
struct Server {
    hinted: Hinted,
    /// Device and log.
    names: [String; 2],
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
    fn ready(&self, line: &str) -> Result<()> {
        daemon::ready(line)?;
        self.ready.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Does the periodic work; returns false if the server is to end.
    fn visit(&self, clock: &WallClock, said: &mut bool) -> bool {
        keep(self.buffer(), clock, said, &|text| complain(text));
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
fn handler(server: &Arc<Server>, busy: Busy) -> control::Handler {
    let server = Arc::clone(server);
    Box::new(move |line| match line {
        "status" => Ok(server.document()),
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

fn over_fuse(args: &BufferAttach, server: &Arc<Server>) -> Result<()> {
    let file = args.dir.join(DEVICE);
    let served = export(server).serve(&args.dir);
    let served = served.map_err(|err| Failure::Failed(err.to_string()))?;
    let over = || served::over(args.attach.then_some(&*file));
    let (served, node) = served::attached(served, over)?;
    server.ready(&node.as_ref().map_or(String::new(), served::Node::name))?;
    let (clock, mut said) = (WallClock::new(), false);
    served::stay(served, node.as_ref(), || server.visit(&clock, &mut said))
}

fn over_ublk(dir: &Path, server: &Arc<Server>) -> Result<()> {
    let served = Arc::new(served::ublk(Arc::new(SharedBuffer(Arc::clone(server))))?);
    let seen = Arc::clone(&served);
    let busy: Busy = Box::new(move || {
        let node = seen.node().display();
        seen.in_use().then(|| format!("{node} is in use; unmount it with `umount {node}`"))
    });
    let control = control::answer(dir, handler(server, busy))?;
    server.ready(&served.node().display().to_string())?;
    let (clock, mut said) = (WallClock::new(), false);
    while server.visit(&clock, &mut said) && !served.finished() && !interrupt::asked() {
        std::thread::sleep(POLL_INTERVAL);
    }
    let removed = served::remove(&served);
    let drained = server.buffer().drain().map_err(Failure::from);
    drop(control);
    removed.and(drained)
}

fn over_nbd(dir: &Path, listen: &Listen, server: &Arc<Server>) -> Result<()> {
    let device: Arc<dyn BlockDevice> = Arc::new(SharedBuffer(Arc::clone(server)));
    let served = NbdServer { device, name: DEVICE.to_owned() }.serve(listen);
    let served = Arc::new(served.map_err(|err| Failure::Failed(err.to_string()))?);
    let seen = Arc::clone(&served);
    let busy: Busy = Box::new(move || match seen.connections() {
        0 => None,
        clients => Some(format!("{clients} clients are connected; end them, nbd-client -d")),
    });
    let control = control::answer(dir, handler(server, busy))?;
    server.ready(&served.listen().to_string())?;
    let (clock, mut said) = (WallClock::new(), false);
    while server.visit(&clock, &mut said) && !interrupt::asked() {
        std::thread::sleep(POLL_INTERVAL);
    }
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

/// Does the buffer's periodic work. A failure, which has latched the buffer, is reported once.
pub(super) fn keep(buffer: &Buffer, clock: &WallClock, said: &mut bool, say: &dyn Fn(&str)) {
    for _ in 0..TICKS_MAX {
        match buffer.tick(Duration::from_nanos(clock.now_ns())) {
            Ok(true) if !interrupt::asked() => {}
            Ok(_) => break,
            Err(error) => {
                if !std::mem::replace(said, true) {
                    say(&error.to_string());
                }
                break;
            }
        }
    }
}

/// The log's bytes are random where two logs could be taken for each other.
pub(super) fn new_id() -> Result<LogId> {
    let mut id = LogId::default();
    let asked = rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty());
    match asked {
        Ok(len) if len == id.len() => Ok(id),
        _ => Err(Failure::Failed("the kernel gives no random bytes; try again".to_owned())),
    }
}

/// A new file for a log, which has data of files: it is for its owner only.
pub(super) fn make_log(path: &Path, size_bytes: u64) -> Result<()> {
    let mut options = std::fs::File::options();
    let made = options.write(true).create_new(true).mode(0o600).open(path);
    made.and_then(|file| file.set_len(size_bytes)).map_err(|err| Failure::host(path, &err))
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

fn open(args: &BufferAttach) -> Result<Buffer> {
    let home: Arc<dyn BlockDevice> =
        Arc::new(FileDevice::open(&args.device, FileOptions::default())?);
    refuse_marked(&*home).map_err(|err| err.at(args.device.display()))?;
    let made = args.create && !args.log.exists();
    if made {
        make_log(&args.log, args.log_size)?;
    }
    let buffer = open_log(args, home);
    if made && buffer.is_err() {
        // Nothing half-made stays; the first error is the one to report.
        let _ = std::fs::remove_file(&args.log);
    }
    buffer
}

fn open_log(args: &BufferAttach, home: Arc<dyn BlockDevice>) -> Result<Buffer> {
    let log: Arc<dyn BlockDevice> = Arc::new(FileDevice::open(&args.log, FileOptions::default())?);
    let area = LogArea { device: log, same_medium: false };
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

pub(super) fn document(buffer: &Buffer, [device, log]: &[String; 2]) -> Value {
    let mut document = json!({ "schema": "syncline.buffer/1", "device": device, "log": log });
    let status = serde_json::to_value(buffer.status());
    if let (Some(all), Ok(Value::Object(figures))) = (document.as_object_mut(), status) {
        all.extend(figures);
    }
    document
}

/// Asks the server of a directory.
pub(super) fn ask(dir: &Path, request: &str) -> Result<String> {
    control::ask(dir, request)?.ok_or_else(|| {
        Failure::Failed(format!(
            "{}: no server runs; start it with `syncline buffer attach DEVICE {0} --log LOG`",
            dir.display()
        ))
    })
}

fn status(args: &BufferStatus) -> Result<()> {
    let text = ask(&args.dir, STATUS)?;
    let mut out = Out::new();
    if args.json {
        out.text(text)?;
        return out.flush();
    }
    let document: Value = serde_json::from_str(&text)
        .map_err(|err| Failure::Failed(format!("the answer is not JSON: {err}; try --json")))?;
    let word = |name: &str| document[name].as_str().unwrap_or_default().to_owned();
    let number = |name: &str| document[name].as_u64().unwrap_or_default();
    let percent = 100 * number("ring_used_pages") / number("ring_pages").max(1);
    out.text(format!("{} with log {}\n", word("device"), word("log")))?;
    if document["latched"] == Value::Bool(true) {
        out.text("stopped after a device error; writes are refused\n")?;
    }
    out.text(format!("RAM      {} pages\n", number("ram_pages")))?;
    out.text(format!(
        "log      {percent} % of {} pages used, {} of them the newest copy, {} sweeps\n",
        number("ring_pages"),
        number("mapped_pages"),
        number("sweeps")
    ))?;
    out.text(format!(
        "written  {} pages to the log, {} from there to home blocks in {} runs, {} KiB directly\n",
        number("logged_pages"),
        number("cleaned_pages"),
        number("cleaned_runs"),
        number("home_bytes") / 1024
    ))?;
    out.text(format!(
        "flushes  {}, of which {} had nothing to write\n",
        number("flushes"),
        number("flushes_saved")
    ))?;
    out.text(hints::line(&document))?;
    out.flush()
}

fn detach(args: &BufferDir) -> Result<()> {
    ask(&args.dir, STATUS)?;
    // Before it is unmounted: then the same name is another directory.
    let dir: PathBuf =
        std::fs::canonicalize(&args.dir).map_err(|err| Failure::host(&args.dir, &err))?;
    if let Some(node) = served::mounted(&dir.join(DEVICE), None)? {
        return Err(Failure::Failed(format!(
            "{node} is mounted; unmount it with `umount {node}` and detach again"
        )));
    }
    ask(&dir, "detach")?;
    while control::ask(&dir, STATUS).is_ok_and(|answer| answer.is_some()) {
        interrupt::check()?;
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_for_a_block_device_loads_the_module_where_it_is_missing() {
        let said = nbd_client(Path::new("/run/x/nbd"));
        assert!(said.ends_with("nbd-client -unix /run/x/nbd /dev/nbd0"), "{said}");
        assert_eq!(said.starts_with("modprobe nbd && "), !Path::new("/dev/nbd0").exists());
    }
}
