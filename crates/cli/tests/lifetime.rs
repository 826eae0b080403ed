//! `syncline lifetime`: a trace made here, figures worked out by hand, every refusal.

mod support;

use std::path::Path;

use support::{done, refused, scratch};
use syncline_trace::{Header, Names, Op, Record, Sink, TraceKind, TraceWriter};

/// Sixteen writes of 1 MiB in order, one each 100 ms, and a flush.
fn trace(kind: TraceKind) -> Vec<u8> {
    let header = Header { kind, source: "test".into() };
    let mut writer = TraceWriter::new(Vec::new(), &header).unwrap();
    let names = Names::default();
    for i in 0..16 {
        let record = Record::new(i * 100_000_000, Op::Write).range(i << 20, 1 << 20);
        writer.record(&names, &record).unwrap();
    }
    // Over the border of two units, and of no whole sector: one byte of each.
    let odd = Record::new(1_590_000_000, Op::Read).range((1 << 20) - 1, 2);
    writer.record(&names, &odd).unwrap();
    writer.record(&names, &Record::new(1_600_000_000, Op::Flush)).unwrap();
    writer.finish(&names).unwrap()
}

fn save(dir: &Path, name: &str, bytes: &[u8]) -> String {
    let path = dir.join(name);
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn years_follow_from_programmed_bytes() {
    let dir = scratch();
    let path = save(dir.path(), "block.trace", &trace(TraceKind::Block));
    let arguments = ["lifetime", "--trace", &path, "--precondition", "0", "--json"];
    let run = |more: &[&str]| -> serde_json::Value {
        let all: Vec<&str> = arguments.iter().chain(more).copied().collect();
        serde_json::from_str(&done(&all)).unwrap()
    };
    // Whole effective pages in order: nothing is amplified and nothing erased.
    let one = run(&["--device", "sd-2012"]);
    assert_eq!(one["schema"], "syncline.lifetime/1");
    assert_eq!((&one["size_bytes"], &one["erases"]), (&(64 << 20).into(), &0.into()));
    assert_eq!(one["written_bytes"], 16 << 20);
    assert_eq!(one["programmed_bytes"], 16 << 20);
    // 64 MiB and 7 % are 18 superblocks of 4 MiB, and 4 for logs and merging.
    let used = one["lifetime"]["cycles_used"].as_f64().unwrap();
    assert!((used - 4.0 / 22.0).abs() < 1e-9, "{one:#}");
    let years = one["lifetime"]["years_even"].as_f64().unwrap();
    let duration_s = one["duration_s"].as_f64().unwrap();
    let expected = 3000.0 / used * duration_s / 31_557_600.0;
    assert!((years / expected - 1.0).abs() < 1e-9, "{one:#}");
    // Again: four superblocks are replaced; the last switch merge comes with the next pass.
    let two = run(&["--device", "sd-2012", "--passes", "2"]);
    assert_eq!((&two["erases"], &two["merges"]["switch"]), (&3.into(), &3.into()), "{two:#}");
    let many = run(&["--device", "sd-2012:rated_cycles=6000"]);
    let twice = many["lifetime"]["years_even"].as_f64().unwrap();
    assert!((twice / years - 2.0).abs() < 1e-9);
    let table = done(&arguments[..5]);
    assert!(
        table.contains("nexus7-emmc, 64 MiB") && table.contains(" years until 3000"),
        "{table}"
    );
}

#[test]
fn what_is_no_block_trace_is_refused() {
    let dir = scratch();
    let calls = save(dir.path(), "calls.trace", &trace(TraceKind::Syscall));
    let said = refused(4, &["lifetime", "--trace", &calls]);
    assert!(said.contains("a syscall trace has no places on a device"), "{said}");
    let text = save(dir.path(), "text.trace", b"no trace at all");
    refused(3, &["lifetime", "--trace", &text]);
    let missing = dir.path().join("missing").to_str().unwrap().to_owned();
    let said = refused(1, &["lifetime", "--trace", &missing]);
    assert!(said.contains("check the path"), "{said}");
    refused(2, &["lifetime", "--trace", &calls, "--device", "nokia"]);
}
