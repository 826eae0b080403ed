//! `--version`: the build and this host. Reports have the same in their footer.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::Result;
use crate::format::{self, Out};

/// Prints one line; with `verbose` what a bug report needs besides.
pub fn print(verbose: bool) -> Result<()> {
    let mut out = Out::new();
    out.text(format!("{} {}\n", crate::program(), env!("CARGO_PKG_VERSION")))?;
    if verbose {
        out.text(format!("commit: {}\n", env!("SYNCLINE_BUILD_COMMIT")))?;
        out.text(format!("target: {}\n", env!("SYNCLINE_BUILD_TARGET")))?;
        out.text(format!("compiler: {}\n", env!("SYNCLINE_BUILD_COMPILER")))?;
        out.text(format!("host: {}\n", host()))?;
    }
    out.flush()
}

/// Program, version and commit.
pub fn build() -> String {
    let commit = env!("SYNCLINE_BUILD_COMMIT");
    format!("{} {}, commit {commit}", crate::program(), env!("CARGO_PKG_VERSION"))
}

/// The command line of this process as a shell takes it.
pub fn command_line() -> String {
    let words = std::env::args_os().skip(1).map(|word| quoted(&word.to_string_lossy()));
    let words: Vec<String> = std::iter::once(crate::program().to_owned()).chain(words).collect();
    words.join(" ")
}

/// Now, as text.
pub fn date() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    format!("{} UTC", format::seconds(now as i64))
}

/// A word of a command line as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Kernel, processor architecture, processors and page size, as far as the system says.
pub fn host() -> String {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    #[cfg(unix)]
    {
        let known = rustix::system::uname();
        let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
        let (system, release) = (text(known.sysname()), text(known.release()));
        let (machine, page) = (text(known.machine()), rustix::param::page_size());
        format!("{system} {release} {machine}, {processors} processors, pages of {page} bytes")
    }
    #[cfg(not(unix))]
    {
        let (system, machine) = (std::env::consts::OS, std::env::consts::ARCH);
        format!("{system} {machine}, {processors} processors")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_needs_it() {
        assert_eq!(quoted("--device=sd-2012"), "--device=sd-2012");
        assert_eq!((quoted("a b"), quoted("it's")), ("'a b'".into(), "'it'\\''s'".into()));
    }
}
