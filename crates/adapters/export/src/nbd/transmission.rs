//! Requests and replies of one connection.

use std::io::{self, Read, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use parking_lot::Mutex;

use super::handshake::Agreed;
use super::protocol::*;
use super::stream::Stream;
use crate::bytes::{ByteError, Bytes};

/// Requests that one connection has at the device at once.
const WORKERS: usize = 4;
/// Requests that wait for one of them.
const QUEUE: usize = 16;
/// Zeros are written in pieces of so many bytes.
const ZEROES_BYTES: usize = 1 << 20;

/// Serves until the client disconnects or the stream's reads end; then waits for what is under way.
///
/// # Errors
/// The connection broke, or what came is no request.
pub(crate) fn serve(
    stream: &Stream,
    bytes: &Bytes,
    read_only: bool,
    agreed: Agreed,
) -> io::Result<()> {
    let (send, receive) = sync_channel(QUEUE);
    let receive = Mutex::new(receive);
    let replies = Mutex::new(stream);
    let worker = Worker { bytes, read_only, agreed, receive: &receive, replies: &replies };
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| worker.run());
        }
        read_requests(stream, send)
    })
}

/// A request with the data of a write.
type Job = (Request, Vec<u8>);

/// Dropping `send` at its end tells the workers.
fn read_requests(mut stream: &Stream, send: SyncSender<Job>) -> io::Result<()> {
    let broken = |why| io::Error::new(io::ErrorKind::InvalidData, why);
    loop {
        let mut head = [0; REQUEST_BYTES];
        match stream.read_exact(&mut head) {
            Err(err) if err.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            other => other?,
        }
        let request = Request::decode(&head).ok_or_else(|| broken("no request"))?;
        let mut data = Vec::new();
        match request.command {
            CMD_DISC => return Ok(()),
            CMD_WRITE if request.length > PAYLOAD_BYTES_MAX => return Err(broken("too long")),
            CMD_WRITE => {
                data.resize(request.length as usize, 0);
                stream.read_exact(&mut data)?;
            }
            _ => {}
        }
        if send.send((request, data)).is_err() {
            return Ok(());
        }
    }
}

struct Worker<'a> {
    bytes: &'a Bytes,
    read_only: bool,
    agreed: Agreed,
    receive: &'a Mutex<Receiver<Job>>,
    replies: &'a Mutex<&'a Stream>,
}

impl Worker<'_> {
    fn run(&self) {
        loop {
            let job = self.receive.lock().recv();
            let Ok((request, data)) = job else { return };
            let result = self.execute(&request, &data);
            if self.reply(&request, result).is_err() {
                // Nobody reads replies any more: no use to take more requests.
                self.replies.lock().end_reads();
            }
        }
    }

    /// Does what was asked; the data of a read.
    fn execute(&self, request: &Request, data: &[u8]) -> Result<Vec<u8>, u32> {
        let end = request.offset.checked_add(request.length.into());
        let inside = end.is_some_and(|end| end <= self.bytes.size());
        let fua = request.flags & FLAG_FUA != 0;
        let allowed = match request.command {
            CMD_READ => FLAG_DF | FLAG_FUA,
            CMD_WRITE_ZEROES => FLAG_FUA | FLAG_NO_HOLE,
            _ => FLAG_FUA,
        };
        if request.flags & !allowed != 0 {
            return Err(EINVAL);
        }
        let changes = matches!(request.command, CMD_WRITE | CMD_TRIM | CMD_WRITE_ZEROES);
        if self.read_only && changes {
            return Err(EPERM);
        }
        let done = match request.command {
            CMD_READ if !inside || request.length > PAYLOAD_BYTES_MAX => return Err(EINVAL),
            CMD_READ => return self.bytes.read(request.offset, request.length).map_err(number),
            CMD_WRITE | CMD_WRITE_ZEROES if !inside => return Err(ENOSPC),
            CMD_WRITE => self.bytes.write(request.offset, data, fua),
            CMD_WRITE_ZEROES => self.zeroes(request, fua),
            CMD_TRIM if !inside => return Err(EINVAL),
            CMD_TRIM => self
                .bytes
                .discard(request.offset, request.length.into())
                .and_then(|()| if fua { self.bytes.flush() } else { Ok(()) }),
            CMD_FLUSH => self.bytes.flush(),
            _ => return Err(EINVAL),
        };
        done.map(|()| Vec::new()).map_err(number)
    }

    /// A device promises nothing about what a discard leaves, so zeros are always written.
    fn zeroes(&self, request: &Request, fua: bool) -> Result<(), ByteError> {
        let (mut at, end) = (request.offset, request.offset + u64::from(request.length));
        // Not a constant: it would be a megabyte of the program.
        let zeroes = vec![0; ZEROES_BYTES.min(request.length as usize)];
        while at < end {
            let length = (end - at).min(ZEROES_BYTES as u64);
            self.bytes.write(at, &zeroes[..length as usize], false)?;
            at += length;
        }
        if fua { self.bytes.flush() } else { Ok(()) }
    }

    fn reply(&self, request: &Request, result: Result<Vec<u8>, u32>) -> io::Result<()> {
        let cookie = request.cookie;
        let read = request.command == CMD_READ;
        let (head, data) = match result {
            Ok(data) if self.agreed.structured && read && data.is_empty() => {
                (chunk(CHUNK_NONE, cookie, &[], 0), data)
            }
            Ok(data) if self.agreed.structured && read => {
                (chunk(CHUNK_DATA, cookie, &request.offset.to_be_bytes(), data.len()), data)
            }
            Ok(data) => (simple_reply(0, cookie), data),
            Err(error) if self.agreed.structured && read => {
                // No message behind the number: a length of zero.
                let why = [error.to_be_bytes().as_slice(), &[0, 0]].concat();
                (chunk(CHUNK_ERROR, cookie, &why, 0), Vec::new())
            }
            Err(error) => (simple_reply(error, cookie), Vec::new()),
        };
        let turn = self.replies.lock();
        let mut stream = *turn;
        stream.write_all(&head)?;
        stream.write_all(&data)
    }
}

fn number(error: ByteError) -> u32 {
    match error {
        ByteError::TooBig => EINVAL,
        ByteError::BehindEnd => ENOSPC,
        ByteError::Device => EIO,
    }
}
