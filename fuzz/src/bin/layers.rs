//! Container images and their layers, with inputs that coverage guides.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| syncline_fuzz_targets::feed("layers", bytes));
