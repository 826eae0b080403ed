//! Progress on standard error: how much of how much, bytes where they are known, how fast, the time
//! left.
//!
//! A terminal gets one line that is drawn again, anything else a line every 30 s. Nothing is shown
//! before the first step or byte. The time left is that of the mean rate so far; it is left out as
//! long as too little is done to tell, and if it is longer than a week.

use std::io::{IsTerminal, Write, stderr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::format;

/// Time between two drawings on a terminal, and between two lines elsewhere.
const REDRAW: Duration = Duration::from_millis(100);
const LINES: Duration = Duration::from_secs(30);
/// Least time and share of the work behind a time left, and the longest one that is shown.
const LEFT_AFTER: Duration = Duration::from_secs(1);
const LEFT_SHARE: u64 = 1000;
const LEFT_MAX_S: u64 = 7 * 86_400;
/// Columns of the bar itself, and of a terminal that does not say.
const BAR_COLUMNS: usize = 20;
const COLUMNS: u16 = 80;

struct State {
    what: String,
    done: u64,
    /// Bytes beside the steps; 0: not known.
    moved_bytes: u64,
    /// 0: not known.
    total: u64,
    began: Instant,
    shown: Instant,
    is_drawn: bool,
}

/// The progress of one piece of work.
pub struct Bar {
    is_bytes: bool,
    is_terminal: bool,
    /// The columns of the terminal, if they are not to be looked up.
    columns: Option<usize>,
    state: Mutex<State>,
}

/// Progress of `total` steps.
pub fn bar(what: &str, total: u64) -> Bar {
    Bar::new(what, total, false)
}

/// Progress in bytes.
pub fn bytes(what: &str, total: u64) -> Bar {
    Bar::new(what, total, true)
}

impl Bar {
    fn new(what: &str, total: u64, is_bytes: bool) -> Bar {
        let now = Instant::now();
        let (what, is_terminal) = (what.to_owned(), stderr().is_terminal());
        let (done, moved_bytes, is_drawn) = (0, 0, false);
        let state = State { what, done, moved_bytes, total, began: now, shown: now, is_drawn };
        Bar { is_bytes, is_terminal, columns: None, state: Mutex::new(state) }
    }

    /// With the terminal as wide as it is now, for a process that cannot ask later.
    #[cfg(target_os = "linux")]
    pub fn of_this_width(mut self) -> Bar {
        self.columns = self.is_terminal.then(columns);
        self
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic leaves no state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if somebody looks on, for whom the total is worth counting.
    pub fn is_watched(&self) -> bool {
        self.is_terminal
    }

    /// Names the work.
    pub fn set_what(&self, what: String) {
        self.state().what = what;
    }

    /// A stage of the work, whose steps and rate are its own.
    pub fn stage(&self, what: &str, done: u64, total: u64) {
        let mut state = self.state();
        if state.what != what {
            (state.what, state.began) = (what.to_owned(), Instant::now());
            state.moved_bytes = 0;
        }
        (state.done, state.total) = (done, total);
        self.show(state);
    }

    /// Sets the total.
    pub fn set_total(&self, total: u64) {
        self.state().total = total;
    }

    /// Sets what is done.
    pub fn set_done(&self, done: u64) {
        let mut state = self.state();
        state.done = done;
        self.show(state);
    }

    /// Sets how many bytes the steps moved.
    pub fn set_moved(&self, bytes: u64) {
        let mut state = self.state();
        state.moved_bytes = bytes;
        self.show(state);
    }

    /// Adds to what is done.
    pub fn add(&self, steps: u64) {
        let mut state = self.state();
        state.done = state.done.saturating_add(steps);
        self.show(state);
    }

    fn show(&self, mut state: MutexGuard<'_, State>) {
        let now = Instant::now();
        let Some(text) = self.due(&state, now) else { return };
        state.shown = now;
        if !self.is_terminal {
            return crate::complain(&text);
        }
        state.is_drawn = true;
        let room = self.columns.unwrap_or_else(columns).saturating_sub(1);
        let line = fitting(&filled(&state), &state.what, &text, room);
        // Nobody looks at a standard error that is closed.
        let _ = write!(stderr().lock(), "\r\x1b[K{line}");
    }

    /// The text that is due; `None` before the first step, too early, and at the end where there is
    /// no terminal: that is said by the command.
    fn due(&self, state: &State, now: Instant) -> Option<String> {
        let wait = if self.is_terminal { REDRAW } else { LINES };
        let has_begun = state.done > 0 || state.moved_bytes > 0;
        if !has_begun || now.saturating_duration_since(state.shown) < wait {
            return None;
        }
        let is_said = self.is_terminal || state.done != state.total;
        is_said.then(|| self.text(state, now.saturating_duration_since(state.began)))
    }

    /// Prints `print` where the bar was.
    pub fn suspend(&self, print: impl FnOnce()) {
        self.clear();
        print();
    }

    /// Removes the line.
    pub fn clear(&self) {
        if std::mem::take(&mut self.state().is_drawn) {
            let _ = write!(stderr().lock(), "\r\x1b[K");
        }
    }

    fn text(&self, state: &State, elapsed: Duration) -> String {
        let amount = |n: u64| if self.is_bytes { format::size(n) } else { n.to_string() };
        let mut text = format!("{}: {}", state.what, amount(state.done));
        if state.total > 0 {
            text += &format!(" of {}", amount(state.total));
        }
        if state.moved_bytes > 0 {
            text += &format!(", {}", format::size(state.moved_bytes));
        }
        if elapsed >= LEFT_AFTER {
            let bytes = if self.is_bytes { state.done } else { state.moved_bytes };
            text += &rate(state.done, bytes, elapsed.as_secs_f64());
        }
        if let Some(left) = left(state.done, state.total, elapsed) {
            text += &format!(", {left} left");
        }
        text
    }
}

/// The columns of the terminal.
fn columns() -> usize {
    #[cfg(unix)]
    let size = rustix::termios::tcgetwinsize(stderr()).map(|size| size.ws_col).ok();
    #[cfg(not(unix))]
    let size = None;
    usize::from(size.filter(|columns| *columns > 0).unwrap_or(COLUMNS))
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The bar itself, where the total is known.
fn filled(state: &State) -> String {
    if state.total == 0 {
        return String::new();
    }
    let share = state.done.min(state.total) as f64 / state.total as f64;
    let full = (share * BAR_COLUMNS as f64) as usize;
    format!("[{}{}] ", "#".repeat(full), "-".repeat(BAR_COLUMNS - full))
}

/// The bar and its text within so many columns. What is too long loses the bar itself, then the end
/// of the work's name, with which the text begins: the figures behind it are what is looked at.
fn fitting(filled: &str, what: &str, text: &str, room: usize) -> String {
    let length = |text: &str| text.chars().count();
    let (what, text) = (format::line(what), format::line(text));
    if length(filled) + length(&text) <= room {
        return format!("{filled}{text}");
    }
    let over = length(&text).saturating_sub(room);
    let figures = text.strip_prefix(&*what).filter(|_| over > 0);
    let line = figures.map_or(text.to_string(), |figures| {
        let kept = length(&what).saturating_sub(over + 1);
        format!("{}…{figures}", what.chars().take(kept).collect::<String>())
    });
    line.chars().take(room).collect()
}

/// The mean rate: bytes where there are some, or steps by the unit in which they are not below one.
fn rate(steps: u64, bytes: u64, seconds: f64) -> String {
    let per_s = steps as f64 / seconds;
    match per_s {
        _ if bytes > 0 => format!(", {}/s", format::size((bytes as f64 / seconds) as u64)),
        0.0 => String::new(),
        1.0.. => format!(", {per_s:.0}/s"),
        _ if per_s * 60.0 >= 1.0 => format!(", {:.0}/min", per_s * 60.0),
        _ => format!(", {:.1}/h", per_s * 3600.0),
    }
}

/// The time left, in its two largest units.
fn left(done: u64, total: u64, elapsed: Duration) -> Option<String> {
    let rest = total.checked_sub(done).filter(|rest| *rest > 0 && done > total / LEFT_SHARE)?;
    let seconds = elapsed.as_secs_f64() * rest as f64 / done as f64;
    if elapsed < LEFT_AFTER || seconds > LEFT_MAX_S as f64 {
        return None;
    }
    let s = seconds.ceil() as u64;
    Some(match s {
        ..60 => format!("{s} s"),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        3600..86_400 => format!("{} h {} min", s / 3600, s / 60 % 60),
        _ => format!("{} d {} h", s / 86_400, s / 3600 % 24),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_shown_where_it_can_be_told() {
        let after = |seconds, done, total| left(done, total, Duration::from_secs(seconds));
        assert_eq!(after(10, 50, 100).as_deref(), Some("10 s"));
        assert_eq!(after(100, 50, 100).as_deref(), Some("1 min 40 s"));
        assert_eq!(after(8000, 50, 100).as_deref(), Some("2 h 13 min"));
        assert_eq!(after(100_000, 50, 100).as_deref(), Some("1 d 3 h"));
        // Too early, a total that is not known, the end, weeks.
        for (seconds, done, total) in
            [(0, 1, 2), (10, 1, 100_000), (10, 5, 0), (10, 5, 5), (10, 0, 5), (100_000, 1, 900)]
        {
            assert_eq!(after(seconds, done, total), None, "{done} of {total} in {seconds} s");
        }
    }

    /// A terminal gets a bar where the total is known, all else a line every 30 s.
    #[test]
    fn lines_come_when_they_are_due_and_say_something() {
        for (is_terminal, due_ms) in [(true, 100), (false, 30_000)] {
            let due = |done, total, after_ms| {
                let mut bar = bytes("import", total);
                bar.is_terminal = is_terminal;
                let mut state = bar.state();
                state.done = done;
                let now = state.shown + Duration::from_millis(after_ms);
                bar.due(&state, now).map(|text| (filled(&state), text))
            };
            let (some, all) = (1 << 20, 4 << 20);
            assert_eq!(due(some, all, due_ms - 1), None, "too early");
            assert_eq!(due(0, 0, due_ms), None, "nothing of nothing");
            assert_eq!(due(0, all, due_ms), None, "not begun");
            let (bar, text) = due(some, all, due_ms).expect("a part");
            assert_eq!(bar, "[#####---------------] ");
            assert!(text.starts_with("import: 1.0 MiB of 4.0 MiB"), "{text}");
            let (bar, text) = due(some, 0, due_ms).expect("a part of what is not known");
            assert!(bar.is_empty() && text.starts_with("import: 1.0 MiB"), "{bar}{text}");
            assert_eq!(due(all, all, due_ms).is_some(), is_terminal, "the end");
        }
    }

    #[test]
    fn a_narrow_terminal_keeps_the_figures() {
        let filled = "[####----------------] ";
        let of = |what: &str, room| {
            let line = fitting(filled, what, &format!("{what}: 1 of 18, 2 s left"), room);
            assert!(line.chars().count() <= room, "{line}");
            line
        };
        assert_eq!(of("runs", 50), format!("{filled}runs: 1 of 18, 2 s left"));
        assert_eq!(of("runs", 40), "runs: 1 of 18, 2 s left");
        assert_eq!(of("figure-3: hot_zones", 30), "figure-3: …: 1 of 18, 2 s left");
        assert_eq!(of("figure-3\r", 5), "…: 1 ");
    }

    #[test]
    fn bytes_and_steps_have_a_rate() {
        let text = |bar: &Bar, done| {
            bar.set_done(done);
            bar.text(&bar.state(), Duration::from_secs(4))
        };
        let all = bytes("import", 4 << 20);
        assert_eq!(text(&all, 1 << 20), "import: 1.0 MiB of 4.0 MiB, 256.0 KiB/s, 12 s left");
        assert_eq!(text(&bytes("import", 0), 1 << 20), "import: 1.0 MiB, 256.0 KiB/s");
        assert_eq!(text(&bar("runs", 3), 1), "runs: 1 of 3, 15/min, 8 s left");
        assert_eq!(text(&bar("inodes", 900), 300), "inodes: 300 of 900, 75/s, 8 s left");
        let tests = bar("tests", 5);
        tests.set_moved(2 << 20);
        assert_eq!(text(&tests, 0), "tests: 0 of 5, 2.0 MiB, 512.0 KiB/s");
        assert_eq!(text(&tests, 1), "tests: 1 of 5, 2.0 MiB, 512.0 KiB/s, 16 s left");
        assert_eq!(rate(1, 0, 1000.0), ", 3.6/h");
    }
}
