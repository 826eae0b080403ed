//! Databases in images, through the SQLite that is linked in and through a stock one.

mod extension;
mod vfs;
