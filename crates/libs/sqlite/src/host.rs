//! Functions that the SQLite of WebAssembly asks its host for. Only its VFS in memory uses them.
//! Here databases are on volumes, whose VFS has the volume's clock and seeded random numbers.

#![allow(unsafe_code, reason = "functions that SQLite links to by name")]

/// Status of a service that is not there (`sqlite_wasm_rs::host::Error::Unsupported`).
const UNSUPPORTED: i32 = 1;

#[unsafe(no_mangle)]
extern "C" fn rust_sqlite_wasm_host_sleep(_seconds: u64, _nanoseconds: u32) {}

#[unsafe(no_mangle)]
extern "C" fn rust_sqlite_wasm_host_random(_into: *mut u8, _len: usize) -> usize {
    0
}

#[unsafe(no_mangle)]
extern "C" fn rust_sqlite_wasm_host_epoch_timestamp_in_ms(_into: *mut i64) -> i32 {
    UNSUPPORTED
}

#[unsafe(no_mangle)]
extern "C" fn rust_sqlite_wasm_host_fill_entropy(_into: *mut u8, _len: usize) -> i32 {
    UNSUPPORTED
}

#[unsafe(no_mangle)]
extern "C" fn rust_sqlite_wasm_host_localtime(_seconds: i64, _into: *mut u8) -> i32 {
    UNSUPPORTED
}
