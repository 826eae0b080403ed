//! `advise`: the mount options that suit a program on a device.

use syncline_cli::error::{Failure, Result};
use syncline_cli::format;
use syncline_lab::experiments::{Advice, Advise as Request, Trial, advice_document, span};

use super::bench::request;
use crate::args::Advise;
use crate::progress::Terminal;

/// Runs every combination on each device, then prints.
pub(crate) fn run(args: &Advise) -> Result<()> {
    format::check_outputs(&[args.json.as_deref()])?;
    let mut bench = request(Vec::new(), &args.device);
    bench.trace.clone_from(&args.traces);
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
        return Err(Failure::Failed("none of the calls could be made; give another trace".into()));
    }
    let text = || all.iter().map(page).collect::<Vec<String>>().join("\n");
    let document = || format::document(&advice_document(&all, &args.traces));
    format::show(&text, &document, args.json.as_deref())
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
