//! One download after the other, each killed half way and started again, and what they cost.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use syncline_device::{Counts, TraceEvent};

use crate::stage::Stage;
use crate::wear::{Wear, wear};
use crate::{Content, Peers, Storage, Supply, Torrent};

/// Name of the document.
pub const SCHEMA: &str = "syncline.swarm/1";

/// Parameters of a measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct RunArgs {
    /// Size of the download, MiB.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub size: u64,
    /// Size of a piece, KiB.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(16..=16384))]
    pub piece: u64,
    /// Peers.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub peers: u32,
    /// Peers have everything from the start; else they tell of pieces in random orders, as peers do
    /// that fetch the rarest first.
    #[arg(long)]
    pub seeders: bool,
    /// Kill the client when it has this share of the file, per cent; 0: never.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(0..=99))]
    pub kill_at: u64,
    /// Written data that the file system keeps in memory at most, MiB: what a download of 8 Mbit/s
    /// brings in the 30 s after which Linux writes it.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(4..=4096))]
    pub dirty: u64,
    /// Download to a plain directory, not to a mount: no trace, no figures of the device.
    #[arg(long)]
    pub plain: bool,
    /// Directory for mount points and downloads [default: that for temporary files].
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Seed of the bytes that are downloaded.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Give up after this many seconds.
    #[arg(long, default_value_t = 1800)]
    pub timeout: u64,
    /// Write the figures as JSON to this file; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write figures and plots of the block traces to this file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Device traffic of a part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Phase {
    /// Write commands.
    pub write_requests: u64,
    /// Bytes in them.
    pub written_bytes: u64,
    /// Flush commands.
    pub flushes: u64,
    /// Sectors of a write, on average.
    pub mean_write_sectors: f64,
    /// Share of written sectors in bursts longer than 128 sectors.
    pub sequential_ratio: f64,
    /// Bytes written in a row before the next write goes elsewhere, on average.
    pub mean_burst_bytes: f64,
}

impl Phase {
    fn of(counts: Counts) -> Phase {
        Phase {
            write_requests: counts.write_requests(),
            written_bytes: counts.written_bytes(),
            flushes: counts.flushes(),
            mean_write_sectors: counts.mean_write_sectors(),
            sequential_ratio: counts.sequential_ratio(),
            mean_burst_bytes: counts.written_bytes() as f64 / counts.bursts.max(1) as f64,
        }
    }
}

/// One download.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// `default` or `flashlite`.
    pub storage: String,
    /// Bytes of the file.
    pub size_bytes: u64,
    /// Bytes of whole pieces that the client found after it was killed; none if it was not.
    pub resumed_bytes: Option<u64>,
    /// Bytes of pieces that the peers sent, to both clients together.
    pub sent_bytes: u64,
    /// SHA-256 of the file.
    pub sha256: String,
    /// True if the checksum is that of the content.
    pub identical: bool,
    /// Wall time from the first client to the durable download, seconds.
    pub download_s: f64,
    /// From the start until the download was durable.
    pub download: Option<Phase>,
    /// From there to the normal file: nothing to do for the default storage.
    pub rearrange: Option<Phase>,
    /// Wear of several devices; empty without a trace.
    pub wear: Vec<Wear>,
    /// The block trace.
    #[serde(skip)]
    pub events: Vec<TraceEvent>,
    /// Commands that it lacks at its end.
    pub events_lost: u64,
}

/// The client's process: ended, whatever happens.
struct Client {
    child: Child,
    lines: Receiver<String>,
}

impl Drop for Client {
    fn drop(&mut self) {
        // Both fail only if it has ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Client {
    fn start(program: &Path, arguments: &[&str]) -> Result<Client> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().context("starting the client")?;
        let out = child.stdout.take().context("the client has no standard output")?;
        let (send, lines) = sync_channel(64);
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(|line| line.ok()) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Client { child, lines })
    }

    /// The next line; none when the client has ended well.
    fn line(&mut self, deadline: Instant) -> Result<Option<String>> {
        let left = deadline.saturating_duration_since(Instant::now());
        match self.lines.recv_timeout(left) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Timeout) => bail!("the download takes too long; raise --timeout"),
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.child.wait()?;
                if !status.success() {
                    bail!("the client has failed ({status}); see what it said");
                }
                Ok(None)
            }
        }
    }
}

/// Returns the rest of a client's output line that begins with `what`; module `client` has the
/// format.
fn said<'a>(line: &'a str, what: &str) -> Option<&'a str> {
    line.strip_prefix(what)?.strip_prefix(' ')
}

struct Download<'a> {
    args: &'a RunArgs,
    program: &'a Path,
    torrent: &'a Arc<Torrent>,
    torrent_file: &'a Path,
    storage: Storage,
    deadline: Instant,
}

impl Download<'_> {
    /// Runs a client until it has all, or until it has `kill_at` bytes. What it found at its start,
    /// and what the peers sent.
    fn client(&self, dir: &Path, kill_at: Option<u64>) -> Result<(u64, u64)> {
        let supply = if self.args.seeders { Supply::Whole } else { Supply::Growing };
        let peers = Peers::start(self.torrent, self.args.peers, supply)?;
        let addresses: Vec<String> = peers.addresses().iter().map(ToString::to_string).collect();
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let mut client = Client::start(
            self.program,
            &[
                "leech",
                "--dir",
                &text(dir),
                "--torrent",
                &text(self.torrent_file),
                "--name",
                self.torrent.name(),
                "--storage",
                self.storage.name(),
                "--peers",
                &addresses.join(","),
            ],
        )?;
        let mut resumed = None;
        let mut whole = false;
        while let Some(line) = client.line(self.deadline)? {
            if let Some(bytes) = said(&line, "resumed") {
                resumed = Some(bytes.parse()?);
            }
            whole |= said(&line, "downloaded").is_some();
            let progress = said(&line, "progress").and_then(|bytes| bytes.parse::<u64>().ok());
            if let (Some(kill_at), Some(bytes)) = (kill_at, progress)
                && bytes >= kill_at
            {
                client.child.kill()?;
                client.child.wait()?;
                return Ok((resumed.unwrap_or(0), peers.sent_bytes()));
            }
        }
        if !whole || kill_at.is_some() {
            bail!("the client ended before it was to; use a larger --size");
        }
        let resumed = resumed.context("the client has not said what it found")?;
        Ok((resumed, peers.sent_bytes()))
    }

    fn finish(&self, dir: &Path) -> Result<String> {
        let dir = dir.to_string_lossy();
        let name = self.torrent.name();
        let arguments =
            ["finish", "--dir", &*dir, "--name", name, "--storage", self.storage.name()];
        let mut client = Client::start(self.program, &arguments)?;
        let mut sha256 = None;
        while let Some(line) = client.line(self.deadline)? {
            sha256 = said(&line, "sha256").map(str::to_owned).or(sha256);
        }
        sha256.context("the client has not told the checksum of the file")
    }

    fn run(&self) -> Result<Outcome> {
        let parent = self.args.dir.clone().unwrap_or_else(std::env::temp_dir);
        let size_bytes = self.torrent.content.size_bytes;
        // Log and file, and what ext4 has of its own.
        let device_bytes = (size_bytes * 9 / 4 + (256 << 20)).next_multiple_of(64 << 20);
        let stage = if self.args.plain {
            Stage::plain(&parent)?
        } else {
            Stage::mounted(&parent, device_bytes, self.args.dirty << 20)?
        };
        let began = Instant::now();
        stage.begin_phase();
        let (mut resumed_bytes, mut sent_bytes) = (None, 0);
        if self.args.kill_at > 0 {
            let kill_at = size_bytes * self.args.kill_at / 100;
            sent_bytes = self.client(stage.dir(), Some(kill_at))?.1;
        }
        let (found, sent) = self.client(stage.dir(), None)?;
        sent_bytes += sent;
        if self.args.kill_at > 0 {
            resumed_bytes = Some(found);
        }
        let download_s = began.elapsed().as_secs_f64();
        let download = stage.begin_phase();
        let sha256 = self.finish(stage.dir())?;
        let rearrange = stage.begin_phase();
        let (mut events, mut events_lost, mut worn) = (Vec::new(), 0, Vec::new());
        let mut phases = (None, None);
        if let (Some(first), Some(second)) = (download, rearrange) {
            phases = (Some(Phase::of(first.counts)), Some(Phase::of(second.counts)));
            let downloaded = first.events.len();
            events = [first.events, second.events].concat();
            events_lost = second.events_lost;
            stage.end()?;
            worn = wear(device_bytes, &events, downloaded)?;
        }
        Ok(Outcome {
            storage: self.storage.name().to_owned(),
            size_bytes,
            resumed_bytes,
            sent_bytes,
            identical: sha256 == self.torrent.sha256,
            sha256,
            download_s,
            download: phases.0,
            rearrange: phases.1,
            wear: worn,
            events,
            events_lost,
        })
    }
}

/// Downloads through both storages with clients that are `program leech` and `program finish`.
///
/// # Errors
/// One sentence on what failed. A file that is not identical is no error but in the outcome.
pub fn run(args: &RunArgs, program: &Path) -> Result<Vec<Outcome>> {
    let deadline = Instant::now() + Duration::from_secs(args.timeout);
    let content = Content { seed: args.seed, size_bytes: args.size << 20 };
    let torrent = Arc::new(Torrent::new(content, args.piece << 10));
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), &torrent.file)?;
    let torrent_file = file.path();
    let mut outcomes = Vec::new();
    for storage in [Storage::Default, Storage::Flashlite] {
        let torrent = &torrent;
        let download = Download { args, program, torrent, torrent_file, storage, deadline };
        let outcome = download.run().with_context(|| format!("storage {}", storage.name()))?;
        outcomes.push(outcome);
    }
    Ok(outcomes)
}
