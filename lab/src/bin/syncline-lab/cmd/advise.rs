//! `advise`: the mount options that suit a program on a device, or those that work in a directory.

use std::path::PathBuf;
use std::time::Duration;

use syncline_cli::error::{Failure, Result};
use syncline_cli::format::{self, Staged};
use syncline_lab::experiments::{Advice, Advise as Request, Trial, advice_document, span};

use super::bench::request;
use super::trace::files;
use crate::args::Advise;
use crate::progress::Terminal;

/// Time that is recorded without `--for`.
const RECORDED: Duration = Duration::from_hours(1);

/// Runs every combination on each device, then prints.
pub(crate) fn run(args: &Advise) -> Result<()> {
    format::check_outputs(&[args.json.as_deref()])?;
    let recording = recorded(args)?;
    let mut bench = request(Vec::new(), &args.device);
    bench.trace = match &recording {
        Some(recording) => vec![recording.trace.clone()],
        None => args.traces.clone(),
    };
    bench.contents.clone_from(&args.contents);
    bench.gap_max = args.gap_max;
    let mut all = Vec::new();
    for device in args.device.specs()? {
        bench.device = device;
        let request = Request { bench: bench.clone(), per_day: args.per_day };
        all.push(request.run(&Terminal::default())?);
    }
    let made: u64 = all.iter().map(|advice| advice.calls).sum();
    if made == 0 {
        let text = match recording {
            Some(_) => "no program wrote to a file there; record for a longer time with --for",
            None => "none of the calls could be made; give another trace",
        };
        return Err(Failure::Failed(text.to_owned()));
    }
    let text = || all.iter().map(page).collect::<Vec<String>>().join("\n");
    let document = || format::document(&advice_document(&all, &args.traces));
    format::show(&text, &document, args.json.as_deref())
}

/// A recording of a directory, removed at the end if it is not kept.
struct Recording {
    trace: PathBuf,
    _dir: Option<tempfile::TempDir>,
}

/// Records if a directory or device is named.
fn recorded(args: &Advise) -> Result<Option<Recording>> {
    let place = args.traces.iter().find(|path| files::is_place(path));
    let Some(place) = place else {
        return match args.time.is_some() || args.keep.is_some() {
            true => Err(Failure::Usage("--for and --keep are of a directory; name one".to_owned())),
            false => Ok(None),
        };
    };
    if args.traces.len() > 1 {
        let text =
            format!("{}: a directory is recorded alone; leave the traces out", place.display());
        return Err(Failure::Usage(text));
    }
    let (trace, dir) = match &args.keep {
        Some(path) => (path.clone(), None),
        None => {
            let failed = |err: std::io::Error| Failure::host(&std::env::temp_dir(), &err);
            // A new one that nobody else can have prepared: this runs as root.
            let dir = tempfile::Builder::new().prefix("syncline-").tempdir().map_err(failed)?;
            (dir.path().join("recording"), Some(dir))
        }
    };
    let staged = Staged::private(&trace)?;
    files::record(place, args.time.unwrap_or(RECORDED), &staged.file(&trace)?)?;
    staged.commit(&trace)?;
    Ok(Some(Recording { trace, _dir: dir }))
}

/// One page: what each promise costs, and what to write into fstab.
fn page(advice: &Advice) -> String {
    let Some(now) = advice.now() else { return String::new() };
    let choices = advice.choices();
    let mut text = format!("{}: {} calls", advice.device, advice.calls);
    if advice.left_out > 0 {
        text += &format!(", {} could not be made", advice.left_out);
    }
    text += "\n\n";
    let header =
        ["a power cut keeps", "options", "time s", "", "p99 us", "written MB", "pages", ""];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows[0].extend(now.years.map(|_| "lasts".to_owned()));
    rows.push(row(now, now));
    rows.extend(choices.iter().filter(|one| **one != now).map(|one| row(one, now)));
    text += &format::table(&rows, &[false, false, true, true, true, true, true, true, true]);
    let best = choices.first().copied().unwrap_or(now);
    text += "\nTime and pages: shares of those with sync=ordered. Time ends with the unmount.\n";
    text += &match best == now {
        true => "\nsync=ordered suits this program: nothing is faster without a risk.\n".to_owned(),
        false => format!("\nUse -o {}\n", best.remedy.options),
    };
    text += &format!("fstab: IMAGE DIR fuse.syncline {},nofail 0 0\n", options(best));
    for other in choices.iter().skip(1) {
        text += &format!("\nFor less time, -o {}\n", options(other));
        for risk in other.remedy.risks() {
            text += &format!("- {risk}\n");
        }
    }
    text
}

/// With the name of a buffer's log to fill in.
fn options(trial: &Trial) -> String {
    let log = if trial.remedy.buffer { ",buffer_log=FILE" } else { "" };
    trial.remedy.options.clone() + log
}

fn row(trial: &Trial, now: &Trial) -> Vec<String> {
    let share = |own: f64, of: f64| format!("{:.2}", own / of.max(f64::MIN_POSITIVE));
    let mut cells = vec![
        trial.remedy.keeps.text().to_owned(),
        options(trial),
        format!("{:.3}", trial.whole_s),
        share(trial.whole_s, now.whole_s),
        format!("{:.0}", trial.latency_us_p99),
        format!("{:.1}", trial.written_bytes as f64 / 1e6),
        trial.pages.to_string(),
        share(trial.pages as f64, now.pages as f64),
    ];
    cells.extend(trial.years.map(span));
    cells
}
