//! The check of a device, without a mount: each kind of damage has its name, and e2fsck has the
//! same verdict; what a mount refuses is checked, and what e2fsck calls clean is clean.

use std::collections::BTreeSet;
use std::sync::Arc;

use syncline_device::{BlockDevice, MemoryDevice};
use syncline_fs::{CheckReport, check_device};
use syncline_testkit::{ImageSpec, Need, TempImage, debugfs, e2fsck_clean, mkfs, require};

const MIB: u64 = 1 << 20;
/// No checksums: bytes may be changed, and debugfs need not be asked to.
const PLAIN: &str = "^metadata_csum,^64bit";
/// What most cases damage.
const TREE: &str = "mkdir d\nwrite /dev/null f\nsymlink l target\nmknod p p\n";
/// Inode 17 is the only one in use of its block of the table.
const GARBAGE: &str = "write /dev/null g\nwrite /dev/null h\nsif <18> flags 0x80000\n\
                       sif <19> flags 0x80000\nsif <20> flags 0x80000\n";

fn image(features: &str) -> TempImage {
    let spec = ImageSpec {
        block_size_bytes: 1024,
        features: features.into(),
        inode_count: Some(128),
        ..ImageSpec::with_size(12 * MIB)
    };
    mkfs(&spec)
}

fn check_bytes(bytes: &[u8]) -> CheckReport {
    let dev: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(bytes));
    check_device(&dev, &mut |_| true).expect("the check runs")
}

fn names(report: &CheckReport) -> BTreeSet<&'static str> {
    report.findings.iter().map(|finding| finding.name).collect()
}

/// Offset and new bytes.
type Change<'a> = (usize, &'a [u8]);

fn changed(image: &TempImage, changes: &[Change<'_>]) -> TempImage {
    let copy = image.duplicate();
    let mut bytes = copy.bytes();
    for (at, new) in changes {
        bytes[*at..at + new.len()].copy_from_slice(new);
    }
    std::fs::write(copy.path(), bytes).expect("scratch space");
    copy
}

/// The first number behind `label` in what debugfs says.
fn number(image: &TempImage, command: &str, label: &str) -> usize {
    let said = debugfs(image.path(), command);
    let after = said.split(label).nth(1).unwrap_or_else(|| panic!("{command}: {said}"));
    let digits: String = after.trim_start().chars().take_while(char::is_ascii_hexdigit).collect();
    let radix = if label.ends_with("0x") { 16 } else { 10 };
    usize::from_str_radix(&digits, radix).unwrap_or_else(|_| panic!("{command}: {said}"))
}

#[test]
fn each_kind_has_its_name_and_the_verdict_of_e2fsck() {
    if !require("each_kind_has_its_name_and_the_verdict_of_e2fsck", &[Need::E2fsck]) {
        return;
    }
    let cases: &[(&str, &str, &str)] = &[
        (PLAIN, "feature -ext_attr\nsif /d file_acl 2000\n", "xattr-block-invalid"),
        (PLAIN, "sif /l flags 0x80000\n", "symlink-invalid"),
        (PLAIN, "sif /l size 3\n", "symlink-invalid"),
        (PLAIN, "sif /p flags 0x80000\n", "special-file-invalid"),
        (PLAIN, "sif /f flags 0x10080000\n", "inode-flag-invalid"),
        (PLAIN, "sif /d flags 0x40080000\n", "inode-flag-invalid"),
        (PLAIN, "sif /f flags 0\n", "extent-flag-wrong"),
        (PLAIN, "sif /f links_count 0\n", "deletion-time-missing"),
        (PLAIN, "sif /f dtime 1700000000\n", "deletion-time-of-used-inode"),
        (PLAIN, "sif /f dtime 20\n", "orphan-pending"),
        (PLAIN, "sif <7> block[DIND] 0\n", "resize-inode-invalid"),
        (PLAIN, "sif <8> flags 0x80800\n", "journal-inode-invalid"),
        (PLAIN, "sif <8> size 1048577\n", "journal-inode-invalid"),
        (PLAIN, "sif <9> mode 0100644\n", "reserved-inode-mode"),
        (PLAIN, "sif <1> links_count 1\n", "bad-blocks-inode-invalid"),
        (PLAIN, "feature orphan_present\n", "orphan-present-without-file"),
        ("encrypt,^metadata_csum,^64bit", "sif /d flags 0x80800\n", "encryption-policy-missing"),
        ("quota,^metadata_csum,^64bit", "", "quota-usage"),
        ("quota,^metadata_csum,^64bit", "ssv usr_quota_inum 1\n", "quota-inode-invalid"),
        (PLAIN, "sif /d block[1] 9\n", "extent-header-invalid"),
        (PLAIN, "sif /d block[3] 1\n", "directory-hole"),
        (PLAIN, "sif /d block[4] 0x8001\n", "directory-block-unwritten"),
        (PLAIN, "sif /d block[4] 0\n", "extent-empty"),
        (PLAIN, "sif /d size 3000\n", "inode-size"),
        (PLAIN, GARBAGE, "unused-inode-garbage"),
    ];
    let mut wrong = Vec::new();
    for (features, commands, expected) in cases {
        let image = image(features);
        let said = debugfs(image.path(), &format!("{TREE}{commands}"));
        assert!(!said.contains("sage:") && !said.contains("nvalid"), "{commands}: {said}");
        let found = names(&check_bytes(&image.bytes()));
        if !found.contains(expected) {
            wrong.push(format!("{commands}: no {expected} in {found:?}"));
        }
        if e2fsck_clean(image.path()).is_ok() {
            wrong.push(format!("{commands}: e2fsck does not mind"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn changed_bytes_of_journal_mmp_and_free_inodes_are_found() {
    if !require("changed_bytes_of_journal_mmp_and_free_inodes_are_found", &[Need::E2fsck]) {
        return;
    }
    let plain = image(PLAIN);
    let journal = 1024 * number(&plain, "stat <8>\n", "(0-1023):");
    let mmp_image = image("mmp,^metadata_csum,^64bit");
    let mmp = 1024 * number(&mmp_image, "stats -h\n", "MMP block number:");
    let freed = image("metadata_csum");
    let _ = debugfs(freed.path(), "write /dev/null x\nrm x\n");
    let block = number(&freed, "imap <12>\n", "located at block ");
    let slot = 1024 * block + number(&freed, "imap <12>\n", "offset 0x");
    let cases: &[(&TempImage, &[Change<'_>], &str)] = &[
        (&plain, &[(journal + 0x43, &[2])], "journal-superblock-corrupt"),
        (&plain, &[(journal, &[0; 4])], "journal-superblock-corrupt"),
        (&plain, &[(journal + 0x0e, &[8])], "journal-superblock-corrupt"),
        (&mmp_image, &[(mmp, &[1])], "mmp-block-corrupt"),
        (&freed, &[(slot + 0x20, &[9])], "inode-checksum"),
    ];
    for (image, changes, expected) in cases {
        let changed = changed(image, changes);
        let found = names(&check_bytes(&changed.bytes()));
        assert!(found.contains(expected), "no {expected} in {found:?}");
        assert!(e2fsck_clean(changed.path()).is_err(), "{expected}: e2fsck does not mind");
    }
}

/// Features that a mount refuses, and rules that e2fsck does not have.
#[test]
fn what_e2fsck_calls_clean_is_clean() {
    if !require("what_e2fsck_calls_clean_is_clean", &[Need::E2fsck]) {
        return;
    }
    let cases: &[(&str, &str)] = &[
        (PLAIN, "sif /p flags 0x10\n"),
        ("bigalloc", ""),
        ("bigalloc,^64bit,^metadata_csum", ""),
        ("encrypt", ""),
        ("casefold", ""),
        ("verity", ""),
        ("meta_bg,^resize_inode", ""),
        ("^has_journal,inline_data", ""),
        ("ea_inode,orphan_file", ""),
        ("^metadata_csum,uninit_bg", ""),
        ("^extent,^64bit,^flex_bg,^metadata_csum,^has_journal", ""),
        ("^filetype,^metadata_csum", ""),
    ];
    for (features, commands) in cases {
        let image = image(features);
        let _ = debugfs(image.path(), &format!("{TREE}{commands}"));
        e2fsck_clean(image.path()).unwrap_or_else(|said| panic!("{features}: {said}"));
        let report = check_bytes(&image.bytes());
        assert!(report.is_clean(), "{features}: {:#?}", report.findings);
    }
    // A mount protection block is checked as any other; e2fsck would wait for it.
    let report = check_bytes(&image("mmp").bytes());
    assert!(report.is_clean(), "mmp: {:#?}", report.findings);
}

#[test]
fn what_cannot_be_mounted_is_checked() {
    if !require("what_cannot_be_mounted_is_checked", &[Need::E2fsck]) {
        return;
    }
    let sound = image(PLAIN);
    let bytes = sound.bytes();
    // An inode size of 0: the backup has another one.
    let mut changed = bytes.clone();
    changed[1024 + 0x58..1024 + 0x5a].fill(0);
    let report = check_bytes(&changed);
    let found: Vec<_> = report.findings.iter().map(|finding| finding.name).collect();
    assert_eq!(found, ["superblock-corrupt", "superblock-backup-used"]);
    assert!(!report.is_clean() && report.directories == 2);
    // Neither superblock nor backup.
    changed[1024..2048].fill(0);
    changed[8193 * 1024..8194 * 1024].fill(0);
    assert_eq!(names(&check_bytes(&changed)), BTreeSet::from(["superblock-corrupt"]));
    assert!(!check_bytes(&[0; 100]).is_clean() && !check_bytes(&[]).is_clean());
    // Half of the device is missing: blocks that cannot be read are findings.
    let bytes = image("^flex_bg").bytes();
    let half = check_bytes(&bytes[..bytes.len() / 2]);
    let found = names(&half);
    assert!(found.contains("device-too-small") && found.contains("block-unreadable"), "{found:?}");
    // No root directory, and one bad byte in the index of a directory.
    let _ = debugfs(sound.path(), "clri <2>\n");
    assert!(names(&check_bytes(&sound.bytes())).contains("root-directory-missing"));
}

/// A log that waits is not replayed, which is said.
#[test]
fn a_log_that_waits_is_left_alone() {
    if !require("a_log_that_waits_is_left_alone", &[Need::E2fsck]) {
        return;
    }
    let image = image(PLAIN);
    let _ = debugfs(image.path(), "feature needs_recovery\n");
    let report = check_bytes(&image.bytes());
    assert!(report.is_clean() && report.unreplayed, "{:#?}", report.findings);
    e2fsck_clean(image.path()).unwrap();
    assert!(!check_bytes(&self::image(PLAIN).bytes()).unreplayed);
}
