//! Requests of a file that tar unpacks, and who needs each.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, fchown};
use std::time::{Duration, Instant, SystemTime};

use syncline_testkit::{Need, TIMEOUT, require};

use crate::image;
use crate::mounted::Mounted;

const FILES: u64 = 200;

/// Kind, requests a file, and who needs them.
const ROWS: [(&str, u64, &str); 7] = [
    ("lookup", 1, "Linux, which looks a name up before it makes the file"),
    (
        "getattr",
        1,
        "Linux: a new name makes the directory's attributes stale, and permissions need them",
    ),
    ("create", 1, "tar: openat(2)"),
    ("write", 1, "tar: one for each write(2), since a new file bypasses the kernel's cache"),
    ("setattr", 3, "tar: utimensat(2), fchown(2), fchmod(2)"),
    ("getxattr", 1, "Linux: fchown(2) asks for `security.capability`"),
    ("release", 1, "Linux; nobody waits for it"),
];

fn kinds(mounted: &Mounted) -> BTreeMap<String, u64> {
    let kinds = mounted.status()["requests"]["kinds"].clone();
    serde_json::from_value(kinds).unwrap()
}

/// As GNU tar of root does it.
fn unpack(mounted: &Mounted) {
    for nr in 0..FILES {
        let path = mounted.at(format!("dir/file{nr}"));
        let mut file = OpenOptions::new().write(true).create_new(true).open(path).unwrap();
        file.write_all(&[1; 3000]).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        fchown(&file, Some(1), Some(1)).unwrap();
        file.set_permissions(Permissions::from_mode(0o640)).unwrap();
    }
}

#[test]
fn a_file_of_a_tar_is_as_many_requests_as_the_manual_says() {
    let test = "a_file_of_a_tar_is_as_many_requests_as_the_manual_says";
    if !require(test, &[Need::Root, Need::Fuse, Need::E2fsck]) {
        return;
    }
    let mut m = Mounted::new(image(), "");
    fs::create_dir(m.at("dir")).unwrap();
    let before = kinds(&m);
    unpack(&m);
    let began = Instant::now();
    while kinds(&m)["release"] < FILES && began.elapsed() < TIMEOUT {
        std::thread::sleep(Duration::from_millis(5));
    }
    let a_file = |(kind, now): (String, u64)| {
        let count = now - before.get(&kind).copied().unwrap_or_default();
        // Those of the status itself, and of the first file, are few.
        (kind, (count + FILES / 2) / FILES)
    };
    let counted = kinds(&m).into_iter().map(a_file).filter(|(_, count)| *count > 0);
    let expected = ROWS.map(|(kind, count, _)| (kind.to_owned(), count));
    assert_eq!(counted.collect::<BTreeMap<_, _>>(), BTreeMap::from(expected));
    m.unmount_clean();
    manual_shows_the_rows();
}

/// With `SYNCLINE_WRITE_DOCS=1` they are written instead.
fn manual_shows_the_rows() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/MOUNTING.md");
    let mut text = fs::read_to_string(path).unwrap();
    let begin = "<!-- requests -->\n";
    let from = text.find(begin).expect("MOUNTING.md marks the table") + begin.len();
    let to = from + text[from..].find("<!-- end -->").expect("the marked table ends");
    let row = |(kind, count, who): &(&str, u64, &str)| {
        format!("| {} | {count} | {who} |\n", kind.to_uppercase())
    };
    let rows: String = ROWS.iter().map(row).collect();
    let table = format!("| request | a file | needed by |\n| --- | --- | --- |\n{rows}");
    if std::env::var_os("SYNCLINE_WRITE_DOCS").is_some() {
        text.replace_range(from..to, &table);
        fs::write(path, text).unwrap();
    } else {
        assert_eq!(&text[from..to], table, "run this test with SYNCLINE_WRITE_DOCS=1");
    }
}
