//! The client's two steps, each in a process of its own so that it can be killed: downloading, and
//! making sure of what was downloaded. What they have to say is lines on standard output.
//!
//! | line | when |
//! |---|---|
//! | `resumed BYTES` | the pieces that were there have been checked |
//! | `progress BYTES` | now and then |
//! | `downloaded BYTES` | all pieces are there and durable |
//! | `sha256 DIGITS` | the normal file is there, durable and read again |

use std::fs::File;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use librqbit::storage::StorageFactoryExt;
use librqbit::{AddTorrent, AddTorrentOptions, Session, SessionOptions};
use sha2::{Digest, Sha256};
use syncline_flashlite::{FileStorage, Log, Options, Rearrange};

use crate::{FlashLiteFactory, content::hex, log_path};

/// Interval of progress reports.
const TELL: Duration = Duration::from_millis(25);

/// Storage of a client's download.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Storage {
    /// librqbit's own: a sparse file of the final size, blocks written in place.
    Default,
    /// A FlashLite log.
    Flashlite,
}

impl Storage {
    /// Its name in arguments and documents.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Storage::Default => "default",
            Storage::Flashlite => "flashlite",
        }
    }
}

/// Torrent, peers and directory of a download.
#[derive(Clone, Debug, clap::Args)]
pub struct LeechArgs {
    /// Directory of the download.
    #[arg(long)]
    pub dir: PathBuf,
    /// The torrent file.
    #[arg(long)]
    pub torrent: PathBuf,
    /// Name of the file in it.
    #[arg(long)]
    pub name: String,
    /// Storage of the file's bytes.
    #[arg(long, value_enum)]
    pub storage: Storage,
    /// Addresses of peers.
    #[arg(long, value_delimiter = ',')]
    pub peers: Vec<SocketAddr>,
}

/// Download to finish.
#[derive(Clone, Debug, clap::Args)]
pub struct FinishArgs {
    /// Directory of the download.
    #[arg(long)]
    pub dir: PathBuf,
    /// Name of the file in it.
    #[arg(long)]
    pub name: String,
    /// Storage of the file's bytes.
    #[arg(long, value_enum)]
    pub storage: Storage,
}

fn say(what: &str, value: impl std::fmt::Display) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{what} {value}")?;
    Ok(out.flush()?)
}

/// Downloads the torrent; goes on where an earlier call had come to.
///
/// # Errors
/// As librqbit's, and those of the storage.
pub fn leech(args: &LeechArgs) -> Result<()> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(download(args))
}

async fn download(args: &LeechArgs) -> Result<()> {
    // No peer but those that are named, no port but those of connections to them.
    let options = SessionOptions {
        dht: None,
        disable_trackers: true,
        disable_local_service_discovery: true,
        ipv4_only: true,
        ..SessionOptions::default()
    };
    let session = Session::new_with_opts(args.dir.clone(), options).await?;
    let flashlite = FlashLiteFactory::new(args.dir.clone(), Options::default());
    let factory = (args.storage == Storage::Flashlite).then(|| flashlite.clone().boxed());
    let dir = args.dir.to_str().context("a directory whose name is no text; choose another")?;
    let torrent = std::fs::read(&args.torrent)
        .with_context(|| format!("{}; give a torrent file", args.torrent.display()))?;
    let options = AddTorrentOptions {
        overwrite: true,
        output_folder: Some(dir.to_owned()),
        disable_trackers: true,
        initial_peers: Some(args.peers.clone()),
        storage_factory: factory,
        ..AddTorrentOptions::default()
    };
    let added = session.add_torrent(AddTorrent::TorrentFileBytes(torrent.into()), Some(options));
    let handle = added.await?.into_handle().context("the client has not taken the torrent")?;
    handle.wait_until_initialized().await?;
    say("resumed", handle.stats().progress_bytes)?;
    let completed = handle.wait_until_completed();
    tokio::pin!(completed);
    loop {
        tokio::select! {
            done = &mut completed => break done?,
            () = tokio::time::sleep(TELL) => say("progress", handle.stats().progress_bytes)?,
        }
    }
    match args.storage {
        Storage::Default => File::open(args.dir.join(&args.name))?.sync_all()?,
        Storage::Flashlite => flashlite.sync()?,
    }
    say("downloaded", handle.stats().progress_bytes)
}

/// Makes the normal file if there is a log, and tells the SHA-256 of its bytes.
///
/// # Errors
/// As FlashLite's and the system's.
pub fn finish(args: &FinishArgs) -> Result<()> {
    let file = args.dir.join(&args.name);
    if args.storage == Storage::Flashlite {
        rearrange(&log_path(&file), &file)?;
    }
    let mut hash = Sha256::new();
    let mut from = File::open(&file).with_context(|| file.display().to_string())?;
    let mut part = vec![0; 1 << 20];
    loop {
        match from.read(&mut part)? {
            0 => return say("sha256", hex(&hash.finalize())),
            len => hash.update(&part[..len]),
        }
    }
}

fn rearrange(log: &Path, file: &Path) -> Result<()> {
    let opened = Log::open_file(log, Options::default())?;
    let to = FileStorage::create_new(file)?;
    opened.rearrange_to(&to, Rearrange::default(), &mut |_| ControlFlow::Continue(()))?;
    drop(opened);
    if let Err(error) = std::fs::remove_file(log) {
        bail!("{}: {error}; remove the log", log.display());
    }
    Ok(())
}
