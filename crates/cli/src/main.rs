//! The `syncline` binary.
fn main() {}
