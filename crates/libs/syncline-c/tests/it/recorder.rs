//! A C program uses the recorder; its events are read from Rust.

use std::process::Command;

use syncline_recorder::os::{FileSource, event_files};
use syncline_recorder::reader;

use crate::{compile, here, run, scratch, there};

#[test]
fn a_c_program_records_two_events() {
    const NAME: &str = "a_c_program_records_two_events";
    if !there(NAME, "cc") {
        return;
    }
    let dir = scratch();
    let events = dir.path().join("events");
    std::fs::create_dir(&events).unwrap();
    // The recorder locks its memory; AddressSanitizer's would be locked with it.
    let program = compile(&here("tests/it/record.c"), dir.path(), &[]);
    run(Command::new(program).arg(&events), dir.path());
    let files = event_files(&events).unwrap();
    assert_eq!(files.len(), 2, "{files:?}");
    for (file, sequences) in files.iter().zip([(20, 50), (30, 45)]) {
        let summary = reader::read(&FileSource::open(file).unwrap(), &mut |_| Ok(())).unwrap();
        let summary = summary.expect("an event");
        assert!(summary.is_whole(), "{summary:?}");
        assert_eq!(summary.sequences, Some(sequences));
    }
}
