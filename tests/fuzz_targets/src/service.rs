//! A program that mounts and sends a service any packets, descriptors and arguments.

use std::fs::File;
use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, OFlags, memfd_create};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketFlags,
    SocketType, sendmsg, shutdown, socketpair,
};
use syncline_fuse::{FuseOptions, Host, Service, ServiceHost};

use crate::bytes::Bytes;

/// Most packets of an input: the socket holds them all.
const PACKETS_MAX: usize = 16;
/// Most bytes of all arguments.
const ARGUMENTS_BYTES_MAX: usize = 64 << 10;
/// Packets that services expect.
const USUAL: [&[u8]; 6] = [
    b"SAFT\0\x01\0\x01\0\0\0\x03",
    b"FILE\0\0\0\0argv\0",
    b"FILE\0\0\0\0fusedev\0",
    b"FILE\0\0\0\0image\0",
    b"REPL\0\0\0\0",
    b"REPL\0\0\0\x01",
];

/// An input is packets, some with a file; then the other side is gone. All requests of a mount are
/// made, whatever their answers are.
pub(crate) fn feed(bytes: &[u8]) {
    let mut bytes = Bytes::new(bytes);
    let kind = SocketType::SEQPACKET;
    let ends = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
    let (ours, theirs) = ends.expect("a socket");
    for _ in 0..PACKETS_MAX {
        if bytes.is_empty() {
            break;
        }
        packet(&theirs, &mut bytes);
    }
    let _ = shutdown(&theirs, Shutdown::Write);
    let Ok(service) = Service::accept(ours) else { return };
    let service = Arc::new(service);
    let len: usize = service.arguments().iter().map(|argument| argument.len()).sum();
    assert!(len <= ARGUMENTS_BYTES_MAX, "{len} bytes of arguments");
    let _ = service.open(Path::new("image"), OFlags::RDWR);
    let options = FuseOptions { allow_other: service.allows_other(), ..FuseOptions::default() };
    let host = ServiceHost::new(Arc::clone(&service), "dir".as_ref(), "image".as_ref(), &options);
    let mounted = host.mount(false).is_ok();
    assert!(host.mount(false).is_err(), "a second mount");
    if !mounted {
        service.refuse("no; try again", 1);
    }
    let ended = service.done().is_err();
    assert!(ended || mounted, "two ends");
    assert!(service.done().is_err(), "two ends");
}

/// One that services expect, or any; with a file in memory that has any contents.
fn packet(socket: &OwnedFd, bytes: &mut Bytes<'_>) {
    let (choice, with) = (usize::from(bytes.u8()), bytes.u8());
    let packet = match USUAL.get(choice) {
        Some(usual) => usual.to_vec(),
        None if choice == 255 => vec![bytes.u8(); usize::from(bytes.u16())],
        None => bytes.take(choice).to_vec(),
    };
    let memory = memfd_create("arguments", MemfdFlags::CLOEXEC).expect("memory");
    let mut file = File::from(memory);
    let len = usize::from(bytes.u8());
    file.write_all(bytes.take(len)).expect("memory");
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    // None, one, or more than is wanted.
    let files = vec![file.as_fd(); usize::from(with % 4)];
    if !files.is_empty() {
        rights.push(SendAncillaryMessage::ScmRights(&files));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let _ = sendmsg(socket, &[IoSlice::new(&packet)], &mut rights, flags);
}
