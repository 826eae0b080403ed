//! The policies, one a file.

mod auto_ram;
mod power;
mod session;

pub(crate) use auto_ram::AutoRam;
pub(crate) use power::PowerFails;
pub(crate) use session::SessionAway;
