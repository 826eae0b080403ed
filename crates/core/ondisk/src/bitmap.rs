//! Block and inode bitmaps: bit n is bit `n % 8` of byte `n / 8`; set means used.
//!
//! All functions work on plain byte slices and treat bits past the end of the slice as used, so a
//! search ends and no index panics. Searches and range updates go 64 bits at a time. Tested
//! against bit-by-bit versions in `tests/it/properties.rs`.

/// Returns bit `bit`; true past the end.
#[inline]
#[must_use]
pub fn test(map: &[u8], bit: u32) -> bool {
    map.get((bit / 8) as usize).is_none_or(|byte| byte >> (bit % 8) & 1 != 0)
}

/// Sets bit `bit`; returns whether it was set before (true past the end, nothing done).
#[inline]
pub fn set(map: &mut [u8], bit: u32) -> bool {
    let Some(byte) = map.get_mut((bit / 8) as usize) else { return true };
    let mask = 1 << (bit % 8);
    let was = *byte & mask != 0;
    *byte |= mask;
    was
}

/// Clears bit `bit`; returns whether it was set before (false past the end, nothing done).
#[inline]
pub fn clear(map: &mut [u8], bit: u32) -> bool {
    let Some(byte) = map.get_mut((bit / 8) as usize) else { return false };
    let mask = 1 << (bit % 8);
    let was = *byte & mask != 0;
    *byte &= !mask;
    was
}

/// Bits of the slice, at most `u32::MAX`.
fn bits(map: &[u8]) -> u32 {
    u32::try_from(map.len().saturating_mul(8)).unwrap_or(u32::MAX)
}

/// The 64 bits from byte `byte` (a multiple of 8); bytes past the end read as `pad`.
#[inline]
fn word(map: &[u8], byte: usize, pad: u8) -> u64 {
    match map.get(byte..).and_then(|rest| rest.first_chunk::<8>()) {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => {
            let mut chunk = [pad; 8];
            let rest = map.get(byte..).unwrap_or(&[]);
            for (dst, src) in chunk.iter_mut().zip(rest) {
                *dst = *src;
            }
            u64::from_le_bytes(chunk)
        }
    }
}

/// First bit in `from..end` whose value, XORed with `flip`, is 1.
fn find(map: &[u8], from: u32, end: u32, flip: u64) -> Option<u32> {
    let end = end.min(bits(map));
    let mut bit = from;
    while bit < end {
        let base = bit & !63;
        let value = (word(map, (base / 8) as usize, 0) ^ flip) & (!0u64 << (bit - base));
        if value != 0 {
            let found = base + value.trailing_zeros();
            return (found < end).then_some(found);
        }
        bit = base.checked_add(64)?;
    }
    None
}

/// First clear bit in `from..end`.
#[must_use]
pub fn find_zero(map: &[u8], from: u32, end: u32) -> Option<u32> {
    find(map, from, end, !0)
}

/// First set bit in `from..end`.
#[must_use]
pub fn find_set(map: &[u8], from: u32, end: u32) -> Option<u32> {
    find(map, from, end, 0)
}

/// First run of clear bits in `from..end`, as start and length; the length stops at `max_len`.
#[must_use]
pub fn next_zero_run(map: &[u8], from: u32, end: u32, max_len: u32) -> Option<(u32, u32)> {
    let start = find_zero(map, from, end)?;
    let limit = start.saturating_add(max_len).min(end).min(bits(map));
    let stop = find_set(map, start, limit).unwrap_or(limit);
    Some((start, stop - start))
}

/// First run of at least `len` clear bits in `from..end`; returns its start.
#[must_use]
pub fn find_zero_run(map: &[u8], from: u32, end: u32, len: u32) -> Option<u32> {
    let mut at = from;
    while let Some((start, found)) = next_zero_run(map, at, end, len) {
        if found >= len {
            return Some(start);
        }
        at = start + found;
    }
    None
}

/// All maximal runs of clear bits in `from..end`, as (start, length).
pub fn zero_runs(map: &[u8], from: u32, end: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
    let mut at = from;
    std::iter::from_fn(move || {
        let run = next_zero_run(map, at, end, u32::MAX)?;
        at = run.0 + run.1;
        Some(run)
    })
}

/// Number of set bits in `from..end` (bits past the slice are not counted).
#[must_use]
pub fn count_set(map: &[u8], from: u32, end: u32) -> u32 {
    let end = end.min(bits(map));
    let mut total = 0;
    let mut bit = from;
    while bit < end {
        let base = bit & !63;
        let mut value = word(map, (base / 8) as usize, 0) & (!0u64 << (bit - base));
        if end - base < 64 {
            value &= (1u64 << (end - base)) - 1;
        }
        total += value.count_ones();
        let Some(next) = base.checked_add(64) else { break };
        bit = next;
    }
    total
}

/// Number of clear bits in `from..end` (bits past the slice are not counted).
#[must_use]
pub fn count_zero(map: &[u8], from: u32, end: u32) -> u32 {
    let end = end.min(bits(map));
    end.saturating_sub(from) - count_set(map, from, end)
}

/// Sets `len` bits from `start`. Returns the first bit that was set already, if any, or that lies
/// past the end of the slice; the others are set all the same.
#[must_use]
pub fn set_range(map: &mut [u8], start: u32, len: u32) -> Option<u32> {
    let end = start.saturating_add(len);
    let clash = find_set(map, start, end);
    for_each_byte(map, start, end, |byte, mask| *byte |= mask);
    clash.or_else(|| past_end(map, start, end))
}

/// Clears `len` bits from `start`. Returns the first bit that was clear already, if any, or that
/// lies past the end of the slice; the others are cleared all the same.
#[must_use]
pub fn clear_range(map: &mut [u8], start: u32, len: u32) -> Option<u32> {
    let end = start.saturating_add(len);
    let clash = find_zero(map, start, end);
    for_each_byte(map, start, end, |byte, mask| *byte &= !mask);
    clash.or_else(|| past_end(map, start, end))
}

fn past_end(map: &[u8], start: u32, end: u32) -> Option<u32> {
    let bits = bits(map);
    (end > bits && end > start).then(|| bits.max(start))
}

fn for_each_byte(map: &mut [u8], start: u32, end: u32, mut apply: impl FnMut(&mut u8, u8)) {
    let end = end.min(bits(map));
    if start >= end {
        return;
    }
    let (first, last) = ((start / 8) as usize, ((end - 1) / 8) as usize);
    let head = 0xff_u8 << (start % 8);
    let tail = 0xff_u8 >> (7 - (end - 1) % 8);
    let Some(bytes) = map.get_mut(first..=last) else { return };
    let n = bytes.len();
    for (i, byte) in bytes.iter_mut().enumerate() {
        let mut mask = 0xff;
        if i == 0 {
            mask &= head;
        }
        if i + 1 == n {
            mask &= tail;
        }
        apply(byte, mask);
    }
}
