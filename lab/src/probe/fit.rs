//! A profile that reproduces the figures of a probe.
//!
//! ```text
//!   figures ──> first guess of the times                   for each of a few shapes
//!      ^            |
//!      |            v
//!      +── compare <── the same tests on the simulated profile, same plan, same places
//!                   |
//!      neighbours of the best shape, until none is better ──> damped least squares of the times
//! ```
//!
//! A shape is what is not continuous: mapping scheme, page, dies, superblock, open units, clusters,
//! map cache, buffer. Times are seven: request, read, program, flush, close, bus, channel. The loss
//! is the mean square of the logarithms of fitted by measured latencies; the tables of the papers
//! and write and flush count fully, the series 0.4. Deterministic; bounded by the evaluations.
//!
//! Not identifiable one request at a time, and so not to be trusted in a fitted profile: request
//! time of host against controller (all is `request_us`), program time against pages and dies of
//! equal rate where no request is larger than them, over-provisioning, erase time, rated cycles,
//! queue depth. The device behind the region is assumed to be eight times larger and fresh.
use crate::observer::Observer;
use syncline_nand::{Mapping, Profile};

use crate::error::{LabError, Result};
use crate::probe::cases::{Case, Group, cases};
use crate::probe::eager::eager_options;
use crate::probe::log_unit::{LOG_UNIT_BYTES, log_unit_bytes};
use crate::probe::solve::solve;
use crate::probe::{FitFigure, FitSummary, Plan, ProbeDocument, ProbeFigure, Simulated, figures};

/// Flash behind a region of one byte, bytes.
pub const DEVICE_FACTOR: u64 = 8;
/// A figure that is further off does not count more, as a logarithm.
const OFF_MAX: f64 = 3.0;
const SERIES_WEIGHT: f64 = 0.4;
/// Steps of least squares for each of the best shapes.
const STEPS: u32 = 12;
/// A mean square this small is a hundredth of a percent: rounding of the parameters.
const LOSS_MIN: f64 = 1e-8;
/// Reads in any order that are this much slower than sorted ones have a map that is not all in RAM.
const MAP_MISSES: f64 = 1.1;
/// Shapes that are refined.
const FINALISTS: usize = 2;

/// A profile and how near it comes.
pub struct Fit {
    /// The profile.
    pub profile: Profile,
    /// Deviation from the measurements.
    pub summary: FitSummary,
}

/// Discrete parameters of a profile. Sizes in KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    mapping: Mapping,
    page_kib: u32,
    dies: u32,
    block_kib: u32,
    open: u32,
    unit_kib: u32,
    merge_kib: u32,
    window_kib: u32,
    map_segments: u32,
    buffer_kib: u32,
}

/// Request, read, program, flush and close in microseconds, bus and channel in MB/s.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Times([f64; 7]);

const REQUEST: usize = 0;
const READ: usize = 1;
const PROGRAM: usize = 2;
const FLUSH: usize = 3;
const CLOSE: usize = 4;
const BUS: usize = 5;
const CHANNEL: usize = 6;
/// Largest values that a profile takes.
const TIMES_MAX: [f64; 7] = [1e6, 1e5, 1e6, 1e7, 1e7, 1e5, 1e5];
const TIMES_MIN: [f64; 7] = [0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0];

impl Times {
    /// As a point in which equal steps are equal shares.
    fn point(self) -> [f64; 7] {
        self.0.map(|value| (value + 1.0).ln())
    }

    fn of(point: [f64; 7]) -> Times {
        let mut times = point.map(|value| value.exp() - 1.0);
        for (i, value) in times.iter_mut().enumerate() {
            *value = value.clamp(TIMES_MIN[i], TIMES_MAX[i]).round();
        }
        Times(times)
    }

    fn change(&mut self, which: usize, by: f64) {
        let value = (self.0[which] + by).clamp(TIMES_MIN[which], TIMES_MAX[which]);
        self.0[which] = value.round();
    }
}

/// A shape with times, tried.
#[derive(Clone, Debug)]
struct Tried {
    shape: Shape,
    times: Times,
    figures: Vec<ProbeFigure>,
    loss: f64,
}

/// Finds a profile for the figures of a probe with this plan, in at most `evaluations_max` tries.
pub fn fit(
    document: &ProbeDocument,
    plan: &Plan,
    align_bytes: u64,
    evaluations_max: u32,
    observer: &dyn Observer,
) -> Result<Fit> {
    let cases = cases(plan, true, align_bytes);
    if document.figures.len() != cases.len() {
        let text = "a fit needs reads and writes; probe a directory, or a device that may be \
                    overwritten, to the end";
        return Err(LabError::Usage(text.to_owned()));
    }
    let base = Profile::by_name("generic-emmc")?;
    let mut search =
        Search { document, plan, cases, base, evaluations: 0, evaluations_max, observer };
    let best = search.run()?;
    let mut profile = search.profile(&best.shape, &best.times);
    profile.name = format!("fitted to {}", document.target);
    let summary = search.summary(&best);
    profile.source.summary = format!("fitted to a probe of {}", document.target);
    profile.source.published =
        vec![format!("none: {} tests of a probe of this part", document.figures.len())];
    profile.source.fitted = vec![
        format!(
            "all times, mapping, page, dies, superblock, open units: {:.1} % off on average, {:.1} \
             % at worst in the papers' tables and write and flush",
            summary.mean_percent, summary.worst_percent
        ),
        "not determined: over_provisioning_percent, erase_us, rated_cycles, queue_depth".to_owned(),
    ];
    Ok(Fit { profile, summary })
}

struct Search<'a> {
    document: &'a ProbeDocument,
    plan: &'a Plan,
    cases: Vec<Case>,
    base: Profile,
    evaluations: u32,
    evaluations_max: u32,
    observer: &'a dyn Observer,
}

impl Search<'_> {
    fn run(&mut self) -> Result<Tried> {
        let mut tried: Vec<Tried> = Vec::new();
        for shape in self.seeds() {
            tried.extend(self.guess(shape)?);
        }
        self.climb(&mut tried)?;
        tried.sort_by(|a, b| a.loss.total_cmp(&b.loss));
        tried.truncate(FINALISTS);
        let mut refined = Vec::new();
        for start in tried {
            refined.push(self.refine(start)?);
        }
        let best = refined.into_iter().min_by(|a, b| a.loss.total_cmp(&b.loss));
        best.ok_or_else(|| {
            LabError::Usage("no profile fits; probe more of the target with --size".into())
        })
    }

    /// Goes from the best shape to its best neighbour until none is better.
    fn climb(&mut self, tried: &mut Vec<Tried>) -> Result<()> {
        loop {
            let Some(best) = tried.iter().min_by(|a, b| a.loss.total_cmp(&b.loss)).cloned() else {
                return Ok(());
            };
            let known: Vec<Shape> = tried.iter().map(|t| t.shape).collect();
            for shape in neighbours(&best.shape) {
                // A third of the tries is left for the times; a guess takes up to three.
                if self.evaluations + 3 > self.evaluations_max / 3 * 2 {
                    return Ok(());
                }
                if !known.contains(&shape) {
                    tried.extend(self.guess(shape)?);
                }
            }
            if !tried.iter().any(|t| t.loss < best.loss * 0.98) {
                return Ok(());
            }
        }
    }

    /// Shapes to begin with: one of each scheme, for the number of runs that stay open.
    fn seeds(&self) -> Vec<Shape> {
        let open = self.document.open_units.unwrap_or(1) as u32;
        let page = Shape {
            mapping: Mapping::Page,
            page_kib: 8,
            dies: 2,
            block_kib: 2048,
            open,
            unit_kib: 4,
            merge_kib: 4,
            window_kib: 0,
            map_segments: 0,
            buffer_kib: 0,
        };
        let block =
            Shape { page_kib: 16, dies: 1, block_kib: 4096, unit_kib: 16, merge_kib: 16, ..page };
        let many = open.max(if self.document.open_units.is_none() { 64 } else { 1 });
        let misses =
            self.measured_us("scattered-read-4k") > MAP_MISSES * self.measured_us("sorted-read-4k");
        let cached: &[u32] = if misses { &[4, 8, 16, 32] } else { &[] };
        let cached = cached.iter().map(|map_segments| Shape {
            map_segments: *map_segments,
            merge_kib: 16,
            buffer_kib: 512,
            ..page
        });
        let plain = [
            page,
            Shape { buffer_kib: 512, ..page },
            Shape { dies: 8, page_kib: 16, buffer_kib: 4096, open: many, ..page },
            Shape { dies: 1, page_kib: 32, unit_kib: 32, merge_kib: 32, window_kib: 1024, ..page },
            Shape { mapping: Mapping::Bast, ..block },
            Shape { mapping: Mapping::Fast, ..block },
            Shape { mapping: Mapping::Block, ..block },
        ];
        plain.into_iter().chain(cached).collect()
    }

    fn measured_us(&self, name: &str) -> f64 {
        self.document.figure(name).map_or(0.0, |figure| figure.latency_us_mean)
    }

    fn tried_us(tried: &Tried, name: &str) -> f64 {
        let found = tried.figures.iter().find(|figure| figure.name == name);
        found.map_or(0.0, |figure| figure.latency_us_mean)
    }

    /// Times of a shape from the figures alone, then mended twice by what the model gives.
    fn guess(&mut self, shape: Shape) -> Result<Option<Tried>> {
        let us = |name: &str| self.measured_us(name);
        let (small_us, large_us) = (us("read-4k"), us("read-1024k"));
        let request = us("idle-flush").min(0.8 * small_us);
        let bus = (f64::from(1 << 20) - 4096.0) / (large_us - small_us).max(1.0);
        let write_us = us("sequential-write");
        let together_bytes = f64::from(shape.page_kib * shape.dies) * 1024.0;
        let channel = 2.0 * bus;
        let page_us = f64::from(shape.page_kib) * 1024.0 / channel;
        let pages_us = write_us * together_bytes / 131_072.0;
        let mut times = Times([0.0; 7]);
        times.change(BUS, bus);
        times.change(CHANNEL, channel);
        times.change(REQUEST, request);
        times.change(READ, small_us - request - 4096.0 / bus - 4096.0 / channel);
        times.change(PROGRAM, pages_us - page_us);
        times.change(FLUSH, us("sync-append-4k") - 2.0 * request - times.0[PROGRAM]);
        let Some(mut best) = self.attempt(shape, times)? else { return Ok(None) };
        for _ in 0..2 {
            let times = self.mended(&best);
            match self.attempt(shape, times)? {
                Some(next) if next.loss < best.loss => best = next,
                _ => break,
            }
        }
        Ok(Some(best))
    }

    /// Each time changed by what the figure that it governs lacks.
    fn mended(&self, tried: &Tried) -> Times {
        let lacks = |name: &str| self.measured_us(name) - Self::tried_us(tried, name);
        let ratio = |name: &str| {
            let model = Self::tried_us(tried, name);
            if model > 0.0 { (self.measured_us(name) / model).clamp(0.3, 3.0) } else { 1.0 }
        };
        let mut times = tried.times;
        let program = times.0[PROGRAM];
        times.change(PROGRAM, program * (ratio("sequential-write") - 1.0));
        times.change(READ, lacks("read-4k"));
        times.change(FLUSH, lacks("sync-append-4k") - (times.0[PROGRAM] - program));
        let close = lacks("scattered-write-4k");
        times.change(CLOSE, if tried.shape.mapping.by_superblock() { close / 2.0 } else { close });
        times.change(BUS, times.0[BUS] * (1.0 / ratio("read-1024k") - 1.0));
        times
    }

    /// Tests a shape with times; `None` if no such profile can be.
    fn attempt(&mut self, shape: Shape, times: Times) -> Result<Option<Tried>> {
        if self.observer.stopped() {
            return Err(LabError::Interrupted);
        }
        let profile = self.profile(&shape, &times);
        let device_bytes = self.plan.region_bytes * DEVICE_FACTOR;
        let Ok(mut target) = Simulated::new(&profile, device_bytes, 0, 0) else { return Ok(None) };
        self.evaluations += 1;
        let (done, total) = (self.evaluations, self.evaluations_max);
        self.observer.position(u64::from(done.min(total)), u64::from(total));
        let figures = figures(&mut target, self.plan, &self.cases)?;
        let rest = self.residuals(&figures);
        let loss = rest.iter().map(|r| r * r).sum::<f64>() / rest.len() as f64;
        Ok(Some(Tried { shape, times, figures, loss }))
    }

    /// Weighed logarithms of fitted by measured.
    fn residuals(&self, figures: &[ProbeFigure]) -> Vec<f64> {
        let both = figures.iter().zip(&self.document.figures);
        both.map(|(ours, theirs)| {
            let off = (ours.latency_us_mean / theirs.latency_us_mean.max(1e-3)).ln();
            off.clamp(-OFF_MAX, OFF_MAX) * weight(theirs.group).sqrt()
        })
        .collect()
    }

    /// Damped least squares of the times.
    fn refine(&mut self, start: Tried) -> Result<Tried> {
        let mut best = start;
        let mut damping = 0.03;
        for _ in 0..STEPS {
            if self.evaluations + 10 > self.evaluations_max {
                break;
            }
            let here = self.residuals(&best.figures);
            let point = best.times.point();
            let mut slopes = Vec::new();
            for which in 0..point.len() {
                let mut moved = point;
                moved[which] += 0.08;
                let mut times = Times::of(moved);
                if times == best.times {
                    times.change(which, 1.0);
                }
                let step = times.point()[which] - point[which];
                let there = match self.attempt(best.shape, times)? {
                    Some(tried) if step != 0.0 => self.residuals(&tried.figures),
                    _ => here.clone(),
                };
                let slope = here.iter().zip(&there).map(|(a, b)| (b - a) / step.max(1e-9));
                slopes.push(slope.collect::<Vec<f64>>());
            }
            let mut better = false;
            for _ in 0..3 {
                let Some(step) = step(&slopes, &here, damping) else { break };
                let mut moved = point;
                moved.iter_mut().zip(&step).for_each(|(p, s)| *p += s.clamp(-1.0, 1.0));
                match self.attempt(best.shape, Times::of(moved))? {
                    Some(next) if next.loss < best.loss => {
                        better = next.loss > LOSS_MIN;
                        best = next;
                        damping *= 0.3;
                        break;
                    }
                    _ => damping *= 10.0,
                }
            }
            if !better {
                break;
            }
        }
        Ok(best)
    }

    fn profile(&self, shape: &Shape, times: &Times) -> Profile {
        let us = |which: usize| times.0[which] as u32;
        let mut p = self.base.clone();
        p.checks.clear();
        let g = &mut p.geometry;
        (g.channels, g.dies_per_channel, g.planes) = (shape.dies, 1, 1);
        (g.page_kib, g.map_unit_kib) = (shape.page_kib, shape.unit_kib);
        g.pages_per_block = shape.block_kib / shape.page_kib / shape.dies;
        let t = &mut p.timing;
        (t.read_us, t.program_us, t.erase_us) = (us(READ), us(PROGRAM), 3000);
        (t.bus_mb_per_s, t.channel_mb_per_s) = (us(BUS), us(CHANNEL));
        (t.command_us, t.flush_us) = (0, us(FLUSH));
        let f = &mut p.ftl;
        (f.mapping, f.log_blocks, f.streams) = (shape.mapping, shape.open, shape.open);
        (f.stream_window_kib, f.merge_kib) = (shape.window_kib, shape.merge_kib);
        (f.close_map_programs, f.close_us) = (0, us(CLOSE));
        (f.map_segment_kib, f.map_cache_segments) = (4096, shape.map_segments);
        (p.buffer.buffer_kib, p.buffer.fua) = (shape.buffer_kib, shape.buffer_kib == 0);
        (p.host.queue_depth, p.host.request_us, p.host.syscall_us) = (1, us(REQUEST), 0);
        p
    }

    fn summary(&self, best: &Tried) -> FitSummary {
        let both = best.figures.iter().zip(&self.document.figures);
        let figures: Vec<FitFigure> = both
            .map(|(ours, theirs)| FitFigure {
                name: theirs.name.clone(),
                measured_us: theirs.latency_us_mean,
                fitted_us: ours.latency_us_mean,
            })
            .collect();
        let off = |f: &FitFigure| (f.fitted_us / f.measured_us.max(1e-3) - 1.0).abs() * 100.0;
        let held =
            figures.iter().zip(&self.document.figures).filter(|(_, f)| weight(f.group) == 1.0);
        let profile = self.profile(&best.shape, &best.times);
        FitSummary {
            evaluations: self.evaluations,
            mean_percent: figures.iter().map(off).sum::<f64>() / figures.len().max(1) as f64,
            worst_percent: held.map(|(f, _)| off(f)).fold(0.0, f64::max),
            figures,
            log_unit_bytes: log_unit_bytes(&profile).unwrap_or(LOG_UNIT_BYTES),
            eager: eager_options(&profile).ok(),
        }
    }
}

fn weight(group: Group) -> f64 {
    if matches!(group, Group::Table | Group::Sync) { 1.0 } else { SERIES_WEIGHT }
}

/// The step of least squares: (J J^T + d diag) s = -J r, slopes in rows.
fn step(slopes: &[Vec<f64>], here: &[f64], damping: f64) -> Option<Vec<f64>> {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
    let mut matrix: Vec<Vec<f64>> =
        slopes.iter().map(|a| slopes.iter().map(|b| dot(a, b)).collect()).collect();
    for (i, row) in matrix.iter_mut().enumerate() {
        row[i] += damping * row[i].max(1e-3);
    }
    solve(matrix, slopes.iter().map(|slope| -dot(slope, here)).collect())
}

/// Shapes that differ in one thing by one step.
fn neighbours(shape: &Shape) -> Vec<Shape> {
    let s = *shape;
    let mut all = Vec::new();
    let block = s.mapping.by_superblock();
    for mapping in [Mapping::Page, Mapping::Bast, Mapping::Fast, Mapping::Block] {
        let unit_kib = if mapping.by_superblock() { s.page_kib } else { s.unit_kib };
        all.push(Shape { mapping, unit_kib, merge_kib: s.merge_kib.max(unit_kib), ..s });
    }
    for page_kib in [s.page_kib * 2, s.page_kib / 2] {
        let unit_kib = if block { page_kib } else { s.unit_kib.min(page_kib) };
        let merge_kib = s.merge_kib.max(unit_kib);
        all.push(Shape { page_kib, unit_kib, merge_kib, ..s });
        // The same rate with more or fewer dies.
        let dies = s.dies * s.page_kib / page_kib.max(1);
        all.push(Shape { page_kib, dies, unit_kib, merge_kib, ..s });
    }
    for (up, down) in [(2, 1), (1, 2)] {
        all.push(Shape { dies: s.dies * up / down, ..s });
        all.push(Shape { block_kib: s.block_kib * up / down, ..s });
        all.push(Shape { open: s.open * up / down, ..s });
        if !block {
            all.push(Shape { unit_kib: s.unit_kib * up / down, ..s });
            all.push(Shape { merge_kib: s.merge_kib * up / down, ..s });
        }
    }
    if !block {
        let window_kib = if s.window_kib == 0 { 1024 } else { 0 };
        all.push(Shape { window_kib, ..s });
        for map_segments in [0, 4, 8, 16, 32, 64] {
            all.push(Shape { map_segments, ..s });
        }
    }
    for buffer_kib in [0, 512, 4096] {
        all.push(Shape { buffer_kib, ..s });
    }
    all.retain(|shape| shape != &s && possible(shape));
    all
}

fn possible(s: &Shape) -> bool {
    let blocks = s.block_kib.checked_div(s.page_kib.saturating_mul(s.dies)).unwrap_or(0);
    (4..=64).contains(&s.page_kib)
        && (1..=32).contains(&s.dies)
        && (8..=4096).contains(&blocks)
        && s.block_kib <= 32 << 10
        && (1..=1024).contains(&s.open)
        && s.unit_kib >= 4
        && s.unit_kib <= s.page_kib
        && s.merge_kib >= s.unit_kib
        && s.merge_kib <= 1024
}
