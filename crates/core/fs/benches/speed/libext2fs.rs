//! libext2fs, the user-space ext4 of e2fsprogs, by a small C program of our own.
//!
//! Its directories are searched in order (it neither uses nor keeps the hash index), so the cost of
//! a name grows with their number; it gets at most [`NAMES_MAX`] names.

use std::path::Path;
use std::process::Command;

use super::{Figures, Sizes, Subject, Work, gb, image_spec};

/// Names that it gets.
const NAMES_MAX: usize = 5_000;

pub(super) struct Library {
    program: tempfile::TempPath,
}

/// A copy of a file in memory, where there is a place for it.
pub(super) fn in_memory(file: &Path) -> Result<tempfile::TempPath, String> {
    let shm = Path::new("/dev/shm");
    let place = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
    let copy = tempfile::Builder::new()
        .prefix("syncline-speed-")
        .tempfile_in(place)
        .map_err(|err| err.to_string())?
        .into_temp_path();
    std::fs::copy(file, &copy).map_err(|err| err.to_string())?;
    Ok(copy)
}

impl Library {
    pub(super) fn new() -> Result<Library, String> {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/speed/libext2fs.c");
        let program = tempfile::Builder::new()
            .prefix("syncline-speed-")
            .tempfile()
            .map_err(|err| err.to_string())?
            .into_temp_path();
        let compiled = Command::new("cc")
            .args(["-O2", "-o"])
            .arg(&program)
            .args([source, "-lext2fs", "-lcom_err"])
            .output();
        match compiled {
            Ok(output) if output.status.success() => Ok(Library { program }),
            _ => {
                Err("needs cc and libext2fs (apt-get install build-essential libext2fs-dev)".into())
            }
        }
    }
}

impl Subject for Library {
    fn round(&mut self, sizes: &Sizes) -> Result<Figures, String> {
        let names = sizes.names.min(NAMES_MAX);
        let image = in_memory(syncline_testkit::mkfs(&image_spec()).path())?;
        let output = Command::new(&self.program)
            .arg(&image)
            .args([names as u64, sizes.overwrites / 10, sizes.file_mib].map(|n| n.to_string()))
            .output()
            .map_err(|err| err.to_string())?;
        let said = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            return Err(format!("it failed: {}", String::from_utf8_lossy(&output.stderr)));
        }
        let seconds: Vec<f64> = said.split_whitespace().filter_map(|s| s.parse().ok()).collect();
        let names = names as f64;
        let file = gb(sizes.file_mib << 20);
        let units = [
            (Work::Create, names),
            (Work::Lookup, names),
            (Work::List, names),
            (Work::Unlink, names / 2.0),
            (Work::Overwrite, gb(sizes.overwrites / 10 * 4096)),
            (Work::Write, file),
            (Work::ReadCold, file),
        ];
        Ok(units.iter().zip(seconds).map(|((work, units), s)| (*work, s / units)).collect())
    }
}
