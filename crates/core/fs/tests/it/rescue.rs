//! Reading past damage: every structure that has a backup is replaced by it, other damage costs the
//! files that it hits and nothing else, deleted files come back, and the device gets no write.

use std::collections::BTreeMap;
use std::sync::Arc;

use syncline_device::{
    BlockDevice, Clock, DeviceError, Geometry, MemoryDevice, Op, Request, SplitMix64, VirtualClock,
};
use syncline_fs::{Create, FileKind, FsError, InodeRef, MountOptions, SetAttr, Volume};
use syncline_testkit::{ImageSpec, KernelMount, Need, TempImage, debugfs, mkfs, require};

use crate::bed::spec;

const HOW: Create = Create { mode: 0o644, uid: 0, gid: 0 };
const FEATURES: [&str; 3] = [
    "metadata_csum,64bit",
    "^metadata_csum,^64bit,^flex_bg",
    "^metadata_csum,uninit_bg,^extent,^64bit",
];

/// Paths and contents; a file that cannot be read has its error.
type Tree = BTreeMap<String, Result<Vec<u8>, FsError>>;

fn clock() -> Arc<dyn Clock> {
    Arc::new(VirtualClock::default())
}

fn mount(bytes: &[u8], options: &str) -> Result<Volume, FsError> {
    let dev = MemoryDevice::with_geometry(MemoryDevice::from_bytes(bytes), |g| g.read_only = true);
    Volume::mount(Arc::new(dev), clock(), MountOptions::parse(options)?)
}

fn contents(volume: &Volume, file: &InodeRef) -> Result<Vec<u8>, FsError> {
    let size = volume.getattr(file).size;
    if size > 2 << 20 {
        return Err(FsError::TooBig);
    }
    let mut bytes = vec![0; size as usize];
    let len = volume.read(file, 0, &mut bytes)?;
    bytes.truncate(len);
    Ok(bytes)
}

fn tree(volume: &Volume) -> Tree {
    let mut found = Tree::new();
    let mut left = vec![(volume.root().unwrap().ino, String::new())];
    while let Some((ino, path)) = left.pop() {
        let mut names = Vec::new();
        let Ok(dir) = volume.iget(ino) else { continue };
        let read = volume.readdir(&dir, 0, &mut |entry| {
            names.push((String::from_utf8_lossy(entry.name).into_owned(), entry.ino, entry.kind));
            true
        });
        read.unwrap();
        for (name, ino, kind) in names.into_iter().filter(|(name, ..)| name != "." && name != "..")
        {
            let path = format!("{path}/{name}");
            if kind == FileKind::Directory {
                left.push((ino, path));
            } else {
                let read = volume.iget(ino).and_then(|file| contents(volume, &file));
                found.insert(path, read);
            }
        }
    }
    found
}

fn put(volume: &Volume, dir: &InodeRef, name: &str, bytes: &[u8]) -> InodeRef {
    let file = volume.create(dir, name.as_bytes(), &HOW).unwrap();
    assert_eq!(volume.write(&file, 0, bytes).unwrap(), bytes.len());
    file
}

/// An image with small and large files, a large directory and a file with nodes in its map.
fn filled(features: &str) -> TempImage {
    let image = mkfs(&ImageSpec { features: features.into(), ..spec(1024) });
    let dev = Arc::new(MemoryDevice::load(image.path()).unwrap());
    let volume = Volume::mount(dev.clone(), clock(), MountOptions::parse("").unwrap()).unwrap();
    let mut rng = SplitMix64::new(7);
    let mut random = |len: usize| (0..len).map(|_| rng.next_u64() as u8).collect::<Vec<u8>>();
    let root = volume.root().unwrap();
    put(&volume, &root, "large", &random(300_000));
    let many = volume.mkdir(&root, b"many", &HOW).unwrap();
    for nth in 0..400 {
        put(&volume, &many, &format!("file-{nth:04}"), &random(100));
    }
    let deep = volume.mkdir(&volume.mkdir(&root, b"d", &HOW).unwrap(), b"e", &HOW).unwrap();
    put(&volume, &deep, "small", b"small");
    let pieces = put(&volume, &root, "pieces", b"");
    for nth in 0..300u64 {
        volume.write(&pieces, nth * 4096, &random(1024)).unwrap();
    }
    drop((root, many, deep, pieces));
    volume.unmount().unwrap();
    dev.to_file(image.path()).unwrap();
    image
}

/// Where debugfs says that something is: the number behind `key`.
fn number(said: &str, key: &str) -> usize {
    let rest = said.split(key).nth(1).unwrap_or_else(|| panic!("no {key} in {said}"));
    let digits: String =
        rest.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

fn wipe(bytes: &mut [u8], start: usize, len: usize) {
    bytes[start..start + len].iter_mut().for_each(|byte| *byte ^= 0xa5);
}

/// Mounts with `rescue`, which must find this tree but for `lost` files, and say so.
fn finds(bytes: &[u8], sound: &Tree, lost: usize, what: &str) {
    let volume = mount(bytes, "rescue").unwrap_or_else(|err| panic!("{what}: {err}"));
    let found = tree(&volume);
    let same = sound.iter().filter(|(path, bytes)| found.get(*path) == Some(*bytes)).count();
    assert!(same + lost >= sound.len(), "{what}: {same} of {} files", sound.len());
    let said = !volume.take_missing().is_empty() || found.values().any(Result::is_err);
    assert!(said || what.ends_with("index and checksum"), "{what}: nothing is said");
    assert!(volume.take_missing().is_empty(), "{what}: said twice");
    for (path, bytes) in found {
        assert!(bytes.is_err() || sound.contains_key(&path), "{what}: {path} is made up");
    }
    let ordinary = mount(bytes, "ro")
        .map(|volume| tree_or_fail(&volume).map(|found| found.values().all(Result::is_ok)));
    assert!(!matches!(ordinary, Ok(Ok(true))), "{what}: no damage");
}

/// As [`tree`], for a volume that may refuse a directory.
fn tree_or_fail(volume: &Volume) -> Result<Tree, FsError> {
    let mut left = vec![volume.root()?.ino];
    while let Some(ino) = left.pop() {
        let dir = volume.iget(ino)?;
        volume.readdir(&dir, 0, &mut |entry| {
            if entry.kind == FileKind::Directory && entry.name != b"." && entry.name != b".." {
                left.push(entry.ino);
            }
            true
        })?;
    }
    Ok(tree(volume))
}

#[test]
fn structures_with_a_backup_cost_nothing() {
    if !require("structures_with_a_backup_cost_nothing", &[Need::E2fsck]) {
        return;
    }
    for features in FEATURES {
        let image = filled(features);
        let bytes = image.bytes();
        let sound = tree(&mount(&bytes, "ro").unwrap());
        assert_eq!(sound.len(), 403, "{features}");
        let whole = mount(&bytes, "rescue").unwrap();
        assert_eq!((tree(&whole), whole.take_missing()), (sound.clone(), vec![]), "{features}");
        let damage = |what: &str, lost: usize, places: &[(usize, usize)]| {
            let mut bytes = bytes.clone();
            for (start, len) in places {
                wipe(&mut bytes, *start, *len);
            }
            finds(&bytes, &sound, lost, &format!("{features}: {what}"));
        };
        let backup = 8193 * 1024;
        damage("superblock", 0, &[(1024, 1024)]);
        damage("superblock and descriptors", 0, &[(1024, 3072)]);
        damage("both descriptors", 0, &[(2048, 1024), (backup + 1024, 1024)]);
        damage(
            "every descriptor",
            0,
            &[(2048, 1024), (backup + 1024, 1024), (3 * 8192 * 1024 + 2048, 1024)],
        );
        let many = debugfs(image.path(), "blocks /many\n");
        let first = number(&many, "blocks /many");
        damage("index and checksum", 0, &[(first * 1024 + 24, 8), (first * 1024 + 1020, 4)]);
        let blocks = many.split_whitespace();
        let name = blocks
            .filter_map(|block| block.parse::<usize>().ok())
            .find_map(|block| {
                let part = &bytes[block * 1024..(block + 1) * 1024];
                let at = part.windows(9).position(|name| name == b"file-0200")?;
                Some(block * 1024 + at)
            })
            .expect("the name is in a block of its directory");
        damage("an entry", 2, &[(name - 4, 2)]);
        let ino = number(&debugfs(image.path(), "stat /large\n"), "Inode:");
        let place = debugfs(image.path(), &format!("imap <{ino}>\n"));
        let slot = number(&place, "located at block") * 1024;
        let offset = usize::from_str_radix(
            place.split("offset 0x").nth(1).unwrap().split_whitespace().next().unwrap(),
            16,
        )
        .unwrap();
        damage("an inode", 1, &[(slot + offset, 64)]);
    }
}

/// A device with blocks of 4 KiB that cannot be read.
struct Worn {
    below: MemoryDevice,
    bad: Vec<u64>,
}

impl BlockDevice for Worn {
    fn geometry(&self) -> Geometry {
        Geometry { read_only: true, ..self.below.geometry() }
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        for request in batch.iter() {
            let Op::Read { into } = &request.op else { return Err(DeviceError::ReadOnly) };
            let at = request.offset_bytes;
            let len_bytes: u64 = into.iter().map(|part| part.len() as u64).sum();
            if self.bad.iter().any(|nr| at < (nr + 1) << 12 && nr << 12 < at + len_bytes) {
                let reason = "medium error".into();
                return Err(DeviceError::Io {
                    op: "read",
                    offset_bytes: at,
                    len_bytes,
                    reason,
                    errno: 5,
                });
            }
        }
        self.below.submit(batch)
    }
}

#[test]
fn sectors_that_cannot_be_read_cost_what_is_in_them() {
    if !require("sectors_that_cannot_be_read_cost_what_is_in_them", &[Need::E2fsck]) {
        return;
    }
    let image = filled(FEATURES[0]);
    let sound = tree(&mount(&image.bytes(), "ro").unwrap());
    let part = |commands: &str, key: &str| number(&debugfs(image.path(), commands), key) as u64 / 4;
    let large = part("blocks /large\n", "blocks /large") + 3;
    let many = part("blocks /many\n", "blocks /many");
    // Superblock and descriptors, the first inodes, contents, a directory.
    for (bad, lost) in [(vec![0], 0), (vec![large], 1), (vec![0, large], 1), (vec![many], 200)] {
        let dev = Worn { below: MemoryDevice::load(image.path()).unwrap(), bad: bad.clone() };
        let options = MountOptions::parse("rescue").unwrap();
        let volume = Volume::mount(Arc::new(dev), clock(), options).unwrap();
        let found = tree(&volume);
        let same = sound.iter().filter(|(path, bytes)| found.get(*path) == Some(*bytes)).count();
        assert!(same + lost >= sound.len(), "{bad:?}: {same} of {}", sound.len());
        assert!(same < sound.len() || bad == [0], "{bad:?}: no damage");
        let said = !volume.take_missing().is_empty() || found.values().any(Result::is_err);
        assert!(said, "{bad:?}: nothing is said");
    }
}

#[test]
fn a_cut_image_has_its_front() {
    if !require("a_cut_image_has_its_front", &[Need::E2fsck]) {
        return;
    }
    let image = filled(FEATURES[0]);
    let sound = tree(&mount(&image.bytes(), "ro").unwrap());
    let bytes = image.bytes();
    let cut = &bytes[..bytes.len() / 2];
    assert!(mount(cut, "ro").is_err());
    let volume = mount(cut, "rescue").unwrap();
    assert_eq!(volume.take_missing().len(), 1);
    let found = tree(&volume);
    assert_eq!(found.len(), sound.len());
    assert!(found.iter().all(|(path, bytes)| bytes.is_err() || bytes == &sound[path]));
}

#[test]
fn files_without_a_root_have_their_numbers() {
    if !require("files_without_a_root_have_their_numbers", &[Need::E2fsck]) {
        return;
    }
    for features in FEATURES {
        let image = filled(features);
        let sound = tree(&mount(&image.bytes(), "ro").unwrap());
        let many = number(&debugfs(image.path(), "stat /many\n"), "Inode:");
        let _ = debugfs(image.path(), "clri <2>\n");
        let volume = mount(&image.bytes(), "rescue").unwrap();
        let found = tree(&volume);
        let path = format!("/.rescue/lost-#{many}/file-0123");
        assert_eq!(
            found.get(&path),
            sound.get("/many/file-0123"),
            "{features}: {:?}",
            found.keys()
        );
        assert_eq!(found.len(), sound.len(), "{features}");
        assert!(volume.take_missing().iter().any(|note| note == "the root directory"));
    }
}

#[test]
fn a_volume_without_a_journal_is_read_without_the_list() {
    if !require("a_volume_without_a_journal_is_read_without_the_list", &[Need::E2fsck]) {
        return;
    }
    let image = mkfs(&ImageSpec { features: "^has_journal".into(), ..spec(1024) });
    let _ = debugfs(image.path(), "write /etc/hostname f\n");
    let volume = mount(&image.bytes(), "undelete").unwrap();
    assert!(tree(&volume)["/f"].is_ok());
    assert!(volume.take_missing()[0].starts_with("the list of what has no name"));
}

/// Deletes files by `delete`, and finds them again.
fn undeletes(image: &TempImage, files: &[&str], delete: impl FnOnce(&TempImage), what: &str) {
    let sound = tree(&mount(&image.bytes(), "ro").unwrap());
    delete(image);
    let bytes = image.bytes();
    let volume = mount(&bytes, "undelete").unwrap_or_else(|err| panic!("{what}: {err}"));
    let found = tree(&volume);
    let back: Vec<_> =
        found.iter().filter(|(path, _)| path.starts_with("/.rescue/deleted-#")).collect();
    for file in files {
        assert!(!found.contains_key(*file), "{what}: {file} is not deleted");
        let same = back.iter().any(|(_, bytes)| Some(*bytes) == sound.get(*file));
        assert!(same, "{what}: no {file} in {:?}", back.iter().map(|(path, _)| path));
    }
    // A name comes back if its directory block is in the journal.
    assert!(back.iter().any(|(path, _)| path.ends_with("-large")), "{what}");
    for (path, bytes) in &sound {
        let is_deleted = files.contains(&path.as_str());
        assert!(is_deleted || found.get(path) == Some(bytes), "{what}: {path}");
    }
}

#[test]
fn deleted_files_come_back() {
    if !require("deleted_files_come_back", &[Need::E2fsck]) {
        return;
    }
    let files = ["/large", "/pieces", "/many/file-0007", "/d/e/small"];
    for features in FEATURES {
        for options in ["sync=eager", "sync=ordered"] {
            let image = filled(features);
            let delete = |image: &TempImage| {
                let dev = Arc::new(MemoryDevice::load(image.path()).unwrap());
                let options = MountOptions::parse(options).unwrap();
                let volume = Volume::mount(dev.clone(), clock(), options).unwrap();
                // The journal has an inode only if it was changed since the mount.
                let touch = SetAttr { mode: Some(0o600), ..SetAttr::default() };
                for file in files {
                    volume.setattr(&volume.resolve(file.as_bytes()).unwrap(), &touch).unwrap();
                    let (dir, _) = volume.resolve_parent(file.as_bytes()).unwrap();
                    let other = format!("beside-{}", file.replace('/', "-"));
                    put(&volume, &dir, &other, b"");
                }
                volume.syncfs().unwrap();
                for file in files {
                    let (dir, name) = volume.resolve_parent(file.as_bytes()).unwrap();
                    volume.unlink(&dir, name).unwrap();
                }
                volume.unmount().unwrap();
                dev.to_file(image.path()).unwrap();
            };
            undeletes(&image, &files, delete, &format!("{features}, {options}"));
        }
    }
}

#[test]
fn a_file_whose_inode_is_lost_comes_back_by_its_extents() {
    if !require("a_file_whose_inode_is_lost_comes_back_by_its_extents", &[Need::E2fsck]) {
        return;
    }
    for features in &FEATURES[..2] {
        let image = filled(features);
        let sound = tree(&mount(&image.bytes(), "ro").unwrap());
        let _ = debugfs(image.path(), "clri /pieces\n");
        let volume = mount(&image.bytes(), "undelete").unwrap();
        let found = tree(&volume);
        let pieces: Vec<_> =
            found.iter().filter(|(path, _)| path.starts_with("/.rescue/extents-#")).collect();
        let mut want = sound["/pieces"].clone().unwrap();
        if features.contains("^metadata_csum") {
            // Each leaf of the tree is a file.
            let mut joined = vec![0; want.len()];
            for (_, bytes) in &pieces {
                let bytes = bytes.as_ref().unwrap();
                joined.iter_mut().zip(bytes).for_each(|(to, from)| *to |= from);
            }
            assert!(pieces.len() > 1 && joined == want, "{features}: {} pieces", pieces.len());
        } else {
            assert_eq!(pieces.len(), 1, "{features}: the nodes have one seed");
            want.resize(want.len().next_multiple_of(1024), 0);
            assert!(*pieces[0].1.as_ref().unwrap() == want, "{features}");
        }
        for (path, bytes) in sound.iter().filter(|(path, _)| *path != "/pieces") {
            assert_eq!(found.get(path), Some(bytes), "{features}: {path}");
        }
        // A sound volume has no such files.
        let names = tree(&mount(&filled(features).bytes(), "undelete").unwrap());
        assert!(names.keys().all(|path| !path.contains("extents-#")), "{features}");
    }
}

#[test]
fn files_that_the_kernel_deleted_come_back() {
    if !require("files_that_the_kernel_deleted_come_back", &[Need::E2fsck, Need::Loop]) {
        return;
    }
    let files = ["/large", "/many/file-0007"];
    let image = filled(FEATURES[0]);
    let delete = |image: &TempImage| {
        // The journal has an inode only if it was changed.
        let kernel = KernelMount::new(image.path(), "").unwrap();
        let at = |file: &str| kernel.path().join(&file[1..]);
        for file in files {
            let open = std::fs::File::open(at(file)).unwrap();
            open.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
            open.sync_all().unwrap();
        }
        files.iter().for_each(|file| std::fs::remove_file(at(file)).unwrap());
        kernel.unmount().unwrap();
    };
    undeletes(&image, &files, delete, "by the kernel");
}

#[test]
fn random_damage_ends_in_a_tree_or_an_error() {
    if !require("random_damage_ends_in_a_tree_or_an_error", &[Need::E2fsck]) {
        return;
    }
    let seeds = std::env::var("SYNCLINE_RESCUE_SEEDS").map_or(40, |n| n.parse().expect("a number"));
    let images = FEATURES.map(filled);
    let (mut all, mut files) = (0, 0);
    for seed in 0..seeds {
        let mut rng = SplitMix64::new(seed);
        let mut bytes = images[(seed % 3) as usize].bytes();
        for _ in 0..=rng.below(6) {
            let start = rng.below(700 << 10) as usize;
            let len = 1 + rng.below(3000) as usize;
            bytes[start..start + len].iter_mut().for_each(|byte| *byte = rng.next_u64() as u8);
        }
        let options = if seed % 2 == 0 { "rescue" } else { "undelete" };
        if let Ok(volume) = mount(&bytes, options) {
            all += 403;
            files += tree(&volume).values().filter(|bytes| bytes.is_ok()).count().min(403);
        }
    }
    println!("{files} of {all} files were read");
    assert!(files * 10 > all * 5, "{files} of {all} files were read");
}

#[test]
fn a_corrupt_log_is_replayed_as_far_as_it_is_whole() {
    if !require("a_corrupt_log_is_replayed_as_far_as_it_is_whole", &[Need::E2fsck]) {
        return;
    }
    for options in ["sync=eager", "sync=ordered"] {
        let image = filled(FEATURES[0]);
        let sound = tree(&mount(&image.bytes(), "ro").unwrap());
        let dev = Arc::new(MemoryDevice::load(image.path()).unwrap());
        let options = MountOptions::parse(options).unwrap();
        let volume = Volume::mount(dev.clone(), clock(), options).unwrap();
        for nth in 0..4 {
            let file = put(&volume, &volume.root().unwrap(), &format!("new-{nth}"), b"new");
            volume.fsync(&file, false).unwrap();
        }
        let mut bytes = vec![0; dev.geometry().size_bytes as usize];
        dev.read_at(0, &mut bytes).unwrap();
        let log = number(&debugfs(image.path(), "blocks <8>\n"), "blocks <8>") * 1024;
        let mut salvaged = 0;
        for block in 1..40 {
            let mut damaged = bytes.clone();
            wipe(&mut damaged, log + block * 1024, 512);
            let volume = mount(&damaged, "rescue").unwrap();
            let found = tree(&volume);
            let lost = sound.iter().filter(|(path, was)| found.get(*path) != Some(*was)).count();
            assert_eq!(lost, 0, "block {block} of the log");
            let said = volume.take_missing();
            salvaged += usize::from(said.iter().any(|what| what.starts_with("parts of the log")));
        }
        assert!(salvaged > 0, "no transaction was corrupt");
    }
}
