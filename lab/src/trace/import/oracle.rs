//! libCacheSim's binary trace `oracleGeneral`: 24 bytes an access, little-endian, no mark.
//!
//! ```text
//!   0 time, seconds, 4     4 object, 8     12 size, bytes, 4     16 next access, 8     24
//! ```
//!
//! The number of an object is taken as that of a page ([`page_of_object`]); where the next access
//! is, an evaluation finds out itself. The format has no operation: everything is a read.

use std::io::Read;

use super::blktrace::fill;
use super::columns::page_of_object;
use super::{Bad, Out};
use crate::error::Result;
use crate::trace::model::{Op, Record};

const ACCESS_BYTES: usize = 24;
const PAGE_BYTES: u64 = 4096;

/// Reads accesses to the end; tells what was cut short.
pub(super) fn read(input: &mut dyn Read, out: &mut Out<'_>) -> Result<Option<String>> {
    let mut bytes = [0; ACCESS_BYTES];
    let mut count = 0u64;
    loop {
        match fill(input, &mut bytes)? {
            0 => return Ok(None),
            ACCESS_BYTES => count += 1,
            _ => return Ok(Some(format!("access {} is not whole", count + 1))),
        }
        let [t0, t1, t2, t3, object @ .., _, _, _, _, _, _, _, _, _, _, _, _] = bytes;
        let time_s = u64::from(u32::from_le_bytes([t0, t1, t2, t3]));
        let (device, offset) = page_of_object(u64::from_le_bytes(object));
        let record = Record { device, ..Record::new(time_s * 1_000_000_000, Op::Read) };
        match out.push(record.range(offset, PAGE_BYTES)) {
            Err(Bad::Fatal(err)) => return Err(err),
            Err(Bad::Line(why)) => out.bad(count, "", why),
            Ok(()) => {}
        }
    }
}
