//! Places of fields in events, from the `format` files of tracefs.

use crate::error::{LabError, Result};

/// Meaning of a kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A request goes to the driver.
    Issue,
    /// A request is done.
    Complete,
    /// Somebody asks for sectors; it becomes a request, or a part of one.
    Queue,
    /// Sectors of a device without requests (device mapper) are done.
    QueueDone,
    /// The task begins to write pages of an inode.
    Begin,
    /// It ends to.
    End,
}

/// A field: its place in an event, and its bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Field {
    offset: usize,
    bytes: usize,
}

/// Layout of one kind of event.
#[derive(Clone, Debug)]
pub struct KernelLayout {
    pub(super) id: u16,
    pub(super) kind: EventKind,
    pid: Field,
    device: Option<Field>,
    sector: Option<Field>,
    sectors: Option<Field>,
    rwbs: Option<Field>,
    task: Option<Field>,
    inode: Option<Field>,
}

impl KernelLayout {
    /// Reads a `format` file.
    pub fn parse(kind: EventKind, text: &str) -> Result<KernelLayout> {
        let lacks = |what: &str| {
            let text = format!(
                "the kernel's event has no `{what}`; this kernel is not supported, use blktrace"
            );
            LabError::Unsupported(text)
        };
        let id = text.lines().find_map(|line| line.strip_prefix("ID:"));
        let id = id.and_then(|id| id.trim().parse().ok()).ok_or_else(|| lacks("ID"))?;
        let field = |name: &str| text.lines().find_map(|line| parse_field(line, name));
        let found = KernelLayout {
            id,
            kind,
            pid: field("common_pid").ok_or_else(|| lacks("common_pid"))?,
            device: field("dev"),
            sector: field("sector"),
            sectors: field("nr_sector"),
            rwbs: field("rwbs"),
            task: field("comm"),
            inode: field("ino"),
        };
        let needs: &[(&str, bool)] = match kind {
            EventKind::Begin => &[("ino", found.inode.is_some())],
            EventKind::End => &[],
            _ => &[
                ("dev", found.device.is_some()),
                ("sector", found.sector.is_some()),
                ("nr_sector", found.sectors.is_some()),
                ("rwbs", found.rwbs.is_some()),
            ],
        };
        match needs.iter().find(|(_, there)| !there) {
            Some((name, _)) => Err(lacks(name)),
            None => Ok(found),
        }
    }

    /// The event in these bytes; none if they are too few.
    pub(super) fn decode(&self, time_ns: u64, bytes: &[u8]) -> Option<Event> {
        let number = |field: Option<Field>| field.map_or(Some(0), |field| field.number(bytes));
        let mut event = Event {
            time_ns,
            kind: self.kind,
            pid: u32::try_from(self.pid.number(bytes)?).ok()?,
            device: u32::try_from(number(self.device)?).ok()?,
            sector: number(self.sector)?,
            sectors: number(self.sectors)?,
            inode: number(self.inode)?,
            rwbs: [0; RWBS_BYTES],
            task: [0; TASK_BYTES],
        };
        if let Some(field) = self.rwbs {
            copy(&mut event.rwbs, field.of(bytes)?);
        }
        if let Some(field) = self.task {
            copy(&mut event.task, field.of(bytes)?);
        }
        Some(event)
    }
}

/// Bytes of a request's letters (RWBS_LEN).
pub(super) const RWBS_BYTES: usize = 10;
/// Bytes of a task's name (TASK_COMM_LEN).
pub(super) const TASK_BYTES: usize = 16;

/// One event, decoded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) time_ns: u64,
    pub(super) kind: EventKind,
    pub(super) pid: u32,
    pub(super) device: u32,
    pub(super) sector: u64,
    pub(super) sectors: u64,
    pub(super) inode: u64,
    pub(super) rwbs: [u8; RWBS_BYTES],
    pub(super) task: [u8; TASK_BYTES],
}

impl Field {
    fn of(self, bytes: &[u8]) -> Option<&[u8]> {
        bytes.get(self.offset..self.offset.checked_add(self.bytes)?)
    }

    fn number(self, bytes: &[u8]) -> Option<u64> {
        let bytes = self.of(bytes)?;
        Some(match bytes.len() {
            8 => u64::from_ne_bytes(bytes.try_into().ok()?),
            4 => u64::from(u32::from_ne_bytes(bytes.try_into().ok()?)),
            2 => u64::from(u16::from_ne_bytes(bytes.try_into().ok()?)),
            1 => u64::from(*bytes.first()?),
            _ => return None,
        })
    }
}

/// A name into a field of fixed length; what is too long is cut.
fn copy(to: &mut [u8], from: &[u8]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
}

/// `field:sector_t sector; offset:16; size:8; signed:0;`
fn parse_field(line: &str, name: &str) -> Option<Field> {
    let mut parts = line.trim().strip_prefix("field:")?.split(';').map(str::trim);
    let declared = parts.next()?.split_whitespace().next_back()?;
    if declared.split('[').next() != Some(name) {
        return None;
    }
    let mut number = |key: &str| parts.next()?.strip_prefix(key)?.trim().parse::<usize>().ok();
    Some(Field { offset: number("offset:")?, bytes: number("size:")? })
}
