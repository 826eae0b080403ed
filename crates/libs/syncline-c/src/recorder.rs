//! The periodic recorder for C: `include/syncline_recorder.h` is the description.
//!
//! Promises: no function panics or unwinds into C for any argument that the header allows; null
//! pointers are answered with an error. Pushing is as wait-free as in Rust. Tested by
//! `tests/it/record.c`.
//!
//! Every pointer comes from a C program, so each unsafe block repeats what the header demands.

use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use syncline_recorder::os::{Options, PaperStrategy, PoolStrategy, Recorder, UringStrategy};
use syncline_recorder::{Config, Producer, RecorderError, Report, Strategy, Trigger};

use crate::pointers::exports;

const OK: c_int = 0;
const LOST: c_int = 1;
const FAILED: c_int = -1;

thread_local! {
    static ERROR: RefCell<CString> = RefCell::default();
}

/// An open recorder. The parts are used by different threads: `producer` by the one that pushes,
/// `trigger` by any, the rest by the one that asks and closes.
pub struct Handle {
    producer: Producer,
    trigger: Trigger,
    recorder: Option<Recorder>,
    counts: Counts,
}

/// `syncline_recorder_config`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    recorder: u64,
    record_bytes_max: u32,
    pre_records: u32,
    post_records_max: u32,
    slack_records: u32,
    events_max: u32,
    strategy: u32,
}

/// `syncline_recorder_counts`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    lost: u64,
    started: u64,
    finished: u64,
    durable: u64,
    refused: u64,
    failed: u64,
}

impl Counts {
    fn add(&mut self, report: &Report) {
        match report {
            Report::Started { .. } => self.started += 1,
            Report::Finished { durable, .. } => {
                self.finished += 1;
                self.durable += u64::from(*durable);
            }
            Report::Refused { error, .. } => {
                self.refused += 1;
                fail(error.to_string());
            }
            Report::Failed { error, .. } => {
                self.failed += 1;
                fail(error.to_string());
            }
            Report::Durable { .. } => {}
        }
    }
}

fn fail(text: String) -> c_int {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    ERROR.with(|error| *error.borrow_mut() = text);
    FAILED
}

fn open(dir: PathBuf, settings: &Settings) -> Result<Handle, RecorderError> {
    let mut config = Config {
        recorder: settings.recorder,
        payload_bytes_max: settings.record_bytes_max,
        pre_records: settings.pre_records,
        post_records_max: settings.post_records_max,
        slack_records: settings.slack_records,
        events_max: settings.events_max,
        ..Config::default()
    };
    if settings.strategy == 2 {
        config.slot_align_bytes = 4096;
    }
    config.check()?;
    let strategy: Arc<dyn Strategy> = match settings.strategy {
        0 => Arc::new(PaperStrategy::new(dir, &config)),
        1 => Arc::new(PoolStrategy::new(dir, &config)?),
        2 => Arc::new(UringStrategy::new(dir, &config)?),
        other => {
            let text = format!("there is no strategy {other}; use one of the constants");
            return Err(RecorderError::Usage(text));
        }
    };
    let (producer, recorder) = Recorder::start(&config, strategy, Options::default())?;
    let trigger = recorder.trigger();
    Ok(Handle { producer, trigger, recorder: Some(recorder), counts: Counts::default() })
}

exports! {
    /// Opens a recorder.
    ///
    fn syncline_recorder_open(dir: *const c_char, settings: *const Settings,
                              out: *mut *mut Handle) -> c_int {
        if dir.is_null() || settings.is_null() || out.is_null() {
            let text = "a null pointer; give a directory, a configuration and a result";
            return fail(text.to_owned());
        }
        // SAFETY: not null, and the caller's string and configuration by the header.
        let (dir, settings) = unsafe { (CStr::from_ptr(dir), &*settings) };
        match open(PathBuf::from(OsStr::from_bytes(dir.to_bytes())), settings) {
            Ok(handle) => {
                // SAFETY: not null, and the caller's place for the result by the header.
                unsafe { *out = Box::into_raw(Box::new(handle)) };
                OK
            }
            Err(error) => fail(error.to_string()),
        }
    }

    /// Pushes a record.
    ///
    fn syncline_recorder_push(handle: *mut Handle, time_ns: u64, record: *const c_void,
                              bytes: usize) -> c_int {
        if handle.is_null() || record.is_null() && bytes > 0 {
            return FAILED;
        }
        let record = match bytes {
            0 => &[][..],
            // SAFETY: not null, and the caller's bytes by the header.
            _ => unsafe { std::slice::from_raw_parts(record.cast::<u8>(), bytes) },
        };
        // SAFETY: an open handle, whose `producer` this thread alone uses, by the header; no
        // reference to the whole is made.
        let producer = unsafe { &mut (*handle).producer };
        if producer.push(time_ns, record).is_ok() { OK } else { LOST }
    }

    /// Reports a fault.
    ///
    fn syncline_recorder_trigger(handle: *const Handle, post_records: u32) {
        if !handle.is_null() {
            // SAFETY: an open handle, whose `trigger` may be used from every thread.
            unsafe { (*handle).trigger.fire_for(post_records) };
        }
    }

    /// Ends the events under way.
    ///
    fn syncline_recorder_stop(handle: *const Handle) {
        if !handle.is_null() {
            // SAFETY: an open handle, whose `trigger` may be used from every thread.
            unsafe { (*handle).trigger.stop() };
        }
    }

    /// Copies the counters so far into `out`.
    ///
    fn syncline_recorder_counts(handle: *mut Handle, out: *mut Counts) -> c_int {
        if handle.is_null() || out.is_null() {
            return fail("a null pointer; give an open recorder and a result".to_owned());
        }
        // SAFETY: an open handle; only the asking thread uses these two parts, by the header.
        let (recorder, counts) = unsafe { (&(*handle).recorder, &mut (*handle).counts) };
        let reports = recorder.as_ref().map(Recorder::reports).unwrap_or_default();
        reports.iter().for_each(|report| counts.add(report));
        // SAFETY: an open handle; the lost records are counted in an atomic.
        counts.lost = unsafe { (*handle).trigger.lost() };
        // SAFETY: not null, and the caller's place for the result by the header.
        unsafe { *out = *counts };
        OK
    }

    /// Ends everything.
    ///
    fn syncline_recorder_close(handle: *mut Handle, out: *mut Counts) -> c_int {
        if handle.is_null() {
            return OK;
        }
        // SAFETY: from `syncline_recorder_open`, and given back once, by the header.
        let mut handle = unsafe { Box::from_raw(handle) };
        let reports = handle.recorder.take().map(Recorder::finish).unwrap_or_default();
        reports.iter().for_each(|report| handle.counts.add(report));
        handle.counts.lost = handle.producer.lost();
        if !out.is_null() {
            // SAFETY: not null, and the caller's place for the result by the header.
            unsafe { *out = handle.counts };
        }
        let counts = &handle.counts;
        let all = counts.durable == counts.started && counts.refused + counts.failed == 0;
        if all { OK } else { FAILED }
    }

    /// The last error of this thread.
    ///
    fn syncline_recorder_error() -> *const c_char {
        ERROR.with(|error| error.borrow().as_ptr())
    }
}
