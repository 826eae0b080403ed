//! Ctrl-C and SIGTERM: the first asks, the second ends the process at once.
//!
//! The first only sets a flag, which long commands look at between operations, so that images are
//! unmounted and temporary files removed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::error::{Failure, Result};

static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Exit code of a process that Ctrl-C ended.
const INTERRUPTED: i32 = 130;

/// Installs the handlers.
pub fn install() -> Result<()> {
    let flag = FLAG.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM] {
        let failed = |err: std::io::Error| {
            Failure::Failed(format!("signals cannot be handled: {err}; check the environment"))
        };
        // In this order: a second signal finds the flag set and exits.
        signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED, Arc::clone(flag))
            .map_err(failed)?;
        signal_hook::flag::register(signal, Arc::clone(flag)).map_err(failed)?;
    }
    Ok(())
}

/// True if an interrupt asked the program to stop.
pub fn asked() -> bool {
    FLAG.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// Forgets the signal that asked: the work that it meant has ended.
pub fn forget() {
    if let Some(flag) = FLAG.get() {
        flag.store(false, Ordering::Relaxed);
    }
}

/// Fails if a signal asked to stop.
pub fn check() -> Result<()> {
    if asked() { Err(Failure::Interrupted) } else { Ok(()) }
}
