//! Options of an open, by the names of the mount options.

use std::path::PathBuf;

use syncline_fs::MountOptions;

use crate::error::{EINVAL, Error, Result};

/// Names beside those of [`MountOptions`].
const NAMES: [&str; 4] = ["nobackground", "durability=periodic", "isolate", "backing"];

/// Options for opening an image: the defaults, changed by name or by [`OpenOptions::with`].
///
/// ```
/// use syncline::{OpenOptions, SyncMode};
///
/// let options = OpenOptions::parse("sync=periodic,commit=1,cache=8M")?;
/// assert_eq!(options.mount.sync, SyncMode::Periodic);
/// let reader = OpenOptions::default().with(|options| options.mount.read_only = true);
/// assert_eq!(reader, OpenOptions::parse("ro")?);
/// # Ok::<(), syncline::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenOptions {
    /// Options of the volume.
    pub mount: MountOptions,
    /// True if a thread commits and writes back at its time; without it [`crate::Disk::tick`] is
    /// the caller's to call.
    pub background: bool,
    /// The program `syncline` whose process reads the image in the place of this one: an empty path
    /// for the one that is installed. `None`: this process reads it.
    pub isolate: Option<PathBuf>,
    /// Files that a qcow2 is over, the next one first. The names in an image are never opened.
    pub backing: Vec<PathBuf>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        let mount = MountOptions::default();
        OpenOptions { mount, background: true, isolate: None, backing: Vec::new() }
    }
}

impl OpenOptions {
    /// Changes fields.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Parses a comma-separated list: every mount option of COMPAT.md, `nobackground`,
    /// `durability=strict` or `durability=periodic`: whether a sync makes its data durable, or the
    /// volume goes back to one sync point after a crash, at most `commit=` seconds old; and
    /// `isolate`, `isolate=1` or `isolate=PATH`: a contained process of the program `syncline`
    /// reads the image. With `ro`, `backing=FILE` names the file that a qcow2 is over, and given
    /// again the file below that; a path with a comma is put in double quotes.
    ///
    /// # Errors
    /// EINVAL for an unknown name, with the nearest known one, or a bad value.
    pub fn parse(list: &str) -> Result<OpenOptions> {
        let mut options = OpenOptions::default();
        for item in words(list).filter(|item| !item.is_empty()) {
            match item.split_once('=') {
                None if item == "nobackground" => options.background = false,
                None if item == "isolate" => options.isolate = Some(PathBuf::new()),
                Some(("backing", file)) => options.backing.push(file_of(file)?),
                Some(("isolate", program)) => options.isolate = program_of(program)?,
                Some(("durability", level)) => options.mount.apply(sync_of(level)?)?,
                _ => options.mount.apply_or(item, &NAMES)?,
            }
        }
        Ok(options)
    }
}

/// The words of a list. A comma between double quotes separates none.
fn words(list: &str) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    list.split(move |letter| {
        is_quoted ^= letter == '"';
        letter == ',' && !is_quoted
    })
}

/// The file of `backing=`.
fn file_of(given: &str) -> Result<PathBuf> {
    let inner = given.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    match inner.unwrap_or(given) {
        "" => Err(Error::invalid("backing=: name the file that the image is over")),
        file => Ok(file.into()),
    }
}

/// The program of `isolate=`.
fn program_of(given: &str) -> Result<Option<PathBuf>> {
    match given {
        "0" => Ok(None),
        "1" => Ok(Some(PathBuf::new())),
        path if path.contains('/') => Ok(Some(path.into())),
        _ => {
            let text = format!("isolate={given}: give 1, or the path of the program syncline");
            Err(Error::new(EINVAL, text))
        }
    }
}

/// The mount option of a level of durability.
fn sync_of(level: &str) -> Result<&'static str> {
    match level {
        "strict" => Ok("sync=eager"),
        "periodic" => Ok("sync=periodic"),
        _ => Err(Error::new(EINVAL, format!("durability={level}: give strict or periodic"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_fs::SyncMode;

    #[test]
    fn mount_options_and_those_of_a_library() {
        let options = OpenOptions::parse("ro,nobackground,cache=8M").unwrap();
        assert!(options.mount.read_only && !options.background);
        assert!(OpenOptions::parse("").unwrap().background);
        let err = OpenOptions::parse("nobackgrond").unwrap_err();
        assert_eq!(err.errno, 22);
        assert!(err.text.contains("`nobackground`"), "{err}");
        let sync = |list: &str| OpenOptions::parse(list).unwrap().mount.sync;
        assert_eq!(sync("commit=1,durability=periodic"), SyncMode::Periodic);
        assert_eq!(sync("sync=ordered,durability=strict"), SyncMode::Eager);
        let isolate = |list: &str| OpenOptions::parse(list).unwrap().isolate;
        assert_eq!((isolate("isolate"), isolate("ro")), (Some(PathBuf::new()), None));
        assert_eq!(
            (isolate("isolate=1"), isolate("isolate,isolate=0")),
            (isolate("isolate"), None)
        );
        assert_eq!(isolate("isolate=./syncline,ro"), Some("./syncline".into()));
        let backing = |list: &str| OpenOptions::parse(list).unwrap().backing;
        assert_eq!(backing("ro,backing=a,backing=b"), [PathBuf::from("a"), "b".into()]);
        assert_eq!(backing("backing=\"a,b\",ro"), [PathBuf::from("a,b")]);
        for list in [
            "backing=",
            "backing",
            "backing=\"\"",
            "durability=relaxed",
            "durability=",
            "durability",
            "isolate=",
            "isolate=yes",
        ] {
            assert_eq!(OpenOptions::parse(list).unwrap_err().errno, 22, "{list}");
        }
    }
}
