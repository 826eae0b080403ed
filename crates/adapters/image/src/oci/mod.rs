//! Container images as trees: OCI layouts, what `docker save` writes, and plain layers.
//!
//! ```text
//!   Source ("oci:DIR:TAG") -> Store (a directory, or the members of an archive)
//!          -> index -> manifest -> configuration      layout, docker: which layers, with digests
//!          -> Layers -> merge -> a new tree           the last layer first
//! ```
//!
//! Promises
//! - Nothing is unpacked on this system. Of an archive in a pipe, or a compressed one, the bytes
//!   are kept in a file without a name beside the new image.
//! - Every digest is checked: of the index's manifests, the configuration, the layers as they are
//!   stored, and their uncompressed bytes (`diff_ids`) where the image names them.
//! - Names in documents lead to blobs only: a digest is hexadecimal, and a path stays in its
//!   archive. Documents have at most [`DOCUMENT_BYTES_MAX`], indexes at most [`NESTED_MAX`] levels.
//! - What is not read is refused by name: manifests of schema 1, encrypted and foreign layers,
//!   artifacts that are no container images.
//!
//! Fetching from registries is the work of other tools (skopeo, crane). Tested in
//! `cli/tests/it/layers.rs`.

mod digest;
mod docker;
mod documents;
mod layer;
mod layout;
mod merge;
mod platform;
mod saved;
mod store;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

pub use layer::Layers;
pub use platform::Platform;

use crate::platform::{bytes_of, path_of};
use crate::{ImageError, Result, Watch};

/// Longest document of an image.
const DOCUMENT_BYTES_MAX: u64 = 8 << 20;
/// Indexes in indexes.
const NESTED_MAX: usize = 8;

/// Forms of container images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `oci:`, the directory of an OCI layout.
    Layout,
    /// `oci-archive:`, an archive of such a directory.
    Archive,
    /// `docker-archive:`, what `docker save` writes.
    Docker,
}

/// Names of the forms, those that skopeo has.
const FORMS: [(&[u8], Form); 3] =
    [(b"oci:", Form::Layout), (b"oci-archive:", Form::Archive), (b"docker-archive:", Form::Docker)];

/// A container image as an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its form.
    pub form: Form,
    /// Directory or archive; `-` is standard input.
    pub path: PathBuf,
    /// Tag, or name with a tag: which of several images.
    pub reference: Option<String>,
}

impl Source {
    /// Splits `oci:DIR[:TAG]` and the other forms. `None`: it begins with none of them. Of several
    /// colons the first counts that leaves the name of something that exists.
    pub fn parse(argument: &OsStr) -> Option<Source> {
        let bytes = bytes_of(argument);
        let (prefix, form) = FORMS.into_iter().find(|(prefix, _)| bytes.starts_with(prefix))?;
        Some(Source::split(form, bytes.get(prefix.len()..)?))
    }

    /// Splits `FILE[:REFERENCE]`.
    pub fn split(form: Form, rest: &[u8]) -> Source {
        let colons = rest.iter().enumerate().filter(|(_, byte)| **byte == b':').map(|(at, _)| at);
        let ends: Vec<usize> = std::iter::once(rest.len()).chain(colons).collect();
        let exists = |end: &&usize| {
            let name = &rest[..**end];
            name == b"-" || path_of(name).exists()
        };
        let end = ends.iter().find(exists).or(ends.get(1)).copied().unwrap_or(rest.len());
        let reference = rest.get(end + 1..).filter(|text| !text.is_empty());
        Source {
            form,
            path: path_of(&rest[..end]),
            reference: reference.map(|text| String::from_utf8_lossy(text).into_owned()),
        }
    }

    /// Finds the layers of the image. An archive that cannot be read in place is copied to a file
    /// without a name in `scratch`.
    ///
    /// # Errors
    /// No such image, a document that is damaged or missing, a form that is not supported; no
    /// platform or no tag that selects one image.
    pub fn layers(
        &self,
        platform: Option<&Platform>,
        scratch: &Path,
        watch: &dyn Watch,
    ) -> Result<Layers> {
        let found = || match self.form {
            Form::Layout => {
                let store = store::Store::directory(&self.path)?;
                layout::layers(&store, self.reference.as_deref(), platform)
            }
            Form::Archive => {
                let store = store::Store::archive(&self.path, scratch, watch)?;
                layout::layers(&store, self.reference.as_deref(), platform)
            }
            Form::Docker => {
                let store = store::Store::archive(&self.path, scratch, watch)?;
                docker::layers(&store, self.reference.as_deref(), platform)
            }
        };
        found().map_err(|err| err.at(self.path.display()))
    }
}

fn damaged(why: impl std::fmt::Display) -> ImageError {
    ImageError::Corrupt(format!("the container image is damaged: {why}; copy it again"))
}

fn unsupported(why: impl std::fmt::Display) -> ImageError {
    ImageError::Unsupported(why.to_string())
}
