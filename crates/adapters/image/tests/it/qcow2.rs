//! qcow2 files, made and judged by qemu-img and qemu-io.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use syncline_device::{BlockDevice, Kind, MemoryDevice, Op, Origin, Request, SECTOR_BYTES};
use syncline_fs::Create;
use syncline_image::mkfs::Mkfs;
use syncline_image::{Image, Opening, ReadAt, device, disk_of};
use syncline_testkit::{
    FuzzRounds, ImageSpec, Need, Random, e2fsck_clean, mkfs, require, scratch_dir, skip,
};

const ORIGIN: Origin = Origin::new(Kind::Other, true);
const CLUSTER_BYTES: u64 = 64 << 10;

fn has_qemu(test: &str) -> bool {
    let there = syncline_image::mkfs::find("qemu-img").is_some();
    if !there {
        skip(test, "needs qemu-img and qemu-io; run `make deps` as root");
    }
    there && require(test, &[Need::E2fsck])
}

/// Runs qemu-img and expects success.
fn qemu(arguments: &[&str]) -> String {
    let ran = Command::new("qemu-img").args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "qemu-img {arguments:?}: {said}");
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let dir = scratch_dir().join(format!("qcow2-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Scratch(dir)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn open(path: &str, read_only: bool) -> Arc<dyn BlockDevice> {
    device(Path::new(path), read_only).unwrap()
}

/// Bytes that a program gives.
struct Given(Vec<u8>);

impl ReadAt for Given {
    fn read_exact_at(&self, into: &mut [u8], at: u64) -> std::io::Result<()> {
        let from = usize::try_from(at).ok().and_then(|at| self.0.get(at..)?.get(..into.len()));
        into.copy_from_slice(from.ok_or(std::io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// The disk in the bytes of a file, without the file.
fn given(bytes: &[u8]) -> syncline_image::Result<Arc<dyn BlockDevice>> {
    let raw = Arc::new(MemoryDevice::from_bytes(bytes));
    disk_of(raw, Box::new(Given(bytes.to_vec())), bytes.len() as u64)
}

fn refusal(path: &str, read_only: bool) -> String {
    device(Path::new(path), read_only).err().expect("it is refused").to_string()
}

fn contents(dev: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; dev.geometry().size_bytes as usize];
    for (at, part) in (0..).step_by(1 << 16).zip(bytes.chunks_mut(1 << 16)) {
        dev.read(at, part, ORIGIN).unwrap();
    }
    bytes
}

/// An ext4 of 16 MiB with a file of bytes that do not compress and one that does.
fn raw_image(dir: &Scratch) -> String {
    let image = mkfs(&ImageSpec::with_size(16 << 20));
    let raw = dir.path("raw.img");
    std::fs::copy(image.path(), &raw).unwrap();
    fill(&raw);
    raw
}

fn noise(seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; 3 << 20];
    syncline_testkit::fill(seed, 0, &mut bytes);
    bytes
}

/// Writes two files through a volume.
fn fill(path: &str) {
    let image = Image::write(Path::new(path), &Opening::default()).unwrap();
    let root = image.vol.root().unwrap();
    for (name, bytes) in [("noise", noise(7)), ("even", vec![7; 1 << 20])] {
        let how = Create { mode: 0o644, uid: 0, gid: 0 };
        let file = image.vol.create(&root, name.as_bytes(), &how).unwrap();
        assert_eq!(image.vol.write(&file, 0, &bytes).unwrap(), bytes.len());
        image.vol.fsync(&file, false).unwrap();
    }
    drop(root);
    image.close(Ok::<_, syncline_image::ImageError>(())).unwrap();
}

#[test]
fn what_qemu_img_wrote_reads_as_the_raw_image() {
    let test = "what_qemu_img_wrote_reads_as_the_raw_image";
    if !has_qemu(test) {
        return;
    }
    let dir = Scratch::new("reads");
    let raw = raw_image(&dir);
    let expected = std::fs::read(&raw).unwrap();
    let target = dir.path("a.img");
    for options in [
        &["-o", "compat=1.1"][..],
        &["-o", "compat=0.10"],
        &["-c"],
        &["-c", "-o", "compression_type=zstd"],
        &["-c", "-o", "compression_type=zstd,cluster_size=4k"],
        &["-o", "cluster_size=4k,refcount_bits=1"],
        &["-o", "cluster_size=2M,preallocation=metadata"],
    ] {
        let convert = ["convert", "-f", "raw", "-O", "qcow2", &raw, &target];
        qemu(&[&convert[..1], options, &convert[1..]].concat());
        assert!(contents(&*open(&target, true)) == expected, "{options:?}");
        let bytes = std::fs::read(&target).unwrap();
        assert!(contents(&*given(&bytes).unwrap()) == expected, "without a file, {options:?}");
        // What was not closed is not read: its tables may be older than its data.
        let mut dirty = bytes;
        dirty[79] |= 1;
        let refused = given(&dirty).is_err();
        assert_eq!(refused, options != ["-o", "compat=0.10"], "{options:?}");
    }
}

#[test]
fn a_new_qcow2_takes_files_and_qemu_img_finds_no_fault() {
    let test = "a_new_qcow2_takes_files_and_qemu_img_finds_no_fault";
    if !has_qemu(test) {
        return;
    }
    let dir = Scratch::new("writes");
    let (target, raw) = (dir.path("new.qcow2"), dir.path("back.img"));
    let new = Mkfs { size_bytes: Some(64 << 20), time_s: Some(1_700_000_000), ..Mkfs::default() };
    new.make(Path::new(&target)).unwrap();
    let bytes = std::fs::read(&target).unwrap();
    assert!(bytes.len() < 16 << 20, "{} bytes for an empty volume", bytes.len());
    let disk = contents(&*open(&target, true));
    Mkfs { force: true, ..new }.make(Path::new(&target)).unwrap();
    // Its clusters may lie in another order.
    assert!(contents(&*open(&target, true)) == disk, "equal arguments, another disk");
    fill(&target);
    assert_eq!(std::fs::read_dir(&dir.0).unwrap().count(), 1, "a temporary file is left");
    qemu(&["check", "-q", "-f", "qcow2", &target]);
    qemu(&["convert", "-f", "qcow2", "-O", "raw", &target, &raw]);
    e2fsck_clean(Path::new(&raw)).unwrap();
    let image = Image::read(Path::new(&raw), &Opening::default()).unwrap();
    let file = image.vol.resolve(b"/noise").unwrap();
    let mut back = vec![0; 3 << 20];
    image.vol.read(&file, 0, &mut back).unwrap();
    assert!(back == noise(7));
}

#[test]
fn a_snapshot_in_the_file_keeps_its_bytes() {
    let test = "a_snapshot_in_the_file_keeps_its_bytes";
    if !has_qemu(test) {
        return;
    }
    let dir = Scratch::new("snapshot");
    let raw = raw_image(&dir);
    let before = std::fs::read(&raw).unwrap();
    let target = dir.path("a.qcow2");
    qemu(&["convert", "-c", "-f", "raw", "-O", "qcow2", &raw, &target]);
    qemu(&["snapshot", "-c", "before", &target]);
    let dev = open(&target, false);
    for at in [0, 5 << 20, 9 << 20] {
        dev.write(at, &[0xA5; 12_288], ORIGIN).unwrap();
    }
    drop(dev);
    qemu(&["check", "-q", "-f", "qcow2", &target]);
    qemu(&["snapshot", "-a", "before", &target]);
    assert!(contents(&*open(&target, true)) == before);
}

const ENCRYPTION: &str = "encryption";
/// Kind of compression in a qcow2 header.
const COMPRESSION_AT: u64 = 104;
/// `crypt_method` of a qcow2 header; 2 is LUKS.
const CRYPT_METHOD_AT: u64 = 32;

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let test = "what_is_not_supported_is_refused_by_name";
    if !has_qemu(test) {
        return;
    }
    let dir = Scratch::new("refused");
    let target = dir.path("a.qcow2");
    let data = format!("data_file={}", dir.path("a.data"));
    for (options, named) in [
        (&["-o", &data, &target, "1M"][..], "external data file"),
        (&["-o", "extended_l2=on", &target, "1M"], "extended L2 entries"),
        (&[&target, "1M"], ENCRYPTION),
    ] {
        let _ = std::fs::remove_file(&target);
        qemu(&[&["create", "-q", "-f", "qcow2"], options].concat());
        if named == ENCRYPTION {
            // qemu-img measures the processor before it makes one, and may fail to.
            let file = std::fs::OpenOptions::new().write(true).open(&target).unwrap();
            file.write_all_at(&2_u32.to_be_bytes(), CRYPT_METHOD_AT).unwrap();
        }
        for read_only in [true, false] {
            let said = refusal(&target, read_only);
            assert!(said.contains(named), "{named}: {said}");
            assert!(said.contains("; `qemu-img convert -O qcow2`"), "{said}");
        }
    }
    qemu(&["create", "-q", "-f", "qcow2", "-o", "compression_type=zstd", &target, "1M"]);
    assert!(refusal(&target, false).contains("zstd, which is only read; `qemu-img convert"));
    let file = std::fs::OpenOptions::new().write(true).open(&target).unwrap();
    file.write_all_at(&[2], COMPRESSION_AT).unwrap();
    assert!(refusal(&target, true).contains("another compression than zlib and zstd"));
    qemu(&["create", "-q", "-f", "qcow2", "-o", "compat=0.10", &target, "1M"]);
    assert!(refusal(&target, false).contains("; `qemu-img amend -f qcow2 -o compat=1.1`"));
}

/// Opens a qcow2 over others.
fn over(path: &str, backing: &[&str]) -> syncline_image::Result<Arc<dyn BlockDevice>> {
    opened_over(path, true, backing)
}

fn opened_over(
    path: &str,
    read_only: bool,
    backing: &[&str],
) -> syncline_image::Result<Arc<dyn BlockDevice>> {
    let backing: Vec<PathBuf> = backing.iter().map(PathBuf::from).collect();
    syncline_image::opened_device(Path::new(path), read_only, &backing, &|| {}, &())
}

/// Runs commands of qemu-io on a file.
fn qemu_io(path: &str, commands: &[String]) {
    let mut io = Command::new("qemu-io");
    for command in commands {
        io.args(["-c", command]);
    }
    let ran = io.arg(path).output().unwrap();
    assert!(ran.status.success(), "{commands:?}: {}", String::from_utf8_lossy(&ran.stderr));
}

/// A plain image, and two of the same disk over it: each has clusters with data, compressed ones
/// and ones of zeros, and the uppermost is larger.
#[test]
fn a_chain_of_files_is_read_as_qemu_reads_it() {
    if !has_qemu("a_chain_of_files_is_read_as_qemu_reads_it") {
        return;
    }
    let dir = Scratch::new("chain");
    let (raw, middle, top) = (raw_image(&dir), dir.path("middle"), dir.path("top"));
    let mut random = Random::new(3);
    for (options, below, format, path) in [
        ("cluster_size=4k", &raw, "raw", &middle),
        ("compression_type=zstd", &middle, "qcow2", &top),
    ] {
        qemu(&["create", "-q", "-f", "qcow2", "-o", options, "-b", below, "-F", format, path]);
        let mut commands = Vec::new();
        for nr in 0..30 {
            // A compressed cluster has no other data already.
            let (at, len) = ((nr * 37 % 60) << 18, 4096 * (1 + random.below(30)));
            let how = ["write", "write -z", "write -c"][random.index(3)];
            let (at, len) = if how == "write -c" { (at, 65536) } else { (at + 4096, len) };
            let filled =
                if how == "write -z" { String::new() } else { format!("-P {} ", at % 251) };
            commands.push(format!("{how} {filled}{at} {len}"));
        }
        qemu_io(path, &commands);
    }
    qemu(&["resize", "-q", "-f", "qcow2", &top, "20M"]);
    let flat = dir.path("flat");
    qemu(&["convert", "-O", "raw", &top, &flat]);
    let opened = over(&top, &[&middle, &raw]).unwrap();
    assert!(contents(&*opened) == std::fs::read(&flat).unwrap());
    assert!(opened.geometry().read_only);
    drop(opened);
    // Only what the caller names is opened, in its order.
    let said = |backing: &[&str]| over(&top, backing).err().expect("refused").to_string();
    assert!(said(&[]).contains("is over the file `") && said(&[]).contains("with --backing"));
    assert!(said(&[&middle]).contains("is over the file `"), "{}", said(&[&middle]));
    assert!(said(&[&raw, &middle]).contains("leave --backing away"));
    assert!(said(&[&middle, &raw, &raw]).contains("leave --backing away"));
    assert!(said(&[&middle, "/nowhere"]).contains("/nowhere"));
    let written = opened_over(&top, false, &[&middle, &raw]);
    assert!(written.err().unwrap().to_string().contains("with zstd, which is only read"));
    assert!(refusal(&top, false).contains("with --backing"));
    let other = dir.path("other");
    qemu(&["create", "-q", "-f", "qcow2", "-u", "-b", "/etc/passwd", "-F", "raw", &other, "1M"]);
    let opened = over(&other, &[&raw]).unwrap();
    assert!(contents(&*opened) == std::fs::read(&raw).unwrap()[..1 << 20]);
}

/// Writes to a disk and to its model; each write is in parts of a few sectors.
fn write_anywhere(dev: &dyn BlockDevice, model: &mut [u8], random: &mut Random) {
    let sectors = model.len() as u64 / SECTOR_BYTES;
    let longest = [3, 40, 400][random.index(3)];
    let len = SECTOR_BYTES * (1 + random.below(longest));
    let at = SECTOR_BYTES * random.below(sectors - len / SECTOR_BYTES + 1);
    let mut bytes = vec![0; len as usize];
    bytes.fill_with(|| random.bits() as u8);
    let part = SECTOR_BYTES as usize * (1 + random.index(9));
    let op = Op::Write { from: bytes.chunks(part).collect(), fua: random.below(9) == 0 };
    dev.submit(&mut [Request { offset_bytes: at, op, origin: ORIGIN }]).unwrap();
    model[at as usize..][..bytes.len()].copy_from_slice(&bytes);
}

/// The uppermost file takes the writes: qemu-img finds what was written, and no fault, also after a
/// kill. Its size is no multiple of a cluster, and it is longer than the files below.
#[test]
fn a_qcow2_over_others_is_written_as_qemu_reads_it() {
    if !has_qemu("a_qcow2_over_others_is_written_as_qemu_reads_it") {
        return;
    }
    let dir = Scratch::new("overlay");
    let raw = raw_image(&dir);
    let (middle, flat) = (dir.path("middle"), dir.path("flat"));
    qemu(&["create", "-q", "-f", "qcow2", "-b", &raw, "-F", "raw", &middle]);
    qemu_io(&middle, &["write -P 3 1M 300k", "write -z 3M 1M"].map(str::to_owned));
    let mut random = Random::new(8);
    for options in ["cluster_size=512", "cluster_size=4k", "cluster_size=64k", "cluster_size=2M"] {
        let top = dir.path(options);
        let (below, size) = (["-b", &middle, "-F", "qcow2"], (17 << 20) + 1536);
        let size_text = size.to_string();
        qemu(
            &[&["create", "-q", "-f", "qcow2", "-o", options][..], &below, &[&top, &size_text]]
                .concat(),
        );
        qemu_io(
            &top,
            &["write -c -P 9 2M 2M", "write -z 6M 2M", "write 9M 70k"].map(str::to_owned),
        );
        qemu(&["snapshot", "-c", "one", &top]);
        qemu(&["convert", "-O", "raw", &top, &flat]);
        let (mut model, files) = (std::fs::read(&flat).unwrap(), [&*middle, &raw]);
        assert_eq!(model.len(), size);
        let before = files.map(|file| std::fs::read(file).unwrap());
        for round in 0..3 {
            let dev = opened_over(&top, false, &files).unwrap();
            for _ in 0..60 {
                write_anywhere(&*dev, &mut model, &mut random);
            }
            assert!(contents(&*dev) == model, "{options}, round {round}");
            dev.flush(ORIGIN).unwrap();
            if round == 1 {
                // As if it had been killed: the next one repairs.
                let killed = std::fs::read(&top).unwrap();
                drop(dev);
                std::fs::write(&top, killed).unwrap();
            }
        }
        qemu(&["check", "-q", "-f", "qcow2", &top]);
        qemu(&["convert", "-O", "raw", &top, &flat]);
        assert!(std::fs::read(&flat).unwrap() == model, "{options}: as QEMU reads it");
        assert!(before == files.map(|file| std::fs::read(file).unwrap()), "never written");
        qemu(&["snapshot", "-a", "one", &top]);
        qemu(&["check", "-q", "-f", "qcow2", &top]);
    }
}

/// Threads that write to sectors of the same clusters lose none.
#[test]
fn writes_beside_each_other_over_another_file_are_all_kept() {
    if !has_qemu("writes_beside_each_other_over_another_file_are_all_kept") {
        return;
    }
    let dir = Scratch::new("beside");
    let (raw, top) = (raw_image(&dir), dir.path("top"));
    qemu(&["create", "-q", "-f", "qcow2", "-b", &raw, "-F", "raw", &top]);
    let dev = opened_over(&top, false, &[&raw]).unwrap();
    let sectors = 16 * CLUSTER_BYTES / SECTOR_BYTES;
    std::thread::scope(|threads| {
        for own in 0..4_u64 {
            let dev = &dev;
            threads.spawn(move || {
                for nr in (own..sectors).step_by(4) {
                    let bytes = [nr as u8; SECTOR_BYTES as usize];
                    dev.write(nr * SECTOR_BYTES, &bytes, ORIGIN).unwrap();
                    let mut found = bytes;
                    dev.read(nr * SECTOR_BYTES, &mut found, ORIGIN).unwrap();
                    assert!(found == bytes);
                }
            });
        }
    });
    let mut model = std::fs::read(&raw).unwrap();
    for (nr, sector) in model.chunks_mut(SECTOR_BYTES as usize).take(sectors as usize).enumerate() {
        sector.fill(nr as u8);
    }
    assert!(contents(&*dev) == model);
    drop(dev);
    qemu(&["check", "-q", "-f", "qcow2", &top]);
}

#[test]
fn a_file_that_was_cut_short_is_refused() {
    let test = "a_file_that_was_cut_short_is_refused";
    if !has_qemu(test) {
        return;
    }
    let dir = Scratch::new("cut");
    let (raw, whole) = (raw_image(&dir), dir.path("whole.qcow2"));
    qemu(&["convert", "-f", "raw", "-O", "qcow2", &raw, &whole]);
    let bytes = std::fs::read(&whole).unwrap();
    let target = dir.path("cut.qcow2");
    let last = (bytes.len() as u64 - 1) / CLUSTER_BYTES * CLUSTER_BYTES;
    for len in [512, 4096, CLUSTER_BYTES, 5 * CLUSTER_BYTES, last / 2, last] {
        std::fs::write(&target, &bytes[..len as usize]).unwrap();
        for read_only in [true, false] {
            let said = refusal(&target, read_only);
            let named = said.contains("was cut short") || said.contains("ends within its header");
            assert!(named && said.contains("; take another copy"), "{len}: {said}");
        }
        assert!(std::fs::read(&target).unwrap() == bytes[..len as usize], "it was written to");
    }
}

#[test]
fn fuzz_of_qcow2_files() {
    let test = "fuzz_of_qcow2_files";
    if !has_qemu(test) {
        return;
    }
    let dir = Scratch::new("fuzz");
    let target = dir.path("a.qcow2");
    let size = ["-o", "cluster_size=4k", &target, "4M"];
    qemu(&[&["create", "-q", "-f", "qcow2"][..], &size].concat());
    let dev = open(&target, false);
    for at in (0..4 << 20).step_by(96 << 10) {
        dev.write(at, &[0x5A; 8192], ORIGIN).unwrap();
    }
    drop(dev);
    let good = std::fs::read(&target).unwrap();
    let mut random = Random::new(11);
    let (mut rounds, mut opened) = (0_u64, 0_u64);
    for _ in FuzzRounds::at_least(300) {
        rounds += 1;
        let mut bytes = good.clone();
        for _ in 0..=random.below(3) {
            // Headers and tables, which are everywhere within the first clusters.
            let end = if random.one_in(2) { 112 } else { 10 * 4096 };
            bytes[random.index(end)] = random.bits() as u8;
        }
        // Not dirty: qemu-img is not what is tested.
        bytes[79] &= !1;
        if let Ok(dev) = given(&bytes) {
            let sectors = (dev.geometry().size_bytes / SECTOR_BYTES).clamp(1, 8192);
            for _ in 0..20 {
                let mut sector = [0; SECTOR_BYTES as usize];
                // Errors are fine.
                let _ = dev.read(random.below(sectors) * SECTOR_BYTES, &mut sector, ORIGIN);
            }
        }
        std::fs::write(&target, &bytes).unwrap();
        let Ok(dev) = device(Path::new(&target), random.one_in(2)) else { continue };
        opened += 1;
        let size = dev.geometry().size_bytes.min(8 << 20);
        let mut sector = [0; SECTOR_BYTES as usize];
        for _ in 0..20 {
            let at = random.below((size / SECTOR_BYTES).max(1)) * SECTOR_BYTES;
            // Errors are fine.
            let _ = dev.read(at, &mut sector, ORIGIN);
            let _ = dev.write(at, &sector, ORIGIN);
        }
        let _ = dev.flush(ORIGIN);
    }
    assert!(opened > rounds / 10, "{opened} of {rounds}: the mutations are too wild");
}

#[test]
fn a_virtual_machine_and_this_process_refuse_each_other() {
    let test = "a_virtual_machine_and_this_process_refuse_each_other";
    if !has_qemu(test) {
        return;
    }
    let dir = Scratch::new("lock");
    let target = dir.path("a.qcow2");
    qemu(&["create", "-q", "-f", "qcow2", &target, "1M"]);
    let dev = open(&target, false);
    let write = ["-f", "qcow2", "-c", "write 0 4k", &target];
    let ran = Command::new("qemu-io").args(write).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(!ran.status.success() && said.contains("lock"), "{said}");
    drop(dev);
    let mut machine = Command::new("qemu-io")
        .args(["-f", "qcow2", &target])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut orders = machine.stdin.take().unwrap();
    let mut answers = BufReader::new(machine.stdout.take().unwrap());
    orders.write_all(b"write 0 4k\n").unwrap();
    let mut line = String::new();
    while !line.contains("wrote") {
        line.clear();
        assert!(answers.read_line(&mut line).unwrap() > 0, "qemu-io ended");
    }
    for read_only in [false, true] {
        let said = refusal(&target, read_only);
        assert!(said.contains("perhaps a virtual machine; close that first"), "{said}");
    }
    drop(orders);
    machine.wait().unwrap();
    drop(open(&target, false));
}

/// The sectors of `before` and `after`, each from one of them: what a power cut may leave when
/// nothing was synced in between.
fn torn(before: &[u8], after: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = after.to_vec();
    let share = 1 + random.below(7);
    for (nr, sector) in bytes.chunks_mut(SECTOR_BYTES as usize).enumerate() {
        if random.below(8) < share {
            continue;
        }
        let at = nr * SECTOR_BYTES as usize;
        let old = before.get(at..(at + sector.len()).min(before.len())).unwrap_or_default();
        sector.fill(0);
        sector[..old.len()].copy_from_slice(old);
    }
    bytes
}

#[test]
fn what_a_flush_covered_survives_power_cuts() {
    let test = "what_a_flush_covered_survives_power_cuts";
    if !has_qemu(test) {
        return;
    }
    let dir = Scratch::new("cuts");
    let target = dir.path("a.qcow2");
    qemu(&["create", "-q", "-f", "qcow2", &target, "16M"]);
    cuts(&dir, &target, &[]);
    // What is below is there as long as it was not written over.
    let (raw, over) = (raw_image(&dir), dir.path("over.qcow2"));
    qemu(&["create", "-q", "-f", "qcow2", "-b", &raw, "-F", "raw", &over, "16M"]);
    cuts(&dir, &over, &[&raw]);
}

fn cuts(dir: &Scratch, target: &str, below: &[&str]) {
    let cut = dir.path("cut.qcow2");
    let mut random = Random::new(3);
    let dev = opened_over(target, false, below).unwrap();
    let size = 6_u64 << 20;
    let mut durable = contents(&*dev)[..size as usize].to_vec();
    for round in 1..=10_u8 {
        let flushed = std::fs::read(target).unwrap();
        let mut newest = durable.clone();
        for _ in 0..8 {
            let (at, len) = (random.below(size / 4096 - 8) * 4096, (1 + random.below(8)) * 4096);
            let bytes = vec![round; len as usize];
            dev.write(at, &bytes, ORIGIN).unwrap();
            newest[at as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        // The flush syncs this first, and the tables after it.
        let written = std::fs::read(target).unwrap();
        dev.flush(ORIGIN).unwrap();
        let tables = std::fs::read(target).unwrap();
        for (before, after) in [(&flushed, &written), (&written, &tables)] {
            for _ in 0..2 {
                std::fs::write(&cut, torn(before, after, &mut random)).unwrap();
                holds(&cut, below, &durable, &newest);
            }
        }
        std::fs::write(&cut, &tables).unwrap();
        holds(&cut, below, &newest, &newest);
        durable = newest;
    }
    drop(dev);
    qemu(&["check", "-q", "-f", "qcow2", target]);
}

/// Opens for writing, which repairs; each sector must be the old or the new one, and stay so when
/// more is written.
fn holds(path: &str, below: &[&str], old: &[u8], new: &[u8]) {
    let dev = opened_over(path, false, below).unwrap();
    let found = contents(&*dev);
    let sectors = |bytes: &[u8]| -> Vec<Vec<u8>> {
        bytes.chunks(SECTOR_BYTES as usize).map(<[u8]>::to_vec).collect()
    };
    let known = sectors(old).into_iter().zip(sectors(new));
    for (nr, (sector, (old, new))) in sectors(&found).into_iter().zip(known).enumerate() {
        assert!(sector == old || sector == new, "sector {nr} is of neither state");
    }
    // Beyond what the rounds use: a wrong refcount would give it a cluster that is in use.
    for at in (8_u64 << 20..16 << 20).step_by(1 << 20) {
        dev.write(at, &[0xEE; 4096], ORIGIN).unwrap();
    }
    dev.flush(ORIGIN).unwrap();
    assert!(contents(&*dev)[..old.len()] == found[..old.len()], "a cluster was given twice");
    drop(dev);
    qemu(&["check", "-q", "-f", "qcow2", path]);
}
