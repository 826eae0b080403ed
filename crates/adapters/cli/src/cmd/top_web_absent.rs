//! The page of `serve --web`, which this system does not have.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::error::{Failure, Result};

pub(super) enum Web {}

impl Web {
    pub(super) fn bind(_: SocketAddr) -> Result<Web> {
        Err(Failure::Unsupported("--web needs Linux; serve without it".to_owned()))
    }

    pub(super) fn run(
        self,
        _: &Path,
        _: Duration,
        _: &dyn Fn() -> Result<Value>,
        _: &dyn Fn() -> bool,
    ) -> Result<()> {
        match self {}
    }
}
