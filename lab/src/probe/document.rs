//! Result of a probe: one document as table, JSON and page.

use std::fmt::Write;

use crate::latency::Bucket;
use crate::report::{About, Chart, INTERRUPTED, Layout, Page, aligned, figure};
use serde::Serialize;
use syncline_nand::LatencyReport;

use crate::probe::cases::{Case, Group};
use crate::probe::eager::EagerOptions;
use crate::probe::inside::Inside;
use crate::probe::log_unit::LOG_UNIT_BYTES;
use crate::probe::{Fit, Plan};

/// Name of the document's form.
pub const PROBE_SCHEMA: &str = "syncline.probe/1";

/// More interleaved runs than the device keeps open make a write this much slower.
const KNEE: f64 = 1.5;

/// One test.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProbeFigure {
    /// Its name: `random-write-4k`.
    pub name: String,
    /// The table it belongs to.
    pub group: Group,
    /// Requests measured.
    pub requests: u64,
    /// Bytes of each; 0 for flushes.
    pub request_bytes: u64,
    /// 10^6 bytes a second, the flush at the end of plain writes included.
    pub mb_per_s: f64,
    /// Time of the test by requests, microseconds, that flush included.
    pub latency_us_mean: f64,
    /// Median of single requests, microseconds.
    pub latency_us_p50: f64,
    /// 95 of 100 are not slower.
    pub latency_us_p95: f64,
    /// 99 of 100 are not slower.
    pub latency_us_p99: f64,
    /// Slowest.
    pub latency_us_max: f64,
}

impl ProbeFigure {
    pub(crate) fn new(case: &Case, requests: u64, elapsed_ns: u64, each: &LatencyReport) -> Self {
        ProbeFigure {
            name: case.name.clone(),
            group: case.group,
            requests,
            request_bytes: case.request_bytes,
            mb_per_s: (requests * case.request_bytes) as f64 * 1e3 / elapsed_ns as f64,
            latency_us_mean: elapsed_ns as f64 / 1e3 / requests as f64,
            latency_us_p50: each.latency_us_p50,
            latency_us_p95: each.latency_us_p95,
            latency_us_p99: each.latency_us_p99,
            latency_us_max: each.latency_us_max,
        }
    }
}

/// Writes that went on for long.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sustained {
    /// `sequential-512k` or `random-4k`.
    pub name: &'static str,
    /// Bytes of a request.
    pub request_bytes: u64,
    /// Bytes written in all.
    pub written_bytes: u64,
    /// Rate of each part, 10^6 bytes a second, in order.
    pub mb_per_s: Vec<f64>,
    /// The first part whose rate was under half of the best one's before it, from 0.
    pub cliff_part: Option<usize>,
    /// Rate after a rest of five seconds, 10^6 bytes a second.
    pub recovered_mb_per_s: f64,
}

impl Sustained {
    pub(crate) fn new(name: &'static str, request_bytes: u64) -> Self {
        Sustained {
            name,
            request_bytes,
            written_bytes: 0,
            mb_per_s: Vec::new(),
            cliff_part: None,
            recovered_mb_per_s: 0.0,
        }
    }

    pub(crate) fn finish(&mut self, rates: Vec<f64>, recovered_mb_per_s: f64) {
        let mut best = 0.0f64;
        self.cliff_part = rates.iter().position(|rate| {
            best = best.max(*rate);
            *rate < best / 2.0
        });
        self.mb_per_s = rates;
        self.recovered_mb_per_s = recovered_mb_per_s;
    }
}

/// One figure of a fitted profile.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FitFigure {
    /// As in the figures.
    pub name: String,
    /// Mean latency measured, microseconds.
    pub measured_us: f64,
    /// That of the fitted profile, microseconds.
    pub fitted_us: f64,
}

/// Deviation of a fitted profile from the measurements.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FitSummary {
    /// Profiles that were tried.
    pub evaluations: u32,
    /// Mean deviation over all figures, percent.
    pub mean_percent: f64,
    /// Worst deviation of the figures of tables 2, 6 and 9 and of write and flush, percent.
    pub worst_percent: f64,
    /// Every figure.
    pub figures: Vec<FitFigure>,
    /// The mount option `log_unit` that suits the profile, in bytes.
    pub log_unit_bytes: u32,
    /// The options of `sync=eager` that suit it; none if it cannot be built.
    pub eager: Option<EagerOptions>,
}

/// Everything that one probe found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProbeDocument {
    /// [`PROBE_SCHEMA`].
    pub schema: &'static str,
    /// Name of the target; empty until the caller sets it.
    pub target: String,
    /// `virtual` or `wall`: which time the figures are of. Set by the caller.
    pub clock: &'static str,
    /// True if figures are missing because the run was interrupted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
    /// Bytes used.
    pub region_bytes: u64,
    /// True if it was written.
    pub written: bool,
    /// Seed of random places.
    pub seed: u64,
    /// The tests.
    pub figures: Vec<ProbeFigure>,
    /// Writes of 4 KiB and flush, by powers of two.
    pub sync_histogram: Vec<Bucket>,
    /// Long writes.
    pub sustained: Vec<Sustained>,
    /// Most interleaved runs that are not slower than one; nothing if no number was slower.
    pub open_units: Option<u64>,
    /// Parameters that single tests show; nothing of a target that was only read.
    pub inside: Option<Inside>,
    /// The fitted profile's figures, if one was fitted.
    pub fit: Option<FitSummary>,
    /// Steps that could not be done, one sentence each.
    pub remarks: Vec<String>,
}

impl ProbeDocument {
    pub(crate) fn new(plan: &Plan, written: bool) -> Self {
        ProbeDocument {
            schema: PROBE_SCHEMA,
            target: String::new(),
            clock: "virtual",
            interrupted: false,
            region_bytes: plan.region_bytes,
            written,
            seed: plan.seed,
            figures: Vec::new(),
            sync_histogram: Vec::new(),
            sustained: Vec::new(),
            open_units: None,
            inside: None,
            fit: None,
            remarks: Vec::new(),
        }
    }

    /// A figure by its name.
    pub fn figure(&self, name: &str) -> Option<&ProbeFigure> {
        self.figures.iter().find(|figure| figure.name == name)
    }

    /// Draws what follows from the figures.
    pub(crate) fn conclude(&mut self) {
        let runs: Vec<(u64, f64)> = (self.figures.iter())
            .filter_map(|f| Some((f.name.strip_prefix("runs-")?.parse().ok()?, f.latency_us_mean)))
            .collect();
        let Some((_, one)) = runs.first().copied() else { return };
        let knee = runs.iter().position(|(_, us)| *us > one * KNEE);
        self.open_units = knee.and_then(|i| runs.get(i - 1)).map(|(runs, _)| *runs);
    }

    /// Adds how near a fitted profile came.
    pub fn set_fit(&mut self, fit: &Fit) {
        self.fit = Some(fit.summary.clone());
    }

    /// The document as JSON.
    pub fn to_json(&self) -> String {
        // Numbers, strings and lists: nothing that has no form in JSON.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    fn header(&self) -> Vec<String> {
        let head = ["test", "requests", "MB/s", "avg us", "p50 us", "p95 us", "p99 us", "max us"];
        let fit = self.fit.as_ref().map(|_| ["fitted avg us", "off"]);
        head.iter().chain(fit.iter().flatten()).map(|cell| (*cell).to_owned()).collect()
    }

    fn row(&self, f: &ProbeFigure) -> Vec<String> {
        let rate = if f.request_bytes == 0 { "-".to_owned() } else { rate(f.mb_per_s) };
        let mut cells = vec![f.name.clone(), f.requests.to_string(), rate];
        for us in [
            f.latency_us_mean,
            f.latency_us_p50,
            f.latency_us_p95,
            f.latency_us_p99,
            f.latency_us_max,
        ] {
            cells.push(figure(us));
        }
        let fitted = self.fit.iter().flat_map(|fit| &fit.figures).find(|fit| fit.name == f.name);
        if let Some(fitted) = fitted {
            let off = (fitted.fitted_us / fitted.measured_us - 1.0) * 100.0;
            cells.extend([figure(fitted.fitted_us), format!("{off:+.1} %")]);
        }
        cells
    }

    /// Rows of a group without the header; empty if nothing of it was measured.
    fn group(&self, group: Group) -> Vec<Vec<String>> {
        self.figures.iter().filter(|f| f.group == group).map(|f| self.row(f)).collect()
    }

    fn conclusions(&self) -> Vec<String> {
        let mut lines = Vec::new();
        lines.extend(self.inside.iter().flat_map(Inside::lines));
        for s in &self.sustained {
            let first = s.mb_per_s.first().copied().unwrap_or_default();
            let last = s.mb_per_s.last().copied().unwrap_or_default();
            let part_bytes = s.written_bytes / (s.mb_per_s.len() as u64 + 1).max(1);
            let cliff = s.cliff_part.map_or("no cliff".to_owned(), |part| {
                format!("a cliff after {} MiB", (part as u64 * part_bytes) >> 20)
            });
            lines.push(format!(
                "{} for long: {} MB/s at first, {} at last, {cliff}, {} after a rest",
                s.name,
                rate(first),
                rate(last),
                rate(s.recovered_mb_per_s)
            ));
        }
        if let Some(fit) = &self.fit {
            lines.push(format!(
                "the fitted profile is {:.1} % off on average; {:.1} % at worst in the first two \
                 tables",
                fit.mean_percent, fit.worst_percent
            ));
            let unit = fit.log_unit_bytes;
            lines.push(match unit {
                LOG_UNIT_BYTES => "with -o log=packed the default log_unit suits it".to_owned(),
                _ => {
                    format!("with -o log=packed give log_unit={unit}: records of whole flash pages")
                }
            });
            if let Some(eager) = fit.eager {
                lines.push(format!("with sync=eager give {}: syncs wait least", eager.text()));
            }
        }
        lines.extend(self.remarks.iter().cloned());
        lines
    }

    fn title(&self) -> String {
        let written = if self.written { "read and written" } else { "only read" };
        let time = if self.clock == "virtual" { "virtual time" } else { "real time" };
        format!("{}: {} MiB {written}, {time}", self.target, self.region_bytes >> 20)
    }

    /// The tables, the distribution of write and flush, and what follows.
    pub fn text(&self) -> String {
        let mut text = self.title() + "\n";
        if self.interrupted {
            text = format!("{INTERRUPTED}\n{text}");
        }
        for (group, heading) in Group::ALL {
            let lines = self.group(group);
            if !lines.is_empty() {
                let all: Vec<_> = std::iter::once(self.header()).chain(lines).collect();
                let _ = write!(text, "\n{heading}\n{}", aligned(&all, 1));
            }
        }
        let most = self.sync_histogram.iter().map(|bucket| bucket.calls).max().unwrap_or(1);
        if !self.sync_histogram.is_empty() {
            text += "\n4 KiB write and flush, at most\n";
        }
        for bucket in &self.sync_histogram {
            let bar = "#".repeat((bucket.calls * 50).div_ceil(most) as usize);
            let _ = writeln!(text, "  {:>9} us {:>7}  {bar}", bucket.to_us, bucket.calls);
        }
        text += "\n";
        for line in self.conclusions() {
            let _ = writeln!(text, "{line}");
        }
        text
    }

    /// A page with the tables and charts.
    pub fn html(&self, about: &About) -> String {
        let mut page = Page::new("syncline-lab probe");
        if self.interrupted {
            page.paragraph(INTERRUPTED);
        }
        page.paragraph(&self.title());
        for (group, heading) in Group::ALL {
            let lines = self.group(group);
            if lines.is_empty() {
                continue;
            }
            page.heading(heading);
            page.table(&self.header(), &lines, 1);
            let values: Vec<(String, f64)> = (self.figures.iter())
                .filter(|f| f.group == group)
                .map(|f| (f.name.clone(), f.latency_us_mean))
                .collect();
            let chart = Chart::rows("average latency", "us", "average", &values);
            page.bars(&Chart { log: true, ..chart });
        }
        let buckets: Vec<_> = self.sync_histogram.iter().map(|b| (b.to_us, b.calls)).collect();
        page.bars(&Chart::histogram("latency of a 4 KiB write and flush", "requests", &buckets));
        for s in &self.sustained {
            let parts = (1..=s.mb_per_s.len()).map(|part| part.to_string());
            let rates = s.mb_per_s.iter().chain([&s.recovered_mb_per_s]);
            page.bars(&Chart {
                title: format!("sustained throughput, {}", s.name),
                unit: "MB/s".to_owned(),
                layout: Layout::Lines,
                group: "part of the run, then after a rest".to_owned(),
                groups: parts.chain(["rest".to_owned()]).collect(),
                series: vec![s.name.to_owned()],
                values: rates.map(|rate| vec![*rate]).collect(),
                ..Chart::default()
            });
        }
        for line in self.conclusions() {
            page.paragraph(&line);
        }
        page.finish(about)
    }
}

/// Slow cards differ in the third digit behind the point.
fn rate(mb_per_s: f64) -> String {
    if mb_per_s < 0.1 { format!("{mb_per_s:.4}") } else { figure(mb_per_s) }
}
