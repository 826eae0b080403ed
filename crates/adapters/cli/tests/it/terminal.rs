//! Labels and names of images and archives on their way to a terminal.

use std::path::Path;
use std::process::Command;

use crate::support::members::{End, archive, member};
use crate::support::{at, done, run, scratch, text};
use syncline_testkit::{ImageSpec, Need, debugfs, mkfs, require, skip};

const ESCAPE: &str = "\x1b]0;gotcha\x07";

fn harmless(what: &str, said: &[u8]) {
    let acts = said.iter().any(|byte| *byte < b' ' && !b"\n\t".contains(byte));
    assert!(!acts, "{what}: {}", said.escape_ascii());
}

#[test]
fn what_a_terminal_acts_on_does_not_reach_it() {
    let test = "what_a_terminal_acts_on_does_not_reach_it";
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let image = mkfs(&ImageSpec::default());
    let label = "\x1b]0;x\x07\x1bc";
    let named = Command::new("tune2fs").args(["-L", label]).arg(image.path()).output().unwrap();
    assert!(named.status.success());
    // A name that makes an error, and a second line of it.
    let name = format!("{ESCAPE}\nsyncline: all is well");
    let odd = dir.path().join("odd");
    std::fs::create_dir(&odd).unwrap();
    std::fs::write(odd.join(&name), "x").unwrap();
    done(&["cp", "-r", text(&odd), &at(image.path(), "/")]);
    let info = run(&["info", text(image.path())]);
    harmless("info", &info.out);
    assert!(info.text().contains(r"\x1b]0;x\x07"), "{}", info.text());
    let json = done(&["info", "--json", text(image.path())]);
    assert!(json.contains(r"\u001b]0;x\u0007"), "{json}");
    harmless("check", &run(&["check", text(image.path())]).out);
    let place = at(image.path(), &format!("/odd/{name}/x"));
    for arguments in [
        &["ls", &place][..],
        &["cat", &place],
        &["stat", &place],
        &["rm", &place],
        &["mkdir", &place],
        &["cp", &place, "x"],
        &["cp", "-r", &at(image.path(), "/odd"), &place],
    ] {
        let ran = run(arguments);
        assert!(ran.code != 0, "{arguments:?}");
        harmless(arguments[0], ran.err.as_bytes());
        assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    }
    // A damaged image, whose check names it.
    let broken = debugfs(image.path(), "cd /odd\nmkdir sub\nlink_inode sub other\n");
    drop(broken);
    let ran = run(&["check", text(image.path())]);
    harmless("check of a damaged image", &ran.out);
    // Names of an archive.
    let path = dir.path().join("a.tar");
    for members in [
        vec![member(b'Z', ESCAPE.as_bytes(), b"", b"")],
        vec![member(b'1', b"x", format!("{ESCAPE}gone").as_bytes(), b"")],
        vec![member(b'0', format!("../{ESCAPE}").as_bytes(), b"", b"")],
    ] {
        std::fs::write(&path, archive(&members, End::Blocks)).unwrap();
        let ran = run(&["import", text(&path), text(image.path())]);
        assert!(ran.err.contains("gotcha"), "{ran:?}");
        harmless("import", ran.err.as_bytes());
    }
    // A program gets names as they are; a terminal does not.
    let raw = run(&["ls", &at(image.path(), "/odd")]);
    assert!(raw.out.windows(ESCAPE.len()).any(|window| window == ESCAPE.as_bytes()));
    if !Path::new("/usr/bin/script").exists() {
        return skip(&format!("{test}: terminal"), "needs script; install util-linux's");
    }
    for command in ["ls", "ls -l", "ls -R"] {
        let line =
            format!("{} {command} {}", env!("CARGO_BIN_EXE_syncline"), at(image.path(), "/odd"));
        let ran = Command::new("script").args(["-qec", &line, "/dev/null"]).output().unwrap();
        let shown: Vec<u8> = ran.stdout.into_iter().filter(|byte| *byte != b'\r').collect();
        assert!(String::from_utf8_lossy(&shown).contains("gotcha"), "{}", shown.escape_ascii());
        harmless(command, &shown);
    }
}

/// A pipe that stalls keeps the import going for long enough to be shown.
#[test]
fn a_terminal_sees_progress_and_nothing_else_does() {
    let dir = scratch();
    let tar = archive(&[member(b'0', b"f", b"", &vec![7; 4 << 20])], End::Blocks);
    std::fs::write(dir.path().join("a.tar"), tar).unwrap();
    let program = env!("CARGO_BIN_EXE_syncline");
    let import = |image: &str| {
        format!(
            "cd {}; (head -c 3000000 a.tar; sleep 0.3; tail -c +3000001 a.tar) | \
             {program} import - {image}",
            text(dir.path())
        )
    };
    let plain = Command::new("sh").args(["-c", &import("plain.img")]).output().unwrap();
    assert_eq!((plain.status.success(), plain.stderr.as_slice()), (true, &b""[..]));
    if !Path::new("/usr/bin/script").exists() {
        return skip("a_terminal_sees_progress", "needs script; install util-linux's");
    }
    let shown = |command: &str| {
        let ran = Command::new("script").args(["-qec", command, "/dev/null"]).output().unwrap();
        String::from_utf8_lossy(&ran.stdout).into_owned()
    };
    let bar = shown(&import("shown.img"));
    assert!(bar.contains("\r\x1b[Kimported: ") && bar.ends_with("\r\x1b[K"), "{bar:?}");
    let image = dir.path().join("plain.img");
    // The pipe is full until somebody reads it.
    let export =
        shown(&format!("{program} export {} -o - | (sleep 0.3; cat > /dev/null)", text(&image)));
    assert!(export.contains("exported: ") && export.ends_with("\r\x1b[K"), "{export:?}");
    // Too short to be shown.
    let check = shown(&format!("{program} check {}", text(&image)));
    assert!(!check.contains("\x1b[K"), "{check:?}");
}

#[test]
fn an_archive_is_not_printed_on_a_terminal() {
    if !Path::new("/usr/bin/script").exists() {
        return skip("an_archive_is_not_printed", "needs script; install util-linux's");
    }
    let dir = scratch();
    let image = dir.path().join("a.img");
    done(&["mkfs", text(&image), "16M"]);
    let program = env!("CARGO_BIN_EXE_syncline");
    let line = format!("{program} export {}", text(&image));
    let ran = Command::new("script").args(["-qec", &line, "/dev/null"]).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert_eq!(ran.status.code(), Some(2), "{said}");
    assert!(said.contains("not printed on a terminal; give -o FILE, or a pipe"), "{said}");
    assert!(run(&["export", text(&image)]).out.len() > 1024, "a pipe gets it");
}
