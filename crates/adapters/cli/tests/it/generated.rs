//! Completions and man pages fit the binary; profiles are listed with their sources.

use crate::support;
use crate::support::{done, run, scratch};

const COMMANDS: [&str; 39] = [
    "bench",
    "buffer",
    "cache",
    "cat",
    "check",
    "compare",
    "completions",
    "cp",
    "ctl",
    "devices",
    "export",
    "flash",
    "flashlite",
    "import",
    "info",
    "latency",
    "lifetime",
    "ls",
    "man",
    "mkdir",
    "mkfs",
    "mount",
    "mv",
    "preload",
    "probe",
    "record",
    "record-read",
    "recover",
    "replay",
    "reproduce",
    "resize",
    "rm",
    "serve",
    "stat",
    "status",
    "sweep",
    "top",
    "trace",
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
fn devices_say_where_their_figures_come_from() {
    let list = done(&["devices", "--long"]);
    assert!(list.contains("nexus7-emmc: ") && list.contains("source: "), "{list}");
    let profile = done(&["devices", "nexus7-emmc"]);
    assert!(profile.contains("[timing]"), "{profile}");
    let dir = scratch();
    let copy = support::file(dir.path(), "copy.toml", &profile);
    let table = done(&[
        "bench".as_ref(),
        "create".as_ref(),
        "--operations=3".as_ref(),
        "--device".as_ref(),
        copy.as_os_str(),
    ]);
    assert!(table.contains("create/4k-fsync"), "{table}");
    let json: serde_json::Value = serde_json::from_str(&done(&["devices", "--json"])).unwrap();
    assert_eq!(json["schema"], "syncline.devices/1");
    assert_eq!(json["devices"][0]["name"], "nexus7-emmc");
}

#[test]
fn devices_are_compared_with_what_was_published() {
    let table = done(&["devices", "sd-2012", "--check"]);
    let row = table.lines().find(|line| line.contains("scattered-write-4k-kb-per-s")).unwrap();
    assert!(row.starts_with("sd-2012 ") && row.contains(" 8.3 "), "{table}");
    assert!(table.contains("not held: "), "{table}");
    let unknown = support::refused(2, &["devices", "sd-2102", "--check"]);
    assert!(unknown.contains("nearest: sd-2012"), "{unknown}");
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
