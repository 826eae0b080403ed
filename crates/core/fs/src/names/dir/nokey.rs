//! Lookups in encrypted directories by the names that are shown without the key.
//!
//! A name that is shown in full is looked up as its ciphertext. One that is not, and names whose
//! hash needs the key, are looked for among the entries from their hash on. An entry that is found
//! has no place: such directories are not changed. Tested in `tests/it/encrypt.rs`.

use syncline_ondisk::htree::HashVersion;
use syncline_ondisk::nokey::NoKeyName;

use crate::error::Result;
use crate::names::dir::readdir::read_batch;
use crate::names::dir::store::DirRead;
use crate::names::dir::{Found, Probe, probe};

/// Looks a shown name up.
pub(crate) fn probe_shown<D: DirRead>(dir: &D, name: &[u8]) -> Result<Probe> {
    let Some(shown) = NoKeyName::decode(name) else { return Ok(Probe::Absent(None)) };
    if dir.params().hash.version != HashVersion::SipHash {
        if let Some(ciphertext) = shown.ciphertext() {
            return probe(dir, ciphertext);
        }
    }
    let mut cookie = u64::from(shown.hash[0] >> 1) << 32;
    // A batch ends behind where it began, so this ends.
    loop {
        let batch = read_batch(dir, cookie)?;
        if let Some((ino, file_type)) = batch.find(|ciphertext| shown.is_of(ciphertext)) {
            return Ok(Probe::Found(Found { lblk: 0, offset: 0, ino, file_type }));
        }
        match batch.next {
            Some(next) => cookie = next,
            None => return Ok(Probe::Absent(None)),
        }
    }
}
