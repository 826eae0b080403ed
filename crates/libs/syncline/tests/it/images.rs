//! Disks in the files of other programs: a qcow2 over others, a split sparse image, and compressed
//! ones. The crate that reads them tests what is in them.

use std::path::{Path, PathBuf};
use std::process::Command;

use syncline::{Access, Disk, Error, FileDevice, FileOptions, Make, OpenOptions};
use syncline_testkit::skip;

use crate::{alone, isolated};

/// An ext4 with the file /motd.
fn raw(dir: &Path) -> PathBuf {
    let path = dir.join("ra,w.img");
    Make::default().with(|make| make.size_bytes = Some(4 << 20)).image(&path).unwrap();
    let disk = Disk::open(&path, &OpenOptions::default()).unwrap();
    disk.open_file(b"/motd", Access::CREATE, 0o644).unwrap().write(b"hello\n").unwrap();
    disk.close().unwrap();
    path
}

fn options(list: &str) -> OpenOptions {
    OpenOptions::parse(list).unwrap()
}

fn refused(path: &Path, options: &OpenOptions) -> Error {
    match Disk::open(path, options) {
        Err(err) => err,
        Ok(_) => panic!("{} is opened", path.display()),
    }
}

/// The file is there, and the files are locked as long as the disk is open.
fn reads(path: &Path, options: &OpenOptions, files: &[&Path]) {
    let writes = |file: &&Path| FileDevice::open(file, FileOptions::default()).is_ok();
    let disk = Disk::open(path, options).unwrap();
    let mut text = [0; 10];
    let file = disk.open_file(b"/motd", Access::READ, 0).unwrap();
    assert_eq!(file.read(&mut text).unwrap(), 6);
    assert_eq!(disk.mkdir(b"/no", 0o755).unwrap_err().errno, 30);
    assert!(!files.iter().any(writes), "locked");
    disk.close().unwrap();
    drop((file, disk));
    assert!(files.iter().all(writes), "free");
}

#[test]
fn a_split_sparse_image_is_read() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let bytes = std::fs::read(raw(dir.path())).unwrap();
    let half = bytes.len() / 2;
    let numbers = |numbers: &[usize]| -> Vec<u8> {
        numbers.iter().flat_map(|number| (*number as u32).to_le_bytes()).collect()
    };
    let start = numbers(&[0xED26_FF3A, 1, 12 << 16 | 28, 4096, bytes.len() / 4096, 2, 0]);
    let data = numbers(&[0xCAC1, half / 4096, 12 + half]);
    let nothing = numbers(&[0xCAC3, half / 4096, 12]);
    let [first, second] = ["system.0", "system.1"].map(|name| dir.path().join(name));
    std::fs::write(&first, [&start[..], &data, &bytes[..half], &nothing].concat()).unwrap();
    std::fs::write(&second, [&start[..], &nothing, &data, &bytes[half..]].concat()).unwrap();
    reads(&first, &options("ro"), &[&first, &second]);
    let err = refused(&second, &options("ro"));
    assert!(err.errno == 22 && err.text.contains("name the first, "), "{err}");
    assert_eq!(refused(&first, &options("")).errno, 95);
    let err = refused(&first, &isolated("ro"));
    assert!(err.errno == 95 && err.text.contains("open it without `isolate`"), "{err}");
    std::fs::write(&second, "no sparse image").unwrap();
    assert_eq!(refused(&first, &options("ro")).errno, 117);
}

#[test]
fn a_compressed_image_is_read() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let raw = raw(dir.path());
    for program in ["gzip", "zstd", "xz", "bzip2", "lz4"] {
        let path = dir.path().join(program);
        let packed = Command::new(program).arg("-c").arg(&raw).output();
        let Some(packed) = packed.ok().filter(|ran| ran.status.success()) else {
            skip("a_compressed_image_is_read", &format!("needs {program}"));
            continue;
        };
        std::fs::write(&path, &packed.stdout).unwrap();
        reads(&path, &options("ro"), &[&path]);
        let report = syncline::check(&path, &mut |_| true).unwrap();
        assert!(report.is_clean(), "{program}");
        let err = refused(&path, &options(""));
        assert!(err.errno == 95 && err.text.contains("only read; unpack it first"), "{err}");
        assert_eq!(refused(&path, &isolated("ro")).errno, 95);
        std::fs::write(&path, &packed.stdout[..packed.stdout.len() - 5]).unwrap();
        let err = refused(&path, &options("ro"));
        assert!(err.errno == 117 && err.text.contains("is damaged"), "{err}");
    }
}

#[test]
fn a_qcow2_over_others_is_read() {
    let test = "a_qcow2_over_others_is_read";
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let base = raw(dir.path());
    let [mid, top, alone] = ["mid", "top", "alone"].map(|name| dir.path().join(name));
    for (path, below) in [(&mid, "/etc/passwd"), (&top, "/no/such")] {
        let mut make = Command::new("qemu-img");
        make.args(["create", "-q", "-u", "-f", "qcow2", "-F", "raw", "-b", below]);
        if !make.arg(path).arg("4M").status().is_ok_and(|status| status.success()) {
            return skip(test, "needs qemu-img");
        }
    }
    let convert = ["convert", "-f", "raw", "-O", "qcow2"];
    assert!(
        Command::new("qemu-img").args(convert).args([&base, &alone]).status().unwrap().success()
    );
    let list = format!("ro,backing={},backing=\"{}\"", mid.display(), base.display());
    reads(&top, &options(&list), &[&top, &mid, &base]);
    let fields = options("ro").with(|options| options.backing = vec![mid.clone(), base.clone()]);
    assert_eq!(options(&list), fields);
    reads(&mid, &options("ro").with(|options| options.backing = vec![base.clone()]), &[&mid]);
    reads(&alone, &options("ro"), &[&alone]);
    let err = refused(&alone, &options(""));
    assert!(err.errno == 95 && err.text.contains("open it with `ro`"), "{err}");
    let over = |files: &[&Path]| {
        options("ro").with(|options| options.backing = files.iter().map(PathBuf::from).collect())
    };
    for (files, errno, text) in [
        (&[][..], 95, "which is not opened because the image names it"),
        (&[&*mid], 95, "is over the file `/etc/passwd`"),
        (&[&*base, &mid], 22, "leave --backing away"),
        (&[Path::new("/no/such")], 2, "/no/such: "),
    ] {
        let err = refused(&top, &over(files));
        assert!(err.errno == errno && err.text.contains(text), "{files:?}: {err}");
    }
    let err = refused(&base, &over(&[&mid]));
    assert!(err.errno == 22 && err.text.contains("it is no qcow2"), "{err}");
    let err = refused(&mid, &isolated("ro").with(|options| options.backing = vec![base.clone()]));
    assert!(err.errno == 95 && err.text.contains("open it without `isolate`"), "{err}");
    let held = FileDevice::open(&base, FileOptions::default()).unwrap();
    assert_eq!(refused(&mid, &over(&[&base])).errno, 16);
    drop(held);
}
