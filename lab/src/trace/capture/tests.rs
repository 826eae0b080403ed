//! Events in, three traces out.

use syncline_device::{Kind, TraceEvent, TraceOp};
use syncline_fuse::{Call, CallFlags, CallOp, Detail, Event, Found, Named, Process, Range};

use super::{Captured, convert};
use crate::trace::TraceReader;
use crate::trace::model::{Flags, Origin, Record};
use bytes::Bytes;

const ROOT: u32 = 2;

/// The counts and traces of these events.
fn converted(events: Vec<Event>) -> (Captured, [Vec<u8>; 3]) {
    let mut events = events.into_iter();
    convert(1000, || Ok(events.next()), Default::default()).unwrap()
}

fn reader(trace: &[u8]) -> TraceReader<Bytes> {
    TraceReader::open(Bytes::copy_from_slice(trace)).unwrap()
}

fn lines(trace: &[u8]) -> Vec<String> {
    let mut reader = reader(trace);
    assert_eq!(reader.lost(), 3);
    let mut lines = Vec::new();
    while let Some((records, names)) = reader.next_batch().unwrap() {
        for r in records {
            let mut line = format!("{} {} {}", r.time_ns, r.op.name(), names.get(r.file));
            if r.target.is_some() {
                line += &format!(" -> {}", names.get(r.target));
            }
            if r.op.has_range() {
                line += &format!(" {}+{}", r.offset_bytes, r.len_bytes);
            }
            if let Some(size) = r.size_bytes {
                line += &format!(" of {size}");
            }
            if let Some(result) = r.result.filter(|result| *result != 0) {
                line += &format!(" = {result}");
            }
            if r.process_name.is_some() {
                line += &format!(" {}[{}]", names.get(r.process_name), r.process);
            }
            lines.push(line);
        }
    }
    lines
}

fn call(begin_ns: u64, result: i64, detail: Detail) -> Event {
    Event::Call(Call { begin_ns, latency_ns: 10, thread: 7, result, detail })
}

fn named(op: CallOp, dir: u32, name: &[u8], found: Option<Found>) -> Named {
    Named { op, dir, name: name.into(), to: None, found, exchanged: None }
}

fn file(ino: u32, size_bytes: u64) -> Option<Found> {
    Some(Found { ino, size_bytes, is_dir: false, is_file: true })
}

fn range(ino: u32, offset_bytes: u64, len_bytes: u64) -> Range {
    Range { ino, offset_bytes, len_bytes }
}

#[test]
fn a_program_and_its_device_become_three_traces() {
    let name = |begin, result, named| call(begin, result, Detail::Name(Box::new(named)));
    let write = |range| Detail::Range(CallOp::Write, range, CallFlags::APPEND);
    let origin = syncline_device::Origin::new(Kind::Data { inode: 12 }, true);
    let (op, offset_bytes, len_bytes) = (TraceOp::Write, 8192, 4096);
    let event = TraceEvent { time_ns: 1120, op, offset_bytes, len_bytes, origin, fua: true };
    let renamed = Named {
        to: Some((ROOT, b"b"[..].into())),
        ..named(CallOp::Rename, ROOT, b"a", file(12, 5000))
    };
    let process = Process { number: 6, name: "prog".into() };
    let events = vec![
        name(1005, -2, named(CallOp::Stat, ROOT, b"a", None)),
        Event::Thread { thread: 7, process },
        name(1010, 0, named(CallOp::Create, ROOT, b"a", file(12, 0))),
        call(1030, 5000, write(range(12, 0, 5000))),
        Event::Device { event, latency_ns: 4, errno: None },
        // It began before what comes before it in the queue.
        call(1025, 0, Detail::Inode(CallOp::Fsync, 12)),
        name(1130, 0, renamed),
        name(1140, 0, named(CallOp::Stat, ROOT, b"old", file(13, 900))),
        call(1150, 0, Detail::Inode(CallOp::Open, 13)),
        call(1160, 900, Detail::Range(CallOp::Read, range(13, 0, 4096), CallFlags::default())),
        call(1170, -28, write(range(12, 5000, 10))),
        Event::End { lost: 3 },
    ];
    let (counts, [calls, pages, blocks]) = converted(events);
    let expected = Captured { calls: 10, pages: 2, blocks: 1, lost: 3, cut_short: false };
    assert_eq!(counts, expected);
    assert_eq!(
        lines(&calls),
        [
            "5 stat /a = -2",
            "10 create /a prog[6]",
            "25 fsync /a prog[6]",
            "30 write /a 0+5000 of 0 = 5000 prog[6]",
            "130 rename /a -> /b prog[6]",
            "140 stat /old prog[6]",
            "150 present /old of 900 prog[6]",
            "150 open /old prog[6]",
            "160 read /old 0+900 of 900 = 900 prog[6]",
            "170 write /b 5000+10 of 5000 = -28 prog[6]",
        ][..]
    );
    assert_eq!(lines(&pages), ["30 write /a 0+8192 prog[6]", "160 read /old 0+4096 prog[6]"]);
    assert_eq!(lines(&blocks), ["120 write /a 8192+4096 prog[6]"], "the name that it had then");
    let mut records: Vec<Record> = Vec::new();
    reader(&blocks).read_all(&mut records).unwrap();
    let block = records[0];
    assert_eq!((block.origin, block.inode, block.device), (Origin::Data, 12, 0));
    assert_eq!(block.flags, Flags::SYNC.with(Flags::FUA));
    assert_eq!((block.time_ns, block.offset_bytes, block.len_bytes), (120, 8192, 4096));
}

#[test]
fn a_capture_without_an_end_is_cut_short() {
    let (counts, _) = converted(vec![call(1150, 0, Detail::Inode(CallOp::Open, 13))]);
    assert_eq!(counts, Captured { calls: 1, cut_short: true, ..Captured::default() });
}
