//! Images made by stock mke2fs, the same bytes each time.
//!
//! UUID, hash seed and time are fixed, inode tables and the journal are written out, nothing is
//! discarded: with the same e2fsprogs two calls give the same bytes. Features are the installed
//! mke2fs' defaults plus or minus what the spec says.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::env::{program, scratch_dir};

/// The volume UUID of every test image.
const UUID: &str = "5c1e1f5e-0000-4000-8000-000000000001";
/// The directory hash seed of every test image.
const HASH_SEED: &str = "5c1e1f5e-0000-4000-8000-000000000002";
/// The time that e2fsprogs sees, seconds since 1970.
const FAKE_TIME_S: &str = "1700000000";

/// Parameters for mke2fs. Start from `ImageSpec::default()`: 32 MiB, 4 KiB blocks, stock features.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageSpec {
    /// Size of the image in bytes.
    pub size_bytes: u64,
    /// Block size in bytes: 1024, 2048 or 4096.
    pub block_size_bytes: u32,
    /// mke2fs' file system type: `ext4`, `ext3`, `ext2`.
    pub fs_type: &'static str,
    /// For `-O`: features on top of the defaults, `^name` removes one. Empty: the defaults.
    pub features: String,
    /// Inode size in bytes, if not the default.
    pub inode_size_bytes: Option<u32>,
    /// Number of inodes, if not the default.
    pub inode_count: Option<u32>,
    /// Journal size in MiB, if not the default.
    pub journal_size_mib: Option<u32>,
    /// Blocks per group, if not the default.
    pub blocks_per_group: Option<u32>,
    /// Cluster size in bytes (`-C`), with the feature `bigalloc`.
    pub cluster_size_bytes: Option<u32>,
    /// More `-E` options, without a leading comma.
    pub extended: String,
    /// A directory whose contents are copied into the new image.
    pub contents: Option<PathBuf>,
}

impl Default for ImageSpec {
    fn default() -> Self {
        Self {
            size_bytes: 32 << 20,
            block_size_bytes: 4096,
            fs_type: "ext4",
            features: String::new(),
            inode_size_bytes: None,
            inode_count: None,
            journal_size_mib: None,
            blocks_per_group: None,
            cluster_size_bytes: None,
            extended: String::new(),
            contents: None,
        }
    }
}

impl ImageSpec {
    /// The default spec in another size.
    #[must_use]
    pub fn with_size(size_bytes: u64) -> Self {
        Self { size_bytes, ..Self::default() }
    }

    fn arguments(&self) -> Vec<OsString> {
        let mut extended = format!(
            "hash_seed={HASH_SEED},nodiscard,lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0"
        );
        if !self.extended.is_empty() {
            extended.push(',');
            extended.push_str(&self.extended);
        }
        let mut arguments: Vec<OsString> = Vec::new();
        let mut option = |flag: &str, value: String| {
            arguments.push(flag.into());
            arguments.push(value.into());
        };
        option("-t", self.fs_type.to_owned());
        option("-b", self.block_size_bytes.to_string());
        option("-U", UUID.to_owned());
        option("-E", extended);
        if !self.features.is_empty() {
            option("-O", self.features.clone());
        }
        if let Some(size) = self.inode_size_bytes {
            option("-I", size.to_string());
        }
        if let Some(count) = self.inode_count {
            option("-N", count.to_string());
        }
        if let Some(size) = self.journal_size_mib {
            option("-J", format!("size={size}"));
        }
        if let Some(blocks) = self.blocks_per_group {
            option("-g", blocks.to_string());
        }
        if let Some(size) = self.cluster_size_bytes {
            option("-C", size.to_string());
        }
        if let Some(dir) = &self.contents {
            arguments.push("-d".into());
            arguments.push(dir.into());
        }
        arguments
    }
}

/// An image file that disappears with this value.
#[derive(Debug)]
pub struct TempImage {
    path: tempfile::TempPath,
}

impl TempImage {
    /// An image of `size_bytes` zeros, sparse, in the scratch directory.
    ///
    /// # Panics
    /// If the file cannot be made.
    #[must_use]
    pub fn zeroed(size_bytes: u64) -> Self {
        let file = tempfile::Builder::new()
            .prefix("syncline-")
            .suffix(".img")
            .tempfile_in(scratch_dir())
            .expect("the scratch directory takes files");
        file.as_file().set_len(size_bytes).expect("the scratch directory has room");
        Self { path: file.into_temp_path() }
    }

    /// An image of [`tiny_ext4`].
    ///
    /// # Panics
    /// If the file cannot be made.
    #[must_use]
    pub fn tiny() -> Self {
        let image = Self::zeroed(0);
        std::fs::write(image.path(), tiny_ext4()).expect("the scratch directory has room");
        image
    }

    /// The image's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A second image with the same bytes.
    ///
    /// # Panics
    /// If the copy fails.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        copy_of(self.path())
    }

    /// The image's bytes.
    ///
    /// # Panics
    /// If it cannot be read.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.path()).expect("the image can be read")
    }
}

/// The bytes of an ext4 of 4 MiB, for tests that need no mke2fs: blocks of 1 KiB, a journal of 1
/// MiB, 128 inodes, and all features of e2fsprogs 1.47 but `resize_inode`.
///
/// `tiny.ext4.runs` has its runs of bytes that are not all zero, each behind its offset (32 bits)
/// and its length (16 bits), little endian.
#[must_use]
pub fn tiny_ext4() -> Vec<u8> {
    let mut image = vec![0; 4 << 20];
    let mut runs = include_bytes!("tiny.ext4.runs").as_slice();
    while let Some(([o0, o1, o2, o3, l0, l1], rest)) = runs.split_first_chunk() {
        let offset = u32::from_le_bytes([*o0, *o1, *o2, *o3]) as usize;
        let (run, rest) = rest.split_at(u16::from_le_bytes([*l0, *l1]).into());
        image[offset..][..run.len()].copy_from_slice(run);
        runs = rest;
    }
    image
}

/// A copy of the image at `path`; holes stay holes.
pub(crate) fn copy_of(path: &Path) -> TempImage {
    let copy = TempImage::zeroed(0);
    let status = Command::new(program("cp"))
        .args(["--sparse=always", "--reflink=auto"])
        .arg(path)
        .arg(copy.path())
        .status();
    assert!(status.is_ok_and(|s| s.success()), "{} cannot be copied", path.display());
    copy
}

/// Makes an image. Tests that call it first ask `require(.., &[Need::E2fsck])`.
///
/// # Panics
/// If mke2fs fails, with what it said.
#[must_use]
pub fn mkfs(spec: &ImageSpec) -> TempImage {
    let image = TempImage::zeroed(spec.size_bytes);
    let output = Command::new(program("mke2fs"))
        .env("E2FSPROGS_FAKE_TIME", FAKE_TIME_S)
        .args(["-q", "-F"])
        .args(spec.arguments())
        .arg(image.path())
        .output()
        .expect("mke2fs runs; tests ask require(Need::E2fsck) first");
    assert!(
        output.status.success(),
        "mke2fs {:?} failed: {}",
        spec.arguments(),
        String::from_utf8_lossy(&output.stderr)
    );
    image
}

/// Runs debugfs on the image with one request per line of `commands`, writable, and gives back what
/// it printed on both streams. debugfs exits with 0 even if a request fails: look at the text.
///
/// # Panics
/// If debugfs cannot be run.
#[must_use]
pub fn debugfs(path: &Path, commands: &str) -> String {
    debugfs_by(Command::new(program("debugfs")), path, commands).0
}

/// The same, by a command that runs debugfs with the arguments that it gets; false if a signal
/// ended it.
fn debugfs_by(mut command: Command, path: &Path, commands: &str) -> (String, bool) {
    let mut script = tempfile::NamedTempFile::new().expect("the temporary directory takes files");
    std::io::Write::write_all(&mut script, commands.as_bytes()).expect("the script can be written");
    let output = command
        .env("DEBUGFS_PAGER", "__none__")
        .env("E2FSPROGS_FAKE_TIME", FAKE_TIME_S)
        .arg("-w")
        .arg("-f")
        .arg(script.path())
        .arg(path)
        .output()
        .expect("debugfs runs; tests ask require(Need::E2fsck) first");
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    (text, output.status.code().is_some())
}

/// Reads all regular files and symbolic links of an image with debugfs; a link has its target as
/// bytes. What debugfs cannot read is missing. Of each file the first 16 MiB are read: one of a
/// damaged image may be all holes, which debugfs writes out.
///
/// # Panics
/// If debugfs cannot be run, or the temporary directory takes no files, or they take more than 20 s
/// of processor time.
#[must_use]
pub fn files_of(image: &Path) -> BTreeMap<String, Vec<u8>> {
    files_in_time(image).expect("the files are short")
}

/// As [`files_of`]; `None` if that takes more than 20 s of processor time, because a file of a
/// damaged image is many terabytes long.
///
/// # Panics
/// If debugfs cannot be run, or the temporary directory takes no files.
#[must_use]
pub fn files_in_time(image: &Path) -> Option<BTreeMap<String, Vec<u8>>> {
    let place = tempfile::tempdir().expect("the temporary directory takes files");
    let mut command = Command::new("sh");
    let bounded = "trap '' XFSZ; ulimit -f 32768; ulimit -t 20; exec \"$0\" \"$@\"";
    command.args(["-c", bounded]).arg(program("debugfs"));
    let dump = format!("rdump / {}\n", place.path().display());
    let (_, ended) = debugfs_by(command, image, &dump);
    if !ended {
        return None;
    }
    let mut found = BTreeMap::new();
    let mut next = vec![place.path().to_owned()];
    while let Some(dir) = next.pop() {
        for entry in std::fs::read_dir(&dir).expect("debugfs made it").flatten() {
            let path = entry.path();
            let kind = entry.file_type().expect("it is there");
            let name = path.strip_prefix(place.path()).expect("it is below").display().to_string();
            if kind.is_dir() {
                next.push(path);
            } else if kind.is_symlink() {
                let target = std::fs::read_link(&path).expect("it is there");
                found.insert(name, target.into_os_string().into_encoded_bytes());
            } else if kind.is_file() {
                found.insert(name, std::fs::read(&path).expect("it is there"));
            }
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Need, e2fsck_clean, require};

    #[test]
    fn same_spec_same_bytes() {
        if !require("same_spec_same_bytes", &[Need::E2fsck]) {
            return;
        }
        for block_size_bytes in [1024, 2048, 4096] {
            let spec = ImageSpec { block_size_bytes, ..ImageSpec::with_size(8 << 20) };
            let (one, two) = (mkfs(&spec), mkfs(&spec));
            assert!(one.bytes() == two.bytes(), "{block_size_bytes} B blocks differ");
            e2fsck_clean(one.path()).unwrap();
        }
    }

    #[test]
    fn the_tiny_image_is_clean() {
        if require("the_tiny_image_is_clean", &[Need::E2fsck]) {
            e2fsck_clean(TempImage::tiny().path()).unwrap();
        }
    }

    #[test]
    fn the_spec_reaches_mke2fs() {
        if !require("the_spec_reaches_mke2fs", &[Need::E2fsck]) {
            return;
        }
        let contents = tempfile::tempdir().unwrap();
        std::fs::write(contents.path().join("hello"), "hello\n").unwrap();
        let image = mkfs(&ImageSpec {
            features: "orphan_file,^huge_file".into(),
            inode_count: Some(512),
            journal_size_mib: Some(4),
            contents: Some(contents.path().to_owned()),
            ..ImageSpec::default()
        });
        let shown = debugfs(image.path(), "stats -h\ncat /hello\n");
        assert!(shown.contains("orphan_file"), "{shown}");
        assert!(!shown.contains("huge_file"), "{shown}");
        assert!(shown.lines().any(|l| l.starts_with("Inode count:") && l.ends_with(" 512")));
        assert!(shown.contains("hello\n"), "{shown}");
        assert!(shown.contains("5c1e1f5e-0000-4000-8000-000000000001"), "{shown}");
    }
}
