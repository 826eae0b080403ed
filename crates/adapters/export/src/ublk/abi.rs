//! Commands and structures of the driver, as bytes. All numbers are the machine's.

use syncline_device::{Geometry, SECTOR_BYTES};

/// Requests that the kernel may have here at once.
pub(super) const QUEUE_DEPTH: u16 = 32;
/// Largest request, in bytes.
pub(super) const IO_BYTES_MAX: u32 = 1 << 20;

/// Feature: commands are encoded as ioctls are.
const F_CMD_IOCTL_ENCODE: u64 = 1 << 6;
/// Feature: data goes by pread and pwrite.
pub(super) const F_USER_COPY: u64 = 1 << 7;

const ATTR_READ_ONLY: u32 = 1;
const ATTR_VOLATILE_CACHE: u32 = 1 << 2;
const ATTR_FUA: u32 = 1 << 3;
const PARAM_BASIC: u32 = 1;
const PARAM_DISCARD: u32 = 2;
/// 512 and 4096, as powers of two.
const LOGICAL_SHIFT: u8 = 9;
const PHYSICAL_SHIFT: u8 = 12;
/// One discard, in sectors: 1 GiB.
const DISCARD_SECTORS_MAX: u32 = 1 << 21;

/// Marks our devices in the field that is the server's own; the process is beside it.
const OURS: u64 = 0x5359_4e43;

const CTRL_CMD_BYTES: u32 = 32;
const IO_CMD_BYTES: u32 = 16;
pub(super) const INFO_BYTES: usize = 64;
pub(super) const PARAMS_BYTES: usize = 64;
pub(super) const DESCRIPTOR_BYTES: usize = 24;

/// Offset of the data of requests in the character device, and width (in bits) of the part for one
/// tag.
const DATA_OFFSET: u64 = 0x8000_0000;
const DATA_BITS: u32 = 25;

/// An ioctl's number that reads and writes (3) or only reads (2), of type `u`.
const fn number(direction: u32, nr: u32, size_bytes: u32) -> u32 {
    direction << 30 | size_bytes << 16 | (b'u' as u32) << 8 | nr
}

pub(super) const GET_DEV_INFO: u32 = number(2, 0x02, CTRL_CMD_BYTES);
pub(super) const ADD_DEV: u32 = number(3, 0x04, CTRL_CMD_BYTES);
pub(super) const DEL_DEV: u32 = number(3, 0x05, CTRL_CMD_BYTES);
pub(super) const START_DEV: u32 = number(3, 0x06, CTRL_CMD_BYTES);
pub(super) const STOP_DEV: u32 = number(3, 0x07, CTRL_CMD_BYTES);
pub(super) const SET_PARAMS: u32 = number(3, 0x08, CTRL_CMD_BYTES);
/// From Linux 6.9 on.
pub(super) const DEL_DEV_ASYNC: u32 = number(2, 0x14, CTRL_CMD_BYTES);
pub(super) const FETCH: u32 = number(3, 0x20, IO_CMD_BYTES);
pub(super) const COMMIT_AND_FETCH: u32 = number(3, 0x21, IO_CMD_BYTES);

fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn long(bytes: &[u8], at: usize) -> u64 {
    let halves = (word(bytes, at).to_ne_bytes(), word(bytes, at + 4).to_ne_bytes());
    let ([a, b, c, d], [e, f, g, h]) = halves;
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

/// A control command: the device (`u32::MAX`: a new one), its buffer and its one number.
pub(super) fn control(id: u32, addr: u64, len: u16, data: u64) -> [u8; 80] {
    let mut bytes = [0; 80];
    put(&mut bytes, 0, id.to_ne_bytes());
    put(&mut bytes, 4, u16::MAX.to_ne_bytes());
    put(&mut bytes, 6, len.to_ne_bytes());
    put(&mut bytes, 8, addr.to_ne_bytes());
    put(&mut bytes, 16, data.to_ne_bytes());
    bytes
}

/// Parameters of a device, as the kernel reports them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Info {
    pub(super) id: u32,
    pub(super) io_bytes_max: u32,
    pub(super) user_copy: bool,
    /// The process that made it, if that was one of ours.
    pub(super) maker: Option<u32>,
}

/// A new device of this process.
pub(super) fn new_info(io_bytes_max: u32, pid: u32) -> [u8; INFO_BYTES] {
    let mut bytes = [0; INFO_BYTES];
    put(&mut bytes, 0, 1_u16.to_ne_bytes());
    put(&mut bytes, 2, QUEUE_DEPTH.to_ne_bytes());
    put(&mut bytes, 8, io_bytes_max.to_ne_bytes());
    put(&mut bytes, 12, u32::MAX.to_ne_bytes());
    put(&mut bytes, 24, (F_CMD_IOCTL_ENCODE | F_USER_COPY).to_ne_bytes());
    put(&mut bytes, 32, (OURS << 32 | u64::from(pid)).to_ne_bytes());
    bytes
}

pub(super) fn info(bytes: &[u8; INFO_BYTES]) -> Info {
    let own = long(bytes, 32);
    Info {
        id: word(bytes, 12),
        io_bytes_max: word(bytes, 8),
        user_copy: long(bytes, 24) & F_USER_COPY != 0,
        maker: (own >> 32 == OURS).then_some(own as u32),
    }
}

/// Limits of the block device.
pub(super) fn params(geometry: &Geometry, io_bytes_max: u32) -> [u8; PARAMS_BYTES] {
    let mut attributes = 0;
    for (has, bit) in [
        (geometry.read_only, ATTR_READ_ONLY),
        (geometry.volatile_cache, ATTR_VOLATILE_CACHE),
        // The kernel takes FUA with a write cache only, and needs neither without one.
        (geometry.volatile_cache && geometry.fua, ATTR_FUA),
    ] {
        attributes |= if has { bit } else { 0 };
    }
    let discard = geometry.discard && !geometry.read_only;
    let types = PARAM_BASIC | if discard { PARAM_DISCARD } else { 0 };
    let mut bytes = [0; PARAMS_BYTES];
    put(&mut bytes, 0, (PARAMS_BYTES as u32).to_ne_bytes());
    put(&mut bytes, 4, types.to_ne_bytes());
    put(&mut bytes, 8, attributes.to_ne_bytes());
    put(&mut bytes, 12, [LOGICAL_SHIFT, PHYSICAL_SHIFT, PHYSICAL_SHIFT, PHYSICAL_SHIFT]);
    put(&mut bytes, 16, (io_bytes_max >> LOGICAL_SHIFT).to_ne_bytes());
    put(&mut bytes, 24, (geometry.size_bytes / SECTOR_BYTES).to_ne_bytes());
    if discard {
        put(&mut bytes, 44, (1_u32 << PHYSICAL_SHIFT).to_ne_bytes());
        put(&mut bytes, 48, DISCARD_SECTORS_MAX.to_ne_bytes());
        put(&mut bytes, 56, 1_u16.to_ne_bytes());
    }
    bytes
}

/// Takes the next request of a tag, after the result of the last one.
pub(super) fn io(tag: u16, result: i32) -> [u8; 16] {
    let mut bytes = [0; 16];
    put(&mut bytes, 2, tag.to_ne_bytes());
    put(&mut bytes, 4, result.to_ne_bytes());
    bytes
}

/// Returns the offset of the data of a tag's request in the character device.
pub(super) fn data_offset(tag: u16) -> u64 {
    DATA_OFFSET + (u64::from(tag) << DATA_BITS)
}

/// Command from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Read,
    Write { fua: bool },
    Flush,
    Discard,
}

/// A request: bytes of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Job {
    pub(super) command: Command,
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// A descriptor; `None` if it is no command that was offered, or its range is no number.
pub(super) fn job(bytes: &[u8; DESCRIPTOR_BYTES]) -> Option<Job> {
    let flags = word(bytes, 0);
    let command = match flags & 0xff {
        0 => Command::Read,
        1 => Command::Write { fua: flags & 1 << 13 != 0 },
        // The kernel leaves in the range what was there: the sector is -1 as a rule.
        2 => return Some(Job { command: Command::Flush, offset: 0, length: 0 }),
        3 => Command::Discard,
        _ => return None,
    };
    let length = u64::from(word(bytes, 4)) * SECTOR_BYTES;
    let offset = long(bytes, 8).checked_mul(SECTOR_BYTES)?;
    Some(Job { command, offset, length })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of linux/ublk_cmd.h, as a C compiler makes them.
    #[test]
    fn commands_have_the_numbers_of_the_header() {
        let numbers =
            [GET_DEV_INFO, ADD_DEV, DEL_DEV, START_DEV, STOP_DEV, SET_PARAMS, DEL_DEV_ASYNC];
        let header = [
            0x8020_7502,
            0xc020_7504,
            0xc020_7505,
            0xc020_7506,
            0xc020_7507,
            0xc020_7508,
            0x8020_7514,
        ];
        assert_eq!(numbers, header);
        assert_eq!([FETCH, COMMIT_AND_FETCH], [0xc010_7520, 0xc010_7521]);
    }

    fn geometry() -> Geometry {
        Geometry {
            size_bytes: 3 << 20,
            max_request_bytes: 1 << 20,
            volatile_cache: true,
            fua: true,
            barrier: false,
            discard: true,
            read_only: false,
            zones: None,
            write_hints: false,
        }
    }

    #[test]
    fn limits_are_those_of_the_device() {
        let bytes = params(&geometry(), 1 << 19);
        assert_eq!((word(&bytes, 0), word(&bytes, 4), word(&bytes, 8)), (64, 3, 4 | 8));
        assert_eq!(bytes[12..16], [9, 12, 12, 12]);
        assert_eq!((word(&bytes, 16), long(&bytes, 24)), (1024, 6144));
        assert_eq!((word(&bytes, 44), word(&bytes, 48), bytes[56]), (4096, 1 << 21, 1));
        let attributes = |geometry: Geometry| word(&params(&geometry, 1 << 20), 8);
        assert_eq!(attributes(Geometry { fua: false, ..geometry() }), 4);
        assert_eq!(attributes(Geometry { volatile_cache: false, ..geometry() }), 0);
        // No discard is offered where the device does none or takes no change.
        let read_only = Geometry { read_only: true, ..geometry() };
        assert_eq!(attributes(read_only), 1 | 4 | 8);
        for without in [read_only, Geometry { discard: false, ..geometry() }] {
            let bytes = params(&without, 1 << 20);
            assert_eq!((word(&bytes, 4), long(&bytes, 44)), (1, 0));
        }
    }

    #[test]
    fn a_device_says_who_made_it() {
        let mut bytes = new_info(1 << 20, 4711);
        assert_eq!((bytes[0], bytes[2], word(&bytes, 12)), (1, 32, u32::MAX));
        put(&mut bytes, 12, 5_u32.to_ne_bytes());
        let found = info(&bytes);
        let expected = Info { id: 5, io_bytes_max: 1 << 20, user_copy: true, maker: Some(4711) };
        assert_eq!(found, expected);
        put(&mut bytes, 24, F_CMD_IOCTL_ENCODE.to_ne_bytes());
        put(&mut bytes, 32, 4711_u64.to_ne_bytes());
        assert_eq!((info(&bytes).user_copy, info(&bytes).maker), (false, None));
    }

    #[test]
    fn control_commands_are_of_no_queue() {
        let bytes = control(7, 0x1122_3344_5566, 64, 99);
        assert_eq!((word(&bytes, 0), bytes[4..8].to_vec()), (7, vec![255, 255, 64, 0]));
        assert_eq!((long(&bytes, 8), long(&bytes, 16)), (0x1122_3344_5566, 99));
        assert!(bytes[24..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn results_and_places_are_of_a_tag() {
        assert_eq!(io(3, -5), [0, 0, 3, 0, 251, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(data_offset(0), 0x8000_0000);
        assert_eq!(data_offset(31) - data_offset(30), 32 << 20);
    }

    fn descriptor(flags: u32, sectors: u32, first: u64) -> [u8; DESCRIPTOR_BYTES] {
        let mut bytes = [0; DESCRIPTOR_BYTES];
        put(&mut bytes, 0, flags.to_ne_bytes());
        put(&mut bytes, 4, sectors.to_ne_bytes());
        put(&mut bytes, 8, first.to_ne_bytes());
        bytes
    }

    #[test]
    fn descriptors_become_ranges_of_bytes() {
        let read = job(&descriptor(0, 8, 1 << 33));
        assert_eq!(read, Some(Job { command: Command::Read, offset: 1 << 42, length: 4096 }));
        let write = |flags| job(&descriptor(flags, 1, 0)).map(|job| job.command);
        assert_eq!(write(1), Some(Command::Write { fua: false }));
        // Other flags, as metadata (bit 11), change nothing.
        assert_eq!(write(1 | 1 << 11 | 1 << 13), Some(Command::Write { fua: true }));
        let flush = Some(Job { command: Command::Flush, offset: 0, length: 0 });
        assert_eq!(job(&descriptor(2, 0, u64::MAX)), flush, "as Linux 6.12 sends it");
        assert_eq!(write(3), Some(Command::Discard));
        // Zeros are not offered, zones neither.
        assert_eq!((write(5), write(13)), (None, None));
        assert_eq!(job(&descriptor(0, 8, u64::MAX / 256)), None);
    }
}
