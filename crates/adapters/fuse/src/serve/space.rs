//! Requests to the whole volume: free blocks discarded, the end as if by a crash.

use syncline_fs::{FsError, Result};

use super::Serve;
use crate::caller::Caller;

/// Bytes of `struct fstrim_range`: start, length and least length, in bytes.
pub(crate) const TRIM_BYTES: usize = 24;

/// FITRIM; the answer has the bytes discarded in the place of the length.
///
/// # Errors
/// [`FsError::Perm`] for who is neither administrator nor serves the mount; as
/// [`syncline_fs::Volume::trim`].
pub(crate) fn trim(serve: &Serve, caller: Caller, input: &[u8]) -> Result<Vec<u8>> {
    check_may(serve, caller)?;
    let mut words = input.chunks_exact(8).filter_map(|word| word.first_chunk().copied());
    let mut word = || words.next().map_or(0, u64::from_ne_bytes);
    let (start, len, least) = (word(), word(), word());
    let discarded = serve.vol.trim(start..start.saturating_add(len), least)?;
    Ok([start, discarded, least].map(u64::to_ne_bytes).concat())
}

/// EXT4_IOC_SHUTDOWN, with everything durable.
///
/// # Errors
/// [`FsError::Perm`] as for [`trim`]; as [`syncline_fs::Volume::shutdown`].
pub(crate) fn shutdown(serve: &Serve, caller: Caller) -> Result<Vec<u8>> {
    check_may(serve, caller)?;
    // The program gives room for four bytes and expects none.
    serve.vol.shutdown(true).map(|()| Vec::new())
}

/// The kernel leaves this to the file system. The image belongs to who serves it.
fn check_may(serve: &Serve, caller: Caller) -> Result<()> {
    if serve.is_servers(caller) { Ok(()) } else { Err(FsError::Perm) }
}
