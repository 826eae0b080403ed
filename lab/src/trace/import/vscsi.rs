//! VMware's binary trace of SCSI commands, as of CloudPhysics: two versions, little-endian.
//!
//! ```text
//!   1:  0 number, 4   4 bytes, 4   8 segments, 4   12 command, 2   14 version, 2
//!      16 sector    24 time, us   32
//!   2:  0 command, 2  2 version, 2  4 number, 4  8 bytes, 4  12 segments, 4
//!      16 sector    24 time, us   32 not used here   40
//! ```
//!
//! The version is in the upper byte of its field. Sectors have 512 bytes. A command is the
//! operation code of SCSI; those that name no blocks are passed over. Source: libCacheSim's reader
//! (`vscsi.h`) and its sample `cloudPhysicsIO.vscsi`.

use std::io::Read;

use super::blktrace::fill;
use super::columns::scsi_op;
use super::{Bad, Out, Sample};
use crate::error::Result;
use crate::trace::model::{Op, Record};

/// Places of a version's fields.
#[derive(Clone, Copy)]
struct Layout {
    number: u8,
    record_bytes: usize,
    command: usize,
    version: usize,
    len_bytes: usize,
}

const SECTOR: usize = 16;
const TIME: usize = 24;
const LAYOUTS: [Layout; 2] = [
    Layout { number: 2, record_bytes: 40, command: 0, version: 2, len_bytes: 8 },
    Layout { number: 1, record_bytes: 32, command: 12, version: 14, len_bytes: 4 },
];
/// Records of which each has to have the version, and a command of SCSI in a byte.
const TOLD_BY: usize = 2;

/// The version whose mark the first records have.
fn layout(start: &[u8]) -> Option<Layout> {
    LAYOUTS.into_iter().find(|layout| {
        let mut records = start.chunks_exact(layout.record_bytes).take(TOLD_BY);
        let marked = |record: &[u8]| {
            record[layout.version + 1] == layout.number && record[layout.command + 1] == 0
        };
        records.len() == TOLD_BY && records.all(marked)
    })
}

pub(super) fn detect(sample: &Sample<'_>) -> bool {
    layout(sample.bytes).is_some()
}

fn number<const N: usize>(record: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&record[at..at + N]);
    bytes
}

/// Reads commands to the end; tells what was cut short.
pub(super) fn read(input: &mut dyn Read, out: &mut Out<'_>) -> Result<Option<String>> {
    let mut start = [0; TOLD_BY * LAYOUTS[0].record_bytes];
    let have = fill(input, &mut start)?;
    let Some(layout) = layout(&start[..have]) else {
        return Ok(Some("no version that is known is in the first two commands".to_owned()));
    };
    let mut input = start[..have].chain(input);
    let mut record = vec![0; layout.record_bytes];
    let mut count = 0u64;
    loop {
        match fill(&mut input, &mut record)? {
            0 => return Ok(None),
            whole if whole == record.len() => count += 1,
            _ => return Ok(Some(format!("command {} is not whole", count + 1))),
        }
        take(&record, layout, count, out)?;
    }
}

fn take(record: &[u8], layout: Layout, count: u64, out: &mut Out<'_>) -> Result<()> {
    let marked = record[layout.version + 1] == layout.number;
    // The blocks of an UNMAP are in its data, which is not recorded.
    let op = scsi_op(record[layout.command]).filter(|op| *op != Op::Discard);
    let Some(op) = op.filter(|_| marked) else {
        if marked {
            out.pass_over();
        } else {
            out.bad(count, "", format!("not a command of version {}", layout.number));
        }
        return Ok(());
    };
    let time_us = u64::from_le_bytes(number(record, TIME));
    let sector = u64::from_le_bytes(number(record, SECTOR));
    let len_bytes = u64::from(u32::from_le_bytes(number(record, layout.len_bytes)));
    let (Some(time_ns), Some(offset)) = (time_us.checked_mul(1000), sector.checked_mul(512)) else {
        out.bad(count, "", "a number is 2^63 or more".to_owned());
        return Ok(());
    };
    let request = Record::new(time_ns, op);
    let request = if op == Op::Flush { request } else { request.range(offset, len_bytes) };
    match out.push(request) {
        Err(Bad::Fatal(err)) => Err(err),
        Err(Bad::Line(why)) => {
            out.bad(count, "", why);
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}
