//! Volumes in a helper process (`isolate`), and disks in the files of other programs; the calls of
//! a volume in this process are tested through C and Python.

mod answers;
mod images;
mod process;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use syncline::{Disk, OpenOptions};

/// One test at a time: they look at the children of this process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Options with a helper process.
fn isolated(more: &str) -> OpenOptions {
    let program = syncline_testkit::program("syncline", "syncline-cli");
    OpenOptions::parse(&format!("isolate={},{more}", program.display())).unwrap()
}

fn open(image: &Path, more: &str) -> Disk {
    Disk::open(image, &isolated(more)).unwrap()
}
