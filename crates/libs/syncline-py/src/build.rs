//! Images made of entries, one after the other.

use std::path::PathBuf;

use parking_lot::Mutex;
use pyo3::prelude::*;
use syncline::{self as library, Make, SetAttr};

use crate::{free, raised, timestamp};

/// An image that is being made.
#[pyclass(frozen)]
pub(crate) struct Builder(Mutex<Option<library::Builder>>);

impl Builder {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut library::Builder) -> library::Result<T> + Send,
    ) -> PyResult<T> {
        free(py, || match &mut *self.0.lock() {
            Some(builder) => call(builder),
            None => Err(library::Error::invalid("the image is made already")),
        })
    }
}

#[pymethods]
impl Builder {
    /// `sizes`: one of the size, the part and the bytes to spare, or none for the smallest size.
    /// `identity`: UUID, hash seed, time.
    #[new]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        sizes: (Option<u64>, Option<u32>, Option<u64>),
        label: Option<String>,
        inodes: Option<u64>,
        identity: (Option<[u8; 16]>, Option<String>, Option<u64>),
    ) -> PyResult<Self> {
        let make = Make::default().with(|make| {
            (make.size_bytes, make.spare_percent, make.spare_bytes) = sizes;
            (make.label, make.inodes) = (label, inodes);
            (make.uuid, make.time_s) = (identity.0, identity.2);
            make.extended = identity.1.map(|seed| format!("hash_seed={seed}"));
        });
        let builder = free(py, || library::Builder::new(&path, &make))?;
        Ok(Self(Mutex::new(Some(builder))))
    }

    /// `node`: `directory`, `file`, `symlink`, `link` or `special`; target; device number. `owner`:
    /// mode, user, group. `times`: of access and of change.
    fn add(
        &self,
        py: Python<'_>,
        path: Vec<u8>,
        node: (String, Vec<u8>, u64),
        owner: (u16, u32, u32),
        times: (i128, i128),
        xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    ) -> PyResult<()> {
        let (kind, target, rdev) = node;
        let ((mode, uid, gid), (atime, mtime)) = (owner, times);
        let attr = SetAttr {
            mode: Some(mode),
            uid: Some(uid),
            gid: Some(gid),
            atime: Some(timestamp(atime)?),
            mtime: Some(timestamp(mtime)?),
            ..SetAttr::default()
        };
        let xattrs: Vec<(&[u8], &[u8])> = xattrs.iter().map(|(n, v)| (&n[..], &v[..])).collect();
        self.with(py, |builder| match &kind[..] {
            "directory" => builder.directory(&path, &attr, &xattrs),
            "file" => builder.file(&path, &attr, &xattrs),
            "symlink" => builder.symlink(&path, &target, &attr, &xattrs),
            "link" => builder.link(&path, &target),
            _ => builder.special(&path, rdev, &attr, &xattrs),
        })
    }

    fn write(&self, py: Python<'_>, bytes: &[u8]) -> PyResult<()> {
        self.with(py, |builder| builder.write(bytes))
    }

    /// Makes the image; returns its size.
    fn finish(&self, py: Python<'_>) -> PyResult<u64> {
        let builder = self.0.lock().take();
        let made = "the image is made already";
        let builder = builder.ok_or_else(|| raised(library::Error::invalid(made)))?;
        free(py, || builder.finish())
    }

    /// Removes what was begun.
    fn close(&self) {
        drop(self.0.lock().take());
    }
}
