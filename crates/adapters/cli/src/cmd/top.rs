//! `top`: a mount or write buffer, live, in the terminal or as a page.

use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use serde_json::Value;

use super::top_view::{View, draw};
use crate::args::Top;
use crate::error::{Failure, Result, plain};
use crate::format::Out;
use crate::interrupt;

/// Size of the picture of `--once`.
const COLUMNS: u16 = 100;
const LINES: u16 = 40;
/// Poll interval for keys and signals.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Shows it until q is pressed, or once.
pub(crate) fn run(args: &Top) -> Result<()> {
    let interval = Duration::from_millis(args.interval);
    if args.once {
        return once(&args.dir, interval);
    }
    if let Some(address) = args.web {
        return super::top_web::Web::bind(address)?.run(
            &args.dir,
            interval,
            &|| read(&args.dir),
            &interrupt::asked,
        );
    }
    if !std::io::stdout().is_terminal() {
        let text = "standard output is not a terminal; give --once for one picture as text";
        return Err(Failure::Usage(text.to_owned()));
    }
    let mut seen = Seen::first(&|| read(&args.dir))?;
    let mut terminal = ratatui::try_init().map_err(|err| terminal_failed(&err))?;
    let done = watch(&mut terminal, &args.dir, interval, &mut seen);
    ratatui::restore();
    done
}

fn terminal_failed(err: &std::io::Error) -> Failure {
    Failure::Failed(format!("the terminal: {}; give --once", plain(err)))
}

/// The last two documents.
pub(super) struct Seen {
    pub(super) document: Value,
    pub(super) at: Instant,
    before: Option<(Value, Duration)>,
}

/// Reads a status.
pub(super) type Read<'a> = &'a dyn Fn() -> Result<Value>;

impl Seen {
    pub(super) fn first(read: Read<'_>) -> Result<Seen> {
        Ok(Seen { document: read()?, at: Instant::now(), before: None })
    }

    pub(super) fn again(&mut self, read: Read<'_>) -> Result<()> {
        let (document, at) = (read()?, Instant::now());
        let before = std::mem::replace(&mut self.document, document);
        self.before = Some((before, at - std::mem::replace(&mut self.at, at)));
        Ok(())
    }

    pub(super) fn view(&self, dir: &Path) -> View {
        let before = self.before.as_ref().map(|(document, time)| (document, *time));
        View::of(&dir.display().to_string(), &self.document, before)
    }
}

/// A buffer answers on its socket, a mount by its attribute.
fn read(dir: &Path) -> Result<Value> {
    serde_json::from_str(&super::ctl::document(dir)?)
        .map_err(|err| Failure::Failed(format!("the answer is not JSON: {err}; try `ctl status`")))
}

fn watch(
    terminal: &mut ratatui::DefaultTerminal,
    dir: &Path,
    interval: Duration,
    seen: &mut Seen,
) -> Result<()> {
    loop {
        let view = seen.view(dir);
        terminal.draw(|frame| draw(frame, &view)).map_err(|err| terminal_failed(&err))?;
        while seen.at.elapsed() < interval {
            if interrupt::asked() || leaves().map_err(|err| terminal_failed(&err))? {
                return Ok(());
            }
        }
        seen.again(&|| read(dir))?;
    }
}

/// Waits for a key; returns true if it ends the program. A change of the size is drawn with the
/// next document.
fn leaves() -> std::io::Result<bool> {
    if !event::poll(POLL_INTERVAL)? {
        return Ok(false);
    }
    let Event::Key(key) = event::read()? else { return Ok(false) };
    let control_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    let leaves = matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) || control_c;
    Ok(leaves && key.kind == KeyEventKind::Press)
}

/// One picture as text, after one interval, so that it has rates.
fn once(dir: &Path, interval: Duration) -> Result<()> {
    let mut seen = Seen::first(&|| read(dir))?;
    while seen.at.elapsed() < interval {
        interrupt::check()?;
        std::thread::sleep(POLL_INTERVAL.min(interval));
    }
    seen.again(&|| read(dir))?;
    let mut out = Out::new();
    out.text(picture(&seen.view(dir), COLUMNS, LINES).map_err(|err| terminal_failed(&err))?)?;
    out.flush()
}

/// Returns the text that a terminal of that size would show.
fn picture(view: &View, columns: u16, lines: u16) -> std::io::Result<String> {
    let mut terminal = Terminal::new(TestBackend::new(columns, lines))?;
    terminal.draw(|frame| draw(frame, view))?;
    let buffer = terminal.backend().buffer();
    let cells = buffer.content().chunks(usize::from(columns).max(1));
    let text: Vec<String> = cells
        .map(|line| line.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned())
        .collect();
    let used = text.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1);
    Ok(text[..used].iter().map(|line| format!("{line}\n")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(document: &Value, before: Option<(&Value, u64)>) -> String {
        let before = before.map(|(value, seconds)| (value, Duration::from_secs(seconds)));
        picture(&View::of("/mnt/card", document, before), 90, 34).unwrap()
    }

    fn buffer(flushes: u64, home_bytes: u64) -> Value {
        json!({
            "schema": "syncline.buffer/1", "device": "/dev/sdb", "log": "card.log",
            "latched": false, "ram_pages": 1024, "relaxed_pages": 12, "ring_pages": 4096,
            "ring_used_pages": 1024, "mapped_pages": 900, "logged_pages": 5000,
            "home_bytes": home_bytes, "cleaned_pages": 4000, "cleaned_runs": 80,
            "flushes": flushes, "flushes_saved": 25,
            "settings": {"ram_bytes": 16 << 20, "log": true, "policies": ["power", "auto-ram"],
                "last_change": "auto-ram: RamBytes(16777216)"},
        })
    }

    #[test]
    fn a_buffer_with_its_rates() {
        let text = shown(&buffer(100, 30 << 20), Some((&buffer(60, 10 << 20), 2)));
        for part in [
            "/mnt/card",
            "/dev/sdb with log card.log",
            "memory",
            "4.0 of 16.0 MiB",
            "4.0 of 16.0 MiB  25 %",
            "flushes/s            20.0",
            "to home blocks MiB/s 10.0",
            "saved flushes        25 %",
            "pages per run        50.0",
            "policies             power, auto-ram",
            "last change          auto-ram: RamBytes(16777216)",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        let first = shown(&buffer(100, 0), None);
        assert!(first.contains("flushes/s            -"), "{first}");
    }

    fn mount(files: Value) -> Value {
        json!({
            "schema": "syncline.status/1", "image": "card.img", "sync": "eager", "uptime_s": 61,
            "open_files": 3, "latched": null, "dirty_bytes": 3 << 20,
            "journal": {"blocks": 1000, "blocks_used": 250, "commits": 9, "format": "packed",
                "unit_bytes": 4096, "written_bytes": 45 << 10, "saved_bytes": 3 << 20},
            "cache": {"bytes": 32 << 20, "bytes_max": 64 << 20, "hit_ratio": 0.875},
            "syncs": {"operations": 40, "latency_us_p50": 800, "latency_us_p99": 2500,
                "latency_us_max": 30000},
            "requests": {"reads": 4, "read_bytes": 4096, "writes": 9, "app_bytes": 1 << 20},
            "device": {"written_bytes": 3 << 20, "read_bytes": 0, "flushes": 41},
            "files": files,
        })
    }

    #[test]
    fn a_mount_with_its_files() {
        let files = json!([
            {"name": "app.db", "inode": 12, "written_bytes": 2 << 20, "read_bytes": 0, "syncs": 38},
            {"name": "log", "inode": 13, "written_bytes": 1 << 10, "read_bytes": 512, "syncs": 2},
        ]);
        let text = shown(&mount(files), None);
        for part in [
            "card.img, sync=eager, up 61 s, 3 files open",
            "32.0 of 64.0 MiB  50 %",
            "250 of 1000 blocks  25 %",
            "hit ratio            0.88",
            "syncs                40",
            "sync p50, p99, max   0.8, 2.5, 30.0 ms",
            "write amplification  3.00",
            "log                  packed, units of 4096 bytes, 5.0 KiB per commit, 3.0 MiB saved",
            "app.db",
            "2.0 MiB",
            "512 B",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
    }

    #[test]
    fn any_document_and_any_size_is_drawn() {
        for document in
            [json!({}), json!(null), json!({"cache": 7, "files": [1, {}]}), mount(json!([]))]
        {
            for (columns, lines) in [(0, 0), (1, 1), (20, 3), (300, 100)] {
                let before = Some((&document, Duration::ZERO));
                picture(&View::of("x", &document, before), columns, lines).unwrap();
            }
        }
        let mut latched = buffer(1, 1);
        latched["latched"] = json!(true);
        assert!(shown(&latched, None).contains("STOPPED"));
    }
}
