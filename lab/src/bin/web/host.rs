//! Functions of JavaScript: the bytes of a trace, progress, finished parts of a result.
#![allow(unsafe_code, reason = "imports of a WebAssembly module")]

use std::io;
use std::sync::{Mutex, PoisonError};

use syncline_image::ReadAt;
use syncline_lab::Observer;

#[link(wasm_import_module = "host")]
unsafe extern "C" {
    fn read(at: f64, into: *mut u8, len: usize) -> i32;
    fn progress(what: *const u8, len: usize, done: f64, total: f64);
    fn part(json: *const u8, len: usize);
    fn panicked(text: *const u8, len: usize);
}

/// The file that was dropped. JavaScript keeps no pointer beyond a call.
pub(crate) struct Dropped;

impl ReadAt for Dropped {
    fn read_exact_at(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        // SAFETY: the function writes `len` bytes at `into` and no others, all of them in `into`.
        match unsafe { read(at as f64, into.as_mut_ptr(), into.len()) } {
            0 => Err(io::Error::other("the browser cannot read the file")),
            _ => Ok(()),
        }
    }
}

/// Sends a part of the result, JSON.
pub(crate) fn send(json: &str) {
    // SAFETY: the function reads `len` bytes at `json`, all of them in `json`.
    unsafe { part(json.as_ptr(), json.len()) }
}

/// Says what is done; a `total` of 0 is not known.
pub(crate) fn tell(what: &str, done: u64, total: u64) {
    // SAFETY: as of `send`.
    unsafe { progress(what.as_ptr(), what.len(), done as f64, total as f64) }
}

/// Sends the text of a panic. The instance traps then.
pub(crate) fn set_panic_hook() {
    std::panic::set_hook(Box::new(|info| {
        let text = info.to_string();
        // SAFETY: as of `send`.
        unsafe { panicked(text.as_ptr(), text.len()) };
    }));
}

/// Passes progress on, and keeps remarks. It never stops a run: the page ends the worker.
#[derive(Default)]
pub(crate) struct Page {
    what: Mutex<String>,
    remarks: Mutex<Vec<String>>,
}

impl Page {
    /// Begins a stage.
    pub(crate) fn stage(&self, what: &str) {
        what.clone_into(&mut self.what.lock().unwrap_or_else(PoisonError::into_inner));
        tell(what, 0, 0);
    }

    /// Complaints so far.
    pub(crate) fn remarks(self) -> Vec<String> {
        self.remarks.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Page {
    fn position(&self, done: u64, total: u64) {
        tell(&self.what.lock().unwrap_or_else(PoisonError::into_inner), done, total);
    }

    fn complain(&self, text: &str) {
        self.remarks.lock().unwrap_or_else(PoisonError::into_inner).push(text.to_owned());
    }
}
