//! Pitfalls of new users: each command as it was typed, and the answer it must give.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use crate::support::{Ran, at, binary, done, file, refused, run, scratch, text};
use syncline_testkit::{ImageSpec, Need, TempImage, mkfs, require};

fn image(test: &str) -> Option<TempImage> {
    require(test, &[Need::E2fsck]).then(|| mkfs(&ImageSpec::with_size(16 << 20)))
}

/// Runs it with this on standard input, through a pipe.
fn piped(arguments: &[&str], input: &[u8]) -> Ran {
    let mut child = binary();
    child.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    Ran { code: output.status.code().unwrap(), out: output.stdout, err }
}

#[test]
fn cp_reads_standard_input_and_writes_standard_output() {
    let Some(image) = image("cp_reads_standard_input_and_writes_standard_output") else { return };
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n / 11) as u8).collect();
    for (source, name) in [("/dev/stdin", "/a"), ("-", "/b")] {
        let ran = piped(&["cp", source, &at(image.path(), name)], &bytes);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{source}");
        let back = run(&["cp", &at(image.path(), name), "-"]);
        assert_eq!((back.code, back.err.as_str()), (0, ""));
        assert!(back.out == bytes, "{source}: {} bytes", back.out.len());
        let stat = done(&["stat", &at(image.path(), name)]);
        assert!(stat.contains("regular file") || stat.contains("/-rw"), "{stat}");
    }
    assert!(!Path::new("-").exists(), "a file of that name");
    let said = refused(2, &["cp", "-", &at(image.path(), "/")]);
    assert!(said.contains("standard input has no name"), "{said}");
    let said = refused(2, &["cp", &at(image.path(), "/lost+found"), "-"]);
    assert!(said.contains("only files"), "{said}");
    syncline_testkit::e2fsck_clean(image.path()).unwrap();
}

#[test]
fn cp_goes_on_after_a_file_that_is_missing() {
    let Some(image) = image("cp_goes_on_after_a_file_that_is_missing") else { return };
    let dir = scratch();
    let (a, c) = (file(dir.path(), "a", "1"), file(dir.path(), "c", "3"));
    let missing = dir.path().join("missing");
    let target = at(image.path(), "/");
    let ran = run(&["cp", text(&a), text(&missing), text(&c), &target]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("missing: no such file") && ran.err.contains("1 files were not"));
    assert_eq!(done(&["ls", &target]), "a\nc\nlost+found\n");
}

#[test]
fn errors_of_cp_name_the_file_and_hints_fit_the_command() {
    let Some(image) = image("errors_of_cp_name_the_file_and_hints_fit_the_command") else { return };
    let dir = scratch();
    let large = dir.path().join("large");
    let mut source = File::create(&large).unwrap();
    for n in 0..20_u8 {
        source.write_all(&vec![n + 1; 1 << 20]).unwrap();
    }
    let said = refused(1, &["cp", text(&large), &at(image.path(), "/l")]);
    assert!(said.contains(":/l: ") && !said.contains(".tmp"), "{said}");
    let said = refused(1, &["cat", &at(image.path(), "/")]);
    assert!(said.contains("is a directory; name a file in it"), "{said}");
    let said = refused(1, &["rm", &at(image.path(), "/lost+found")]);
    assert!(said.contains("is a directory; give -r to remove it"), "{said}");
}

#[test]
fn record_wants_its_directory_at_once() {
    let dir = scratch();
    let missing = dir.path().join("missing");
    let generate = ["--generate", "--records", "5", "--period-us", "100"];
    let said = refused(1, &[&["record", text(&missing)][..], &generate].concat());
    assert!(said.contains("no such directory; make it with mkdir"), "{said}");
    let plain = file(dir.path(), "plain", "");
    let said = refused(1, &[&["record", text(&plain)][..], &generate].concat());
    assert!(said.contains("is not a directory; give a directory"), "{said}");
}

#[test]
fn record_read_refuses_what_no_recorder_wrote() {
    let dir = scratch();
    let hosts = file(dir.path(), "hosts", "127.0.0.1 localhost\n");
    let ran = run(&["record-read", text(&hosts)]);
    assert_eq!((ran.code, ran.text().as_str()), (3, ""));
    assert!(ran.err.contains("it has no records; give a file"), "{}", ran.err);
    assert!(done(&["record-read", text(dir.path())]).starts_with("file"), "none in a directory");
}

#[test]
fn a_log_is_made_from_the_command_line() {
    let dir = scratch();
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|n| (n / 7) as u8).collect();
    let source = dir.path().join("source");
    std::fs::write(&source, &bytes).unwrap();
    let log = dir.path().join("film.log");
    let log = text(&log);
    done(&["flashlite", "write", log, text(&source), "--shuffle", "64K", "--seed", "3"]);
    assert!(run(&["flashlite", "cat", log]).out == bytes);
    let info: serde_json::Value =
        serde_json::from_str(&done(&["flashlite", "info", log, "--json"])).unwrap();
    assert!(info["extents"].as_u64().unwrap() > 4, "in random order: {info:#}");
    let ran = piped(&["flashlite", "write", log, "--offset", "4K"], b"hello");
    assert_eq!(ran.code, 0, "{}", ran.err);
    let back = run(&["flashlite", "cat", log]).out;
    assert_eq!((&back[4096..4101], &back[..4096]), (&b"hello"[..], &bytes[..4096]));
    assert!(done(&["flashlite", "check", log]).contains("agree with their checksums"));
    let whole = dir.path().join("whole");
    done(&["flashlite", "rearrange", log, text(&whole)]);
    assert!(std::fs::read(&whole).unwrap() == back);
    let said = refused(1, &["flashlite", "write", log, text(&dir.path().join("none"))]);
    assert!(said.contains("no such file"), "{said}");
    let said = refused(2, &["flashlite", "write", log, text(&source), "--shuffle", "4G"]);
    assert!(said.contains("--shuffle"), "{said}");
}

#[test]
fn man_makes_its_directory() {
    let dir = scratch();
    let pages = dir.path().join("share/man1");
    done(&["man", "--all", text(&pages)]);
    let page = std::fs::read_to_string(pages.join("syncline-mount.1")).unwrap();
    assert!(page.contains("\n.SH EXAMPLES\n"), "examples stand in the page");
}

#[test]
fn an_attach_that_fails_leaves_no_log() {
    let test = "an_attach_that_fails_leaves_no_log";
    if !require(test, &[Need::Fuse]) {
        return;
    }
    let dir = scratch();
    let device = dir.path().join("card.img");
    File::create(&device).unwrap().set_len(16 << 20).unwrap();
    let (log, served) = (dir.path().join("card.log"), dir.path().join("served"));
    std::fs::create_dir(&served).unwrap();
    // Without losetup there is no block device.
    let ran = binary()
        .args(["buffer", "attach", text(&device), text(&served), "--log", text(&log)])
        .args(["--create", "--attach"])
        .env("PATH", "/nonexistent")
        .output()
        .unwrap();
    assert_eq!(ran.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&ran.stderr).contains("losetup"));
    assert!(!log.exists(), "the log is left");
    assert!(!served.join("device").exists(), "still served");
}

#[test]
fn settings_are_words_and_fit_the_machine() {
    let dir = scratch();
    let device = dir.path().join("card.img");
    File::create(&device).unwrap().set_len(16 << 20).unwrap();
    let (log, served) = (dir.path().join("card.log"), dir.path().join("served"));
    std::fs::create_dir(&served).unwrap();
    let ran = run(&[
        "buffer",
        "attach",
        text(&device),
        text(&served),
        "--log",
        text(&log),
        "--create",
        "--as",
        "nbd",
    ]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let settings = run(&["ctl", "status", text(&served)]).text();
    assert!(!settings.contains("Unknown"), "{settings}");
    let status: serde_json::Value =
        serde_json::from_str(&done(&["buffer", "status", text(&served), "--json"])).unwrap();
    assert_eq!(status["settings"]["power"], "unknown");
    let said = refused(1, &["ctl", "set", text(&served), "ram=99999G"]);
    assert!(said.contains("MiB of memory; give less"), "{said}");
    done(&["buffer", "detach", text(&served)]);
}

#[test]
fn an_image_is_named_as_e2fsprogs_and_ls_take_it() {
    let dir = scratch();
    let path = dir.path().join("new.img");
    let image = text(&path);
    done(&["mkfs", image, "8M"]);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 8 << 20);
    assert_eq!(done(&["ls", image]), "lost+found\n");
    done(&["resize", image, "12M"]);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 12 << 20);
    // e2fsprogs counts it in blocks.
    let ran = run(&["resize", image, "16000"]);
    assert!(ran.code == 2 && ran.err.contains("a size with a unit"), "{}", ran.err);
    assert_eq!(run(&["mkfs", "--size", "8M", image, "9M"]).code, 2);
    assert_eq!(run(&["resize", image]).code, 2);
    // Of lvresize and qemu-img it would be so much more, and of us a smaller image.
    let ran = run(&["resize", image, "+8M"]);
    assert!(ran.code == 2 && ran.err.contains("a size"), "{}", ran.err);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 12 << 20);
    let said = refused(2, &["ls", text(dir.path())]);
    assert!(said.contains("` names no file of an image"), "{said}");
    let said = refused(2, &["ls", text(&dir.path().join("none.img"))]);
    assert!(said.contains("does not exist"), "{said}");
    // The root of an image is the image.
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("a"), "a\n").unwrap();
    done(&["import", text(&tree), &format!("{image}:/")]);
    assert_eq!(done(&["cat", &format!("{image}:/a")]), "a\n");
    let said = refused(2, &["import", text(&tree), &format!("{image}:/lost+found")]);
    assert!(said.contains("use cp -r"), "{said}");
}

#[test]
fn an_export_has_the_name_of_a_plain_archive() {
    let Some(image) = image("an_export_has_the_name_of_a_plain_archive") else { return };
    let dir = scratch();
    for name in ["a.tar.gz", "a.tgz", "a.qcow2"] {
        let to = dir.path().join(name);
        let said = refused(2, &["export", text(image.path()), "-o", text(&to)]);
        assert!(said.contains("export writes a plain tar archive; name it .tar"), "{said}");
        assert!(!to.exists(), "{name}");
    }
    done(&["export", text(image.path()), "-o", text(&dir.path().join("a.tar"))]);
}
