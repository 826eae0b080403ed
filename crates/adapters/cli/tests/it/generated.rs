//! Completions and man pages fit the program.

use crate::support::{done, run, scratch};

const COMMANDS: [&str; 27] = [
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
    "stat",
    "status",
    "top",
    "umount",
];

#[test]
fn every_shell_completes_every_command() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = done(&["completions", shell]);
        for command in COMMANDS {
            assert!(script.contains(command), "{shell} does not know {command}");
        }
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
    let mut expected: Vec<String> = COMMANDS.map(|name| format!("syncline-{name}.1")).to_vec();
    expected.push("syncline.1".into());
    expected.sort();
    assert_eq!(files, expected);
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
