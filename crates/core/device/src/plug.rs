//! A plug: requests are collected, then sorted and merged into the commands that the device sees.
//!
//! ```text
//!   pushed     w8 w9 r40 w2 w10 w9'          (block numbers; w9' overlaps w9)
//!   batch 1    w2 | w8+w9+w10 | r40          sorted by offset, neighbours merged
//!   batch 2    w9'                           an overlap starts a new batch: the last one wins
//! ```
//!
//! Rules, as the Linux block layer has them for one plug (`block/blk-merge.c`, `blk_rq_merge_ok`):
//! - Within a batch requests are sorted by offset. Neighbours merge when they are the same
//!   operation with the same `fua`, durability and [`Kind`] variant (different inodes and
//!   lifetimes do merge; the command carries the first one's) and the whole fits in the largest
//!   request. `sync` is kept if any part had it.
//! - A request larger than the device's largest is cut at multiples of that size.
//! - A request that overlaps an earlier one of the same batch starts a new batch, which is
//!   submitted after the first has completed. So the result equals doing everything in push order.
//! - A flush is a batch of its own: it covers everything pushed before it.
//! - `fua` writes on a device without FUA go as plain writes followed by one flush.
//!
//! Assumes: nothing about the device beyond its [`Geometry`]. Tested below, by proptest against
//! doing the requests one by one, and by every count in the baseline comparison.

use std::collections::BTreeMap;

use crate::{
    BlockDevice, DeviceError, Geometry, Kind, MAX_REQUEST_BYTES, Op, Origin, Request, SECTOR_BYTES,
};

/// Collects requests until [`Plug::submit`]. Dropping it does nothing.
#[derive(Debug, Default)]
pub struct Plug<'a> {
    requests: Vec<Request<'a>>,
}

impl<'a> Plug<'a> {
    /// An empty plug.
    pub fn new() -> Self {
        Plug::default()
    }

    /// True if nothing was pushed.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Requests pushed so far (before merging).
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Adds a request. Requests without bytes are dropped, except flushes.
    pub fn push(&mut self, request: Request<'a>) {
        if matches!(request.op, Op::Flush) || request.len_bytes() > 0 {
            self.requests.push(request);
        }
    }

    /// Adds a read.
    pub fn read(&mut self, offset_bytes: u64, into: &'a mut [u8], origin: Origin) {
        self.push(Request { offset_bytes, op: Op::Read { into: vec![into] }, origin });
    }

    /// Adds a write that a later flush makes durable.
    pub fn write(&mut self, offset_bytes: u64, from: &'a [u8], origin: Origin) {
        let op = Op::Write { from: vec![from], fua: false };
        self.push(Request { offset_bytes, op, origin });
    }

    /// Adds a write that is durable when [`Plug::submit`] returns.
    pub fn write_fua(&mut self, offset_bytes: u64, from: &'a [u8], origin: Origin) {
        let op = Op::Write { from: vec![from], fua: true };
        self.push(Request { offset_bytes, op, origin });
    }

    /// Adds one write of a contiguous run: the buffers go one after the other from `offset_bytes`.
    pub fn write_run<I>(&mut self, offset_bytes: u64, buffers: I, origin: Origin)
    where
        I: IntoIterator<Item = &'a [u8]>,
    {
        let op = Op::Write { from: buffers.into_iter().collect(), fua: false };
        self.push(Request { offset_bytes, op, origin });
    }

    /// Adds one read of a contiguous run into the buffers, one after the other.
    pub fn read_run<I>(&mut self, offset_bytes: u64, buffers: I, origin: Origin)
    where
        I: IntoIterator<Item = &'a mut [u8]>,
    {
        let op = Op::Read { into: buffers.into_iter().collect() };
        self.push(Request { offset_bytes, op, origin });
    }

    /// Adds a flush: everything pushed before it completes first and is durable afterwards.
    pub fn flush(&mut self, origin: Origin) {
        self.push(Request { offset_bytes: 0, op: Op::Flush, origin });
    }

    /// Adds a discard.
    pub fn discard(&mut self, offset_bytes: u64, len_bytes: u64, origin: Origin) {
        self.push(Request { offset_bytes, op: Op::Discard { len_bytes }, origin });
    }

    /// The commands that [`Plug::submit`] would send, batch by batch; no flush where nothing is
    /// volatile.
    pub fn into_batches(self, geometry: Geometry) -> Vec<Vec<Request<'a>>> {
        let limit = MAX_REQUEST_BYTES.min(geometry.max_request_bytes) / SECTOR_BYTES * SECTOR_BYTES;
        let limit = limit.max(SECTOR_BYTES);
        let mut batches = Vec::new();
        let mut wave: Vec<Request<'a>> = Vec::new();
        let mut taken: BTreeMap<u64, u64> = BTreeMap::new();
        for request in self.requests {
            let (start, len) = (request.offset_bytes, request.len_bytes());
            let end = start.saturating_add(len);
            let flush = matches!(request.op, Op::Flush);
            let overlaps = taken.range(..end).next_back().is_some_and(|(_, &e)| e > start);
            if flush || overlaps {
                close_wave(&mut batches, std::mem::take(&mut wave), geometry, limit);
                taken.clear();
            }
            if flush && geometry.volatile_cache {
                batches.push(vec![request]);
            } else if !flush {
                taken.insert(start, end);
                wave.push(request);
            }
        }
        close_wave(&mut batches, wave, geometry, limit);
        batches
    }

    /// Sends everything and returns when all of it is done.
    ///
    /// # Errors
    /// The first failure of the device; later batches are then not sent.
    pub fn submit(self, device: &dyn BlockDevice) -> Result<(), DeviceError> {
        for mut batch in self.into_batches(device.geometry()) {
            device.submit(&mut batch)?;
        }
        Ok(())
    }
}

/// Sorts and merges one batch and appends it, with the flush that stands in for missing FUA.
fn close_wave<'a>(
    batches: &mut Vec<Vec<Request<'a>>>,
    mut wave: Vec<Request<'a>>,
    geometry: Geometry,
    limit: u64,
) {
    if wave.is_empty() {
        return;
    }
    let mut flush_after = None;
    if !geometry.fua {
        for request in &mut wave {
            if let Op::Write { fua: fua @ true, .. } = &mut request.op {
                *fua = false;
                flush_after = Some(request.origin);
            }
        }
    }
    wave.sort_by_key(|r| r.offset_bytes);
    batches.push(merge(wave, limit));
    if let Some(origin) = flush_after {
        if geometry.volatile_cache {
            batches.push(vec![Request { offset_bytes: 0, op: Op::Flush, origin }]);
        }
    }
}

/// Merges neighbours of a sorted batch without overlaps.
fn merge(sorted: Vec<Request<'_>>, limit: u64) -> Vec<Request<'_>> {
    let mut merged: Vec<Request<'_>> = Vec::with_capacity(sorted.len());
    let mut last_len = 0;
    for request in sorted {
        for piece in split(request, limit) {
            let len = piece.len_bytes();
            match merged.last_mut() {
                Some(last)
                    if last.offset_bytes + last_len == piece.offset_bytes
                        && last_len + len <= limit
                        && may_merge(last, &piece) =>
                {
                    last_len += len;
                    append(last, piece);
                }
                _ => {
                    last_len = len;
                    merged.push(piece);
                }
            }
        }
    }
    merged
}

/// True if two neighbours may become one command.
fn may_merge(a: &Request<'_>, b: &Request<'_>) -> bool {
    let same_op = match (&a.op, &b.op) {
        (Op::Read { .. }, Op::Read { .. }) => true,
        (Op::Write { fua: x, .. }, Op::Write { fua: y, .. }) => x == y,
        _ => false,
    };
    let same_kind = match (a.origin.kind, b.origin.kind) {
        (Kind::Data { .. }, Kind::Data { .. }) => true,
        (x, y) => x == y,
    };
    same_op && same_kind && a.origin.durability == b.origin.durability
}

/// Appends the buffers of `piece`, which [`may_merge`] found to be of the same operation.
fn append<'a>(last: &mut Request<'a>, piece: Request<'a>) {
    last.origin.sync |= piece.origin.sync;
    match (&mut last.op, piece.op) {
        (Op::Read { into }, Op::Read { into: more }) => into.extend(more),
        (Op::Write { from, .. }, Op::Write { from: more, .. }) => from.extend(more),
        _ => unreachable!("may_merge admits only two reads or two writes"),
    }
}

/// Cuts a read or write into pieces of at most `limit` bytes.
fn split(request: Request<'_>, limit: u64) -> Vec<Request<'_>> {
    let Request { offset_bytes, op, origin } = request;
    let whole = |op| vec![Request { offset_bytes, op, origin }];
    let len_of = |parts: u64| parts <= limit;
    match op {
        Op::Read { into } if !len_of(into.iter().map(|b| b.len() as u64).sum()) => {
            let cut = cut(into, limit, |b, at| b.split_at_mut(at));
            let cut = cut.into_iter().map(|(at, into)| (at, Op::Read { into }));
            cut.map(|(at, op)| Request { offset_bytes: offset_bytes + at, op, origin }).collect()
        }
        Op::Write { from, fua } if !len_of(from.iter().map(|b| b.len() as u64).sum()) => {
            let cut = cut(from, limit, |b, at| b.split_at(at));
            let cut = cut.into_iter().map(|(at, from)| (at, Op::Write { from, fua }));
            cut.map(|(at, op)| Request { offset_bytes: offset_bytes + at, op, origin }).collect()
        }
        op => whole(op),
    }
}

/// Regroups buffers into groups of exactly `limit` bytes (the last one may be shorter), each with
/// its distance from the start. `split_at` cuts one buffer.
fn cut<B, F>(buffers: Vec<B>, limit: u64, split_at: F) -> Vec<(u64, Vec<B>)>
where
    B: AsRef<[u8]>,
    F: Fn(B, usize) -> (B, B),
{
    let mut groups = Vec::new();
    let (mut group, mut group_len, mut at) = (Vec::new(), 0, 0);
    for mut buffer in buffers {
        loop {
            let room = limit - group_len;
            let len = buffer.as_ref().len() as u64;
            if len < room {
                group_len += len;
                group.push(buffer);
                break;
            }
            // `room` is at most `len`, which is a usize.
            let (head, tail) = split_at(buffer, room as usize);
            group.push(head);
            groups.push((at, std::mem::take(&mut group)));
            at += limit;
            group_len = 0;
            buffer = tail;
        }
    }
    group.retain(|b| !b.as_ref().is_empty());
    if !group.is_empty() {
        groups.push((at, group));
    }
    groups
}

#[cfg(test)]
#[path = "plug_tests.rs"]
mod tests;
