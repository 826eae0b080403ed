//! Bytes that a thread reads ahead: decompression goes beside the writing of what it gives.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::Bytes;

/// Bytes of a part, and parts that are ready at most.
const PART_BYTES: usize = 256 << 10;
const PARTS_MAX: usize = 16;

/// A reader whose bytes come from a thread of its own, which ends with it.
///
/// Errors come in the place where they were met. Nothing is read behind one.
pub(crate) struct Ahead {
    /// An empty part is the end.
    parts: Receiver<io::Result<Vec<u8>>>,
    /// Parts that were read, to be filled again.
    empty: SyncSender<Vec<u8>>,
    part: Vec<u8>,
    at: usize,
    done: bool,
}

impl Ahead {
    pub(crate) fn new(mut from: Bytes) -> Ahead {
        let (send, parts) = sync_channel(PARTS_MAX);
        let (empty, emptied) = sync_channel::<Vec<u8>>(PARTS_MAX + 2);
        // Without a thread there are no parts, which the first read says.
        let _ = std::thread::Builder::new().spawn(move || {
            loop {
                // New ones until the first comes back.
                let mut part = emptied.try_recv().unwrap_or_default();
                let filled = filled(&mut from, &mut part).map(|()| part);
                let is_last = filled.as_ref().map_or(true, Vec::is_empty);
                // A reader that is gone wants nothing more.
                if send.send(filled).is_err() || is_last {
                    return;
                }
            }
        });
        Ahead { parts, empty, part: Vec::new(), at: 0, done: false }
    }
}

/// Fills a part; less only at the end.
fn filled(from: &mut Bytes, part: &mut Vec<u8>) -> io::Result<()> {
    part.resize(PART_BYTES, 0);
    let mut len = 0;
    while let Some(rest) = part.get_mut(len..).filter(|rest| !rest.is_empty()) {
        match from.read(rest) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            Err(err) => return Err(err),
        }
    }
    part.truncate(len);
    Ok(())
}

impl Read for Ahead {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at == self.part.len() && !self.done && !into.is_empty() {
            // Full: it is not needed.
            let _ = self.empty.try_send(std::mem::take(&mut self.part));
            self.at = 0;
            self.part = match self.parts.recv() {
                Ok(Ok(part)) => part,
                Ok(Err(err)) => {
                    self.done = true;
                    return Err(err);
                }
                Err(_) => return Err(io::Error::other("a thread that decompresses ended")),
            };
            self.done = self.part.is_empty();
        }
        let rest = self.part.get(self.at..).unwrap_or_default();
        let len = rest.len().min(into.len());
        into[..len].copy_from_slice(&rest[..len]);
        self.at += len;
        Ok(len)
    }
}
