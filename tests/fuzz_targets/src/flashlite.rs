//! Logs of FlashLite.

use std::ops::ControlFlow;
use std::sync::Arc;

use syncline_flashlite::{Log, MemoryStorage, Options};

/// An input is a log: opened to read and to write, checked, read and changed.
pub(crate) fn feed(bytes: &[u8]) {
    let storage = Arc::new(MemoryStorage::new(bytes.to_vec()));
    if let Ok(log) = Log::open_read_only(storage.clone()) {
        let mut part = vec![0; 10_000];
        for at in [0, log.len() / 2, log.len().saturating_sub(100), u64::MAX - 5] {
            let _ = log.read_at(&mut part, at);
        }
        let _ = log.check(&mut |_| ControlFlow::Continue(()));
    }
    if let Ok(log) = Log::open(storage.clone(), Options::default()) {
        let written = log.write_at(&[1; 5000], 100).and_then(|()| log.sync_data());
        if written.is_ok() && log.close().is_ok() {
            let mut part = [0; 5000];
            let again = Log::open(storage, Options::default()).expect("a log that was closed");
            assert_eq!(again.read_at(&mut part, 100).expect("reads"), 5000);
            assert_eq!(part, [1; 5000], "what was synced is there");
        }
    }
}
