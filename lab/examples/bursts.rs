//! Prints what eager syncs write, block by block: `bursts WORKLOAD [-j MODE] [-n OPERATIONS]
//! [-l LAST]`. The last writes to the log before the end of the workload are decoded from the image
//! (`docs/measuring/sync.md` has the tables).

use std::collections::BTreeMap;

use syncline_device::{Kind, MemoryDevice, TraceOp};
use syncline_fs::MountOptions;
use syncline_lab::bench::{Image, ImageSource, JournalMode, Parameters, Simulation, Stack, find};
use syncline_lab::{Result, Unobserved};
use syncline_nand::Profile;

const BLOCK: u64 = 4096;
const MAGIC: u32 = 0xc03b_3998;

fn block(memory: &MemoryDevice, number: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK as usize];
    memory.read_at(number * BLOCK, &mut bytes).expect("the image is in memory");
    bytes
}

fn le(bytes: &[u8], at: usize) -> u64 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("a range of four is four long")).into()
}

fn be(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("a range of four is four long"))
}

/// Names of the volume's fixed blocks. Assumes 64-byte descriptors, as mke2fs makes them.
fn fixed(memory: &MemoryDevice) -> BTreeMap<u64, String> {
    let superblock = &block(memory, 0)[1024..];
    let groups = le(superblock, 4).div_ceil(le(superblock, 32));
    let mut names = BTreeMap::from([(0, "superblock".to_owned())]);
    for group in 0..groups {
        let at = 1 + group * 64 / BLOCK;
        names.insert(at, format!("group descriptors {}", at - 1));
        let bytes = block(memory, at);
        let desc = &bytes[(group * 64 % BLOCK) as usize..];
        names.insert(le(desc, 0), format!("block bitmap {group}"));
        names.insert(le(desc, 4), format!("inode bitmap {group}"));
        for nth in 0..le(superblock, 40) * 256 / BLOCK {
            names.insert(le(desc, 8) + nth, format!("inode table {group}, block {nth}"));
        }
    }
    names
}

/// Name of a file's block, by its contents.
fn guess(copy: &[u8]) -> &'static str {
    match be(copy, 0) {
        0xd9d5_05f9 => "data: head of a rollback journal",
        0x377f_0682 | 0x377f_0683 => "data: head of a write-ahead log",
        0x5351_4c69 => "data: page 1 of the database",
        _ if le(copy, 4) & 0xffff == 12 && copy[8] == b'.' => "directory",
        _ => "data",
    }
}

/// Prints the transactions in the `blocks` log blocks from device block `first` on.
fn decode(memory: &MemoryDevice, names: &BTreeMap<u64, String>, first: u64, blocks: u64) {
    let mut at = first;
    while at < first + blocks {
        let head = block(memory, at);
        at += 1;
        match (be(&head, 0), be(&head, 4)) {
            (MAGIC, 1) => println!("    descriptor of transaction {}", be(&head, 8)),
            (MAGIC, 2) => println!("    commit block"),
            _ => println!("    ?"),
        }
        if (be(&head, 0), be(&head, 4)) != (MAGIC, 1) {
            continue;
        }
        let mut tag = 12;
        loop {
            let flags = be(&head, tag + 4) & 0xffff;
            let home = u64::from(be(&head, tag)) | u64::from(be(&head, tag + 8)) << 32;
            let copy = block(memory, at);
            let name = names.get(&home).map_or(guess(&copy), String::as_str);
            println!("      block {home}: {name}");
            at += 1;
            tag += if flags & 2 == 0 { 28 } else { 12 };
            if flags & 8 != 0 {
                break;
            }
        }
    }
}

fn main() -> Result<()> {
    let mut parameters = Parameters { operations: Some(60), ..Parameters::default() };
    let (mut name, mut last) = ("sqlite/update".to_owned(), 8);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_default();
        match argument.as_str() {
            "-j" => parameters.journal_mode = JournalMode::by_name(&value())?,
            "-n" => parameters.operations = value().parse().ok(),
            "-l" => last = value().parse().unwrap_or(last),
            _ => name = argument,
        }
    }
    let profile = Profile::parse_built_in("nexus7-emmc")?;
    let image = Image::load(&ImageSource::default())?;
    let mount = MountOptions::parse("sync=eager")?;
    let simulation =
        Simulation { profile: &profile, image: &image, mount: &mount, parameters: &parameters };
    let stack = Stack::new(&profile, image.snapshot(), 1_000_000)?;
    simulation.run_on(&stack, find(&name)?[0], &Unobserved)?;
    let names = fixed(&stack.memory);
    let events = stack.recording.take_events();
    // Longer than a superblock: transactions. The end of the run writes one more, of everything.
    let long = |e: &&syncline_device::TraceEvent| e.len_bytes > 2 * BLOCK;
    let log = events.iter().filter(|e| e.op == TraceOp::Write && e.origin.kind == Kind::Journal);
    let bursts: Vec<_> = log.filter(long).collect();
    let end = bursts.len().saturating_sub(1);
    for burst in &bursts[end.saturating_sub(last)..end] {
        println!("write at {} ms, {} KiB", burst.time_ns / 1_000_000, burst.len_bytes / 1024);
        decode(&stack.memory, &names, burst.offset_bytes / BLOCK, burst.len_bytes / BLOCK);
    }
    Ok(())
}
