//! `cache`: replacement policies on a trace, and the trace after the cache on devices.
//!
//! ```text
//!   trace -> pages -> policies x sizes, one thread each -> sink: file, players -> figures
//! ```
//!
//! Figures are in the order policies were named in, whatever ends first. Ctrl-C ends all threads;
//! no half-written file is left.

mod print;

use std::fs::File;
use std::io::BufWriter;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use indicatif::ProgressBar;
use syncline_cache::{Entry, POLICIES, WriteBack, entry};
use syncline_evaluate::{
    CacheSize, Configuration, Evaluation, Outcome, PAGE_BYTES, Pace, PageGather, PageTrace, Played,
    VirtualPlayer,
};
use syncline_nand::Profile;
use syncline_trace::{Header, Names, Record, Sink, TraceKind, TraceWriter};

use super::trace::source::{Source, at};
use crate::args::{Cache, TraceOption};
use crate::error::{Failure, Result};
use crate::format::{self, Staged};
use crate::{complain, interrupt, progress};

/// One configuration with its figures, one [`Played`] a device.
pub(crate) struct Run {
    outcome: Outcome,
    played: Vec<Played>,
}

/// A trace that was read.
pub(crate) struct Read {
    pub(crate) header: Header,
    pub(crate) pages: PageTrace,
}

/// Reads a trace as pages.
pub(crate) fn pages(option: &TraceOption, dense: bool) -> Result<Read> {
    let source = Source::open(&option.input())?;
    let header = source.header();
    let mut gather = PageGather::new(header.kind);
    source.read(&option.trace, &mut gather)?;
    let failed = |err| Failure::from(err).at(option.trace.display());
    let mut pages = gather.finish().map_err(failed)?;
    if dense {
        pages.squeeze();
    }
    Ok(Read { header, pages })
}

/// Runs everything, then prints.
pub(crate) fn run(args: &Cache) -> Result<()> {
    format::check_outputs(&[args.json.as_deref(), args.html.as_deref()])?;
    let policies = policies(&args.policy)?;
    let parse = |text: &String| Ok(CacheSize::parse(text.trim())?);
    let sizes: Vec<CacheSize> = args.size.iter().map(parse).collect::<Result<_>>()?;
    let read_file = |path: &Path| std::fs::read_to_string(path);
    let profile = |spec: &String| Ok(Profile::parse_spec(spec, &read_file)?);
    let profiles: Vec<Profile> = args.device.iter().map(profile).collect::<Result<_>>()?;
    let read = pages(&args.input, args.dense)?;
    let trace = &read.pages;
    // Refused before anything has run.
    for profile in &profiles {
        VirtualPlayer::new(profile, trace.end_bytes(), Pace::default())?;
    }
    let write_back = args.write_back.map_or(WriteBack::Lazy, WriteBack::Background);
    let mut configurations: Vec<Configuration> = Vec::new();
    let (mut held, mut left_out) = (false, Vec::new());
    for (size, text) in sizes.into_iter().zip(&args.size) {
        let pages = size.pages(trace.working_set_pages());
        // Nothing is ever replaced in a cache that holds the trace: larger ones give equal figures.
        if pages as u64 >= trace.working_set_pages() && std::mem::replace(&mut held, true) {
            left_out.push(text.trim());
            continue;
        }
        let of = |policy| Configuration { policy, pages, write_back, fsync: args.fsync };
        let known = configurations.iter().any(|known| known.pages == pages);
        configurations.extend(policies.iter().filter(|_| !known).map(|policy| of(*policy)));
    }
    if !left_out.is_empty() {
        complain(&format!(
            "{} left out: a smaller cache holds all {} pages of the trace, larger ones equal it",
            left_out.join(", "),
            trace.working_set_pages()
        ));
    }
    let future = policies.iter().any(|policy| policy.needs_future);
    let next_uses = if future { trace.next_uses() } else { Vec::new() };
    let merge_pages = args.merge / PAGE_BYTES;
    let evaluation = Evaluation { trace, next_uses: &next_uses, merge_pages };
    let total = trace.accesses() as u64 * configurations.len() as u64;
    let bar = progress::bar("accesses", total);
    let sweep = Sweep { args, evaluation, profiles: &profiles, bar };
    let done = sweep.all(&configurations);
    sweep.bar.finish_and_clear();
    print::print(args, &read, &done?)
}

fn policies(names: &[String]) -> Result<Vec<&'static Entry>> {
    let mut found: Vec<&'static Entry> = Vec::new();
    for name in names {
        let named = match name.trim() {
            "all" => POLICIES.iter().collect(),
            name => vec![entry(name).map_err(|err| Failure::Usage(err.to_string()))?],
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
    args: &'a Cache,
    evaluation: Evaluation<'a>,
    profiles: &'a [Profile],
    bar: ProgressBar,
}

impl Sweep<'_> {
    /// Every configuration, in this order.
    fn all(&self, configurations: &[Configuration]) -> Result<Vec<Run>> {
        if let Some(dir) = &self.args.after_cache {
            std::fs::create_dir_all(dir).map_err(|err| Failure::host(dir, &err))?;
        }
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let jobs = self.args.jobs.map_or(processors, usize::from).min(configurations.len());
        let next = AtomicUsize::new(0);
        let work = || -> Result<Vec<(usize, Run)>> {
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
        let results: Vec<Result<Vec<(usize, Run)>>> = thread::scope(|scope| {
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

    fn one(&self, configuration: &Configuration) -> Result<Run> {
        let end = self.evaluation.trace.end_bytes();
        let player = |profile| VirtualPlayer::new(profile, end, Pace::default());
        let players = self.profiles.iter().map(player);
        let mut after = After {
            file: match &self.args.after_cache {
                Some(dir) => Some(AfterFile::new(dir, configuration)?),
                None => None,
            },
            players: players.collect::<std::result::Result<_, _>>()?,
        };
        let mut watch = |done: usize| {
            self.bar.inc(done as u64);
            !interrupt::asked()
        };
        let wanted = after.file.is_some() || !after.players.is_empty();
        let sink = wanted.then_some(&mut after as &mut dyn Sink);
        let outcome = self.evaluation.run(configuration, sink, &mut watch)?;
        let outcome = outcome.ok_or(Failure::Interrupted)?;
        if let Some(file) = after.file {
            file.finish()?;
        }
        let played = after.players.into_iter().map(VirtualPlayer::finish).collect();
        Ok(Run { outcome, played })
    }
}

/// Output for the requests after the cache.
struct After {
    file: Option<AfterFile>,
    players: Vec<VirtualPlayer>,
}

impl Sink for After {
    fn record(&mut self, names: &Names, record: &Record) -> syncline_trace::Result<()> {
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
        let source = format!("syncline cache, {}, {pages} pages", policy.name);
        let header = Header { kind: TraceKind::Block, source };
        let out = BufWriter::new(staged.file(&path)?);
        let writer = TraceWriter::new(out, &header).map_err(|err| at(&path, err))?;
        Ok(AfterFile { path, staged, writer })
    }

    fn finish(self) -> Result<()> {
        drop(self.writer.finish(&Names::default()).map_err(|err| at(&self.path, err))?);
        self.staged.commit(&self.path)
    }
}
