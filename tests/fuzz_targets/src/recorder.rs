//! Event files of the recorder.

use syncline_base::crc32c;
use syncline_recorder::reader::{Item, Reader, Source, read};

/// Bytes of a header; the checksum is the last word.
const HEADER: usize = 64;

/// An input is a file. Where a slot looks like a header its checksum is made right, so that the
/// fields get past it. No record is found twice or out of order.
pub(crate) fn feed(bytes: &[u8]) {
    let mut file = bytes.to_vec();
    for header in file.chunks_exact_mut(HEADER).filter(|slot| slot[60] % 2 == 0) {
        let crc = crc32c(&header[..HEADER - 4]);
        header[HEADER - 4..].copy_from_slice(&crc.to_le_bytes());
    }
    for file in [bytes, &file] {
        let mut last = None;
        let found = read(&file, &mut |item| {
            if let Item::Record(header, _) = item {
                assert!(last < Some(header.sequence), "{last:?}, {}", header.sequence);
                last = Some(header.sequence);
            }
            Ok(())
        });
        found.expect("memory reads");
        let source: &dyn Source = &file;
        if let Some(mut reader) = Reader::new(source).expect("memory reads") {
            reader.follow(source, &mut |_| Ok(())).expect("memory reads");
        }
    }
}
