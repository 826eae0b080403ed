//! Replacement policies on a trace, and the trace after the cache on devices.
//!
//! ```text
//!   trace -> pages -> policies x sizes, one thread each -> sink: file, players -> figures
//! ```
//!
//! Figures are in the order of the named policies. A stopped run ends all threads and leaves no
//! incomplete file.

use std::fs::File;
use std::io::BufWriter;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::evaluate::{
    CacheSize, Configuration, Evaluation, Outcome, PAGE_BYTES, Pace, Played, VirtualPlayer,
};
use crate::observer::Observer;
use crate::trace::{Header, Names, Record, Sink, TraceKind, TraceWriter};
use serde::Deserialize;
use serde_json::{Value, json};
use syncline_cache::{Entry, POLICIES, WriteBack, entry};
use syncline_nand::Profile;

use crate::error::{LabError, Result};
use crate::experiments::profile;
use crate::experiments::trace_file::{PageRead, TraceFile};
use syncline_image::Staged;

/// Request of `syncline-lab cache`; fields are its options.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cache {
    /// The trace.
    pub input: TraceFile,
    /// Policies; `all`: those that run in a volume and, as the bound, min.
    pub policy: Vec<String>,
    /// Sizes: 4M (bytes), 1024p (pages), 10% (of the pages that the trace touches).
    pub size: Vec<String>,
    /// Also write all dirty pages when more than this share of the cache is dirty, percent.
    pub write_back: Option<u8>,
    /// fsync writes the dirty pages of its file and flushes the device.
    pub fsync: bool,
    /// Leave out of the address space what the trace never touches.
    pub dense: bool,
    /// Longest request after the cache, bytes.
    pub merge: u64,
    /// Device profiles, with overrides, that play the trace after the cache.
    pub device: Vec<String>,
    /// Directory for the trace after the cache of each configuration.
    pub after_cache: Option<PathBuf>,
    /// Configurations that run at once; by itself one a processor.
    pub jobs: Option<u16>,
}

impl Default for Cache {
    fn default() -> Cache {
        Cache {
            input: TraceFile::default(),
            policy: vec!["all".to_owned()],
            size: ["4M", "8M", "16M", "32M", "64M"].map(str::to_owned).to_vec(),
            write_back: None,
            fsync: false,
            dense: false,
            merge: PAGE_BYTES,
            device: Vec::new(),
            after_cache: None,
            jobs: None,
        }
    }
}

/// One configuration with its figures, one [`Played`] a device.
pub struct CacheRun {
    /// Hits, and what reaches the device.
    pub outcome: Outcome,
    /// Figures of each device.
    pub played: Vec<Played>,
}

/// Figures of every configuration.
pub struct CacheResult {
    /// The trace.
    pub read: PageRead,
    /// The runs, those of one size after the other.
    pub runs: Vec<CacheRun>,
}

impl Cache {
    /// Runs every configuration.
    ///
    /// Unknown policies, sizes and devices are refused before anything runs.
    pub fn run(&self, observer: &dyn Observer) -> Result<CacheResult> {
        let policies = policies(&self.policy)?;
        let parse = |text: &String| CacheSize::parse(text.trim());
        let sizes: Vec<CacheSize> = self.size.iter().map(parse).collect::<Result<_>>()?;
        let profiles: Vec<Profile> =
            self.device.iter().map(|spec| profile(spec)).collect::<Result<_>>()?;
        if !(1..=99).contains(&self.write_back.unwrap_or(1)) {
            return Err(LabError::Usage("write_back is 1 to 99 per cent".to_owned()));
        }
        let read = self.input.pages(self.dense, observer)?;
        let trace = &read.pages;
        // Refused before anything has run.
        for profile in &profiles {
            VirtualPlayer::new(profile, trace.end_bytes(), Pace::default())?;
        }
        let configurations = self.configurations(&policies, sizes, &read, observer);
        let future = policies.iter().any(|policy| policy.needs_future);
        let next_uses = if future { trace.next_uses() } else { Vec::new() };
        let merge_pages = self.merge / PAGE_BYTES;
        let evaluation = Evaluation { trace, next_uses: &next_uses, merge_pages };
        observer.begin("accesses", trace.accesses() as u64 * configurations.len() as u64);
        let sweep = Sweep { request: self, evaluation, profiles: &profiles, observer };
        let done = sweep.all(&configurations);
        observer.end();
        let runs = done?;
        Ok(CacheResult { runs, read })
    }

    fn configurations(
        &self,
        policies: &[&'static Entry],
        sizes: Vec<CacheSize>,
        read: &PageRead,
        observer: &dyn Observer,
    ) -> Vec<Configuration> {
        let trace = &read.pages;
        let write_back = self.write_back.map_or(WriteBack::Lazy, WriteBack::Background);
        let mut configurations: Vec<Configuration> = Vec::new();
        let (mut held, mut left_out) = (false, Vec::new());
        for (size, text) in sizes.into_iter().zip(&self.size) {
            let pages = size.pages(trace.working_set_pages());
            // Nothing is ever replaced in a cache that holds the trace: larger ones equal it.
            if pages as u64 >= trace.working_set_pages() && std::mem::replace(&mut held, true) {
                left_out.push(text.trim());
                continue;
            }
            let of = |policy| Configuration { policy, pages, write_back, fsync: self.fsync };
            let known = configurations.iter().any(|known| known.pages == pages);
            configurations.extend(policies.iter().filter(|_| !known).map(|policy| of(*policy)));
        }
        if !left_out.is_empty() {
            observer.complain(&format!(
                "{} left out: a smaller cache holds all {} pages of the trace, larger ones equal \
                 it",
                left_out.join(", "),
                trace.working_set_pages()
            ));
        }
        configurations
    }
}

fn policies(names: &[String]) -> Result<Vec<&'static Entry>> {
    let mut found: Vec<&'static Entry> = Vec::new();
    for name in names {
        let named = match name.trim() {
            "all" => POLICIES.iter().collect(),
            name => vec![entry(name).map_err(|err| LabError::Usage(err.to_string()))?],
        };
        for policy in named {
            if !found.iter().any(|known| known.name == policy.name) {
                found.push(policy);
            }
        }
    }
    Ok(found)
}

struct Sweep<'a> {
    request: &'a Cache,
    evaluation: Evaluation<'a>,
    profiles: &'a [Profile],
    observer: &'a dyn Observer,
}

impl Sweep<'_> {
    /// Every configuration, in this order.
    fn all(&self, configurations: &[Configuration]) -> Result<Vec<CacheRun>> {
        if let Some(dir) = &self.request.after_cache {
            std::fs::create_dir_all(dir).map_err(|err| LabError::host(dir, &err))?;
        }
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let jobs = self.request.jobs.map_or(processors, |jobs| usize::from(jobs).max(1));
        let jobs = jobs.min(configurations.len());
        let next = AtomicUsize::new(0);
        let work = || -> Result<Vec<(usize, CacheRun)>> {
            let mut done = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(configuration) = configurations.get(number) else { return Ok(done) };
                let run = self.one(configuration).inspect_err(|_| {
                    // The others stop at their next configuration.
                    next.store(configurations.len(), Ordering::Relaxed);
                })?;
                done.push((number, run));
            }
        };
        let results: Vec<Result<Vec<(usize, CacheRun)>>> = thread::scope(|scope| {
            let threads: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
            // A panic of a thread is passed on.
            let join = |thread: thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect()
        });
        let mut runs = Vec::new();
        for result in results {
            runs.extend(result?);
        }
        runs.sort_by_key(|(number, _)| *number);
        Ok(runs.into_iter().map(|(_, run)| run).collect())
    }

    fn one(&self, configuration: &Configuration) -> Result<CacheRun> {
        let end = self.evaluation.trace.end_bytes();
        let player = |profile| VirtualPlayer::new(profile, end, Pace::default());
        let players = self.profiles.iter().map(player);
        let mut after = After {
            file: match &self.request.after_cache {
                Some(dir) => Some(AfterFile::new(dir, configuration)?),
                None => None,
            },
            players: players.collect::<std::result::Result<_, _>>()?,
        };
        let mut watch = |done: usize| {
            self.observer.advance(done as u64);
            !self.observer.stopped()
        };
        let wanted = after.file.is_some() || !after.players.is_empty();
        let sink = wanted.then_some(&mut after as &mut dyn Sink);
        let outcome = self.evaluation.run(configuration, sink, &mut watch)?;
        let outcome = outcome.ok_or(LabError::Interrupted)?;
        if let Some(file) = after.file {
            file.finish()?;
        }
        let played = after.players.into_iter().map(VirtualPlayer::finish).collect();
        Ok(CacheRun { outcome, played })
    }
}

/// Output for the requests after the cache.
struct After {
    file: Option<AfterFile>,
    players: Vec<VirtualPlayer>,
}

impl Sink for After {
    fn record(&mut self, names: &Names, record: &Record) -> crate::error::Result<()> {
        if let Some(file) = &mut self.file {
            file.writer.record(names, record)?;
        }
        self.players.iter_mut().try_for_each(|player| player.record(names, record))
    }
}

/// `DIR/POLICY-PAGES.trace` on its way.
struct AfterFile {
    path: PathBuf,
    staged: Staged,
    writer: TraceWriter<BufWriter<File>>,
}

impl AfterFile {
    fn new(dir: &Path, configuration: &Configuration) -> Result<AfterFile> {
        let Configuration { policy, pages, .. } = configuration;
        let path = dir.join(format!("{}-{pages}.trace", policy.name));
        let staged = Staged::new(&path)?;
        let source = format!("syncline-lab cache, {}, {pages} pages", policy.name);
        let header = Header { kind: TraceKind::Block, source };
        let out = BufWriter::new(staged.file(&path)?);
        let writer = TraceWriter::new(out, &header);
        let writer = writer.map_err(|err| err.at(path.display()))?;
        Ok(AfterFile { path, staged, writer })
    }

    fn finish(self) -> Result<()> {
        let finished = self.writer.finish(&Names::default());
        drop(finished.map_err(|err| err.at(self.path.display()))?);
        Ok(self.staged.commit(&self.path)?)
    }
}

impl CacheRun {
    /// Merges of a device.
    pub fn merges(played: &Played) -> u64 {
        played.flash.map_or(0, |f| f.switch_merges + f.partial_merges + f.full_merges)
    }
}

impl CacheResult {
    /// The document of schema `syncline.cache/1`.
    pub fn document(&self, request: &Cache) -> Value {
        let pages = &self.read.pages;
        let runs: Vec<Value> = self.runs.iter().map(|run| run_document(request, run)).collect();
        json!({
            "schema": "syncline.cache/1",
            "trace": {
                "path": request.input.trace.display().to_string(),
                "kind": self.read.header.kind.name(),
                "source": self.read.header.source,
                "accesses": pages.accesses(),
                "reads": pages.reads(),
                "writes": pages.accesses() as u64 - pages.reads(),
                "working_set_pages": pages.working_set_pages(),
                "address_space_bytes": pages.end_bytes(),
                "left_out": pages.left_out(),
            },
            "settings": {
                "page_bytes": PAGE_BYTES,
                "write_back_percent": request.write_back,
                "fsync": request.fsync,
                "dense": request.dense,
                "merge_bytes": request.merge,
            },
            "runs": runs,
        })
    }
}

fn run_document(request: &Cache, run: &CacheRun) -> Value {
    let (outcome, c) = (&run.outcome, &run.outcome.counts);
    let devices: Vec<Value> = request.device.iter().zip(&run.played).map(device_document).collect();
    json!({
        "policy": outcome.policy,
        "pages": outcome.pages,
        "hits": c.hits, "misses": c.misses, "hit_ratio": c.hit_ratio(),
        "evictions": c.evictions, "dirty_evictions": c.dirty_evictions,
        "reads": c.reads, "writes": c.write_backs,
        "background_writes": c.background_writes, "final_writes": c.final_writes,
        "write_runs": c.write_runs, "mean_run_pages": outcome.mean_run_pages(),
        "sequential_ratio": c.sequential_ratio(),
        "flushes": outcome.flushes,
        "cost_s": outcome.cost_s(),
        "devices": devices,
    })
}

fn device_document((device, played): (&String, &Played)) -> Value {
    let flash = played.flash.unwrap_or_default();
    json!({
        "device": device,
        "elapsed_s": played.elapsed_s,
        "read_requests": played.reads, "write_requests": played.writes,
        "read_latency_us_p50": played.read.latency_us_p50,
        "read_latency_us_p99": played.read.latency_us_p99,
        "write_latency_us_p50": played.write.latency_us_p50,
        "write_latency_us_p99": played.write.latency_us_p99,
        "write_latency_us_max": played.write.latency_us_max,
        "merges": CacheRun::merges(played), "erases": flash.erases,
        "write_amplification": flash.write_amplification(),
    })
}
