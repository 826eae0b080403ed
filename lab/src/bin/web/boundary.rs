//! The functions between JavaScript and this program: two buffers.
//!
//! ```text
//!   input(len)    a place for `len` bytes of JSON, which the next call takes as its request
//!   NAME()        bytes of the result at output(), JSON; -1 - bytes of the text of an error
//! ```
#![allow(unsafe_code, reason = "exports of a WebAssembly module")]

use std::cell::RefCell;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use syncline_lab::experiments::devices_document;
use syncline_lab::trace::{FORMATS, Format};
use syncline_lab::{LabError, Result};

use crate::{demo, host, trace};

#[derive(Default)]
struct Buffers {
    input: Vec<u8>,
    output: Vec<u8>,
}

thread_local! {
    static BUFFERS: RefCell<Buffers> = RefCell::default();
}

/// Runs a call whose request is the input.
fn run<T: DeserializeOwned>(call: impl FnOnce(T) -> Result<Value>) -> i32 {
    let input = BUFFERS.with_borrow_mut(|buffers| std::mem::take(&mut buffers.input));
    let request = serde_json::from_slice(&input);
    let done = request.map_err(|err| LabError::Usage(err.to_string())).and_then(call);
    let (text, failed) = match done {
        Ok(result) => (result.to_string(), false),
        Err(err) => (err.to_string(), true),
    };
    BUFFERS.with_borrow_mut(|buffers| {
        buffers.output = text.into_bytes();
        let len = buffers.output.len() as i32;
        if failed { -1 - len } else { len }
    })
}

/// Sends the text of a panic to JavaScript. The instance traps then.
#[unsafe(no_mangle)]
extern "C" fn start() {
    host::set_panic_hook();
}

/// A place for the request of the next call.
#[unsafe(no_mangle)]
extern "C" fn input(len: usize) -> *mut u8 {
    BUFFERS.with_borrow_mut(|buffers| {
        buffers.input.clear();
        buffers.input.resize(len, 0);
        buffers.input.as_mut_ptr()
    })
}

/// The result of the last call.
#[unsafe(no_mangle)]
extern "C" fn output() -> *const u8 {
    BUFFERS.with_borrow(|buffers| buffers.output.as_ptr())
}

/// The simulated devices, and the formats of traces.
#[unsafe(no_mangle)]
extern "C" fn choices() -> i32 {
    run(|(): ()| {
        let format = |one: &Format| json!({ "name": one.name, "about": one.about });
        let formats: Vec<Value> = FORMATS.iter().map(format).collect();
        Ok(json!({ "devices": devices_document()?["devices"], "formats": formats }))
    })
}

/// Workloads on simulated devices.
#[unsafe(no_mangle)]
extern "C" fn bench() -> i32 {
    run(demo::run)
}

/// A trace: its figures, and what it does to a device.
#[unsafe(no_mangle)]
extern "C" fn trace() -> i32 {
    run(trace::run)
}
