//! A system without Landlock and system call filters: a command keeps the rights of its caller.

use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files and programs that a command may use; here they bound nothing.
#[expect(dead_code, reason = "nothing is bound here")]
#[derive(Debug, Default)]
pub(crate) struct Bounds {
    pub(crate) reads: Vec<PathBuf>,
    pub(crate) writes: Vec<PathBuf>,
    pub(crate) fills: Vec<PathBuf>,
    pub(crate) starts: bool,
}

impl Bounds {
    pub(crate) fn reader(_: &Path) -> Bounds {
        Bounds::default()
    }

    pub(crate) fn writer(_: &Path) -> Bounds {
        Bounds::default()
    }

    pub(crate) fn makes(self, _: &Path) -> Bounds {
        self
    }

    pub(crate) fn over(self, _: &crate::args::Part) -> Bounds {
        self
    }

    pub(crate) fn when_opened(self) -> Arc<dyn Fn() + Send + Sync> {
        Arc::new(|| {})
    }

    pub(crate) fn enter(&self) {}
}
