//! Owners of block requests, worked by hand.

use std::sync::Arc;

use syncline_lab::trace::{CallNames, Flags, Op, Origin, Owners, Record};

/// Calls of two programs in turn with block requests.
struct Scene {
    owners: Owners,
}

impl Scene {
    fn new() -> Scene {
        Scene { owners: Owners::default() }
    }

    /// A call of 10 ns.
    fn call(&mut self, time_ns: u64, op: Op, inode: u64, names: [&str; 3]) {
        let record = Record { latency_ns: Some(10), inode, process: 7, ..Record::new(time_ns, op) };
        self.record(&record, names);
    }

    fn record(&mut self, record: &Record, names: [&str; 3]) {
        let [file, target, process_name] =
            names.map(|name| Some(name).filter(|name| !name.is_empty()).map(Arc::from));
        let (file, target, process_name) = (file.as_ref(), target.as_ref(), process_name.as_ref());
        self.owners.call(record, CallNames { file, target, process_name });
    }

    /// File and program that a request of this time is charged to.
    fn of(&mut self, time_ns: u64, origin: Origin, inode: u64) -> (String, String) {
        let record = Record { origin, inode, ..Record::new(time_ns, Op::Write) };
        let owner = self.owners.of(&record);
        let text = |name: Option<Arc<str>>| name.as_deref().unwrap_or("-").to_owned();
        (text(owner.file), text(owner.process_name))
    }
}

fn pair(file: &str, process: &str) -> (String, String) {
    (file.to_owned(), process.to_owned())
}

#[test]
fn data_is_its_files_under_the_last_name() {
    let mut scene = Scene::new();
    assert_eq!(scene.of(0, Origin::Data, 12), pair("-", "-"));
    scene.call(1, Op::Create, 12, ["/tmp/a", "", "app"]);
    scene.call(2, Op::Write, 12, ["/tmp/a", "", "app"]);
    // Reading makes nobody the owner of what was written.
    scene.call(3, Op::Read, 12, ["/tmp/a", "", "backup"]);
    assert_eq!(scene.of(4, Origin::Data, 12), pair("/tmp/a", "app"));
    scene.call(5, Op::Rename, 12, ["/tmp/a", "/b", "mover"]);
    assert_eq!(scene.of(6, Origin::Data, 12), pair("/b", "mover"));
    let failed = Record { result: Some(-28), inode: 12, ..Record::new(7, Op::Write) };
    scene.record(&failed, ["/c", "", "late"]);
    assert_eq!(scene.of(8, Origin::Data, 12), pair("/b", "mover"));
    assert_eq!(scene.of(8, Origin::Metadata, 0), pair("-", "-"));
    assert_eq!(scene.of(8, Origin::Unknown, 12), pair("-", "-"));
}

#[test]
fn the_journal_is_the_syncs_under_way() {
    let mut scene = Scene::new();
    scene.call(0, Op::Write, 12, ["/a", "", "writer"]);
    scene.call(1, Op::Write, 13, ["/b", "", "other"]);
    scene.call(100, Op::Fsync, 12, ["/a", "", "syncer"]);
    scene.call(105, Op::Fsync, 13, ["/b", "", "other"]);
    // The first that began, while it lasts: 10 ns.
    assert_eq!(scene.of(106, Origin::Journal, 0), pair("/a", "syncer"));
    assert_eq!(scene.of(110, Origin::Journal, 0), pair("/a", "syncer"));
    assert_eq!(scene.of(112, Origin::Journal, 0), pair("/b", "other"));
    let write = Record {
        flags: Flags::SYNC,
        latency_ns: Some(10),
        inode: 13,
        ..Record::new(200, Op::Write)
    };
    scene.record(&write, ["/b", "", "dsync"]);
    assert_eq!(scene.of(205, Origin::Journal, 0), pair("/b", "dsync"));
}

#[test]
fn a_commit_by_timer_is_of_the_file_that_changed_most() {
    let mut scene = Scene::new();
    assert_eq!(scene.of(0, Origin::Journal, 0), pair("-", "-"));
    scene.call(1, Op::Write, 12, ["/a", "", "app"]);
    for time_ns in 2..5 {
        scene.call(time_ns, Op::Write, 13, ["/log", "", "logger"]);
    }
    assert_eq!(scene.of(50, Origin::Journal, 0), pair("/log", "logger"));
    // The rest of the same transaction.
    assert_eq!(scene.of(51, Origin::Journal, 0), pair("/log", "logger"));
    scene.call(60, Op::Write, 12, ["/a", "", "app"]);
    assert_eq!(scene.of(90, Origin::Journal, 0), pair("/a", "app"));
    // What a sync has written is no part of the next commit.
    for time_ns in 100..110 {
        scene.call(time_ns, Op::Write, 13, ["/log", "", "logger"]);
    }
    scene.call(110, Op::Unlink, 12, ["/a", "", "app"]);
    scene.call(120, Op::Fsync, 13, ["/log", "", "logger"]);
    assert_eq!(scene.of(121, Origin::Journal, 0), pair("/log", "logger"));
    assert_eq!(scene.of(200, Origin::Journal, 0), pair("/a", "app"));
}
