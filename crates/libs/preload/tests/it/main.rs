//! The library below programs: a C program that does as it is told, and a real sqlite3. A second
//! library, preloaded behind ours, logs what would reach the kernel.

mod logs;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
// So that cargo builds the library, with its C form, before this test.
use syncline_preload as _;

/// Finds the shared library that cargo built: beside this test, or one directory above.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let mut dirs = test.ancestors().skip(1).take(2).map(|dir| dir.join("libsyncline_preload.so"));
    dirs.find(|path| path.is_file()).unwrap()
}

struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    /// Compiles both C parts; `None`, and the test is skipped, without a compiler.
    fn new(test: &str) -> Option<Bench> {
        if !Command::new("cc").arg("--version").output().is_ok_and(|ran| ran.status.success()) {
            syncline_testkit::skip(test, "needs cc; install build-essential");
            return None;
        }
        let bench = Bench { dir: tempfile::tempdir().unwrap() };
        bench.compile("spy.c", "spy.so", &["-shared", "-fPIC"]);
        bench.compile("child.c", "child", &[]);
        std::fs::create_dir(bench.path("files")).unwrap();
        Some(bench)
    }

    fn compile(&self, source: &str, to: &str, more: &[&str]) {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it").join(source);
        let mut command = Command::new("cc");
        command.args(["-O1", "-w"]).args(more).arg(source).arg("-o").arg(self.path(to));
        let compiled = command.output().unwrap();
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, program: &Path, rules: &str) -> Command {
        let mut command = Command::new(program);
        let both = format!("{}:{}", library().display(), self.path("spy.so").display());
        command.env("LD_PRELOAD", both).env("SPY_LOG", self.path("log"));
        command.env("SYNCLINE_PRELOAD_RULES", rules);
        command.env("SYNCLINE_PRELOAD_REPORT", self.path("report"));
        command.current_dir(self.path("files")).stdin(Stdio::null());
        command
    }

    fn output(&self, rules: &str, words: &str) -> Output {
        let _ = std::fs::remove_file(self.path("log"));
        let _ = std::fs::remove_file(self.path("report"));
        let mut command = self.command(&self.path("child"), rules);
        command.args(words.split(' ')).output().unwrap()
    }

    /// Returns the calls that would have reached the kernel, from the log.
    fn calls(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Runs the program with these rules; returns the calls that would have reached the kernel.
    fn run(&self, rules: &str, words: &str) -> Vec<String> {
        let ran = self.output(rules, words);
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(ran.status.success() && said.is_empty(), "{words}: {}: {said}", ran.status);
        self.calls()
    }

    fn reports(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path("report")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

const EVERY: &str = "fsync a fdatasync b range c msync d pwritev2 e open sync f open dsync g \
                     syncfs h sync";

#[test]
fn without_rules_every_call_arrives() {
    let Some(bench) = Bench::new("without_rules_every_call_arrives") else { return };
    let every = [
        "fsync a",
        "fdatasync b",
        "sync_file_range c",
        "msync -",
        "pwritev2_sync e",
        "open_sync f",
        "open_sync f",
        "open_dsync g",
        "open_dsync g",
        "syncfs h",
        "sync -",
    ];
    assert_eq!(bench.run("", EVERY), every);
    assert_eq!(bench.run("strict *", EVERY), every);
    let report = &bench.reports()[0];
    assert_eq!(report["schema"], "syncline.preload/1");
    assert_eq!(
        (&report["strict"]["fsync"], &report["strict"]["open_sync"]),
        (&1.into(), &4.into())
    );
    assert_eq!(report["relaxed"], serde_json::json!({}));
}

#[test]
fn what_is_skipped_is_synced_at_the_end_and_counted() {
    let Some(bench) = Bench::new("what_is_skipped_is_synced_at_the_end_and_counted") else {
        return;
    };
    let calls = bench.run("relaxed *", &format!("{EVERY} fsync a mark"));
    let mark = calls.iter().position(|call| call == "mark").unwrap();
    assert_eq!(calls[..mark], ["pwritev2 e"]);
    let mut end = calls[mark + 1..].to_vec();
    end.sort();
    let mut files =
        ["a", "b", "c", "d", "e", "f", "g"].map(|name| format!("fsync {name}")).to_vec();
    // Files that were covered by sync and syncfs alone.
    files.push("sync -".to_owned());
    assert_eq!(end, files);
    let report = &bench.reports()[0];
    assert_eq!(report["synced_at_end"], 7);
    let skipped = serde_json::json!({
        "fsync": 2, "fdatasync": 1, "sync_file_range": 1, "msync": 1, "open_sync": 4,
        "write_sync": 1, "syncfs": 1, "sync": 1,
    });
    assert_eq!(report["relaxed"], skipped);
    assert_eq!(report["strict"], serde_json::json!({}));
}

#[test]
fn many_files_are_synced_with_their_file_system() {
    let Some(bench) = Bench::new("many_files_are_synced_with_their_file_system") else { return };
    let many: String = (0..100).map(|nr| format!("fsync f{nr} ")).collect();
    let words = format!("{many}rename f99 g fsync g fdatasync f0 mark");
    let calls = bench.run("relaxed *", &words);
    assert_eq!(calls, ["mark", "syncfs files"]);
    let report = &bench.reports()[0];
    assert_eq!(
        (&report["file_systems_at_end"], &report["relaxed"]["fsync"]),
        (&1.into(), &101.into())
    );
    // A rule that leaves a file strict: each file for itself, and names count.
    let calls = bench.run("relaxed *\nstrict g", &words);
    let before: Vec<&str> = calls.iter().map(String::as_str).take_while(|c| *c != "mark").collect();
    assert_eq!(before, ["fsync f99", "fsync g"]);
    assert_eq!(bench.reports()[0]["synced_at_end"], 99);
}

#[test]
fn strict_files_beside_relaxed_ones_lose_nothing() {
    let Some(bench) = Bench::new("strict_files_beside_relaxed_ones_lose_nothing") else { return };
    let rules = "relaxed *.tmp\nstrict keep*";
    let words = "fsync a.tmp fsync keep.tmp fdatasync a.db msync b.tmp msync b.db open sync c.tmp \
                 open sync c.db pwritev2 d.tmp pwritev2 d.db syncfs e.tmp sync directory . mark";
    let calls = bench.run(rules, words);
    let before: Vec<&str> = calls.iter().map(String::as_str).take_while(|c| *c != "mark").collect();
    let strict = [
        "fsync keep.tmp",
        "fdatasync a.db",
        "msync -",
        "open_sync c.db",
        "open_sync c.db",
        "pwritev2 d.tmp",
        "pwritev2_sync d.db",
        "syncfs e.tmp",
        "sync -",
        "fsync files",
    ];
    assert_eq!(before, strict);
    let mut end = calls[before.len() + 1..].to_vec();
    end.sort();
    assert_eq!(end, ["fsync a.tmp", "fsync b.tmp", "fsync c.tmp", "fsync d.tmp"]);
}

#[test]
fn a_strict_name_is_given_to_durable_data_only() {
    let Some(bench) = Bench::new("a_strict_name_is_given_to_durable_data_only") else { return };
    let rules = "relaxed *.tmp";
    let calls = bench.run(rules, "fsync a.tmp mark rename a.tmp a.db mark fsync a.db mark");
    assert_eq!(calls, ["mark", "fsync a.tmp", "mark", "fsync a.db", "mark"]);
    let calls = bench.run(rules, "fsync b.tmp link b.tmp b.db fsync b.tmp mark");
    assert_eq!(calls, ["fsync b.tmp", "fsync b.tmp", "mark"]);
    // Relaxed names are followed to the end, directories and exchanges too.
    let words = "mkdir d fsync d/c.tmp fsync e.tmp fsync f.tmp rename d dd rename e.tmp ee.tmp \
                 exchange ee.tmp f.tmp mark";
    let calls = bench.run(rules, words);
    assert_eq!(calls[0], "mark");
    let mut end = calls[1..].to_vec();
    end.sort();
    assert_eq!(end, ["fsync c.tmp", "fsync ee.tmp", "fsync f.tmp"]);
    assert_eq!(bench.reports()[0]["gone_at_end"], 0);
}

#[test]
fn every_way_out_syncs_once() {
    let Some(bench) = Bench::new("every_way_out_syncs_once") else { return };
    let rules = "relaxed *";
    assert_eq!(bench.run(rules, "fsync a mark _exit"), ["mark", "fsync a"]);
    assert_eq!(bench.run(rules, "fsync a mark execv /bin/true"), ["mark", "fsync a"]);
    // A child owes what it did itself.
    let calls = bench.run(rules, "fsync a fork b mark");
    assert_eq!(calls, ["fsync b", "mark", "fsync a"]);
    assert_eq!(bench.reports().len(), 2);
}

#[test]
fn errors_are_not_hidden() {
    let Some(bench) = Bench::new("errors_are_not_hidden") else { return };
    assert_eq!(bench.run("relaxed *", "badfd setfl"), Vec::<String>::new());
    for bad in ["relaxed [", "slack *"] {
        let ran = bench.output(&format!("relaxed *\n{bad}"), "fsync a");
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(ran.status.success() && said.contains(bad) && said.contains("strict"), "{said}");
        assert_eq!(bench.calls(), ["fsync a"]);
    }
    let mut command = bench.command(&bench.path("child"), "relaxed *");
    let ran = command.args(["fsync", "a"]).env("SPY_FAIL", "1").output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(said.contains("1 files could not be synced") && said.contains("/a;"), "{said}");
}

#[test]
fn rings_are_reported_as_not_covered() {
    let Some(bench) = Bench::new("rings_are_reported_as_not_covered") else { return };
    let ran = bench.output("relaxed *", "ring");
    assert!(ran.status.success());
    assert!(String::from_utf8_lossy(&ran.stdout).starts_with("ring"));
    assert_eq!(bench.reports()[0]["io_uring_not_covered"], 1);
}

#[test]
fn rules_come_from_a_file_too() {
    let Some(bench) = Bench::new("rules_come_from_a_file_too") else { return };
    std::fs::write(bench.path("rules"), "# all but one\nrelaxed *\nstrict b\n").unwrap();
    let mut command = bench.command(&bench.path("child"), "");
    command.env_remove("SYNCLINE_PRELOAD_RULES").env("SYNCLINE_PRELOAD_RULES_FILE", "../rules");
    assert!(command.args(["fsync", "a", "fsync", "b", "mark"]).status().unwrap().success());
    assert_eq!(bench.calls(), ["fsync b", "mark", "fsync a"]);
}

#[test]
fn a_real_sqlite_database_is_whole_and_synced_at_the_end() {
    let test = "a_real_sqlite_database_is_whole_and_synced_at_the_end";
    let Some(bench) = Bench::new(test) else { return };
    if !Command::new("sqlite3").arg("--version").output().is_ok_and(|ran| ran.status.success()) {
        return syncline_testkit::skip(test, "needs sqlite3; install sqlite3");
    }
    let rows = |from: u32| {
        let insert = |row| format!("INSERT INTO t VALUES ({row}, hex(randomblob(200)));");
        (from..from + 50).map(insert).collect::<String>()
    };
    let sqlite = |rules: &str, text: &str| {
        let mut command = bench.command(Path::new("sqlite3"), rules);
        let ran = command.args(["a.db", text]).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8_lossy(&ran.stdout).into_owned()
    };
    sqlite("strict *", &format!("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT);{}", rows(0)));
    let strict = bench.calls().len();
    assert!(strict >= 150, "three syncs an insert: {strict}");
    sqlite("relaxed *", &rows(50));
    let after = bench.calls()[strict..].to_vec();
    // The directory, too: SQLite syncs that it made the journal. The journal itself is gone.
    assert!(after.len() <= 3 && after.contains(&"fsync a.db".to_owned()), "{after:?}");
    let said = sqlite("", "PRAGMA integrity_check; SELECT count(*) FROM t;");
    assert_eq!(said, "ok\n100\n");
}
