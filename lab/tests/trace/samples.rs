//! A small input of each format, written for these tests.

macro_rules! texts {
    ($($name:literal,)*) => {
        [$(($name, include_str!(concat!("samples/", $name, ".txt"))),)*]
    };
}

/// Name of the format and text.
pub const TEXTS: [(&str, &str); 21] = texts![
    "fio",
    "android-ext4",
    "ext4",
    "tracefs",
    "strace",
    "mobigen",
    "blkparse",
    "pixel6a",
    "nexus5",
    "cloudphysics",
    "systor",
    "blkparse-csv",
    "libcachesim-csv",
    "msr",
    "spc",
    "alibaba",
    "tencent",
    "diskmon",
    "wiscsee",
    "mqsim",
    "lirs",
];

/// One event of blktrace's binary stream, and what follows it.
pub fn blktrace_event(time_ns: u64, sector: u64, bytes: u32, action: u32, more: &[u8]) -> Vec<u8> {
    let mut event = Vec::new();
    event.extend(0x6561_7407u32.to_le_bytes());
    event.extend(1u32.to_le_bytes());
    event.extend(time_ns.to_le_bytes());
    event.extend(sector.to_le_bytes());
    for number in [bytes, action, 697, 0x80_0000, 0] {
        event.extend(number.to_le_bytes());
    }
    event.extend(0u16.to_le_bytes());
    event.extend((more.len() as u16).to_le_bytes());
    event.extend(more);
    event
}

/// A name, a synchronous FUA write with its completion, and a read that never completes.
pub fn blktrace() -> Vec<u8> {
    let (write, sync, issue, complete) = (1 << 17, 1 << 19, 1 << 22 | 7, 1 << 23 | 8);
    [
        blktrace_event(0, 0, 0, 1 << 26, b"sqlite3\0"),
        blktrace_event(1000, 8, 4096, write | sync | issue | 1 << 31, b""),
        blktrace_event(5000, 8, 4096, write | sync | complete | 1 << 31, b""),
        blktrace_event(6000, 16, 512, 1 << 16 | issue, b""),
    ]
    .concat()
}

/// As [`blktrace`], and the read completes half a second after it was issued, at 1.5 s.
pub fn blktrace_spread() -> Vec<u8> {
    let (write, sync, issue, complete) = (1 << 17, 1 << 19, 1 << 22 | 7, 1 << 23 | 8);
    [
        blktrace_event(0, 0, 0, 1 << 26, b"sqlite3\0"),
        blktrace_event(1000, 8, 4096, write | sync | issue | 1 << 31, b""),
        blktrace_event(5000, 8, 4096, write | sync | complete | 1 << 31, b""),
        blktrace_event(1_500_006_000, 16, 512, 1 << 16 | issue, b""),
        blktrace_event(2_000_006_000, 16, 512, 1 << 16 | complete, b""),
    ]
    .concat()
}
