//! `shell`: scripts on standard input and `-c`, contained, and a session on a terminal.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Ran, at, binary, done, file, refused, run, scratch, text};
use syncline_testkit::{Need, e2fsck_clean, require, skip};

fn image(dir: &Path) -> std::path::PathBuf {
    let image = dir.join("a.img");
    done(&["mkfs", "--size", "16M", text(&image)]);
    done(&["mkdir", "-p", &at(&image, "/etc/d e"), &at(&image, "/var")]);
    done(&["cp", text(&file(dir, "hosts", "127.0.0.1\n")), &at(&image, "/etc/hosts")]);
    image
}

/// Runs it in `dir` with a script on standard input.
fn script(dir: &Path, arguments: &[&str], input: &str) -> Ran {
    let mut child = binary();
    child.arg("shell").args(arguments).current_dir(dir).stdin(Stdio::piped());
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    Ran { code: output.status.code().unwrap(), out: output.stdout, err }
}

#[test]
fn a_script_reads_and_changes_an_image() {
    let dir = scratch();
    let image = image(dir.path());
    let name = text(&image);
    let before = std::fs::read(&image).unwrap();
    let read = "# looks around\ncd etc\npwd; ls\ncat hosts; less hosts\nls -d 'd e' d\\ e\n\
                find / -name 'h*'; find \"d e\"; du hosts; get hosts got; get hosts; cd; pwd";
    std::fs::remove_file(dir.path().join("hosts")).unwrap();
    let ran = script(dir.path(), &[name], read);
    assert_eq!(
        (ran.code, ran.text().as_str(), ran.err.as_str()),
        (
            0,
            "/etc\nd e\nhosts\n127.0.0.1\n127.0.0.1\n/etc/d e\n/etc/d e\n/etc/hosts\n/etc/d e\n\
             1.0 KiB\t/etc/hosts\n/\n",
            ""
        )
    );
    for got in ["got", "hosts"] {
        assert_eq!(std::fs::read_to_string(dir.path().join(got)).unwrap(), "127.0.0.1\n");
    }
    assert!(std::fs::read(&image).unwrap() == before, "reading changed the image");

    let write = "put got /var/put\nmkdir -p new/dir; cd new\nput hosts got dir\n\
                 mv dir/got ../moved\nrm -r /etc; exit\nnever";
    let ran = script(dir.path(), &["-w", name], write);
    assert_eq!((ran.code, ran.text().as_str(), ran.err.as_str()), (0, "", ""));
    let all = done(&["shell", name, "-c", "find /", "-c", "stat /moved"]);
    let found =
        "/\n/lost+found\n/moved\n/new\n/new/dir\n/new/dir/hosts\n/var\n/var/put\n  File: /mo";
    assert!(all.starts_with(found), "{all}");
    if require("a_script_reads_and_changes_an_image", &[Need::E2fsck]) {
        e2fsck_clean(&image).unwrap();
    }
}

#[test]
fn a_script_ends_at_the_first_failure() {
    let dir = scratch();
    let image = image(dir.path());
    let name = text(&image);
    for (code, command, why) in [
        (1, "cat /none", "/none: no such file"),
        (1, "cd /etc/hosts", "is not a directory"),
        (1, "cat /etc", "is a directory; name a file in it"),
        (2, "mkdir /x", "start with -w"),
        (2, "nano x", "there is no command `nano`"),
        (2, "edit /etc/hosts", "start with -w"),
        (2, "ls --none", "unexpected argument"),
        (2, "cat", "required arguments"),
        (2, "pwd x", "too many arguments"),
        (2, "cat /etc/hosts | less", "no pipes"),
        (2, "cat 'x", "a quote without its end"),
        (2, "find / -name '[' ", "correct the glob"),
    ] {
        let ran = script(dir.path(), &[name], &format!("{command}\npwd\n"));
        assert_eq!((ran.code, ran.text().as_str()), (code, ""), "{command}: {}", ran.err);
        assert!(ran.err.contains(why) && ran.err.lines().count() == 1, "{command}: {}", ran.err);
        let same = refused(code, &["shell", name, "-c", command, "-c", "pwd"]);
        assert_eq!(same, ran.err);
    }
    let help = done(&["shell", name, "-c", "help"]);
    assert!(help.lines().all(|line| line.len() < 80) && help.contains("get [-ra]"), "{help}");
    assert!(done(&["shell", name, "-c", "ls --help"]).contains("Usage: "));
    refused(1, &["shell", text(&dir.path().join("none"))]);
}

/// A file behind a link of the current directory, and one above it, are out of reach.
#[test]
fn a_shell_is_held_to_its_directory() {
    let dir = scratch();
    let image = image(dir.path());
    let (inside, secret) = (dir.path().join("inside"), file(dir.path(), "secret", "x"));
    std::fs::create_dir(&inside).unwrap();
    let ran = script(&inside, &["-w", text(&image)], &format!("put {} /\n", text(&secret)));
    if ran.code == 0 {
        return skip("a_shell_is_held_to_its_directory", "needs Landlock; boot with lsm=landlock");
    }
    assert!(ran.code == 1 && ran.err.contains("permission denied"), "{}", ran.err);
    let ran = script(&inside, &[text(&image)], "get /etc/hosts ..\n");
    assert!(ran.code == 1 && !dir.path().join("inside/../hosts.x").exists(), "{}", ran.err);
}

/// A terminal has a prompt, goes on after a failure, and shows files in the pager.
#[test]
fn a_terminal_goes_on_after_a_failure() {
    if !Path::new("/usr/bin/script").exists() {
        return skip("a_terminal_goes_on_after_a_failure", "needs script; install util-linux's");
    }
    let dir = scratch();
    let image = image(dir.path());
    let line = format!("{} shell a.img", env!("CARGO_BIN_EXE_syncline"));
    let mut session = Command::new("script");
    session.args(["-qec", &line, "/dev/null"]).current_dir(dir.path()).env("PAGER", "sed s/^/:/");
    let mut session = session.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut keys = session.stdin.take().unwrap();
    keys.write_all(b"cat none\ncd etc\nless hosts\npwd\nexit\n").unwrap();
    let output = session.wait_with_output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).replace('\r', "");
    assert!(output.status.success(), "{shown}");
    for part in ["a.img:/> ", "none: no such file", "a.img:/etc> ", ":127.0.0.1\n", "/etc\n"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(run(&["check", text(&image)]).code, 0);
}

/// Types keys into a session on a terminal; returns what it showed.
fn typed(dir: &Path, arguments: &str, editor: &str, keys: &[&str]) -> String {
    let line = format!("{} shell {arguments}", env!("CARGO_BIN_EXE_syncline"));
    let mut session = Command::new("script");
    session.args(["-qec", &line, "/dev/null"]).current_dir(dir).env("EDITOR", editor);
    session.env_remove("VISUAL").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut session = session.spawn().unwrap();
    let mut pipe = session.stdin.take().unwrap();
    for keys in keys {
        std::thread::sleep(std::time::Duration::from_millis(150));
        pipe.write_all(keys.as_bytes()).unwrap();
    }
    let output = session.wait_with_output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).replace('\r', "");
    assert!(output.status.success(), "{shown}");
    shown
}

#[test]
fn a_terminal_completes_and_edits_lines() {
    if !Path::new("/usr/bin/script").exists() {
        return skip("a_terminal_completes", "needs script; install util-linux's");
    }
    let dir = scratch();
    let image = image(dir.path());
    done(&["cp", text(&file(dir.path(), "one", "1\n")), &at(&image, "/etc/d e/one")]);
    let shown = typed(
        dir.path(),
        "a.img",
        "",
        &[
            // A command, a directory, a name with a space, a file.
            "ca\tet\th\t\n",
            "cat /etc/d\to\t\n",
            // Two that begin alike are listed at the second Tab.
            "ls /etc/\t\t\x15",
            // The line before the last one, with another command.
            "\x1b[A\x1b[A\x01\x1b[3~\x1b[3~\x1b[3~stat\n",
            "pwx\x7fd\n",
            "\x03",
            "\x04",
        ],
    );
    for part in [
        "cat etc/hosts \n127.0.0.1\n",
        "cat /etc/d\\ e/one \n1\n",
        "\n/etc/d\\ e/  /etc/hosts\n",
        "File: /etc/hosts",
        "^C\n",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(shown.contains("\n/\n"), "pwd: {shown}");
}

#[test]
fn a_file_is_edited_in_the_image() {
    if !Path::new("/usr/bin/script").exists() {
        return skip("a_file_is_edited", "needs script; install util-linux's");
    }
    let dir = scratch();
    let image = image(dir.path());
    let mode = |path: &str| {
        let said = done(&["stat", &at(&image, path)]);
        said.lines().find(|line| line.contains("Access: (")).map(str::to_owned)
    };
    let before = mode("/etc/hosts");
    let editor = "sed -i s/127/128/";
    typed(dir.path(), "-w a.img", editor, &["cd etc\n", "edit hosts\n", "exit\n"]);
    assert_eq!(done(&["cat", &at(&image, "/etc/hosts")]), "128.0.0.1\n");
    assert_eq!(mode("/etc/hosts"), before);
    // A new file, and an editor that fails.
    typed(dir.path(), "-w a.img", "echo new >", &["edit /var/new\n", "exit\n"]);
    assert_eq!(done(&["cat", &at(&image, "/var/new")]), "new\n");
    let shown = typed(dir.path(), "-w a.img", "false", &["edit /etc/hosts\n", "exit\n"]);
    assert!(shown.contains("the editor failed, and the file is as it was"), "{shown}");
    assert_eq!(done(&["cat", &at(&image, "/etc/hosts")]), "128.0.0.1\n");
    let left = std::fs::read_dir(dir.path()).unwrap();
    let left =
        left.filter(|one| one.as_ref().unwrap().file_name().to_string_lossy().starts_with('.'));
    assert_eq!(left.count(), 0, "a copy is left");
}
