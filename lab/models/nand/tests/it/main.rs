//! The flash simulator: contents, counts, published analysis, mapping schemes, calibration.

mod analysis;
mod device;
mod ftl;
mod log;
mod nexus7;
mod profiles;
mod schemes;
