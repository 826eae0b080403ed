//! Changes of a mount while it is served: by `ctl`, and by policies.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use syncline_buffer::Buffer;
use syncline_control::{Governed, Governor};
use syncline_device::{Clock, WallClock};
use syncline_fs::Volume;
use syncline_fuse::FuseOptions;

use super::mount::Log;
use super::reopened::Reopened;
use crate::Failure;
use crate::contain::{Rights, TAKEOVER, attacked};
use crate::control::{Bound, ControlSocket};

/// A mount that can be changed.
pub(super) struct Live {
    volume: Volume,
    buffer: Option<Arc<Buffer>>,
    governor: Governor,
    policies: Vec<&'static str>,
    /// Image of a mount with `ro`, which can be opened again to write. One change at a time.
    writable: Mutex<Result<Reopened, String>>,
}

impl Live {
    /// With the policies of its options on as long as it can write.
    pub(super) fn new(
        volume: &Volume,
        buffer: Option<&Arc<Buffer>>,
        writable: Result<Reopened, String>,
        rights: &Arc<dyn Rights>,
        options: &FuseOptions,
    ) -> Result<Live, Failure> {
        let (volume, buffer, rights) = (volume.clone(), buffer.cloned(), Arc::clone(rights));
        let governor = Governor::with(Arc::new(move || rights.services()));
        governor.set_later(options.later_policies());
        let (policies, writable) = (options.policies(), Mutex::new(writable));
        let live = Live { volume, buffer, governor, policies, writable };
        if !live.volume.is_read_only() {
            live.begin_policies().map_err(Failure::Failed)?;
        }
        Ok(live)
    }

    fn begin_policies(&self) -> Result<(), String> {
        if self.policies.is_empty() {
            return Ok(());
        }
        self.governor.set(self.governed(), self.policies.iter().copied())
    }

    fn governed(&self) -> Governed<'_> {
        Governed { buffer: self.buffer.as_deref(), volume: Some(&self.volume) }
    }

    /// For the status of the mount.
    pub(super) fn settings(self: &Arc<Self>) -> Arc<dyn Fn() -> serde_json::Value + Send + Sync> {
        let live = Arc::clone(self);
        Arc::new(move || live.governor.document(live.governed()))
    }

    /// Answers `ctl` and remounts until it is dropped. Without a thread the mount is served all the
    /// same.
    pub(super) fn answer(self: &Arc<Self>, socket: Bound) -> Option<ControlSocket> {
        let live = Arc::clone(self);
        let handler = move |line: &str| match line {
            "takeover" if TAKEOVER.get().is_some() => Ok(attacked()),
            "writable" => live.make_writable().map(|()| String::new()),
            _ if live.volume.is_read_only() => {
                Err("the mount is read-only: nothing can be changed".to_owned())
            }
            "clean" => live.clean().map(|()| String::new()),
            "shutdown" => live.shutdown(true),
            "shutdown now" => live.shutdown(false),
            "sync" => live.volume.sync().map(|()| String::new()).map_err(|err| err.to_string()),
            other => match other.strip_prefix("set ") {
                Some(words) => {
                    let set = live.governor.set(live.governed(), words.split_whitespace());
                    set.map(|()| String::new())
                }
                None => {
                    Err(format!("`{other}` is not a request; use set, sync, clean or shutdown"))
                }
            },
        };
        socket.answer(Box::new(handler)).ok()
    }

    /// Makes a mount with `ro` writable, for a remount.
    fn make_writable(&self) -> Result<(), String> {
        let writable = self.writable.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.volume.is_read_only() {
            return Ok(());
        }
        let reopened = writable.as_ref().map_err(Clone::clone)?.open_to_write();
        reopened.map_err(|failure| failure.message().unwrap_or_default().to_owned())?;
        self.volume.make_writable().map_err(|err| err.to_string())?;
        self.begin_policies()
    }

    fn shutdown(&self, flush: bool) -> Result<String, String> {
        self.volume.shutdown(flush).map(|()| String::new()).map_err(|err| err.to_string())
    }

    fn clean(&self) -> Result<(), String> {
        self.volume.sync().map_err(|err| err.to_string())?;
        let drained = self.buffer.as_ref().map_or(Ok(()), |buffer| buffer.drain());
        drained.map_err(|err| format!("the log was not drained ({err}); correct the device"))
    }

    /// Does the periodic work. A failure is reported once.
    pub(super) fn visit(&self, clock: &WallClock, said: &mut bool, log: &Log) {
        if let Some(buffer) = &self.buffer {
            super::buffer::keep(buffer, clock, said, &|text| log(text));
        }
        if self.volume.has_deferred() {
            self.governor.guard(self.governed()).iter().for_each(|line| log(line));
        }
        self.volume.take_missing().iter().for_each(|what| log(&format!("missing: {what}")));
        // A failure has latched the buffer or the volume: the next call of a program says it.
        let _ = self.governor.visit(self.governed(), Duration::from_nanos(clock.now_ns()));
    }
}
