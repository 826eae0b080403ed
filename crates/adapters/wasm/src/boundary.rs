//! The functions between JavaScript and a [`Session`]: numbers, and two buffers.
//!
//! ```text
//!   input(len)         a place for `len` bytes, which the next call takes as its argument
//!   NAME(...)          bytes of the result at output(); -1 - bytes of an error as JSON
//! ```
//! Sizes and places are `f64`, which hold whole numbers up to 2^53; cookies of directories are
//! `u64`, a BigInt.
#![allow(unsafe_code, reason = "imports and exports of a WebAssembly module")]

use std::cell::RefCell;
use std::sync::Arc;

use crate::failure::{Failure, Result};
use crate::host::Host;
use crate::json::Json;
use crate::session::Session;

#[link(wasm_import_module = "host")]
unsafe extern "C" {
    fn read(device: u32, at: f64, into: *mut u8, len: usize) -> i32;
    fn write(device: u32, at: f64, from: *const u8, len: usize) -> i32;
    safe fn flush(device: u32) -> i32;
    fn emit(from: *const u8, len: usize) -> i32;
    safe fn emit_part(at: f64, len: f64) -> i32;
    fn progress(stage: *const u8, len: usize, done: f64, total: f64) -> i32;
    safe fn now() -> f64;
    fn panicked(text: *const u8, len: usize);
}

/// The functions of JavaScript. It keeps no pointer beyond a call, and runs nothing of this module
/// meanwhile.
struct JavaScript;

impl Host for JavaScript {
    fn read(&self, device: u32, at: u64, into: &mut [u8]) -> bool {
        // SAFETY: the function writes `len` bytes at `into` and no others, all of them in `into`.
        unsafe { read(device, at as f64, into.as_mut_ptr(), into.len()) != 0 }
    }

    fn write(&self, device: u32, at: u64, from: &[u8]) -> bool {
        // SAFETY: the function reads `len` bytes at `from`, all of them in `from`.
        unsafe { write(device, at as f64, from.as_ptr(), from.len()) != 0 }
    }

    fn flush(&self, device: u32) -> bool {
        flush(device) != 0
    }

    fn emit(&self, bytes: &[u8]) -> bool {
        // SAFETY: as of `write`.
        unsafe { emit(bytes.as_ptr(), bytes.len()) != 0 }
    }

    fn emit_part(&self, at: u64, len: u64) -> bool {
        emit_part(at as f64, len as f64) != 0
    }

    fn progress(&self, stage: &str, done: u64, total: u64) -> bool {
        // SAFETY: as of `write`.
        unsafe { progress(stage.as_ptr(), stage.len(), done as f64, total as f64) != 0 }
    }

    fn now_ms(&self) -> u64 {
        now() as u64
    }
}

/// The session and both buffers.
struct State {
    session: Session,
    input: Vec<u8>,
    output: Vec<u8>,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::new(State {
        session: Session::new(Arc::new(JavaScript)),
        input: Vec::new(),
        output: Vec::new(),
    });
}

/// Runs a call whose result is a text.
fn run(call: impl FnOnce(&mut Session, &[u8]) -> Result<String>) -> i32 {
    run_bytes(|session, input, output| {
        let text = call(session, input)?;
        *output = text.into_bytes();
        Ok(output.len())
    })
}

/// Runs a call that fills the output, of which it returns how many bytes count.
fn run_bytes(call: impl FnOnce(&mut Session, &[u8], &mut Vec<u8>) -> Result<usize>) -> i32 {
    STATE.with_borrow_mut(|state| {
        let input = std::mem::take(&mut state.input);
        match call(&mut state.session, &input, &mut state.output) {
            Ok(len) => len as i32,
            Err(Failure { code, message }) => {
                let json = Json::object(|json| {
                    json.text("code", code);
                    json.text("message", &message);
                });
                state.output = json.0.into_bytes();
                -1 - state.output.len() as i32
            }
        }
    })
}

/// A number of JavaScript as a place: what is none is beyond every device.
fn place(number: f64) -> u64 {
    if number >= 0.0 { number as u64 } else { u64::MAX }
}

/// Sends the text of a panic to JavaScript. The instance traps then.
#[unsafe(no_mangle)]
extern "C" fn start() {
    std::panic::set_hook(Box::new(|info| {
        let text = info.to_string();
        // SAFETY: as of `write`.
        unsafe { panicked(text.as_ptr(), text.len()) };
    }));
}

/// A place for the argument of the next call.
#[unsafe(no_mangle)]
extern "C" fn input(len: usize) -> *mut u8 {
    STATE.with_borrow_mut(|state| {
        state.input.clear();
        state.input.resize(len, 0);
        state.input.as_mut_ptr()
    })
}

/// The result of the last call.
#[unsafe(no_mangle)]
extern "C" fn output() -> *const u8 {
    STATE.with_borrow(|state| state.output.as_ptr())
}

/// Reads from a file: its bytes are the result.
#[unsafe(no_mangle)]
extern "C" fn read_file(at: f64, len: u32) -> i32 {
    run_bytes(|session, path, output| session.read(path, place(at), len, output))
}

macro_rules! exports {
    ($($name:ident($($arg:ident: $kind:ty),*) => |$session:ident, $input:ident| $call:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name($($arg: $kind),*) -> i32 {
                run(|$session, $input| { let _ = $input; $call })
            }
        )*
    };
}

// Each function is that of the session.
exports! {
    scan(device: u32, len: f64, writable: u32) =>
        |session, input| session.scan(device, place(len), writable != 0);
    unpack(scratch: u32) => |session, input| session.unpack(scratch);
    choose(offset: f64, size: f64) => |session, input| session.choose(place(offset), place(size));
    mount(writable: u32, rescue: u32) =>
        |session, input| session.mount(writable != 0, rescue);
    sync() => |session, input| session.sync();
    unmount() => |session, input| session.unmount();
    info() => |session, input| session.info();
    list(cookie: u64) => |session, input| session.list(input, cookie);
    stat(follow: u32) => |session, input| session.stat(input, follow != 0);
    xattrs() => |session, input| session.xattrs(input);
    extents() => |session, input| session.extents(input);
    digest_start() => |session, input| session.digest_start();
    digest_disk(at: f64, len: u32) => |session, input| session.digest_disk(place(at), len);
    digest_file(at: f64, len: u32) => |session, input| session.digest_file(input, place(at), len);
    digest_end() => |session, input| session.digest_end();
    tar() => |session, input| session.tar(input);
    check() => |session, input| session.check();
    plan_repair() => |session, input| session.plan_repair();
    repair() => |session, input| session.repair();
    mkfs(device: u32, len: f64, kind: u32, block: u32) =>
        |session, input| session.mkfs(input, device, place(len), kind, block);
    write_file(path: u32, at: f64, mode: u32) =>
        |session, input| session.write(input, path, place(at), mode);
    truncate(size: f64) => |session, input| session.truncate(input, place(size));
    mkdir(mode: u32, parents: u32) => |session, input| session.mkdir(input, mode, parents != 0);
    rename(from: u32, keep: u32) => |session, input| session.rename(input, from, keep != 0);
    remove(recursive: u32) => |session, input| session.remove(input, recursive != 0);
    symlink(path: u32) => |session, input| session.symlink(input, path);
    link(path: u32) => |session, input| session.link(input, path);
    set(which: u32, mode: u32, uid: u32, gid: u32, mtime: f64) =>
        |session, input| session.set(input, which, mode, (uid, gid), mtime);
    set_xattr(path: u32, name: u32) => |session, input| session.set_xattr(input, path, name);
    remove_xattr(path: u32) => |session, input| session.remove_xattr(input, path);
}
