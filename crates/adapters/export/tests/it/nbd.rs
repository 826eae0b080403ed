//! A device over the network block device protocol: a client of our own that says every byte, and
//! the tools of qemu and libnbd as judges.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use syncline_device::{
    BlockDevice, FailingDevice, FaultPlan, MemoryDevice, OpClass, RecordingDevice,
};
use syncline_export::{Listen, NbdServed, NbdServer};
use syncline_testkit::{Need, Random, require, skip};

const MIB: u64 = 1 << 20;
const GO: u32 = 7;
const ACK: u32 = 1;
const INFO: u32 = 3;
const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const ZEROES: u16 = 6;
const FUA: u16 = 1;

fn serve(device: Arc<dyn BlockDevice>) -> (tempfile::TempDir, PathBuf, NbdServed) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let server = NbdServer { device, name: "disk".into() };
    let served = server.serve(&Listen::Unix(path.clone())).unwrap();
    (dir, path, served)
}

/// A client of fixed newstyle that writes what the specification says, byte by byte.
struct Client {
    socket: UnixStream,
    structured: bool,
    flags: u16,
    size: u64,
}

impl Client {
    fn connect(path: &Path) -> UnixStream {
        let socket = UnixStream::connect(path).unwrap();
        socket.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        socket
    }

    fn hello(socket: &mut UnixStream) {
        let mut hello = [0; 18];
        socket.read_exact(&mut hello).unwrap();
        assert_eq!(&hello, b"NBDMAGICIHAVEOPT\0\x03");
        socket.write_all(&[0, 0, 0, 3]).unwrap();
    }

    fn option(socket: &mut UnixStream, option: u32, data: &[u8]) {
        socket.write_all(b"IHAVEOPT").unwrap();
        socket.write_all(&option.to_be_bytes()).unwrap();
        socket.write_all(&(data.len() as u32).to_be_bytes()).unwrap();
        socket.write_all(data).unwrap();
    }

    /// Type and data of the next reply to an option.
    fn answer(socket: &mut UnixStream, option: u32) -> (u32, Vec<u8>) {
        let mut head = [0; 20];
        socket.read_exact(&mut head).unwrap();
        assert_eq!(head[..8], 0x0003_e889_0455_65a9_u64.to_be_bytes());
        assert_eq!(head[8..12], option.to_be_bytes());
        let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
        let mut data = vec![0; word(16) as usize];
        socket.read_exact(&mut data).unwrap();
        (word(12), data)
    }

    fn go(path: &Path, structured: bool) -> Client {
        let mut socket = Client::connect(path);
        Client::hello(&mut socket);
        if structured {
            Client::option(&mut socket, 8, &[]);
            assert_eq!(Client::answer(&mut socket, 8), (ACK, vec![]));
        }
        Client::option(&mut socket, GO, &[0, 0, 0, 4, b'd', b'i', b's', b'k', 0, 1, 0, 3]);
        let (kind, export) = Client::answer(&mut socket, GO);
        assert_eq!((kind, export.len(), &export[..2]), (INFO, 12, &[0, 0][..]));
        let (kind, sizes) = Client::answer(&mut socket, GO);
        assert_eq!((kind, &sizes[..]), (INFO, &[0, 3, 0, 0, 2, 0, 0, 0, 16, 0, 2, 0, 0, 0][..]));
        assert_eq!(Client::answer(&mut socket, GO), (ACK, vec![]));
        let size = u64::from_be_bytes(export[2..10].try_into().unwrap());
        let flags = u16::from_be_bytes(export[10..].try_into().unwrap());
        Client { socket, structured, flags, size }
    }

    fn send(&mut self, flags: u16, command: u16, cookie: u64, (offset, length): (u64, u32)) {
        let mut head = 0x2560_9513_u32.to_be_bytes().to_vec();
        head.extend(flags.to_be_bytes());
        head.extend(command.to_be_bytes());
        head.extend(cookie.to_be_bytes());
        head.extend(offset.to_be_bytes());
        head.extend(length.to_be_bytes());
        self.socket.write_all(&head).unwrap();
    }

    /// Cookie and error of the next reply; of a read that is `bytes` long its data.
    fn reply(&mut self, bytes: usize) -> (u64, u32, Vec<u8>) {
        let mut head = [0; 16];
        self.socket.read_exact(&mut head).unwrap();
        let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
        let cookie = u64::from_be_bytes(head[8..16].try_into().unwrap());
        if word(0) == 0x6744_6698 {
            assert!(!self.structured || bytes == 0, "a read needs a structured reply");
            let mut data = vec![0; if word(4) == 0 { bytes } else { 0 }];
            self.socket.read_exact(&mut data).unwrap();
            return (cookie, word(4), data);
        }
        assert!(self.structured && word(0) == 0x668e_33ef);
        let mut length = [0; 4];
        self.socket.read_exact(&mut length).unwrap();
        let mut data = vec![0; u32::from_be_bytes(length) as usize];
        self.socket.read_exact(&mut data).unwrap();
        match word(4) {
            0x0001_0000 => (cookie, 0, data),
            0x0001_0001 => (cookie, 0, data.split_off(8)),
            0x0001_8001 => (cookie, u32::from_be_bytes(data[..4].try_into().unwrap()), vec![]),
            other => panic!("chunk {other:#x}"),
        }
    }

    /// One request and its reply; error and data.
    fn ask(&mut self, flags: u16, command: u16, range: (u64, u32), data: &[u8]) -> (u32, Vec<u8>) {
        self.send(flags, command, 77, range);
        self.socket.write_all(data).unwrap();
        let bytes = if command == READ { range.1 as usize } else { 0 };
        let (cookie, error, data) = self.reply(bytes);
        assert_eq!(cookie, 77);
        (error, data)
    }
}

#[test]
fn every_command_reaches_the_device() {
    let device = Arc::new(RecordingDevice::new(MemoryDevice::new(4 * MIB)));
    let (_dir, path, served) = serve(device.clone());
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    for structured in [false, true] {
        let mut client = Client::go(&path, structured);
        assert_eq!(client.size, 4 * MIB);
        // Flags, flush, FUA, trim, zeros, several connections; DF with structured replies only.
        let expected = 0b1_0110_1101 | if structured { 0x80 } else { 0 };
        assert_eq!(client.flags, expected, "{:b}", client.flags);
        let before = device.counts();
        let data: Vec<u8> = (0..8192_u32).map(|i| (i % 251) as u8).collect();
        assert_eq!(client.ask(0, WRITE, (4096, 8192), &data), (0, vec![]));
        assert_eq!(client.ask(0, READ, (4096, 8192), &[]), (0, data.clone()));
        let counts = device.counts() - before;
        assert_eq!((counts.write_requests(), counts.read_requests(), counts.flushes()), (1, 1, 0));
        assert_eq!(client.ask(0, FLUSH, (0, 0), &[]), (0, vec![]));
        assert_eq!((device.counts() - before).flushes(), 1);
        assert_eq!(client.ask(FUA, WRITE, (0, 512), &data[..512]), (0, vec![]));
        assert_eq!((device.counts() - before).other.fua_writes, 1);
        // Parts of sectors.
        assert_eq!(client.ask(0, WRITE, (5000, 100), &[0xee; 100]), (0, vec![]));
        let around = [&data[900..904], &[0xee; 100], &data[1004..1010]].concat();
        assert_eq!(client.ask(0, READ, (4996, 110), &[]), (0, around));
        assert_eq!(client.ask(FUA, ZEROES, (4096, 3 << 20), &[]), (0, vec![]));
        assert_eq!((device.counts() - before).flushes(), 2);
        assert_eq!(client.ask(0, READ, (4096, 8192), &[]), (0, vec![0; 8192]));
        assert_eq!(client.ask(0, TRIM, (0, 8192), &[]), (0, vec![]));
        assert_eq!(client.ask(0, READ, (0, 0), &[]), (0, vec![]));
        client.send(0, DISCONNECT, 0, (0, 0));
        assert_eq!(client.socket.read(&mut [0]).unwrap(), 0);
    }
    served.stop();
    assert!(!path.exists());
}

#[test]
fn bad_requests_are_answered_and_the_connection_goes_on() {
    let plan = FaultPlan::once(OpClass::Flush, 1);
    let device = Arc::new(FailingDevice::new(MemoryDevice::new(MIB)));
    device.arm(plan);
    let (_dir, path, _served) = serve(device);
    for structured in [false, true] {
        let mut client = Client::go(&path, structured);
        let (inval, nospc) = (22, 28);
        assert_eq!(client.ask(0, READ, (MIB - 512, 1024), &[]).0, inval);
        assert_eq!(client.ask(0, READ, (u64::MAX, 1024), &[]).0, inval);
        assert_eq!(client.ask(0, READ, (0, u32::MAX), &[]).0, inval);
        assert_eq!(client.ask(0, WRITE, (MIB, 512), &[1; 512]).0, nospc);
        assert_eq!(client.ask(0, ZEROES, (0, u32::MAX), &[]).0, nospc);
        assert_eq!(client.ask(0, TRIM, (0, u32::MAX), &[]).0, inval);
        assert_eq!(client.ask(1 << 9, WRITE, (0, 512), &[1; 512]).0, inval);
        assert_eq!(client.ask(0, 99, (0, 512), &[]).0, inval);
        assert_eq!(client.ask(0, READ, (0, 512), &[]), (0, vec![0; 512]));
    }
    let mut client = Client::go(&path, true);
    assert_eq!(client.ask(0, FLUSH, (0, 0), &[]).0, 5);
    // What is no request ends the connection; others are not touched.
    let mut broken = Client::go(&path, false);
    broken.socket.write_all(&[0; 28]).unwrap();
    assert_eq!(broken.socket.read(&mut [0]).unwrap(), 0);
    let mut long = Client::go(&path, false);
    long.send(0, WRITE, 1, (0, 33 << 20));
    assert_eq!(long.socket.read(&mut [0]).unwrap(), 0);
    assert_eq!(client.ask(0, READ, (0, 512), &[]).0, 0);
}

#[test]
fn replies_come_for_all_that_are_under_way() {
    let (_dir, path, served) = serve(Arc::new(MemoryDevice::new(4 * MIB)));
    let mut client = Client::go(&path, true);
    for at in 0..64_u64 {
        client.send(0, WRITE, at, (at * 4096, 4096));
        client.socket.write_all(&[at as u8; 4096]).unwrap();
    }
    let mut cookies: Vec<u64> =
        (0..64).map(|_| client.reply(0)).map(|r| (r.0 << 8) | u64::from(r.1)).collect();
    cookies.sort_unstable();
    assert_eq!(cookies, (0..64).map(|at| at << 8).collect::<Vec<u64>>());
    for at in 0..64_u64 {
        client.send(0, READ, at, (at * 4096, 4096));
    }
    for _ in 0..64 {
        let (cookie, error, data) = client.reply(4096);
        assert_eq!((error, data), (0, vec![cookie as u8; 4096]));
    }
    // The end of the server ends connections that say nothing.
    assert_eq!(served.connections(), 1);
    served.stop();
    assert_eq!(client.socket.read(&mut [0]).unwrap(), 0);
}

#[test]
fn the_handshake_refuses_what_it_does_not_know() {
    let (_dir, path, _served) = serve(Arc::new(MemoryDevice::new(MIB)));
    let mut socket = Client::connect(&path);
    Client::hello(&mut socket);
    let refused = |kind: u32| 1 << 31 | kind;
    let cases: [(u32, &[u8], u32); 8] = [
        (5, b"", refused(1)),
        (10, b"\0\0\0\0\0\0\0\0", refused(1)),
        (99, b"abc", refused(1)),
        (GO, b"\0\0\0\x05other\0\0", refused(6)),
        (GO, b"\0\0\0\xffx\0\0", refused(3)),
        (6, b"", refused(3)),
        (3, b"x", refused(3)),
        (8, b"x", refused(3)),
    ];
    for (option, data, kind) in cases {
        Client::option(&mut socket, option, data);
        assert_eq!(Client::answer(&mut socket, option).0, kind, "option {option}");
    }
    Client::option(&mut socket, 3, &[]);
    assert_eq!(Client::answer(&mut socket, 3), (2, b"\0\0\0\x04disk".to_vec()));
    assert_eq!(Client::answer(&mut socket, 3).0, ACK);
    Client::option(&mut socket, 2, &[]);
    assert_eq!(Client::answer(&mut socket, 2).0, ACK);
    assert_eq!(socket.read(&mut [0]).unwrap(), 0);
    // The oldest form, without zeros and with.
    for (flags, zeros) in [(3, 0), (1, 124)] {
        let mut socket = Client::connect(&path);
        socket.read_exact(&mut [0; 18]).unwrap();
        socket.write_all(&[0, 0, 0, flags]).unwrap();
        Client::option(&mut socket, 1, b"disk");
        let mut answer = vec![0; 10 + zeros];
        socket.read_exact(&mut answer).unwrap();
        assert_eq!(answer[..8], MIB.to_be_bytes());
        let mut client = Client { socket, structured: false, flags: 0, size: MIB };
        assert_eq!(client.ask(0, READ, (0, 512), &[]), (0, vec![0; 512]));
    }
    // Unknown flags, endless options and too much data end it.
    let mut socket = Client::connect(&path);
    socket.read_exact(&mut [0; 18]).unwrap();
    socket.write_all(&[0, 0, 1, 0]).unwrap();
    assert_eq!(socket.read(&mut [0]).unwrap(), 0);
    let mut socket = Client::connect(&path);
    Client::hello(&mut socket);
    socket.write_all(b"IHAVEOPT\0\0\0\x07\xff\xff\xff\xff").unwrap();
    assert_eq!(Client::answer(&mut socket, GO).0, refused(9));
}

#[test]
fn hostile_clients_end_and_others_are_served() {
    let (_dir, path, served) = serve(Arc::new(MemoryDevice::new(MIB)));
    let alive = || {
        let mut client = Client::go(&path, false);
        client.send(0, READ, 1, (0, 4096));
        assert_eq!(client.reply(4096), (1, 0, vec![0; 4096]));
    };
    let mut random = Random::new(9);
    for round in 0..300 {
        // Noise in the place of options, and of requests.
        let mut socket = Client::connect(&path);
        Client::hello(&mut socket);
        if round % 2 == 0 {
            Client::option(&mut socket, GO, &[0; 6]);
        }
        let noise: Vec<u8> = (0..1 + random.index(200)).map(|_| random.bits() as u8).collect();
        // It may have hung up.
        let _ = socket.write_all(&noise);
        let _ = socket.shutdown(Shutdown::Write);
        let ended = socket.read_to_end(&mut Vec::new());
        let reset = |err: &std::io::Error| err.kind() == std::io::ErrorKind::ConnectionReset;
        assert!(ended.is_ok() || ended.as_ref().is_err_and(reset), "{noise:?}: {ended:?}");
    }
    alive();
    // A thousand that say nothing: sixteen are kept, the others are closed at once.
    let silent: Vec<_> = (0..1000).filter_map(|_| UnixStream::connect(&path).ok()).collect();
    assert!(served.connections() <= 16, "{}", served.connections());
    drop(silent);
    // Those that the kernel has queued take places, too, when their turn comes: a client behind
    // them is refused until then. One that is greeted had all of them before it.
    let began = std::time::Instant::now();
    let wait = || {
        assert!(began.elapsed().as_secs() < 60, "{} are left", served.connections());
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    while UnixStream::connect(&path).unwrap().read_exact(&mut [0; 18]).is_err() {
        wait();
    }
    while served.connections() > 0 {
        wait();
    }
    alive();
}

#[test]
fn another_user_is_not_served() {
    if !require("another_user_is_not_served", &[Need::Root]) {
        return;
    }
    let (dir, path, served) = serve(Arc::new(MemoryDevice::new(MIB)));
    for (place, mode) in [(dir.path(), 0o755), (&*path, 0o666)] {
        // Even where somebody has opened the socket to all.
        std::fs::set_permissions(place, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let code = "import os,socket,sys\nos.setgid(1234)\nos.setuid(int(sys.argv[2]))\n\
                s=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n\
                print(len(s.recv(18, socket.MSG_WAITALL)))";
    let said = |user: &str| {
        let asked = Command::new("python3").args(["-c", code]).arg(&path).arg(user).output();
        String::from_utf8_lossy(&asked.unwrap().stdout).trim().to_owned()
    };
    assert_eq!((said("0"), said("1234")), ("18".to_owned(), "0".to_owned()));
    served.stop();
}

#[test]
fn read_only_devices_stay_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    std::fs::write(&image, vec![7; MIB as usize]).unwrap();
    let options = syncline_device::FileOptions { read_only: true, ..Default::default() };
    let device = syncline_device::FileDevice::open(&image, options).unwrap();
    let (_dir, path, _served) = serve(Arc::new(device));
    let mut client = Client::go(&path, true);
    assert_eq!(client.flags & 2, 2);
    for command in [WRITE, TRIM, ZEROES] {
        let data = vec![0; if command == WRITE { 512 } else { 0 }];
        assert_eq!(client.ask(0, command, (0, 512), &data).0, 1);
    }
    assert_eq!(client.ask(0, READ, (0, 512), &[]), (0, vec![7; 512]));
}

#[test]
fn a_port_of_the_loopback_address_serves_too() {
    let device = Arc::new(MemoryDevice::new(MIB));
    let server = NbdServer { device, name: String::new() };
    let served = server.serve(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let Listen::Tcp(address) = served.listen() else { panic!("no port") };
    assert_eq!(served.listen().to_string(), format!("nbd://{address}"));
    let mut hello = [0; 8];
    TcpStream::connect(address).unwrap().read_exact(&mut hello).unwrap();
    assert_eq!(&hello, b"NBDMAGIC");
    let taken = NbdServer { device: Arc::new(MemoryDevice::new(MIB)), name: String::new() };
    let said = taken.serve(served.listen()).err().unwrap().to_string();
    assert!(said.contains("choose another place"), "{said}");
}

/// Runs a tool; `None`, with a counted skip, where it is not installed.
fn tool(test: &str, words: &[&str]) -> Option<String> {
    let ran = Command::new(words[0]).args(&words[1..]).output();
    let Ok(ran) = ran else {
        skip(test, &format!("needs {}; install qemu-utils and libnbd-bin", words[0]));
        return None;
    };
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.success(), "{words:?}: {said}");
    Some(String::from_utf8_lossy(&ran.stdout).into_owned())
}

#[test]
fn the_tools_of_qemu_accept_it() {
    let test = "the_tools_of_qemu_accept_it";
    let device = Arc::new(RecordingDevice::new(MemoryDevice::new(16 * MIB)));
    let (dir, _path, served) = serve(device.clone());
    let uri = served.listen().to_string();
    let io = ["qemu-io", "-f", "raw", "-t", "none", "-c", "write -P 0x5a 1M 64k", "-c"];
    let writes = ["write -f -P 0x5b 2M 4k", "-c", "write -z 3M 1M", "-c", "discard 5M 1M", "-c"];
    let reads = ["flush", "-c", "read -P 0x5a 1M 64k", "-c", "read -P 0 3M 1M", &uri];
    let Some(said) = tool(test, &[&io[..], &writes, &reads].concat()) else { return };
    assert!(!said.contains("failed"), "{said}");
    assert!(device.counts().flushes() > 0 && device.counts().other.fua_writes > 0);
    // A whole image there and back.
    let image = dir.path().join("image");
    let bytes: Vec<u8> = (0..16 * MIB).map(|i| ((i * i) >> 7) as u8).collect();
    std::fs::write(&image, &bytes).unwrap();
    let name = image.to_str().unwrap();
    tool(test, &["qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", name, &uri]).unwrap();
    let compared = tool(test, &["qemu-img", "compare", "-f", "raw", "-F", "raw", name, &uri]);
    assert!(compared.unwrap().contains("identical"));
    let mut back = vec![0; bytes.len()];
    device
        .read(0, &mut back, syncline_device::Origin::new(syncline_device::Kind::Other, true))
        .unwrap();
    assert_eq!(back, bytes);
}

#[test]
fn the_tools_of_libnbd_accept_it() {
    let test = "the_tools_of_libnbd_accept_it";
    let (dir, _path, served) = serve(Arc::new(MemoryDevice::new(16 * MIB)));
    let uri = served.listen().to_string();
    let Some(said) = tool(test, &["nbdinfo", &uri]) else { return };
    for line in [
        "export-size: 16777216",
        "can_fua: true",
        "can_flush: true",
        "can_multi_conn: true",
        "can_trim: true",
        "can_zero: true",
        "can_df: true",
        "structured packets",
        "block_size_minimum: 512",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(tool(test, &["nbdinfo", "--list", &uri]).unwrap().contains("export=\"disk\""));
    let (there, back) = (dir.path().join("there"), dir.path().join("back"));
    let bytes: Vec<u8> = (0..16 * MIB).map(|i| ((i * i) >> 9) as u8).collect();
    std::fs::write(&there, &bytes).unwrap();
    let copy = ["nbdcopy", "--connections=4", "--flush", there.to_str().unwrap(), &uri];
    tool(test, &copy).unwrap();
    tool(test, &["nbdcopy", &uri, back.to_str().unwrap()]).unwrap();
    assert_eq!(std::fs::read(&back).unwrap(), bytes);
}
