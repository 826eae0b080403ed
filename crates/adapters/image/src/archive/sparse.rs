//! Maps of sparse files: GNU's old format, and PAX 0.0, 0.1 and 1.0. Runs in the order of the file.

use super::pax::{bad, number};
use super::reader::{Of, Reader};
use super::{BLOCK_BYTES, EXTENDED_BYTES_MAX};
use crate::Result;
use crate::archive::pax::Records;

/// Start and length of each run of data.
pub(crate) type Runs = Vec<(u64, u64)>;

/// Size of the file and its runs; `None`: it is not sparse.
pub(super) fn map(
    reader: &mut Reader<'_>,
    header: &tar::Header,
    records: &Records,
    of: &Of<'_>,
) -> Result<Option<(u64, Runs)>> {
    let size_of = |key: &[u8]| {
        let size = of(key).and_then(|text| number(&text));
        size.ok_or_else(|| bad("a sparse file without a size"))
    };
    let (size, runs) = if header.as_bytes()[156] == b'S' {
        old(reader, header)?
    } else if of(b"GNU.sparse.major").is_some_and(|major| major != b"0") {
        (size_of(b"GNU.sparse.realsize")?, lines(reader)?)
    } else if let Some(map) = of(b"GNU.sparse.map") {
        let numbers = map.split(|byte| *byte == b',').filter(|text| !text.is_empty());
        (size_of(b"GNU.sparse.size")?, paired(numbers)?)
    } else if of(b"GNU.sparse.size").is_some() {
        let keys: [&[u8]; 2] = [b"GNU.sparse.offset", b"GNU.sparse.numbytes"];
        let numbers = records.iter().filter(|(key, _)| keys.contains(&&key[..]));
        (size_of(b"GNU.sparse.size")?, paired(numbers.map(|(_, value)| &value[..]))?)
    } else {
        return Ok(None);
    };
    let mut end = 0;
    for (start, len) in &runs {
        let stop = start.checked_add(*len).filter(|stop| *start >= end && *stop <= size);
        end = stop.ok_or_else(|| bad("a sparse map that is out of order"))?;
    }
    Ok(Some((size, runs)))
}

/// Starts and lengths in turn.
fn paired<'a>(numbers: impl Iterator<Item = &'a [u8]>) -> Result<Runs> {
    let numbers: Option<Vec<u64>> = numbers.map(number).collect();
    let numbers = numbers.filter(|numbers| numbers.len() % 2 == 0);
    let numbers = numbers.ok_or_else(|| bad("a sparse map"))?;
    Ok(numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
}

/// GNU's old format: four runs in the header, more in blocks behind it.
fn old(reader: &mut Reader<'_>, header: &tar::Header) -> Result<(u64, Runs)> {
    let gnu = header.as_gnu().ok_or_else(|| bad("a sparse file without a GNU header"))?;
    let size = super::fields::unsigned(&gnu.realsize)?;
    let mut runs = Vec::new();
    let mut add = |run: &tar::GnuSparseHeader| -> Result<()> {
        if !run.is_empty() {
            let field = super::fields::unsigned;
            runs.push((field(&run.offset)?, field(&run.numbytes)?));
        }
        Ok(())
    };
    gnu.sparse.iter().try_for_each(&mut add)?;
    let mut extended = gnu.is_extended();
    let mut bytes = 0;
    while extended {
        let mut more = tar::GnuExtSparseHeader::new();
        reader.read_block(more.as_mut_bytes())?;
        more.sparse().iter().try_for_each(&mut add)?;
        extended = more.is_extended();
        bytes += BLOCK_BYTES as u64;
        if bytes > EXTENDED_BYTES_MAX {
            return Err(bad("a sparse map of more than 8 MiB"));
        }
    }
    Ok((size, runs))
}

/// PAX sparse 1.0: decimal lines in front of the data, in whole blocks.
fn lines(reader: &mut Reader<'_>) -> Result<Runs> {
    let (mut text, mut numbers) = (Vec::new(), Vec::new());
    // Start of the line that has not ended yet.
    let mut line = 0;
    loop {
        let mut block = [0; BLOCK_BYTES];
        reader.read(&mut block)?;
        text.extend_from_slice(&block);
        let rest = |line: usize| text.get(line..).unwrap_or_default();
        while let Some(len) = rest(line).iter().position(|byte| *byte == b'\n') {
            let value = rest(line).get(..len).and_then(number);
            numbers.push(value.ok_or_else(|| bad("a sparse map"))?);
            line += len + 1;
            let wanted = numbers.first().map_or(1, |count: &u64| count.saturating_mul(2) + 1);
            if numbers.len() as u64 == wanted {
                let runs = numbers[1..].chunks_exact(2).map(|pair| (pair[0], pair[1]));
                return Ok(runs.collect());
            }
        }
        if text.len() as u64 > EXTENDED_BYTES_MAX {
            return Err(bad("a sparse map of more than 8 MiB"));
        }
    }
}
