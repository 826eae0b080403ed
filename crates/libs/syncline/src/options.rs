//! Options of an open, by the names of the mount options.

use syncline_fs::MountOptions;

use crate::error::{EINVAL, Error, Result};

/// Names beside those of [`MountOptions`].
const NAMES: [&str; 2] = ["nobackground", "durability=periodic"];

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
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions { mount: MountOptions::default(), background: true }
    }
}

impl OpenOptions {
    /// Changes fields.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Parses a comma-separated list: every mount option of COMPAT.md, `nobackground`, and
    /// `durability=strict` or `durability=periodic`: whether a sync makes its data durable, or the
    /// volume goes back to one sync point after a crash, at most `commit=` seconds old.
    ///
    /// # Errors
    /// EINVAL for an unknown name, with the nearest known one, or a bad value.
    pub fn parse(list: &str) -> Result<OpenOptions> {
        let mut options = OpenOptions::default();
        for item in list.split(',').filter(|item| !item.is_empty()) {
            match item.split_once('=') {
                None if item == "nobackground" => options.background = false,
                Some(("durability", level)) => options.mount.apply(sync_of(level)?)?,
                _ => options.mount.apply_or(item, &NAMES)?,
            }
        }
        Ok(options)
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
        for list in ["durability=relaxed", "durability=", "durability"] {
            assert_eq!(OpenOptions::parse(list).unwrap_err().errno, 22, "{list}");
        }
    }
}
