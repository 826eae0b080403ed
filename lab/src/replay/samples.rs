//! The traces that ship: real programs on a Syncline mount, captured by `lab/scripts/capture.py`.
//!
//! `samples/README.md` says what each is. The system calls are built in; the page and block traces
//! of the same runs are files beside them. Tested in `lab/tests/replay/samples.rs`.

use crate::error::{LabError, Result};
use crate::trace::TraceReader;
use bytes::Bytes;

use crate::replay::ReplayTrace;

macro_rules! samples {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_bytes!(concat!("../../../samples/", $name, ".calls.trace")))),*]
    };
}

const SAMPLES: [(&str, &[u8]); 9] = samples![
    "chromium-cold",
    "chromium-warm",
    "mail",
    "dpkg",
    "pip",
    "pocketdata",
    "rlbench",
    "video",
    "git",
];

/// Downloads of one file of 64 MiB by real clients; system calls alone.
const DOWNLOADS: [(&str, &[u8]); 5] = samples![
    "download-curl",
    "download-aria2",
    "download-aria2-torrent",
    "download-transmission",
    "download-qbittorrent",
];

fn read(samples: &[(&str, &'static [u8])]) -> Result<Vec<ReplayTrace>> {
    let read = |(name, bytes): &(&str, &'static [u8])| {
        let mut records = Vec::new();
        let mut reader = TraceReader::open(Bytes::from_static(bytes))?;
        reader.read_all(&mut records)?;
        let names = reader.into_names();
        Ok::<_, LabError>(ReplayTrace { name: (*name).to_owned(), records, names })
    };
    samples.iter().map(read).collect::<crate::error::Result<_>>()
}

impl ReplayTrace {
    /// The traces that ship.
    pub fn shipped() -> Result<Vec<ReplayTrace>> {
        read(&SAMPLES)
    }

    /// Downloads that ship: one file by several clients.
    pub fn downloads() -> Result<Vec<ReplayTrace>> {
        read(&DOWNLOADS)
    }
}
