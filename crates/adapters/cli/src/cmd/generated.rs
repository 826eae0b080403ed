//! Completions and man pages, which the build script made.

use crate::generated::Pages;
use crate::mount_options;

include!(concat!(env!("OUT_DIR"), "/generated.rs"));

/// Those of this program. The options of a mount are in tables that the build script does not have.
pub(crate) const PAGES: Pages = Pages {
    program: "syncline",
    completions: COMPLETIONS,
    pages: MAN_PAGES,
    more: |name| (name == "mount").then(mount_options::man),
};
