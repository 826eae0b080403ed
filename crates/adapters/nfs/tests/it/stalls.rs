//! Clients that stall, calls that wait, changes at the same time.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use nfs3_types::nfs3::{COMMIT3args, GETATTR3args, READ3args, WRITE3args, stable_how};
use nfs3_types::xdr_codec::Opaque;
use syncline_device::{BlockDevice, DeviceError, Geometry, MemoryDevice, Op, Request};
use syncline_nfs::{CONNECTIONS_MAX, Rules};

use crate::hostile::{connect, exchange, packed, receive, record, word};
use crate::support::{Client, Served, clean, image};

/// Time in which a server has ended, whatever its clients do.
const END: Duration = Duration::from_secs(10);

fn ends_soon(served: Served) {
    let began = Instant::now();
    served.end();
    assert!(began.elapsed() < END, "{:?}", began.elapsed());
}

#[test]
fn a_thousand_connections_with_half_a_record_hold_nobody_up() {
    let Some(dev) = image("nfs connections") else { return };
    let served = Served::start(&dev, "");
    let mut first = Client::connect(served.port, "/");
    let root = first.root();
    // Who has sent a whole call keeps its connection.
    first.attributes(&root);
    let null = record(3, 100_003, 3, 0, &[]);
    let stalled: Vec<TcpStream> = (0..1000)
        .map(|_| {
            let mut stream = connect(served.port);
            // The server may have closed it already.
            let _ = stream.write_all(&null[..20]);
            stream
        })
        .collect();
    // On the connection that it has, and on a new one, while the thousand are there.
    let file = first.create(&root, "f");
    first.write(&file, 0, b"data", stable_how::FILE_SYNC);
    let mut second = Client::connect(served.port, "/");
    assert_eq!(second.read(&file, 0, 9).0, b"data");
    let open = stalled.iter().filter(|stream| is_open(stream)).count();
    assert!((1..=CONNECTIONS_MAX).contains(&open), "{open} are open");
    ends_soon(served);
    clean(&dev);
}

fn is_open(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    matches!((&*stream).read(&mut [0]), Err(err) if err.kind() == ErrorKind::WouldBlock)
}

#[test]
fn a_client_that_takes_no_replies_holds_nobody_up() {
    let Some(dev) = image("nfs replies") else { return };
    let served = Served::start(&dev, "");
    let mut client = Client::connect(served.port, "/");
    let root = client.root();
    let file = client.create(&root, "f");
    client.write(&file, 0, &[7; 1 << 20], stable_how::UNSTABLE);
    let args = packed(&READ3args { file: file.clone(), offset: 0, count: 1 << 20 });
    let read = record(9, 100_003, 3, 6, &args);
    let mut greedy = connect(served.port);
    greedy.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut sent = 0u64;
    while greedy.write_all(&read).is_ok() {
        sent += 1;
        assert!(sent < 10_000_000, "the server goes on reading");
    }
    assert_eq!(client.read(&file, 0, 1 << 20).0, [7; 1 << 20]);
    client.commit(&file);
    ends_soon(served);
    clean(&dev);
}

#[test]
fn a_stall_within_a_record_ends_the_connection_and_one_between_records_does_not() {
    let Some(dev) = image("nfs patience") else { return };
    let patience = Duration::from_millis(300);
    let rules = Rules { permissions: false, patience, ..Rules::default() };
    let served = Served::with(Arc::clone(&dev) as _, "", rules);
    let null = record(3, 100_003, 3, 0, &[]);
    let (mut silent, mut stalls) = (connect(served.port), connect(served.port));
    stalls.write_all(&null[..20]).unwrap();
    assert_eq!(stalls.read(&mut [0]).unwrap(), 0, "closed");
    std::thread::sleep(2 * patience);
    assert!(exchange(&mut silent, &null).is_some(), "a client may be silent");

    let mut client = Client::connect(served.port, "/");
    let root = client.root();
    let file = client.create(&root, "f");
    client.write(&file, 0, &[7; 1 << 20], stable_how::UNSTABLE);
    let args = packed(&READ3args { file, offset: 0, count: 1 << 20 });
    let mut greedy = connect(served.port);
    let closed = (0..1000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        greedy.write_all(&record(9, 100_003, 3, 6, &args)).is_err()
    });
    assert!(closed, "it never takes a reply");
    ends_soon(served);
}

/// A device without FUA whose flushes wait while the gate is closed.
struct Gated {
    dev: Arc<MemoryDevice>,
    closed: Mutex<bool>,
    opened: Condvar,
}

impl Gated {
    fn close(&self, closed: bool) {
        *self.closed.lock().unwrap() = closed;
        self.opened.notify_all();
    }
}

impl BlockDevice for Gated {
    fn geometry(&self) -> Geometry {
        Geometry { volatile_cache: true, fua: false, ..self.dev.geometry() }
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        if batch.iter().any(|request| matches!(request.op, Op::Flush)) {
            let closed = self.closed.lock().unwrap();
            drop(self.opened.wait_while(closed, |closed| *closed).unwrap());
        }
        self.dev.submit(batch)
    }
}

#[test]
fn a_commit_does_not_hold_up_the_other_calls_of_its_connection() {
    let Some(dev) = image("nfs turns") else { return };
    let (closed, opened) = (Mutex::new(false), Condvar::new());
    let gated = Arc::new(Gated { dev: Arc::clone(&dev), closed, opened });
    let served = Served::on(Arc::clone(&gated) as _, "");
    let mut client = Client::connect(served.port, "/");
    let root = client.root();
    let file = client.create(&root, "f");
    client.write(&file, 0, b"data", stable_how::UNSTABLE);
    gated.close(true);
    let mut stream = connect(served.port);
    let commit = packed(&COMMIT3args { file: file.clone(), offset: 0, count: 0 });
    stream.write_all(&record(1, 100_003, 3, 21, &commit)).unwrap();
    let getattr = packed(&GETATTR3args { object: file });
    for xid in 2..10 {
        let reply = exchange(&mut stream, &record(xid, 100_003, 3, 1, &getattr)).unwrap();
        assert_eq!((word(&reply, 0), word(&reply, 6)), (xid, 0));
    }
    gated.close(false);
    let reply = receive(&mut stream).unwrap();
    assert_eq!((word(&reply, 0), word(&reply, 6)), (1, 0), "the commit");
    ends_soon(served);
    clean(&dev);
}

#[test]
fn attributes_before_and_behind_a_change_enclose_no_other_change() {
    let Some(dev) = image("nfs wcc") else { return };
    let served = Served::start(&dev, "");
    let port = served.port;
    let mut client = Client::connect(port, "/");
    let file = client.create(&client.root(), "f");
    let threads = (0..2u64).map(|nr| {
        let file = file.clone();
        std::thread::spawn(move || {
            let mut client = Client::connect(port, "/");
            for step in 0..1500 {
                let offset = 10 * (2 * step + nr);
                let data = Opaque::borrowed(b"0123456789");
                let stable = stable_how::UNSTABLE;
                let args = WRITE3args { file: file.clone(), offset, count: 10, stable, data };
                let wcc = client.call(async |nfs| nfs.write(&args).await).unwrap().file_wcc;
                let (before, after) = (wcc.before.unwrap().size, wcc.after.unwrap().size);
                assert_eq!(after, before.max(offset + 10), "from {before}");
            }
        })
    });
    for thread in threads.collect::<Vec<_>>() {
        thread.join().unwrap();
    }
    served.end();
}
