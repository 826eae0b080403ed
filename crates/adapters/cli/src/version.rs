//! `--version`: what was built from what, and where it runs.

use crate::error::Result;
use crate::format::Out;

/// Prints one line; with `verbose` what a bug report needs besides.
pub(crate) fn print(verbose: bool) -> Result<()> {
    let mut out = Out::new();
    out.text(format!("syncline {}\n", env!("CARGO_PKG_VERSION")))?;
    if verbose {
        out.text(format!("commit: {}\n", env!("SYNCLINE_BUILD_COMMIT")))?;
        out.text(format!("target: {}\n", env!("SYNCLINE_BUILD_TARGET")))?;
        out.text(format!("compiler: {}\n", env!("SYNCLINE_BUILD_COMPILER")))?;
        out.text(format!("host: {}\n", host()))?;
    }
    out.flush()
}

/// Kernel, processor architecture, processors and page size.
fn host() -> String {
    let known = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    format!(
        "{} {} {}, {} processors, pages of {} bytes",
        text(known.sysname()),
        text(known.release()),
        text(known.machine()),
        std::thread::available_parallelism().map_or(1, usize::from),
        rustix::param::page_size()
    )
}
