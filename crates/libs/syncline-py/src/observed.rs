//! Long calls: the work runs in a thread of its own, while the calling one looks for Ctrl-C.
//!
//! Python handles signals in its main thread only, and only where that asks for them. So the
//! calling thread asks every 50 ms, without holding the interpreter's lock in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use syncline_image::Watch;
use syncline_lab::{LabError, Observer};

use parking_lot::Mutex;
use pyo3::exceptions::{PyOSError, PyUserWarning, PyValueError};
use pyo3::prelude::*;

/// Interval between two looks for a signal.
const LOOK: Duration = Duration::from_millis(50);
const EIO: i32 = 5;
const EUCLEAN: i32 = 117;

/// The observer of a call from Python.
#[derive(Default)]
pub(crate) struct Caller {
    stop: AtomicBool,
    complaints: Mutex<Vec<String>>,
}

impl Observer for Caller {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn complain(&self, text: &str) {
        self.complaints.lock().push(text.to_owned());
    }
}

impl Watch for Caller {
    fn stopped(&self) -> bool {
        Observer::stopped(self)
    }

    fn remark(&self, text: &str) {
        self.complain(text);
    }
}

/// An error of a study as Python's.
pub(crate) fn raised(err: LabError) -> PyErr {
    let text = in_python(&err.to_string());
    match err {
        LabError::Usage(_) | LabError::Unsupported(_) => PyValueError::new_err(text),
        LabError::Corrupt(_) => PyOSError::new_err((EUCLEAN, text)),
        _ => PyOSError::new_err((EIO, text)),
    }
}

/// A sentence of the command line in Python's words: an option is an argument, so `--per-day` is
/// `per_day`. Other command lines stay, as not all of them are functions.
fn in_python(text: &str) -> String {
    let piece = |(at, piece): (usize, &str)| match (at % 2, piece) {
        (0, text) => {
            let mut parts = text.split(" --");
            let first = parts.next().unwrap_or_default().to_owned();
            parts.fold(first, |text, part| text + " " + &argument(part))
        }
        (_, "syncline-lab devices") => "`syncline.devices()`".to_owned(),
        (_, code) => format!("`{}`", code.strip_prefix("--").map_or(code.to_owned(), argument)),
    };
    text.split('`').enumerate().map(piece).collect()
}

/// Text that begins with the name of an option.
fn argument(text: &str) -> String {
    let end = text.find(|letter: char| !letter.is_ascii_lowercase() && letter != '-');
    let (name, rest) = text.split_at(end.unwrap_or(text.len()));
    name.replace('-', "_") + rest
}

/// Runs `call` in a thread. Ctrl-C stops it and is raised when it has ended; complaints become
/// warnings.
pub(crate) fn observed<T: Send + 'static>(
    py: Python<'_>,
    call: impl FnOnce(&Caller) -> Result<T, LabError> + Send + 'static,
) -> PyResult<T> {
    let caller = Arc::new(Caller::default());
    let (sender, receiver) = channel();
    // Only this thread takes it; detached code may use nothing but what several threads may share.
    let receiver = Mutex::new(receiver);
    let theirs = Arc::clone(&caller);
    let thread = thread::spawn(move || {
        // The receiver waits until this was sent or the thread has ended.
        let _ = sender.send(call(&theirs));
    });
    let mut interrupt = None;
    let result = loop {
        match py.detach(|| receiver.lock().recv_timeout(LOOK)) {
            Ok(result) => break Some(result),
            Err(RecvTimeoutError::Disconnected) => break None,
            Err(RecvTimeoutError::Timeout) => {
                if let Err(err) = py.check_signals() {
                    caller.stop.store(true, Ordering::Relaxed);
                    interrupt.get_or_insert(err);
                }
            }
        }
    };
    if let Err(panic) = py.detach(|| thread.join()) {
        std::panic::resume_unwind(panic);
    }
    if let Some(interrupt) = interrupt {
        return Err(interrupt);
    }
    for text in caller.complaints.lock().drain(..) {
        let text = std::ffi::CString::new(text.replace('\0', "?"))?;
        PyErr::warn(py, &py.get_type::<PyUserWarning>(), &text, 2)?;
    }
    let ended = || LabError::Failed("the call ended early; please report it".to_owned());
    result.unwrap_or_else(|| Err(ended())).map_err(raised)
}
