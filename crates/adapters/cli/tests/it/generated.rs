//! Completions and man pages fit the program.

use std::process::Command;

use crate::support::{at, done, run, scratch, text};
use syncline_testkit::skip;

const COMMANDS: [&str; 29] = [
    "buffer",
    "cat",
    "check",
    "completions",
    "cp",
    "ctl",
    "export",
    "flashlite",
    "import",
    "info",
    "ls",
    "man",
    "mkdir",
    "mkfs",
    "mount",
    "mv",
    "preload",
    "record",
    "record-read",
    "recover",
    "repair",
    "resize",
    "rm",
    "serve",
    "shell",
    "stat",
    "status",
    "top",
    "umount",
];

#[test]
fn every_shell_completes_every_command() {
    for shell in ["elvish", "powershell"] {
        let script = done(&["completions", shell]);
        for command in COMMANDS {
            assert!(script.contains(command), "{shell} does not know {command}");
        }
    }
    for shell in ["bash", "fish", "zsh"] {
        assert!(done(&["completions", shell]).contains("complete -- "), "{shell}");
    }
    let all: Vec<String> = done(&["complete", "--", ""]).lines().map(str::to_owned).collect();
    assert!(COMMANDS.iter().all(|command| all.iter().any(|known| known == command)), "{all:?}");
}

/// The words that bash puts into the line, as its script finds them.
fn completed(line: &str) -> Vec<String> {
    let program = env!("CARGO_BIN_EXE_syncline");
    let script = "eval \"$($0 completions bash)\"\nCOMP_LINE=$1 COMP_POINT=${#1}\n\
                  compopt() { :; }\n_syncline $0\nprintf '%s\\n' \"${COMPREPLY[@]}\"";
    let ran = Command::new("bash").args(["-c", script, program, line]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ran.stderr), "");
    String::from_utf8(ran.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_values_and_files_of_images() {
    let dir = scratch();
    let image = dir.path().join("a b.img");
    let name = text(&image);
    done(&["mkfs", "--size", "16M", name]);
    done(&["mkdir", &at(&image, "/etc"), &at(&image, "/e f"), &at(&image, "/$(x)")]);
    let typed = name.replace(' ', "\\ ");
    for (line, expected) in [
        ("syncline umo".to_owned(), &["umount"][..]),
        ("syncline buffer att".to_owned(), &["attach"]),
        ("syncline ls --rec".to_owned(), &["--recursive"]),
        ("syncline buffer attach --policy auto-ram,se".to_owned(), &["auto-ram,session"]),
        ("syncline mount -o noatime,sync=e".to_owned(), &["eager"]),
        ("syncline mount -o noatime,dirty_b".to_owned(), &["noatime,dirty_background_ratio="]),
        ("syncline record --strategy=p".to_owned(), &["paper", "pool"]),
        ("syncline man check".to_owned(), &["check"]),
        (format!("syncline ls {typed}:/et"), &["/etc/"]),
        (format!("syncline cp {typed}:/e"), &["/e\\ f/", "/etc/"]),
        (format!("syncline cat {typed}:/$"), &["/\\$\\(x\\)/"]),
        (format!("syncline ls {typed}:/none/"), &[""]),
    ] {
        let mut found = completed(&line);
        found.sort();
        assert_eq!(found, expected, "{line}");
    }
}

/// A shell with this program first in its path, in a directory with an image; `None` without it.
fn shell(test: &str, name: &str) -> Option<(Command, tempfile::TempDir)> {
    if Command::new(name).args(["-c", "true"]).output().is_err() {
        skip(test, &format!("needs {name}; install {name}"));
        return None;
    }
    let dir = scratch();
    let image = dir.path().join("a b.img");
    done(&["mkfs", "--size", "16M", text(&image)]);
    done(&["mkdir", &at(&image, "/etc"), &at(&image, "/e f"), &at(&image, "/$(x)")]);
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_syncline")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new(name);
    shell.current_dir(dir.path()).env("PATH", path).env("HOME", dir.path());
    Some((shell, dir))
}

#[test]
fn fish_completes_values_and_files_of_images() {
    let Some((mut fish, _dir)) = shell("fish_completes", "fish") else { return };
    let cases = [
        ("syncline umo", &["umount"][..]),
        ("syncline ls --rec", &["--recursive"]),
        ("syncline buffer attach --policy auto-ram,se", &["auto-ram,session"]),
        ("syncline mount -o noatime,sync=e", &["noatime,sync=eager"]),
        ("syncline record --strategy=p", &["--strategy=paper", "--strategy=pool"]),
        (r"syncline ls a\ b.img:/et", &["a b.img:/etc/"]),
        (r"syncline cp a\ b.img:/e", &["a b.img:/e f/", "a b.img:/etc/"]),
        ("syncline cp 'a b.img:/e", &["a b.img:/e f/", "a b.img:/etc/"]),
        (r"syncline cat a\ b.img:/\$", &["a b.img:/$(x)/"]),
        ("syncline check a", &["a b.img"]),
    ];
    let script = "syncline completions fish | source\nfor line in $argv\n\
                  complete -C $line\necho .\nend";
    fish.args(["-c", script]).args(cases.map(|(line, _)| line));
    let ran = fish.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ran.stderr), "");
    let said = String::from_utf8(ran.stdout).unwrap();
    for ((line, expected), found) in cases.iter().zip(said.split(".\n")) {
        // A description may follow a tab.
        let mut found: Vec<&str> =
            found.lines().map(|one| one.split('\t').next().unwrap()).collect();
        found.sort_unstable();
        assert_eq!(found, *expected, "{line}");
    }
}

#[test]
fn zsh_completes_values_and_files_of_images() {
    let Some((mut zsh, _dir)) = shell("zsh_completes", "zsh") else { return };
    let cases = [
        ("syncline umo", "syncline umount "),
        ("syncline ls --rec", "syncline ls --recursive "),
        (
            "syncline buffer attach --policy auto-ram,se",
            "syncline buffer attach --policy auto-ram,session ",
        ),
        ("syncline mount -o noatime,sync=e", "syncline mount -o noatime,sync=eager "),
        ("syncline mount -o noatime,dirty_b", "syncline mount -o noatime,dirty_background_ratio="),
        ("syncline record --strategy=pa", "syncline record --strategy=paper "),
        (r"syncline ls a\ b.img:/et", r"syncline ls a\ b.img:/etc/"),
        (r"syncline cp a\ b.img:/e\ ", r"syncline cp a\ b.img:/e\ f/"),
        (r"syncline cat a\ b.img:/\$", r"syncline cat a\ b.img:/\$\(x\)/"),
        (r"syncline ls a\ b.img:/none/", r"syncline ls a\ b.img:/none/"),
    ];
    zsh.args(["-f", "-c", include_str!("complete.zsh"), "zsh"]).args(cases.map(|(line, _)| line));
    let ran = zsh.output().unwrap();
    let said = String::from_utf8(ran.stdout).unwrap();
    let expected: String = cases.iter().map(|(_, line)| format!("{line}\n")).collect();
    assert_eq!(said, expected, "{}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn small_images_have_the_blocks_that_help_says() {
    let help = done(&["mkfs", "--help"]);
    assert!(help.contains("[default: 4096, below 512 MiB 1024]"), "{help}");
    let dir = scratch();
    for (size, bytes) in [("511M", 1024), ("512M", 4096)] {
        let image = dir.path().join(size);
        done(&["mkfs", "--size", size, text(&image)]);
        let info: serde_json::Value =
            serde_json::from_str(&done(&["info", "--json", text(&image)])).unwrap();
        assert_eq!(info["info"]["block_size_bytes"], bytes, "{info:#}");
    }
}

#[test]
fn advice_is_given_once() {
    let dir = scratch();
    let gone = dir.path().join("gone.img");
    let file = at(&gone, "/f");
    for words in [
        &["check", text(&gone)][..],
        &["info", text(&gone)],
        &["recover", text(&gone)],
        &["repair", "-y", text(&gone)],
        &["export", text(&gone), "-o", "x.tar"],
        &["ls", &file],
        &["cat", &file],
        &["mount", text(&gone), text(dir.path())],
    ] {
        let ran = run(words);
        assert_ne!(ran.code, 0, "{words:?}");
        let said = ran.err;
        let parts: Vec<&str> = said.trim().split("; ").collect();
        let once: std::collections::BTreeSet<&&str> = parts.iter().collect();
        assert_eq!(parts.len(), once.len(), "{said}");
        assert!(said.matches("syncline recover").count() <= 1, "{said}");
    }
}

#[test]
fn every_command_has_a_page() {
    let dir = scratch();
    done(&["man".as_ref(), "--all".as_ref(), dir.path().as_os_str()]);
    let mut files: Vec<String> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    for name in COMMANDS.map(|name| format!("syncline-{name}.1")) {
        assert!(files.contains(&name), "{name}");
    }
    for file in &files {
        let page = std::fs::read_to_string(dir.path().join(file)).unwrap();
        let plain = page.replace("\\-", "-");
        for named in plain.split("(1)").filter_map(|text| text.split_whitespace().next_back()) {
            let is_there = !named.starts_with("syncline-") || files.contains(&format!("{named}.1"));
            assert!(is_there, "{file} refers to {named}(1), which has no page");
        }
        assert!(!page.contains(".SH EXTRA"), "{file}");
        let joined = page.lines().find(|line| line.contains(".SH") && !line.starts_with(".SH"));
        assert_eq!(joined, None, "{file}");
    }
    let page = done(&["man", "buffer-attach"]).replace("\\-", "-");
    let source = format!("\"syncline {}\"", env!("CARGO_PKG_VERSION"));
    assert!(page.contains(&format!(".TH syncline-buffer-attach 1  {source}")), "{page}");
    assert!(page.contains("syncline buffer attach [OPTIONS] --log <LOG>"), "{page}");
    assert!(page.contains(".SH EXAMPLES\n.nf\n  syncline buffer attach"), "{page}");
    for (file, command) in [("syncline.1", ""), ("syncline-cp.1", "cp")] {
        let page = std::fs::read_to_string(dir.path().join(file)).unwrap();
        assert!(page.contains(".SH NAME") && page.contains("syncline"), "{page}");
        let printed = if command.is_empty() { done(&["man"]) } else { done(&["man", command]) };
        assert_eq!(printed, page);
    }
}

#[test]
fn the_version_is_a_line_and_with_verbose_what_a_bug_report_needs() {
    let version = concat!("syncline ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(done(&["--version"]), version);
    assert_eq!(done(&["-V"]), version);
    let said = done(&["--version", "--verbose"]);
    assert!(said.starts_with(version), "{said}");
    for word in ["commit: ", "target: ", "compiler: rustc ", "host: Linux "] {
        assert!(said.lines().any(|line| line.starts_with(word)), "{word} in {said}");
    }
    assert_eq!(run(&["--verbose"]).code, 2);
    assert_eq!(run(&[] as &[&str]).code, 2);
}
