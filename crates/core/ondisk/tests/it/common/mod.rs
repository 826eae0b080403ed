//! Images made by stock mke2fs, for the tests of this crate.

#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

use syncline_ondisk::{Geometry, Superblock};

/// The kinds of file system the tests go through: name, size in MiB, mke2fs arguments.
pub const KINDS: &[(&str, u64, &[&str])] = &[
    ("default-4k", 24, &["-t", "ext4", "-b", "4096", "-g", "2048"]),
    ("default-2k", 24, &["-t", "ext4", "-b", "2048"]),
    ("default-1k", 24, &["-t", "ext4", "-b", "1024"]),
    ("32bit", 24, &["-t", "ext4", "-b", "4096", "-O", "^64bit"]),
    ("gdt-csum", 24, &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,uninit_bg"]),
    ("no-csum", 24, &["-t", "ext4", "-b", "4096", "-O", "^metadata_csum,^uninit_bg"]),
    ("ext3", 24, &["-t", "ext3", "-b", "1024"]),
    ("ext2-128", 16, &["-t", "ext2", "-b", "1024", "-I", "128"]),
    ("meta-bg", 24, &["-t", "ext4", "-b", "1024", "-g", "256", "-O", "meta_bg,^resize_inode"]),
    ("sparse2", 24, &["-t", "ext4", "-b", "1024", "-O", "sparse_super2,^resize_inode"]),
    ("seed", 24, &["-t", "ext4", "-b", "4096", "-O", "metadata_csum_seed,orphan_file"]),
    ("small-groups", 24, &["-t", "ext4", "-b", "1024", "-g", "1024", "-I", "512"]),
    ("mmp", 24, &["-t", "ext4", "-b", "4096", "-O", "mmp"]),
];

pub use syncline_testkit::skip;

/// Path of an e2fsprogs program, if installed.
pub fn program(name: &str) -> Option<PathBuf> {
    ["/usr/sbin", "/sbin", "/usr/bin"].iter().map(|d| Path::new(d).join(name)).find(|p| p.exists())
}

/// An image file in a temporary directory.
pub struct Image {
    dir: tempfile::TempDir,
}

impl Image {
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    /// The image's bytes.
    pub fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.path()).unwrap()
    }

    /// Runs one debugfs request that changes the image.
    pub fn debugfs_write(&self, request: &str) {
        self.run_debugfs(&["-w", "-R", request]);
    }

    /// Runs one debugfs request and gives its output. Not writable: with `mmp` that waits 11 s.
    pub fn debugfs(&self, request: &str) -> String {
        self.run_debugfs(&["-R", request])
    }

    fn run_debugfs(&self, args: &[&str]) -> String {
        let out = Command::new(program("debugfs").expect("it comes with mke2fs"))
            .args(args)
            .arg(self.path())
            .output()
            .unwrap();
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    /// `e2fsck -fn`: exit code and output.
    pub fn e2fsck(&self) -> (i32, String) {
        let out = Command::new(program("e2fsck").expect("it comes with mke2fs"))
            .args(["-fn"])
            .arg(self.path())
            .output()
            .unwrap();
        (out.status.code().unwrap_or(-1), String::from_utf8_lossy(&out.stdout).into_owned())
    }
}

/// A directory in memory where there is such a place: e2fsprogs sync, which costs seconds on a
/// disk.
pub fn temp_dir() -> tempfile::TempDir {
    let shm = Path::new("/dev/shm");
    if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() }.unwrap()
}

/// Makes an image. `None`: mke2fs is missing or refuses the options (an older one).
pub fn mke2fs(size_mib: u64, args: &[&str], populate: Option<&Path>) -> Option<Image> {
    let dir = temp_dir();
    let image = Image { dir };
    std::fs::File::create(image.path()).unwrap().set_len(size_mib << 20).unwrap();
    let mut command = Command::new(program("mke2fs")?);
    command.args(["-q", "-F", "-U", "6a7e6b1c-0d3f-4c50-9a53-6a0ff8f0d111"]);
    command.args(["-E", "hash_seed=5a6d1f00-89ab-4cde-8123-456789abcdef,nodiscard"]);
    command.args(args);
    if let Some(tree) = populate {
        command.arg("-d").arg(tree);
    }
    let out = command.arg(image.path()).output().unwrap();
    if !out.status.success() {
        eprintln!("mke2fs {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        return None;
    }
    Some(image)
}

/// Superblock and geometry of an image.
pub fn open(bytes: &[u8]) -> (Superblock, Geometry) {
    let sb = Superblock::decode(&bytes[1024..2048]).unwrap();
    let geo = Geometry::new(&sb, bytes.len() as u64).unwrap();
    (sb, geo)
}

/// One block of an image.
pub fn block<'a>(bytes: &'a [u8], geo: &Geometry, nr: u64) -> &'a [u8] {
    let at = usize::try_from(nr).unwrap() * geo.block_size;
    &bytes[at..at + geo.block_size]
}
