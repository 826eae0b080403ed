//! Completions and man pages fit the program; profiles are listed with their sources.

use crate::support;
use crate::support::{done, lab, scratch};

const COMMANDS: [&str; 15] = [
    "advise",
    "bench",
    "cache",
    "compare",
    "completions",
    "devices",
    "flash",
    "latency",
    "lifetime",
    "man",
    "probe",
    "replay",
    "reproduce",
    "sweep",
    "trace",
];

#[test]
fn every_command_has_a_page_and_is_completed() {
    let said = |arguments: &[&str]| {
        let output = lab().args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let (bash, dir) = (said(&["completions", "bash"]), scratch());
    said(&["man", "--all", dir.path().to_str().unwrap()]);
    assert!(bash.contains("complete -- "), "{bash}");
    let completed = said(&["complete", "--", ""]);
    for command in COMMANDS {
        assert!(completed.lines().any(|known| known == command), "{command}");
        let page = std::fs::read_to_string(dir.path().join(format!("syncline-lab-{command}.1")));
        assert_eq!(page.unwrap(), said(&["man", command]));
    }
    // And one for each command below these.
    let files = std::fs::read_dir(dir.path()).unwrap();
    let files: Vec<String> =
        files.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let has = |name: &str| files.contains(&format!("{name}.1"));
    assert!(has("syncline-lab-trace-stat") && !has("syncline-lab-help"), "{files:?}");
    for file in &files {
        let page = std::fs::read_to_string(dir.path().join(file)).unwrap().replace("\\-", "-");
        let named = page.split("(1)").filter_map(|text| text.split_whitespace().next_back());
        let mut named = named.filter(|word| word.starts_with("syncline-lab"));
        assert!(named.all(has), "{file} refers to a page that is not there: {page}");
        // Those of a group are on the pages of its commands.
        let (_, examples) = page.split_once(".SH EXAMPLES\n.nf\n  syncline-lab ").unzip();
        let is_group = page.contains(".SH SUBCOMMANDS");
        assert!(is_group != examples.is_some(), "{file}: {page}");
        let (rest, _) = page.split_once(".SH EXAMPLES").unwrap_or((&page, ""));
        assert!(!rest.contains("Example") && !page.contains(".SH EXTRA"), "{file}: {page}");
    }
    let version = concat!("syncline-lab ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(said(&["--version"]), version);
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
    assert_eq!(json["devices"][0]["name"], "ufs-4");
}

#[test]
fn devices_are_compared_with_what_was_published() {
    let table = done(&["devices", "sd-2012", "--check"]);
    let row = table.lines().find(|line| line.contains("scattered-write-4k-kb-per-s")).unwrap();
    assert!(row.starts_with("sd-2012 ") && row.contains(" 8.3 "), "{table}");
    // Each figure in the host where it was measured.
    assert_eq!(table.lines().filter(|line| line.starts_with("sd-2012:host=reader ")).count(), 4);
    let reader = done(&["devices", "sd-2012:host=reader", "--check"]);
    assert_eq!(reader.lines().filter(|line| line.starts_with("sd-2012:host=reader ")).count(), 4);
    let one = done(&["devices", "sd-2012:log_blocks=1", "--check"]);
    assert!(one.contains("sd-2012:log_blocks=1 "), "{one}");
    let long = done(&["devices", "--long"]);
    assert!(long.contains("4; published figures allow 1 to 8"), "{long}");
    assert!(done(&["devices", "ssd-850pro", "--check"]).contains("not held: "));
    let unknown = support::refused(2, &["devices", "sd-2102", "--check"]);
    assert!(unknown.contains("nearest: sd-2012"), "{unknown}");
    let far = support::refused(2, &["devices", "foo"]);
    assert!(!far.contains("nearest") && far.matches("syncline-lab devices").count() == 1, "{far}");
}

#[test]
fn columns_are_explained_in_help_and_pages() {
    let dir = scratch();
    let path = dir.path().join("report.html");
    let words = ["bench", "create", "--operations", "5", "--size", "64", "--html"];
    let table = done(&[&words[..], &[path.to_str().unwrap()]].concat());
    let help = done(&["bench", "--help"]);
    let page = std::fs::read_to_string(path).unwrap();
    for (column, text) in [
        ("req/op", "write requests"),
        ("KiB/op", "KiB written"),
        ("flush/op", "flushes"),
        ("pages/op", "flash pages programmed"),
        ("seq %", "runs of adjacent requests"),
        ("WAF", "bytes programmed per byte written"),
    ] {
        assert!(table.contains(column), "{column}: {table}");
        let plain = |text: &str| text.split_whitespace().collect::<Vec<&str>>().join(" ");
        assert!(plain(&help).contains(text), "{column}: {help}");
        assert!(plain(&page).contains(text), "{column} in the page");
    }
}

#[test]
fn values_are_completed_and_workloads_listed() {
    for (words, expected) in [
        (&["bench", "sqlite", "--device", "sd-2"][..], "sd-2012\n"),
        (&["bench", "sqlite", "--sync", "ordered,e"], "ordered,eager\n"),
        (&["bench", "sqlite", "--policy", "lru-"], "lru-wsr\n"),
        (&["bench", "sqlite", "--journal-mode=delete,w"], "--journal-mode=delete,wal\n"),
        (&["bench", "several", "sq"], "sqlite\nsqlite/delete\nsqlite/insert\nsqlite/update\n"),
        (&["bench", "fileio", "random-r"], "random-read\n"),
        (&["reproduce", "eager-sync/figure-3.2"], "eager-sync/figure-3.2\n"),
    ] {
        let ran = lab().args(["complete", "--"]).args(words).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&ran.stdout), expected, "{words:?}");
    }
    let list = done(&["bench", "--list"]);
    assert!(list.contains("sqlite/insert ") && list.lines().count() == 15, "{list}");
    assert_eq!(support::run(&["bench", "--list", "sqlite"]).code, 2);
}
