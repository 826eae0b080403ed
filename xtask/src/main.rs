//! Developer tasks of the workspace: `cargo run -p xtask -- tidy`.
fn main() {}
