//! A build that opens no image in a helper process, as the helper itself.

use std::path::{Path, PathBuf};

use syncline_device::FileDevice;

use crate::error::{Error, Result};
use crate::options::OpenOptions;
use crate::wire::{Call, Opened, Wire};

/// There is none.
pub(crate) enum Helper {}

fn absent() -> Error {
    Error::invalid("this build of the library has no `isolate`; open without it")
}

pub(crate) fn program(_: &Path) -> Result<PathBuf> {
    Err(absent())
}

impl Helper {
    pub(crate) fn start(_: &Path, _: FileDevice, _: &OpenOptions) -> Result<(Helper, Opened)> {
        Err(absent())
    }

    pub(crate) fn call<T: for<'a> Wire<'a>>(&self, _: Call<'_>) -> Result<T> {
        match *self {}
    }

    pub(crate) fn read(&self, _: u64, _: u64, _: &mut [u8]) -> Result<usize> {
        match *self {}
    }

    pub(crate) fn write(&self, _: u64, _: Option<u64>, _: &[u8]) -> Result<(u64, usize)> {
        match *self {}
    }
}
