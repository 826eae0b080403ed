//! Write-back.

pub(crate) mod batch;
pub(crate) mod file;
pub(crate) mod files;
pub(crate) mod install;
pub(crate) mod pass;
pub(crate) mod plan;
pub(crate) mod send;
