//! The `log_unit` of packed log records that suits a device.
//!
//! ```text
//!   for 4096, 8192 ... 65536 bytes: write so much behind the last write, flush     on the profile
//!   choose the shortest unit that is within a few per cent of every longer one
//! ```
//!
//! A record that ends within a flash page waits for the flush before the page is programmed; one
//! that fills the page is programmed as soon as it has arrived. A longer unit takes the bus longer.
//! Flash pages are the same up to the size of a page. Tested below.

use syncline_nand::{NandError, Profile, Simulator};

/// The default of a mount.
pub(crate) const LOG_UNIT_BYTES: u32 = 4096;
const UNIT_BYTES_MAX: u32 = 65_536;
/// Records written with each unit, after as many that are not counted.
const RECORDS: u64 = 64;
/// A longer unit has to be this much faster: it writes more bytes.
const GAIN_MIN: f64 = 1.03;

/// Time of a record and its flush, in nanoseconds.
fn record_ns(profile: &Profile, unit_bytes: u32) -> Result<u64, NandError> {
    let mut device = Simulator::new(profile, u64::from(UNIT_BYTES_MAX) * RECORDS * 64)?;
    let (mut now_ns, mut start_ns) = (0, 0);
    for n in 0..2 * RECORDS {
        if n == RECORDS {
            start_ns = now_ns;
        }
        let unit = u64::from(unit_bytes);
        let written_ns = device.write(now_ns, n * unit, unit, false);
        now_ns = device.flush(written_ns);
    }
    Ok((now_ns - start_ns) / RECORDS)
}

/// The unit to suggest for a device with this profile, in bytes.
pub(crate) fn log_unit_bytes(profile: &Profile) -> Result<u32, NandError> {
    let mut best = (LOG_UNIT_BYTES, record_ns(profile, LOG_UNIT_BYTES)?);
    let mut unit = LOG_UNIT_BYTES * 2;
    while unit <= UNIT_BYTES_MAX {
        let took_ns = record_ns(profile, unit)?;
        if best.1 as f64 > took_ns as f64 * GAIN_MIN {
            best = (unit, took_ns);
        }
        unit *= 2;
    }
    Ok(best.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_flash_page_where_that_is_faster() {
        let unit = |spec: &str| log_unit_bytes(&Profile::parse_built_in(spec).unwrap()).unwrap();
        assert_eq!(unit("nexus7-emmc"), 8192, "its pages");
        assert_eq!(unit("nexus7-emmc:page_kib=4"), 4096);
        assert_eq!(unit("nexus7-emmc:request_us=0,command_us=0"), 4096, "the flush comes at once");
    }
}
