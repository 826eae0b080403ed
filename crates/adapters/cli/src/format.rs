//! Output of modes, times, names, sizes and tables, and standard output itself.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use syncline_fs::{Timestamp, type_letter};
pub use syncline_image::Staged;
use syncline_image::text::acts;
pub use syncline_image::text::{line, printable, table};

use crate::error::{Failure, Result};

/// Standard output. A closed pipe ends the command without a complaint.
pub struct Out(io::BufWriter<io::StdoutLock<'static>>);

impl Out {
    /// Buffered standard output.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Out {
        Out(io::BufWriter::with_capacity(64 << 10, io::stdout().lock()))
    }

    /// Writes text, which [`printable`] makes harmless.
    pub fn text(&mut self, text: impl AsRef<str>) -> Result<()> {
        self.bytes(printable(text.as_ref()).as_bytes())
    }

    /// Writes bytes.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.write_all(bytes).map_err(stdout_failed)
    }

    /// Passes everything on.
    pub fn flush(&mut self) -> Result<()> {
        self.0.flush().map_err(stdout_failed)
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn stdout_failed(err: io::Error) -> Failure {
    /// `ERROR_PIPE_NOT_CONNECTED` of Windows, which has no kind.
    const PIPE_NOT_CONNECTED: i32 = 233;
    match err.kind() {
        io::ErrorKind::BrokenPipe => Failure::PipeClosed,
        _ if cfg!(windows) && err.raw_os_error() == Some(PIPE_NOT_CONNECTED) => Failure::PipeClosed,
        _ => Failure::host(Path::new("standard output"), &err),
    }
}

/// `drwxr-xr-x`.
pub fn mode(mode: u16) -> String {
    let mut text = String::from(type_letter(mode));
    for (shift, special, set, clear) in
        [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')]
    {
        let bits = mode >> shift & 7;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, mode & special != 0) {
            (true, true) => set,
            (false, true) => clear,
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// `2024-01-31 23:59:58`, UTC. Any year that ext4 can hold.
pub fn seconds(seconds: i64) -> String {
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// As [`seconds`], with nanoseconds and zone.
pub fn time(time: Timestamp) -> String {
    format!("{}.{:09} +0000", seconds(time.seconds), time.nanoseconds)
}

/// Year, month and day of a number of days since 1970-01-01 in the Gregorian calendar (H. Hinnant,
/// "chrono-compatible low-level date algorithms").
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// A name as bytes for standard output: as it is, but on a terminal without control characters.
pub fn name(name: &[u8]) -> Vec<u8> {
    if !io::stdout().is_terminal() {
        return name.to_vec();
    }
    let text = String::from_utf8_lossy(name);
    text.chars().map(|c| if acts(c) { '?' } else { c }).collect::<String>().into_bytes()
}

/// `12.3 MiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = UNITS[0];
    for next in &UNITS[1..] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") }
}

/// `12M`, as ls(1) with -h: rounded up, one decimal below 10.
pub fn short_size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["K", "M", "G", "T", "P", "E"];
    if bytes < 1024 {
        return bytes.to_string();
    }
    let mut unit_bytes = 1024;
    for unit in UNITS {
        let tenths = (u128::from(bytes) * 10).div_ceil(unit_bytes);
        let whole = u128::from(bytes).div_ceil(unit_bytes);
        match (tenths, whole) {
            (..100, _) => return format!("{}.{}{unit}", tenths / 10, tenths % 10),
            (_, ..1024) => return format!("{whole}{unit}"),
            _ => unit_bytes *= 1024,
        }
    }
    bytes.to_string()
}

/// Writes a file so that it is complete or not there.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    Ok(syncline_image::write_file(path, bytes)?)
}

/// Fails if one of these files cannot be written: before a run, not after it.
pub fn check_outputs(paths: &[Option<&Path>]) -> Result<()> {
    Ok(syncline_image::check_outputs(paths)?)
}

/// A document as it is written.
pub fn document(document: &serde_json::Value) -> String {
    format!("{document:#}\n")
}

/// Forms of a measuring command's output.
pub struct Forms<'a> {
    /// For people.
    pub table: &'a dyn Fn() -> String,
    /// For programs.
    pub json: &'a dyn Fn() -> String,
    /// For a browser.
    pub page: &'a dyn Fn() -> String,
}

/// Prints the table, or the document if `json` is `-`; writes the document to any other `json`.
pub fn show(
    table: &dyn Fn() -> String,
    document: &dyn Fn() -> String,
    json: Option<&Path>,
) -> Result<()> {
    let to_stdout = json == Some(Path::new("-"));
    let mut out = Out::new();
    out.text(if to_stdout { document() } else { table() })?;
    out.flush()?;
    match json {
        Some(path) if !to_stdout => write_file(path, document().as_bytes()),
        _ => Ok(()),
    }
}

/// As [`show`], and writes the page to `html`.
pub fn publish(forms: &Forms<'_>, json: Option<&Path>, html: Option<&Path>) -> Result<()> {
    show(forms.table, forms.json, json)?;
    match html {
        Some(path) => write_file(path, (forms.page)().as_bytes()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_utc_in_any_year() {
        assert_eq!(seconds(0), "1970-01-01 00:00:00");
        assert_eq!(seconds(-1), "1969-12-31 23:59:59");
        assert_eq!(seconds(951_827_696), "2000-02-29 12:34:56");
        assert_eq!(seconds(4_107_542_400), "2100-03-01 00:00:00");
        let time = Timestamp { seconds: 15_032_385_535, nanoseconds: 7 };
        assert_eq!(super::time(time), "2446-05-10 22:38:55.000000007 +0000");
    }

    #[test]
    fn modes_show_special_bits() {
        assert_eq!(mode(0o100_644), "-rw-r--r--");
        assert_eq!(mode(0o041_777), "drwxrwxrwt");
        assert_eq!(mode(0o104_611), "-rwS--x--x");
    }

    #[test]
    fn sizes_have_binary_units() {
        assert_eq!((size(1023), size(1536)), ("1023 B".to_owned(), "1.5 KiB".to_owned()));
        let short = [1023, 1024, 1025, 10_139, 10_240, 10_241, (1 << 20) - 1, 1 << 20, u64::MAX];
        let texts = ["1023", "1.0K", "1.1K", "10K", "10K", "11K", "1.0M", "1.0M", "16E"];
        assert_eq!(short.map(short_size), texts);
        assert_eq!(size(u64::MAX), "16777216.0 TiB");
    }
}
