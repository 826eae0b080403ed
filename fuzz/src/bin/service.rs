//! A program that mounts by a service, with inputs that coverage guides.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| syncline_fuzz_targets::feed("service", bytes));
