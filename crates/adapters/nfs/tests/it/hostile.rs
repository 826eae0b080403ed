//! Records that no client sends.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use nfs3_types::nfs3::{READ3args, REMOVE3args, nfsstat3};
use nfs3_types::rpc::{call_body, msg_body, opaque_auth, rpc_msg};
use nfs3_types::xdr_codec::Pack;
use syncline_testkit::{FuzzRounds, Random};

use crate::support::{Client, Served, entry, image};

/// A call without credentials, as a record.
pub fn record(xid: u32, program: u32, version: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
    let (cred, verf) = (opaque_auth::default(), opaque_auth::default());
    let (prog, vers, proc) = (program, version, procedure);
    let body = msg_body::CALL(call_body { rpcvers: 2, prog, vers, proc, cred, verf });
    let mut bytes = vec![0; 4];
    rpc_msg { xid, body }.pack(&mut bytes).unwrap();
    bytes.extend_from_slice(args);
    let mark = (1u32 << 31) | (bytes.len() - 4) as u32;
    bytes[..4].copy_from_slice(&mark.to_be_bytes());
    bytes
}

pub fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Sends and returns the reply without its mark; `None`: the connection was closed.
pub fn exchange(stream: &mut TcpStream, record: &[u8]) -> Option<Vec<u8>> {
    stream.write_all(record).ok()?;
    receive(stream)
}

/// The next reply without its mark; `None`: the connection was closed.
pub fn receive(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).ok()?;
    let mut reply = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
    stream.read_exact(&mut reply).ok()?;
    Some(reply)
}

/// Word of a reply: 2 says whether the call was accepted, 5 how, 6 is the status of the result.
pub fn word(reply: &[u8], nr: usize) -> u32 {
    u32::from_be_bytes(reply[4 * nr..4 * nr + 4].try_into().unwrap())
}

pub fn packed(args: &impl Pack) -> Vec<u8> {
    let mut bytes = Vec::new();
    args.pack(&mut bytes).unwrap();
    bytes
}

#[test]
fn what_is_not_served_is_refused_by_name() {
    let Some(dev) = image("nfs refusals") else { return };
    let served = Served::start(&dev, "");
    let mut stream = connect(served.port);
    let mut how = |program, version, procedure, args: &[u8]| {
        let reply = exchange(&mut stream, &record(1, program, version, procedure, args)).unwrap();
        assert_eq!(word(&reply, 2), 0, "accepted");
        word(&reply, 5)
    };
    assert_eq!(how(100_003, 3, 0, &[]), 0, "NULL");
    assert_eq!(how(100_021, 4, 0, &[]), 1, "the lock manager is unavailable");
    assert_eq!(how(100_003, 4, 0, &[]), 2, "version 4");
    assert_eq!(how(100_003, 3, 22, &[]), 3, "no such procedure");
    assert_eq!(how(100_003, 3, 1, &[0, 0, 1]), 4, "garbage");
    assert_eq!(how(100_005, 3, 1, &[0xff; 4]), 4, "a path of 4 GiB");
    let mut kerberos = record(1, 100_003, 3, 0, &[]);
    kerberos[4 + 24..4 + 28].copy_from_slice(&6u32.to_be_bytes());
    let reply = exchange(&mut stream, &kerberos).unwrap();
    assert_eq!((word(&reply, 2), word(&reply, 3)), (1, 1), "denied: credentials");
    served.end();
}

#[test]
fn a_call_that_comes_again_gets_the_same_reply() {
    let Some(dev) = image("nfs duplicates") else { return };
    let served = Served::start(&dev, "");
    let mut client = Client::connect(served.port, "/");
    let root = client.root();
    client.create(&root, "f");
    let args = packed(&REMOVE3args { object: entry(&root, "f") });
    let remove = record(77, 100_003, 3, 12, &args);
    let first = exchange(&mut connect(served.port), &remove).unwrap();
    let again = exchange(&mut connect(served.port), &remove).unwrap();
    assert_eq!((word(&first, 6), &first), (0, &again));
    let other = record(78, 100_003, 3, 12, &args);
    let other = exchange(&mut connect(served.port), &other).unwrap();
    assert_eq!(word(&other, 6), nfsstat3::NFS3ERR_NOENT as u32);
    served.end();
}

#[test]
fn records_beyond_the_limit_end_the_connection() {
    let Some(dev) = image("nfs records") else { return };
    let served = Served::start(&dev, "");
    for bytes in [
        // One fragment of 2 GiB, an empty one that is not the last, no call at all.
        &[0xff; 8][..],
        &[0; 8],
        &[0x80, 0, 0, 4, 1, 2, 3, 4],
    ] {
        assert_eq!(exchange(&mut connect(served.port), bytes), None);
    }
    // A record in fragments is one record.
    let mut call = record(5, 100_003, 3, 0, &[]);
    let tail = call.split_off(12);
    call[..4].copy_from_slice(&8u32.to_be_bytes());
    call.extend_from_slice(&((1u32 << 31) | tail.len() as u32).to_be_bytes());
    call.extend_from_slice(&tail);
    let reply = exchange(&mut connect(served.port), &call).unwrap();
    assert_eq!(word(&reply, 5), 0);
    served.end();
}

#[test]
fn fuzz_calls() {
    let Some(dev) = image("nfs fuzz") else { return };
    let served = Served::start(&dev, "");
    let mut client = Client::connect(served.port, "/");
    let root = client.root();
    let file = client.create(&root, "f");
    let read = packed(&READ3args { file: file.clone(), offset: 0, count: u32::MAX });
    let (mut stream, mut closed, mut answered) = (connect(served.port), 0, 0);
    for seed in FuzzRounds::at_least(3000) {
        let mut random = Random::new(seed);
        let program = [100_003, 100_003, 100_003, 100_005][random.index(4)];
        let mut args = match random.below(3) {
            0 => read.clone(),
            1 => packed(&REMOVE3args { object: entry(&root, "name") }),
            _ => root.data.to_vec(),
        };
        args.extend((0..random.below(120)).map(|_| random.bits() as u8 * random.below(2) as u8));
        let mut call = record(seed as u32, program, 3, random.below(23) as u32, &args);
        for _ in 0..random.below(4) {
            let at = 4 + random.index(call.len() - 4);
            call[at] = random.bits() as u8;
        }
        match exchange(&mut stream, &call) {
            Some(_) => answered += 1,
            None => {
                closed += 1;
                stream = connect(served.port);
            }
        }
    }
    assert!(answered > 1000 && closed > 0, "{answered} answered, {closed} closed");
    client.read(&file, 0, 10);
    served.end();
    crate::support::clean(&dev);
}
