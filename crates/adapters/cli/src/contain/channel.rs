//! Messages with descriptors over a socket of packets, and the questions and answers in them.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest message in bytes.
const BYTES_MAX: usize = 64 << 10;
/// Most descriptors of a message.
const DESCRIPTORS_MAX: usize = 4;

/// Two ends.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends `message` and copies of the descriptors.
pub(crate) fn send(
    socket: impl AsFd,
    message: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    if bytes.len() > BYTES_MAX || descriptors.len() > DESCRIPTORS_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        rights.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    loop {
        match sendmsg(&socket, &[IoSlice::new(&bytes)], &mut rights, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            done => return done.map(drop).map_err(io::Error::from),
        }
    }
}

/// The next message with its descriptors; `None`: the other end is closed.
pub(crate) fn receive<T: DeserializeOwned>(
    socket: impl AsFd,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut bytes = vec![0; BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let got = loop {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        match recvmsg(&socket, &mut parts, &mut rights, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            done => break done?.bytes,
        }
    };
    if got == 0 {
        return Ok(None);
    }
    let mut descriptors = Vec::new();
    for message in rights.drain() {
        if let RecvAncillaryMessage::ScmRights(sent) = message {
            descriptors.extend(sent);
        }
    }
    Ok(Some((serde_json::from_slice(&bytes[..got])?, descriptors)))
}

/// Asks the other end. The answer comes over a socket of its own, so that several may ask at once.
pub(crate) fn ask<A: DeserializeOwned>(
    socket: impl AsFd,
    question: &impl Serialize,
) -> io::Result<(A, Vec<OwnedFd>)> {
    let (answer, theirs) = pair()?;
    send(socket, question, &[theirs.as_fd()])?;
    drop(theirs);
    receive(&answer)?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// Answers until the other end is closed, each question in a thread: one may wait for another, as
/// an unmount does for the writes of the kernel.
pub(crate) fn answer<Q: DeserializeOwned + Send + 'static, A: Serialize>(
    socket: impl AsFd,
    answer: impl Fn(Q) -> (A, Vec<OwnedFd>) + Send + Sync + 'static,
) -> io::Result<()> {
    let answer = Arc::new(answer);
    while let Some((question, reply)) = receive::<Q>(&socket)? {
        let Some(reply) = reply.into_iter().next() else { continue };
        let answer = Arc::clone(&answer);
        let work = move || {
            let (answer, descriptors) = answer(question);
            let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
            // It may have ended meanwhile.
            let _ = send(&reply, &answer, &descriptors);
        };
        // Without a thread there is no answer: the socket for it closes.
        let _ = std::thread::Builder::new().name("keeper".into()).spawn(work);
    }
    Ok(())
}
