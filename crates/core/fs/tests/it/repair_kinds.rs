//! Repairs by kind of damage: e2fsck finds nothing afterwards, a second repair changes nothing, and
//! every file that the damage left has its name and its bytes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use syncline_device::{BlockDevice, Kind, MemoryDevice, Origin};
use syncline_fs::repair::Plan;
use syncline_testkit::{ImageSpec, Need, TempImage, debugfs, e2fsck_clean, mkfs, require};

const EXTENTS: &str = "metadata_csum,64bit";
const POINTERS: &str = "^metadata_csum,^64bit,^extent";

/// Damage: features, commands of debugfs, names that are gone afterwards or have other bytes, and
/// names that are new.
type Damage = (&'static str, &'static str, &'static [&'static str], &'static [&'static str]);

const DAMAGES: [Damage; 26] = [
    // Inodes.
    (EXTENTS, "sif /f mode 0\n", &["f"], &[]),
    (EXTENTS, "sif /f size 1\n", &["f"], &[]),
    (EXTENTS, "sif /f faddr 7\n", &[], &[]),
    (EXTENTS, "sif /link size 9999\n", &["link"], &[]),
    (POINTERS, "sif /f flags 0x10000000\n", &["f"], &[]),
    (POINTERS, "sif /f file_acl 99999999\n", &[], &[]),
    (EXTENTS, "ea_set /f user.a b\nsif /f file_acl 5\n", &[], &[]),
    // Maps.
    (POINTERS, "sif /f block[1] 99999999\n", &["f"], &[]),
    (POINTERS, "sif /f block[IND] 99999999\n", &["f"], &[]),
    (EXTENTS, "sif /f block[0] 0\n", &["f"], &[]),
    (EXTENTS, "sif /f block[3] 77\n", &["f"], &[]),
    // Blocks with two owners: the table of inodes, and another file.
    (POINTERS, "sif /d/g block[0] 300\n", &["d/g"], &[]),
    (POINTERS, "sif /d/g block[0] 1\n", &["d/g"], &[]),
    // Directories.
    (
        POINTERS,
        "sif /d block[0] 0\n",
        &["d/g", "d/e/deep"],
        &["lost+found/#15", "lost+found/#14/deep"],
    ),
    (
        EXTENTS,
        "zap_block -f /d 0 -p 0x55 -o 24 -l 8\n",
        &["d/g", "d/e/deep"],
        &["lost+found/#15", "lost+found/#14/deep"],
    ),
    (EXTENTS, "zap_block -f /d 0 -p 0x55 -o 0 -l 12\n", &[], &[]),
    (EXTENTS, "sif /wide flags 0x81000\n", &[], &[]),
    (EXTENTS, "ln /d /again\n", &[], &[]),
    (EXTENTS, "unlink /f\nsif /f links_count 1\n", &["f"], &["lost+found/#12"]),
    (EXTENTS, "clri /d\n", &["d/g", "d/e/deep"], &["lost+found/#15", "lost+found/#14/deep"]),
    (EXTENTS, "unlink /lost+found\nclri <11>\nunlink /f\n", &["f"], &["lost+found/#12"]),
    // The file system's own.
    (EXTENTS, "clri <7>\n", &[], &[]),
    (EXTENTS, "clri <8>\n", &[], &[]),
    (EXTENTS, "set_bg 0 inode_table 1\n", &[], &[]),
    (EXTENTS, "zap_block -p 0 1\n", &[], &[]),
    (EXTENTS, "jo\njw -b 9000 /etc/passwd\njc\n", &[], &[]),
];

/// A tree of files, in inodes that the table above knows.
fn image(features: &str) -> TempImage {
    let image = mkfs(&ImageSpec {
        size_bytes: 12 << 20,
        block_size_bytes: 1024,
        features: features.into(),
        inode_count: Some(512),
        ..ImageSpec::default()
    });
    let file = tempfile::NamedTempFile::new().expect("scratch space");
    let bytes: Vec<u8> = (0..20_000u32).flat_map(u32::to_le_bytes).collect();
    fs::write(file.path(), bytes).expect("scratch space");
    let from = file.path().display();
    let mut tree = format!(
        "write {from} f\nmkdir d\nmkdir d/e\nwrite {from} d/g\nwrite {from} d/e/deep\n\
         symlink link target\nmkdir wide\n"
    );
    for nr in 0..120 {
        tree += &format!("write /dev/null wide/name-{nr}\n");
    }
    let _ = debugfs(image.path(), &tree);
    e2fsck_clean(image.path()).expect("the tree is sound");
    image
}

/// Names and bytes of files and symbolic links.
fn files(image: &Path) -> BTreeMap<String, Vec<u8>> {
    let place = tempfile::tempdir().expect("scratch space");
    let _ = debugfs(image, &format!("rdump / {}\n", place.path().display()));
    let mut found = BTreeMap::new();
    let mut next = vec![place.path().to_owned()];
    while let Some(dir) = next.pop() {
        for entry in fs::read_dir(&dir).expect("debugfs made it").flatten() {
            let path = entry.path();
            let kind = entry.file_type().expect("it is there");
            let name = path.strip_prefix(place.path()).expect("it is below");
            let name = name.display().to_string();
            if kind.is_dir() {
                next.push(path);
            } else if kind.is_symlink() {
                let target = fs::read_link(&path).expect("it is there");
                found.insert(name, target.into_os_string().into_encoded_bytes());
            } else {
                found.insert(name, fs::read(&path).expect("it is there"));
            }
        }
    }
    found
}

fn repaired(image: &TempImage, what: &str) {
    let bytes = image.bytes();
    let dev: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(&bytes));
    let plan = Plan::new(&dev, &mut |_| true).expect("it can be planned");
    assert!(!plan.changes.is_empty(), "{what}: no damage");
    assert!(plan.after.is_clean(), "{what}: left {:?}", plan.after.findings);
    plan.apply(&*dev).expect("memory");
    let again = Plan::new(&dev, &mut |_| true).expect("it can be planned");
    assert!(again.changes.is_empty(), "{what}: a second repair changes something");
    let mut mended = vec![0; bytes.len()];
    dev.read(0, &mut mended, Origin::new(Kind::Metadata, true)).expect("memory");
    fs::write(image.path(), mended).expect("scratch space");
    e2fsck_clean(image.path()).unwrap_or_else(|said| panic!("{what}: {said}"));
}

#[test]
fn each_kind_of_damage_is_mended_and_the_rest_is_kept() {
    if !require("each_kind_of_damage_is_mended_and_the_rest_is_kept", &[Need::E2fsck]) {
        return;
    }
    let sound = [EXTENTS, POINTERS].map(|features| (features, image(features)));
    let trees = sound.each_ref().map(|(_, image)| files(image.path()));
    for (features, commands, gone, new) in DAMAGES {
        let of = usize::from(features != EXTENTS);
        let image = sound[of].1.duplicate();
        let said = debugfs(image.path(), commands);
        let what = format!("{features}: {commands}");
        assert!(image.bytes() != sound[of].1.bytes(), "{what}: {said}");
        repaired(&image, &what);
        let found = files(image.path());
        for (name, bytes) in &trees[of] {
            let is_kept = found.get(name) == Some(bytes);
            assert_eq!(is_kept, !gone.contains(&name.as_str()), "{what}: {name}");
        }
        for name in new {
            assert!(found.contains_key(*name), "{what}: {name} is not in {:?}", found.keys());
        }
    }
}

#[test]
fn names_that_are_there_twice_are_renamed() {
    if !require("names_that_are_there_twice_are_renamed", &[Need::E2fsck]) {
        return;
    }
    let image = image(POINTERS);
    let commands = "write /etc/passwd aaaa\nwrite /etc/hosts aaab\n";
    let _ = debugfs(image.path(), commands);
    let before = files(image.path());
    let mut bytes = image.bytes();
    let at = bytes.windows(4).position(|part| part == b"aaab").expect("the name is in the root");
    bytes[at..at + 4].copy_from_slice(b"aaaa");
    fs::write(image.path(), &bytes).expect("scratch space");
    repaired(&image, "two names");
    let after = files(image.path());
    let mut both = [&after["aaaa"], &after["aa~0"]];
    both.sort();
    let mut want = [&before["aaaa"], &before["aaab"]];
    want.sort();
    assert_eq!(both, want);
}

#[test]
fn findings_that_are_refused_stay() {
    if !require("findings_that_are_refused_stay", &[Need::E2fsck]) {
        return;
    }
    let image = image(EXTENTS);
    let _ = debugfs(image.path(), "sif /f mode 0\nsif /d/g links_count 5\n");
    let dev: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(&image.bytes()));
    let mut asked = Vec::new();
    let plan = Plan::asking(&dev, &mut |_| true, &mut |finding| {
        asked.push(finding.name);
        finding.is_safe()
    });
    let plan = plan.expect("it can be planned");
    let is_mode = |finding: &syncline_fs::Finding| finding.name == "inode-mode-invalid";
    assert!(plan.after.findings.iter().any(is_mode), "a mend that was refused is made");
    let all: usize = asked.iter().filter(|name| **name == "inode-mode-invalid").count();
    assert_eq!(all, 1, "a question is asked once");
}
