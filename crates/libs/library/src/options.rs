//! Options of an open, by the names of the mount options.

use syncline_fs::MountOptions;

use crate::error::Result;

/// Names beside those of [`MountOptions`].
const NAMES: [&str; 1] = ["nobackground"];

/// Options for opening an image.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Parses a comma-separated list: every mount option of COMPAT.md, and `nobackground`.
    ///
    /// # Errors
    /// EINVAL for an unknown name, with the nearest known one, or a bad value.
    pub fn parse(list: &str) -> Result<OpenOptions> {
        let mut options = OpenOptions::default();
        for item in list.split(',').filter(|item| !item.is_empty()) {
            match item {
                "nobackground" => options.background = false,
                _ => options.mount.apply_or(item, &NAMES)?,
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_options_and_those_of_a_library() {
        let options = OpenOptions::parse("ro,nobackground,cache=8M").unwrap();
        assert!(options.mount.read_only && !options.background);
        assert!(OpenOptions::parse("").unwrap().background);
        let err = OpenOptions::parse("nobackgrond").unwrap_err();
        assert_eq!(err.errno, 22);
        assert!(err.text.contains("`nobackground`"), "{err}");
    }
}
