//! `buffer`: the write buffer under any file system, as a file, a block device, or network blocks.

use std::io::IsTerminal;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use syncline_buffer::{Buffer, LogId};
use syncline_device::{Clock, WallClock};
use syncline_export::Listen;

use super::{buffer_keeper, buffer_serve, hints};
use crate::args::{BufferAttach, BufferCommand, BufferDir, BufferStatus};
use crate::error::{Failure, Result};
use crate::format::Out;
use crate::{complain, control, daemon, interrupt, served};

/// Names of the files in the directory.
pub(super) const DEVICE: &str = "device";
pub(super) const STATUS: &str = "status";
/// Name of the socket for network blocks.
const SOCKET: &str = "nbd";
/// Ways of serving beside the file.
const NBD: &str = "nbd";
pub(super) const UBLK: &str = "ublk";
/// Poll interval: of `detach` for the end of the server, and of a server for requests to end.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(20);
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
    if args.keeper {
        return buffer_keeper::keep(args);
    }
    if args.foreground || daemon::is_child() {
        return buffer_serve::serve(args);
    }
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
    Ok(())
}

/// The command that makes a block device of a socket.
fn nbd_client(socket: &Path) -> String {
    let load = if Path::new("/dev/nbd0").exists() { "" } else { "modprobe nbd && " };
    format!("{load}nbd-client -unix {} /dev/nbd0", socket.display())
}

/// Refuses a program that root must not run.
pub(super) fn check_sensor(args: &BufferAttach) -> Result<()> {
    match &args.sensor {
        Some(program) if program.exists() && !syncline_device::may_run(program) => {
            let text = "--sensor names a program that others can change; as root name one that \
                        only root can";
            Err(Failure::Usage(text.to_owned()))
        }
        _ => Ok(()),
    }
}

/// Returns the address for network blocks; `None` for other kinds of device.
pub(super) fn listen(args: &BufferAttach, dir: &Path) -> Result<Option<Listen>> {
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
