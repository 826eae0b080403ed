//! Pages of the kernel's ring buffer, made by hand: every kind of event, order, owners, losses.

use proptest::prelude::*;
use syncline_lab::trace::{EventKind, Events, Flags, KernelLayout, Op, Origin, Request};

/// As Linux 6.18 prints it, less the fields that nobody reads.
const ISSUE: &str = "name: block_rq_issue
ID: 2104
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:dev_t dev;	offset:8;	size:4;	signed:0;
	field:sector_t sector;	offset:16;	size:8;	signed:0;
	field:unsigned int nr_sector;	offset:24;	size:4;	signed:0;
	field:char rwbs[10];	offset:34;	size:10;	signed:0;
	field:char comm[16];	offset:44;	size:16;	signed:0;
";
const WRITEPAGES: &str = "ID: 90
	field:int common_pid;	offset:4;	size:4;	signed:1;
	field:dev_t dev;	offset:8;	size:4;	signed:0;
	field:ino_t ino;	offset:16;	size:8;	signed:0;
";
const DISK: u32 = 8 << 20;
const PART: u32 = DISK + 1;

fn kind_of(id: u16) -> EventKind {
    match id {
        1 => EventKind::Issue,
        2 => EventKind::Complete,
        3 => EventKind::Queue,
        4 => EventKind::QueueDone,
        5 => EventKind::Begin,
        _ => EventKind::End,
    }
}

fn events() -> Events {
    let mut events = Events::default();
    for id in 1..=6 {
        let format = if id < 5 { ISSUE.replace("2104", "") } else { WRITEPAGES.replace("90", "") };
        let format = format.replace("ID: ", &format!("ID: {id}"));
        events.learn(KernelLayout::parse(kind_of(id), &format).unwrap());
    }
    events.part(PART, DISK);
    events
}

/// Bytes of an event of requests.
fn request(id: u16, pid: u32, dev: u32, sector: u64, sectors: u32, rwbs: &str) -> Vec<u8> {
    let mut bytes = vec![0; 60];
    bytes[..2].copy_from_slice(&id.to_ne_bytes());
    bytes[4..8].copy_from_slice(&pid.to_ne_bytes());
    bytes[8..12].copy_from_slice(&dev.to_ne_bytes());
    bytes[16..24].copy_from_slice(&sector.to_ne_bytes());
    bytes[24..28].copy_from_slice(&sectors.to_ne_bytes());
    bytes[34..34 + rwbs.len()].copy_from_slice(rwbs.as_bytes());
    let task = format!("task-{pid}");
    bytes[44..44 + task.len()].copy_from_slice(task.as_bytes());
    bytes
}

fn inode(id: u16, pid: u32, dev: u32, inode: u64) -> Vec<u8> {
    let mut bytes = request(id, pid, dev, inode, 0, "");
    bytes.truncate(24);
    bytes
}

fn word(kind: u32, delta: u32) -> [u8; 4] {
    match cfg!(target_endian = "big") {
        true => kind << 27 | delta,
        false => kind | delta << 5,
    }
    .to_ne_bytes()
}

/// A page of events, each so long after the one before.
fn page(start_ns: u64, list: &[(u32, Vec<u8>)], lost: Option<u64>) -> Vec<u8> {
    let mut data = Vec::new();
    for (delta, bytes) in list {
        data.extend(word(bytes.len() as u32 / 4, *delta));
        data.extend(bytes);
    }
    with_header(start_ns, data, lost)
}

fn with_header(start_ns: u64, mut data: Vec<u8>, lost: Option<u64>) -> Vec<u8> {
    let mut commit = data.len() as u64;
    if let Some(lost) = lost {
        commit |= 3 << 30;
        data.extend(lost.to_ne_bytes());
    }
    let mut page = start_ns.to_ne_bytes().to_vec();
    page.extend(commit.to_ne_bytes());
    page.extend(data);
    page
}

fn taken(events: &mut Events, until_ns: u64) -> Vec<Request> {
    let mut found = Vec::new();
    events.take(until_ns, &mut |request| found.push(*request));
    found
}

#[test]
fn a_request_has_its_latency_and_leaves_in_order_of_issue() {
    let mut events = events();
    // Two processors: the second has what came first.
    events.page(&page(1000, &[(10, request(1, 7, DISK, 64, 8, "WS"))], None));
    events.page(&page(
        900,
        &[
            (0, request(1, 6, DISK, 8, 16, "RA")),
            (500, request(2, 0, DISK, 64, 8, "WS")),
            (5, request(2, 0, DISK, 8, 16, "RA")),
        ],
        None,
    ));
    assert!(taken(&mut events, 1400).is_empty(), "the read is not done");
    let found = taken(&mut events, 2000);
    let [read, write] = &found[..] else { panic!("{found:?}") };
    assert_eq!((read.record.op, read.record.time_ns), (Op::Read, 900));
    assert_eq!((read.record.latency_ns, read.task().as_ref()), (Some(505), "task-6"));
    assert!(read.record.flags.has(Flags::READAHEAD));
    assert_eq!((write.record.op, write.record.latency_ns), (Op::Write, Some(390)));
    assert_eq!((write.record.offset_bytes, write.record.len_bytes), (64 * 512, 8 * 512));
    assert_eq!((write.record.device, write.record.process), (DISK, 7));
    assert!(write.record.flags.has(Flags::SYNC));
}

#[test]
fn writes_have_the_inode_and_the_task_that_asked() {
    let mut events = events();
    let list = [
        inode(5, 30, PART, 4711),
        request(3, 30, PART, 100, 8, "WS"),
        request(3, 30, PART, 108, 8, "WS"),
        // Of another device: not the file's.
        request(3, 30, DISK + 16, 200, 8, "W"),
        inode(6, 30, PART, 0),
        request(3, 30, PART, 300, 8, "WM"),
        // The two are one request, which the kernel's worker sends; the driver gives it back once.
        request(1, 99, DISK, 100, 16, "WS"),
        request(1, 99, DISK, 100, 16, "WS"),
        request(1, 99, DISK, 300, 8, "WM"),
        request(1, 99, DISK + 16, 200, 8, "W"),
        request(1, 99, DISK, u64::MAX, 0, "FF"),
        request(1, 99, DISK, 400, 8, "FWFS"),
    ];
    let list: Vec<_> = list.into_iter().map(|bytes| (1, bytes)).collect();
    events.page(&page(1, &list, None));
    let mut found = Vec::new();
    events.end(&mut |request| found.push(*request));
    let of = |r: &Request| (r.record.op, r.record.inode, r.record.process, r.record.origin);
    let expected = [
        (Op::Write, 4711, 30, Origin::Data),
        (Op::Write, 0, 30, Origin::Metadata),
        (Op::Write, 0, 30, Origin::Unknown),
        (Op::Flush, 0, 99, Origin::Unknown),
        (Op::Write, 0, 99, Origin::Unknown),
    ];
    assert_eq!(found.iter().map(of).collect::<Vec<_>>(), expected);
    assert_eq!(found[0].volume, PART);
    assert!(found[4].record.flags.has(Flags::FUA.with(Flags::PREFLUSH)));
}

#[test]
fn a_device_without_requests_has_what_is_queued() {
    let mut events = events();
    events.queued(DISK);
    let list = [(1, request(3, 5, DISK, 8, 8, "W")), (9, request(4, 0, DISK, 8, 8, "W"))];
    events.page(&page(0, &list, None));
    let found = taken(&mut events, 100);
    assert_eq!((found.len(), found[0].record.latency_ns), (1, Some(9)));
}

#[test]
fn long_times_padding_and_long_events_are_passed() {
    let mut events = events();
    let mut data = Vec::new();
    let push = |data: &mut Vec<u8>, kind, delta, more: u32| {
        data.extend(word(kind, delta));
        data.extend(more.to_ne_bytes());
    };
    push(&mut data, 31, 5, 1); // absolute: 5 + (1 << 27)
    push(&mut data, 30, 1, 2); // more: 1 + (2 << 27)
    push(&mut data, 29, 3, 8); // discarded: 8 bytes with its length
    data.extend([0; 4]);
    let event = request(1, 1, DISK, 0, 8, "R");
    push(&mut data, 0, 1, event.len() as u32 + 4); // its length is in its first word
    data.extend(event);
    data.extend(word(29, 0)); // the rest is empty
    data.extend([0xFF; 8]);
    events.page(&with_header(77, data, None));
    let mut found = Vec::new();
    events.end(&mut |request| found.push(request.record.time_ns));
    assert_eq!(found, [(3 << 27) + 10]);
}

#[test]
fn losses_are_counted_and_nothing_waits_for_what_was_lost() {
    let mut events = events();
    events.page(&page(0, &[(1, request(1, 1, DISK, 8, 8, "W"))], None));
    taken(&mut events, 10);
    events.page(&page(20, &[(1, request(1, 1, DISK, 8, 8, "W"))], Some(500)));
    assert_eq!(events.lost(), 500);
    let mut found = 0;
    events.end(&mut |_| found += 1);
    assert_eq!(found, 2, "the second is no repetition: the first one's end was lost");
}

#[test]
fn a_request_without_an_end_is_given_up() {
    let mut events = events();
    events.page(&page(0, &[(1, request(1, 1, DISK, 8, 8, "D"))], None));
    assert!(taken(&mut events, 1_000_000_000).is_empty());
    let found = taken(&mut events, 6_000_000_000);
    assert_eq!((found[0].record.op, found[0].record.latency_ns), (Op::Discard, None));
}

#[test]
fn formats_that_lack_a_field_are_refused() {
    let refused = |kind, text: &str| KernelLayout::parse(kind, text).unwrap_err().to_string();
    assert!(refused(EventKind::Issue, WRITEPAGES).contains("no `sector`; this kernel"));
    assert!(refused(EventKind::Begin, ISSUE).contains("no `ino`"));
    assert!(refused(EventKind::End, "").contains("no `ID`"));
}

#[test]
fn an_inode_number_that_no_record_has_is_not_known() {
    for (number, known) in [(12, 12), (1 << 63, 0), (u64::MAX, 0)] {
        let mut events = events();
        let list = [
            (0, inode(5, 7, PART, number)),
            (1, request(3, 7, PART, 64, 8, "W")),
            (1, request(1, 7, DISK, 64, 8, "W")),
            (1, request(2, 0, DISK, 64, 8, "W")),
        ];
        events.page(&page(1000, &list, None));
        let found = taken(&mut events, 2000);
        assert_eq!((found.len(), found[0].record.inode), (1, known), "{number}");
        found[0].record.check().unwrap();
    }
}

proptest! {
    /// Whatever a page says, it makes requests or nothing.
    #[test]
    fn fuzz_pages(bytes in prop::collection::vec(any::<u8>(), 0..400), lost in any::<bool>()) {
        let mut events = events();
        events.queued(DISK);
        events.page(&bytes);
        let list: Vec<_> = bytes.chunks(60).map(|chunk| {
            let mut event = request(1 + u16::from(chunk[0]) % 6, 1, DISK, 0, 0, "W");
            for (to, from) in event.iter_mut().zip(chunk).skip(16).take(12) {
                *to = *from;
            }
            (u32::from(chunk[0]), event)
        }).collect();
        events.page(&page(1, &list, lost.then_some(3)));
        events.end(&mut |request| request.record.check().unwrap());
    }
}
