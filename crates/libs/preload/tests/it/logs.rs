//! Files that are FlashLite logs while a program runs: a C program that fills one in random order
//! in every way, and real programs that download (`lab/scripts/downloads.py`).

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::{Bench, library};

const PIECE: usize = 5000;
const PIECES: usize = 300;

fn content(nr: usize) -> impl Iterator<Item = u8> {
    (0..PIECE).map(move |at| b'a' + ((nr * 7 + at * 3 + nr * at / 11) % 26) as u8)
}

/// Checks the file as everybody sees it: whole, and no log beside it.
fn is_plain(path: &Path) {
    let expected: Vec<u8> = (0..PIECES).flat_map(content).collect();
    assert!(std::fs::read(path).unwrap() == expected, "{}: other bytes", path.display());
    assert!(!log(path).exists(), "{}: the log is still there", path.display());
}

fn log(path: &Path) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(".flashlite");
    name.into()
}

fn bench(test: &str) -> Option<Bench> {
    let bench = Bench::new(test)?;
    bench.compile("filler.c", "filler", &[]);
    Some(bench)
}

fn run(bench: &Bench, rules: &str, words: &str) -> (Output, String) {
    let _ = std::fs::remove_file(bench.path("report"));
    let mut command = bench.command(&bench.path("filler"), rules);
    let ran = command.args(words.split(' ')).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    (ran, said)
}

#[test]
fn a_file_in_random_order_is_a_log_and_then_plain() {
    let Some(bench) = bench("a_file_in_random_order_is_a_log_and_then_plain") else { return };
    let file = bench.path("files").join("a.iso");
    let (ran, said) = run(&bench, "log *.iso", "a.iso make half halfway second rest whole second");
    // The pieces that `second` reads are not all there yet.
    assert!(!ran.status.success() && said.contains("reading in order"), "{said}");
    std::fs::remove_file(&file).unwrap();
    let (ran, said) = run(&bench, "log *.iso", "a.iso make half halfway rest whole second");
    assert!(ran.status.success() && said.is_empty(), "{said}");
    is_plain(&file);
    let report = &bench.reports()[0];
    assert_eq!((&report["logs"], &report["logs_ended_early"]), (&1.into(), &0.into()));
    // A plain file with bytes stays plain, and so does one without a rule.
    for (rules, name) in [("log *.iso", "a.iso"), ("log *.iso", "a.img"), ("", "b.iso")] {
        let (ran, said) = run(&bench, rules, &format!("{name} make half rest whole"));
        assert!(ran.status.success() && said.is_empty(), "{said}");
        assert!(bench.reports().iter().all(|report| report["logs"] == 0), "{name}");
    }
}

#[test]
fn a_killed_program_goes_on_with_its_log() {
    let Some(bench) = bench("a_killed_program_goes_on_with_its_log") else { return };
    let file = bench.path("files").join("a.iso");
    let (ran, said) = run(&bench, "log *.iso", "a.iso make half kill");
    assert!(!ran.status.success() && said.is_empty(), "{said}");
    assert_eq!(std::fs::metadata(&file).unwrap().len(), (PIECE * PIECES) as u64);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions();
    assert_eq!(mode(&log(&file)), mode(&file));
    // Once more: a log that was opened again is left by a kill as one that was made.
    let (_, said) = run(&bench, "log *.iso", "a.iso halfway kill");
    assert!(said.is_empty(), "{said}");
    let (ran, said) = run(&bench, "log *.iso", "a.iso halfway rest whole");
    assert!(ran.status.success() && said.is_empty(), "{said}");
    is_plain(&file);
    // The log of a file that somebody removed says nothing of the next one of that name.
    run(&bench, "log *.iso", "b.iso make half kill");
    let other = bench.path("files").join("b.iso");
    std::fs::remove_file(&other).unwrap();
    let (ran, said) = run(&bench, "log *.iso", "b.iso make half halfway rest whole");
    assert!(ran.status.success() && said.contains("is of another file"), "{said}");
    is_plain(&other);
}

#[test]
fn what_a_log_cannot_do_makes_a_plain_file() {
    let Some(bench) = bench("what_a_log_cannot_do_makes_a_plain_file") else { return };
    let ends = [
        ("rename", "is renamed"),
        ("link", "another name"),
        ("mmap", "mapped"),
        ("stdio", "stream"),
        ("fork", "forks"),
        ("sendfile", "the kernel copies it"),
        ("punch", "punched"),
        ("overwrite", "again and again"),
    ];
    for (how, why) in ends {
        let file = bench.path("files").join(format!("{how}.iso"));
        let words = format!("{how}.iso make half rest {how} whole");
        let (ran, said) = run(&bench, "log *.iso", &words);
        assert!(ran.status.success() && said.contains(why), "{how}: {said}");
        assert_eq!(said.lines().count(), 1, "{how}: {said}");
        is_plain(&file);
    }
    for how in ["cut", "unlink", "second"] {
        let file = bench.path("files").join(format!("{how}.iso"));
        let (ran, said) =
            run(&bench, "log *.iso", &format!("{how}.iso make half rest {how} whole"));
        assert!(ran.status.success() && said.is_empty(), "{how}: {said}");
        is_plain(&file);
    }
}

#[test]
fn real_downloads_are_whole_after_a_kill() {
    let test = "real_downloads_are_whole_after_a_kill";
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../lab/scripts/downloads.py");
    let ran = Command::new("python3")
        .arg(script)
        .args(["--size", "8", "--kill", "--library"])
        .arg(library())
        .args(["aria2", "aria2-torrent", "transmission"])
        .output();
    let Ok(ran) = ran else {
        return syncline_testkit::skip(test, "needs python3; install python3");
    };
    let said = String::from_utf8_lossy(&ran.stdout) + String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}");
    for line in said.lines().filter(|line| line.contains("is not installed")) {
        syncline_testkit::skip(test, line);
    }
}
