//! Compresses the chart library, which is a third of its size in the program then; generates shell
//! completions and man pages.

use std::io::Write;
use std::path::PathBuf;

use flate2::Compression;
use flate2::write::DeflateEncoder;

#[allow(dead_code)]
#[path = "src/bin/syncline-lab/args.rs"]
mod args;
#[allow(dead_code)]
#[path = "../crates/adapters/cli/src/help.rs"]
mod help;
#[path = "../crates/adapters/cli/src/pages.rs"]
mod pages;

const SCRIPT: &str = "vendor/echarts.common.min.js";

fn main() -> std::io::Result<()> {
    for path in ["src/bin/syncline-lab/args.rs", "src/bin/syncline-lab/args", SCRIPT, "build.rs"] {
        println!("cargo:rerun-if-changed={path}");
    }
    println!("cargo:rerun-if-changed=../crates/adapters/cli/src");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or(std::io::ErrorKind::NotFound)?);
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&std::fs::read(SCRIPT)?)?;
    std::fs::write(out.join("echarts.deflate"), encoder.finish()?)?;
    pages::generate(&help::command::<args::Cli>(args::examples::EXAMPLES))
}
