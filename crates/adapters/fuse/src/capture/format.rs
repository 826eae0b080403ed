//! The file of events: a header, then one event after the other.
//!
//! ```text
//!   "SYNCEVT" 1 | began_ns | event | event | ... | End: events lost
//!
//!   event:  tag (one byte), fields in the order of `encode`
//!   number: LEB128; signed numbers zigzag; times since began_ns
//!   name:   its length, its bytes
//! ```
//!
//! Promises: an event costs its fields and no search, since it is encoded while a request waits.
//! No bytes make the reader panic or take memory beyond [`NAME_BYTES_MAX`]. A file that ends
//! without [`Event::End`] was cut short: [`EventReader::next_event`] returns none, and
//! [`EventReader::is_whole`] is false.
//!
//! The version is the last byte of [`EVENTS_MAGIC`]; a reader refuses another. Tested below.

use std::io::{self, Read};

use syncline_device::{Kind, Origin, TraceEvent, TraceOp};

use super::event::{Call, CallFlags, CallOp, Detail, Event, Found, Named, Process, Range};

/// The first bytes of a file.
pub const EVENTS_MAGIC: &[u8; 8] = b"SYNCEVT\x01";

/// Longest name: the text of a symbolic link is a page.
const NAME_BYTES_MAX: u64 = 4096;

const END: u8 = 0;
const THREAD: u8 = 1;
const LEARNED: u8 = 2;
const FORGOT: u8 = 3;
const DEVICE: u8 = 4;
const RANGE: u8 = 5;
const COPY: u8 = 6;
const INODE: u8 = 7;
const TRUNCATE: u8 = 8;
const NAME: u8 = 9;

/// The start of a file whose time zero is `began_ns` on the clock of the volume.
pub(super) fn header(began_ns: u64) -> Vec<u8> {
    let mut out = EVENTS_MAGIC.to_vec();
    number(began_ns, &mut out);
    out
}

fn number(value: u64, out: &mut Vec<u8>) {
    let mut rest = value;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn signed(value: i64, out: &mut Vec<u8>) {
    number((value << 1 ^ value >> 63) as u64, out);
}

fn name(bytes: &[u8], out: &mut Vec<u8>) {
    let bytes = &bytes[..bytes.len().min(NAME_BYTES_MAX as usize)];
    number(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn found(found: &Found, out: &mut Vec<u8>) {
    number(found.ino.into(), out);
    number(found.size_bytes, out);
    out.push(u8::from(found.is_dir) | u8::from(found.is_file) << 1);
}

fn range(range: &Range, out: &mut Vec<u8>) {
    number(range.ino.into(), out);
    number(range.offset_bytes, out);
    number(range.len_bytes, out);
}

/// Appends an event.
pub(super) fn encode(event: &Event, out: &mut Vec<u8>) {
    match event {
        Event::End { lost } => {
            out.push(END);
            number(*lost, out);
        }
        Event::Thread { thread, process } => {
            out.push(THREAD);
            number((*thread).into(), out);
            number(process.number.into(), out);
            name(process.name.as_bytes(), out);
        }
        Event::Learned { dir, name: learned, found: inode } => {
            out.push(LEARNED);
            number((*dir).into(), out);
            name(learned, out);
            found(inode, out);
        }
        Event::Forgot { ino, lookups } => {
            out.push(FORGOT);
            number((*ino).into(), out);
            number(*lookups, out);
        }
        Event::Device { event, latency_ns, errno } => {
            out.push(DEVICE);
            device(event, out);
            number(*latency_ns, out);
            signed(errno.unwrap_or(0).into(), out);
        }
        Event::Call(call) => request(call, out),
    }
}

fn device(event: &TraceEvent, out: &mut Vec<u8>) {
    let op = match event.op {
        TraceOp::Read => 0,
        TraceOp::Write => 1,
        TraceOp::Flush => 2,
        TraceOp::Discard => 3,
    };
    let (kind, inode) = match event.origin.kind {
        Kind::Other => (0, 0),
        Kind::Journal => (1, 0),
        Kind::Metadata => (2, 0),
        Kind::Data { inode } => (3, inode),
    };
    out.push(op | kind << 2 | u8::from(event.origin.sync) << 4 | u8::from(event.fua) << 5);
    for field in [event.time_ns, event.offset_bytes, event.len_bytes, inode] {
        number(field, out);
    }
}

fn request(call: &Call, out: &mut Vec<u8>) {
    match &call.detail {
        Detail::Range(op, at, flags) => {
            out.extend([RANGE, *op as u8, flags.0]);
            range(at, out);
        }
        Detail::Copy { from, to } => {
            out.push(COPY);
            range(from, out);
            range(to, out);
        }
        Detail::Inode(op, ino) => {
            out.extend([INODE, *op as u8]);
            number((*ino).into(), out);
        }
        Detail::Truncate { ino, size_bytes } => {
            out.push(TRUNCATE);
            number((*ino).into(), out);
            number(*size_bytes, out);
        }
        Detail::Name(named) => {
            let Named { op, dir, name: from, to, found: inode, exchanged } = &**named;
            let has = u8::from(to.is_some())
                | u8::from(inode.is_some()) << 1
                | u8::from(exchanged.is_some()) << 2;
            out.extend([NAME, *op as u8, has]);
            number((*dir).into(), out);
            name(from, out);
            if let Some((dir, to)) = to {
                number((*dir).into(), out);
                name(to, out);
            }
            for inode in [inode, exchanged].into_iter().flatten() {
                found(inode, out);
            }
        }
    }
    number(call.begin_ns, out);
    number(call.latency_ns, out);
    number(call.thread.into(), out);
    signed(call.result, out);
}

/// Reads a file of events.
pub struct EventReader<R> {
    input: R,
    began_ns: u64,
    whole: bool,
}

fn corrupt(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

impl<R: Read> EventReader<R> {
    /// Reads the header. `input` should be buffered: it is read byte by byte.
    ///
    /// # Errors
    /// InvalidData: this is no file of events, or one of another version. UnexpectedEof: the
    /// header is cut short. Else the error of `input`.
    pub fn new(input: R) -> io::Result<EventReader<R>> {
        let mut reader = EventReader { input, began_ns: 0, whole: false };
        let magic: [u8; 8] = reader.bytes()?;
        if magic[..7] != EVENTS_MAGIC[..7] {
            return Err(corrupt("not a file of events"));
        }
        if magic != *EVENTS_MAGIC {
            return Err(corrupt("a file of events of another version; import it with that one"));
        }
        reader.began_ns = reader.number()?;
        Ok(reader)
    }

    /// Time zero of the capture on the clock of the volume, in nanoseconds.
    pub fn began_ns(&self) -> u64 {
        self.began_ns
    }

    /// True once [`Event::End`] was read.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// The next event; none after the last, and where the file is cut short.
    ///
    /// # Errors
    /// InvalidData: the bytes are no event. Else the error of the input.
    pub fn next_event(&mut self) -> io::Result<Option<Event>> {
        if self.whole {
            return Ok(None);
        }
        match self.event() {
            Ok(event) => {
                self.whole = matches!(event, Event::End { .. });
                Ok(Some(event))
            }
            Err(err) if err.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(err) => Err(err),
        }
    }

    fn bytes<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn byte(&mut self) -> io::Result<u8> {
        Ok(self.bytes::<1>()?[0])
    }

    fn number(&mut self) -> io::Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = u64::from(self.byte()?);
            if shift == 63 && byte > 1 {
                break;
            }
            value |= (byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(corrupt("a number of more than 64 bits"))
    }

    fn number32(&mut self) -> io::Result<u32> {
        u32::try_from(self.number()?).map_err(|_| corrupt("a number of more than 32 bits"))
    }

    fn signed(&mut self) -> io::Result<i64> {
        let value = self.number()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn name(&mut self) -> io::Result<Box<[u8]>> {
        let len = self.number()?;
        if len > NAME_BYTES_MAX {
            return Err(corrupt("a name of more than 4096 bytes"));
        }
        let mut name = vec![0; len as usize];
        self.input.read_exact(&mut name)?;
        Ok(name.into())
    }

    fn op(&mut self) -> io::Result<CallOp> {
        CallOp::by_number(self.byte()?).ok_or_else(|| corrupt("an unknown operation"))
    }

    fn found(&mut self) -> io::Result<Found> {
        let (ino, size_bytes, bits) = (self.number32()?, self.number()?, self.byte()?);
        Ok(Found { ino, size_bytes, is_dir: bits & 1 != 0, is_file: bits & 2 != 0 })
    }

    fn range(&mut self) -> io::Result<Range> {
        let (ino, offset_bytes, len_bytes) = (self.number32()?, self.number()?, self.number()?);
        Ok(Range { ino, offset_bytes, len_bytes })
    }

    fn event(&mut self) -> io::Result<Event> {
        let detail = match self.byte()? {
            END => return Ok(Event::End { lost: self.number()? }),
            THREAD => {
                let (thread, number) = (self.number32()?, self.number32()?);
                let name = String::from_utf8_lossy(&self.name()?).into();
                return Ok(Event::Thread { thread, process: Process { number, name } });
            }
            LEARNED => {
                let (dir, name) = (self.number32()?, self.name()?);
                return Ok(Event::Learned { dir, name, found: self.found()? });
            }
            FORGOT => {
                return Ok(Event::Forgot { ino: self.number32()?, lookups: self.number()? });
            }
            DEVICE => return self.device(),
            RANGE => {
                let (op, flags) = (self.op()?, CallFlags(self.byte()?));
                Detail::Range(op, self.range()?, flags)
            }
            COPY => Detail::Copy { from: self.range()?, to: self.range()? },
            INODE => Detail::Inode(self.op()?, self.number32()?),
            TRUNCATE => Detail::Truncate { ino: self.number32()?, size_bytes: self.number()? },
            NAME => self.named()?,
            _ => return Err(corrupt("an unknown event")),
        };
        let (begin_ns, latency_ns) = (self.number()?, self.number()?);
        let (thread, result) = (self.number32()?, self.signed()?);
        Ok(Event::Call(Call { begin_ns, latency_ns, thread, result, detail }))
    }

    fn device(&mut self) -> io::Result<Event> {
        let bits = self.byte()?;
        let mut fields = [0; 4];
        for field in &mut fields {
            *field = self.number()?;
        }
        let [time_ns, offset_bytes, len_bytes, inode] = fields;
        let op = match bits & 3 {
            0 => TraceOp::Read,
            1 => TraceOp::Write,
            2 => TraceOp::Flush,
            _ => TraceOp::Discard,
        };
        let kind = match bits >> 2 & 3 {
            0 => Kind::Other,
            1 => Kind::Journal,
            2 => Kind::Metadata,
            _ => Kind::Data { inode },
        };
        let origin = Origin::new(kind, bits >> 4 & 1 != 0);
        let fua = bits >> 5 & 1 != 0;
        let event = TraceEvent { time_ns, op, offset_bytes, len_bytes, origin, fua };
        let latency_ns = self.number()?;
        let errno = i32::try_from(self.signed()?).map_err(|_| corrupt("an unknown error"))?;
        Ok(Event::Device { event, latency_ns, errno: (errno != 0).then_some(errno) })
    }

    fn named(&mut self) -> io::Result<Detail> {
        let (op, has) = (self.op()?, self.byte()?);
        let (dir, name) = (self.number32()?, self.name()?);
        let to = if has & 1 != 0 { Some((self.number32()?, self.name()?)) } else { None };
        let found = if has & 2 != 0 { Some(self.found()?) } else { None };
        let exchanged = if has & 4 != 0 { Some(self.found()?) } else { None };
        Ok(Detail::Name(Box::new(Named { op, dir, name, to, found, exchanged })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_event() -> impl Strategy<Value = Event> {
        let name = || prop::collection::vec(any::<u8>(), 0..300).prop_map(Vec::into_boxed_slice);
        let found =
            || {
                any::<(u32, u64, bool, bool)>().prop_map(|(ino, size_bytes, is_dir, is_file)| {
                    Found { ino, size_bytes, is_dir, is_file }
                })
            };
        let range = || {
            any::<(u32, u64, u64)>().prop_map(|(ino, offset_bytes, len_bytes)| Range {
                ino,
                offset_bytes,
                len_bytes,
            })
        };
        let op = || (0u8..15).prop_map(|number| CallOp::by_number(number).unwrap());
        let to = prop::option::of((any::<u32>(), name()));
        let inodes = (prop::option::of(found()), prop::option::of(found()));
        let named = (op(), any::<u32>(), name(), to, inodes).prop_map(
            |(op, dir, name, to, (found, exchanged))| {
                Detail::Name(Box::new(Named { op, dir, name, to, found, exchanged }))
            },
        );
        let detail = prop_oneof![
            (op(), range(), any::<u8>()).prop_map(|(op, range, flags)| Detail::Range(
                op,
                range,
                CallFlags(flags)
            )),
            (range(), range()).prop_map(|(from, to)| Detail::Copy { from, to }),
            (op(), any::<u32>()).prop_map(|(op, ino)| Detail::Inode(op, ino)),
            any::<(u32, u64)>().prop_map(|(ino, size_bytes)| Detail::Truncate { ino, size_bytes }),
            named,
        ];
        let call = (any::<(u64, u64, u32, i64)>(), detail).prop_map(
            |((begin_ns, latency_ns, thread, result), detail)| {
                Event::Call(Call { begin_ns, latency_ns, thread, result, detail })
            },
        );
        let ops = [TraceOp::Read, TraceOp::Write, TraceOp::Flush, TraceOp::Discard];
        let kind = prop_oneof![
            Just(Kind::Other),
            Just(Kind::Journal),
            Just(Kind::Metadata),
            any::<u64>().prop_map(|inode| Kind::Data { inode }),
        ];
        let device = (any::<(u64, u64, u64, bool, bool, u64)>(), 0..4usize, kind, 0..200i32);
        let device = device.prop_map(move |(numbers, op, kind, errno)| {
            let (time_ns, offset_bytes, len_bytes, sync, fua, latency_ns) = numbers;
            let origin = Origin::new(kind, sync);
            let event = TraceEvent { time_ns, op: ops[op], offset_bytes, len_bytes, origin, fua };
            Event::Device { event, latency_ns, errno: (errno != 0).then_some(errno) }
        });
        let thread = (any::<(u32, u32)>(), "[a-z]{0,15}").prop_map(|((thread, number), name)| {
            Event::Thread { thread, process: Process { number, name: name.into() } }
        });
        let learned = (any::<u32>(), name(), found())
            .prop_map(|(dir, name, found)| Event::Learned { dir, name, found });
        let forgot = any::<(u32, u64)>().prop_map(|(ino, lookups)| Event::Forgot { ino, lookups });
        prop_oneof![4 => call, 2 => device, 1 => thread, 1 => learned, 1 => forgot]
    }

    fn read(bytes: &[u8]) -> (Vec<Event>, bool) {
        let mut reader = EventReader::new(bytes).unwrap();
        let mut events = Vec::new();
        while let Ok(Some(event)) = reader.next_event() {
            events.push(event);
        }
        (events, reader.is_whole())
    }

    proptest! {
        #[test]
        fn events_are_read_as_they_were_written(
            events in prop::collection::vec(any_event(), 0..20),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut bytes = header(7);
            let start = bytes.len();
            for event in &events {
                encode(event, &mut bytes);
            }
            encode(&Event::End { lost: 3 }, &mut bytes);
            let (found, whole) = read(&bytes);
            prop_assert!(whole);
            prop_assert_eq!(&found[..events.len()], &events[..]);
            prop_assert_eq!(&found[events.len()..], [Event::End { lost: 3 }]);
            // Cut anywhere, the events before the cut are read, and the file is not whole.
            let (found, whole) = read(&bytes[..start + cut.index(bytes.len() - start)]);
            prop_assert!(!whole);
            prop_assert_eq!(&found[..], &events[..found.len()]);
        }

        #[test]
        fn fuzz_any_bytes_end_without_a_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..400),
        ) {
            let mut all = header(0);
            all.extend(bytes);
            read(&all);
        }
    }

    #[test]
    fn another_file_is_refused() {
        let kind = |bytes: &[u8]| EventReader::new(bytes).err().map(|err| err.to_string());
        assert!(kind(b"PAR1 and so on").unwrap().contains("not a file of events"));
        assert!(kind(b"SYNCEVT\x02\x00").unwrap().contains("another version"));
        assert!(EventReader::new(&b"SYNC"[..]).is_err());
    }
}
