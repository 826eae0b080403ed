//! Images made of what other programs left: a directory, an archive, a container image.

use std::path::{Path, PathBuf};

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use syncline_fs::build::{Size, Spare};
use syncline_fs::mkfs::Options;
use syncline_image::archive::{self, Rules};
use syncline_image::build::{NewTree, build};
use syncline_image::copy::{Pins, fill_new};
use syncline_image::mkfs::{Identity, Mkfs};
use syncline_image::oci::{Platform, Source};
use syncline_image::{ImageError, Result, Watch, stream};

use crate::observed::observed;

const EIO: i32 = 5;
const EINVAL: i32 = 22;
const EOPNOTSUPP: i32 = 95;
const EUCLEAN: i32 = 117;

/// An image to make, and its place.
struct Request {
    source: PathBuf,
    path: PathBuf,
    size: Size,
    new: Mkfs,
    platform: Option<Platform>,
}

impl Request {
    fn run(&self, watch: &dyn Watch) -> Result<()> {
        let rules = Rules::default();
        if let Some(container) = Source::parse(self.source.as_os_str()) {
            let beside = self.path.parent().filter(|dir| !dir.as_os_str().is_empty());
            let scratch = beside.unwrap_or(Path::new("."));
            let layers = container.layers(self.platform.as_ref(), scratch, watch)?;
            return self.made(|tree| layers.unpack(tree, &rules, watch));
        }
        if self.platform.is_some() {
            return Err(ImageError::Usage("only a container image has a platform".to_owned()));
        }
        if self.source.is_dir() {
            let latest_s = self.new.time_s.and_then(|s| i64::try_from(s).ok());
            let pins = Pins { owner: None, latest_s };
            return self.made(|tree| {
                let outcome = fill_new(tree, &self.source, pins, watch)?;
                outcome.first.map_or(Ok(()), Err)
            });
        }
        let mut volumes = vec![stream::open(&self.source, || false)?];
        self.made(|tree| archive::import_new(&mut volumes, tree, &rules, watch))
    }

    fn made(&self, fill: impl FnOnce(&NewTree) -> Result<()>) -> Result<()> {
        let named = |err: ImageError| err.at(self.source.display());
        build(&self.path, &self.new, self.size, |tree| fill(tree).map_err(named))
    }
}

fn raised(err: &ImageError) -> PyErr {
    let errno = match err {
        ImageError::Usage(_) => EINVAL,
        ImageError::Corrupt(_) => EUCLEAN,
        ImageError::Unsupported(_) => EOPNOTSUPP,
        _ => EIO,
    };
    PyOSError::new_err((errno, err.to_string()))
}

fn invalid(text: impl std::fmt::Display) -> PyErr {
    raised(&ImageError::Usage(text.to_string()))
}

/// Makes an image; returns its size. The arguments are those of `Builder`; `platform` chooses one
/// of a container image.
#[pyfunction]
pub(crate) fn build_from(
    py: Python<'_>,
    places: (PathBuf, PathBuf),
    sizes: (Option<u64>, Option<u32>, Option<u64>),
    label: Option<String>,
    inodes: Option<u64>,
    identity: (Option<[u8; 16]>, Option<String>, Option<u64>),
    platform: Option<String>,
) -> PyResult<u64> {
    let (source, path) = places;
    let size = match sizes {
        (None, None, None) => Size::Minimum,
        (Some(bytes), None, None) => Size::Bytes(bytes),
        (None, Some(percent), None) => Size::Spare(Spare::Percent(percent.into())),
        (None, None, Some(bytes)) => Size::Spare(Spare::Bytes(bytes)),
        _ => return Err(invalid("a size and room beside the tree exclude each other")),
    };
    let label = label.unwrap_or_default().into_bytes();
    let mut format = Options { label, inodes, ..Options::default() };
    let (uuid, seed, time_s) = identity;
    if let Some(seed) = seed {
        format.set_extended(&format!("hash_seed={seed}")).map_err(invalid)?;
    }
    let parse = |text: String| {
        let bad = || invalid(format!("{text}: no system and processor; write linux/arm64"));
        Platform::parse(&text).ok_or_else(bad)
    };
    let platform = platform.map(parse).transpose()?;
    let new = Mkfs {
        time_s,
        identity: uuid.map_or(Identity::Any, Identity::Given),
        format,
        ..Mkfs::default()
    };
    let request = Request { source, path: path.clone(), size, new, platform };
    observed(py, move |caller| Ok(request.run(caller)))?.map_err(|err| raised(&err))?;
    Ok(path.metadata()?.len())
}
