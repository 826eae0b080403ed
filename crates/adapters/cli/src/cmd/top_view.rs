//! Screen of `top`: a view of one or two status documents, and its drawing. No I/O.
//!
//! ```text
//!   title, what is served, a warning
//!   memory  ####....   journal or log  ##......
//!   figures, two columns wide          files, most traffic first
//! ```

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, LineGauge, Paragraph, Row, Table};
use serde_json::{Value, json};

/// One bar.
struct Bar {
    name: &'static str,
    text: String,
    ratio: f64,
}

/// Everything that is drawn.
pub(crate) struct View {
    title: String,
    what: String,
    warning: Option<String>,
    bars: Vec<Bar>,
    figures: Vec<(&'static str, String)>,
    files: Vec<[String; 4]>,
}

/// A document, and the one before it with the time between.
struct Documents<'a> {
    now: &'a Value,
    before: Option<(&'a Value, Duration)>,
}

impl Documents<'_> {
    fn number(&self, path: &str) -> f64 {
        self.now.pointer(path).and_then(Value::as_f64).unwrap_or(0.0)
    }

    fn text(&self, path: &str) -> &str {
        self.now.pointer(path).and_then(Value::as_str).unwrap_or("")
    }

    /// Growth a second.
    fn rate(&self, path: &str) -> Option<f64> {
        let (before, time) = self.before.filter(|(_, time)| !time.is_zero())?;
        let old = before.pointer(path).and_then(Value::as_f64)?;
        Some((self.number(path) - old).max(0.0) / time.as_secs_f64())
    }

    /// A bar; `unit` is what one of the numbers is, in `name`.
    fn bar(&self, name: &'static str, (used, of): (f64, f64), unit: &str) -> Bar {
        let ratio = if of > 0.0 { (used / of).clamp(0.0, 1.0) } else { 0.0 };
        let digits = usize::from(unit == "MiB");
        let text = format!("{used:.digits$} of {of:.digits$} {unit}  {:.0} %", ratio * 100.0);
        Bar { name, text, ratio }
    }
}

fn mib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}

fn a_second(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}"))
}

fn ratio(part: f64, of: f64) -> f64 {
    if of > 0.0 { part / of } else { 0.0 }
}

fn bytes(number: f64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let fits = units.iter().find(|(shift, _)| number >= f64::from(1_u32 << shift));
    fits.map_or_else(
        || format!("{number:.0} B"),
        |(shift, unit)| format!("{:.1} {unit}", number / f64::from(1_u32 << shift)),
    )
}

impl View {
    /// Of a document of a mount or of a buffer; any other makes an empty one.
    pub(crate) fn of(title: &str, now: &Value, before: Option<(&Value, Duration)>) -> View {
        let documents = Documents { now, before };
        let mut view = match documents.text("/schema") {
            "syncline.buffer/1" => View::of_buffer(&documents),
            _ => View::of_mount(&documents),
        };
        view.title = title.to_owned();
        view
    }

    /// The same as JSON, for the page of `--web`: schema `syncline.top/1`.
    pub(crate) fn document(&self) -> Value {
        let rates = self.figures.iter().filter(|(name, _)| name.ends_with("/s"));
        json!({
            "schema": "syncline.top/1",
            "title": self.title,
            "what": self.what,
            "warning": self.warning,
            "bars": self.bars.iter().map(|bar| {
                json!({"name": bar.name, "text": bar.text, "ratio": bar.ratio})
            }).collect::<Vec<_>>(),
            "figures": self.figures.iter().map(|(name, text)| {
                json!({"name": name, "text": text})
            }).collect::<Vec<_>>(),
            "rates": rates.map(|(name, text)| {
                json!({"name": name, "value": text.parse::<f64>().ok()})
            }).collect::<Vec<_>>(),
            "files": self.files.iter().map(|[name, written, read, syncs]| {
                json!({"name": name, "written": written, "read": read, "syncs": syncs})
            }).collect::<Vec<_>>(),
        })
    }

    fn of_buffer(seen: &Documents<'_>) -> View {
        let page_mib = 4096.0 / f64::from(1 << 20);
        let pages = |name: &str| seen.number(name) * page_mib;
        let memory = (pages("/ram_pages"), mib(seen.number("/settings/ram_bytes")));
        let log = (pages("/ring_used_pages"), pages("/ring_pages"));
        let policies = seen.now.pointer("/settings/policies").and_then(Value::as_array);
        let policies: Vec<&str> =
            policies.into_iter().flatten().filter_map(Value::as_str).collect();
        let rate = |path: &str, of: f64| a_second(seen.rate(path).map(|rate| rate * of));
        let flushes = seen.number("/flushes");
        let stopped = seen.now.pointer("/latched") == Some(&Value::Bool(true));
        View {
            title: String::new(),
            what: format!("{} with log {}", seen.text("/device"), seen.text("/log")),
            warning: stopped.then(|| "STOPPED after a device error".to_owned()),
            bars: vec![seen.bar("memory", memory, "MiB"), seen.bar("log", log, "MiB")],
            figures: vec![
                ("flushes/s", rate("/flushes", 1.0)),
                (
                    "saved flushes",
                    format!("{:.0} %", 100.0 * ratio(seen.number("/flushes_saved"), flushes)),
                ),
                ("to the log MiB/s", rate("/logged_pages", page_mib)),
                ("to home blocks MiB/s", rate("/home_bytes", 1.0 / f64::from(1 << 20))),
                ("cleaned MiB/s", rate("/cleaned_pages", page_mib)),
                (
                    "pages per run",
                    format!(
                        "{:.1}",
                        ratio(seen.number("/cleaned_pages"), seen.number("/cleaned_runs"))
                    ),
                ),
                ("relaxed", bytes(seen.number("/relaxed_pages") * 4096.0)),
                ("newest in the log", bytes(seen.number("/mapped_pages") * 4096.0)),
                ("policies", policies.join(", ")),
                ("last change", seen.text("/settings/last_change").to_owned()),
            ],
            files: Vec::new(),
        }
    }

    fn of_mount(seen: &Documents<'_>) -> View {
        let cache = (mib(seen.number("/cache/bytes")), mib(seen.number("/cache/bytes_max")));
        let dirty = (mib(seen.number("/dirty_bytes")), cache.1);
        let journal = (seen.number("/journal/blocks_used"), seen.number("/journal/blocks"));
        let (app, device) = ("/requests/app_bytes", "/device/written_bytes");
        let ms = |path: &str| seen.number(path) / 1000.0;
        let mib_rate = |path: &str| a_second(seen.rate(path).map(mib));
        let latched = seen.text("/latched");
        let files = seen.now.pointer("/files").and_then(Value::as_array);
        View {
            title: String::new(),
            what: format!(
                "{}, sync={}, up {} s, {} files open",
                seen.text("/image"),
                seen.text("/sync"),
                seen.number("/uptime_s"),
                seen.number("/open_files")
            ),
            warning: (!latched.is_empty()).then(|| format!("STOPPED {latched}")),
            bars: vec![
                seen.bar("cache", cache, "MiB"),
                seen.bar("dirty", dirty, "MiB"),
                seen.bar("journal", journal, "blocks"),
            ],
            figures: vec![
                ("hit ratio", format!("{:.2}", seen.number("/cache/hit_ratio"))),
                ("syncs", format!("{}", seen.number("/syncs/operations"))),
                ("syncs/s", a_second(seen.rate("/syncs/operations"))),
                (
                    "sync p50, p99, max",
                    format!(
                        "{:.1}, {:.1}, {:.1} ms",
                        ms("/syncs/latency_us_p50"),
                        ms("/syncs/latency_us_p99"),
                        ms("/syncs/latency_us_max")
                    ),
                ),
                ("programs MiB/s", mib_rate(app)),
                ("device MiB/s", mib_rate(device)),
                ("device flushes/s", a_second(seen.rate("/device/flushes"))),
                ("log", log(seen)),
                (
                    "write amplification",
                    format!("{:.2}", ratio(seen.number(device), seen.number(app))),
                ),
            ],
            files: files.into_iter().flatten().map(file).collect(),
        }
    }
}

/// The journal's format and unit, the KiB of a commit, and what packed records saved.
fn log(seen: &Documents<'_>) -> String {
    let format = seen.text("/journal/format");
    if format.is_empty() {
        return "-".to_owned();
    }
    let commit_bytes =
        ratio(seen.number("/journal/written_bytes"), seen.number("/journal/commits"));
    let mut text = format!(
        "{format}, units of {} bytes, {:.1} KiB per commit",
        seen.number("/journal/unit_bytes"),
        commit_bytes / 1024.0
    );
    if format == "packed" {
        text += &format!(", {} saved", bytes(seen.number("/journal/saved_bytes")));
    }
    text
}

fn file(entry: &Value) -> [String; 4] {
    let number = |name: &str| entry.get(name).and_then(Value::as_f64).unwrap_or(0.0);
    let name = entry.get("name").and_then(Value::as_str).map(str::to_owned);
    [
        name.unwrap_or_else(|| format!("inode {}", number("inode"))),
        bytes(number("written_bytes")),
        bytes(number("read_bytes")),
        format!("{}", number("syncs")),
    ]
}

/// Draws it, whatever the size.
pub(crate) fn draw(frame: &mut Frame<'_>, view: &View) {
    let bars = view.bars.len() as u16;
    let figures = view.figures.len() as u16 + 1;
    let [head, middle, below, files] = Layout::vertical([
        Constraint::Length(2 + u16::from(view.warning.is_some())),
        Constraint::Length(bars + 1),
        Constraint::Length(figures),
        Constraint::Fill(1),
    ])
    .areas(frame.area());
    let mut lines = vec![Line::from(view.title.as_str()).bold(), Line::from(view.what.as_str())];
    lines.extend(view.warning.as_deref().map(|warning| Line::from(warning).red().bold()));
    frame.render_widget(Paragraph::new(lines), head);
    let rows = Layout::vertical(view.bars.iter().map(|_| Constraint::Length(1))).split(middle);
    for (bar, area) in view.bars.iter().zip(rows.iter()) {
        let label = format!("{:8} {:28}", bar.name, bar.text);
        let gauge = LineGauge::default().label(label).ratio(bar.ratio);
        frame.render_widget(gauge.filled_style(Style::new().cyan()), *area);
    }
    let text = view.figures.iter().map(|(name, value)| Line::from(format!("{name:20} {value}")));
    frame.render_widget(Paragraph::new(text.collect::<Vec<_>>()), below);
    if !view.files.is_empty() {
        let header = Row::new(["file", "written", "read", "syncs"]).bold();
        let rows = view.files.iter().map(|file| Row::new(file.iter().map(String::as_str)));
        let widths = [
            Constraint::Fill(1),
            Constraint::Length(10),
            Constraint::Length(10),
            Constraint::Length(8),
        ];
        let table = Table::new(rows, widths).header(header).block(Block::new());
        frame.render_widget(table, files);
    }
}
