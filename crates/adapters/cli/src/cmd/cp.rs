//! `cp`: into, out of and between images.

use indicatif::ProgressBar;
use syncline_image::Watch;
use syncline_image::copy::{Options, copy};

use crate::args::Cp;
use crate::error::{Failure, Result};
use crate::interrupt;

/// Copies.
pub(crate) fn run(args: &Cp) -> Result<()> {
    let options = Options {
        recursive: args.recursive || args.archive,
        preserve: args.preserve || args.archive,
    };
    let shown = Shown(ProgressBar::new_spinner().with_prefix("files"));
    let done = copy(&args.sources, &args.target, options, &shown);
    shown.0.finish_and_clear();
    let outcome = done?;
    let Some(first) = outcome.first.map(Failure::from) else { return Ok(()) };
    let count = outcome.failures;
    crate::complain(&format!("{count} files were not copied, see above; copy them again"));
    Err(Failure::Said(first.code()))
}

/// A spinner.
struct Shown(ProgressBar);

impl Watch for Shown {
    fn stopped(&self) -> bool {
        interrupt::asked()
    }

    fn remark(&self, text: &str) {
        self.0.suspend(|| crate::complain(text));
    }

    fn copied(&self, _: u64) {
        self.0.tick();
    }
}
