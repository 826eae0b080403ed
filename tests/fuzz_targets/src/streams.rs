//! Clients of NBD and NFS servers that send anything.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use syncline_control::status::{Image, Sources, Status};
use syncline_device::{MemoryDevice, VirtualClock};
use syncline_export::{Listen, NbdServed, NbdServer};
use syncline_fs::{MountOptions, Volume};
use syncline_nfs::{PROTOCOL, Rules, Server};
use syncline_testkit::{ImageSpec, mkfs};

/// Longest wait for a server to answer or to hang up.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Bytes of the device.
const DEVICE_BYTES: u64 = 1 << 20;
/// Begin of an NBD client: its flags, and that it wants the export without a name.
const HELLO: &[u8] = b"\0\0\0\x01IHAVEOPT\0\0\0\x07\0\0\0\x06\0\0\0\0\0\0";

/// Sends everything, and reads until the server hangs up.
fn talk(address: SocketAddr, parts: &[&[u8]]) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    stream.set_write_timeout(Some(TIMEOUT)).expect("a socket");
    let mut reader = stream.try_clone().expect("a descriptor");
    let read = std::thread::spawn(move || {
        let (mut part, mut total) = ([0; 4096], 0_usize);
        loop {
            match reader.read(&mut part) {
                Ok(0) => return Some(total),
                Ok(n) => total += n,
                Err(err) if err.kind() == std::io::ErrorKind::ConnectionReset => {
                    return Some(total);
                }
                Err(_) => return None,
            }
        }
    });
    for part in parts {
        // The server may have hung up already.
        let _ = stream.write_all(part);
    }
    let _ = stream.shutdown(Shutdown::Write);
    assert!(read.join().is_ok_and(|total| total.is_some()), "the server does not hang up");
}

/// An input is a byte that says whether a handshake goes before the rest, and the rest.
pub(crate) fn feed_nbd(bytes: &[u8]) {
    static SERVED: OnceLock<NbdServed> = OnceLock::new();
    let served = SERVED.get_or_init(|| {
        let device = Arc::new(MemoryDevice::new(DEVICE_BYTES));
        let server = NbdServer { device, name: "disk".into() };
        let any = Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
        server.serve(&any).expect("a port")
    });
    let Listen::Tcp(address) = served.listen() else { return };
    let (how, rest) = bytes.split_first().unwrap_or((&0, &[]));
    let hello = if how % 2 == 0 { HELLO } else { &[] };
    talk(*address, &[hello, rest]);
}

/// An input is records of calls.
pub(crate) fn feed_nfs(bytes: &[u8]) {
    static SERVED: OnceLock<SocketAddr> = OnceLock::new();
    let address = SERVED.get_or_init(|| {
        let image = mkfs(&ImageSpec::with_size(16 << 20));
        let device = MemoryDevice::load(image.path()).expect("an image that was just made");
        let clock = Arc::new(VirtualClock::default());
        let options = MountOptions::default();
        let volume = Volume::mount(Arc::new(device), clock.clone(), options);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let volume = volume.expect("a stock image");
        let rules = Rules { permissions: false, ..Rules::default() };
        let (image, options) = (Image::default(), MountOptions::default());
        let status = Status::new(image, &options, clock.clone(), PROTOCOL, Sources::default());
        let served = (volume, Arc::new(status));
        let mut server = Server::new(listener, served, 7, rules).expect("a listener");
        let address = server.address().expect("it listens");
        std::thread::spawn(move || server.run(&*clock, &AtomicBool::new(false)));
        address
    });
    talk(*address, &[bytes]);
}
