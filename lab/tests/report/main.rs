//! Pages in a browser: everything is drawn and named, nothing overlaps, on wide and narrow windows,
//! light and dark.

use std::path::PathBuf;

use serde_json::{Value, json};
use syncline_device::{Kind, Origin, TraceEvent, TraceOp};
use syncline_lab::report::{About, Chart, Layout, Page, compare_documents};
use syncline_testkit::{Need, look, require};

fn about() -> About {
    About {
        version: "syncline 0.1.0".into(),
        command: "syncline-lab bench --html 'a b'".into(),
        host: "Linux 6.18".into(),
        date: "2026-01-01 00:00:00 UTC".into(),
    }
}

/// Bands of addresses far apart, all kinds of requests, more than are drawn one by one.
fn events() -> Vec<TraceEvent> {
    let place = |n: u64| match n % 4 {
        0 => (Kind::Journal, (100 << 20) + n * 512 / 4096 * 4096),
        1 => (Kind::Metadata, (129 << 20) + n % 64 * 4096),
        2 => (Kind::Data { inode: 12 }, (1025 << 20) + n * 4096),
        _ => (Kind::Data { inode: 13 }, (40 << 30) + n * n % 9973 * 4096),
    };
    let event = |n: u64| {
        let (kind, offset_bytes) = place(n);
        TraceEvent {
            time_ns: n * 1_234_567,
            op: if n % 7 == 3 { TraceOp::Read } else { TraceOp::Write },
            offset_bytes,
            len_bytes: 4096,
            origin: Origin::new(kind, false),
            fua: false,
        }
    };
    (0..9000).map(event).collect()
}

/// A page with every kind of chart, with the names that are hard to place.
fn gallery() -> Page {
    let mut page = Page::new("every chart");
    let settings = ["ordered delete", "eager delete mtime=100 hot_zones 80%", "eager packed wal"];
    let rows: Vec<(String, f64)> =
        settings.iter().zip([38.3, 1234.5, 117.0]).map(|(s, v)| ((*s).into(), v)).collect();
    page.bars(&Chart::rows("operations a second", "1/s", "sqlite/insert", &rows));
    let series: Vec<String> =
        ["lru", "clock", "fab", "arc", "lirs", "2q", "sieve", "s3-fifo", "lfu"]
            .map(str::to_owned)
            .to_vec();
    let groups: Vec<String> = (0..6).map(|n| format!("{} MiB", 1 << (2 * n))).collect();
    let value = |n: usize| (n * 37 % 90) as f64 + 0.125;
    let values = (0..6).map(|g| (0..9).map(|s| value(g * 9 + s)).collect()).collect();
    let (title, unit) = ("Hit ratio".to_owned(), "%".to_owned());
    page.bars(&Chart { title, unit, groups, series, values, ..Chart::default() });
    let curve = |at: usize| (0..6).map(|size| vec![value(at + size), value(size)]).collect();
    page.bars(&Chart {
        title: "Hit ratio".to_owned(),
        unit: "%".to_owned(),
        layout: Layout::Lines,
        group: "size of the cache".to_owned(),
        groups: (0..6).map(|n| format!("{} MiB", 1 << (2 * n))).collect(),
        series: vec!["lru".to_owned(), "clock".to_owned()],
        values: curve(7),
        ..Chart::default()
    });
    let times = [("read", 947.0), ("write", 522_977.0)].map(|(name, us)| (name.to_owned(), us));
    let times = Chart::rows("average latency", "us", "average", &times);
    page.bars(&Chart { log: true, ..times });
    page.bars(&Chart::modes("flushes an operation", "flushes", &rows));
    page.addresses("addresses against time", &events(), 3);
    page.sequence("writes in order", &events()[..300], 0);
    page.table(&["figure".into(), "value".into()], &[vec!["a".into(), "1".into()]], 1);
    page
}

#[test]
fn the_vendored_library_is_the_one_that_the_manifest_names() {
    use sha2::{Digest, Sha256};
    let manifest: toml::Table = include_str!("../../Cargo.toml").parse().unwrap();
    let entries = manifest["package"]["metadata"]["vendored"].as_array().unwrap();
    for entry in entries {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let bytes = std::fs::read(root.join(entry["file"].as_str().unwrap())).unwrap();
        let sum: String = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(sum, entry["sha256"].as_str().unwrap());
    }
}

fn write(html: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("report.html");
    std::fs::write(&path, html).unwrap();
    (dir, path)
}

fn seen(path: &std::path::Path, width: u32, dark: bool) -> Value {
    let seen: Value = serde_json::from_str(&look(path, width, dark)).unwrap();
    let name = format!("{width} pixels, dark: {dark}");
    for none in ["errors", "overlaps", "outside", "unnamed", "empty", "cut"] {
        assert_eq!(seen[none], json!([]), "{none}, {name}");
    }
    assert_eq!(seen["width"], width, "{name}");
    assert_eq!(seen["wide"], false, "{name}: the page is no wider than the window");
    let footer = seen["footer"].as_str().unwrap();
    for part in ["syncline 0.1.0", "--html 'a b'", "Linux 6.18", "2026-01-01"] {
        assert!(footer.contains(part), "{part}: {footer}");
    }
    seen
}

#[test]
fn every_chart_is_drawn_named_and_legible() {
    if !require("every_chart_is_drawn_named_and_legible", &[Need::Chromium]) {
        return;
    }
    let (_dir, path) = write(&gallery().finish(&about()));
    let [[light, _, _], [dark, _, _]] =
        [false, true].map(|dark| [1280, 768, 390].map(|width| seen(&path, width, dark)));
    assert_eq!(light["charts"], 7);
    assert_eq!(
        (&light["back"], &dark["back"]),
        (&json!("rgb(255, 255, 255)"), &json!("rgb(13, 17, 23)"))
    );
    assert_ne!(light["axis"], dark["axis"], "labels follow the colour scheme");
    assert!(light["hidden"].as_i64().unwrap() >= 3, "the key hides its bars: {light}");
    // Exact figures under the pointer.
    let tip = |n: usize| light["tips"][n].as_str().unwrap().to_owned();
    assert!(tip(0).contains("38.3") && tip(0).contains("sqlite/insert"), "{}", tip(0));
    assert!(tip(1).contains("0.125"), "{}", tip(1));
    assert!(tip(3).contains("947"), "{}", tip(3));
    assert!(tip(5).contains("4,096 bytes") && tip(5).contains("at byte"), "{}", tip(5));
}

#[test]
fn a_comparison_is_a_page() {
    if !require("a_comparison_is_a_page", &[Need::Chromium]) {
        return;
    }
    let run = |name: &str, n: u64| {
        json!({"workload": name, "config": {"sync": "eager", "journal_mode": "delete"},
            "metrics": {"flushes": n, "latency_us_p50": n as f64 * 1.5}})
    };
    let document = |n: u64| {
        json!({"schema": "syncline.bench/1",
            "runs": [run("sqlite/insert", n), run("create/4k-fsync", 7 * n)]})
    };
    let found = compare_documents(["a.json", "b.json"], &document(3), &document(4), &[]).unwrap();
    let (_dir, path) = write(&found.html(&about()));
    assert_eq!(seen(&path, 1280, false)["charts"], 1);
    seen(&path, 768, false);
    seen(&path, 390, true);
}

#[test]
fn the_looker_finds_what_is_wrong() {
    if !require("the_looker_finds_what_is_wrong", &[Need::Chromium]) {
        return;
    }
    let html = gallery().finish(&about());
    // A label over another one, a series without its key, an error on the console.
    let broken = html
        .replace("hideOverlap: true", "hideOverlap: false, interval: 0, rotate: 0, margin: -40")
        .replace("button.append(swatch, s.name)", "button.append(swatch, 'one')")
        .replace(
            "  draw();\n  let width",
            "  draw();\n  console.error('on purpose');\n  let width",
        );
    let (_dir, path) = write(&broken);
    let seen: Value = serde_json::from_str(&look(&path, 480, false)).unwrap();
    for some in ["errors", "overlaps", "unnamed"] {
        assert_ne!(seen[some], json!([]), "{some}: {seen}");
    }
}
