//! Logs of a write buffer, with inputs that coverage guides.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| syncline_fuzz_targets::feed("buffer", bytes));
