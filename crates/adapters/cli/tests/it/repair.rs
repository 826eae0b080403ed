//! `repair`: exit codes, the undo file, and images that it must leave alone.

use std::path::{Path, PathBuf};

use crate::support::{done, refused, run, scratch};
use syncline_testkit::{ImageSpec, Need, debugfs, e2fsck_clean, mkfs, require};

const DAMAGE: &str = "write /etc/passwd f\nsif f links_count 5\nfreeb 1000 5\n";

fn words<'a>(how: &'a [&'a str], undo: &'a Path, image: &'a Path) -> Vec<&'a std::ffi::OsStr> {
    let how = how.iter().map(std::ffi::OsStr::new);
    ["repair".as_ref()]
        .into_iter()
        .chain(how)
        .chain(["--undo".as_ref(), undo.as_os_str(), image.as_os_str()])
        .collect()
}

#[test]
fn damage_is_mended_and_rolled_back() {
    if !require("damage_is_mended_and_rolled_back", &[Need::E2fsck]) {
        return;
    }
    let image = mkfs(&ImageSpec::with_size(16 << 20));
    let _ = debugfs(image.path(), DAMAGE);
    let before = image.bytes();
    let place = scratch();
    let undo = place.path().join("undo");
    let said = run(&words(&["-n"], &undo, image.path()));
    assert_eq!(said.code, 4, "errors are there");
    assert!(said.text().contains("can be mended"), "{}", said.text());
    assert!(image.bytes() == before && !undo.exists(), "-n writes nothing");

    let said = run(&words(&["-p"], &undo, image.path()));
    assert_eq!(said.code, 1, "{}", said.text());
    e2fsck_clean(image.path()).unwrap();
    let mended = image.bytes();
    let second = place.path().join("second");
    let said = done(&words(&["-y"], &second, image.path()));
    assert!(said.contains("0 errors"), "{said}");
    assert!(image.bytes() == mended && !second.exists(), "a sound image keeps its bytes");

    let said = refused(2, &words(&[], &second, image.path()));
    assert!(said.contains("no terminal answers"), "{said}");
    refused(2, &words(&["-y"], &undo, image.path()));
    let damaged = std::fs::read(&undo).unwrap();
    std::fs::write(&undo, &damaged[..damaged.len() - 1]).unwrap();
    let said = refused(8, &words(&["--roll-back"], &undo, image.path()));
    assert!(said.contains("cut or damaged"), "{said}");
    std::fs::write(&undo, &damaged).unwrap();
    assert_eq!(run(&words(&["--roll-back"], &undo, image.path())).code, 1);
    assert!(image.bytes() == before, "every byte is as it was");
}

#[test]
fn an_image_that_is_changed_or_in_use_is_not_written_to() {
    if !require("an_image_that_is_changed_or_in_use_is_not_written_to", &[Need::E2fsck]) {
        return;
    }
    let image = mkfs(&ImageSpec::with_size(16 << 20));
    let _ = debugfs(image.path(), DAMAGE);
    let place = scratch();
    let undo: PathBuf = place.path().join("undo");
    let held = syncline_device::FileDevice::open(image.path(), Default::default()).unwrap();
    let before = image.bytes();
    refused(8, &words(&["-y"], &undo, image.path()));
    assert!(image.bytes() == before && !undo.exists());
    drop(held);
    assert_eq!(run(&words(&["-y"], &undo, image.path())).code, 1);
    // Another program writes where the repair wrote.
    let _ = debugfs(image.path(), "sif f links_count 9\n");
    let changed = image.bytes();
    let said = refused(8, &words(&["--roll-back"], &undo, image.path()));
    assert!(said.contains("has changed since"), "{said}");
    assert!(image.bytes() == changed);
}

#[test]
fn preening_writes_nothing_that_needs_a_decision() {
    if !require("preening_writes_nothing_that_needs_a_decision", &[Need::E2fsck]) {
        return;
    }
    let image = mkfs(&ImageSpec::with_size(16 << 20));
    let _ = debugfs(image.path(), &format!("{DAMAGE}sif f mode 0\n"));
    let before = image.bytes();
    let place = scratch();
    let undo = place.path().join("undo");
    assert_eq!(run(&words(&["-p"], &undo, image.path())).code, 4);
    assert!(image.bytes() == before && !undo.exists());
    assert_eq!(run(&words(&["-y"], &undo, image.path())).code, 1);
    e2fsck_clean(image.path()).unwrap();
}

/// Runs `repair` with more words in a directory, where it makes its undo file.
fn in_place(place: &Path, how: &[&str], image: &Path) -> std::process::Output {
    let mut command = crate::support::binary();
    command.arg("repair").args(how).arg(image).current_dir(place);
    command.output().expect("the program runs")
}

#[test]
fn without_a_name_the_undo_file_lives_as_long_as_the_repair() {
    if !require("without_a_name_the_undo_file_lives_as_long_as_the_repair", &[Need::E2fsck]) {
        return;
    }
    let image = mkfs(&ImageSpec::with_size(16 << 20));
    let _ = debugfs(image.path(), DAMAGE);
    let before = image.bytes();
    let place = scratch();
    let name = image.path().file_name().unwrap().to_str().unwrap();
    let undo = place.path().join(format!("{name}.undo"));
    assert_eq!(in_place(place.path(), &["-y"], image.path()).status.code(), Some(1));
    assert!(!undo.exists(), "the repair is complete");
    e2fsck_clean(image.path()).unwrap();
    let mended = image.bytes();

    // A cut in the middle: one changed sector is there, the others are not.
    std::fs::write(image.path(), &before).unwrap();
    let kept = place.path().join("kept");
    assert_eq!(run(&words(&["-y"], &kept, image.path())).code, 1);
    let changed = |sector: &usize| before[*sector..sector + 512] != mended[*sector..sector + 512];
    let first = (0..before.len()).step_by(512).find(changed).unwrap();
    let mut torn = before.clone();
    torn[first..first + 512].copy_from_slice(&mended[first..first + 512]);
    std::fs::write(image.path(), &torn).unwrap();
    std::fs::copy(&kept, &undo).unwrap();
    let said = in_place(place.path(), &["-y"], image.path());
    assert_eq!(said.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&said.stdout).contains("was interrupted"));
    assert!(image.bytes() == before && !undo.exists(), "every byte is as it was");

    // A cut before the first write, and one after the last.
    for (bytes, code) in [(&before, 1), (&mended, 0)] {
        std::fs::write(image.path(), bytes).unwrap();
        std::fs::copy(&kept, &undo).unwrap();
        assert_eq!(in_place(place.path(), &["-y"], image.path()).status.code(), Some(code));
        assert!(image.bytes() == mended && !undo.exists());
    }
    // A file that is no undo file is not removed.
    std::fs::write(&undo, "letters").unwrap();
    assert_eq!(in_place(place.path(), &["-y"], image.path()).status.code(), Some(8));
    assert_eq!(std::fs::read(&undo).unwrap(), b"letters");
}

/// Answers the questions of `repair` on a terminal; exit code and output.
fn answered(place: &Path, image: &Path, answers: &str) -> (Option<i32>, String) {
    let program = crate::support::binary();
    let command =
        format!("{} repair {}", Path::new(program.get_program()).display(), image.display());
    let mut script = std::process::Command::new("script");
    script.args(["-qec", &command, "/dev/null"]).current_dir(place);
    let pipe = std::process::Stdio::piped;
    let mut run = script.stdin(pipe()).stdout(pipe()).spawn().expect("util-linux has script");
    let mut input = run.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, answers.as_bytes()).unwrap();
    // script ends with its input: it stays open until the program has ended.
    let output = std::thread::spawn(move || run.wait_with_output().unwrap()).join().unwrap();
    drop(input);
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn questions_are_answered_on_a_terminal() {
    if !require("questions_are_answered_on_a_terminal", &[Need::E2fsck]) {
        return;
    }
    let image = mkfs(&ImageSpec::with_size(16 << 20));
    let _ = debugfs(image.path(), &format!("{DAMAGE}mkdir d\nsif d flags 0x91000\n"));
    let damaged = image.bytes();
    let place = scratch();
    // No answer but the end of the input: nothing is written.
    let (code, said) = answered(place.path(), image.path(), "what\n\u{4}");
    assert!(code == Some(8) && said.contains("nothing was written"), "{code:?}: {said}");
    assert!(image.bytes() == damaged);
    let (code, said) = answered(place.path(), image.path(), &"n\n".repeat(20));
    assert!(code == Some(4) && image.bytes() == damaged, "{code:?}: {said}");
    let (code, said) = answered(place.path(), image.path(), "y\na\n");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("(yes, no, all)? "), "{said}");
    e2fsck_clean(image.path()).unwrap();
}
