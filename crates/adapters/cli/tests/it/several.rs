//! Images in more than one file: sparse images of Android in parts, a qcow2 over other files, and
//! compressed images, which are unpacked into a file without a name. Through commands, a mount and
//! NFS.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use syncline_device::{FileDevice, FileOptions};
use syncline_testkit::{ImageSpec, Need, Random, e2fsck_clean, mkfs, require, skip};

use crate::support::mounted::Mounted;
use crate::support::{at, binary, done, file, refused, run, scratch, text};

/// An ext4 with the file /motd, and with one that cannot be compressed.
fn raw(dir: &Path) -> PathBuf {
    let (raw, mut random, mut noise) = (dir.join("raw.img"), Random::new(5), vec![0; 300_000]);
    noise.fill_with(|| random.bits() as u8);
    std::fs::write(dir.join("noise"), noise).unwrap();
    done(&["mkfs", "--size", "8M", text(&raw)]);
    done(&["cp", text(&dir.join("noise")), &at(&raw, "/noise")]);
    done(&["cp", text(&file(dir, "motd", "hello\n")), &at(&raw, "/motd")]);
    raw
}

/// The names of parts of `raw` as a sparse image, each with a third of the blocks of 4 KiB.
fn parts(dir: &Path, raw: &Path) -> [PathBuf; 3] {
    let bytes = std::fs::read(raw).unwrap();
    let numbers = |numbers: &[usize]| -> Vec<u8> {
        numbers.iter().flat_map(|number| (*number as u32).to_le_bytes()).collect()
    };
    let blocks = bytes.len() / 4096;
    let start = numbers(&[0xED26_FF3A, 1, 12 << 16 | 28, 4096, blocks, 3, 0]);
    let nothing = |blocks: usize| numbers(&[0xCAC3, blocks, 12]);
    [0, 1, 2].map(|nr| {
        let (from, to) = (blocks * nr / 3, blocks * (nr + 1) / 3);
        let data = numbers(&[0xCAC1, to - from, 12 + (to - from) * 4096]);
        let own = &bytes[from * 4096..to * 4096];
        let path = dir.join(format!("system.img_sparsechunk.{nr}"));
        let all = [&start[..], &nothing(from), &data, own, &nothing(blocks - to)].concat();
        std::fs::write(&path, all).unwrap();
        path
    })
}

fn shell(command: &str) {
    assert!(Command::new("sh").args(["-ec", command]).status().unwrap().success(), "{command}");
}

fn has_qemu_img(test: &str) -> bool {
    let there = Path::new("/usr/bin/qemu-img").exists();
    if !there {
        skip(test, "needs qemu-img; run `make deps` as root");
    }
    there
}

/// A directory in which an image is mounted in the background; taken away at the end.
struct Mount(PathBuf);

impl Mount {
    fn of(dir: &Path, arguments: &[&str]) -> Mount {
        let mount = Mount(dir.join("mnt"));
        std::fs::create_dir_all(&mount.0).unwrap();
        let ran = run(&[&["mount"], arguments, &[text(&mount.0)]].concat());
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{arguments:?}");
        mount
    }

    /// Its files are there, nobody writes to what it has open, and it stays read-only.
    fn holds(&self, files: &[&Path], why: &str) {
        assert_eq!(std::fs::read_to_string(self.0.join("motd")).unwrap(), "hello\n");
        for file in files {
            let opened = FileDevice::open(file, FileOptions::default());
            assert!(opened.is_err(), "{} is locked", file.display());
        }
        assert_eq!(run(&["status", text(&self.0)]).code, 0);
        assert!(std::fs::write(self.0.join("new"), "x").is_err());
        let ran = run(&["mount", "-o", "remount,rw", text(files[0]), text(&self.0)]);
        assert!(ran.code != 0 && ran.err.contains(why), "{}", ran.err);
        assert_eq!(std::fs::read_to_string(self.0.join("motd")).unwrap(), "hello\n");
    }

    /// Unmounts; then the files are free.
    fn end(self, files: &[&Path]) {
        done(&["umount", text(&self.0)]);
        for file in files {
            FileDevice::open(file, FileOptions::default()).unwrap();
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-ql").arg(&self.0).stderr(Stdio::null()).status();
    }
}

#[test]
fn a_split_sparse_image_is_read_by_commands_and_mounted() {
    let test = "a_split_sparse_image_is_read_by_commands_and_mounted";
    let dir = scratch();
    let [one, two, three] = parts(dir.path(), &raw(dir.path()));
    assert_eq!(done(&["cat", &at(&one, "/motd")]), "hello\n");
    assert!(done(&["check", text(&one)]).contains("clean"));
    assert!(done(&["info", text(&one)]).contains("has_journal"));
    let said = refused(2, &["ls", &at(&two, "/")]);
    assert!(said.contains("name the first, "), "{said}");
    if require(test, &[Need::Fuse, Need::Root]) {
        let files = [&*one, &two, &three];
        for options in ["ro", "ro,noload", "ro,sandbox=off"] {
            let mount = Mount::of(dir.path(), &["-o", options, text(&one)]);
            mount.holds(&files, "the image is in several files, so it is only read; ");
            mount.end(&files);
        }
        let mount = ["mount", text(&one), text(dir.path())];
        assert!(refused(4, &mount).contains("mount it with `-o ro`"));
        let said = refused(2, &["mount", "-o", "ro", text(&two), text(dir.path())]);
        assert!(said.contains("name the first, "), "{said}");
    }
    let held = FileDevice::open(&two, FileOptions::default()).unwrap();
    let said = refused(1, &["mount", "-o", "ro", text(&one), text(dir.path())]);
    assert!(said.contains("sparsechunk.1: "), "{said}");
    drop(held);
    std::fs::remove_file(&two).unwrap();
    for arguments in [&["ls", &at(&one, "/")][..], &["mount", "-o", "ro", text(&one), "/mnt"]] {
        let said = refused(2, arguments);
        assert!(said.contains("sparsechunk.2 is there and"), "{said}");
        assert!(said.contains("sparsechunk.1 is missing; "), "{said}");
    }
    std::fs::write(&two, [7; 4096]).unwrap();
    let said = refused(3, &["mount", "-o", "ro", text(&one), text(dir.path())]);
    assert!(said.contains("one of its parts is no sparse image"), "{said}");
}

/// The answers of the programs that are there to a file.
fn packed(test: &str, from: &Path) -> Vec<PathBuf> {
    let programs = ["gzip -1c", "zstd -qc", "xz -0c", "bzip2 -c", "lz4 -qc"];
    let pack = |program: &&str| {
        let path = from.with_extension(program.split(' ').next().unwrap());
        let command = format!("{program} {} > {}", text(from), text(&path));
        let packed = Command::new("sh").args(["-ec", &command]).stderr(Stdio::null()).status();
        if !packed.unwrap().success() {
            skip(test, &format!("needs {program}"));
            return None;
        }
        Some(path)
    };
    programs.iter().filter_map(pack).collect()
}

#[test]
fn a_compressed_image_is_mounted() {
    let test = "a_compressed_image_is_mounted";
    if !require(test, &[Need::Fuse, Need::Root]) {
        return;
    }
    let dir = scratch();
    let raw = raw(dir.path());
    for path in packed(test, &raw) {
        let mount = Mount::of(dir.path(), &["-o", "ro", text(&path)]);
        mount.holds(&[&path], "the image is compressed, so it is only read; ");
        mount.end(&[&path]);
        let said = refused(4, &["mount", text(&path), text(dir.path())]);
        assert!(said.contains("only read; unpack it first, or mount it with `-o ro`"), "{said}");
        let good = std::fs::read(&path).unwrap();
        let mut flipped = good.clone();
        flipped[good.len() / 2] ^= 1;
        for bad in [&good[..good.len() - 5], &good[..good.len() / 2], &flipped] {
            std::fs::write(&path, bad).unwrap();
            let said = refused(3, &["mount", "-o", "ro", text(&path), text(dir.path())]);
            assert!(said.contains("is damaged: "), "{said}");
        }
    }
}

#[test]
fn a_partition_of_a_packed_disk_is_mounted() {
    let test = "a_partition_of_a_packed_disk_is_mounted";
    if !require(test, &[Need::Fuse, Need::Root]) || !has_qemu_img(test) {
        return;
    }
    let dir = scratch();
    let (raw, disk) = (raw(dir.path()), dir.path().join("disk.img"));
    shell(&format!(
        "truncate -s 1M {0}; cat {1} >> {0}; truncate -s 10M {0}; \
         echo 'start=2048,size=16384,type=83' | sfdisk -q {0}; \
         qemu-img convert -O qcow2 {0} {0}.qcow2; gzip -1k {0}.qcow2 {0}",
        text(&disk),
        text(&raw)
    ));
    let [one, two, three] = parts(dir.path(), &disk);
    let (gz, qcow2) = (disk.with_extension("img.gz"), disk.with_extension("img.qcow2.gz"));
    for image in [&gz, &qcow2, &one] {
        for place in [&["--partition", "1"][..], &["-o", "offset=1M"], &["-o", "partition=1"]] {
            let arguments = [&["-o", "ro"], place, &[text(image)]].concat();
            let mount = Mount::of(dir.path(), &arguments);
            assert_eq!(std::fs::read_to_string(mount.0.join("motd")).unwrap(), "hello\n");
            mount.end(&[image]);
        }
    }
    drop((two, three));
}

/// The number of files without a name that this user's processes have in a directory.
fn nameless(dir: &Path) -> usize {
    let links = std::fs::read_dir("/proc").unwrap().flatten();
    let links = links.filter_map(|process| std::fs::read_dir(process.path().join("fd")).ok());
    let links = links.flatten().flatten().filter_map(|fd| std::fs::read_link(fd.path()).ok());
    links.filter(|file| file.starts_with(dir)).count()
}

#[test]
fn a_full_directory_for_the_unpacked_image_is_an_error() {
    let test = "a_full_directory_for_the_unpacked_image_is_an_error";
    if !require(test, &[Need::Fuse, Need::Root]) {
        return;
    }
    let dir = scratch();
    let raw = raw(dir.path());
    shell(&format!("dd if=/dev/urandom of={} bs=1M count=4 seek=4 status=none", text(&raw)));
    let Some(path) = packed(test, &raw).into_iter().next() else { return };
    let small = Mount(dir.path().join("small"));
    std::fs::create_dir(&small.0).unwrap();
    shell(&format!("mount -t tmpfs -o size=1M tmpfs {}", text(&small.0)));
    let none = dir.path().join("none");
    let image = at(&path, "/");
    for (temporary, why) in [(&small.0, "no space left"), (&none, "no such file")] {
        let mount = ["mount", "-o", "ro", text(&path), text(dir.path())];
        for arguments in [&mount[..], &["ls", &image]] {
            let mut command = binary();
            let ran = command.args(arguments).env("TMPDIR", temporary).output().unwrap();
            let said = String::from_utf8_lossy(&ran.stderr).into_owned();
            assert_eq!(ran.status.code(), Some(1), "{said}");
            assert!(said.contains(why) && said.contains("in TMPDIR"), "{said}");
            assert_eq!(said.lines().count(), 1, "{said}");
        }
    }
    assert_eq!(std::fs::read_dir(&small.0).unwrap().count(), 0);
    let began = Instant::now();
    while nameless(&small.0) > 0 {
        assert!(began.elapsed() < Duration::from_secs(20), "it leaves a file without a name");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn ctrl_c_ends_a_mount_that_unpacks() {
    let test = "ctrl_c_ends_a_mount_that_unpacks";
    if !require(test, &[Need::Fuse, Need::Root]) {
        return;
    }
    let dir = scratch();
    let (zeros, image) = (dir.path().join("zeros"), dir.path().join("zeros.gz"));
    // Members of a gzip are one stream: 256 GiB of zeros.
    shell(&format!("truncate -s 256M {0}; gzip -1 {0}", text(&zeros)));
    let member = std::fs::read(&image).unwrap();
    std::fs::write(&image, member.repeat(1000)).unwrap();
    let mnt = dir.path().join("mnt");
    std::fs::create_dir(&mnt).unwrap();
    let unpacked = dir.path().join("tmp");
    std::fs::create_dir(&unpacked).unwrap();
    let mut command = binary();
    command.args(["mount", "-o", "ro"]).arg(&image).arg(&mnt).env("TMPDIR", &unpacked);
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    while nameless(&unpacked) == 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "it unpacks");
        std::thread::sleep(Duration::from_millis(20));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!((ended.status.code(), said.lines().count()), (Some(130), 1), "{said}");
    assert!(said.contains("interrupted; "), "{said}");
    FileDevice::open(&image, FileOptions::default()).unwrap();
    assert_eq!(nameless(&unpacked), 0);
    assert_eq!(std::fs::read_dir(&mnt).unwrap().count(), 0, "it is not mounted");
}

/// A base, a qcow2 over it, and one over that, which has a file of its own.
fn chain(dir: &Path, base: &str) -> [PathBuf; 3] {
    let raw = raw(dir);
    let [base, mid, top] = [base, "mid.qcow2", "top.qcow2"].map(|name| dir.join(name));
    std::fs::rename(raw, &base).unwrap();
    // What the images name is never opened.
    shell(&format!(
        "cd {}; qemu-img create -q -u -f qcow2 -b /etc/passwd -F raw mid.qcow2 8M; \
         qemu-img create -q -u -f qcow2 -b nothing -F qcow2 top.qcow2 8M",
        text(dir)
    ));
    [base, mid, top]
}

#[test]
fn a_qcow2_over_others_is_mounted() {
    let test = "a_qcow2_over_others_is_mounted";
    if !require(test, &[Need::Fuse, Need::Root]) || !has_qemu_img(test) {
        return;
    }
    let dir = scratch();
    let [base, mid, top] = chain(dir.path(), "ba,se.img");
    let option = format!("ro,backing={},backing=\"{}\"", text(&mid), text(&base));
    let by_option = ["-o", &option, text(&top)];
    let by_flags = ["-o", "ro", "--backing", text(&mid), "--backing", text(&base), text(&top)];
    let files = [&*top, &mid, &base];
    for arguments in [&by_option[..], &by_flags] {
        let mount = Mount::of(dir.path(), arguments);
        mount.holds(&files, "over another file, so it stays as it was opened; ");
        mount.end(&files);
    }
    let mount = |more: &[&str]| -> String {
        let all = [&["mount"], more, &[text(&top), text(dir.path())]].concat();
        let ran = run(&all);
        assert_ne!(ran.code, 0, "{more:?}");
        assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
        ran.err
    };
    let (mid_name, base_name) = (text(&mid), text(&base));
    let none = mount(&["-o", "ro"]);
    assert!(none.contains("is over the file `nothing`") && none.contains("--backing"), "{none}");
    let one = mount(&["-o", "ro", "--backing", mid_name]);
    assert!(one.contains("is over the file `/etc/passwd`"), "{one}");
    let order = mount(&["-o", "ro", "--backing", base_name, "--backing", mid_name]);
    assert!(order.contains("ba,se.img: it is no qcow2"), "{order}");
    let absent = mount(&["-o", "ro", "--backing", "/no/such"]);
    assert!(absent.contains("/no/such: no such file"), "{absent}");
    let held = FileDevice::open(&base, FileOptions::default()).unwrap();
    let busy = mount(&["-o", "ro", "--backing", mid_name, "--backing", base_name]);
    assert!(busy.contains("ba,se.img: "), "{busy}");
    drop(held);
    // Behind the end of a file are zeros, as for QEMU.
    std::fs::File::options().write(true).open(&base).unwrap().set_len(1024).unwrap();
    let short = mount(&["-o", "ro", "--backing", mid_name, "--backing", base_name]);
    assert!(short.contains("no ext4 superblock"), "{short}");
    let plain = ["mount", "-o", "ro", "--backing", mid_name, base_name, text(dir.path())];
    assert!(refused(2, &plain).contains("leave --backing away"));
}

/// As a cloud image is used: the machine writes to its own file, and the image is below.
#[test]
fn a_qcow2_over_others_is_mounted_for_writing() {
    let test = "a_qcow2_over_others_is_mounted_for_writing";
    if !require(test, &[Need::Fuse, Need::Root, Need::E2fsck]) || !has_qemu_img(test) {
        return;
    }
    let dir = scratch();
    let [base, mid, top] = chain(dir.path(), "base.img");
    let before = [&base, &mid].map(|file| std::fs::read(file).unwrap());
    let backing = ["--backing", text(&mid), "--backing", text(&base)];
    let arguments = [&backing[..], &[text(&top)]].concat();
    let mount = Mount::of(dir.path(), &arguments);
    for file in [&top, &mid, &base] {
        assert!(FileDevice::open(file, FileOptions::default()).is_err(), "locked");
    }
    let noise = std::fs::read(mount.0.join("noise")).unwrap();
    std::fs::write(mount.0.join("copy"), &noise).unwrap();
    std::fs::remove_file(mount.0.join("motd")).unwrap();
    mount.end(&[&top, &mid, &base]);
    let flat = dir.path().join("flat");
    let flatten = || {
        // The names in the images are those of no files.
        let file = |file: &Path| format!("{{\"driver\":\"file\",\"filename\":\"{}\"}}", text(file));
        let raw = format!("{{\"driver\":\"raw\",\"file\":{}}}", file(&base));
        let over = |image: &Path, below: &str| {
            format!("{{\"driver\":\"qcow2\",\"file\":{},\"backing\":{below}}}", file(image))
        };
        let all = over(&top, &over(&mid, &raw));
        shell(&format!("qemu-img convert -O raw 'json:{all}' {}", text(&flat)));
        shell(&format!("qemu-img check -q 'json:{}'", over(&top, "null")));
        e2fsck_clean(&flat).unwrap();
    };
    flatten();
    assert!(run(&["cat", &at(&flat, "/copy")]).out == noise);
    // What was synced survives a kill, and the next command that writes repairs.
    let mut mounted = Mounted::prepared(mkfs(&ImageSpec::with_size(1 << 20)), Some(top.clone()));
    mounted.mount(&format!("backing={},backing={}", text(&mid), text(&base)));
    let late = std::fs::File::create(mounted.at("late")).unwrap();
    std::io::Write::write_all(&mut &late, &noise).unwrap();
    late.sync_all().unwrap();
    drop(late);
    mounted.kill_serving();
    mounted.bury();
    let place = at(&top, "/late");
    let said = refused(1, &[&["cat"], &backing[..], &[&place]].concat());
    assert!(said.contains("was not closed; `syncline recover`"), "{said}");
    assert_eq!(run(&[&["recover"], &arguments[..]].concat()).code, 0);
    assert!(run(&[&["cat"], &backing[..], &[&place]].concat()).out == noise);
    flatten();
    assert!(before == [&base, &mid].map(|file| std::fs::read(file).unwrap()), "never written");
}

#[test]
fn nfs_serves_images_of_several_files() {
    let test = "nfs_serves_images_of_several_files";
    if !has_qemu_img(test) {
        return;
    }
    let dir = scratch();
    let [base, mid, top] = chain(dir.path(), "base.img");
    let [one, ..] = parts(dir.path(), &base);
    let packed = packed(test, &base);
    let backing = ["--backing", text(&mid), "--backing", text(&base), text(&top)];
    let split = [text(&one)];
    let compressed: Vec<&str> = packed.iter().take(1).map(|path| text(path)).collect();
    for arguments in [&backing[..], &split, &compressed] {
        let mut command = binary();
        command.args(["serve", "--nfs", "127.0.0.1:0", "-o", "ro"]).args(arguments);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut said = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut said, &mut line).unwrap();
        assert!(line.contains(": NFS on "), "{arguments:?}: {line}");
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        assert!(child.wait().unwrap().success());
    }
}
