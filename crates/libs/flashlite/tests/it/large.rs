//! A log of 4 GiB, of which only the tags are kept, opens by its indexes.

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::sync::Arc;

use parking_lot::Mutex;
use syncline_flashlite::{Log, Options, Storage};

/// Keeps what is not zero; the data written to it is.
#[derive(Default)]
pub struct Forgetful(Mutex<(HashMap<u64, [u8; 32]>, u64)>);

impl Storage for Forgetful {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let state = self.0.lock();
        into.fill(0);
        let end = offset + into.len() as u64;
        if end > state.1 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        for at in (offset / 32 * 32..end).step_by(32) {
            let Some(cell) = state.0.get(&at) else { continue };
            for (place, byte) in (at..).zip(cell) {
                if (offset..end).contains(&place) {
                    into[(place - offset) as usize] = *byte;
                }
            }
        }
        Ok(())
    }

    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let mut state = self.0.lock();
        let mut at = offset;
        for part in parts {
            if part.iter().any(|byte| *byte != 0) {
                for (place, byte) in (at..).zip(part.iter()) {
                    let cell = state.0.entry(place / 32 * 32).or_default();
                    cell[(place % 32) as usize] = *byte;
                }
            }
            at += part.len() as u64;
        }
        state.1 = state.1.max(at);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().1)
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        let mut state = self.0.lock();
        state.0.retain(|at, _| *at < len_bytes);
        state.1 = len_bytes;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }
}

const CHUNK: u64 = 16 << 10;
const CHUNKS: u64 = (4 << 30) / CHUNK;

#[test]
fn a_log_of_4_gib_opens_without_its_data() {
    let storage = Arc::new(Forgetful::default());
    let log = Log::create(storage.clone(), Options::default()).unwrap();
    let zeros = vec![0; CHUNK as usize];
    for i in 0..CHUNKS {
        log.write_at(&zeros, i * 100_003 % CHUNKS * CHUNK).unwrap();
    }
    let extents = log.info().extents;
    drop(log);
    // As after the end of the process: what was written since the last sync is read, no more.
    let log = Log::open(storage.clone(), Options::default()).unwrap();
    let opened = log.opened().clone();
    assert_eq!(opened.dropped, None);
    assert!(opened.verified_bytes <= 80 << 20, "64 MiB and a segment at most: {opened:?}");
    log.close().unwrap();
    let log = Log::open(storage, Options::default()).unwrap();
    let opened = log.opened();
    assert_eq!((opened.verified_bytes, opened.dropped.is_some()), (0, false));
    assert_eq!(log.info().extents, extents);
    assert_eq!((log.len(), opened.indexed_segments), (4 << 30, 257));
    // 32 KiB a segment, its footer once more in the search for the last, and the tags of the rest.
    let blocks = opened.indexed_segments * (32 << 10);
    assert!((blocks..blocks + 100_000).contains(&opened.read_bytes), "{opened:?}");
}
