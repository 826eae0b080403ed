//! The peers of the swarm: threads on the loopback interface that speak BitTorrent (BEP 3).
//!
//! With [`Supply::Growing`] each peer is one that still downloads: it tells of pieces in a random
//! order of its own, a few more than were asked for, so that the client gets them scattered over
//! the file, as from peers that fetch the rarest first. With [`Supply::Whole`] it is a seeder.
//! Peers never download, never choke, and know no extensions. Every wait is bounded.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::Torrent;

/// Pieces that a growing peer has told of and nobody has asked for. The client keeps 128 blocks of
/// 16 KiB under way at a peer; with fewer pieces on offer it waits for seconds before it looks
/// again.
const OFFER_PIECES: usize = 16;
/// Offers are never less than this, however small the pieces.
const OFFER_BYTES: u64 = 4 << 20;
/// A request longer than this is none (BEP 3).
const BLOCK_BYTES_MAX: usize = 128 << 10;
const MESSAGE_BYTES_MAX: usize = 1 << 20;
const LOOK: Duration = Duration::from_millis(20);
/// Interval of a silent peer's keep-alive messages.
const ALIVE: Duration = Duration::from_secs(2);

const UNCHOKE: u8 = 1;
const HAVE: u8 = 4;
const BITFIELD: u8 = 5;
const REQUEST: u8 = 6;
const PIECE: u8 = 7;

/// Pieces that the peers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supply {
    /// Everything, from the start.
    Whole,
    /// More and more, each in an order of its own.
    Growing,
}

struct Shared {
    torrent: Arc<Torrent>,
    supply: Supply,
    /// Pieces that somebody was asked for.
    asked: Vec<AtomicBool>,
    sent_bytes: AtomicU64,
    stop: AtomicBool,
}

/// Peers that serve until this is dropped.
pub struct Peers {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    threads: Vec<JoinHandle<()>>,
}

impl Peers {
    /// Starts `count` peers, each on a port of its own on 127.0.0.1.
    ///
    /// # Errors
    /// As the system's.
    pub fn start(torrent: &Arc<Torrent>, count: u32, supply: Supply) -> io::Result<Peers> {
        let shared = Arc::new(Shared {
            torrent: Arc::clone(torrent),
            supply,
            asked: (0..torrent.pieces).map(|_| AtomicBool::new(false)).collect(),
            sent_bytes: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        });
        let mut peers = Peers { shared, addresses: Vec::new(), threads: Vec::new() };
        for number in 0..count {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            listener.set_nonblocking(true)?;
            peers.addresses.push(listener.local_addr()?);
            let shared = Arc::clone(&peers.shared);
            let serve = move || listen(&shared, &listener, number);
            peers.threads.push(std::thread::Builder::new().name("peer".into()).spawn(serve)?);
        }
        Ok(peers)
    }

    /// Returns the addresses of the peers.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Bytes of pieces that they have sent.
    #[must_use]
    pub fn sent_bytes(&self) -> u64 {
        self.shared.sent_bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A peer that panicked has nothing more to do either.
            let _ = thread.join();
        }
    }
}

/// One client after the other; a client that went away is served anew when it comes back.
fn listen(shared: &Shared, listener: &TcpListener, number: u32) {
    while !shared.stop.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((stream, _)) => {
                // A connection that ends in an error is the client's end, by a kill for one.
                let _ = Connection::serve(shared, stream, number);
            }
            Err(_) => std::thread::sleep(LOOK),
        }
    }
}

struct Connection<'a> {
    shared: &'a Shared,
    stream: TcpStream,
    /// Received and not looked at.
    input: Vec<u8>,
    output: Vec<u8>,
    /// Pieces to tell of, the next one last.
    untold: Vec<u32>,
    /// Pieces told of that nobody had been asked for when last looked at.
    offered: Vec<u32>,
    last_sent: Instant,
}

impl<'a> Connection<'a> {
    fn serve(shared: &'a Shared, stream: TcpStream, number: u32) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LOOK))?;
        stream.set_write_timeout(Some(Duration::from_secs(30)))?;
        let untold = match shared.supply {
            Supply::Whole => Vec::new(),
            Supply::Growing => order(shared.torrent.pieces, number),
        };
        let mut connection = Connection {
            shared,
            stream,
            input: Vec::new(),
            output: Vec::new(),
            untold,
            offered: Vec::new(),
            last_sent: Instant::now(),
        };
        connection.greet(number)?;
        while !shared.stop.load(Ordering::Relaxed) {
            connection.receive()?;
            while let Some(message) = connection.message()? {
                connection.answer(&message)?;
            }
            connection.offer();
            if connection.output.is_empty() && connection.last_sent.elapsed() > ALIVE {
                connection.output.extend_from_slice(&[0; 4]);
            }
            connection.send()?;
        }
        Ok(())
    }

    /// Handshake, what there is, and leave to ask.
    fn greet(&mut self, number: u32) -> io::Result<()> {
        const HELLO: &[u8] = b"\x13BitTorrent protocol";
        while self.input.len() < 68 {
            self.receive()?;
            if self.shared.stop.load(Ordering::Relaxed) {
                return Err(ErrorKind::Interrupted.into());
            }
        }
        let theirs: Vec<u8> = self.input.drain(..68).collect();
        let torrent = &self.shared.torrent;
        if !theirs.starts_with(HELLO) || theirs[28..48] != torrent.info_hash {
            return Err(ErrorKind::InvalidData.into());
        }
        self.output.extend_from_slice(HELLO);
        self.output.extend_from_slice(&[0; 8]);
        self.output.extend_from_slice(&torrent.info_hash);
        self.output.extend_from_slice(format!("-SL0001-{number:012}").as_bytes());
        let mut have = vec![0_u8; (torrent.pieces as usize).div_ceil(8)];
        if self.shared.supply == Supply::Whole {
            for piece in 0..torrent.pieces as usize {
                have[piece / 8] |= 0x80 >> (piece % 8);
            }
        }
        self.put(BITFIELD, &[&have]);
        self.put(UNCHOKE, &[]);
        self.send()
    }

    fn put(&mut self, kind: u8, parts: &[&[u8]]) {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        self.output.extend_from_slice(&(len as u32 + 1).to_be_bytes());
        self.output.push(kind);
        for part in parts {
            self.output.extend_from_slice(part);
        }
    }

    fn send(&mut self) -> io::Result<()> {
        if !self.output.is_empty() {
            self.stream.write_all(&self.output)?;
            self.output.clear();
            self.last_sent = Instant::now();
        }
        Ok(())
    }

    /// Appends the bytes received to the input; returns without any after the socket's time limit.
    fn receive(&mut self) -> io::Result<()> {
        let mut part = [0; 16 << 10];
        match self.stream.read(&mut part) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(len) => {
                self.input.extend_from_slice(&part[..len]);
                Ok(())
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// The next whole message.
    fn message(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some(head) = self.input.first_chunk::<4>() else { return Ok(None) };
        let len = u32::from_be_bytes(*head) as usize;
        if len > MESSAGE_BYTES_MAX {
            return Err(ErrorKind::InvalidData.into());
        }
        if self.input.len() < 4 + len {
            return Ok(None);
        }
        let message = self.input.drain(..4 + len).skip(4).collect();
        Ok(Some(message))
    }

    fn answer(&mut self, message: &[u8]) -> io::Result<()> {
        let number = |at: usize| {
            let bytes = message.get(at..at + 4).and_then(|bytes| bytes.first_chunk::<4>());
            bytes.map(|bytes| u32::from_be_bytes(*bytes))
        };
        match message.split_first() {
            // What the client has from before it will not ask for.
            Some((&BITFIELD, bits)) => {
                let has = |piece: usize| {
                    bits.get(piece / 8).is_some_and(|b| b << (piece % 8) & 0x80 != 0)
                };
                let asked = self.shared.asked.iter().enumerate();
                asked
                    .filter(|(piece, _)| has(*piece))
                    .for_each(|(_, asked)| asked.store(true, Ordering::Relaxed));
                return Ok(());
            }
            Some((&HAVE, _)) => {
                let asked = number(1).and_then(|piece| self.shared.asked.get(piece as usize));
                if let Some(asked) = asked {
                    asked.store(true, Ordering::Relaxed);
                }
                return Ok(());
            }
            _ => {}
        }
        let (Some(&REQUEST), Some(piece), Some(begin), Some(len)) =
            (message.first(), number(1), number(5), number(9))
        else {
            return Ok(());
        };
        let torrent = Arc::clone(&self.shared.torrent);
        let start = u64::from(piece) * torrent.piece_bytes + u64::from(begin);
        let end = start.saturating_add(u64::from(len));
        if len as usize > BLOCK_BYTES_MAX || end > torrent.content.size_bytes {
            return Err(ErrorKind::InvalidData.into());
        }
        if let Some(asked) = self.shared.asked.get(piece as usize) {
            asked.store(true, Ordering::Relaxed);
        }
        let mut block = vec![0; len as usize];
        torrent.content.fill(start, &mut block);
        self.put(PIECE, &[&piece.to_be_bytes(), &begin.to_be_bytes(), &block]);
        self.shared.sent_bytes.fetch_add(u64::from(len), Ordering::Relaxed);
        // Blocks leave as they are made; the client need not wait for the last one.
        self.send()
    }

    /// Tells of more pieces if few are left to ask for.
    fn offer(&mut self) {
        let shared = self.shared;
        self.offered.retain(|piece| {
            shared.asked.get(*piece as usize).is_some_and(|asked| !asked.load(Ordering::Relaxed))
        });
        let least = OFFER_BYTES.div_ceil(shared.torrent.piece_bytes) as usize;
        while self.offered.len() < OFFER_PIECES.max(least) {
            let Some(piece) = self.untold.pop() else { return };
            self.put(HAVE, &[&piece.to_be_bytes()]);
            self.offered.push(piece);
        }
    }
}

/// All pieces in an order that belongs to the peer.
fn order(pieces: u32, number: u32) -> Vec<u32> {
    let content = crate::Content { seed: u64::from(number) + 1, size_bytes: u64::MAX };
    let mut order: Vec<u32> = (0..pieces).collect();
    for at in (1..order.len()).rev() {
        let mut word = [0; 8];
        content.fill(at as u64 * 8, &mut word);
        order.swap(at, (u64::from_le_bytes(word) % (at as u64 + 1)) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_have_all_pieces_and_differ() {
        let (one, two) = (order(100, 0), order(100, 1));
        assert_ne!(one, two);
        for mut order in [one, two] {
            order.sort_unstable();
            assert_eq!(order, (0..100).collect::<Vec<u32>>());
        }
    }
}
