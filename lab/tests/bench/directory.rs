//! The workloads on a mounted directory: the same code, real files, real time.

use syncline_lab::Unobserved;
use syncline_lab::bench::{DirectoryRun, JournalMode, Parameters, WORKLOADS, find};

#[test]
fn every_workload_runs_on_a_directory_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for entry in WORKLOADS {
        let parameters = Parameters { operations: Some(3), ..Parameters::default() };
        let run = DirectoryRun { dir: dir.path().to_owned(), parameters: &parameters };
        let run = run.run(entry, &Unobserved).unwrap();
        assert_eq!(run.metrics.operations, 3, "{}", entry.name);
        assert!(run.metrics.device.is_none() && run.config.sync.is_none());
        assert!(run.metrics.duration_s > 0.0);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{} left files", entry.name);
    }
}

#[test]
fn wal_works_there_too_and_a_missing_directory_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let parameters =
        Parameters { operations: Some(5), journal_mode: JournalMode::Wal, ..Parameters::default() };
    let entry = find("sqlite/delete").unwrap()[0];
    let at = |path: &std::path::Path| {
        DirectoryRun { dir: path.to_owned(), parameters: &parameters }.run(entry, &Unobserved)
    };
    assert_eq!(at(dir.path()).unwrap().config.journal_mode.as_deref(), Some("wal"));
    let err = at(&dir.path().join("none")).unwrap_err().to_string();
    assert!(err.contains("none: ") && err.contains("check the path"), "{err}");
}
