//! `serve`: the files of an image over NFS, for systems and sandboxes without FUSE.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use syncline_control::status::{Image, Sources, Status};
use syncline_device::{Clock, RecordingDevice, WallClock};
use syncline_fs::{MountOptions, Volume};
use syncline_nfs::{Allowed, PROTOCOL, Rules, Server};

use super::top_web::Web;
use crate::args::Serve;
use crate::contain::Bounds;
use crate::error::{Failure, Result};
use crate::format::Out;
use crate::{image, interrupt};

/// Poll interval for Ctrl-C.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Time between two updates of the page of --web.
const WEB_INTERVAL: Duration = Duration::from_secs(1);

/// Serves until Ctrl-C or SIGTERM, then unmounts.
pub(crate) fn run(args: &Serve) -> Result<()> {
    let address = args.nfs;
    if !address.ip().is_loopback() && args.allow.is_empty() {
        return Err(Failure::Usage(format!(
            "{address} is reachable from other machines; list with --allow ADDRESS/BITS those that \
             may connect (each can name any user and change every file), or serve on 127.0.0.1"
        )));
    }
    if !cfg!(target_os = "linux") && address.ip().is_loopback() && !args.allow_local_users {
        let text = "this system does not say whose program connects; let every user of it connect \
                    with --allow-local-users";
        return Err(Failure::Usage(text.to_owned()));
    }
    let allowed = args.allow.iter().map(|text| text.parse::<Allowed>().map_err(Failure::Usage));
    let allowed = allowed.collect::<Result<Vec<_>>>()?;
    let listener = TcpListener::bind(address).map_err(|err| {
        let err = syncline_image::plain(&err);
        Failure::Failed(format!("{address}: {err}; serve on another port, or on 0 for a free one"))
    })?;
    let clock: Arc<dyn Clock> = Arc::new(WallClock::new());
    let web = args.web.map(Web::bind).transpose()?;
    let Opened { volume, fsid, status } = open(args, &clock)?;
    let rules = Rules {
        allowed,
        local_users: args.allow_local_users,
        permissions: !args.no_permissions,
        ..Rules::default()
    };
    let counted = (volume.clone(), Arc::clone(&status));
    let server = Server::new(listener, counted, fsid, rules).map_err(failed);
    let served = server.and_then(|server| serve(args, (server, web), (&volume, &status), &*clock));
    let unmounted = volume.unmount();
    served?;
    Ok(unmounted?)
}

/// A volume that clients may have.
struct Opened {
    volume: Volume,
    /// Number of its file handles.
    fsid: u64,
    status: Arc<Status>,
}

fn open(args: &Serve, clock: &Arc<dyn Clock>) -> Result<Opened> {
    let path = &args.image;
    let mut options = MountOptions::default();
    for option in args.options.iter().flat_map(|list| list.split(',')).filter(|o| !o.is_empty()) {
        match option {
            "rw" => options.read_only = false,
            _ => options
                .apply_or(option, &["rw"])
                .map_err(|err| Failure::Usage(format!("{err}; see `syncline mount --help`")))?,
        }
    }
    let bounds = Bounds::writer(path);
    let device = image::opened(path, options.read_only, &args.part, &|| bounds.enter())?;
    let fsid = match image::superblock(&*device, path) {
        Ok(sb) => sb.s_uuid.iter().take(8).fold(0, |id, byte| id << 8 | u64::from(*byte)),
        // A backup of it may do for the volume; handles of one server need no more.
        Err(_) if options.rescue.is_some() => 0,
        Err(err) => return Err(err),
    };
    let at = |err| Failure::from(err).at(path.display());
    let recovered = match options.read_only && options.rescue.is_none() {
        true => Volume::recovered_in_memory(&device, clock, options.cache_bytes).map_err(at)?,
        false => None,
    };
    let device = recovered.map_or(device, |(memory, _)| memory);
    let counted = Arc::new(RecordingDevice::new(device));
    let counts = Arc::clone(&counted);
    let sources = Sources { counts: Arc::new(move || counts.counts()), ..Sources::default() };
    let image = Image {
        path: path.display().to_string(),
        partition: args.part.partition,
        offset_bytes: args.part.offset,
    };
    let status = Status::new(image, &options, Arc::clone(clock), PROTOCOL, sources);
    let volume = Volume::mount(counted, Arc::clone(clock), options).map_err(at)?;
    for what in volume.take_missing() {
        crate::complain(&format!("{}: missing: {what}", path.display()));
    }
    Ok(Opened { volume, fsid, status: Arc::new(status) })
}

fn failed(err: std::io::Error) -> Failure {
    Failure::Failed(format!("NFS: {err}; serve again"))
}

fn serve(
    args: &Serve,
    (mut server, web): (Server, Option<Web>),
    (volume, status): (&Volume, &Status),
    clock: &dyn Clock,
) -> Result<()> {
    let mut hint = write_hint(volume, args)?;
    if args.allow_local_users {
        hint += "every user of this machine may connect and name any user\n";
    }
    say(&args.image, server.address().map_err(failed)?, &hint)?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let serving = threads.spawn(|| server.run(clock, &stop));
        let ends = || interrupt::asked() || serving.is_finished();
        let shown = web.map_or(Ok(()), |web| {
            let read = || shown(status, volume);
            web.run(&args.image, WEB_INTERVAL, &read, &ends)
        });
        while shown.is_ok() && !ends() {
            std::thread::sleep(POLL_INTERVAL);
        }
        stop.store(true, Ordering::Relaxed);
        let served = serving.join();
        served.map_or_else(|_| Err(Failure::Said(1)), |ran| ran.map_err(failed)).and(shown)
    })
}

/// The status for the page and its metrics. A client of NFS opens no files.
fn shown(status: &Status, volume: &Volume) -> Result<Value> {
    serde_json::from_str(&status.document(volume, 0, true))
        .map_err(|err| Failure::Failed(format!("the status is not JSON: {err}; report this")))
}

/// A line for a user who, as a client, could make nothing in the root directory, as in an image
/// that mke2fs made with its defaults: its root belongs to user 0.
fn write_hint(volume: &Volume, args: &Serve) -> Result<String> {
    let (root, (own, _)) = (volume.getattr(&volume.root()?), syncline_image::user());
    let may = own == 0 || root.uid == own || root.mode & 0o002 != 0;
    if may || args.no_permissions || volume.is_read_only() {
        return Ok(String::new());
    }
    Ok(format!(
        "the root directory belongs to user {}: to write to it as another user, serve with \
         --no-permissions\n",
        root.uid
    ))
}

/// Prints where clients find it.
fn say(image: &Path, address: SocketAddr, hint: &str) -> Result<()> {
    let (ip, port) = (address.ip(), address.port());
    let host = if address.is_ipv6() { format!("[{ip}]") } else { ip.to_string() };
    let mut out = Out::new();
    out.text(format!(
        "{image}: NFS on {address} until Ctrl-C\n\
         mount -t nfs -o vers=3,proto=tcp,nolock,port={port},mountport={port} {host}:/ DIR\n{hint}",
        image = image.display()
    ))?;
    out.flush()
}
