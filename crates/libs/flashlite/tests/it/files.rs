//! Logs in files of the system.

use std::io::{ErrorKind, IoSlice};

use syncline_flashlite::{Error, FileStorage, Log, Options, Storage};

#[test]
fn a_log_in_a_file_is_there_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.flashlite");
    let log = Log::create_file(&path, Options::default()).unwrap();
    log.write_at(b"end", 1_000_000).unwrap();
    log.write_at(b"start", 0).unwrap();
    assert!(matches!(Log::create_file(&path, Options::default()), Err(Error::Io { .. })));
    let busy = Log::open_file(&path, Options::default()).unwrap_err().to_string();
    assert!(busy.contains("another program has it open"), "{busy}");
    log.close().unwrap();
    let reader = Log::open_file_read_only(&path).unwrap();
    let second = Log::open_file_read_only(&path).unwrap();
    let mut part = [1; 6];
    assert_eq!(second.read_at(&mut part, 999_998).unwrap(), 5);
    assert_eq!(&part[..5], b"\0\0end");
    assert!(matches!(reader.write_at(b"x", 0), Err(Error::Usage(_))));
    reader.sync_data().unwrap();
    reader.close().unwrap();
}

#[test]
fn what_is_no_log_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("text");
    for text in ["", "short", &"x".repeat(10_000)] {
        std::fs::write(&path, text).unwrap();
        let error = Log::open_file(&path, Options::default()).unwrap_err();
        assert!(matches!(error, Error::NotALog), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
    assert!(matches!(Log::open_file_read_only(&dir.path().join("no")), Err(Error::Io { .. })));
}

#[test]
fn the_parts_of_a_write_follow_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let storage = FileStorage::create_new(&dir.path().join("f")).unwrap();
    assert!(storage.is_empty().unwrap());
    let parts = [&b""[..], b"ab", b"", b"cde"].map(IoSlice::new);
    storage.write_at(&parts, 10).unwrap();
    storage.sync_data().unwrap();
    let mut bytes = [1; 15];
    storage.read_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"\0\0\0\0\0\0\0\0\0\0abcde");
    let beyond = storage.read_at(&mut bytes, 1).unwrap_err();
    assert_eq!(beyond.kind(), ErrorKind::UnexpectedEof);
    storage.set_len(11).unwrap();
    storage.sync_data().unwrap();
    assert_eq!(storage.len().unwrap(), 11);
    // Gives space back where the file system can; the bytes are zeros then.
    if storage.punch(0, 11).unwrap() {
        storage.read_at(&mut bytes[..11], 0).unwrap();
        assert_eq!(bytes[..11], [0; 11]);
    }
}
