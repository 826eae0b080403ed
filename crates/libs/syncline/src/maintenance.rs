//! The maintenance thread: commits and write-back that a kernel does in the background.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use syncline_device::Clock;
use syncline_fs::Volume;

use crate::error::{Error, Result};

/// Longest pause. It is the longest additional delay of data that is dirtied meanwhile.
const REST_MS_MAX: u64 = 500;
/// Longest pause while more is dirty than `dirty_background_ratio`.
const MUCH_DIRTY_REST_MS_MAX: u64 = 50;

/// The thread of one volume.
pub(crate) struct MaintenanceThread {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl MaintenanceThread {
    pub(crate) fn start(volume: Volume, clock: Arc<dyn Clock>) -> Result<MaintenanceThread> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("syncline".into());
        let thread = thread.spawn(move || run(&volume, &*clock, &stopped)).map_err(|err| {
            let text = format!("no thread can be started: {err}; open with `nobackground`");
            Error::new(err.raw_os_error().unwrap_or(11), text)
        })?;
        Ok(MaintenanceThread { stop, thread })
    }

    /// Returns when the thread has ended and its volume is dropped.
    pub(crate) fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        // A thread that panicked has nothing more to do either.
        let _ = self.thread.join();
    }
}

fn run(volume: &Volume, clock: &dyn Clock, stop: &AtomicBool) {
    while !stop.load(Ordering::Acquire) {
        if volume.is_near_throttle() {
            volume.hurry_writeback();
        }
        let now = clock.now_ns();
        let due = volume.next_deadline_ns();
        // A failure has latched the volume: the next call that writes or syncs returns it.
        let failed = due.is_some_and(|due| due <= now) && volume.tick(now).is_err();
        let much = volume.wants_writeback();
        let longest = if much { MUCH_DIRTY_REST_MS_MAX } else { REST_MS_MAX };
        // One millisecond at least: a deadline that does not move must not spin.
        let rest = volume
            .next_deadline_ns()
            .map_or(longest, |due| due.saturating_sub(now).div_ceil(1_000_000).clamp(1, longest));
        let rest = if failed || volume.latched().is_some() { REST_MS_MAX } else { rest };
        std::thread::park_timeout(Duration::from_millis(rest));
    }
}
