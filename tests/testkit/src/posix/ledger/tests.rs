//! Tests of the states that the ledger allows, and of its findings.

use std::time::Duration;

use super::*;

fn worked(dir: &Path) -> Ledger {
    let load = Load { writers: 2, syncers: 1, churners: 1, files: 4, sectors_max: 60 };
    let ledger = Ledger::new(load, 1);
    ledger.prepare(dir).unwrap();
    let falling = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let working = scope.spawn(|| ledger.work(dir, 0, &falling));
        while ledger.acknowledged() < 100 {
            std::thread::sleep(Duration::from_millis(1));
        }
        falling.store(true, Ordering::SeqCst);
        working.join().unwrap().unwrap();
    });
    ledger
}

/// Nobody else works on it: the test says what is written and synced.
fn of_one_writer(seed: u64) -> Ledger {
    Ledger::new(Load { writers: 1, syncers: 0, churners: 0, files: 4, sectors_max: 60 }, seed)
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(crate::scratch_dir()).unwrap()
}

#[test]
fn what_is_there_is_allowed_and_what_a_crash_may_not_leave_is_found() {
    let scratch = scratch();
    let dir = scratch.path();
    let ledger = worked(dir);
    ledger.adopt(dir).unwrap();
    let changed = dir.join(&locked(&ledger.changed[0]).path);
    let replaced = dir.join(&locked(&ledger.replaced[0]).path);
    let bytes = [&fs::read(&changed).unwrap()[..], &[1; 512]].concat();
    fs::write(&changed, &bytes).unwrap();
    assert!(ledger.adopt(dir).unwrap_err().contains("bytes, allowed are"));
    fs::remove_file(&changed).unwrap();
    assert!(ledger.adopt(dir).unwrap_err().contains("No such file"));
    fs::write(&changed, &bytes[..bytes.len() - 512]).unwrap();
    ledger.adopt(dir).unwrap();
    fs::write(&replaced, "x").unwrap();
    assert!(ledger.adopt(dir).unwrap_err().contains("has 1 bytes, version None"));
}

#[test]
fn a_sync_forbids_what_was_before_it() {
    let ledger = of_one_writer(2);
    let mut of = locked(&ledger.changed[0]);
    let (first, old) = of.begin(0, 3);
    assert_eq!(of.recognise(&[]), Ok(vec![]), "an append that is not synced may be gone");
    of.acknowledge(first);
    assert!(of.recognise(&[]).unwrap_err().contains("bytes, allowed are"));
    assert!(of.recognise(&[0; 1536]).is_err(), "and leaves no zeros");
    let (second, new) = of.begin(1, 2);
    let mixed = [&old[..512], &new[..], &old[1024..]].concat();
    of.recognise(&old).unwrap();
    of.recognise(&mixed).unwrap();
    of.acknowledge(second);
    of.recognise(&mixed).unwrap();
    let said = of.recognise(&old).unwrap_err();
    assert!(said.contains("sector 1 of 3 is Some(State { version: 1"), "{said}");
}

#[test]
fn a_cut_may_show_the_size_before_what_was_appended() {
    let ledger = of_one_writer(4);
    let mut of = locked(&ledger.changed[0]);
    let (first, old) = of.begin(0, 1);
    of.acknowledge(first);
    let (second, new) = of.begin(1, 3);
    let all = [&old[..], &new[..512]].concat();
    let hole = [&old[..], &[0; 512]].concat();
    assert!(of.recognise(&hole).is_err());
    of.begin_cut(2);
    of.recognise(&all).unwrap();
    of.recognise(&hole).unwrap();
    assert!(of.recognise(&[0; 1024]).is_err(), "what was synced stays");
    of.acknowledge(second + 1);
    of.recognise(&all).unwrap();
    assert!(of.recognise(&hole).is_err());
}

#[test]
fn a_write_that_is_its_own_sync_promises_itself_only() {
    let ledger = of_one_writer(3);
    let mut of = locked(&ledger.changed[0]);
    let (_, before) = of.begin(0, 1);
    let (second, own) = of.begin(1, 2);
    of.acknowledge_write(second, 1..2);
    of.recognise(&[&before[..], &own].concat()).unwrap();
    of.recognise(&[&[0; 512], &own[..]].concat()).unwrap();
    assert!(of.recognise(&before).is_err());
    assert!(of.recognise(&[&before[..], &[0; 512]].concat()).is_err());
}
