//! Images as people have them: partitions of whole disks, trees and archives in and out; made by
//! sfdisk, mke2fs and GNU tar, judged by the kernel and e2fsck.

use std::fs::{File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support;
use crate::support::{at, binary, done, file, refused, run, scratch};
use crate::support::{mounted::Mounted, text};
use syncline_testkit::{
    Compare, DirTree, ImageSpec, KernelMount, Need, TreeManifest, TreeOptions, apply, e2fsck_clean,
    gen_tree, mkfs, require, skip,
};

fn shell(command: &str) {
    let ran = Command::new("sh").args(["-c", command]).output().unwrap();
    assert!(ran.status.success(), "{command}: {}", String::from_utf8_lossy(&ran.stderr));
}

/// A tree with hard links, holes and attributes; as root with devices and foreign owners.
fn tree(dir: &Path, names: usize) -> TreeManifest {
    std::fs::create_dir(dir).unwrap();
    let root = Need::Root.missing().is_none();
    let options = TreeOptions { names, root, ..TreeOptions::default() };
    apply(&gen_tree(11, options), &mut DirTree::new(dir)).unwrap();
    let sparse = File::create(dir.join("sparse")).unwrap();
    sparse.set_len(64 << 20).unwrap();
    sparse.write_all_at(b"island", 40 << 20).unwrap();
    drop(sparse);
    TreeManifest::from_dir(dir).unwrap()
}

/// A disk of 256 MiB with partitions as sfdisk writes them, and an ext4 in one of them.
fn disk(dir: &Path, script: &str, start: u64, size: u64) -> PathBuf {
    let path = dir.join("disk.img");
    File::create(&path).unwrap().set_len(256 << 20).unwrap();
    let mut sfdisk = Command::new("/sbin/sfdisk");
    let mut sfdisk =
        sfdisk.arg("-q").arg(&path).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    sfdisk.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(sfdisk.wait().unwrap().success());
    let (kib, offset) = (size >> 10, start);
    shell(&format!("/sbin/mke2fs -q -F -t ext4 -E offset={offset} {} {kib}k", text(&path)));
    path
}

const GPT: &str = "label: gpt\nsize=32MiB,type=U,name=boot\nsize=200MiB,type=L,name=root\n";
const MBR: &str = "label: dos\n1 : size=16MiB,type=c\n2 : size=230MiB,type=5\n\
                   5 : size=8MiB,type=L\n6 : size=200MiB,type=L\n";

fn has_sfdisk(test: &str) -> bool {
    let there = Path::new("/sbin/sfdisk").exists() || Path::new("/usr/sbin/sfdisk").exists();
    if !there {
        skip(test, "needs sfdisk; run `make deps` as root");
    }
    there && require(test, &[Need::E2fsck])
}

#[test]
fn a_partition_of_a_disk_is_an_image() {
    let test = "a_partition_of_a_disk_is_an_image";
    if !has_sfdisk(test) {
        return;
    }
    let dir = scratch();
    let expected = tree(&dir.path().join("tree"), 300);
    // Where sfdisk puts them: from 1 MiB on, logical ones a MiB behind their link.
    let mib = |n: u64| n << 20;
    for (script, number, start) in [(GPT, "2", mib(33)), (MBR, "6", mib(27))] {
        let disk = disk(dir.path(), script, start, mib(200));
        let part = ["--partition", number];
        let target = at(&disk, "/tree");
        let source = dir.path().join("tree");
        done(&[&["cp", "-a"][..], &part, &[text(&source), &target]].concat());
        let listed = done(&[&["ls"][..], &part, &[&at(&disk, "/")]].concat());
        assert_eq!(listed, "lost+found\ntree\n");
        let checked = done(&[&["check", "--compare"][..], &part, &[text(&disk)]].concat());
        assert!(checked.contains("e2fsck -fn: clean"), "{checked}");
        let info = done(&[&["info"][..], &part, &[text(&disk)]].concat());
        assert!(info.contains("200"), "{info}");
        done(&[&["recover"][..], &part, &[text(&disk)]].concat());
        let whole = refused(3, &["ls", &at(&disk, "/")]);
        assert!(whole.contains("a whole disk with the partitions 1 ("), "{whole}");
        assert!(whole.contains("ext4)") && whole.contains("; give --partition N"), "{whole}");
        let none = refused(2, &["ls", "--partition", "9", &at(&disk, "/")]);
        assert!(none.contains("no partition 9; there are 1 ("), "{none}");
        if require(&format!("{test}: kernel"), &[Need::Root, Need::Loop]) {
            let mnt = scratch();
            shell(&format!("mount -o loop,ro,offset={start} {} {}", text(&disk), text(mnt.path())));
            let found = TreeManifest::from_dir(&mnt.path().join("tree"));
            shell(&format!("umount {}", text(mnt.path())));
            expected.assert_same(&found.unwrap(), Compare::SAME_TREE, script);
        }
        let offset = start.to_string();
        let same = done(&["ls", "--offset", &offset, &at(&disk, "/")]);
        assert_eq!(same, listed);
    }
}

#[test]
fn damaged_tables_are_named_and_a_backup_is_used() {
    let test = "damaged_tables_are_named_and_a_backup_is_used";
    if !has_sfdisk(test) {
        return;
    }
    let dir = scratch();
    let disk = disk(dir.path(), GPT, 33 << 20, 200 << 20);
    let listing = ["ls", "--partition", "2", &at(&disk, "/")].map(str::to_owned);
    let file = OpenOptions::new().write(true).open(&disk).unwrap();
    file.write_all_at(&[0; 512], 512).unwrap();
    assert_eq!(done(&listing), "lost+found\n", "the copy at the end");
    // A disk image that was cut off has no copy.
    file.set_len(100 << 20).unwrap();
    let said = refused(3, &listing);
    assert!(said.contains("headers are both missing; repair it with"), "{said}");
    let cut = self::disk(dir.path(), GPT, 33 << 20, 200 << 20);
    OpenOptions::new().write(true).open(&cut).unwrap().set_len(100 << 20).unwrap();
    let said = refused(3, &listing);
    assert!(said.contains("puts partition 2 beyond the end of the image"), "{said}");
    let said = refused(2, &["ls", "--offset", "1000", &at(&cut, "/")]);
    assert!(said.contains("a multiple of 512"), "{said}");
}

#[test]
fn archives_go_in_and_out_with_everything_tar_keeps() {
    let test = "archives_go_in_and_out_with_everything_tar_keeps";
    if !require(test, &[Need::Root, Need::Loop, Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let source = dir.path().join("tree");
    let expected = tree(&source, 400);
    let keep = "--xattrs --xattrs-include='*' --numeric-owner";
    for (number, format) in
        ["-S --format=posix", "-S --format=gnu", "--format=posix -z"].into_iter().enumerate()
    {
        let archive = dir.path().join(format!("{number}.tar"));
        // GNU's old format has neither attributes nor parts of seconds.
        let gnu = format.ends_with("gnu");
        let make = if gnu { "--numeric-owner" } else { keep };
        let mut expected = expected.clone();
        if gnu {
            expected.entries.values_mut().for_each(|entry| entry.xattrs.clear());
        }
        let how = Compare { mtimes: !gnu, ..Compare::SAME_TREE };
        shell(&format!("tar {make} {format} -C {} -cf {} .", text(&source), text(&archive)));
        let image = dir.path().join(format!("{number}.img"));
        done(&["import", text(&archive), text(&image)]);
        e2fsck_clean(&image).unwrap();
        let mount = KernelMount::new(&image, "ro").unwrap();
        let blocks = std::fs::metadata(mount.path().join("sparse")).unwrap().blocks();
        let found = TreeManifest::from_dir(mount.path());
        mount.unmount().unwrap();
        assert!(blocks < 1000, "{format}: the hole has {blocks} sectors");
        same(&expected, found.unwrap(), how, format);

        let back = dir.path().join(format!("{number}.back"));
        std::fs::create_dir(&back).unwrap();
        let out = dir.path().join(format!("{number}.out.tar"));
        done(&["export", text(&image), "-o", text(&out)]);
        assert!(std::fs::metadata(&out).unwrap().len() < 60 << 20, "holes are not written");
        shell(&format!("tar {keep} -p -C {} -xf {}", text(&back), text(&out)));
        assert!(std::fs::metadata(back.join("sparse")).unwrap().blocks() < 1000);
        same(&expected, TreeManifest::from_dir(&back).unwrap(), how, format);
        let piped = run(&["export", text(&image)]);
        assert!(piped.out == std::fs::read(&out).unwrap(), "the same bytes through a pipe");
    }
}

/// Compares; lost+found, which an image has and the tree has not, is no part of a manifest.
fn same(expected: &TreeManifest, mut found: TreeManifest, how: Compare, what: &str) {
    found.entries.get_mut(&b""[..]).unwrap().stat.nlink -= 1;
    expected.assert_same(&found, how, what);
}

#[test]
fn equal_trees_make_equal_images_without_root() {
    let test = "equal_trees_make_equal_images_without_root";
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let source = dir.path().join("rootfs");
    std::fs::create_dir_all(source.join("etc")).unwrap();
    for n in 0..40 {
        file(&source.join("etc"), &format!("f{n}"), &"x".repeat(n * 500));
    }
    std::os::unix::fs::symlink("etc/f1", source.join("link")).unwrap();
    let make = |name: &str, epoch: &str| {
        let image = dir.path().join(name);
        let ran = binary()
            .args(["import", "--owner", "0:0", "-L", "root", text(&source), text(&image)])
            .env("SOURCE_DATE_EPOCH", epoch)
            .output()
            .unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        std::fs::read(&image).unwrap()
    };
    let one = make("one.img", "1700000000");
    std::thread::sleep(std::time::Duration::from_millis(1100));
    // Reading changes access times.
    std::fs::read(source.join("etc/f3")).unwrap();
    let two = make("two.img", "1700000000");
    let first = one.iter().zip(&two).position(|(a, b)| a != b);
    assert_eq!((first, one.len()), (None, two.len()), "the images differ");
    assert!(one != make("three.img", "1700000001"));
    let image = dir.path().join("one.img");
    e2fsck_clean(&image).unwrap();
    let listed = done(&["ls", "-l", &at(&image, "/etc/f7")]);
    assert!(listed.contains(" 0 0 3500 2023-11-14 22:13:20 "), "{listed}");
    let archives =
        ["one.img", "two.img"].map(|name| run(&["export", text(&dir.path().join(name))]).out);
    assert!(archives[0] == archives[1] && archives[0].len() > 10_000);
}

/// A member of an archive.
fn member(kind: u8, name: &[u8], link: &[u8], data: &[u8]) -> Vec<u8> {
    let mut header = [0_u8; 512];
    header[..name.len()].copy_from_slice(name);
    header[100..107].copy_from_slice(b"0000644");
    header[108..115].copy_from_slice(b"0000000");
    header[116..123].copy_from_slice(b"0000000");
    header[124..135].copy_from_slice(format!("{:011o}", data.len()).as_bytes());
    header[136..147].copy_from_slice(b"00000000000");
    header[148..156].copy_from_slice(b"        ");
    header[156] = kind;
    header[157..157 + link.len()].copy_from_slice(link);
    header[257..265].copy_from_slice(b"ustar\x0000");
    header[329..336].copy_from_slice(b"0000005");
    header[337..344].copy_from_slice(b"0000001");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut bytes = header.to_vec();
    bytes.extend_from_slice(data);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

#[test]
fn hostile_archives_stay_inside_of_the_image() {
    let test = "hostile_archives_stay_inside_of_the_image";
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let (archive, image) = (dir.path().join("a.tar"), dir.path().join("a.img"));
    let import = |members: &[Vec<u8>]| {
        std::fs::write(&archive, members.concat()).unwrap();
        let ran = run(&["import", text(&archive), text(&image)]);
        (ran.code, ran.err)
    };
    let outside = dir.path().join("outside");
    let evil = |name: &[u8]| member(b'0', name, b"", b"evil");
    for name in [&b"../outside"[..], b"a/../../outside", b"/../outside"] {
        let (code, said) = import(&[evil(name)]);
        assert_eq!(code, 3, "{said}");
        assert!(said.contains("a name with `..`") && said.contains("; repack it"), "{said}");
        assert!(!image.exists(), "a half-made image is left");
    }
    // Through a link that leaves the image in the archive's mind: it ends inside of the volume.
    let target = text(&outside).as_bytes().to_vec();
    let (code, said) = import(&[member(b'2', b"l", &target, b""), evil(b"l/x")]);
    assert!(code == 1 && !outside.exists(), "{code} {said}");
    let (code, said) = import(&[member(b'1', b"h", b"../../etc/passwd", b"")]);
    assert_eq!(code, 3, "{said}");
    let absolute = [&b"/"[..], &target[1..].iter().copied().take(80).collect::<Vec<u8>>()].concat();
    let (code, said) = import(&[evil(&absolute), member(b'3', b"node", b"", b"")]);
    assert_eq!((code, said.as_str()), (0, ""));
    assert!(!outside.exists() && !Path::new("node").exists());
    let stat = done(&["stat", &at(&image, "/node")]);
    assert!(stat.contains("Device type: 5,1"), "a device is only a name in the image: {stat}");
    assert!(done(&["ls", "-aR", &at(&image, "/")]).contains("outside"));
    let (code, said) = import(&[member(b'0', b"lost+found", b"", b"x")]);
    assert!(code == 1 && said.contains("the image has a directory; remove it first"), "{said}");
    std::fs::remove_file(&image).unwrap();
    let whole = member(b'0', b"f", b"", &[7; 3000]);
    for cut in [100, 512, 1500, 3000] {
        let (code, said) = import(&[whole[..cut].to_vec()]);
        assert!(code == 3 && said.contains("the archive is damaged: "), "{cut}: {code} {said}");
        assert!(!image.exists(), "a half-made image is left");
    }
    let (code, said) = import(&[b"hello, this is no archive".repeat(40)]);
    assert!(code == 3 && said.contains("not a tar archive"), "{code} {said}");
}

#[test]
fn a_user_can_write_to_the_root_of_a_new_image() {
    if !require("a_user_can_write_to_the_root_of_a_new_image", &[Need::Root]) {
        return;
    }
    let dir = scratch();
    std::os::unix::fs::chown(dir.path(), Some(1000), Some(1000)).unwrap();
    let made = |name: &str, options: &str, epoch: &str| {
        let script = format!("{epoch} exec \"$0\" mkfs --size 8M {options} \"$1\"");
        let ran = std::process::Command::new("setpriv")
            .args(["--reuid=1000", "--regid=1001", "--clear-groups", "sh", "-c", &script])
            .arg(env!("CARGO_BIN_EXE_syncline"))
            .arg(dir.path().join(name))
            .output()
            .unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let said = done(&["stat", &support::at(&dir.path().join(name), "/")]);
        let owner = said.split("Uid:").nth(1).unwrap().lines().next().unwrap();
        owner.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<u32>>()
    };
    assert_eq!(made("own.img", "", ""), [1000, 1001]);
    assert_eq!(made("given.img", "-E root_owner=7:8", ""), [7, 8]);
    assert_eq!(made("same.img", "", "SOURCE_DATE_EPOCH=1"), [0, 0], "equal bytes for everybody");
}

/// A file that truncate(1) made holds nothing, and has its size.
#[test]
fn a_file_that_was_never_written_becomes_an_image() {
    if !require("a_file_that_was_never_written_becomes_an_image", &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let hole = dir.path().join("hole.img");
    File::create(&hole).and_then(|file| file.set_len(32 << 20)).unwrap();
    done(&["mkfs", text(&hole)]);
    e2fsck_clean(&hole).unwrap();
    assert_eq!(std::fs::metadata(&hole).unwrap().len(), 32 << 20);
    std::fs::write(&hole, [0; 4096]).unwrap();
    assert!(refused(1, &["mkfs", text(&hole)]).contains("add --force"));
}

#[test]
fn images_are_made_and_not_overwritten() {
    let test = "images_are_made_and_not_overwritten";
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let image = dir.path().join("new.img");
    let said = refused(2, &["mkfs", text(&image)]);
    assert!(said.contains("give its size") && !image.exists(), "{said}");
    done(&["mkfs", "--size", "32M", "-L", "hello", text(&image), "--", "-m", "0"]);
    e2fsck_clean(&image).unwrap();
    assert!(done(&["info", text(&image)]).contains("hello"));
    let said = refused(1, &["mkfs", "--size", "64M", text(&image)]);
    assert!(said.contains("add --force"), "{said}");
    done(&["mkfs", "--force", text(&image)]);
    assert_eq!(std::fs::metadata(&image).unwrap().len(), 32 << 20);
    let other = dir.path().join("other.img");
    let said = refused(1, &["mkfs", "--size", "32M", text(&other), "--", "-O", "nonsense"]);
    assert!(said.contains("nonsense is not a feature") && !other.exists(), "{said}");
    let said = refused(1, &["mkfs", "--size", "32M", "-O", "bigalloc", text(&other)]);
    assert!(said.contains("use mke2fs -O bigalloc") && !other.exists(), "{said}");
    let said = refused(2, &["mkfs", "--size", "32M", text(&other), "--", "-x"]);
    assert!(said.contains("after --: ") && !other.exists(), "{said}");
    let said = done(&["mkfs", "-n", "--size", "1T", "-T", "largefile4", text(&other)]);
    assert!(said.contains("262144 inodes") && !other.exists(), "{said}");
    // No other program is needed.
    let ran =
        binary().args(["mkfs", "--size", "8M", text(&other)]).env("PATH", "").output().unwrap();
    assert!(ran.status.success());
    let options = ["-F", "-b", "1024", "-E", "root_owner=7:8,stride=4", "-L", "x", "-U", "clear"];
    done(&[&["mkfs", "--size", "16M"], &options[..], &["-J", "size=2", text(&other)]].concat());
    e2fsck_clean(&other).unwrap();
    let said = done(&["stat", &support::at(&other, "/")]);
    assert!(said.contains('7') && said.contains('8'), "{said}");
    let said = refused(2, &["import", "--size", "8M", text(dir.path()), text(&image)]);
    assert!(said.contains("are for new images; leave them out"), "{said}");
    let small = dir.path().join("small.img");
    let big = dir.path().join("big");
    std::fs::write(&big, vec![3; 30 << 20]).unwrap();
    shell(&format!("tar -C {} -cf {}/big.tar big", text(dir.path()), text(dir.path())));
    let archive = dir.path().join("big.tar");
    let ran = run(&["import", "--size", "16M", text(&archive), text(&small)]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("; ") && !small.exists(), "{}", ran.err);
}

#[test]
fn images_grow_and_shrink_and_keep_their_files() {
    let test = "images_grow_and_shrink_and_keep_their_files";
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let source = dir.path().join("tree");
    std::fs::create_dir(&source).unwrap();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n / 9) as u8).collect();
    std::fs::write(source.join("f"), &bytes).unwrap();
    let image = dir.path().join("a.img");
    done(&["import", "--size", "64M", text(&source), text(&image)]);
    let size = || std::fs::metadata(&image).unwrap().len();
    let whole = |at: &str| {
        e2fsck_clean(&image).unwrap();
        assert!(run(&["cat", &support::at(&image, "/f")]).out == bytes, "{at}");
    };
    done(&["resize", "--size", "200M", text(&image)]);
    assert_eq!(size(), 200 << 20);
    whole("larger");
    let said = refused(1, &["resize", "--size", "1M", text(&image)]);
    assert!(said.contains("its files need ") && said.contains("; choose at least that"), "{said}");
    assert_eq!(size(), 200 << 20, "the old size");
    whole("refused");
    let said = done(&["resize", "--minimum", text(&image)]);
    assert!(size() < 40 << 20, "{said}");
    whole("smallest");
    refused(3, &["resize", "--size", "8M", text(&source.join("f"))]);
}

fn has_qemu_img(test: &str) -> bool {
    let there = Path::new("/usr/bin/qemu-img").exists();
    if !there {
        skip(test, "needs qemu-img; run `make deps` as root");
    }
    there && require(test, &[Need::E2fsck])
}

#[test]
fn a_qcow2_goes_in_and_out_with_the_same_tree() {
    let test = "a_qcow2_goes_in_and_out_with_the_same_tree";
    if !has_qemu_img(test) || !require(test, &[Need::Root, Need::Loop]) {
        return;
    }
    let dir = scratch();
    let path = |name: &str| dir.path().join(name);
    let (source, archive) = (path("tree"), path("tree.tar"));
    let expected = tree(&source, 200);
    let keep = "--xattrs --xattrs-include='*' --numeric-owner";
    shell(&format!("tar {keep} -S --format=posix -C {} -cf {} .", text(&source), text(&archive)));
    let (image, raw) = (path("image.qcow2"), path("raw.img"));
    done(&["import", text(&archive), text(&image)]);
    shell(&format!("qemu-img check -q {}", text(&image)));
    shell(&format!("qemu-img convert -O raw {} {}", text(&image), text(&raw)));
    e2fsck_clean(&raw).unwrap();
    let mount = KernelMount::new(&raw, "ro").unwrap();
    let found = TreeManifest::from_dir(mount.path());
    mount.unmount().unwrap();
    same(&expected, found.unwrap(), Compare::SAME_TREE, "in");
    let (out, back) = (path("out.tar"), path("back"));
    std::fs::create_dir(&back).unwrap();
    // As images are handed on: compressed, which is read like any other.
    let small = path("small.qcow2");
    shell(&format!("qemu-img convert -c -O qcow2 {} {}", text(&image), text(&small)));
    done(&["export", text(&small), "-o", text(&out)]);
    shell(&format!("tar {keep} -p -C {} -xf {}", text(&back), text(&out)));
    same(&expected, TreeManifest::from_dir(&back).unwrap(), Compare::SAME_TREE, "out");
    let checked = done(&["check", "--compare", text(&image)]);
    assert!(checked.contains("clean") && checked.contains("it does not read qcow2"), "{checked}");
    let said = refused(4, &["resize", "--size", "1G", text(&image)]);
    assert!(said.contains("qemu-img resize"), "{said}");
}

#[test]
fn a_partition_of_a_qcow2_disk_is_an_image() {
    let test = "a_partition_of_a_qcow2_disk_is_an_image";
    if !has_qemu_img(test) || !has_sfdisk(test) {
        return;
    }
    let dir = scratch();
    let disk = disk(dir.path(), GPT, 33 << 20, 200 << 20);
    let image = dir.path().join("disk.qcow2");
    shell(&format!("qemu-img convert -f raw -O qcow2 {} {}", text(&disk), text(&image)));
    let source = file(dir.path(), "motd", "hello\n");
    let target = at(&image, "/motd");
    done(&["cp", "--partition", "2", text(&source), &target]);
    assert_eq!(done(&["cat", "--partition", "2", &target]), "hello\n");
    let whole = refused(3, &["ls", &at(&image, "/")]);
    assert!(whole.contains("; give --partition N"), "{whole}");
    shell(&format!("qemu-img check -q {}", text(&image)));
}

#[test]
fn a_qcow2_over_another_is_read_and_written_by_commands() {
    let test = "a_qcow2_over_another_is_read_and_written_by_commands";
    if !has_qemu_img(test) {
        return;
    }
    let dir = scratch();
    let path = |name: &str| dir.path().join(name);
    let (base, top) = (path("base.img"), path("top.qcow2"));
    done(&["mkfs", "--size", "8M", text(&base)]);
    let source = file(dir.path(), "motd", "hello\n");
    done(&["cp", text(&source), &at(&base, "/motd")]);
    shell(&format!("qemu-img create -q -f qcow2 -b {} -F raw {}", text(&base), text(&top)));
    let (place, base) = (at(&top, "/motd"), text(&base));
    assert_eq!(done(&["cat", "--backing", base, &place]), "hello\n");
    assert!(done(&["check", "--backing", base, text(&top)]).contains("clean"));
    assert!(done(&["info", "--backing", base, text(&top)]).contains("has_journal"));
    let out = path("out.tar");
    done(&["export", "--backing", base, text(&top), "-o", text(&out)]);
    for arguments in [&["cat", &place][..], &["check", text(&top)], &["recover", text(&top)]] {
        assert!(refused(4, arguments).contains("name it with --backing"), "{arguments:?}");
    }
    let below = std::fs::read(base).unwrap();
    done(&["cp", "--backing", base, text(&source), &at(&top, "/again")]);
    done(&["rm", "--backing", base, &place]);
    assert_eq!(done(&["cat", "--backing", base, &at(&top, "/again")]), "hello\n");
    assert!(std::fs::read(base).unwrap() == below, "the file below is never written");
    shell(&format!("qemu-img check -q {}", text(&top)));
    let plain = refused(2, &["cat", "--backing", base, &at(Path::new(base), "/motd")]);
    assert!(plain.contains("leave --backing away"), "{plain}");
}

#[test]
fn a_mounted_qcow2_that_is_killed_keeps_what_was_synced() {
    let test = "a_mounted_qcow2_that_is_killed_keeps_what_was_synced";
    if !has_qemu_img(test) || !require(test, &[Need::Fuse]) {
        return;
    }
    let dir = scratch();
    let image = dir.path().join("card.qcow2");
    done(&["mkfs", "--size", "64M", text(&image)]);
    let mut mounted = Mounted::prepared(mkfs(&ImageSpec::with_size(1 << 20)), Some(image.clone()));
    mounted.mount("");
    std::fs::write(mounted.at("early"), [1; 300_000]).unwrap();
    mounted.unmount_clean();
    shell(&format!("qemu-img check -q {}", text(&image)));
    mounted.mount("");
    let said = refused(1, &["ls", &at(&image, "/")]);
    assert!(said.contains("another program has it open"), "{said}");
    let late = File::create(mounted.at("late")).unwrap();
    late.write_all_at(&[2; 300_000], 0).unwrap();
    late.sync_all().unwrap();
    drop(late);
    mounted.kill_serving();
    mounted.bury();
    let said = refused(1, &["ls", &at(&image, "/")]);
    assert!(said.contains("was not closed; `syncline recover`"), "{said}");
    assert_eq!(run(&["recover", text(&image)]).code, 0);
    assert_eq!(done(&["ls", &at(&image, "/")]), "early\nlate\nlost+found\n");
    assert!(run(&["cat", &at(&image, "/late")]).out == [2; 300_000]);
    shell(&format!("qemu-img check -q {}", text(&image)));
}

#[test]
fn a_container_becomes_an_image_without_root() {
    let test = "a_container_becomes_an_image_without_root";
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let path = |name: &str| dir.path().join(name);
    std::fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
    // As `docker export` writes it: a device file, and owners that the caller is not.
    let members = [
        member(b'5', b"etc/", b"", b""),
        member(b'0', b"etc/shadow", b"", b"root:*\n"),
        member(b'3', b"null", b"", b""),
        member(b'0', b"etc/machine-id", b"", b"1\n"),
    ];
    std::fs::write(path("rootfs.tar"), [members.concat(), vec![0; 1024]].concat()).unwrap();
    std::fs::create_dir_all(path("overlay/etc")).unwrap();
    file(&path("overlay/etc"), "hostname", "card\n");
    let program = path("syncline");
    support::copy_program(&support::binary(), &program);
    let root = Need::Root.missing().is_none();
    let nobody = if root { "setpriv --reuid 65534 --regid 65534 --clear-groups " } else { "" };
    let script = "cat rootfs.tar | ./syncline import --size 64M - root.img &&
        ./syncline cp -r overlay/etc root.img:/ && ./syncline rm root.img:/etc/machine-id &&
        ./syncline resize --minimum root.img";
    shell(&format!("cd {} && {nobody}sh -c '{script}'", text(dir.path())));
    let image = path("root.img");
    e2fsck_clean(&image).unwrap();
    let listed = done(&["ls", "-l", &at(&image, "/etc")]);
    assert!(listed.contains("hostname") && !listed.contains("machine-id"), "{listed}");
    let shadow = listed.lines().find(|line| line.ends_with("shadow")).expect("shadow is listed");
    let fields: Vec<&str> = shadow.split_whitespace().collect();
    assert_eq!(fields[2..4], ["0", "0"], "the archive's owners: {listed}");
    assert!(done(&["ls", "-l", &at(&image, "/")]).contains("null"), "the device file");
    assert!(std::fs::metadata(&image).unwrap().len() < 64 << 20);
}

/// A file of the same name is replaced by a rename. A pipe or device stays what it is.
#[test]
fn an_export_goes_into_a_pipe_that_has_the_name() {
    use std::os::unix::fs::FileTypeExt;
    let dir = scratch();
    let (image, fifo) = (dir.path().join("a.img"), dir.path().join("fifo"));
    done(&["mkfs", "--size", "16M", text(&image)]);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    let reader = std::thread::spawn({
        let fifo = fifo.clone();
        move || std::fs::read(fifo).unwrap()
    });
    done(&["export", text(&image), "-o", text(&fifo)]);
    let tar = reader.join().unwrap();
    assert!(tar == run(&["export", text(&image)]).out && tar.len() > 1024);
    assert!(std::fs::metadata(&fifo).unwrap().file_type().is_fifo(), "it was replaced");
}
