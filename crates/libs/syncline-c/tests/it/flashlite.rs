//! A C program uses FlashLite.

use std::process::Command;

use crate::{SANITIZERS, compile, here, run, scratch, there};

#[test]
fn a_c_program_downloads_and_rearranges() {
    const NAME: &str = "a_c_program_downloads_and_rearranges";
    if !there(NAME, "cc") {
        return;
    }
    let dir = scratch();
    let program = compile(&here("tests/it/download.c"), dir.path(), &SANITIZERS);
    run(&mut Command::new(program), dir.path());
    let file = std::fs::read(dir.path().join("file")).unwrap();
    assert_eq!(file.len(), 100 * 10_240 + 5);
    for (chunk, bytes) in file[..100 * 10_240].chunks(10_240).enumerate() {
        assert!(bytes.iter().all(|byte| usize::from(*byte) == chunk + 1), "chunk {chunk}");
    }
    assert_eq!(&file[100 * 10_240..], [0; 5]);
}
