//! Full names of databases: the image on the host, two slashes, the path in the volume.
//!
//! ```text
//!   file:app.db?vfs=syncline&image=card.img   ──>   /home/me/card.img//app.db
//!                                                    image on the host  in the volume
//! ```
//!
//! SQLite makes the names of journals from a full name, and hands some of them over without the
//! parameters of the URI; so the name itself says the image. A full name may be opened too. Neither
//! part has two slashes of its own. Tested below.

use std::path::Path;

/// The full name of `path` in `image`, or of `path` alone if that is one already.
///
/// # Errors
/// A sentence with the next step.
pub(crate) fn full(path: &str, image: Option<&str>) -> Result<String, String> {
    let (image, path) = match (image, path.split_once("//")) {
        (Some(image), _) => (image, path),
        (None, Some((image, path))) => (image, path),
        (None, None) => {
            return Err(format!(
                "{path}: no image is named; open file:{path}?vfs=syncline&image=FILE"
            ));
        }
    };
    let host = std::fs::canonicalize(Path::new(image)).map_err(|err| {
        format!("{image}: {err}; name an ext4 image or a block device with image=")
    })?;
    let host = host.into_os_string().into_string().map_err(|_| {
        format!("{image}: the full path is not UTF-8; give it another name or a link to it")
    })?;
    let parts = path.split('/').filter(|part| !part.is_empty() && *part != ".");
    let path: String = parts.flat_map(|part| ["/", part]).collect();
    if path.is_empty() {
        return Err(format!(
            "{host}: no path in the volume; open file:NAME?vfs=syncline&image=..."
        ));
    }
    Ok(format!("{host}/{path}"))
}

/// The image and the path of a full name.
pub(crate) fn split(full: &str) -> Option<(&str, &str)> {
    let at = full.find("//")?;
    Some((&full[..at], &full[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_once_and_split_again() {
        let image = "/proc/self/../self/status";
        let made = full("a/.//b.db", Some(image)).unwrap();
        let (host, path) = split(&made).unwrap();
        assert!(host.ends_with("/status") && !host.contains(".."), "{host}");
        assert_eq!(path, "/a/b.db");
        assert_eq!(full(&made, None).unwrap(), made);
        assert_eq!(split(&format!("{made}-journal")).unwrap().1, "/a/b.db-journal");
        assert_eq!(split("/a.db"), None);
    }

    #[test]
    fn what_is_missing_is_said() {
        assert!(full("a.db", None).unwrap_err().contains("image=FILE"));
        assert!(full("a.db", Some("/no/such")).unwrap_err().contains("/no/such: No such file"));
        assert!(full("/", Some("/proc/version")).unwrap_err().contains("no path"));
    }
}
