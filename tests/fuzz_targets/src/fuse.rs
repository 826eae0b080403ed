//! Requests of FUSE, as a kernel sends them for hostile programs, or a hostile kernel.
//!
//! ```text
//!   input -> Kernel: header, body by ROWS -> socket -> wire -> adapter -> volume
//!              `--- inodes and handles of the answers <---'
//! ```

use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use syncline_device::{Clock, VirtualClock};
use syncline_fs::Volume;
use syncline_fuse::{FuseOptions, Setup, serve_descriptor};

use crate::bytes::Bytes;
use crate::operations::{base, check, mount};

/// Ways to mount: the volume's options, and those of the mount beside them.
const OPTIONS: [(&str, &str); 7] = [
    ("sync=ordered", ""),
    ("sync=eager", ""),
    ("sync=periodic,log=packed", ""),
    ("sync=eager,log=packed", ""),
    ("sync=periodic", ""),
    ("sync=eager", "writeback_cache"),
    ("sync=ordered", "uid=5,gid=6"),
];
/// Most requests of one input.
const REQUESTS_MAX: usize = 100;
/// Longest wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Most bytes that a request asks for or brings: an answer has to fit into the socket.
const BYTES_MAX: u64 = 100_000;
/// Most inodes, and open files, that the kernel remembers.
const KNOWN_MAX: usize = 64;

/// Bytes of the headers of a request and of an answer.
const HEADER_BYTES: usize = 40;
const ANSWER_BYTES: usize = 16;
/// Bytes of what follows it where a name was found; an open file may be behind it.
const ENTRY_BYTES: usize = 128;

const INIT: u32 = 26;
const FORGET: u32 = 2;
const BATCH_FORGET: u32 = 42;
const STATFS: u32 = 17;
const DESTROY: u32 = 38;

/// One field of a request's body.
#[derive(Clone, Copy)]
enum Field {
    /// Number of an inode.
    Node,
    /// Number of an open file, or of whom a lock belongs to.
    Handle,
    /// Place or length in a file: 64 bits.
    Size,
    /// Flags, ids, counts: 32 bits.
    Word,
    /// Zeros: 32 bits.
    Pad,
    /// Seconds since 1970.
    Seconds,
    /// A type and permissions.
    Mode,
    /// Flags of fallocate.
    Fallocate,
    /// Number of an ioctl.
    Ioctl,
    /// Bytes that are asked for.
    Room,
    /// Bytes of the data at the end.
    Length,
    /// The data.
    Data,
    /// A name with a NUL.
    Name,
    /// The name of an attribute with a NUL.
    Attribute,
}

use Field::{
    Attribute, Data, Fallocate, Handle, Ioctl, Length, Mode, Name, Node, Pad, Room, Seconds, Size,
    Word,
};

/// Requests by number, and the fields of each (`linux/fuse.h`).
#[rustfmt::skip]
const ROWS: &[(u32, &[Field])] = &[
    (1, &[Name]),
    (FORGET, &[Size]),
    (3, &[Word, Pad, Handle]),
    (
        4,
        &[
            Word, Pad, Handle, Size, Handle, Seconds, Seconds, Seconds, Word, Word, Word, Mode,
            Pad, Word, Word, Pad,
        ],
    ),
    (5, &[]),
    (6, &[Name, Name]),
    (8, &[Mode, Word, Word, Pad, Name]),
    (9, &[Mode, Word, Name]),
    (10, &[Name]),
    (11, &[Name]),
    (12, &[Node, Name, Name]),
    (13, &[Node, Name]),
    (14, &[Word, Pad]),
    (15, &[Handle, Size, Room, Word, Handle, Word, Pad]),
    (16, &[Handle, Size, Length, Word, Handle, Word, Pad, Data]),
    (STATFS, &[]),
    (18, &[Handle, Word, Word, Handle]),
    (20, &[Handle, Word, Pad]),
    (21, &[Length, Word, Attribute, Data]),
    (22, &[Room, Pad, Attribute]),
    (23, &[Room, Pad]),
    (24, &[Attribute]),
    (25, &[Handle, Pad, Pad, Handle]),
    (27, &[Word, Pad]),
    (28, &[Handle, Size, Room, Word, Handle, Word, Pad]),
    (29, &[Handle, Word, Word, Handle]),
    (30, &[Handle, Word, Pad]),
    (31, &[Handle, Handle, Size, Size, Word, Word, Word, Pad]),
    (32, &[Handle, Handle, Size, Size, Word, Word, Word, Pad]),
    (34, &[Word, Pad]),
    (35, &[Word, Mode, Word, Pad, Name]),
    (36, &[Size]),
    (37, &[Size, Word, Pad]),
    (DESTROY, &[]),
    (39, &[Handle, Word, Ioctl, Size, Length, Room, Data]),
    (40, &[Handle, Size, Word, Word]),
    (BATCH_FORGET, &[Word, Pad, Node, Size, Node, Size, Node, Size]),
    (43, &[Handle, Size, Size, Fallocate, Pad]),
    (44, &[Handle, Size, Room, Word, Handle, Word, Pad]),
    (45, &[Node, Word, Pad, Name, Name]),
    (46, &[Handle, Size, Word, Pad]),
    (47, &[Handle, Size, Node, Handle, Size, Size, Size]),
];
/// Requests that came later, by rare numbers: what was found before is found by the same input.
const LATER: &[(u32, &[Field])] =
    &[(51, &[Word, Mode, Word, Pad, Name]), (52, &[Word, Pad, Handle, Word, Word])];
/// Of [`ROWS`] the most usual, which every second request is: lookups, files made, opened, read,
/// written, changed, removed, forgotten.
const USUAL: [u32; 16] = [1, 2, 4, 8, 9, 10, 12, 13, 14, 15, 16, 18, 20, 35, 39, 43];

const NAMES: [&[u8]; 7] = [b"a", b"b", b"a longer name than others", b"d", b"e", b".", b".."];
const ATTRIBUTES: [&[u8]; 7] = [
    b"user.a",
    b"user.syncline.status",
    b"security.capability",
    b"system.posix_acl_access",
    b"system.posix_acl_default",
    b"trusted.c",
    b"user.syncline.durability",
];
/// Flags, versions, attributes, trim, shutdown, and f2fs's atomic writes.
const IOCTLS: [u32; 11] = [
    0x8008_6601,
    0x4008_6602,
    0x8008_7601,
    0x801c_581f,
    0x401c_5820,
    0xc018_5879,
    0x8004_587d,
    0xf501,
    0xf502,
    0xf505,
    0x8004_f50c,
];
/// Types and permissions of what is made.
const MODES: [u32; 6] = [0o100_644, 0o106_755, 0o040_755, 0o020_600, 0o010_600, 0o140_777];
const FALLOCATES: [u32; 6] = [0, 1, 3, 0x10, 0x11, 8];

/// An input is a byte of options, one of the end, the kernel's abilities, and requests. Every one
/// is answered, and afterwards, and after a crash then, the volume keeps every rule of ext4.
pub(crate) fn feed(bytes: &[u8]) {
    let mut bytes = Bytes::new(bytes);
    let (of_volume, of_mount) = OPTIONS[usize::from(bytes.u8()) % OPTIONS.len()];
    let crashes = bytes.u8() % 2 == 1;
    let (device, clock) = (Arc::new(base()), Arc::new(VirtualClock::default()));
    let volume = mount(&device, &clock, of_volume);
    let mut kernel = Kernel::start(&volume, &clock, of_mount, &mut bytes);
    for _ in 0..REQUESTS_MAX {
        if bytes.is_empty() || kernel.is_over {
            break;
        }
        kernel.request(&mut bytes);
    }
    kernel.end();
    if crashes {
        let cut = Arc::new(device.snapshot());
        check(mount(&cut, &clock, of_volume), of_volume);
    }
    let volume = if volume.check_running().is_ok() {
        volume.unmount().expect("a device that never fails");
        mount(&device, &clock, of_volume)
    } else {
        drop(volume);
        mount(&Arc::new(device.snapshot()), &clock, of_volume)
    };
    check(volume, of_volume);
}

/// The other end of /dev/fuse.
struct Kernel {
    socket: UnixDatagram,
    server: JoinHandle<std::io::Result<()>>,
    volume: Volume,
    clock: Arc<VirtualClock>,
    nodes: Vec<u64>,
    handles: Vec<u64>,
    unique: u64,
    is_over: bool,
}

impl Kernel {
    fn start(
        volume: &Volume,
        clock: &Arc<VirtualClock>,
        options: &str,
        bytes: &mut Bytes<'_>,
    ) -> Kernel {
        let (socket, theirs) = UnixDatagram::pair().expect("a socket");
        socket.set_read_timeout(Some(TIMEOUT)).expect("a socket");
        let options = FuseOptions::parse(&[options]).expect("options of the table");
        let setup = Setup::new("/".as_ref(), volume.clone(), clock.clone(), options, "fuzz".into());
        let server = std::thread::spawn(move || serve_descriptor(&setup, theirs.into()));
        let (volume, clock) = (volume.clone(), clock.clone());
        let (nodes, handles) = (vec![1], vec![0]);
        let mut kernel =
            Kernel { socket, server, volume, clock, nodes, handles, unique: 0, is_over: false };
        let (minor, abilities) = (31 + u32::from(bytes.u8() % 15), word(bytes) | 1 << 30);
        let more = u32::from(bytes.u16());
        let mut body = [7, minor, 1 << 17, abilities, more].map(u32::to_ne_bytes).concat();
        body.resize(64, 0);
        kernel.exchange((INIT, 0, [0; 3]), &body);
        kernel
    }

    /// Any request, or a time that passes.
    fn request(&mut self, bytes: &mut Bytes<'_>) {
        let (kind, nr) = (bytes.u8(), usize::from(bytes.u8()));
        if kind == 255 {
            self.clock.sleep_until(self.clock.now_ns() + bytes.size() % 40_000_000_000);
            let _ = self.volume.tick(self.clock.now_ns());
            return;
        }
        let node = self.node(bytes);
        // A thread that is none, or this process: what is known of it is looked up.
        let thread = if bytes.u8() % 4 == 3 { std::process::id() } else { 0 };
        let user = [0, 0, 1000, u32::MAX][usize::from(bytes.u8() % 4)];
        let ids = [user, user, thread];
        if kind >= 240 {
            let opcode = if kind >= 248 { word(bytes) } else { nr as u32 % 64 };
            let len = usize::from(bytes.u8());
            if ![INIT, FORGET, BATCH_FORGET].contains(&opcode) {
                self.exchange((opcode, node, ids), bytes.take(len));
            }
            return;
        }
        let usual = USUAL[nr % USUAL.len()];
        let row = match kind % 2 {
            1 if nr >= 248 => LATER.get(nr % LATER.len()),
            1 => ROWS.get(nr % ROWS.len()),
            _ => ROWS.iter().find(|(opcode, _)| *opcode == usual),
        };
        let (opcode, fields) = row.expect("a row of the table");
        let body = self.body(fields, bytes);
        self.exchange((*opcode, node, ids), &body);
    }

    fn body(&self, fields: &[Field], bytes: &mut Bytes<'_>) -> Vec<u8> {
        let (mut body, mut data) = (Vec::new(), Vec::new());
        for field in fields {
            match field {
                Node => body.extend(self.node(bytes).to_ne_bytes()),
                Handle => body.extend(one_of(&self.handles, bytes).to_ne_bytes()),
                Size => body.extend(bytes.size().to_ne_bytes()),
                Word => body.extend(word(bytes).to_ne_bytes()),
                Pad => body.extend([0; 4]),
                Seconds => body.extend(seconds(bytes).to_ne_bytes()),
                Mode => body.extend(word_of(&MODES, bytes).to_ne_bytes()),
                Fallocate => body.extend(word_of(&FALLOCATES, bytes).to_ne_bytes()),
                Ioctl => body.extend(word_of(&IOCTLS, bytes).to_ne_bytes()),
                Room => body.extend(((bytes.size() % BYTES_MAX) as u32).to_ne_bytes()),
                Length => {
                    data = self::data(bytes);
                    body.extend((data.len() as u32).to_ne_bytes());
                }
                Data => body.append(&mut data),
                Name => put_name(&mut body, &NAMES, bytes),
                Attribute => put_name(&mut body, &ATTRIBUTES, bytes),
            }
        }
        body
    }

    fn node(&self, bytes: &mut Bytes<'_>) -> u64 {
        one_of(&self.nodes, bytes)
    }

    /// Sends a request, and waits for its answer or, where it has none, for that of another.
    fn exchange(&mut self, (opcode, node, ids): (u32, u64, [u32; 3]), body: &[u8]) {
        self.send((opcode, node, ids), body);
        if opcode == FORGET || opcode == BATCH_FORGET {
            self.send((STATFS, 1, ids), &[]);
        }
        self.answer(opcode);
        self.is_over = opcode == DESTROY;
    }

    fn send(&mut self, (opcode, node, ids): (u32, u64, [u32; 3]), body: &[u8]) {
        self.unique += 2;
        let words = |words: &[u32]| words.iter().copied().flat_map(u32::to_ne_bytes).collect();
        let mut request: Vec<u8> = words(&[(HEADER_BYTES + body.len()) as u32, opcode]);
        request.extend([self.unique, node].map(u64::to_ne_bytes).concat());
        request.extend::<Vec<u8>>(words(&[ids[0], ids[1], ids[2], 0]));
        request.extend(body);
        again(|| self.socket.send(&request)).expect("it is served");
    }

    /// The answer to the last request. What comes before it is of a request that has none, or says
    /// what to drop.
    fn answer(&mut self, opcode: u32) {
        let mut answer = vec![0; BYTES_MAX as usize + 8192];
        loop {
            let len = again(|| self.socket.recv(&mut answer)).expect("an answer in time");
            assert!(len >= ANSWER_BYTES, "{len} bytes to request {opcode}");
            let (head, body) = answer[..len].split_at(ANSWER_BYTES);
            let error = number(&head[4..8]) as i32;
            assert_eq!(number(&head[..4]), len as u64, "request {opcode}");
            if number(&head[8..]) != self.unique {
                continue;
            }
            assert!((-4095..=0).contains(&error), "request {opcode}: {error}");
            if error == 0 {
                self.learn(opcode, body);
            }
            return;
        }
    }

    /// Remembers inodes and open files.
    fn learn(&mut self, opcode: u32, body: &[u8]) {
        let (node, handle) = match opcode {
            1 | 6 | 8 | 9 | 13 => (body.get(..8), None),
            14 | 27 => (None, body.get(..8)),
            35 | 51 => (body.get(..8), body.get(ENTRY_BYTES..ENTRY_BYTES + 8)),
            _ => return,
        };
        for (known, new) in [(&mut self.nodes, node), (&mut self.handles, handle)] {
            let new = new.map(number).filter(|new| !known.contains(new));
            known.extend(new.filter(|_| known.len() < KNOWN_MAX));
        }
    }

    fn end(self) {
        if !self.is_over {
            again(|| self.socket.send(&[])).expect("it is served");
        }
        let ended = self.server.join().expect("it does not panic");
        let as_expected = if self.is_over { None } else { Some(std::io::ErrorKind::InvalidData) };
        assert_eq!(ended.err().map(|err| err.kind()), as_expected);
    }
}

/// Until no signal interrupts it: a fuzzer has a timer.
fn again<T>(mut call: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    loop {
        match call() {
            Err(err) if err.kind() == std::io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// One that is known as a rule, or any.
fn one_of(known: &[u64], bytes: &mut Bytes<'_>) -> u64 {
    match usize::from(bytes.u8()) {
        nr if nr < 232 => known[nr % known.len()],
        _ => bytes.size(),
    }
}

/// Small as a rule, or any.
fn word(bytes: &mut Bytes<'_>) -> u32 {
    match bytes.u8() {
        small if small < 160 => u32::from(small),
        _ => u32::from(bytes.u16()) << 16 | u32::from(bytes.u16()),
    }
}

/// One of a table as a rule, or any.
fn word_of(table: &[u32], bytes: &mut Bytes<'_>) -> u32 {
    match usize::from(bytes.u8()) {
        nr if nr < 224 => table[nr % table.len()],
        _ => word(bytes),
    }
}

fn seconds(bytes: &mut Bytes<'_>) -> i64 {
    let far = bytes.size() as i64;
    if bytes.u8() % 4 == 3 { far.wrapping_neg() } else { far }
}

fn data(bytes: &mut Bytes<'_>) -> Vec<u8> {
    let len = (bytes.size() % BYTES_MAX) as usize;
    // Of short data every byte is the input's, of other data the first ones.
    let mut data = bytes.take(len.min(32)).to_vec();
    data.resize(len, 7);
    data
}

fn put_name(body: &mut Vec<u8>, names: &[&[u8]], bytes: &mut Bytes<'_>) {
    match usize::from(bytes.u8()) {
        nr if nr < 232 => body.extend(names[nr % names.len()]),
        nr => body.extend(bytes.take((nr - 231) * 20).iter().filter(|byte| **byte != 0)),
    }
    body.push(0);
}

/// A number of up to eight bytes.
fn number(bytes: &[u8]) -> u64 {
    let mut all = [0; 8];
    all[..bytes.len()].copy_from_slice(bytes);
    u64::from_ne_bytes(all)
}
