//! The `syncline` program; its code is the library of this package.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    syncline_cli::main()
}
