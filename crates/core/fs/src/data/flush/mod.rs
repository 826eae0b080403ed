//! Write-back.

pub(crate) mod eager;
pub(crate) mod together;
pub(crate) mod writeback;
