//! Compresses the chart library, which is a third of its size in the program then.

use std::io::Write;
use std::path::PathBuf;

use flate2::Compression;
use flate2::write::DeflateEncoder;

const SCRIPT: &str = "vendor/echarts.common.min.js";

fn main() -> std::io::Result<()> {
    println!("cargo:rerun-if-changed={SCRIPT}");
    println!("cargo:rerun-if-changed=build.rs");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or(std::io::ErrorKind::NotFound)?);
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&std::fs::read(SCRIPT)?)?;
    std::fs::write(out.join("echarts.deflate"), encoder.finish()?)
}
