//! Checks and repairs of images with random damage: a check judges as e2fsck, each repair ends,
//! e2fsck finds nothing where ours does not, what is left e2fsck leaves too, and a second repair
//! changes nothing.
//!
//! `SYNCLINE_REPAIR_SEEDS=FROM..TO` runs other seeds than the first and those below.
//! `SYNCLINE_REPAIR_DUMP=DIR` keeps the damaged images there.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use crate::bed::{Bed, owner};
use syncline_device::{BlockDevice, Kind, MemoryDevice, Origin, SplitMix64};
use syncline_fs::repair::Plan;
use syncline_testkit::{
    ImageSpec, Need, TempImage, debugfs, e2fsck_clean, files_in_time, mkfs, require, scratch_dir,
};

/// A file system to be damaged.
#[derive(Clone, Copy)]
struct Shape {
    features: &'static str,
    size_bytes: u64,
    block_bytes: u32,
    group_blocks: Option<u32>,
    inode_bytes: u32,
}

const fn small(features: &'static str) -> Shape {
    Shape { features, size_bytes: 8 << 20, block_bytes: 1024, group_blocks: None, inode_bytes: 256 }
}

/// One group of 1 KiB blocks.
const SMALL: [Shape; 6] = [
    small("metadata_csum,64bit"),
    small("^metadata_csum,^64bit,^extent,uninit_bg"),
    small("metadata_csum,inline_data,^has_journal"),
    small("^metadata_csum,^uninit_bg,^flex_bg,^resize_inode"),
    small("metadata_csum,bigalloc,64bit"),
    small("^metadata_csum,quota,large_dir,ea_inode"),
];

const fn wide(features: &'static str, block_bytes: u32, inode_bytes: u32) -> Shape {
    let group_blocks = Some(2048);
    Shape { features, size_bytes: 16 << 20, block_bytes, group_blocks, inode_bytes }
}

/// Several groups, with backups, and other sizes of blocks and inodes.
const WIDE: [Shape; 8] = [
    wide("metadata_csum,64bit", 1024, 256),
    wide("metadata_csum,meta_bg,^resize_inode", 1024, 256),
    wide("^metadata_csum,sparse_super2,^resize_inode", 1024, 128),
    wide("metadata_csum,inline_data,ea_inode,quota,project,orphan_file", 2048, 512),
    wide("^metadata_csum,^64bit,^extent,^flex_bg,mmp", 2048, 128),
    wide("metadata_csum,metadata_csum_seed,encrypt,verity,casefold", 4096, 1024),
    wide("^metadata_csum,^64bit,^has_journal,^extent,^sparse_super,^resize_inode", 4096, 128),
    wide("metadata_csum,bigalloc,64bit,inline_data", 4096, 256),
];
/// Commands of debugfs, for the image afterwards.
const MORE: &str = "ea_set /wide/name-7 user.one value\nea_set /big user.two other\n\
                    ln /big /deep/link\nsif /big links_count 2\nmknod pipe p\nmknod disk b 8 1\n\
                    rm /wide/name-9\n";

/// Files of several shapes below a directory.
fn tree(place: &Path) {
    let file = |name: &str, len: usize| {
        fs::write(place.join(name), vec![b'x'; len]).expect("scratch space");
    };
    fs::create_dir_all(place.join("deep/deeper/deepest")).expect("scratch space");
    fs::create_dir(place.join("wide")).expect("scratch space");
    for nr in 0..200 {
        file(&format!("wide/name-{nr}"), nr % 3 * 700);
    }
    file("big", 400 << 10);
    file("deep/small", 40);
    file("deep/deeper/middle", 20 << 10);
    for (name, target) in [("fast", "big".to_owned()), ("deep/slow", "long/".repeat(30))] {
        std::os::unix::fs::symlink(target, place.join(name)).expect("scratch space");
    }
    // Holes make many extents.
    let sparse = fs::File::create(place.join("sparse")).expect("scratch space");
    for nr in 0..40 {
        std::os::unix::fs::FileExt::write_at(&sparse, b"data", (nr * 3) << 10)
            .expect("scratch space");
    }
}

fn image(shape: Shape) -> TempImage {
    let place = tempfile::tempdir().expect("scratch space");
    tree(place.path());
    let image = mkfs(&ImageSpec {
        size_bytes: shape.size_bytes,
        block_size_bytes: shape.block_bytes,
        features: shape.features.into(),
        inode_size_bytes: Some(shape.inode_bytes),
        inode_count: Some(512),
        blocks_per_group: shape.group_blocks.filter(|_| !shape.features.contains("bigalloc")),
        contents: Some(place.path().to_owned()),
        ..ImageSpec::default()
    });
    let _ = debugfs(image.path(), MORE);
    // mke2fs does not count what it copies in the quota.
    let dev: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::load(image.path()).unwrap());
    let plan = Plan::new(&dev, &mut |_| true).expect("the image can be checked");
    plan.apply(&*dev).expect("memory");
    fs::write(image.path(), bytes_of(&*dev, shape.size_bytes as usize)).expect("scratch space");
    e2fsck_clean(image.path()).expect("the tree is sound");
    image
}

/// One change somewhere where something is.
fn damage(bytes: &mut [u8], block_bytes: usize, rng: &mut SplitMix64) {
    let is_empty = |bytes: &[u8], block: usize| {
        let part = &bytes[block * block_bytes..(block + 1) * block_bytes];
        part.iter().all(|byte| *byte == part[0])
    };
    let blocks = bytes.len() / block_bytes;
    let mut pick = |bytes: &[u8]| loop {
        let block = rng.below(blocks as u64) as usize;
        if block > 0 && !is_empty(bytes, block) {
            return (block * block_bytes, rng.below(1 << 32));
        }
    };
    let (block, luck) = pick(bytes);
    let (other, more) = pick(bytes);
    let at = block + (luck >> 8) as usize % block_bytes;
    let word = block + (luck >> 8) as usize % block_bytes / 4 * 4;
    let number = [0, u32::MAX, 1, more as u32 % 8192, more as u32 % 512, 0xf30a][more as usize % 6];
    match luck % 8 {
        0..=2 => bytes[at] ^= 1 << (more % 8),
        3 | 4 => bytes[word..word + 4].copy_from_slice(&number.to_le_bytes()),
        5 => {
            let len = (block_bytes - at % block_bytes).min(1 << (more % 9));
            bytes[at..at + len].fill((more >> 8) as u8 & 0x81);
        }
        6 => bytes.copy_within(other..other + block_bytes, block),
        _ => bytes.copy_within(other..other + 128, word.min(block + block_bytes - 128)),
    }
}

fn bytes_of(dev: &dyn BlockDevice, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    dev.read(0, &mut bytes, Origin::new(Kind::Metadata, true)).expect("memory");
    bytes
}

/// One in so many images is compared with what e2fsck makes of it.
const COMPARED: u64 = 7;

/// Repairs an image by `e2fsck -fy`, and returns its output. On some damage it goes round for ever.
fn mend(image: &Path) -> String {
    e2fsck(image, "-fy")
}

fn e2fsck(image: &Path, how: &str) -> String {
    let ran = Command::new("timeout").args(["60", "e2fsck", how]).arg(image).output();
    String::from_utf8_lossy(&ran.expect("e2fsck runs").stdout).into_owned()
}

/// A file that `e2fsck -fy` keeps, where it ends clean, and that is not in `repaired` with the same
/// bytes first. What may differ:
///
/// - names in lost+found, and below a directory whose blocks another file has, too;
/// - bytes of a file that gets a copy of metadata: they depend on when it is copied;
/// - blocks that are holes to e2fsck, which drops extents out of order: ours keeps those that fit;
/// - bytes that e2fsck has changed, and we have not: it writes into blocks of files when it clears
///   pointers in what it takes for an indirect block.
fn lost(repaired: &Path, damaged: &[u8]) -> Option<String> {
    let stock = TempImage::zeroed(0);
    fs::write(stock.path(), damaged).expect("scratch space");
    let said = mend(stock.path());
    e2fsck_clean(stock.path()).ok()?;
    // "File /wide/name-109 (inode #34, mod time ...", and below it whose blocks it shares.
    let shares = |name: &str, what: &str| {
        let named = format!("/{name} (inode #");
        let mut told = said.split("\nFile ");
        told.any(|told| told.starts_with(&named) && told.contains(what))
    };
    let (own, before) = (files_in_time(repaired)?, std::cell::OnceCell::new());
    let mut kept = files_in_time(stock.path())?.into_iter();
    // It is told of one name of a file only.
    let has_metadata = |its: &[u8]| {
        let named = own.iter().filter(|(_, bytes)| *bytes == its).map(|(name, _)| name);
        named.into_iter().any(|name| shares(name, "<filesystem metadata>"))
    };
    let is_kept = |name: &str, its: &[u8], bytes: &[u8]| {
        let mut blocks = its.chunks(1024).zip(bytes.chunks(1024));
        let in_holes =
            blocks.all(|(own, theirs)| own.starts_with(theirs) || theirs.iter().all(|b| *b == 0));
        its.len() >= bytes.len() && (its.starts_with(bytes) || in_holes)
            || its.len() == bytes.len() && has_metadata(its)
            || before.get_or_init(|| files_in(damaged)).get(name).is_some_and(|it| it == its)
    };
    let is_lost = |(name, bytes): &(String, Vec<u8>)| {
        let is_named = own.get(name).is_some_and(|its| is_kept(name, its, bytes));
        let may_move = name.starts_with("lost+found/")
            || name.match_indices('/').any(|(at, _)| shares(&name[..at], "shared with"));
        !(is_named || may_move && own.values().any(|own| own == bytes))
    };
    kept.find(is_lost).map(|(name, _)| format!("{name} is lost, which e2fsck keeps"))
}

/// True if `e2fsck -fy` makes it clean.
fn stock_mends(damaged: &[u8]) -> bool {
    let stock = TempImage::zeroed(0);
    fs::write(stock.path(), damaged).expect("scratch space");
    mend(stock.path());
    e2fsck_clean(stock.path()).is_ok()
}

/// The files of an image.
fn files_in(bytes: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let image = TempImage::zeroed(0);
    fs::write(image.path(), bytes).expect("scratch space");
    files_in_time(image.path()).unwrap_or_default()
}

/// Seeds of rare damage: a directory whose first extent is far behind the others, a file of two
/// kinds with a wrong size of its extra fields, a directory with two names, numbers of files in
/// the superblock without their features, a wrong number of inodes, fields of version 2 in the
/// journal that are none, a journal and quotas without their features, inline data of the list of
/// bad blocks, an extent beside those of another cluster, a table of a directory that is the
/// superblock, a table of the list of bad blocks that is a file's, a directory without its first
/// block, a feature that e2fsck refuses, a log that begins outside of the journal, an extent node
/// with a wrong depth, inodes that were never used without checksums, a superblock that names
/// another reserved inode as the journal, two extents of one place in a file, an index without
/// names over several blocks, an extent among those of other places, an index in an inode, a
/// journal that ends in a block, a block behind the end of a file with index blocks, inodes
/// without checksums that are not in use and garbage, tables and blocks of the journal behind its
/// size that are metadata or of other files, a symbolic link without a count of blocks, and a
/// number of inodes that no group can have.
const RARE: [u64; 29] = [
    6195, 54_404, 58_359, 503_647, 600_757, 605_359, 609_455, 707_674, 709_954, 731_947, 737_426,
    737_723, 748_715, 750_775, 751_604, 757_782, 760_155, 760_410, 777_590, 786_492, 786_614,
    790_299, 797_307, 793_739, 802_933, 804_487, 813_539, 815_743, 816_572,
];

/// A seed of several groups: the orphan file is no file.
const NO_ORPHAN_FILE: u64 = 751_435;

/// The seeds that are asked for.
fn asked_seeds() -> Option<Vec<u64>> {
    let text = std::env::var("SYNCLINE_REPAIR_SEEDS").ok()?;
    let (from, to) = text.split_once("..").expect("FROM..TO");
    Some((from.parse().expect("a number")..to.parse().expect("a number")).collect())
}

#[test]
fn images_with_random_damage_are_mended_or_reported() {
    if require("images_with_random_damage_are_mended_or_reported", &[Need::E2fsck]) {
        mended_or_reported(&SMALL, &asked_seeds().unwrap_or_else(|| (0..60).chain(RARE).collect()));
    }
}

#[test]
fn random_damage_of_several_groups_is_mended_or_reported() {
    if require("random_damage_of_several_groups_is_mended_or_reported", &[Need::E2fsck]) {
        mended_or_reported(
            &WIDE,
            &asked_seeds().unwrap_or_else(|| (0..32).chain([NO_ORPHAN_FILE]).collect()),
        );
    }
}

#[derive(PartialEq, Eq)]
enum Outcome {
    Clean,
    Left,
    Refused,
}

/// Errors that e2fsck mends without a word, and equal names, which it looks for in one block only.
const UNSAID: [&str; 2] = ["journal-inode-invalid", "entry-duplicate"];
/// With `-n` e2fsck does not look at a log that waits.
const UNSEEN: &str = "the log cannot be replayed";
/// The state after each power cut, and no error for a check.
const USUAL: &str = "Feature orphan_present is set but orphan file is clean.";

/// An error that one of check and `e2fsck -fn` finds in an image that is clean for the other.
fn other_verdict(plan: &Plan, damaged: &[u8]) -> Option<String> {
    let image = TempImage::zeroed(0);
    fs::write(image.path(), damaged).expect("scratch space");
    let errors = plan.before.findings.iter().filter(|it| it.is_error);
    let told = errors.map(|it| (it.name, it.to_string()));
    match e2fsck_clean(image.path()) {
        // It reports some errors and does not count them.
        Ok(()) if e2fsck(image.path(), "-fn").contains("? no") => None,
        Ok(()) => told
            .filter(|(name, text)| !UNSAID.contains(name) && !text.contains(UNSEEN))
            .map(|(name, text)| format!("{name} {text}, where e2fsck finds nothing"))
            .next(),
        Err(said) => {
            let may_be = said.contains("aborted") || said.contains(USUAL);
            (plan.before.is_clean() && !may_be).then(|| format!("clean, where e2fsck finds {said}"))
        }
    }
}

/// Repairs an image, and adds to `wrong` in which way this is less than e2fsck does.
fn repaired(what: &str, bytes: Vec<u8>, compares: bool, wrong: &mut Vec<String>) -> Outcome {
    let dev: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(&bytes));
    let Ok(plan) = Plan::new(&dev, &mut |_| true) else {
        if stock_mends(&bytes) {
            wrong.push(format!("{what}: refused, and e2fsck mends it"));
        }
        return Outcome::Refused;
    };
    wrong.extend(other_verdict(&plan, &bytes).map(|told| format!("{what}: {told}")));
    plan.apply(&*dev).expect("memory");
    let again = Plan::new(&dev, &mut |_| true).expect("it was planned before");
    if !again.changes.is_empty() {
        wrong.push(format!("{what}: a second repair changes something"));
    }
    if !plan.after.is_clean() {
        let errors = plan.after.findings.iter().filter(|finding| finding.is_error);
        let told: Vec<String> =
            errors.take(4).map(|error| format!("{} {error}", error.name)).collect();
        println!("{what}: left: {told:?}");
        if stock_mends(&bytes) {
            wrong.push(format!("{what}: {told:?} left, which e2fsck mends"));
        }
        return Outcome::Left;
    }
    let image = TempImage::zeroed(0);
    fs::write(image.path(), bytes_of(&*dev, bytes.len())).expect("scratch space");
    if compares {
        wrong.extend(lost(image.path(), &bytes).map(|name| format!("{what}: {name}")));
    }
    // With "aborted" it wanted to write, in spite of -n.
    if let Some(said) = e2fsck_clean(image.path()).err().filter(|said| !said.contains("aborted")) {
        let told: Vec<&str> = said.lines().filter(|line| line.contains("? no")).collect();
        wrong.push(format!("{what}: {told:?} {said}"));
    }
    Outcome::Clean
}

fn mended_or_reported(shapes: &[Shape], seeds: &[u64]) {
    let sound: Vec<TempImage> = shapes.iter().copied().map(image).collect();
    let (mut clean, mut left, mut refused) = (0, 0, 0);
    let mut wrong = Vec::new();
    for &seed in seeds {
        let mut rng = SplitMix64::new(seed);
        let nth = (seed % shapes.len() as u64) as usize;
        let mut bytes = sound[nth].bytes();
        let most = if seed % 4 == 3 { 30 } else { 5 };
        for _ in 0..=rng.below(most) {
            damage(&mut bytes, shapes[nth].block_bytes as usize, &mut rng);
        }
        if let Some(dir) = std::env::var_os("SYNCLINE_REPAIR_DUMP") {
            fs::write(Path::new(&dir).join(seed.to_string()), &bytes).expect("room for an image");
        }
        match repaired(&format!("seed {seed}"), bytes, seed % COMPARED == 0, &mut wrong) {
            Outcome::Clean => clean += 1,
            Outcome::Left => left += 1,
            Outcome::Refused => refused += 1,
        }
    }
    println!("{clean} clean, {left} with errors left, {refused} refused");
    assert!(wrong.is_empty(), "{} of them:\n{}", wrong.len(), wrong.join("\n"));
}

/// Fields of the superblock of a journal, and numbers that are wrong in most of them. Unknown
/// features (0x28) end e2fsck, too.
const JOURNAL_FIELDS: [usize; 12] =
    [0x00, 0x04, 0x0c, 0x10, 0x14, 0x18, 0x1c, 0x20, 0x24, 0x28, 0x40, 0x54];
const WRONG_NUMBERS: [u32; 2] = [0, 0x8080_8080];

/// A log waits, and one field of its superblock is wrong: what e2fsck replays or drops, a repair
/// replays or drops, too.
#[test]
fn journals_with_a_wrong_field_are_mended_as_by_e2fsck() {
    if !require("journals_with_a_wrong_field_are_mended_as_by_e2fsck", &[Need::E2fsck]) {
        return;
    }
    let mut wrong = Vec::new();
    for features in ["metadata_csum,64bit", "^metadata_csum,^64bit"] {
        let bed = Bed::new(
            &ImageSpec {
                block_size_bytes: 1024,
                features: features.into(),
                ..ImageSpec::default()
            },
            0,
        );
        let volume = bed.mount("sync=ordered");
        let root = volume.iget(2).expect("the root");
        for nr in 0..20 {
            volume.mkdir(&root, format!("dir-{nr}").as_bytes(), &owner()).expect("room");
        }
        volume.syncfs().expect("memory");
        let waiting = bytes_of(&*bed.dev, bed.image.bytes().len());
        drop(volume);
        let magic = [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 4];
        let is_super = |block: &[u8]| block.starts_with(&magic);
        let at = 1024 * waiting.chunks(1024).position(is_super).expect("a journal");
        for field in JOURNAL_FIELDS {
            for number in WRONG_NUMBERS {
                let mut bytes = waiting.clone();
                bytes[at + field..at + field + 4].copy_from_slice(&number.to_be_bytes());
                let what = format!("{features}, {field:#x} is {number:#x}");
                let outcome = repaired(&what, bytes, true, &mut wrong);
                let may_stay = field == 0x28 && number > 0;
                assert!(may_stay || outcome == Outcome::Clean, "{what}");
            }
        }
    }
    assert!(wrong.is_empty(), "{} of them:\n{}", wrong.len(), wrong.join("\n"));
}

/// An orphan file that is none, or no more.
#[test]
fn orphan_files_of_every_damage_are_mended() {
    if !require("orphan_files_of_every_damage_are_mended", &[Need::E2fsck]) {
        return;
    }
    let features = "metadata_csum,64bit,orphan_file".into();
    let spec = ImageSpec { block_size_bytes: 1024, features, ..ImageSpec::default() };
    let (sound, mut wrong) = (mkfs(&spec), Vec::new());
    let dir = tempfile::tempdir_in(scratch_dir()).expect("scratch space");
    let [own, whole] = ["own", "whole"].map(|name| dir.path().join(name));
    fs::write(&own, [7; 5000]).expect("scratch space");
    fs::write(&whole, [7; 4096]).expect("scratch space");
    let said = debugfs(sound.path(), "stats\n");
    let ino = said.lines().find_map(|line| line.strip_prefix("Orphan file inode:"));
    let file = format!("<{}>", ino.expect("an orphan file").trim());
    let commands = [
        format!("sif {file} mode 0\n"),
        format!("sif {file} mode 0120777\n"),
        format!("sif {file} links_count 0\n"),
        format!("sif {file} links_count 2\n"),
        format!("sif {file} size 6220\n"),
        format!("sif {file} size 0\n"),
        format!("sif {file} block[0] 0\n"),
        format!("sif {file} block[5] 99999999\n"),
        format!("clri {file}\n"),
        format!("ln {file} /named\n"),
        "ssv orphan_file_inum 0\n".to_owned(),
        "ssv orphan_file_inum 2\n".to_owned(),
        "ssv orphan_file_inum 8\n".to_owned(),
        "ssv orphan_file_inum 500\n".to_owned(),
        "ssv orphan_file_inum 9999999\n".to_owned(),
        format!("write {} /own\nssv orphan_file_inum 13\n", own.display()),
        format!("write {} /own\nssv orphan_file_inum 13\n", whole.display()),
        "feature orphan_present\n".to_owned(),
        "feature ^orphan_file\n".to_owned(),
        "feature ^has_journal\n".to_owned(),
    ];
    for command in commands {
        let image = sound.duplicate();
        let _ = debugfs(image.path(), &command);
        let outcome = repaired(&command, image.bytes(), true, &mut wrong);
        assert!(outcome == Outcome::Clean, "{command}");
    }
    assert!(wrong.is_empty(), "{} of them:\n{}", wrong.len(), wrong.join("\n"));
}
