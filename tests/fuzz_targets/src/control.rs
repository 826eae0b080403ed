//! Clients of the control socket of a mount or a write buffer.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use syncline_buffer::{Buffer, BufferOptions};
use syncline_control::socket::{ControlSocket, address};
use syncline_control::{Governed, Governor};
use syncline_device::MemoryDevice;
use syncline_fs::Volume;

use crate::bytes::Bytes;
use crate::operations;

/// Longest wait for an answer. A client that says nothing more is given up before.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Longest answer, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Most connections of one input.
const CLIENTS_MAX: usize = 8;
/// Words that requests consist of.
const WORDS: [&str; 24] = [
    "set ",
    "status",
    "clean",
    "sync",
    "ram=",
    "log=",
    "threshold=",
    "relaxed_expire=",
    "relaxed_max=",
    "idle_after=",
    "ram_limits=",
    "auto-ram=",
    "relaxed=",
    "dirty_expire=",
    "dirty_ratio=",
    "dirty_background_ratio=",
    "on",
    "off",
    "8M",
    "1K",
    "4M-64M",
    "1e9",
    " ",
    "\n",
];

/// A mount over a write buffer, and what is set of it.
struct Served {
    dir: PathBuf,
    state: Arc<State>,
    _socket: ControlSocket,
}

struct State {
    governor: Governor,
    buffer: Buffer,
    volume: Volume,
    now: Mutex<Duration>,
}

impl State {
    fn governed(&self) -> Governed<'_> {
        Governed { buffer: Some(&self.buffer), volume: Some(&self.volume) }
    }

    fn answer(&self, line: &str) -> Result<String, String> {
        match line {
            "status" => Ok(self.governor.document(self.governed()).to_string()),
            "clean" => self.buffer.drain().map(|()| String::new()).map_err(|err| err.to_string()),
            "sync" => self.volume.sync().map(|()| String::new()).map_err(|err| err.to_string()),
            other => match other.strip_prefix("set ") {
                // These ask the services of this machine, once a second, for good.
                Some(words) if words.contains("session") || words.contains("power") => {
                    Err("not here".to_owned())
                }
                Some(words) => {
                    let words = words.split_whitespace();
                    self.governor.set(self.governed(), words).map(|()| String::new())
                }
                None => Err(format!("`{other}` is no request")),
            },
        }
    }
}

fn served() -> &'static Served {
    static SERVED: OnceLock<Served> = OnceLock::new();
    SERVED.get_or_init(|| {
        let device = Arc::new(MemoryDevice::new(1 << 20));
        let buffer = Buffer::open(device, None, BufferOptions::default()).expect("memory");
        let clock = Arc::default();
        let volume = operations::mount(&Arc::new(operations::base()), &clock, "sync=eager");
        let (governor, now) = Default::default();
        let state = Arc::new(State { governor, buffer, volume, now });
        let dir = std::env::temp_dir().join(format!("a hostile client, {}", std::process::id()));
        let answers = Arc::clone(&state);
        let handler = Box::new(move |line: &str| answers.answer(line));
        let socket = ControlSocket::answer(&dir, handler).expect("a name that nobody has");
        Served { dir, state, _socket: socket }
    })
}

/// An input is clients one after the other: what each sends, in pieces. Each gets one answer or
/// none; settings stay such that the buffer and the volume take them.
pub(crate) fn feed(bytes: &[u8]) {
    let (served, mut bytes) = (served(), Bytes::new(bytes));
    for _ in 0..CLIENTS_MAX {
        if bytes.is_empty() {
            break;
        }
        client(served, &mut bytes);
        let state = &*served.state;
        let mut now = state.now.lock().expect("nobody panicked");
        *now += Duration::from_secs(u64::from(bytes.u8() % 8));
        state.governor.visit(state.governed(), *now).expect("a device that never fails");
        let options = state.buffer.options();
        assert!(options.relaxed_bytes_max <= options.ram_bytes, "{options:?}");
        assert!(state.answer("status").is_ok_and(|text| text.starts_with('{')));
    }
}

fn client(served: &Served, bytes: &mut Bytes<'_>) {
    let address = address(&served.dir).expect("a name");
    let mut stream = UnixStream::connect(&address).expect("it listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    stream.set_write_timeout(Some(TIMEOUT)).expect("a socket");
    let mut answerable = true;
    for _ in 0..bytes.u8() % 16 {
        let piece = piece(bytes);
        // The server may have answered already, or hung up.
        answerable &= stream.write_all(&piece).is_ok();
    }
    if bytes.u8() % 8 == 7 {
        // It goes away without a word.
        return;
    }
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let ended = stream.take(1 + ANSWER_BYTES_MAX as u64).read_to_end(&mut answer);
    if let Err(err) = ended {
        assert_eq!(err.kind(), std::io::ErrorKind::ConnectionReset, "it does not hang up");
        return;
    }
    assert!(answer.len() <= ANSWER_BYTES_MAX, "an answer without end");
    let well_formed = answer.starts_with(b"ok\n") || answer.starts_with(b"error ");
    assert!(well_formed || !answerable, "{:?}", String::from_utf8_lossy(&answer));
}

/// A word that requests have, a number, anything, or a lot of one byte.
fn piece(bytes: &mut Bytes<'_>) -> Vec<u8> {
    match bytes.u8() {
        nr if nr < 160 => WORDS[usize::from(nr) % WORDS.len()].as_bytes().to_vec(),
        nr if nr < 200 => bytes.size().to_string().into_bytes(),
        nr if nr < 248 => bytes.take(usize::from(nr - 199)).to_vec(),
        _ => vec![bytes.u8(); usize::from(bytes.u16())],
    }
}
