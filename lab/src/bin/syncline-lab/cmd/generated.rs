//! Completions and man pages, which the build script made.

use syncline_cli::generated::Pages;

include!(concat!(env!("OUT_DIR"), "/generated.rs"));

/// Those of this program.
pub(crate) const PAGES: Pages =
    Pages { program: "syncline-lab", completions: COMPLETIONS, pages: MAN_PAGES, more: |_| None };
